"""Points of `{x ≥ 0 : B̃x = c}` on any graph, zero on chosen edges: two exact maximum flows each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from lawful.invariant_set.module_graph import EntryGraph
from lawful.invariant_set.points.max_flow import maximum_flow
from lawful.types import Mask

GROUND = 0  # everything that does not scale: it gives and takes freely


def squares_without(graph: EntryGraph, units: Sequence[int], closed: Mask, slack: int = 0) -> dict[int, int] | None:
    """Non-negative integers on the edges that are not closed, with divergence `units` up to `slack` in all; or None.

    First as much as possible of what nodes have too much goes on, then as much as possible of what they lack comes
    from the ground; the second flow augments the first, so that both are largest at once.
    """
    sink, source = len(graph.hidden) + 1, len(graph.hidden) + 2
    edges = np.flatnonzero(~closed)
    near, far = graph.tails[edges], graph.heads[edges]
    far = np.where(far == sink, GROUND, far)
    _, first = np.unique(near * sink + far, return_index=True)  # one of several between the same ends will do
    edges, near, far = edges[first], near[first], far[first]
    inner = near != far
    edges, tails, heads = edges[inner].tolist(), near[inner].tolist(), far[inner].tolist()
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
    kept = sum(unit for _, unit in surplus) - sum(flow[len(edges) + len(ends) + 1 :])
    more, _ = maximum_flow(
        source + 1,
        [*tails, *heads, *ends],
        [*heads, *tails, *(sink for _ in ends)],
        [*(total for _ in edges), *sent, *(unit - done for (_, unit), done in zip(lacking, served, strict=True))],
        GROUND,
        sink,
    )
    missing = sum(unit for _, unit in lacking) - sum(served) - sum(more[2 * len(edges) :])
    if kept + missing > slack:
        return None
    forward, backward = more[: len(edges)], more[len(edges) : 2 * len(edges)]
    amounts = (one + two - three for one, two, three in zip(sent, forward, backward, strict=True))
    return {edge: amount for edge, amount in zip(edges, amounts, strict=True) if amount}


def routes_without(
    graph: EntryGraph, units: Sequence[int], edges: Sequence[int], slack: int = 0
) -> Iterator[tuple[dict[int, int], tuple[int, ...]]]:
    """Few such points that together are zero on each of the given free edges.

    All at once if that is possible; otherwise any point is zero on most edges, and the rest is tried in halves.
    """
    waiting, whole = [tuple(edges)] if len(edges) else [], True
    while waiting:
        group = waiting.pop()
        closed = np.zeros(graph.parameters, dtype=bool)
        closed[list(group)] = True
        found = squares_without(graph, units, closed, slack)
        if found is not None:
            yield found, group
        elif len(group) == 1:
            raise AssertionError("a free edge was not freed")
        elif whole and (found := squares_without(graph, units, np.zeros_like(closed), slack)) is not None:
            passed = set(found)
            yield found, tuple(edge for edge in group if edge not in passed)
            waiting.append(tuple(edge for edge in group if edge in passed))
        else:
            middle = len(group) // 2
            waiting += [group[middle:], group[:middle]]
        whole = False
