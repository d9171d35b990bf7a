"""Where training can go: the connected components of the invariant set, each fact with its evidence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from lawful.components.balance import Balance, Number, Tolerance, root
from lawful.components.bottlenecks import Side
from lawful.components.heaviest_set import StableSets, stable_sets
from lawful.network import Dag
from lawful.network.answers import answered
from lawful.network.opening import Source, open_free
from lawful.shown import Shown


@dataclass(frozen=True)
class Lock:
    """An edge whose weight can never change sign, because its square stays above `minimum > 0`."""

    edge: int
    sign: int  # of the weight now; 0 if the network has no weights
    minimum: Fraction
    side: Literal["out", "in"]
    bottleneck: int  # the node whose only outgoing (or incoming) edge this is

    @property
    def barrier(self) -> float:
        """How close to zero the weight can come: `√min x_e`."""
        return root(self.minimum)


@dataclass(frozen=True, eq=False)
class Components(Shown):
    """The components of `H(c)`: a sign for each locked edge, so `2^len(locked)` of them.

    Decided exactly. If the user says that the balance is known only to within a tolerance (total absolute difference),
    an edge is locked when it is for *every* balance within it, and free when it is for *some*; those that the tolerance
    leaves open are `marginal`. Edges that are no bottleneck's only edge are always free (P0 Proposition 3).
    """

    dag: Dag
    balance: Balance
    locked: tuple[Lock, ...]
    free_bottlenecks: tuple[int, ...]
    stable: Mapping[Literal["out", "in"], StableSets]

    @property
    def connected(self) -> bool:
        """P0 Theorem 1."""
        return not self.locked

    @property
    def log2_components(self) -> int:
        """Number of locked edges."""
        return len(self.locked)

    def stable_set(self, lock: Lock) -> tuple[int, ...]:
        """The nodes T that prove a lock: all they send out leaves by that edge, and `∓Σ_T c = min x_e`."""
        sets = self.stable[lock.side]
        number = int(np.searchsorted(self.dag.hidden, lock.bottleneck))
        return tuple(int(self.dag.hidden[member]) for member in sets.members(number))

    @cached_property
    def minima(self) -> dict[int, int]:
        """For every bottleneck edge the least value of `x_e` on `{x ≥ 0 : B̃x = c}`, in units of the balance."""
        return {edge: max(0, value) for edge, (value, _, _) in _by_edge(self.stable.values()).items()}

    @property
    def marginal(self) -> tuple[int, ...]:
        """Free edges that are locked if the balance is exactly as stated: what the user's tolerance leaves open."""
        return tuple(edge for edge in self.free_bottlenecks if self.minima[edge] > 0)


def components(
    network: Source,
    balance: Balance | Mapping[str, Number] | Sequence[Number] | NDArray[np.float64] | None = None,
    *,
    tolerance: Tolerance = 0.0,
) -> Components:
    """The components of the invariant set of a network, or of its graph with another balance.

    An edge is locked if and only if it is the only edge out of v and some stable set T of pure ancestors has
    `Σ_T c < 0` (P0 Theorem 1), or the mirror image; then `min θ_e² = max_T −Σ_T c`. Weights and balances are the
    rational numbers that they are; `tolerance` is the total error that the user grants them.

    >>> from lawful.network import Architecture
    >>> dag = Architecture.parse("1-2-1").to_dag().with_theta([1.0, 3.0, -2.0, 1.0])
    >>> found = components(dag)
    >>> [(dag.edge_name(lock.edge), lock.sign, lock.barrier) for lock in found.locked]
    [(('x0', 'h1.1'), 1, 2.8284271247461903), (('h1.0', 'y0'), -1, 1.7320508075688772)]
    >>> found.connected, 2**found.log2_components
    (False, 4)
    """
    found = open_free(network)
    dag = found.to_dag()
    if balance is None:
        balance = Balance.of(dag, tolerance=tolerance)
    elif not isinstance(balance, Balance):
        balance = Balance.given(dag, balance, tolerance=tolerance)
    return answered(decide(both_sides(dag), balance), found)


def both_sides(dag: Dag) -> tuple[Side, Side]:
    """The graph seen both ways: all that does not depend on the balance."""
    return Side(dag, "out"), Side(dag, "in")


def decide(sides: tuple[Side, Side], balance: Balance) -> Components:
    """The components for one balance; several balances of one graph can share its sides."""
    dag = sides[0].dag
    stable = {side.name: stable_sets(side, balance.units) for side in sides}
    locked, free = [], []
    for edge, (value, name, node) in sorted(_by_edge(stable.values()).items()):
        if value > balance.slack:
            sign = 0 if dag.weights is None else int(np.sign(dag.weights[edge]))
            locked.append(Lock(edge, sign, Fraction(value, balance.denominator), name, int(dag.hidden[node])))
        else:
            free.append(edge)
    return Components(dag, balance, tuple(locked), tuple(free), stable)


def _by_edge(sides: Iterable[StableSets]) -> dict[int, tuple[int, Literal["out", "in"], int]]:
    """The stronger of the two bounds on each bottleneck edge: its value, side and bottleneck."""
    found: dict[int, tuple[int, Literal["out", "in"], int]] = {}
    for sets in sides:
        for node in np.flatnonzero(sets.side.bottleneck).tolist():
            edge = int(sets.side.only_edge[node])
            if edge not in found or sets.value[node] > found[edge][0]:
                found[edge] = (sets.value[node], sets.side.name, node)
    return found
