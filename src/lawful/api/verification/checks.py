"""Questions about one network on a box: a specification from a file, or monotone outputs."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from lawful.bounds.property import PropertyCheck, check_regions
from lawful.bounds.split.certificate import certificate_of_specification
from lawful.bounds.split.question import ForbiddenHalfSpace, ForbiddenRegion
from lawful.errors import LawfulError, Unsupported
from lawful.fibers.monotone import MonotoneCheck, certificate_of_monotone, check_monotone, read_directions
from lawful.formats.queries.box import read_box
from lawful.formats.queries.specification import ForbiddenBox, Specification, regions
from lawful.formats.queries.vnnlib import Condition, Variable
from lawful.network import Dag, Mlp


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
    X, Y = (specification.text.of(side)[0].name for side in ("input", "output"))

    def described(x: Sequence[Fraction], y: Sequence[Fraction]) -> bool:
        values = {Variable(X, place): value for place, value in enumerate(x)}
        return specification.holds(values | {Variable(Y, place): value for place, value in enumerate(y)})

    asked = [
        ForbiddenRegion(region.low, region.high, half_spaces(region, specification, inputs, outputs))
        for region in regions(specification, inputs, outputs)
    ]
    return check_regions(
        network, asked, described=described, seconds=seconds, scheduler=scheduler, threads=threads, seed=seed
    )


def half_spaces(
    region: ForbiddenBox, specification: Specification, inputs: int, outputs: int
) -> tuple[tuple[ForbiddenHalfSpace, ...], ...]:
    """The conditions of a region on outputs, and on inputs where there are any."""
    Y, X = specification.text.of("output")[0].name, specification.text.of("input")[0].name
    zero = Fraction(0)

    def written(condition: Condition) -> ForbiddenHalfSpace:
        terms, bound, strict = condition
        row = tuple(terms.get(Variable(Y, place), zero) for place in range(outputs))
        mixed = any(variable.tensor == X for variable in terms)
        return ForbiddenHalfSpace(
            row, tuple(terms.get(Variable(X, place), zero) for place in range(inputs)) if mixed else (), bound, strict
        )

    return tuple(tuple(written(condition) for condition in case) for case in region.cases)


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
