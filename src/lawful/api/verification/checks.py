"""Questions about one network on a box: a specification from a file, or monotone outputs."""

from __future__ import annotations

import time
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from lawful.bounds.decide import decide
from lawful.bounds.exact import exact_outputs
from lawful.bounds.layers import Layer, layers_of
from lawful.bounds.property import PropertyCheck
from lawful.bounds.split.certificate import ForbiddenRegion, Proof, certificate_of_specification
from lawful.bounds.split.question import ForbiddenHalfSpace
from lawful.errors import LawfulError, Unsupported
from lawful.fibers.monotone import MonotoneCheck, certificate_of_monotone, check_monotone, read_directions
from lawful.formats.queries.box import read_box
from lawful.formats.queries.vnnlib import Variable
from lawful.formats.specification import ForbiddenBox, Specification, read_specification, regions
from lawful.formats.vnnlib_formula import Condition
from lawful.network import Dag, Mlp
from lawful.types import Floats


def check_network(
    network: Mlp | Dag,
    specification: str | Path | None,
    *,
    monotone: str | None,
    box: str | None,
    output: int | None,
    seconds: float,
    scheduler: str | None,
    seed: int,
    threads: int | None = None,
) -> PropertyCheck | MonotoneCheck:
    """One of the two questions; the other's options do not go with it."""
    inputs = len(network.to_dag().inputs)
    if (specification is None) == (monotone is None):
        raise LawfulError("give a specification, a .vnnlib file, or --monotone with --box, one of the two")
    if monotone is not None:
        if box is None:
            raise LawfulError("--monotone needs --box: lo,hi for all inputs, or lo:hi,lo:hi,... one for each")
        directions = read_directions(monotone, inputs)
        return check_monotone(
            network, read_box(box, inputs), directions,
            output=output, seconds=seconds, scheduler=scheduler, seed=seed,
        )  # fmt: skip
    if box is not None or output is not None:
        raise LawfulError("a specification names its own box and outputs: --box and --output go with --monotone")
    file = Path(str(specification))
    if not file.name.lower().endswith((".vnnlib", ".vnnlib.gz")):
        raise LawfulError(f"{str(file)[:80]}: a specification is a .vnnlib file")
    return check_specification(
        network, read_specification(file), seconds=seconds, scheduler=scheduler, threads=threads, seed=seed
    )


def check_specification(
    network: Mlp | Dag,
    specification: Specification,
    *,
    seconds: float,
    scheduler: str | None = None,
    threads: int | None = None,
    seed: int = 0,
) -> PropertyCheck:
    """Ask box after box; what is left of the time is shared among the boxes that are left.

    Boxes are searched rounded outward, so that *holds* covers the exact ones; an input that shows the contrary has to
    be what the file describes in exact rationals, else nothing is decided there.
    """
    started = time.monotonic()
    layers = layers_of(network)
    asked = regions(specification, layers[0].weight.shape[1], len(layers[-1].weight))
    every = tuple(
        ForbiddenRegion(region.low, region.high, half_spaces(region, specification, layers)) for region in asked
    )
    nothing = np.zeros(0)
    total = PropertyCheck("holds", None, None, 0, 0.0, False, (nothing, nothing), (), regions=every)
    if not asked:
        return replace(total, why="vacuous: the conditions of the file contradict each other")
    proofs: list[Proof] = []
    for number, region in enumerate(every):
        left = max(0.0, seconds - (time.monotonic() - started)) / (len(asked) - number)
        replay = partial(_replay, layers=layers, region=asked[number], specification=specification)
        found = decide(
            network, layers, region, asked[number].outward(), replay,
            seconds=left, scheduler=scheduler, threads=threads, seed=seed,
        )  # fmt: skip
        total = replace(
            total, boxes=total.boxes + found.boxes, interrupted=found.interrupted, box=asked[number].outward()
        )
        if found.input is not None:
            outputs = tuple(exact_outputs(layers, found.input))
            return replace(
                total, status="violated", input=found.input, outputs=outputs, seconds=time.monotonic() - started
            )
        if found.proof is None:
            total = replace(total, status="undecided", why=total.why or found.why)
        else:
            proofs.append(found.proof)
        if found.interrupted:
            break
    shown = tuple(proofs) if total.status == "holds" else ()
    return replace(total, proofs=shown, seconds=time.monotonic() - started)


def _replay(
    point: Floats, *, layers: tuple[Layer, ...], region: ForbiddenBox, specification: Specification
) -> Floats | None:
    """The input, moved inside the exact box, if it is what the file describes in exact rationals."""
    inside = _inside(point, region)
    return inside if inside is not None and _described(layers, inside, specification) else None


def half_spaces(
    region: ForbiddenBox, specification: Specification, layers: tuple[Layer, ...]
) -> tuple[tuple[ForbiddenHalfSpace, ...], ...]:
    """The conditions of a region on outputs, and on inputs where there are any."""
    Y, X = specification.text.of("output")[0].name, specification.text.of("input")[0].name
    inputs, outputs = layers[0].weight.shape[1], len(layers[-1].weight)
    zero = Fraction(0)

    def written(condition: Condition) -> ForbiddenHalfSpace:
        terms, bound, strict = condition
        row = tuple(terms.get(Variable(Y, place), zero) for place in range(outputs))
        mixed = any(variable.tensor == X for variable in terms)
        return ForbiddenHalfSpace(
            row, tuple(terms.get(Variable(X, place), zero) for place in range(inputs)) if mixed else (), bound, strict
        )

    return tuple(tuple(written(condition) for condition in case) for case in region.cases)


def _inside(point: Floats, region: ForbiddenBox) -> Floats | None:
    """The input moved by a last digit where rounding outward let it leave the box; None if no double is inside."""
    low, high = region.outward()
    low = np.array(
        [
            near if Fraction(near) >= end else np.nextafter(near, np.inf)
            for near, end in zip(low, region.low, strict=True)
        ]
    )
    high = np.array(
        [
            near if Fraction(near) <= end else np.nextafter(near, -np.inf)
            for near, end in zip(high, region.high, strict=True)
        ]
    )
    return np.minimum(np.maximum(point, low), high) if (low <= high).all() else None


def _described(layers: tuple[Layer, ...], point: Floats, specification: Specification) -> bool:
    Y, X = specification.text.of("output")[0].name, specification.text.of("input")[0].name
    values = {Variable(X, place): Fraction(float(x)) for place, x in enumerate(point)}
    values |= {Variable(Y, place): y for place, y in enumerate(exact_outputs(layers, point))}
    return specification.holds(values)


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
        network, found.regions, point=found.input, proofs=None if violated else found.proofs
    )
