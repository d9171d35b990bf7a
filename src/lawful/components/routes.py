"""Points of `{x ≥ 0 : B̃x = c}` on any graph, zero on chosen edges: one exact maximum flow each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from lawful.components.entries import EntryGraph
from lawful.components.max_flow import maximum_flow
from lawful.types import Mask


def squares_without(graph: EntryGraph, units: Sequence[int], closed: Mask) -> dict[int, int] | None:
    """Non-negative integers on the edges that are not closed, with divergence `units`; None if there are none.

    What a node has too much goes on, what it lacks comes in; everything that does not scale gives and takes freely.
    """
    root, ground = len(graph.hidden), 0
    source, sink = root + 1, root + 2
    edges = np.flatnonzero(~closed)
    near, far = graph.tails[edges], graph.heads[edges]
    far = np.where(far == root + 1, ground, far)
    _, first = np.unique(near * (root + 1) + far, return_index=True)  # one of several between the same ends will do
    edges, near, far = edges[first], near[first], far[first]
    loops = near != far
    edges, near, far = edges[loops], near[loops], far[loops]
    lacking, surplus = sum(unit for unit in units if unit > 0), -sum(unit for unit in units if unit < 0)
    terminals = [
        (node + 1, sink, unit) if unit > 0 else (source, node + 1, -unit) for node, unit in enumerate(units) if unit
    ]
    terminals += [(source, ground, lacking), (ground, sink, surplus)]
    total = lacking + surplus
    tails, heads, room = zip(
        *((int(a), int(b), total) for a, b in zip(near, far, strict=True)), *terminals, strict=True
    )
    flow, _ = maximum_flow(root + 3, tails, heads, room, source, sink)
    if sum(amount for amount, end in zip(flow, heads, strict=True) if end == sink) < total:
        return None
    return {edge: amount for edge, amount in zip(edges.tolist(), flow, strict=False) if amount}


def routes_without(
    graph: EntryGraph, units: Sequence[int], edges: Sequence[int]
) -> Iterator[tuple[dict[int, int], tuple[int, ...]]]:
    """Few such points that together are zero on each of the given free edges: halves where all at once is too much."""
    waiting = [tuple(edges)] if len(edges) else []
    while waiting:
        group = waiting.pop()
        closed = np.zeros(graph.parameters, dtype=bool)
        closed[list(group)] = True
        found = squares_without(graph, units, closed)
        if found is not None:
            yield found, group
        elif len(group) == 1:
            raise AssertionError("a free edge was not freed")
        else:
            middle = len(group) // 2
            waiting += [group[middle:], group[:middle]]
