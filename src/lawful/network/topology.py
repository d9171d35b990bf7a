"""Orders and reachability of a directed graph given as two arrays, one frontier at a time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lawful.types import Indices, Mask


class Successors:
    """For each node the heads of its outgoing edges, stored end to end."""

    def __init__(self, count: int, tails: Indices, heads: Indices) -> None:
        self.heads = heads[np.argsort(tails, kind="stable")]
        self.starts = np.concatenate([[0], np.cumsum(np.bincount(tails, minlength=count))])

    def of(self, nodes: Indices) -> Indices:
        """Heads of all edges leaving `nodes`, with repetition."""
        begin, length = self.starts[nodes], self.starts[nodes + 1] - self.starts[nodes]
        offsets = np.arange(length.sum()) - np.repeat(np.cumsum(length) - length, length)
        return np.asarray(self.heads[np.repeat(begin, length) + offsets])


def peel(count: int, tails: Indices, heads: Indices) -> tuple[Indices, Indices]:
    """Remove sources again and again (Kahn): the round in which each node left, and the in-degrees that remain.

    The round is the length of the longest path that ends at the node; nodes on or behind a cycle keep round −1.
    """
    successors = Successors(count, tails, heads)
    waiting = np.bincount(heads, minlength=count)
    rounds = np.full(count, -1, dtype=np.intp)
    frontier, number = np.flatnonzero(waiting == 0), 0
    while len(frontier):
        rounds[frontier] = number
        touched, times = np.unique(successors.of(frontier), return_counts=True)
        waiting[touched] -= times
        frontier, number = touched[waiting[touched] == 0], number + 1
    return rounds, waiting


def levels(count: int, tails: Indices, heads: Indices) -> Indices:
    """Length of the longest path that ends at each node of an acyclic graph."""
    return peel(count, tails, heads)[0]


def find_cycle(count: int, tails: Indices, heads: Indices) -> list[int] | None:
    """A cycle as a closed list of nodes, or None if the graph is acyclic.

    >>> find_cycle(3, np.array([0, 1, 2]), np.array([1, 2, 1]))
    [1, 2, 1]
    """
    rounds, _ = peel(count, tails, heads)
    stuck = rounds < 0
    if not stuck.any():
        return None
    inside = stuck[tails] & stuck[heads]
    before = np.full(count, -1, dtype=np.intp)
    before[heads[inside]] = tails[inside]  # every stuck node has a stuck predecessor: walk back until one repeats
    walk, seen = [int(np.argmax(stuck))], set[int]()
    while walk[-1] not in seen:
        seen.add(walk[-1])
        walk.append(int(before[walk[-1]]))
    return walk[walk.index(walk[-1]) :][::-1]


def reachable(count: int, tails: Indices, heads: Indices, start: int | Sequence[int] | Indices) -> Mask:
    """Mask of the nodes at the end of a path with at least one edge from `start`."""
    successors = Successors(count, tails, heads)
    reached = np.zeros(count, dtype=bool)
    frontier = np.unique(np.atleast_1d(np.asarray(start, dtype=np.intp)))
    while len(frontier):
        ahead = np.unique(successors.of(frontier))
        frontier = ahead[~reached[ahead]]
        reached[frontier] = True
    return reached


def useless(hidden: Mask, tails: Indices, heads: Indices) -> Mask:
    """Mask of the hidden nodes that no path joins to both a source and a sink that are not hidden."""
    ends = np.flatnonzero(~hidden)
    return hidden & ~(reachable(len(hidden), tails, heads, ends) & reachable(len(hidden), heads, tails, ends))


def groups_cut_off(count: int, tails: Indices, heads: Indices) -> list[Indices]:
    """The sets of nodes 1, …, `count` that no edge, in either direction, joins to node 0 or to each other.

    With all inputs, outputs and the constant glued to node 0, and the hidden neurons as the others, each group lowers
    the rank of `J = 2 B̃ diag θ` by one: `rank J = |Ṽ| + 1 − CC(G')` (P0 Theorem 2).

    >>> groups_cut_off(4, np.array([0, 2, 4]), np.array([1, 3, 4]))
    [array([2, 3]), array([4])]
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    edges = coo_array((np.ones(len(tails)), (tails, heads)), shape=(count + 1, count + 1))
    number, label = connected_components(edges, directed=False)
    order = np.argsort(label, kind="stable")
    groups = np.split(order, np.cumsum(np.bincount(label, minlength=number))[:-1])
    return sorted((group for group in groups if label[group[0]] != label[0]), key=lambda group: int(group[0]))
