"""Specifications in files, of one network or several: which network is which, and the method that fits the question.

Whatever a file describes is a question about the network that runs all of them side by side. Its relaxation knows
nothing of neurons that resemble each other, so two forms are first given to methods that do: outputs that differ by
more than a number (`distance`), and one network that should be monotone. Those methods only ever prove something
stronger than that nothing is described; an input that they find counts if it is what the file describes, in rationals.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from lawful.bounds.distance import distance
from lawful.bounds.layers import exact_outputs, layers_of
from lawful.bounds.property import PropertyCheck, check_regions
from lawful.bounds.result import Distance
from lawful.bounds.result import certificate as certificate_of_distance
from lawful.bounds.slopes import Growth
from lawful.bounds.split.certificate import certificate_of_specification
from lawful.errors import LawfulError, Unsupported
from lawful.fibers.monotone import MonotoneCheck, certificate_of_monotone, check_monotone, read_directions
from lawful.formats.io.reading import read_text
from lawful.formats.queries.box import read_box
from lawful.formats.queries.joint_specification import JointSpecification, join
from lawful.formats.queries.specification import Specification, read_specification, regions
from lawful.formats.queries.vnnlib import Text, read_vnnlib
from lawful.network import Dag, Mlp, Role
from lawful.network.digest import digest
from lawful.sentences.bounds import difference_stays_within, is_monotone
from lawful.types import Floats

SHARE = 0.8  # of the time for the method that fits the form; the joint network has the rest


class SeveralAnswer(NamedTuple):
    """The answer, in terms of the joint network if there are several; the networks that its certificate is about, what
    shows it, and the joint question."""

    found: PropertyCheck
    about: tuple[Mlp | Dag, ...]
    shown: Distance | MonotoneCheck | None = None
    question: JointSpecification | None = None

    def certificate(self) -> dict[str, Any]:
        """The evidence for `lawful verify`."""
        if isinstance(self.shown, Distance):
            return certificate_of_distance(self.shown, *self.about)
        if isinstance(self.shown, MonotoneCheck):
            return certificate_of_monotone(self.shown, *self.about)
        return certificate_of_check(self.found, *self.about)


def check_file(
    file: Path,
    named: Sequence[tuple[str | None, str]],
    open_source: Callable[[str], Mlp | Dag],
    *,
    seconds: float,
    scheduler: str | None = None,
    threads: int | None = None,
    seed: int = 0,
) -> SeveralAnswer:
    """Whether what a file describes occurs in the networks that are given, by name or in the file's order."""
    if not file.name.lower().endswith((".vnnlib", ".vnnlib.gz")):
        raise LawfulError(f"{str(file)[:80]}: a specification is a .vnnlib file, after the networks")
    options: dict[str, Any] = {"seconds": seconds, "scheduler": scheduler, "threads": threads, "seed": seed}
    if len(named) == 1 and not is_about_several(file):
        network = open_source(named[0][1])
        return SeveralAnswer(check_specification(network, read_specification(file), **options), (network,))
    text = read_vnnlib(file)
    if len(text.networks) < 2:
        raise LawfulError(f"{file}: is about one network, and {len(named)} were given")
    sources = assign(text, named, file)
    opened = {source: open_source(source) for source in dict.fromkeys(sources.values())}
    networks = {name: opened[source] for name, source in sources.items()}
    question = joint_question(file, networks)
    return check_several(networks, question, **options)._replace(question=question)


def is_about_several(file: Path) -> bool:
    """Whether a specification declares more than one network."""
    # A file of one network may have thousands of lines, and need not be parsed twice.
    return read_text(file).count("declare-network") > 1 and len(read_vnnlib(file).networks) > 1


def split_name(text: str) -> tuple[str | None, str]:
    """The name and the source of `f=a.onnx`; no name where there is none, or the whole is a file.

    >>> split_name("f=a.onnx"), split_name("a.onnx")
    (('f', 'a.onnx'), (None, 'a.onnx'))
    """
    match = None if Path(text).exists() else re.fullmatch(r"([A-Za-z_]\w*)=(.+)", text)
    return (None, text) if match is None else (match[1], match[2])


def assign(text: Text, named: Sequence[tuple[str | None, str]], file: Path) -> dict[str, str]:
    """Which source each declared network is, by name or in order; one that equals another needs none of its own.

    >>> two = "(declare-network {} {} (declare-input X{} real [1]) (declare-output Y{} real [1]))"
    >>> from lawful.formats.queries.vnnlib import parse_vnnlib
    >>> text = parse_vnnlib(two.format("f", "", 1, 1) + two.format("g", "(equal-to f)", 2, 2))
    >>> assign(text, [(None, "a.onnx")], Path("s.vnnlib"))
    {'f': 'a.onnx', 'g': 'a.onnx'}
    """
    needed = [name for name in text.networks if name not in text.equal]
    if all(name is None for name, _ in named):
        order = text.networks if len(named) == len(text.networks) else needed
        sources = dict(zip(order, (source for _, source in named), strict=False)) if len(named) == len(order) else {}
    else:
        sources = {name or "": source for name, source in named}
        for name in sources:
            if name not in text.networks:
                known = ", ".join(text.networks)[:80]
                raise LawfulError(f"{file}: declares the networks {known}, not {name[:40] or 'one without a name'}")
    for name in needed:
        if name not in sources:
            wanted = " and ".join(needed)[:80]
            raise LawfulError(
                f"{file}: is about {wanted}: give a file for each in this order ({len(named)} were given)"
            )
    for name in text.networks:  # an equal one may equal another that equals a third
        equal = name
        for _ in text.networks:
            equal = text.equal.get(equal, equal)
        if name not in sources and equal in sources:
            sources[name] = sources[equal]
    if missing := [name for name in text.networks if name not in sources]:
        raise LawfulError(f"{file}: the networks {', '.join(missing)[:80]} are declared equal to each other only")
    return {name: sources[name] for name in text.networks}


def joint_question(file: Path, networks: Mapping[str, Mlp | Dag]) -> JointSpecification:
    """What a file asks about networks that are what it declares them to be."""
    specification = read_specification(file)
    text = specification.text
    for tensor in text.tensors.values():
        dag = networks[tensor.network].to_dag()
        count = len(dag.inputs if tensor.side == "input" else dag.outputs)
        if tensor.size != count:
            words = f"{tensor.size} {tensor.side}s, but its network has {count}"
            raise LawfulError(f"{file}: declares {tensor.network[:40]} with {words}")
    for name, other in text.equal.items():
        if digest(networks[name]) != digest(networks[other]):
            raise LawfulError(f"{file}: declares {name[:40]} equal to {other[:40]}, but the files are other networks")
    try:
        return join(specification)
    except LawfulError as error:
        raise LawfulError(f"{file}: {error}") from None


def joint_network(networks: Mapping[str, Mlp | Dag], question: JointSpecification) -> Dag:
    """All networks side by side, on the inputs that the question has in common."""
    count = question.inputs
    names, roles = [f"x{place}" for place in range(count)], [int(Role.INPUT)] * count
    slopes = [1.0] * count
    dags = {name: networks[name].to_dag() for name in question.text.networks}
    if any(dag.constant is not None for dag in dags.values()):
        names, roles, slopes = [*names, "one"], [*roles, int(Role.CONSTANT)], [*slopes, 1.0]
    tails, heads, weights = [], [], []
    for number, (name, dag) in enumerate(dags.items()):
        place = np.zeros(len(dag.names), dtype=np.intp)
        place[dag.inputs] = question.of(name, "input")
        if dag.constant is not None:
            place[dag.constant] = count
        computed = np.flatnonzero((dag.roles == Role.HIDDEN) | (dag.roles == Role.OUTPUT))
        place[computed] = len(names) + np.arange(len(computed))
        names += [f"n{number}.{node}" for node in computed]
        roles += dag.roles[computed].tolist()
        slopes += dag.slopes[computed].tolist()
        tails.append(place[dag.tails])
        heads.append(place[dag.heads])
        weights.append(dag.theta)
    return Dag(names, roles, np.concatenate(tails), np.concatenate(heads), np.concatenate(weights), np.array(slopes))


def check_several(
    networks: Mapping[str, Mlp | Dag],
    question: JointSpecification,
    *,
    seconds: float,
    scheduler: str | None = None,
    threads: int | None = None,
    seed: int = 0,
) -> SeveralAnswer:
    """Whether what a file describes occurs: the method that fits first, then the joint network."""
    started = time.monotonic()
    joint = joint_network(networks, question)
    asked = _Asked(question, joint)
    options: dict[str, Any] = {"scheduler": scheduler, "threads": threads, "seed": seed}
    shown: Distance | MonotoneCheck | None = None
    about: tuple[Mlp | Dag, ...] = ()
    why, point = "", None
    if asked.regions and (within := question.tolerance()) is not None:
        about = tuple(networks[name] for name in question.text.networks)
        shown = distance(about[0], about[1], asked.hull, within=within, seconds=SHARE * seconds, **options)
        why, point = difference_stays_within("max |g − f|", within), shown.input
    elif asked.regions and (growth := question.growth()) is not None and question.text.equal:
        directions, outputs = growth
        about = (networks[question.text.networks[0]],)
        box = asked.hull_of_each()
        if all(box[0][place] < box[1][place] for place in directions):
            ways = [Growth(place, rising) for place, rising in sorted(directions.items())]
            output = outputs[0] if len(outputs) == 1 else None
            shown = check_monotone(about[0], box, ways, output=output, seconds=SHARE * seconds, **options)
            signs = ", ".join(f"{'+' if way.rising else '-'}{way.input}" for way in ways)
            asked_of = "the outputs are" if output is None else f"output {output} is"
            why = is_monotone(asked_of, signs, "float64, rounded outwards")
    if shown is not None:
        spent = time.monotonic() - started
        if shown.status in ("proved", "holds"):
            answer = PropertyCheck("holds", None, None, shown.boxes, spent, shown.interrupted, asked.regions, why=why)
            return SeveralAnswer(answer, about, shown)
        points = [] if point is None else [point]
        if isinstance(shown, MonotoneCheck) and shown.inputs is not None:
            points = [asked.assemble(one, other) for one, other in (shown.inputs, shown.inputs[::-1])]
        for candidate in points:
            if (exact := asked.replay(candidate)) is not None:
                x, y = exact
                near = np.array([float(value) for value in x])
                violated = PropertyCheck(
                    "violated", near, y, shown.boxes, spent, shown.interrupted, asked.regions, exact_input=x
                )
                return SeveralAnswer(violated, (joint,))
        if shown.interrupted:
            open_one = PropertyCheck("undecided", None, None, shown.boxes, spent, True, asked.regions)
            return SeveralAnswer(open_one, (joint,))
    left = max(0.0, seconds - (time.monotonic() - started))
    rest = check_specification(joint, question.specification, seconds=left, **options)
    boxes = rest.boxes + (0 if shown is None else shown.boxes)
    return SeveralAnswer(replace(rest, boxes=boxes, seconds=time.monotonic() - started), (joint,))


class _Asked:
    """The regions of a joint question, and whether points are what it describes."""

    def __init__(self, question: JointSpecification, joint: Dag) -> None:
        self.question, self.layers = question, layers_of(joint)
        self.regions = tuple(regions(question.specification, question.inputs, question.outputs))

    @property
    def hull(self) -> tuple[Floats, Floats]:
        """A box of doubles that contains all of them."""
        ends = [region.outward() for region in self.regions]
        return np.min([low for low, _ in ends], axis=0), np.max([high for _, high in ends], axis=0)

    def hull_of_each(self) -> tuple[Floats, Floats]:
        """A box that contains the input of every network."""
        low, high = self.hull
        places = [self.question.of(name, "input") for name in self.question.text.networks]
        return np.min([low[place] for place in places], axis=0), np.max([high[place] for place in places], axis=0)

    def assemble(self, *points: Floats) -> Floats:
        """The joint input of one for each network."""
        joint = np.zeros(self.question.inputs)
        for name, point in zip(self.question.text.networks, points, strict=True):
            joint[self.question.of(name, "input")] = point
        return joint

    def replay(self, point: Floats) -> tuple[tuple[Fraction, ...], tuple[Fraction, ...]] | None:
        """The input, moved into a region, and its outputs, if the file describes them exactly."""
        for region in self.regions:
            x = region.move_inside(point)
            y = tuple(exact_outputs(self.layers, x))
            if region.holds(x, y) and self.question.specification.describes(x, y):
                return x, y
        return None


def check_growth(
    network: Mlp | Dag,
    monotone: str,
    box: str,
    *,
    output: int | None,
    seconds: float,
    scheduler: str | None = None,
    seed: int = 0,
) -> MonotoneCheck:
    """Whether outputs are monotone on a box in inputs such as `+0,-2`."""
    inputs = len(network.to_dag().inputs)
    return check_monotone(
        network, read_box(box, inputs), read_directions(monotone, inputs),
        output=output, seconds=seconds, scheduler=scheduler, seed=seed,
    )  # fmt: skip


def need_one_question(file: object, monotone: str | None, box: str | None, output: int | None) -> None:
    """Refuse a specification together with `--monotone` or its options, and neither."""
    if file is None and monotone is None:
        raise LawfulError("give a specification, a .vnnlib file, or --monotone with --box, one of the two")
    if file is not None and not (monotone is None and box is None and output is None):
        raise LawfulError("a specification names its own box and outputs: --monotone, --box and --output do not go")


def check_specification(
    network: Mlp | Dag,
    specification: Specification,
    *,
    seconds: float,
    scheduler: str | None = None,
    threads: int | None = None,
    seed: int = 0,
) -> PropertyCheck:
    """Whether what a file describes occurs."""
    dag = network.to_dag()
    inputs, outputs = len(dag.inputs), len(dag.outputs)
    return check_regions(
        network, regions(specification, inputs, outputs), described=specification.describes,
        seconds=seconds, scheduler=scheduler, threads=threads, seed=seed,
    )  # fmt: skip


def certificate_of_check(found: PropertyCheck | MonotoneCheck, network: Mlp | Dag) -> dict[str, Any]:
    """The evidence for either answer."""
    if isinstance(found, MonotoneCheck):
        return certificate_of_monotone(found, network)
    if found.status == "undecided":
        raise Unsupported("nothing is known of this property that a certificate could state")
    if not found.regions:
        raise Unsupported("the file describes nothing, so there is nothing to certify")
    violated = found.input is not None
    return certificate_of_specification(
        network, found.regions, point=found.exact_input, proofs=None if violated else found.proofs
    )
