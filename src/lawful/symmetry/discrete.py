"""Permutations of hidden units, counted."""

from __future__ import annotations

import math

import numpy as np
import scipy.sparse as sparse
from scipy.sparse.csgraph import connected_components

from lawful.symmetry.cells import Cells
from lawful.symmetry.gauges import Gauges, Link
from lawful.symmetry.solve import GaugeSolution
from lawful.types import Residues


def log10_permutations(gauges: Gauges, solution: GaugeSolution) -> float:
    """The decimal logarithm of the number of permutations that pass every operation, at least.

    Cells are found again without what only continuous gauges feel (diagonals, elementwise functions); m units that
    permute freely give m!. Coordinates of a space on which GL or O acts are not counted: permutations are part of it.
    """
    cells, links = permutable_cells(gauges)
    total, seen = 0.0, set[int]()
    sizes = np.bincount(cells.of)
    alone = np.bincount(solution.cell)[solution.cell] == 1
    first = np.unique(cells.of, return_index=True)[1]
    joined = _joined(cells, links)
    for label in first.tolist():
        cell = int(cells.of[label])
        if sizes[cell] > 1 and alone[label] and int(joined[cell]) not in seen:
            seen.add(int(joined[cell]))
            total += math.lgamma(int(sizes[cell]) + 1) / math.log(10)
    return total


def permutable_cells(gauges: Gauges) -> tuple[Cells, list[Link]]:
    """Labels that may change places, as far as the operations of the graph demand, and the links between them."""
    links = list(gauges.links)
    for relation in gauges.relations:
        for other in (relation.first, relation.second):
            links.append(Link(relation.result, other, 1, np.zeros(len(other), dtype=np.int64)))
    cells = Cells(gauges.axes, links)
    cells.separate(np.concatenate([[0], *(pin.labels for pin in gauges.pins if not pin.permutes)]).astype(np.int64))
    cells.settle()
    return cells, links


def _joined(cells: Cells, links: list[Link]) -> Residues:
    """Cells that links tie together permute together."""
    count = int(cells.of.max()) + 1
    tails = np.concatenate([np.zeros(0, np.int64), *(cells.of[link.left] for link in links)])
    heads = np.concatenate([np.zeros(0, np.int64), *(cells.of[link.right] for link in links)])
    graph = sparse.coo_array((np.ones(len(tails), dtype=np.int8), (tails, heads)), shape=(count, count))
    return np.asarray(connected_components(graph, directed=False)[1])
