"""Explicit paths inside the invariant set, or the signs that keep two parameters apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lawful.components.avoiding import free_flows
from lawful.components.balance import Balance, balance, divergence, round_off
from lawful.components.locks import components
from lawful.errors import InvalidNetwork, LawfulError
from lawful.network import Dag, Mlp
from lawful.types import Floats


@dataclass(frozen=True, eq=False)
class WeightPath:
    """A path inside `H(c)`: between waypoints the squares move linearly and no sign changes.

    At a waypoint the signs of the next piece take over; every weight whose sign differs is zero there.
    """

    dag: Dag
    squares: tuple[Floats, ...]
    signs: tuple[Floats, ...]  # one per piece

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
        squares = (1 - part) * self.squares[piece] + part * self.squares[piece + 1]
        return np.asarray(self.signs[piece] * np.sqrt(squares))

    def residual(self, samples: int = 50) -> float:
        """The largest `|B̃θ² − c|` at evenly spaced times, c the balance at the start."""
        start = divergence(self.dag, self.squares[0])
        return max(
            float(np.abs(divergence(self.dag, self.at(time) ** 2) - start).max(initial=0.0))
            for time in np.linspace(0, 1, samples)
        )


@dataclass(frozen=True)
class Apart:
    """No path exists: locked edges with different signs, or neurons with different balance."""

    edges: tuple[int, ...] = ()
    nodes: tuple[int, ...] = ()

    @property
    def reason(self) -> str:
        """In words."""
        if self.nodes:
            return f"the two lie on different invariant sets: {len(self.nodes)} neurons have different balance"
        return f"the two lie in different components: {len(self.edges)} locked edges have different signs"


def find_path(start: Mlp | Dag, stop: Mlp | Dag, *, tolerance: float | None = None) -> WeightPath | Apart:
    """A path inside `H(c)` from one parameter to another, if they are in the same component.

    `tolerance` is the total difference of balance, `Σ_v |c_v − c'_v|`, that still counts as the same invariant set;
    by default what round-off explains. To flip the sign of free edges the path visits a point where they are zero.

    >>> from lawful.network import Architecture
    >>> graph = Architecture.parse("1-2-1").to_dag()
    >>> path = find_path(graph.with_theta([1, 1, 1, 1]), graph.with_theta([1, -1, -1, 1]))
    >>> path.pieces, path.residual() < 1e-15
    (2, True)
    >>> find_path(graph.with_theta([0, 0, 1, 1]), graph.with_theta([0, 0, -1, 1])).reason
    'the two lie in different components: 1 locked edges have different signs'
    """
    first, last = start.to_dag(), stop.to_dag()
    _same_graph(first, last)
    allowed = round_off(first) + round_off(last) if tolerance is None else tolerance
    difference = np.abs(balance(first) - balance(last))
    if difference.sum() > allowed:
        share = allowed / max(len(difference), 1)
        return Apart(nodes=tuple(first.hidden[difference > share].tolist()))
    found = components(first, Balance.of(first, tolerance=allowed))
    signs = np.where(first.theta == 0, np.sign(last.theta), np.sign(first.theta))
    flips = np.flatnonzero(signs * last.theta < 0)
    locked = {lock.edge for lock in found.locked}
    if between := tuple(edge for edge in flips.tolist() if edge in locked):
        return Apart(edges=between)
    squares, pieces = [first.theta**2], [signs]
    for flow in free_flows(found, flips.tolist()):
        squares.append(_dense(first, list(flow.squares.items()), found.balance.denominator))
        signs = signs.copy()
        signs[list(flow.frees)] *= -1
        pieces.append(signs)
    return WeightPath(first, (*squares, last.theta**2), tuple(pieces))


def _dense(dag: Dag, amounts: Sequence[tuple[int, int]], denominator: int) -> Floats:
    squares = np.zeros(dag.parameters)
    for edge, amount in amounts:
        squares[edge] = amount / denominator
    return squares


def _same_graph(first: Dag, last: Dag) -> None:
    for name in ("names", "roles", "tails", "heads"):
        one, other = getattr(first, name), getattr(last, name)
        if len(one) != len(other) or not np.array_equal(one, other):
            raise InvalidNetwork(f"a path joins two parameters of one graph, but these differ: {first} and {last}")
