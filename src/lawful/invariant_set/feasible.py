"""Points of `H(c)`: few nonzero weights, all weights nonzero, or zero on chosen edges.

They come from maximum flows and maximum-weight closures in exact integers of any size, on top of a 64-bit solver.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lawful.errors import LawfulError
from lawful.invariant_set.balance import Balance, Number, divergence
from lawful.network import Dag, Role
from lawful.network.topology import peel
from lawful.types import Floats, Indices, Mask

Prescribed = Balance | Mapping[str, Number] | Sequence[Number] | Floats


def sparse_point(dag: Dag, balance: Prescribed, *, seed: int = 0) -> Dag:
    """The graph with weights of balance c, at most `2|Ṽ|` of them nonzero, signs at random (P0 Proposition 3).

    What a neuron has too much flows on to an output, what it lacks comes from an input, each by one path.

    >>> from lawful.invariant_set.balance import balance
    >>> from lawful.network import Architecture
    >>> dag = sparse_point(Architecture.parse("2-3-3-1").to_dag(), [1, -2, 0, 3, -4, 5])
    >>> balance(dag).round(12), int(np.count_nonzero(dag.theta))
    (array([ 1., -2.,  0.,  3., -4.,  5.]), 5)
    """
    exact = balance if isinstance(balance, Balance) else Balance.given(dag, balance)
    squares = np.zeros(dag.parameters)
    for edge, amount in complete(dag, list(exact.units)).items():
        squares[edge] = amount / exact.denominator
    return dag.with_theta(_signs(dag, seed) * np.sqrt(squares))


def generic_point(dag: Dag, balance: Prescribed, *, scale: float = 1.0, seed: int = 0) -> Dag:
    """The graph with weights of balance c, none zero: random squares near `scale`, then corrected along paths.

    >>> from lawful.invariant_set.balance import balance
    >>> from lawful.network import Architecture
    >>> dag = generic_point(Architecture.parse("2-3-3-1").to_dag(), [1, -2, 0, 3, -4, 5])
    >>> balance(dag).round(12), int(np.count_nonzero(dag.theta))
    (array([ 1., -2.,  0.,  3., -4.,  5.]), 18)
    """
    if not (np.isfinite(scale) and scale > 0):
        raise LawfulError(f"the scale of the squares must be positive, not {scale}")
    exact = balance if isinstance(balance, Balance) else Balance.given(dag, balance)
    squares = scale * np.random.default_rng((seed, 1)).uniform(0.5, 1.5, dag.parameters)
    for edge, amount in complete(dag, (exact.values - divergence(dag, squares)).tolist()).items():
        squares[edge] += amount
    return dag.with_theta(_signs(dag, seed) * np.sqrt(squares))


def complete(dag: Dag, lacking: list[Any], out: Mask | None = None, into: Mask | None = None) -> dict[int, Any]:
    """Non-negative amounts on edges whose divergence is `lacking`, one number per hidden node (any number type).

    Surplus leaves each node by one of the edges marked `out`, and what is then still lacking comes by one of the edges
    marked `into`. Nodes without a marked edge keep what they have. `lacking` is left holding what remains.
    """
    numbers = np.full(len(dag.names), -1, dtype=np.intp)
    numbers[dag.hidden] = np.arange(len(dag.hidden))
    order = np.argsort(dag.levels[dag.hidden], kind="stable").tolist()
    amounts: dict[int, Any] = {}
    for near, far, allowed, nodes, sign in (
        (dag.tails, dag.heads, out, order, -1),
        (dag.heads, dag.tails, into, order[::-1], 1),
    ):
        chosen = _nearest(dag, near, far, allowed)[dag.hidden].tolist()
        leads = numbers[far].tolist()
        for node in nodes:
            missing, edge = lacking[node], chosen[node]
            if edge >= 0 and missing * sign > 0:
                amounts[edge] = amounts.get(edge, 0) + missing * sign
                lacking[node] = 0
                if leads[edge] >= 0:
                    lacking[leads[edge]] += missing
    return amounts


def _nearest(dag: Dag, near: Indices, far: Indices, allowed: Mask | None) -> Indices:
    """For each node an allowed edge that leads to a non-hidden node by as few steps as any other; −1 if none."""
    edges = np.flatnonzero(dag.roles[near] == Role.HIDDEN)
    if allowed is not None:
        edges = edges[allowed[edges]]
    height, _ = peel(len(dag.names), far[edges], near[edges])  # longest way to the end: short enough, and acyclic
    ordered = edges[np.lexsort((height[far[edges]], near[edges]))]
    nodes, first = np.unique(near[ordered], return_index=True)
    chosen = np.full(len(dag.names), -1, dtype=np.intp)
    chosen[nodes] = ordered[first]
    return chosen


def _signs(dag: Dag, seed: int) -> Floats:
    return np.random.default_rng(seed).choice([-1.0, 1.0], dag.parameters)


WORD = 62  # sums of capacities must stay below 2**63


def maximum_flow(
    count: int, tails: Sequence[int], heads: Sequence[int], capacities: Sequence[int], source: int, sink: int
) -> tuple[list[int], set[int]]:
    """An exact maximum flow, arc by arc, and the nodes that its residual graph reaches from the source.

    Capacities of more than 64 bits are solved from the leading bits down: each round leaves at most one unit of the
    last bit per arc, which the next round finds in the residual graph. Nothing is rounded.

    >>> maximum_flow(3, [0, 0, 1], [1, 2, 2], [10**30, 7, 10**25], 0, 2)
    ([10000000000000000000000000, 7, 10000000000000000000000000], {0, 1})
    """
    arcs = len(tails)
    flow = [0] * arcs
    remaining = min(_leaving(tails, capacities, source), _leaving(heads, capacities, sink))
    bits = WORD - (2 * arcs).bit_length()
    while True:
        shift = max((remaining + 1).bit_length() - bits, 0)
        back = [arc for arc in range(arcs) if flow[arc]]
        # One more than can still flow, so that what is not a bottleneck never looks like one.
        room = [min(capacity - sent, remaining + 1) >> shift for capacity, sent in zip(capacities, flow, strict=True)]
        undo = [min(flow[arc], remaining + 1) >> shift for arc in back]
        sent, reached = _solve(
            np.concatenate([tails, [heads[arc] for arc in back]]),
            np.concatenate([heads, [tails[arc] for arc in back]]),
            room + undo,
            source,
            sink,
        )
        for arc, amount in enumerate(sent[:arcs]):
            flow[arc] += amount << shift
        for arc, amount in zip(back, sent[arcs:], strict=True):
            flow[arc] -= amount << shift
        if not shift:
            return flow, reached
        remaining = (2 * arcs) << shift


def maximum_closure(weights: Sequence[int], arcs: Sequence[tuple[int, int]]) -> tuple[int, list[int]]:
    """The heaviest set that no arc leaves, and its weight (the empty set weighs 0): one minimum cut (Picard 1976).

    >>> maximum_closure([5, -3, -4], [(0, 1)])
    (2, [0, 1])
    """
    count = len(weights)
    source, sink = count, count + 1
    total = sum(weight for weight in weights if weight > 0)
    if not total:
        return 0, []
    gains = [(source, node, weight) for node, weight in enumerate(weights) if weight > 0]
    costs = [(node, sink, -weight) for node, weight in enumerate(weights) if weight < 0]
    tails, heads, capacities = zip(*gains, *costs, *((tail, head, total + 1) for tail, head in arcs), strict=True)
    _, reached = maximum_flow(count + 2, tails, heads, capacities, source, sink)
    chosen = sorted(reached - {source})
    return sum(weights[node] for node in chosen), chosen


def _leaving(ends: Sequence[int], capacities: Sequence[int], node: int) -> int:
    return sum(capacity for end, capacity in zip(ends, capacities, strict=True) if end == node)


def _solve(tails: object, heads: object, room: list[int], source: int, sink: int) -> tuple[list[int], set[int]]:
    from ortools.graph.python import max_flow

    solver = max_flow.SimpleMaxFlow()
    solver.add_arc_with_capacity(source, sink, 0)  # the solver refuses a source or sink without arcs
    arcs = solver.add_arcs_with_capacity(
        np.asarray(tails, dtype=np.int64), np.asarray(heads, dtype=np.int64), np.array(room, dtype=np.int64)
    )
    status = solver.solve(source, sink)
    if status != solver.OPTIMAL:
        raise LawfulError(f"the maximum-flow solver stopped with {status}")
    return solver.flows(arcs).tolist(), {int(node) for node in solver.get_source_side_min_cut()}
