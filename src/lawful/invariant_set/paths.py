"""Explicit paths inside the invariant set, or the signs that keep two parameters apart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from lawful.errors import LawfulError
from lawful.invariant_set.balance import Balance, Tolerance, divergence, root, rounding
from lawful.invariant_set.locks.components import Components, components
from lawful.invariant_set.module_graph import Balanced, EntryGraph, balanced_graph, frozen_apart, same_graph, told
from lawful.invariant_set.points_with_zeros import Flow, free_flows
from lawful.result import Shown
from lawful.sources.opening import Source
from lawful.types import Floats


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
    return told(_between(one.to_dag(), two.to_dag(), tolerance), one, two)


def _between(first: Balanced, last: Balanced, tolerance: Tolerance | None) -> WeightPath | Apart | Unsettled:
    same_graph(first, last)
    if frozen := frozen_apart(first, last):
        return Apart(frozen=frozen)
    begin, end = Balance.of(first), Balance.of(last)
    gaps = begin.distance(end)
    apart = sum(gaps, Fraction(0))
    allowed = _allowed(first, last, tolerance)
    if apart > allowed:
        return Apart(nodes=tuple(int(node) for node, gap in zip(first.hidden, gaps, strict=True) if gap))
    signs = np.sign(np.where(first.theta == 0, last.theta, first.theta))
    signs[signs == 0] = 1.0  # zero at both ends: a path may need the edge on its way
    flips = np.flatnonzero(signs * np.sign(last.theta) < 0).tolist()
    exactly = components(first, begin)
    locked = _among(flips, exactly)
    if locked and apart == 0 and tolerance is None:
        return Apart(edges=locked)
    found = exactly
    if locked:
        loosely = components(first, Balance.of(first, tolerance=allowed))
        if between := _among(flips, loosely):
            return Apart(edges=between)
        if tolerance is None:
            return Unsettled(locked, allowed)
        found = loosely
    if isinstance(first, EntryGraph) and first.beyond:
        return Unsettled((), allowed, first.beyond[0])
    flows = tuple(free_flows(found, flips))
    _check(found, flows, flips)
    drift = max([apart, *(_drift(found, flow) for flow in flows)])
    sizes, pieces = [np.abs(first.theta)], [signs]
    for flow in flows:
        sizes.append(_roots(first, flow.squares, found.balance.denominator))
        signs = signs.copy()
        signs[list(flow.frees)] *= -1
        pieces.append(signs)
    unit = Fraction(1, found.balance.denominator)
    waypoints = tuple({edge: amount * unit for edge, amount in flow.squares.items()} for flow in flows)
    return WeightPath(first, (*sizes, np.abs(last.theta)), tuple(pieces), drift, waypoints)


def _allowed(first: Balanced, last: Balanced, tolerance: Tolerance | None) -> Fraction:
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
