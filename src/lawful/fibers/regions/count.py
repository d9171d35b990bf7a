"""What the command line asks about one network or many: regions, duplicates."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from numpy.typing import ArrayLike

from lawful.errors import LawfulError
from lawful.fibers.fingerprint import Library, fingerprint
from lawful.fibers.layers import Stack, as_layers
from lawful.fibers.regions.cell import Cell, OutOfTime
from lawful.fibers.regions.cells import cells, count_cells
from lawful.fibers.regions.domain import Domain
from lawful.fibers.regions.polyhedral_complex import polygon, polyhedral_complex, ridges, segment
from lawful.fibers.same import same
from lawful.fibers.verdict import Equal
from lawful.network import Dag, Mlp
from lawful.network.assemble import as_mlp
from lawful.result import Shown
from lawful.types import Floats


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
    stack = _bending(network)
    domain = _domain(stack.widths[0], box)
    counted, listed = None, None
    if each:
        listed, complete = _listed(stack, domain, start + seconds, tick)
        count = len(listed)
    else:
        count, complete = count_cells(stack, domain, deadline=start + seconds, tick=tick)
    taken = time.perf_counter() - start
    if facets and complete:
        try:
            counted = _count_facets(stack, domain, start + seconds)
        except OutOfTime:
            complete = False
    return RegionCount(count, complete, domain, taken, counted, None if listed is None else tuple(listed))


def _bending(network: Mlp | Dag) -> Stack:
    """The network as layers that bend where it does, and nowhere else."""
    mlp = network if isinstance(network, Mlp) else as_mlp(network)
    return as_layers(network, paired=False) if mlp is None else Stack.of(mlp)  # type: ignore[arg-type]


def _listed(stack: Stack, domain: Domain, deadline: float, tick: Callable[[], None]) -> tuple[list[Cell], bool]:
    found: list[Cell] = []
    try:
        for cell in cells(stack, domain, deadline=deadline):
            found.append(cell)
            tick()
    except OutOfTime:
        return found, False
    return found, True


def _count_facets(stack: Stack, domain: Domain, deadline: float) -> FacetCount:
    whole = polyhedral_complex(stack, domain, deadline=deadline)
    crossings = ridges(whole, deadline=deadline)
    worst = max((ridge.imbalance for ridge in crossings), default=0.0)
    return FacetCount(len(whole.facets), len(whole.visible()), len(crossings), worst)


def draw_regions(
    network: Mlp | Dag, box: tuple[ArrayLike, ArrayLike] | None
) -> tuple[list[Floats], list[tuple[int, bool, Floats]], Domain]:
    """Polygons of the regions in the plane, and the facets as (layer, visible, ends)."""
    stack = _bending(network)
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
