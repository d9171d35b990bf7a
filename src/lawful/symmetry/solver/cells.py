"""Which labels may mix: the coarsest partition of labels into cells that every link respects.

X is block-diagonal by cells. A link `M_f = ±M_g` demands that what f keeps apart, g keeps apart too: labels stay in one
cell only if, copy by copy, they meet partners of one cell in one group. Cells are split until nothing changes; the
result is exact (no hashes), and a label that no link can tell from its neighbours stays with them.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable

import numpy as np

from lawful.symmetry.demands.gauges import Link
from lawful.symmetry.demands.labels import number_rows, occurrences
from lawful.types import Residues


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
            key = np.full(len(distinct), -1)
            key[which[here]] = keys[here]
            signature = number_rows(signature, key)
        _, first, group, count = np.unique(signature, return_index=True, return_inverse=True, return_counts=True)
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
