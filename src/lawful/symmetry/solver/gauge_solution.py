"""From what the operations demand to the group that is left: blocks of coordinates, scales tied by relations, shifts.

The first question is which labels may mix: the coarsest partition of labels into cells that every link respects. X is
block-diagonal by cells. A link `M_f = ±M_g` demands that what f keeps apart, g keeps apart too: labels stay in one cell
only if, copy by copy, they meet partners of one cell in one group. Cells are split until nothing changes, as in
partition refinement (Hopcroft 1971; Paige and Tarjan 1987); the result is exact (no hashes), and a label that no link
can tell from its neighbours stays with them. The cost is one sort of the labels of all links for each round.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse as sparse
from scipy.sparse.csgraph import connected_components

from lawful.symmetry.demands.gauges import PINNED, Gauges, Link
from lawful.symmetry.demands.labels import flat, number_rows, occurrences
from lawful.symmetry.demands.shifts import ZERO, Direction, Shifts
from lawful.symmetry.solver.nullspace import Nullspace, nullspace
from lawful.types import Mask, Residues


class Cells:
    """A partition of labels that can only get finer."""

    def __init__(self, axes: Iterable[tuple[int, int]], links: list[Link]) -> None:
        counts = np.array([count for _, count in axes])
        self.of = np.repeat(np.arange(len(counts)), counts)
        self._sizes = np.zeros(2 * int(counts.sum()) + len(counts), dtype=np.int64)
        self._sizes[: len(counts)] = counts
        self._count = len(counts)
        self.axis = self.of.copy()
        self.links = links
        self._users: dict[int, list[int]] = defaultdict(list)
        for number, link in enumerate(links):
            for axis in np.unique(np.r_[self.axis[link.left], self.axis[link.right]]).tolist():
                self._users[axis].append(number)
        self._waiting = deque(range(len(links)))
        self._queued = [True] * len(links)

    def separate(self, labels: Residues) -> None:
        """Put each of these labels into a cell of its own."""
        labels = np.unique(labels)
        shared = labels[self._sizes[self.of[labels]] > 1]
        self._assign(shared, np.arange(len(shared)))

    def settle(self) -> None:
        """Split cells until every link is respected."""
        while self._waiting:
            number = self._waiting.popleft()
            self._queued[number] = False
            link = self.links[number]
            meeting = number_rows(self.of[link.left], self.of[link.right], link.group)
            self._split(link.left, meeting)
            if link.right is not link.left:
                self._split(link.right, number_rows(self.of[link.left], self.of[link.right], link.group))

    def _split(self, labels: Residues, keys: Residues) -> None:
        """Keep two labels of a cell together only if their copies have equal keys, and neither is missing."""
        distinct, which = np.unique(labels, return_inverse=True)
        copies = occurrences(labels)
        signature = self.of[distinct]
        for copy in range(int(copies.max(initial=-1)) + 1):
            here = copies == copy
            # -1 is a copy that a label does not have: that alone tells it from labels that have it.
            key = np.full(len(distinct), -1)
            key[which[here]] = keys[here]
            signature = number_rows(signature, key)
        _, first, group, count = np.unique(signature, return_index=True, return_inverse=True, return_counts=True)
        # A cell whose labels all agree keeps its number, and no link is looked at again for it: so refinement ends.
        torn = (self._sizes[self.of[distinct[first]]] != count)[group]
        self._assign(distinct[torn], signature[torn])

    def _assign(self, labels: Residues, keys: Residues) -> None:
        """New cells for labels, one for each key; links of their axes are looked at again."""
        if not len(labels):
            return
        np.subtract.at(self._sizes, self.of[labels], 1)
        fresh, counts = np.unique(keys, return_inverse=True, return_counts=True)[1:]
        while self._count + len(counts) > len(self._sizes):
            self._sizes = np.concatenate([self._sizes, np.zeros_like(self._sizes)])
        self.of[labels] = self._count + fresh
        self._sizes[self._count : self._count + len(counts)] = counts
        self._count += len(counts)
        for axis in np.unique(self.axis[labels]).tolist():
            for number in self._users[axis]:
                if not self._queued[number]:
                    self._queued[number] = True
                    self._waiting.append(number)


@dataclass(frozen=True, eq=False)
class GaugeSolution:
    """The generators X that respect every demand.

    Label i moves with coordinate `root[i]`: `X[i, j] = X[root i, root j]` if `sign[i]` is 1, `−X[root j, root i]` if
    it is −1. `cell` says which labels may mix. A coordinate that is `pinned` does not move, one that is `skew` only
    turns. `scales` are the diagonal generators of coordinates on their own.
    """

    root: Residues
    sign: Residues
    cell: Residues
    pinned: Mask
    skew: Mask
    scales: Nullspace

    @cached_property
    def block(self) -> Residues:
        """A number for each label: labels of equal number belong to one matrix X; the smallest cell number in it."""
        size = int(self.cell.max()) + 1
        place = np.arange(len(self.root))
        graph = sparse.coo_array((np.ones(len(place), dtype=np.int8), (self.cell[place], self.cell[self.root])))
        graph.resize(size, size)
        return np.asarray(connected_components(graph, directed=False)[1][self.cell], dtype=np.int64)


def solve(gauges: Gauges) -> GaugeSolution:
    """Cells first, then coordinates: labels that links identify; then the scales of coordinates that stand alone."""
    count = gauges.count
    root, sign, skew = _coordinates(gauges, count)
    cells = Cells(gauges.axes, gauges.links)
    cells.separate(np.concatenate([[PINNED], *gauges.diagonals, *(pin.labels for pin in gauges.pins)]))
    while True:
        cells.settle()
        order = np.lexsort([root, cells.of])
        twins = (cells.of[order][1:] == cells.of[order][:-1]) & (root[order][1:] == root[order][:-1])
        if not twins.any():
            break
        # X would have to commute with a permutation of the cell: its diagonal part is a subgroup, and is kept
        cells.separate(np.flatnonzero(np.isin(cells.of, cells.of[order][1:][twins])))
    alone = np.bincount(cells.of)[cells.of] == 1
    pinned = (root == root[PINNED]) | (skew & alone)
    scales = nullspace(gauges.relations, root, sign, ~pinned & ~skew & alone)
    return GaugeSolution(root, sign, cells.of, pinned, skew, scales)


def _coordinates(gauges: Gauges, count: int) -> tuple[Residues, Residues, Mask]:
    """Labels that links identify, with the sign of the identification; both signs at once means skew.

    A link of sign −1 joins label a to the negative of b: components of the double cover {+a, −a}. What is pinned is
    pinned with both signs.
    """
    pins = np.unique(np.concatenate([[PINNED], *(pin.labels for pin in gauges.pins)])).astype(np.int64)
    left = np.concatenate([np.zeros(0, np.int64), *(link.left for link in gauges.links)])
    right = np.concatenate([np.zeros(0, np.int64), *(link.right for link in gauges.links)])
    turned = np.concatenate([np.zeros(0, bool), *(np.full(len(link.left), link.sign < 0) for link in gauges.links)])
    tails = np.concatenate([left, left + count, pins, pins + count])
    heads = np.concatenate([np.where(turned, right + count, right), np.where(turned, right, right + count),
                            np.full(2 * len(pins), PINNED)])  # fmt: skip
    graph = sparse.coo_array((np.ones(len(tails), dtype=np.int8), (tails, heads)), shape=(2 * count, 2 * count))
    result, component = connected_components(graph, directed=False)
    plus, minus = component[:count], component[count:]
    first = np.full(result, count, dtype=np.int64)
    np.minimum.at(first, plus, np.arange(count))
    second = np.full(result, count, dtype=np.int64)
    np.minimum.at(second, minus, np.arange(count))
    root = np.minimum(first[plus], second[plus])
    sign = np.where(first[plus] <= second[plus], 1, -1)
    return root, sign, plus == minus


def link_components(gauges: Gauges) -> Residues:
    """Labels that links or relations tie together, whatever is pinned."""
    tails = [link.left for link in gauges.links]
    heads = [link.right for link in gauges.links]
    for relation in gauges.relations:
        tails += [relation.result, relation.result]
        heads += [relation.first, relation.second]
    pairs = [np.concatenate([np.zeros(0, np.int64), *part]) for part in (tails, heads)]
    free = (pairs[0] != PINNED) & (pairs[1] != PINNED)
    entries = (np.ones(int(free.sum()), dtype=np.int8), (pairs[0][free], pairs[1][free]))
    graph = sparse.coo_array(entries, shape=(gauges.count, gauges.count))
    return np.asarray(connected_components(graph, directed=False)[1], dtype=np.int64)


@dataclass(frozen=True, eq=False)
class ShiftSolution:
    """Labels whose unknowns are equal share a `root`.

    `together` are the combinations of unknowns that no operation sees; those of vectors (`width` > 1) hold entry by
    entry.
    """

    root: Residues
    width: Residues
    together: Nullspace
    directions: tuple[Direction, ...]
    unread: Mapping[str, int]


def solve_shifts(shifts: Shifts) -> ShiftSolution:
    """Equal unknowns first, then what vanishes, then the relations of sums."""
    count = shifts.count
    zero = np.zeros(count, dtype=bool)
    zero[ZERO] = True
    for labels in shifts.zero:
        zero[labels] = True
    root = shifts.leaders(np.arange(count))
    related = np.zeros(count, dtype=bool)
    for relation in shifts.relations:
        for labels in (relation.result, relation.first, relation.second):
            related[root[labels]] = True
    shared = np.bincount(root, minlength=count)[root] > 1
    gone = _spread(zero, root)
    for whole, part in reversed(shifts.parts):  # a sum whose value is demanded demands it of every part
        bound = gone[root[whole]] | shared[whole] | related[root[whole]]
        gone[part[bound]] = True
        gone = _spread(gone, root)
    directions = tuple(direction for result in shifts.directions.values() for direction in result)
    read = np.zeros(count, dtype=bool)
    for labels in shifts.read:
        read[labels] = True
    unread: dict[str, int] = {}
    named = np.zeros(count, dtype=bool)
    for direction in directions:
        labels = flat(direction.labels)
        named[root[labels[read[labels]]]] = True
        if missed := int((~read[labels]).sum()):  # rows that a longer input would read: nothing is said of them
            unread[direction.parameter] = missed * direction.weight
    free = ~gone & (root == np.arange(count)) & (named | related)
    sign = np.ones(count, dtype=np.int64)
    together = nullspace(shifts.relations, root, sign, free)
    return ShiftSolution(root, shifts.width[:count][root], together, directions, unread)


def _spread(marked: Mask, root: Residues) -> Mask:
    """Mark every label whose equals are marked."""
    result = np.zeros(len(root), dtype=bool)
    result[root[marked]] = True
    return np.asarray(result[root])
