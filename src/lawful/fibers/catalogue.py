"""What the command line asks about one network or many: a fiber, regions, duplicates."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice

from numpy.typing import ArrayLike

from lawful.errors import LawfulError, Unsupported
from lawful.fibers.assigned_fiber import AssignedFiber, assigned_fiber
from lawful.fibers.cell import Cell, OutOfTime
from lawful.fibers.cells import cells
from lawful.fibers.domain import Domain
from lawful.fibers.fingerprint import Library, fingerprint
from lawful.fibers.one_layer_fiber import LayerwiseFiber, layerwise_fiber
from lawful.fibers.polyhedral import polygon, polyhedral_complex, ridges, segment
from lawful.fibers.reduce import Reduced, simplify
from lawful.fibers.same import same, stack_of
from lawful.fibers.stack import Stack
from lawful.fibers.three_layers import BottleneckFiber, bottleneck_fiber
from lawful.fibers.verdict import Equal
from lawful.network import Dag, Mlp
from lawful.network.answers import answered
from lawful.network.opening import Source, open_graph
from lawful.shown import Shown
from lawful.types import Floats

MOST_COMPONENTS = 4096  # components looked at before the count is left open


@dataclass(frozen=True)
class Roles:
    """How many hyperplanes show, how many groups of neurons cancel, how many neurons are dead (P4 C.2)."""

    visible: int
    cancelling: int
    dead: int


@dataclass(frozen=True)
class FiberSummary:
    """A fiber in numbers: its dimension modulo order and scale, and its components as far as they were `checked`.

    For bottlenecks `hidden` is the first-layer hyperplane that the second layer hides, `lowest_shift` how far it may
    move down and `flips` how many others can be reversed; `roles` are those of a layer that is not minimal.
    """

    kind: str
    dimension: int
    removed: int
    components: int
    checked: int
    nonempty: int
    linear: int
    case: int | None = None
    domain: Domain | None = None
    hidden: int | None = None
    lowest_shift: float | None = None
    flips: int | None = None
    roles: Roles | None = None


@dataclass(frozen=True, eq=False)
class DescribedFiber(Shown):
    """A fiber in numbers, and the fiber itself."""

    summary: FiberSummary
    fiber: LayerwiseFiber | BottleneckFiber | AssignedFiber

    def sample(self, count: int, seed: int) -> list[Mlp]:
        """Other parameters of the same function, on as many components as there are samples."""
        if isinstance(self.fiber, BottleneckFiber):
            return self.fiber.sample(count, seed)
        if isinstance(self.fiber, AssignedFiber):
            return [self.fiber.sample(seed + number) for number in range(count)]
        live = [c for c in islice(self.fiber.components(), MOST_COMPONENTS) if c.dimension is not None]
        return [self.fiber.sample(live[number % len(live)].flipped, seed + number) for number in range(count)]


def describe_fiber(network: Source, domain: str = "space") -> DescribedFiber:
    """The fiber of one hidden layer, minimal or not, or of a three-layer bottleneck, in numbers."""
    found = open_graph(network)
    return answered(_described(stack_of(found), domain), found)


def _described(whole: Stack, domain: str) -> DescribedFiber:
    if whole.hidden == 1:
        inputs = whole.widths[0]
        where = Domain.orthant(inputs) if domain == "orthant" else Domain.space(inputs)
        return _one_layer(whole, where)
    reduced = simplify(Reduced(whole), 0.0)
    if reduced.stack.hidden == 1:
        return _one_layer(reduced.stack, Domain.space(reduced.stack.widths[0]), len(reduced.steps))
    found = bottleneck_fiber(reduced.stack)
    removed = len(reduced.steps)
    if found.head is not None:
        checked, nonempty = _components(found.head)
        total, linear, case = 2 ** len(found.head.bending), len(found.head.linear), found.head.case
    else:
        checked = nonempty = total = 2**found.flips
        linear, case = 0, None
    summary = FiberSummary(
        "three-layer bottleneck", found.dimension, removed, total, checked, nonempty, linear, case,
        hidden=found.hidden, lowest_shift=found.lowest_shift, flips=found.flips,
    )  # fmt: skip
    return DescribedFiber(summary, found)


def _one_layer(stack: Stack, domain: Domain, removed: int = 0) -> DescribedFiber:
    try:
        layer = layerwise_fiber(stack, domain)
        checked, nonempty = _components(layer)
        summary = FiberSummary(
            "one hidden layer", layer.dimension, removed, 2 ** len(layer.bending), checked, nonempty,
            len(layer.linear), layer.case, domain,
        )  # fmt: skip
        return DescribedFiber(summary, layer)
    except Unsupported:  # not minimal, or more linear neurons than the theorem has cases for
        roles = assigned_fiber(stack, domain)
    count = Roles(len(roles.visible), len(roles.cancelling), len(roles.dead))
    summary = FiberSummary(
        "one hidden layer, not minimal", roles.dimension, removed, roles.assignments, 1, 1, len(roles.linear), None,
        domain, roles=count,
    )  # fmt: skip
    return DescribedFiber(summary, roles)


def _components(fiber: LayerwiseFiber) -> tuple[int, int]:
    """How many components were looked at, and how many of them are not empty."""
    seen = list(islice(fiber.components(), MOST_COMPONENTS))
    return len(seen), sum(component.dimension is not None for component in seen)


@dataclass(frozen=True)
class FacetCount:
    """The facets between regions, those that the function shows, and how well jumps balance at ridges."""

    facets: int
    visible: int
    ridges: int
    worst_imbalance: float


@dataclass(frozen=True, eq=False)
class RegionCount(Shown):
    """How many regions there are; at least how many, if the time limit ended the count or what was asked beside it."""

    regions: int
    complete: bool
    domain: Domain
    seconds: float
    facets: FacetCount | None = None
    each: tuple[Cell, ...] | None = None


def count_regions(
    network: Mlp | Dag,
    box: tuple[ArrayLike, ArrayLike] | None,
    *,
    facets: bool = False,
    each: bool = False,
    seconds: float = 60.0,
    tick: Callable[[], None] = lambda: None,
) -> RegionCount:
    """Enumerate the regions over R^d or a box, until done or out of time."""
    start = time.perf_counter()
    stack = stack_of(network)
    domain = _domain(stack.widths[0], box)
    count, complete, counted = 0, True, None
    listed: list[Cell] = []
    try:
        for cell in cells(stack, domain, deadline=start + seconds):
            count += 1
            tick()
            if each:
                listed.append(cell)
    except OutOfTime:
        complete = False
    taken = time.perf_counter() - start
    if facets and complete:
        try:
            counted = _count_facets(stack, domain, start + seconds)
        except OutOfTime:
            complete = False
    return RegionCount(count, complete, domain, taken, counted, tuple(listed) if each else None)


def _count_facets(stack: Stack, domain: Domain, deadline: float) -> FacetCount:
    whole = polyhedral_complex(stack, domain, deadline=deadline)
    crossings = ridges(whole, deadline=deadline)
    worst = max((ridge.imbalance for ridge in crossings), default=0.0)
    return FacetCount(len(whole.facets), len(whole.visible()), len(crossings), worst)


def draw_regions(
    network: Mlp | Dag, box: tuple[ArrayLike, ArrayLike] | None
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


def _domain(inputs: int, box: tuple[ArrayLike, ArrayLike] | None) -> Domain:
    return Domain.space(inputs) if box is None else Domain.box(inputs, *box)


@dataclass(frozen=True)
class NamedFingerprint:
    """The fingerprint of one of many networks."""

    name: str
    hash: str
    regime: str
    complete: bool
    reason: str = ""


@dataclass(frozen=True)
class FunctionGroups(Shown):
    """Networks by name, and which of them were proved to be one function."""

    fingerprints: tuple[NamedFingerprint, ...]
    groups: tuple[tuple[str, ...], ...]


def group_networks(
    names: Sequence[str], read: Callable[[str], Mlp | Dag], tick: Callable[[], None] = lambda: None
) -> FunctionGroups:
    """Fingerprint many networks in one pass; a network joins a group only if `same` proves it equal to the first."""
    library = Library()
    groups: list[list[str]] = []
    found = []
    for name in names:
        network = read(name)
        mark = fingerprint(network)
        place = library.find(mark)
        if place is not None and isinstance(same(read(groups[place][0]), network, seconds=10.0), Equal):
            groups[place].append(name)
        else:
            library.add(mark, len(groups))
            groups.append([name])
        found.append(NamedFingerprint(name, mark.hash, mark.regime, mark.complete))
        tick()
    return FunctionGroups(tuple(found), tuple(map(tuple, groups)))
