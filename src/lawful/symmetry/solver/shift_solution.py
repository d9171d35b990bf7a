"""Which shifts no operation sees: the unknowns that are left free."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from lawful.symmetry.demands.labels import flat
from lawful.symmetry.demands.shifts import ZERO, Direction, Shifts
from lawful.symmetry.solver.nullspace import Nullspace, nullspace
from lawful.types import Mask, Residues


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
    directions = tuple(direction for found in shifts.directions.values() for direction in found)
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
    found = np.zeros(len(root), dtype=bool)
    found[root[marked]] = True
    return np.asarray(found[root])
