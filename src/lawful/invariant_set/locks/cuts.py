"""Locked edges of any graph, circles and parallel edges included: the cuts that a single edge makes.

`min x_e` over `{x ≥ 0 : B̃x = c}` is, by duality, the largest `−Σ_T c` of a set T of nodes that only e leaves (or the
mirror image). Such sets are made of the nodes that lose every way out without e; the heaviest one is a closure.
P0 Theorem 1 is the case without circles, where e is then the only edge of its bottleneck.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from lawful.invariant_set.balance import maximum_closure
from lawful.invariant_set.locks.bottlenecks import SeenGraph
from lawful.invariant_set.module_graph import Edges, EntryGraph
from lawful.types import Indices, Mask

if TYPE_CHECKING:
    from lawful.symmetry.scaling import EdgeBlock

UNKNOWN = -1
FEW = 4  # arcs of a node and block that are looked at first: two that lead on by different ways are enough


@dataclass(frozen=True, eq=False)
class CutSide(SeenGraph[EntryGraph]):
    """A graph that may have circles and parallel edges."""

    def arcs_from(self, nodes: Mask) -> tuple[Indices, Indices, Indices]:
        """Edges that leave some nodes in this direction, where from, and where to (node numbers or `root`)."""
        chosen = np.zeros(self.root + 2, dtype=bool)
        chosen[1:-1] = nodes
        parts = [(np.zeros(0, dtype=np.intp),) * 3]
        for start, block in zip(self.dag.starts, self.dag.blocks, strict=False):
            if chosen[self._near_and_far(block)[0]].any():
                for part in self.dag.edges_of(block, start):
                    near, far = self._near_and_far(part)
                    here = np.flatnonzero(chosen[near])
                    parts.append((part.first + here, near[here] - 1, self._inside(far[here])))
        edges, near, far = (np.concatenate(part) for part in zip(*parts, strict=True))
        return edges, near, far

    def _near_and_far(self, edges: EdgeBlock | Edges) -> tuple[Indices, Indices]:
        return (edges.tails, edges.heads) if self.name == "out" else (edges.heads, edges.tails)

    def _inside(self, ends: Indices) -> Indices:
        """Ends as numbers of hidden nodes, or `root`."""
        return np.where((ends < 1) | (ends > self.root), self.root, ends - 1)

    def _some_arcs(self) -> tuple[Indices, Indices]:
        """A few arcs of every node, where from and where to: enough to see that most nodes are safe."""
        parts = [(np.zeros(0, dtype=np.intp),) * 2]
        for start, block in zip(self.dag.starts, self.dag.blocks, strict=False):
            near, far = self._near_and_far(block)
            crossed = all(1 in sizes for sizes in zip(near.shape, far.shape, strict=True))
            if not crossed or block.mask is not None:
                parts += [self._near_and_far(part) for part in self.dag.edges_of(block, start)]
                continue
            some = far.reshape(-1)[:FEW]
            taps = min(2, block.count // max(near.size * far.size, 1))
            parts.append((np.tile(near.reshape(-1), len(some) * taps), np.repeat(np.tile(some, taps), near.size)))
        near, far = (self._inside(np.concatenate(part)) for part in zip(*parts, strict=True))
        return near[near != self.root], far[near != self.root]

    @cached_property
    def single(self) -> Mask:
        """Nodes with exactly one arc: `{v}` is then a set that one edge leaves."""
        weights = np.zeros(self.root + 2)
        for start, block in zip(self.dag.starts, self.dag.blocks, strict=False):
            near = self._near_and_far(block)[0]
            if block.mask is None:
                weights += np.bincount(near.reshape(-1), minlength=len(weights)) * (block.count // near.size)
            else:
                for part in self.dag.edges_of(block, start):
                    weights += np.bincount(self._near_and_far(part)[0], minlength=len(weights))
        return np.asarray(weights[1:-1] == 1)

    @cached_property
    def bottleneck(self) -> Mask:
        """Nodes with an arc that they cannot do without."""
        is_bottleneck = np.zeros(self.root, dtype=bool)
        is_bottleneck[[self.node_of(edge) for edge in self.behind]] = True
        return is_bottleneck

    def node_of(self, edge: int) -> int:
        """The hidden node that an edge leaves in this direction."""
        return self.dag.ends(edge)[0 if self.name == "out" else 1] - 1

    @cached_property
    def behind(self) -> Mapping[int, list[int]]:
        """For each edge that some node cannot do without: the nodes that lose every way to `root`, its tail first."""
        safe = np.zeros(self.root + 1, dtype=bool)
        safe[self.root] = True
        safe = _safe(*self._some_arcs(), safe)  # more arcs make no node less safe
        edges, tails, heads = self.arcs_from(~safe[:-1])
        safe = _safe(tails, heads, safe)
        open_arcs = np.flatnonzero(~safe[tails])
        if not len(open_arcs):
            return {}
        heads = np.where(safe[heads], self.root, heads)
        return _dominated_by_edge(edges[open_arcs], tails[open_arcs], heads[open_arcs], self.root)


def _safe(tails: Indices, heads: Indices, safe: Mask) -> Mask:
    """Nodes that no single edge cuts off, as far as a quick look shows: two arcs lead on that share no bottleneck.

    An arc into a safe node (or the root) is its own label; a node has the label that two of its arcs share. Arcs with
    different labels share nothing. Rounds go on until nothing changes; what is left is looked at closely. Nodes that
    are known to be safe, the root among them, stay so.
    """
    root = len(safe) - 1
    label = np.full(root + 1, UNKNOWN, dtype=np.int64)
    left = np.arange(len(tails))
    while True:
        left = left[~safe[tails[left]]]
        near, far = tails[left], heads[left]
        mark = np.where(safe[far], left, label[far])
        known = mark != UNKNOWN
        low, high = np.full(root + 1, len(tails), dtype=np.int64), np.full(root + 1, -1, dtype=np.int64)
        np.minimum.at(low, near[known], mark[known])
        np.maximum.at(high, near[known], mark[known])
        count = np.bincount(near[known], minlength=root + 1)
        direct = np.bincount(near[safe[far]], minlength=root + 1) > 0
        now = safe | ((count > 1) & (low < high))
        decided = ~now & (low == high) & ((count > 1) | direct)
        relabelled = np.where(decided, low, label)
        if (now == safe).all() and (relabelled == label).all():
            return safe
        safe, label = now, relabelled


def _dominated_by_edge(edges: Indices, tails: Indices, heads: Indices, root: int) -> dict[int, list[int]]:
    """Nodes whose every way to the root uses an edge, for each such edge, by dominators.

    Every arc that is alone between its ends gets a node of its own; several between the same ends get one together.
    """
    import rustworkx

    _, first, many = np.unique(tails * (root + 1) + heads, return_index=True, return_counts=True)
    nodes = np.unique(np.r_[tails, heads[heads != root]])
    place = np.full(root + 1, -1, dtype=np.intp)
    place[nodes], place[root] = np.arange(len(nodes)), len(nodes)
    middle = len(nodes) + 1
    graph = rustworkx.PyDiGraph(multigraph=True)
    graph.add_nodes_from(range(middle + len(first)))
    near, far, between = place[tails[first]], place[heads[first]], middle + np.arange(len(first))
    graph.add_edges_from_no_data(list(zip(far.tolist(), between.tolist(), strict=True)))
    graph.add_edges_from_no_data(list(zip(between.tolist(), near.tolist(), strict=True)))
    above: dict[int, int] = rustworkx.immediate_dominators(graph, len(nodes))
    below: dict[int, list[int]] = {}
    for node, parent in above.items():
        if node != parent:
            below.setdefault(parent, []).append(node)
    by_edge: dict[int, list[int]] = {}
    stuck = [node for node in range(len(nodes)) if node not in above]  # no way to the root at all
    for number, (arc, copies) in enumerate(zip(first.tolist(), many.tolist(), strict=True)):
        tail = int(near[number])
        lost = tail not in above
        if copies == 1 and (lost or above[tail] == middle + number):
            branch = [] if lost else _branch(below, middle + number)
            members = [tail, *(node for node in (*branch, *stuck) if node != tail)]
            by_edge[int(edges[arc])] = [int(nodes[node]) for node in members if node < len(nodes)]
    return by_edge


def _branch(below: Mapping[int, list[int]], top: int) -> list[int]:
    members = [top]
    for member in members:  # grows while it is read
        members.extend(below.get(member, ()))
    return members


@dataclass(frozen=True, eq=False)
class CutSets:
    """For each edge that some node cannot do without, the heaviest set of nodes that it alone leaves.

    `value[e] = max −Σ_T c` over such T that contain its tail; `max(0, value[e])` is the least square it can have.
    """

    side: CutSide
    value: Mapping[int, int]
    choice: Mapping[int, Sequence[int]]

    def bounds(self) -> dict[int, tuple[int, int]]:
        """By edge: the value, and the node that cannot do without it."""
        return {edge: (value, self.side.node_of(edge)) for edge, value in self.value.items()}

    def set_of(self, edge: int) -> list[int]:
        """The set T that belongs to an edge, its own node first."""
        return list(self.choice[edge])


def cut_sets(side: CutSide, balance: Sequence[int]) -> CutSets:
    """Find the heaviest sets: a closure for each edge, one node where no other depends on it."""
    value: dict[int, int] = {}
    choice: dict[int, list[int]] = {}
    inner = np.zeros(side.root, dtype=bool)
    for members in side.behind.values():
        inner[members] = True
    edges, tails, heads = side.arcs_from(inner)
    leads: dict[int, set[tuple[int, int]]] = {}
    for arc in np.flatnonzero(heads != side.root).tolist():
        leads.setdefault(int(tails[arc]), set()).add((int(heads[arc]), int(edges[arc])))
    weight = [-side.sign * unit for unit in balance]
    for edge, members in side.behind.items():
        value[edge], choice[edge] = _heaviest(edge, members, leads, weight)
    return CutSets(side, value, choice)


def _heaviest(
    edge: int, members: list[int], leads: Mapping[int, set[tuple[int, int]]], weight: Sequence[int]
) -> tuple[int, list[int]]:
    """The best closed set that contains the first member, when the edge is gone."""

    def reach(start: Sequence[int]) -> list[int]:
        nodes, seen = list(start), set(start)
        for node in nodes:  # grows while it is read
            for head, arc in leads.get(node, ()):
                if arc != edge and head not in seen:
                    seen.add(head)
                    nodes.append(head)
        return nodes

    forced = reach(members[:1])
    inside = set(forced)
    rest = [node for node in reach(members) if node not in inside]
    base = sum(weight[node] for node in forced)
    if not rest:
        return base, forced
    place = {node: number for number, node in enumerate(rest)}
    arcs = [
        (place[node], place[head])
        for node in rest
        for head, arc in leads.get(node, ())
        if arc != edge and head in place
    ]
    best, more = maximum_closure([weight[node] for node in rest], arcs)
    return base + best, [*forced, *(rest[number] for number in more)]
