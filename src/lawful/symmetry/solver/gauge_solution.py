"""From what the operations demand to the group that is left: blocks of coordinates, and scales tied by relations."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse as sparse
from scipy.sparse.csgraph import connected_components

from lawful.symmetry.demands.gauges import PINNED, Gauges
from lawful.symmetry.solver.cells import Cells
from lawful.symmetry.solver.nullspace import Nullspace, nullspace
from lawful.types import Mask, Residues


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
    found, component = connected_components(graph, directed=False)
    plus, minus = component[:count], component[count:]
    first = np.full(found, count, dtype=np.int64)
    np.minimum.at(first, plus, np.arange(count))
    second = np.full(found, count, dtype=np.int64)
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
    kept = (pairs[0] != PINNED) & (pairs[1] != PINNED)
    entries = (np.ones(int(kept.sum()), dtype=np.int8), (pairs[0][kept], pairs[1][kept]))
    graph = sparse.coo_array(entries, shape=(gauges.count, gauges.count))
    return np.asarray(connected_components(graph, directed=False)[1], dtype=np.int64)
