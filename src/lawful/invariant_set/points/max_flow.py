"""Maximum flow and maximum-weight closure in exact integers of any size, on top of a 64-bit solver."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lawful.errors import LawfulError

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
