"""Points of `{x ≥ 0 : B̃x = c}` that are zero on many chosen edges at once: the evidence that edges are free."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
from numpy.typing import NDArray

from lawful.errors import LawfulError
from lawful.invariant_set.feasible import complete, maximum_flow
from lawful.invariant_set.locks.bottlenecks import Side
from lawful.invariant_set.locks.components import Components
from lawful.invariant_set.module_graph import EntryGraph
from lawful.network import Dag
from lawful.types import Mask


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
    >>> flow_without(components(graph, [1, -1]), 2).squares
    {3: 1, 0: 1}
    """
    return next(free_flows(found, [edge]))


def free_flows(found: Components, edges: Iterable[int] | None = None) -> Iterator[Flow]:
    """Few flows that prove the given free edges free; all free bottleneck edges by default."""
    edges = found.free_bottlenecks if edges is None else edges
    locked = {lock.edge for lock in found.locked}
    wrong = next((edge for edge in edges if edge in locked), None)
    if wrong is not None:
        raise LawfulError(f"edge {' -> '.join(found.dag.edge_name(wrong))} is locked: no point of H(c) has it zero")
    if isinstance(found.dag, EntryGraph):
        for squares, frees in routes_without(found.dag, found.balance.units, list(edges), found.balance.slack):
            yield Flow(squares, frees)
        return
    ground = _Ground(found, found.dag)
    waiting = sorted(edges, key=lambda edge: -ground.size(edge))  # large sets first: they often free what they contain
    while waiting:
        group = _Group(ground)
        for edge in waiting:
            group.try_add(edge)
        squares = group.squares()
        flow = Flow(squares, tuple(edge for edge in waiting if not squares.get(edge)))
        yield flow
        proved = set(flow.frees)
        waiting = [edge for edge in waiting if edge not in proved]


class _Ground:
    """What all groups share: ends of edges as hidden numbers, edges at each node, and sets that fall with an edge."""

    def __init__(self, found: Components, dag: Dag) -> None:
        self.found, self.dag = found, dag
        number = np.full(len(dag.names), -1, dtype=np.intp)
        number[dag.hidden] = np.arange(len(dag.hidden))
        self.tails, self.heads = number[dag.tails].tolist(), number[dag.heads].tolist()
        self.out_degree = dag.out_degree[dag.hidden].tolist()
        self.in_degree = dag.in_degree[dag.hidden].tolist()
        self._at = {
            "in": _edges_at(number[dag.heads], len(dag.hidden)),
            "out": _edges_at(number[dag.tails], len(dag.hidden)),
        }

    def at(self, way: str, node: int) -> list[int]:
        """Edges into or out of a hidden node."""
        starts, order = self._at[way]
        return list(order[starts[node] : starts[node + 1]])

    def falls(self, edge: int) -> tuple[list[int], list[int]]:
        """Pure ancestors that lose their way out, and pure descendants that lose their way in, without the edge."""
        tail, head = self.tails[edge], self.heads[edge]
        out, into = (cast("Side", self.found.stable[way].side) for way in ("out", "in"))
        above = out.pure(tail) if tail >= 0 and self.out_degree[tail] == 1 else []
        below = into.pure(head) if head >= 0 and self.in_degree[head] == 1 else []
        return above, below

    def size(self, edge: int) -> int:
        """How many nodes fall with the edge."""
        return sum(map(len, self.falls(edge))) if edge in self.found.minima else 0


def _edges_at(ends: NDArray[np.intp], count: int) -> tuple[list[int], list[int]]:
    order = np.argsort(ends, kind="stable")
    starts = np.searchsorted(ends[order], np.arange(count + 1))
    return starts.tolist(), order.tolist()


class _Group:
    """Edges to be zero together. Neurons cut off by them feed themselves; all others keep a way in and a way out.

    `shut` holds the pure ancestors of removed edges (no way out left), `dry` the pure descendants (no way in left).
    An edge is usable for surplus while it does not lead into `shut`, and for supply while it does not come from `dry`.
    """

    def __init__(self, ground: _Ground) -> None:
        self.ground = ground
        self.budget = ground.found.balance.slack
        self.shut: set[int] = set()
        self.dry: set[int] = set()
        self.ways_out, self.ways_in = list(ground.out_degree), list(ground.in_degree)
        self.blocked_out: set[int] = set()
        self.blocked_in: set[int] = set()
        self.lost_out: set[int] = set()  # nodes that a removed edge leaves
        self.lost_in: set[int] = set()  # nodes that a removed edge enters

    def try_add(self, edge: int) -> bool:
        """Ask for one more edge to be zero, if the group stays feasible."""
        ground = self.ground
        tail, head = ground.tails[edge], ground.heads[edge]
        above, below = ground.falls(edge)
        cost = ground.found.minima.get(edge, 0)
        if cost > self.budget or tail in self.shut or head in self.dry or not self._separate(above, below):
            return False
        shut, dry = set(above), set(below)
        no_out = {edge, *(entering for node in above for entering in ground.at("in", node))} - self.blocked_out
        no_in = {edge, *(leaving for node in below for leaving in ground.at("out", node))} - self.blocked_in
        fewer_out = _count(ground.tails[other] for other in no_out)
        fewer_in = _count(ground.heads[other] for other in no_in)
        for fewer, ways, fallen, falls in (
            (fewer_out, self.ways_out, self.shut, shut),
            (fewer_in, self.ways_in, self.dry, dry),
        ):
            for node, lost in fewer.items():
                if node >= 0 and ways[node] <= lost and node not in fallen and node not in falls:
                    return False
        for fewer, ways in ((fewer_out, self.ways_out), (fewer_in, self.ways_in)):
            for node, lost in fewer.items():
                if node >= 0:
                    ways[node] -= lost
        self.budget -= cost
        self.shut |= shut
        self.dry |= dry
        self.blocked_out |= no_out
        self.blocked_in |= no_in
        self.lost_out.add(tail)
        self.lost_in.add(head)
        return True

    def _separate(self, above: list[int], below: list[int]) -> bool:
        fallen = (*above, *below)
        taken = any(node in self.shut or node in self.dry for node in fallen)
        return not (
            taken or any(node in self.lost_out for node in above) or any(node in self.lost_in for node in below)
        )

    def squares(self) -> dict[int, int]:
        """A point with all removed edges zero: flows inside the cut-off sets, then paths for everyone else."""
        found = self.ground.found
        lacking = list(found.balance.units)
        inside = self._inside(lacking)
        for edge, amount in inside.items():
            lacking[self.ground.tails[edge]] += amount
            lacking[self.ground.heads[edge]] -= amount
        masks = []
        for blocked, ends, fallen in (
            (self.blocked_out, self.ground.tails, self.shut),
            (self.blocked_in, self.ground.heads, self.dry),
        ):
            allowed = np.ones(self.ground.dag.parameters, dtype=bool)
            allowed[list(blocked)] = False
            if fallen:
                allowed &= ~np.isin(ends, list(fallen))
            masks.append(allowed)
        squares = complete(self.ground.dag, lacking, *masks)
        for edge, amount in inside.items():
            squares[edge] = squares.get(edge, 0) + amount
        if sum(map(abs, lacking)) > found.balance.slack:
            raise AssertionError("a free edge was not freed")
        return squares

    def _inside(self, lacking: list[int]) -> dict[int, int]:
        """The most that surplus neurons of the cut-off sets can hand to needy ones of the same set."""
        ground = self.ground
        arcs = [
            edge
            for fallen in (self.shut, self.dry)
            for node in fallen
            for edge in ground.at("out", node)
            if ground.heads[edge] in fallen
        ]
        if not arcs:
            return {}
        nodes = sorted({end for edge in arcs for end in (ground.tails[edge], ground.heads[edge])})
        place = {node: number for number, node in enumerate(nodes)}
        source, sink = len(nodes), len(nodes) + 1
        ends = [(place[ground.tails[edge]], place[ground.heads[edge]]) for edge in arcs]
        total = sum(-lacking[node] for node in nodes if lacking[node] < 0)
        terminals = [
            (source, place[node], -lacking[node]) if lacking[node] < 0 else (place[node], sink, lacking[node])
            for node in nodes
        ]
        tails, heads, capacities = zip(*((tail, head, total) for tail, head in ends), *terminals, strict=True)
        flow, _ = maximum_flow(len(nodes) + 2, tails, heads, capacities, source, sink)
        return {edge: amount for edge, amount in zip(arcs, flow, strict=False) if amount}


def _count(ends: Iterable[int]) -> dict[int, int]:
    found: dict[int, int] = {}
    for end in ends:
        found[end] = found.get(end, 0) + 1
    return found


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
