"""Where training can go: the components of the invariant set, with evidence, and what locks mean for outputs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from lawful.invariant_set.balance import Balance, Number, Tolerance, root
from lawful.invariant_set.locks.bottlenecks import Side, StableSets, stable_sets
from lawful.invariant_set.locks.cuts import CutSets, CutSide, cut_sets
from lawful.invariant_set.module_graph import Balanced, EntryGraph, balanced_graph, with_readings
from lawful.network import Dag, Role
from lawful.result import Shown
from lawful.sources.opening import Source
from lawful.types import Floats


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
        """How close to zero the weight can come: `√min x_e`, rounded down, so that it is a bound as a float too."""
        near = root(self.minimum)
        while near and (math.isinf(near) or Fraction(near) ** 2 > self.minimum):
            near = math.nextafter(near, 0.0)
        return near


@dataclass(frozen=True, eq=False)
class Components(Shown):
    """The components of `H(c)`: a sign for each locked edge, so `2^len(locked)` of them.

    Decided exactly. If the user says that the balance is known only to within a tolerance (total absolute difference),
    an edge is locked when it is for *every* balance within it, and free when it is for *some*; those that the tolerance
    leaves open are `marginal`. Edges that are no bottleneck's only edge are always free (P0 Proposition 3).
    """

    dag: Balanced
    balance: Balance
    locked: tuple[Lock, ...]
    free_bottlenecks: tuple[int, ...]
    stable: Mapping[Literal["out", "in"], StableSets | CutSets]

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
        return tuple(int(self.dag.hidden[member]) for member in self.stable[lock.side].set_of(lock.edge))

    @property
    def beyond(self) -> tuple[str, ...]:
        """Why more than these balances may confine training (a module's other laws): then no edge is surely free."""
        return self.dag.beyond if isinstance(self.dag, EntryGraph) else ()

    @cached_property
    def minima(self) -> dict[int, int]:
        """For every bottleneck edge the least value of `x_e` on `{x ≥ 0 : B̃x = c}`, in units of the balance."""
        return {edge: max(0, value) for edge, (value, _, _) in _by_edge(self.stable).items()}

    @property
    def marginal(self) -> tuple[int, ...]:
        """Free edges that are locked if the balance is exactly as stated: what the user's tolerance leaves open."""
        return tuple(edge for edge in self.free_bottlenecks if self.minima[edge] > 0)


def components(
    network: Source,
    balance: Balance | Mapping[str, Number] | Sequence[Number] | NDArray[np.float64] | None = None,
    *,
    tolerance: Tolerance = 0.0,
    input: Any = None,
) -> Components:
    """The components of the invariant set of a network, or of its graph with another balance.

    Of a module, `H(c)` is the set of its scaling graph's balances (`lawful.symmetries`): shared, tied, frozen and fixed
    weights are what they are. `input` is the size of its input without the batch.

    An edge is locked if and only if it is the only edge out of v and some stable set T of pure ancestors has
    `Σ_T c < 0` (P0 Theorem 1), or the mirror image; then `min θ_e² = max_T −Σ_T c`. Weights and balances are the
    rational numbers that they are; `tolerance` is the total error that the user grants them.

    >>> from lawful.network import Architecture
    >>> dag = Architecture.parse("1-2-1").to_dag().with_theta([1.0, 3.0, -2.0, 1.0])
    >>> found = components(dag)
    >>> [(dag.edge_name(lock.edge), lock.sign, lock.barrier) for lock in found.locked]
    [(('x0', 'h1.1'), 1, 2.82842712474619), (('h1.0', 'y0'), -1, 1.7320508075688772)]
    >>> found.connected, 2**found.log2_components
    (False, 4)
    """
    graph = balanced_graph(network, input)
    dag = graph.to_dag()
    if balance is None:
        balance = Balance.of(dag, tolerance=tolerance)
    elif not isinstance(balance, Balance):
        balance = Balance.given(dag, balance, tolerance=tolerance)
    return with_readings(decide(both_sides(dag), balance), graph)


Sides = tuple[Side, Side] | tuple[CutSide, CutSide]


def both_sides(dag: Balanced) -> Sides:
    """The graph seen both ways: all that does not depend on the balance."""
    if isinstance(dag, EntryGraph):
        return CutSide(dag, "out"), CutSide(dag, "in")
    return Side(dag, "out"), Side(dag, "in")


def decide(sides: Sides, balance: Balance) -> Components:
    """The components for one balance; several balances of one graph can share its sides."""
    dag = sides[0].dag
    stable = {side.name: _sets(side, balance.units) for side in sides}
    locked, free = [], []
    for edge, (value, name, node) in sorted(_by_edge(stable).items()):
        if value > balance.slack:
            sign = int(np.sign(_weight(dag, edge)))
            locked.append(Lock(edge, sign, Fraction(value, balance.denominator), name, int(dag.hidden[node])))
        else:
            free.append(edge)
    return Components(dag, balance, tuple(locked), tuple(free), stable)


def _weight(dag: Balanced, edge: int) -> float:
    """The weight of an edge, 0 in a graph without weights."""
    if isinstance(dag, EntryGraph):
        return dag.weight(edge)
    return 0.0 if dag.weights is None else float(dag.weights[edge])


def _sets(side: Side | CutSide, units: Sequence[int]) -> StableSets | CutSets:
    return stable_sets(side, units) if isinstance(side, Side) else cut_sets(side, units)


def _by_edge(
    stable: Mapping[Literal["out", "in"], StableSets | CutSets],
) -> dict[int, tuple[int, Literal["out", "in"], int]]:
    """The stronger of the two bounds on each bottleneck edge: its value, side and bottleneck."""
    by_edge: dict[int, tuple[int, Literal["out", "in"], int]] = {}
    for name, sets in stable.items():
        for edge, (value, node) in sets.bounds().items():
            if edge not in by_edge or value > by_edge[edge][0]:
                by_edge[edge] = (value, name, node)
    return by_edge


@dataclass(frozen=True)
class LockedNeuron:
    """A hidden neuron whose vote on an output keeps its sign for ever."""

    lock: Lock
    neuron: int
    factor: float | None  # smallest factor on this neuron alone that frees it; None if other neurons are involved


@dataclass(frozen=True)
class OutputMeaning:
    """One output: its locked neurons, and the side of its bias on which it is confined, if it is."""

    output: int
    locked: tuple[LockedNeuron, ...]
    confined: Literal["above", "below"] | None


def locked_outputs(found: Components) -> tuple[OutputMeaning, ...]:
    """For every output with locked weights: which neurons, their signs, and what would free each.

    A neuron that is an out-bottleneck by itself has squares a coming in and b > a going out. Multiplying its incoming
    weights by `α = (b/a)^¼` and dividing the outgoing one keeps the function and makes them equal: the smallest change
    that frees it. An output fed only by locked ReLU neurons of one sign never crosses its bias, whatever the data.

    >>> from lawful.invariant_set.locks.components import components
    >>> from lawful.network import Architecture
    >>> dag = Architecture.parse("1-2-1").to_dag().with_theta([1.0, 1.0, -4.0, -9.0])
    >>> meaning = locked_outputs(components(dag))[0]
    >>> meaning.confined, [neuron.factor for neuron in meaning.locked]
    ('below', [2.0, 3.0])
    """
    dag = found.dag
    if isinstance(dag, EntryGraph):  # an entry of a module has no output of its own
        return ()
    coming = None if dag.weights is None else _norms(dag)
    locks = {lock.edge: lock for lock in found.locked if dag.roles[dag.heads[lock.edge]] == Role.OUTPUT}
    answers = []
    for output in dag.outputs.tolist():
        entering = np.flatnonzero((dag.heads == output) & (dag.roles[dag.tails] != Role.CONSTANT)).tolist()
        locked = tuple(
            LockedNeuron(locks[edge], int(dag.tails[edge]), _factor(found, locks[edge], coming))
            for edge in entering
            if edge in locks
        )
        signs = {neuron.lock.sign for neuron in locked}
        one_sided = len(locked) == len(entering) and all(dag.slopes[dag.tails[edge]] == 0 for edge in entering)
        if locked:
            confined: Literal["above", "below"] | None = None
            if one_sided and signs in ({1}, {-1}):
                confined = "above" if signs == {1} else "below"
            answers.append(OutputMeaning(output, locked, confined))
    return tuple(answers)


def _norms(dag: Dag) -> Floats:
    """`√(Σ θ²)` of the weights that enter each node, at any scale."""
    largest = np.zeros(len(dag.names))
    np.maximum.at(largest, dag.heads, np.abs(dag.theta))
    parts = dag.theta / np.where(largest == 0, 1.0, largest)[dag.heads]
    return np.asarray(largest * np.sqrt(np.bincount(dag.heads, parts**2, len(dag.names))))


def _factor(found: Components, lock: Lock, coming: Floats | None) -> float | None:
    if coming is None or lock.side != "out" or len(found.stable_set(lock)) > 1 or not coming[lock.bottleneck]:
        return None
    return math.sqrt(abs(float(found.dag.theta[lock.edge])) / float(coming[lock.bottleneck]))
