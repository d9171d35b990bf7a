"""Regions counted, listed and drawn; facets, gradient jumps and balanced ridges (P4 3, B); networks by function."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import linprog

from lawful.errors import LawfulError
from lawful.fibers.fingerprint import Library, fingerprint
from lawful.fibers.layers import Stack, as_layers, input_scales
from lawful.fibers.regions.cell import Cell, OutOfTime
from lawful.fibers.regions.cells import cells, count_cells
from lawful.fibers.regions.domain import Domain
from lawful.fibers.same import same
from lawful.fibers.verdict import Equal
from lawful.network import Dag, Mlp
from lawful.network.assemble import as_mlp
from lawful.result import Shown
from lawful.types import Floats

MARGIN = 1e-9  # a face in which no ball of this radius fits, in natural units, is not drawn where programs are needed
ROUNDING = 1e-13  # a jump below this share of its terms is zero
Neuron = tuple[int, int]  # hidden layer from 0, number


@dataclass(frozen=True, eq=False)
class Facet:
    """A piece of one neuron's bent hyperplane between two regions (numbers in the complex).

    `weight` is the gradient jump `∂f/∂n` from the first region (neuron inactive) to the second (active), along the
    unit `normal` that points that way (P4 Proposition 17); zero means that the function does not show the facet.
    """

    neuron: Neuron
    regions: tuple[int, int]
    normal: Floats
    weight: Floats
    point: Floats


@dataclass(frozen=True, eq=False)
class Ridge:
    """Where two bent hyperplanes cross: its two neurons, its four facets, and how far the jumps are from balance."""

    neurons: tuple[Neuron, Neuron]
    facets: tuple[int, ...]
    imbalance: float


@dataclass(frozen=True, eq=False)
class Complex:
    """Regions and facets of a network over a domain."""

    stack: Stack
    domain: Domain
    regions: tuple[Cell, ...]
    facets: tuple[Facet, ...]

    def visible(self) -> tuple[Facet, ...]:
        """The breakpoint complex: facets across which the gradient jumps."""
        return tuple(facet for facet in self.facets if facet.weight.any())

    def bent_hyperplane(self, neuron: Neuron) -> tuple[Facet, ...]:
        """All facets on one neuron's zero set."""
        return tuple(facet for facet in self.facets if facet.neuron == neuron)


def polyhedral_complex(network: Mlp | Stack, domain: Domain | None = None, *, deadline: float | None = None) -> Complex:
    """All regions, and the facets between regions whose patterns differ in one neuron. Raises `OutOfTime`.

    >>> lines = Mlp([[[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], [[1.0, 1.0, 0.0]]], [[0.0, 0.0, -1.0], None])
    >>> complex = polyhedral_complex(lines)
    >>> len(complex.regions), len(complex.facets), len(complex.visible())
    (7, 9, 6)
    """
    stack = (network if isinstance(network, Stack) else Stack.of(network)).floating()
    domain = Domain.space(stack.widths[0]) if domain is None else domain
    regions = tuple(cells(stack, domain, deadline=deadline))
    number = {region.key: place for place, region in enumerate(regions)}
    scales = input_scales(stack)
    facets = []
    for place, region in enumerate(regions):
        check_time(deadline)
        for side, neuron in enumerate(region.neurons):
            if region.pattern[neuron[0]][neuron[1]]:
                continue  # each facet is met from its inactive side
            other = number.get(_flip(region, (neuron,)))
            if other is not None and (point := _face_point(region, (side,), domain, scales)) is not None:
                normal = -region.rows[side, :-1]
                weight = gradient_jump(stack, regions[other], neuron)
                facets.append(Facet(neuron, (place, other), normal, weight, point))
    return Complex(stack, domain, regions, tuple(facets))


def gradient_jump(stack: Stack, active: Cell, neuron: Neuron) -> Floats:
    """`(W_L D_{L−1} … W_{l+1})[:, j] ‖(W_l D_{l−1} … W_1)[j, :]‖`, times `1 − slope` (P4 Proposition 17).

    The masks are those of a region beside the facet; they agree on both sides except at the neuron itself. What is no
    more than rounding of the terms that it sums counts as zero.
    """
    layer, j = neuron
    below = np.eye(stack.widths[0])
    for k in range(layer):
        below = np.where(active.pattern[k], 1.0, stack.bends(k))[:, None] * (stack.weights[k] @ below)
    above = stack.weights[layer + 1][:, j]
    sizes = np.abs(above)
    for k in range(layer + 1, stack.hidden):
        gain = np.where(active.pattern[k], 1.0, stack.bends(k))
        above, sizes = stack.weights[k + 1] @ (gain * above), np.abs(stack.weights[k + 1]) @ (np.abs(gain) * sizes)
    above = np.where(np.abs(above) > ROUNDING * sizes, above, 0.0)
    length = float(np.linalg.norm(stack.weights[layer][j] @ below))
    return np.asarray(above * length * (1 - stack.bends(layer)[j]))


def check_time(deadline: float | None) -> None:
    """Raise `OutOfTime` past the deadline."""
    if deadline is not None and time.perf_counter() > deadline:
        raise OutOfTime


def ridges(complex: Complex, *, deadline: float | None = None) -> list[Ridge]:
    """Where two bent hyperplanes cross: four regions around, and `Σ_facets jump ⊗ normal = 0` (P4 Lemma 7)."""
    number = {region.key: place for place, region in enumerate(complex.regions)}
    between = {facet.regions: place for place, facet in enumerate(complex.facets)}
    scales = input_scales(complex.stack)
    crossings = []
    for region in complex.regions:
        check_time(deadline)
        off = [side for side, (layer, j) in enumerate(region.neurons) if not region.pattern[layer][j]]
        for sides in combinations(off, 2):
            first, second = (region.neurons[side] for side in sides)
            corners = [number.get(_flip(region, those)) for those in ((), (first,), (second,), (first, second))]
            point = None if None in corners else _face_point(region, sides, complex.domain, scales)
            if point is None:
                continue
            pairs = [
                (corners[0], corners[1]),
                (corners[0], corners[2]),
                (corners[1], corners[3]),
                (corners[2], corners[3]),
            ]
            facets = tuple(between[pair] for pair in pairs if pair in between)
            if len(facets) == 4:
                crossings.append(Ridge((first, second), facets, _imbalance(complex, facets, point, scales)))
    return crossings


def _imbalance(complex: Complex, facets: Sequence[int], centre: Floats, scales: Floats) -> float:
    """`Σ weight ⊗ n` over the four facets, `n` the normal of the ridge inside each facet, relative to its terms.

    `centre` is a point of the ridge; inputs are measured in their natural units.
    """
    members = [complex.facets[place] for place in facets]
    normals = np.array([facet.normal * scales for facet in members])
    lengths = np.linalg.norm(normals, axis=1)
    normals = normals / lengths[:, None]
    plane = np.linalg.svd(normals)[2][:2]  # the plane across the ridge
    terms = []
    for facet, unit, length in zip(members, normals, lengths, strict=True):
        along = plane @ ((facet.point - centre) / scales)
        normal = plane @ unit
        tangent = np.array([-normal[1], normal[0]]) / np.linalg.norm(normal)
        tangent = tangent if tangent @ along > 0 else -tangent
        terms.append(np.outer(facet.weight * length, tangent))
    total = float(np.abs(sum(terms)).max())
    size = max(float(np.abs(term).max()) for term in terms)
    return total / size if size > 0 else 0.0


def _flip(region: Cell, neurons: Sequence[Neuron]) -> bytes:
    bits = [layer.copy() for layer in region.pattern]
    for layer, j in neurons:
        bits[layer][j] = not bits[layer][j]
    return np.concatenate(bits).tobytes()


def _face_point(region: Cell, sides: Sequence[int], domain: Domain, scales: Floats) -> Floats | None:
    """A point in the relative interior of the face of a region where the given sides are tight, or None."""
    count = len(region.point)
    if region.corners is not None and region.tight is not None:
        shared = region.corners[region.tight[:, list(sides)].all(axis=1)]
        return np.asarray(shared.mean(axis=0)) if len(shared) > count - len(sides) else None
    rows = np.concatenate([region.rows, _walls(domain)]) * np.append(scales, 1.0)
    rows = rows / np.linalg.norm(rows[:, :-1], axis=1, keepdims=True)
    loose = [k for k in range(len(rows)) if k not in sides]
    tight = rows[list(sides)]
    solution = linprog(
        np.append(np.zeros(count), -1.0),
        A_ub=np.column_stack([-rows[loose, :-1], np.ones(len(loose))]) if loose else None,
        b_ub=rows[loose, -1] if loose else None,
        A_eq=np.column_stack([tight[:, :-1], np.zeros(len(tight))]),
        b_eq=-tight[:, -1],
        bounds=[(None, None)] * count + [(-1.0, 1.0)],
    )
    if solution.status != 0 or solution.x[-1] <= MARGIN:
        return None
    return np.asarray(solution.x[:-1] * scales)


def _walls(domain: Domain) -> Floats:
    rows = []
    for k in range(len(domain.low)):
        for sign, end in ((1.0, -domain.low[k]), (-1.0, domain.high[k])):
            if np.isfinite(end):
                row = np.zeros(len(domain.low) + 1)
                row[k], row[-1] = sign, end
                rows.append(row)
    return np.array(rows).reshape(len(rows), len(domain.low) + 1)


def polygon(region: Cell, domain: Domain) -> Floats:
    """The corners of a region in the plane, in order, clipped to a bounded domain."""
    (left, bottom), (right, top) = domain.low, domain.high
    corners = np.array([[left, bottom], [right, bottom], [right, top], [left, top]])
    for row in region.rows:
        values = corners @ row[:2] + row[2]
        outline = []
        for k in range(len(corners)):
            here, there = values[k], values[(k + 1) % len(corners)]
            if here >= 0:
                outline.append(corners[k])
            if here * there < 0:
                outline.append(corners[k] + here / (here - there) * (corners[(k + 1) % len(corners)] - corners[k]))
        corners = np.array(outline).reshape(len(outline), 2)
        if not len(corners):
            break
    return corners


def segment(complex: Complex, facet: Facet) -> Floats | None:
    """The two ends of a facet in the plane, clipped to the domain; None if it only touches it."""
    region = complex.regions[facet.regions[0]]
    corners = polygon(region, complex.domain)
    row = region.rows[region.neurons.index(facet.neuron)]
    size = float(np.abs(complex.domain.high - complex.domain.low).max())
    ends = corners[np.abs(corners @ row[:2] + row[2]) < 1e-9 * size]
    return ends[[0, -1]] if len(ends) > 1 else None


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
        listed, complete = _list_cells(stack, domain, start + seconds, tick)
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


def _list_cells(stack: Stack, domain: Domain, deadline: float, tick: Callable[[], None]) -> tuple[list[Cell], bool]:
    listed: list[Cell] = []
    try:
        for cell in cells(stack, domain, deadline=deadline):
            listed.append(cell)
            tick()
    except OutOfTime:
        return listed, False
    return listed, True


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
    prints = []
    for name in names:
        network = read(name)
        mark = fingerprint(network)
        place = library.find(mark)
        if place is not None and isinstance(same(read(groups[place][0]), network, seconds=10.0), Equal):
            groups[place].append(name)
        else:
            library.add(mark, len(groups))
            groups.append([name])
        prints.append(NamedFingerprint(name, mark.hash, mark.regime, mark.complete))
        tick()
    return FunctionGroups(tuple(prints), tuple(map(tuple, groups)))
