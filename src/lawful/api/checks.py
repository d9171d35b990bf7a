"""Questions about one network on a box: a specification from a file, or monotone outputs."""

from __future__ import annotations

import time
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from lawful.bounds.certificate import certificate_of_property
from lawful.bounds.exact import exact_outputs
from lawful.bounds.layers import layers_of
from lawful.bounds.property import Forbidden, PropertyCheck, check_property
from lawful.errors import LawfulError, Unsupported
from lawful.fibers.monotone import MonotoneCheck, certificate_of_monotone, check_monotone, read_directions
from lawful.formats.queries.box import read_box
from lawful.formats.queries.vnnlib import Variable
from lawful.formats.specification import ForbiddenBox, Specification, read_specification, regions
from lawful.network import Dag, Mlp
from lawful.network.validity import Role
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
    return check_specification(network, read_specification(file), seconds=seconds, scheduler=scheduler, seed=seed)


def check_specification(
    network: Mlp | Dag, specification: Specification, *, seconds: float, scheduler: str | None = None, seed: int = 0
) -> PropertyCheck:
    """Ask box after box; what is left of the time is shared among the boxes that are left.

    Boxes are searched rounded outward, so that *holds* covers the exact ones; an input that shows the contrary has to
    be what the file describes in exact rationals, else nothing is decided there.
    """
    started = time.monotonic()
    graph = network.to_dag()
    asked = regions(specification, len(graph.inputs), len(graph.outputs))
    nothing = np.zeros(0)
    total = PropertyCheck("holds", None, None, 0, 0.0, False, (nothing, nothing), ())
    open_ = False
    for number, region in enumerate(asked):
        left = max(0.0, seconds - (time.monotonic() - started)) / (len(asked) - number)
        found = _check_region(network, region, specification, left, scheduler, seed)
        boxes = total.boxes + found.boxes
        if found.status == "violated":
            return replace(found, boxes=boxes, seconds=time.monotonic() - started)
        open_ = open_ or found.status == "undecided"
        total = replace(found if len(asked) == 1 else total, boxes=boxes, interrupted=found.interrupted)
        if found.interrupted:
            open_ = True
            break
    return replace(total, status="undecided" if open_ else "holds", seconds=time.monotonic() - started)


def _check_region(
    network: Mlp | Dag,
    region: ForbiddenBox,
    specification: Specification,
    seconds: float,
    scheduler: str | None,
    seed: int,
) -> PropertyCheck:
    used = _used(region, specification)
    asked = with_inputs(network.to_dag(), used) if used else network
    forbidden = _rows(region, specification, len(network.to_dag().outputs), used)
    found = check_property(asked, region.outward(), forbidden, seconds=seconds, scheduler=scheduler, seed=seed)
    if found.input is None:
        return found
    point = _inside(found.input, region)
    if point is None or not _described(network, point, specification):
        return replace(found, status="undecided", input=None, outputs=None)
    return replace(found, input=point, outputs=tuple(exact_outputs(layers_of(network), point)))


def with_inputs(dag: Dag, places: list[int]) -> Dag:
    """The network with some of its inputs as further outputs, so that conditions on both are conditions on outputs."""
    first = len(dag.names)
    names = [*dag.names, *(f"input {place} again" for place in places)]
    roles = [*dag.roles.tolist(), *[int(Role.OUTPUT)] * len(places)]
    tails = [*dag.tails.tolist(), *(int(dag.inputs[place]) for place in places)]
    heads = [*dag.heads.tolist(), *range(first, first + len(places))]
    slopes = [*dag.slopes.tolist(), *[1.0] * len(places)]
    return Dag(names, roles, tails, heads, [*dag.theta.tolist(), *[1.0] * len(places)], slopes)


def _used(region: ForbiddenBox, specification: Specification) -> list[int]:
    """The inputs that conditions beside the box mention."""
    name = specification.text.of("input")[0].name
    terms = (variable for case in region.cases for condition in case for variable in condition.terms)
    return sorted({variable.place for variable in terms if variable.tensor == name})


def _rows(region: ForbiddenBox, specification: Specification, outputs: int, used: list[int]) -> list[list[Forbidden]]:
    Y, X = specification.text.of("output")[0].name, specification.text.of("input")[0].name
    order = [*(Variable(Y, place) for place in range(outputs)), *(Variable(X, place) for place in used)]
    return [
        [
            Forbidden(tuple(terms.get(variable, Fraction(0)) for variable in order), bound, strict)
            for terms, bound, strict in case
        ]
        for case in region.cases
    ]


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


def _described(network: Mlp | Dag, point: Floats, specification: Specification) -> bool:
    Y, X = specification.text.of("output")[0].name, specification.text.of("input")[0].name
    values = {Variable(X, place): Fraction(float(x)) for place, x in enumerate(point)}
    values |= {Variable(Y, place): y for place, y in enumerate(exact_outputs(layers_of(network), point))}
    return specification.holds(values)


def certificate_of_check(found: PropertyCheck | MonotoneCheck, network: Mlp | Dag) -> dict[str, Any]:
    """The evidence for either answer."""
    if isinstance(found, MonotoneCheck):
        return certificate_of_monotone(found, network)
    outputs = len(network.to_dag().outputs)
    if not found.forbidden:
        raise Unsupported("an answer about several boxes, or about none, has no certificate")
    if any(len(row.coefficients) != outputs for case in found.forbidden for row in case):
        raise Unsupported("an answer about conditions on inputs and outputs together has no certificate")
    return certificate_of_property(found, network)
