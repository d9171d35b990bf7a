"""Explicit paths inside the invariant set, or the signs that keep two parameters apart.

A path flips signs at points of `{x ≥ 0 : B̃x = c}` that are zero on many chosen edges at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order

from lawful.errors import LawfulError
from lawful.invariant_set.balance import Balance, Tolerance, complete, divergence, maximum_flow, root, rounding
from lawful.invariant_set.locks.components import Components, components
from lawful.invariant_set.module_graph import (
    Balanced,
    EntryGraph,
    balanced_graph,
    frozen_apart,
    same_graph,
    with_readings,
)
from lawful.network import Dag
from lawful.result import Shown
from lawful.sources.opening import Source
from lawful.types import Floats, Indices, Mask


@dataclass(frozen=True)
class Flow:
    """Squares `x ≥ 0` with `B̃x = c` (nonzero ones only, in units of the balance), and the edges it proves free."""

    squares: Mapping[int, int]
    frees: tuple[int, ...]


def flow_without(found: Components, edge: int) -> Flow:
    """A point of the polyhedron where one free edge is zero.

    >>> from lawful.invariant_set.locks.components import components
    >>> from lawful.network import Architecture
    >>> graph = Architecture.parse("1-2-1").to_dag()
    >>> sorted(flow_without(components(graph, [1, -1]), 2).squares.items())
    [(0, 1), (3, 1)]
    """
    return next(free_flows(found, [edge]))


def free_flows(found: Components, edges: Iterable[int] | None = None) -> Iterator[Flow]:
    """Few flows that prove the given free edges free; all free bottleneck edges by default."""
    everything, edges = edges is None, found.free_bottlenecks if edges is None else edges
    locked = {lock.edge for lock in found.locked}
    wrong = next((edge for edge in edges if edge in locked), None)
    if wrong is not None:
        raise LawfulError(f"edge {' -> '.join(found.dag.edge_name(wrong))} is locked: no point of H(c) has it zero")
    units, slack, waiting = found.balance.units, found.balance.slack, list(edges)
    # Any point is zero on most edges. Closing all of them at once leaves nodes no way to the ground, so that all arcs
    # between them are needed: five times as long for 80,000 edges, where a second flow costs next to nothing.
    if everything and waiting and isinstance(found.dag, Dag):
        squares = complete(found.dag, list(units))
        yield Flow(squares, tuple(edge for edge in waiting if edge not in squares))
        waiting = [edge for edge in waiting if edge in squares]
    for squares, frees in routes_without(found.dag, units, waiting, slack):
        yield Flow(squares, frees)


GROUND = 0  # everything that does not scale: it gives and takes freely


def squares_without(graph: Balanced, units: Sequence[int], closed: Mask, slack: int = 0) -> dict[int, int] | None:
    """Non-negative integers on the edges that are not closed, with divergence `units` up to `slack` in all; or None.

    First as much as possible of what nodes have too much goes on, then as much as possible of what they lack comes
    from the ground; the second flow augments the first, so that both are largest at once.
    """
    sink, source = len(graph.hidden) + 1, len(graph.hidden) + 2
    number = np.full(len(graph.names), GROUND, dtype=np.intp)
    number[graph.hidden] = 1 + np.arange(len(graph.hidden))
    edges = np.flatnonzero(~closed)
    near, far = number[graph.tails[edges]], number[graph.heads[edges]]
    inner = near != far
    arcs, first = np.unique(near[inner] * sink + far[inner], return_index=True)  # one of several with the same ends
    needed = _needed_arcs(arcs, sink)
    edges = edges[inner][first[needed]].tolist()
    tails, heads = (ends[needed].tolist() for ends in divmod(arcs, sink))
    lacking = [(node + 1, unit) for node, unit in enumerate(units) if unit > 0]
    surplus = [(node + 1, -unit) for node, unit in enumerate(units) if unit < 0]
    total = sum(abs(unit) for unit in units) + 1
    ends = [node for node, _ in lacking]
    flow, _ = maximum_flow(
        source + 1,
        [*tails, *ends, GROUND, *(source for _ in surplus)],
        [*heads, *(sink for _ in ends), sink, *(node for node, _ in surplus)],
        [*(total for _ in edges), *(unit for _, unit in lacking), total, *(unit for _, unit in surplus)],
        source,
        sink,
    )
    sent, served = flow[: len(edges)], flow[len(edges) : len(edges) + len(ends)]
    carried = sum(unit for _, unit in surplus) - sum(flow[len(edges) + len(ends) + 1 :])
    more, _ = maximum_flow(
        source + 1,
        [*tails, *heads, *ends],
        [*heads, *tails, *(sink for _ in ends)],
        [*(total for _ in edges), *sent, *(unit - done for (_, unit), done in zip(lacking, served, strict=True))],
        GROUND,
        sink,
    )
    missing = sum(unit for _, unit in lacking) - sum(served) - sum(more[2 * len(edges) :])
    if carried + missing > slack:
        return None
    forward, backward = more[: len(edges)], more[len(edges) : 2 * len(edges)]
    amounts = (one + two - three for one, two, three in zip(sent, forward, backward, strict=True))
    return {edge: amount for edge, amount in zip(edges, amounts, strict=True) if amount}


def _needed_arcs(arcs: Indices, count: int) -> Indices:
    """Arcs `tail · count + head` that some feasible flow keeps to, if there is one at all.

    What comes from the ground, or goes to it, may take any way: those of two breadth-first trees will do. A node that
    no way leads to (or from) is served by others of its kind, so that all arcs into (or out of) it are needed.
    """
    tails, heads = divmod(arcs, count)
    needed = np.zeros(len(arcs), dtype=bool)
    for near, far, step in ((tails, heads, (count, 1)), (heads, tails, (1, count))):
        ways = csr_array((np.ones(len(arcs), dtype=np.int8), (near, far)), shape=(count, count))
        nodes, before = breadth_first_order(ways, GROUND)
        needed[np.searchsorted(arcs, before[nodes[1:]] * step[0] + nodes[1:] * step[1])] = True
        needed |= ~np.isin(far, nodes)
    return np.flatnonzero(needed)


def routes_without(
    graph: Balanced, units: Sequence[int], edges: Sequence[int], slack: int = 0
) -> Iterator[tuple[dict[int, int], tuple[int, ...]]]:
    """Few such points that together are zero on each of the given free edges.

    All at once if that is possible; otherwise any point is zero on most edges, and the rest is tried in halves.
    """
    waiting, whole = [tuple(edges)] if len(edges) else [], True
    while waiting:
        group = waiting.pop()
        closed = np.zeros(graph.parameters, dtype=bool)
        closed[list(group)] = True
        squares = squares_without(graph, units, closed, slack)
        if squares is not None:
            yield squares, group
        elif len(group) == 1:
            raise AssertionError("a free edge was not freed")
        elif whole and (squares := squares_without(graph, units, np.zeros_like(closed), slack)) is not None:
            passed = set(squares)
            yield squares, tuple(edge for edge in group if edge not in passed)
            waiting.append(tuple(edge for edge in group if edge in passed))
        else:
            middle = len(group) // 2
            waiting += [group[middle:], group[:middle]]
        whole = False


@dataclass(frozen=True, eq=False)
class WeightPath(Shown):
    """A path inside `H(c)`: between waypoints the squares move linearly and no sign changes.

    At a waypoint the signs of the next piece take over; every weight whose sign differs is zero there. The balance is
    linear in the squares, so it is nowhere further from the start's than at a waypoint: `drift` says how far, exactly.
    """

    dag: Balanced
    sizes: tuple[Floats, ...]  # the absolute values of the weights at each waypoint
    signs: tuple[Floats, ...]  # one per piece
    drift: Fraction  # the largest `Σ_v |c_v − c_v at the start|` on the path
    waypoints: tuple[Mapping[int, Fraction], ...] = ()  # the squares between the two ends, exactly

    @property
    def pieces(self) -> int:
        """Number of pieces on which no sign changes."""
        return len(self.signs)

    def at(self, time: float) -> Floats:
        """The weights at `time` in [0, 1]."""
        if not 0 <= time <= 1:
            raise LawfulError(f"a path runs from 0 to 1, not to {time}")
        piece = min(int(time * self.pieces), self.pieces - 1)
        part = time * self.pieces - piece
        squares = np.hypot(np.sqrt(1 - part) * self.sizes[piece], np.sqrt(part) * self.sizes[piece + 1])
        return np.asarray(self.signs[piece] * squares)

    def residual(self, samples: int = 50) -> float:
        """The largest `|B̃θ² − c|` at evenly spaced times as computed in float64, c the balance at the start."""
        largest = max(float(sizes.max(initial=0.0)) for sizes in self.sizes)
        scale = 2.0 ** np.frexp(largest)[1] if largest else 1.0  # squares at this scale do not overflow
        start = divergence(self.dag, (self.sizes[0] / scale) ** 2)
        worst = max(
            float(np.abs(divergence(self.dag, (self.at(time) / scale) ** 2) - start).max(initial=0.0))
            for time in np.linspace(0, 1, samples)
        )
        return float(worst * scale * scale)


@dataclass(frozen=True)
class Apart(Shown):
    """No path exists: locked edges with different signs, neurons with different balance, frozen weights that differ."""

    dag: Balanced = field(compare=False, repr=False)
    edges: tuple[int, ...] = ()
    nodes: tuple[int, ...] = ()
    frozen: tuple[str, ...] = ()

    @property
    def reason(self) -> str:
        """In words."""
        if self.frozen:
            return f"training moves no frozen weight, and these differ: {', '.join(self.frozen[:3])}"
        if self.nodes:
            return f"the two lie on different invariant sets: {len(self.nodes)} neurons have different balance"
        return f"the two lie in different components: {len(self.edges)} locked edges have different signs"


@dataclass(frozen=True)
class Unsettled(Shown):
    """Undecided: the balances differ by their rounding, and that much decides whether these edges are locked.

    Or a module has laws `beyond` its balances: no lock keeps the two apart, but a path could break those.
    """

    dag: Balanced = field(compare=False, repr=False)
    edges: tuple[int, ...]
    tolerance: Fraction
    beyond: str = ""

    @property
    def reason(self) -> str:
        """In words."""
        if self.beyond:
            return f"no lock of a balance keeps them apart, but {self.beyond}"
        return (
            f"the signs of {len(self.edges)} edges differ that are locked or free by less than the rounding of the "
            f"weights: --tolerance {float(self.tolerance):.1e} accepts a path that leaves H(c) by that much"
        )


def find_path(
    start: Source, stop: Source, *, tolerance: Tolerance | None = None, input: Any = None
) -> WeightPath | Apart | Unsettled:
    """A path inside `H(c)` from one parameter to another, if they are in the same component.

    `tolerance` is the total difference of balance, `Σ_v |c_v − c'_v|`, that still counts as the same invariant set. By
    default it is what rounding the weights explains, and edges that only rounding frees leave the answer undecided;
    two parameters of exactly the same balance get an exact answer. To flip free edges the path visits a point where
    they are zero. Of two modules it is a path inside the set of their scaling graph's balances; entries that take no
    part in a balance move straight, and other laws (`dag.beyond`) are not looked at: then the answer is undecided.

    >>> from lawful.network import Architecture
    >>> graph = Architecture.parse("1-2-1").to_dag()
    >>> path = find_path(graph.with_theta([1, 1, 1, 1]), graph.with_theta([1, -1, -1, 1]))
    >>> path.pieces, path.drift, path.residual() < 1e-15
    (2, Fraction(0, 1), True)
    >>> find_path(graph.with_theta([0, 0, 1, 1]), graph.with_theta([0, 0, -1, 1])).reason
    'the two lie in different components: 1 locked edges have different signs'
    """
    one, two = balanced_graph(start, input), balanced_graph(stop, input)
    return with_readings(_between(one.to_dag(), two.to_dag(), tolerance), one, two)


def _between(first: Balanced, last: Balanced, tolerance: Tolerance | None) -> WeightPath | Apart | Unsettled:
    same_graph(first, last)
    if frozen := frozen_apart(first, last):
        return Apart(first, frozen=frozen)
    begin, end = Balance.of(first), Balance.of(last)
    gaps = begin.distance(end)
    apart = sum(gaps, Fraction(0))
    allowed = _allowance(first, last, tolerance)
    if apart > allowed:
        return Apart(first, nodes=tuple(int(node) for node, gap in zip(first.hidden, gaps, strict=True) if gap))
    signs = np.sign(np.where(first.theta == 0, last.theta, first.theta))
    signs[signs == 0] = 1.0  # zero at both ends: a path may need the edge on its way
    flips = np.flatnonzero(signs * np.sign(last.theta) < 0).tolist()
    exactly = components(first, begin)
    locked = _among(flips, exactly)
    if locked and apart == 0 and tolerance is None:
        return Apart(first, edges=locked)
    point = exactly
    if locked:
        loosely = components(first, Balance.of(first, tolerance=allowed))
        if between := _among(flips, loosely):
            return Apart(first, edges=between)
        if tolerance is None:
            return Unsettled(first, locked, allowed)
        point = loosely
    if isinstance(first, EntryGraph) and first.beyond:
        return Unsettled(first, (), allowed, first.beyond[0])
    flows = tuple(free_flows(point, flips))
    _check(point, flows, flips)
    drift = max([apart, *(_drift(point, flow) for flow in flows)])
    sizes, pieces = [np.abs(first.theta)], [signs]
    for flow in flows:
        sizes.append(_roots(first, flow.squares, point.balance.denominator))
        signs = signs.copy()
        signs[list(flow.frees)] *= -1
        pieces.append(signs)
    unit = Fraction(1, point.balance.denominator)
    waypoints = tuple({edge: amount * unit for edge, amount in flow.squares.items()} for flow in flows)
    return WeightPath(first, (*sizes, np.abs(last.theta)), tuple(pieces), drift, waypoints)


def _allowance(first: Balanced, last: Balanced, tolerance: Tolerance | None) -> Fraction:
    if tolerance is None:
        return rounding(first) + rounding(last)
    if not (tolerance >= 0 and tolerance < np.inf):
        raise LawfulError(f"a tolerance is a number that is not negative, not {tolerance}")
    return Fraction(tolerance)


def _among(edges: list[int], found: Components) -> tuple[int, ...]:
    locked = {lock.edge for lock in found.locked}
    return tuple(edge for edge in edges if edge in locked)


def _drift(found: Components, flow: Flow) -> Fraction:
    """`Σ_v |(B̃x)_v − c_v|` of a waypoint, exactly."""
    dag, missing = found.dag, dict(zip(found.dag.hidden.tolist(), found.balance.units, strict=True))
    for edge, amount in flow.squares.items():
        for end, sign in ((int(dag.heads[edge]), -1), (int(dag.tails[edge]), 1)):
            if end in missing:
                missing[end] += sign * amount
    return Fraction(sum(map(abs, missing.values())), found.balance.denominator)


def _check(found: Components, flows: tuple[Flow, ...], flips: list[int]) -> None:
    """A path is only shown if each waypoint is a point of `H(c)` where the signs that change are those of zeros."""
    for flow in flows:
        if min(flow.squares.values(), default=0) < 0 or any(flow.squares.get(edge) for edge in flow.frees):
            raise AssertionError("a waypoint has a negative square, or uses an edge whose sign changes there")
        if _drift(found, flow) > found.balance.tolerance:
            raise AssertionError("a waypoint is not on the invariant set")
    if sorted(edge for flow in flows for edge in flow.frees) != sorted(flips):
        raise AssertionError("a sign does not change exactly once")


def _roots(dag: Balanced, squares: Mapping[int, int], denominator: int) -> Floats:
    sizes = np.zeros(dag.parameters)
    for edge, amount in squares.items():
        sizes[edge] = root(Fraction(amount, denominator))
    return sizes
