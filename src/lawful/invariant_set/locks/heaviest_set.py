"""The heaviest stable set of every bottleneck: what its single edge must carry at least (P0 Theorem 1).

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

import numpy as np

from lawful.invariant_set.feasible import maximum_closure
from lawful.invariant_set.locks.bottlenecks import Side
from lawful.types import Mask


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
        found, stack = [], [node]
        while stack:
            top = stack.pop()
            for member in self.choice.get(top, (top,)):
                if member == top or not self.shortened[member]:
                    found.append(member)
                else:
                    stack.append(member)
        return found


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
    found: dict[int, list[int]] = {}
    for tail, head in zip(side.tails[inside].tolist(), side.heads[inside].tolist(), strict=True):
        found.setdefault(tail, []).append(head)
    return found
