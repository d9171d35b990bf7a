"""Bottleneck neurons (P0 Definition 2), and the heaviest stable set of each: what its single edge carries at least.


Idea: the squares of the weights are a flow through the graph with supply c_v at neuron v. A set T of neurons whose only
way out is one edge e forces the supply of T through it: θ_e² ≥ −Σ_T c_u. If that is positive, θ_e is never zero and
keeps its sign. For each edge the best T is a maximum closure, which is a minimum cut; computed one by one that is a cut
for every bottleneck of a large graph.

Invariant: bottlenecks are visited from the inside out, and a branch of the dominator tree that can only be entered at
its top is replaced by one node with the value of its best set (`shortened`). Layers, chains and trees shrink to single
nodes, so that cuts are computed only where branches are entangled. All numbers are integers: no rounding decides.

Cost: linear in the edges where no branch is entangled, one minimum cut for each remaining bottleneck. P0 Theorem 1;
Picard 1976 for closures as cuts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, Literal, Protocol, TypeVar

import numpy as np

from lawful.invariant_set.balance import maximum_closure
from lawful.network import Dag, Role
from lawful.types import Indices, Mask


class _HasHidden(Protocol):
    @property
    def hidden(self) -> Indices: ...


Graph = TypeVar("Graph", bound=_HasHidden)


@dataclass(frozen=True, eq=False)
class SeenGraph(Generic[Graph]):
    """A graph seen towards its outputs (`out`), or along reversed edges towards its inputs (`in`).

    Hidden nodes are numbered as in `dag.hidden`; everything that does not scale is the one node `root`.
    """

    dag: Graph
    name: Literal["out", "in"]

    @property
    def sign(self) -> int:
        """Reversing the edges reverses the balance."""
        return 1 if self.name == "out" else -1

    @property
    def root(self) -> int:
        """The number that stands for everything that does not scale."""
        return len(self.dag.hidden)


@dataclass(frozen=True, eq=False)
class Side(SeenGraph[Dag]):
    """A graph without circles: both kinds of bottleneck are hidden nodes with a single arc in this direction.

    Arcs are the edges that leave a hidden node in this direction.
    """

    @cached_property
    def _ends(self) -> tuple[Indices, Indices, Indices]:
        number = np.full(len(self.dag.names), self.root, dtype=np.intp)
        number[self.dag.hidden] = np.arange(self.root)
        near, far = (self.dag.tails, self.dag.heads) if self.name == "out" else (self.dag.heads, self.dag.tails)
        edges = np.flatnonzero(self.dag.roles[near] == Role.HIDDEN)
        return edges, number[near[edges]], number[far[edges]]

    @property
    def edges(self) -> Indices:
        """The edge of the graph behind each arc."""
        return self._ends[0]

    @property
    def tails(self) -> Indices:
        """Where each arc leaves."""
        return self._ends[1]

    @property
    def heads(self) -> Indices:
        """Where each arc leads: a hidden node or `root`."""
        return self._ends[2]

    @cached_property
    def bottleneck(self) -> Mask:
        """Hidden nodes with exactly one arc."""
        return np.asarray(np.bincount(self.tails, minlength=self.root) == 1)

    @property
    def single(self) -> Mask:
        """The same: without circles no other edge is ever missed."""
        return self.bottleneck

    @cached_property
    def only_edge(self) -> Indices:
        """For each bottleneck its single edge; −1 elsewhere."""
        only = np.full(self.root, -1, dtype=np.intp)
        single = self.bottleneck[self.tails]
        only[self.tails[single]] = self.edges[single]
        return only

    @cached_property
    def alone(self) -> Mask:
        """Bottlenecks that no other neuron depends on: `{v}` is the only stable set.

        The pure ancestor of v that comes last has all its arcs into v, hence one arc: it is a bottleneck itself.
        """
        fed = np.zeros(self.root + 1, dtype=bool)
        fed[self.heads[self.bottleneck[self.tails]]] = True
        return self.bottleneck & ~fed[:-1]

    @cached_property
    def order(self) -> Indices:
        """Hidden nodes so that arcs lead from earlier to later ones."""
        return np.argsort(self.sign * self.dag.levels[self.dag.hidden], kind="stable")

    @cached_property
    def dominators(self) -> Indices:
        """For each hidden node the nearest node on *all* its paths to `root` (`root` itself if there is no other).

        The nodes below v in this tree are exactly the pure ancestors of v.
        """
        import rustworkx

        graph = rustworkx.PyDiGraph(multigraph=True, edge_count_hint=len(self.tails), node_count_hint=self.root + 1)
        graph.add_nodes_from(range(self.root + 1))
        graph.add_edges_from_no_data(list(zip(self.heads.tolist(), self.tails.tolist(), strict=True)))
        nearest = rustworkx.immediate_dominators(graph, self.root)
        return np.array([nearest[node] for node in range(self.root)], dtype=np.intp)

    @cached_property
    def children(self) -> dict[int, list[int]]:
        """The dominator tree downwards, leaves and root left out."""
        by_parent: dict[int, list[int]] = {}
        below = np.flatnonzero(self.dominators != self.root)
        for node, above in zip(below.tolist(), self.dominators[below].tolist(), strict=True):
            by_parent.setdefault(above, []).append(node)
        return by_parent


@dataclass(frozen=True, eq=False)
class StableSets:
    """For bottleneck v, `value[v] = max −Σ_{u∈T} c_u` over stable `T ∋ v` among its pure ancestors.

    On the `in` side edges and balance are reversed. `max(0, value[v])` is the least square that v's edge can have.
    `choice[v]` holds T with whole branches of the dominator tree shortened to their top, `members` spells it out.
    """

    side: Side
    value: dict[int, int]
    choice: dict[int, list[int]]
    shortened: Mask

    def bounds(self) -> dict[int, tuple[int, int]]:
        """By edge of a bottleneck: the value, and the bottleneck."""
        nodes = np.flatnonzero(self.side.bottleneck).tolist()
        return {int(self.side.only_edge[node]): (self.value[node], node) for node in nodes}

    def set_of(self, edge: int) -> list[int]:
        """The stable set T that belongs to the only edge of a bottleneck."""
        dag = self.side.dag
        end = dag.tails[edge] if self.side.name == "out" else dag.heads[edge]
        return self.members(int(np.searchsorted(dag.hidden, end)))

    def members(self, node: int) -> list[int]:
        """The stable set T of a bottleneck, as hidden nodes, itself first."""
        nodes, stack = [], [node]
        while stack:
            top = stack.pop()
            for member in self.choice.get(top, (top,)):
                if member == top or not self.shortened[member]:
                    nodes.append(member)
                else:
                    stack.append(member)
        return nodes


def stable_sets(side: Side, balance: Sequence[int]) -> StableSets:
    """Find all heaviest stable sets, inner bottlenecks first.

    A node `u` stands for its whole branch of the dominator tree when arcs from elsewhere in a bottleneck's reach enter
    the branch only at `u`: any stable set that meets the branch then contains `u`, and takes the best of the branch.
    Layers, trees and chains shrink to single nodes this way; what does not shrink is one minimum cut.
    """
    weight = [-side.sign * unit for unit in balance]
    alone = np.flatnonzero(side.alone).tolist()
    value = {node: weight[node] for node in alone}
    choice = {node: [node] for node in alone}
    if side.alone.sum() == side.bottleneck.sum():  # Corollaries 1 and 2: no bottleneck depends on another
        return StableSets(side, value, choice, np.zeros(side.root, dtype=bool))
    shortened = (side.dominators != side.root) & ~_entered_below(side)
    leads = _arcs_inside(side)
    inner: dict[int, list[int]] = {}
    involved = (side.dominators != side.root) | side.bottleneck
    involved[list(side.children)] = True
    for node in side.order[involved[side.order]].tolist():
        members: list[int] = []
        for child in side.children.get(node, ()):
            below = inner.pop(child)
            members += [child] if shortened[child] else [*below, child]
        inner[node] = members
        if side.bottleneck[node] or shortened[node]:
            gains = [value[member] if shortened[member] else weight[member] for member in members]
            best, chosen = _best(members, gains, leads)
            value[node] = weight[node] + best
            choice[node] = [node, *chosen]
    return StableSets(side, value, choice, shortened)


def _best(members: list[int], gains: list[int], leads: dict[int, list[int]]) -> tuple[int, list[int]]:
    """The heaviest closed set among members; arcs to their dominator do not matter, for it is always in the set."""
    wanted = [number for number, gain in enumerate(gains) if gain > 0]
    place = {member: number for number, member in enumerate(members)} if wanted else {}
    arcs = [
        (number, place[head])
        for number, member in enumerate(members)
        if wanted
        for head in leads.get(member, ())
        if head in place
    ]
    if not arcs:
        return sum(gains[number] for number in wanted), [members[number] for number in wanted]
    best, chosen = maximum_closure(gains, arcs)
    return best, [members[number] for number in chosen]


def _entered_below(side: Side) -> Mask:
    """Nodes u whose branch is entered below u by an arc from a node z outside that has a dominator of its own.

    The arc z → p passes every branch between p and the dominator of z, which dominates p too.
    """
    above = np.append(side.dominators, side.root)
    inside = (side.heads != side.root) & (above[side.tails] != side.root)
    start, stop = above[side.heads[inside]], above[side.tails[inside]]
    deep = (side.heads[inside] != stop) & (start != stop)
    count = np.zeros(side.root + 1, dtype=np.int64)
    np.add.at(count, start[deep], 1)
    np.add.at(count, stop[deep], -1)
    total = count.tolist()
    for node in side.order[above[side.order] != side.root].tolist():
        total[above[node]] += total[node]
    return np.array(total[:-1]) > 0


def _arcs_inside(side: Side) -> dict[int, list[int]]:
    """Heads of the arcs of nodes that have a dominator."""
    inside = side.dominators[side.tails] != side.root
    arcs: dict[int, list[int]] = {}
    for tail, head in zip(side.tails[inside].tolist(), side.heads[inside].tolist(), strict=True):
        arcs.setdefault(tail, []).append(head)
    return arcs
