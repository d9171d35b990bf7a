"""What the command line asks about one network: its fiber, its regions, its duplicates."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from lawful.errors import LawfulError
from lawful.fibers.cell import OutOfTime
from lawful.fibers.cells import cells
from lawful.fibers.domain import Domain
from lawful.fibers.fingerprint import Library, fingerprint
from lawful.fibers.one_layer_fiber import LayerwiseFiber, layerwise_fiber
from lawful.fibers.polyhedral import polygon, polyhedral_complex, ridges, segment
from lawful.fibers.reduce import Reduced, simplify
from lawful.fibers.same import same, stack_of
from lawful.fibers.three_layers import BottleneckFiber, bottleneck_fiber
from lawful.fibers.verdict import Equal
from lawful.network import Dag, Mlp
from lawful.types import Floats

MOST_COMPONENTS = 4096  # components looked at before the count is left open
MOST_SUBSETS = 16  # neurons among which all subsets are tried


@dataclass(frozen=True, eq=False)
class Described:
    """Facts about a fiber, and the fiber itself."""

    facts: dict[str, Any]
    fiber: LayerwiseFiber | BottleneckFiber

    def sample(self, count: int, seed: int) -> list[Mlp]:
        """Other parameters of the same function, on as many components as there are samples."""
        if isinstance(self.fiber, BottleneckFiber):
            return self.fiber.sample(count, seed)
        live = [c for c in islice(self.fiber.components(), MOST_COMPONENTS) if c.dimension is not None]
        return [self.fiber.sample(live[number % len(live)].flipped, seed + number) for number in range(count)]


def describe_fiber(network: Mlp | Dag, domain: str = "space") -> Described:
    """The fiber of one hidden layer or of a three-layer bottleneck, in numbers."""
    reduced = simplify(Reduced(stack_of(network)), 1e-12)
    stack = reduced.stack
    if stack.hidden == 1:
        inputs = stack.widths[0]
        where = Domain.orthant(inputs) if domain == "orthant" else Domain.space(inputs)
        layer = layerwise_fiber(stack, where)
        facts = {"kind": "one hidden layer", "domain": str(where), "removed": len(reduced.steps)} | _layer_facts(layer)
        return Described(facts, layer)
    found = bottleneck_fiber(stack)
    facts = {
        "kind": "three-layer bottleneck",
        "removed": len(reduced.steps),
        "hidden": found.hidden,
        "lowest_shift": found.lowest_shift,
        "flips": found.flips,
        "dimension": found.dimension,
    }
    return Described(facts | (_layer_facts(found.head) if found.head is not None else _flip_facts(found)), found)


def _layer_facts(fiber: LayerwiseFiber) -> dict[str, Any]:
    seen = list(islice(fiber.components(), MOST_COMPONENTS))
    total = 2 ** len(fiber.bending)
    return {
        "case": fiber.case,
        "linear": len(fiber.linear),
        "dimension": fiber.dimension,
        "components": total,
        "checked": len(seen),
        "nonempty": sum(component.dimension is not None for component in seen),
    }


def _flip_facts(fiber: BottleneckFiber) -> dict[str, Any]:
    count = 2**fiber.flips
    return {"case": None, "linear": 0, "components": count, "checked": count, "nonempty": count}


def count_regions(
    network: Mlp | Dag,
    box: tuple[float, float] | None,
    *,
    facets: bool = False,
    each: bool = False,
    seconds: float = 60.0,
    tick: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """Enumerate the regions over R^d or a box, until done or out of time."""
    start = time.perf_counter()
    stack = stack_of(network)
    domain = _domain(stack.widths[0], box)
    count, listed, complete = 0, [], True
    try:
        for cell in cells(stack, domain, deadline=start + seconds):
            count += 1
            tick()
            if each:
                bits = ["".join("1" if bit else "0" for bit in layer) for layer in cell.pattern]
                listed.append(
                    {
                        "pattern": bits,
                        "point": cell.point,
                        "radius": cell.radius,
                        "matrix": cell.matrix,
                        "offset": cell.offset,
                    }
                )
    except OutOfTime:
        complete = False
    taken = time.perf_counter() - start
    result: dict[str, Any] = {
        "regions": count,
        "complete": complete,
        "domain": str(domain),
        "seconds": round(taken, 4),
        "per_second": round(count / taken, 1),
    }
    whole = crossings = None
    if facets and complete:
        try:
            whole = polyhedral_complex(stack, domain, deadline=start + seconds)
            crossings = ridges(whole, deadline=start + seconds)
        except OutOfTime:
            result["complete"] = False
    if whole is not None and crossings is not None:
        result |= {
            "facets": len(whole.facets),
            "visible_facets": len(whole.visible()),
            "ridges": len(crossings),
            "worst_imbalance": max((ridge.imbalance for ridge in crossings), default=0.0),
        }
    return result | ({"each": listed} if each else {})


def draw_regions(
    network: Mlp | Dag, box: tuple[float, float] | None
) -> tuple[list[Floats], list[tuple[int, bool, Floats]], Domain]:
    """Polygons of the regions in the plane, and the facets as (layer, visible, ends)."""
    stack = stack_of(network)
    if stack.widths[0] != 2 or box is None:
        raise LawfulError("a picture needs a network of two inputs and a box: --box -3,3")
    domain = _domain(2, box)
    whole = polyhedral_complex(stack, domain)
    visible = {id(facet) for facet in whole.visible()}
    lines = [(facet.neuron[0], id(facet) in visible, segment(whole, facet)) for facet in whole.facets]
    return (
        [polygon(region, domain) for region in whole.regions],
        [(layer, seen, ends) for layer, seen, ends in lines if ends is not None],
        domain,
    )


def _domain(inputs: int, box: tuple[float, float] | None) -> Domain:
    return Domain.space(inputs) if box is None else Domain.box(inputs, *box)


def group_networks(
    names: Sequence[str], read: Callable[[str], Mlp | Dag], tick: Callable[[], None] = lambda: None
) -> dict[str, Any]:
    """Fingerprint many networks in one pass; a network joins a group only if `same` proves it equal to the first."""
    library = Library()
    groups: list[list[str]] = []
    files = []
    for name in names:
        network = read(name)
        found = fingerprint(network)
        place = library.find(found)
        if place is not None and isinstance(same(read(groups[place][0]), network, seconds=10.0), Equal):
            groups[place].append(name)
        else:
            library.add(found, len(groups))
            groups.append([name])
        files.append({"file": name, "fingerprint": found.hash, "regime": found.regime, "complete": found.complete})
        tick()
    return {"files": files, "groups": groups, "distinct": len(groups)}
