"""From a solution to named spaces: which parameters each part of the group moves, along which axes, and its laws."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import prod

import numpy as np
import scipy.sparse as sparse

from lawful.symmetry.demands.labels import flat, occurrences, varying
from lawful.symmetry.demands.reading import Demands
from lawful.symmetry.laws.families import Axis, MatrixLaws, Member
from lawful.symmetry.laws.row_laws import ScaleLaws
from lawful.symmetry.result import Space
from lawful.symmetry.solver.gauge_solution import GaugeSolution
from lawful.symmetry.solver.nullspace import independent
from lawful.types import Indices, Mask, Residues


@dataclass(frozen=True, eq=False)
class ParameterSide:
    """One gauge field of one parameter: the axis, the label of each of its rows, and how many entries a row has."""

    axis: Axis
    labels: Residues
    width: int
    role: str
    dead: Mask | None = None  # of each row's entries, those that no loss sees

    def live(self, places: Indices) -> int:
        """How many columns of some rows hold an entry that training moves."""
        return self.width if self.dead is None else int((~self.dead[places].all(axis=0)).sum())


def parameter_sides(demands: Demands, dead: Mapping[str, Mask] | None = None) -> list[ParameterSide]:
    """Every field of every parameter, in the order of the graph; entries that are `dead` add no law."""
    found = []
    for name, fields in demands.fields.items():
        shape = demands.shapes[name]
        for field in fields:
            dims = varying(field)
            rows = prod(shape[d] for d in dims)
            words = "whole" if not dims else f"axis {', '.join(map(str, dims))}"
            centre = demands.gauges.centres.get(name)
            gone = (dead or {}).get(name)
            gone = None if gone is None else np.moveaxis(gone, dims, range(len(dims))).reshape(rows, -1)
            axis = Axis(name, dims, centre)
            found.append(ParameterSide(axis, flat(field), prod(shape) // rows, f"{name} ({words})", gone))
    return found


def matrix_spaces(sides: list[ParameterSide], solution: GaugeSolution, ones: Residues) -> list[Space]:
    """Blocks of more than one coordinate on which all of GL(m) or O(m) acts."""
    block = solution.block
    shared = np.bincount(solution.cell, minlength=len(solution.cell))[solution.cell] > 1
    moving = shared & ~solution.pinned
    fixed = np.zeros(int(block.max()) + 1, dtype=bool)
    fixed[block[ones]] = True
    members: dict[int, list[tuple[ParameterSide, Indices, Residues]]] = defaultdict(list)
    for side in sides:
        rows = np.flatnonzero(moving[side.labels])
        cells = solution.cell[side.labels[rows]]
        order = np.argsort(cells, kind="stable")
        for part in np.split(order, np.flatnonzero(np.diff(cells[order])) + 1):
            places = rows[part]
            if len(part) and side.live(places):
                members[int(block[side.labels[places[0]]])].append((side, places, side.labels[places]))
    return [_matrix_space(parts, solution, bool(fixed[number])) for number, parts in members.items()]


def _matrix_space(parts: list[tuple[ParameterSide, Indices, Residues]], solution: GaugeSolution, ones: bool) -> Space:
    reference: dict[int, int] = {}  # the sign of each coordinate in the first cell: the block is seen from there
    first = parts[0][2]
    for label in np.unique(first).tolist():
        reference[int(solution.root[label])] = int(solution.sign[label])
    size = len(reference)
    found, columns = [], 0
    for side, places, labels in parts:
        copies = occurrences(labels)
        order = np.lexsort([solution.root[labels], copies])
        table = places[order].reshape(-1, size)
        sample = int(labels[order[0]])
        sign = int(solution.sign[sample]) * reference[int(solution.root[sample])]
        found.append(Member(side.axis, table, sign))
        columns += sum(side.live(copy) for copy in table)
    roles = tuple(dict.fromkeys(side.role for side, _, _ in parts))
    name = roles[0].split(" ")[0]
    if bool(solution.skew[parts[0][2][0]]):
        free = size - int(ones)
        return Space(name, size, f"O({size})" + (" fixing 1" if ones else ""), free * (free - 1) // 2, roles,
                     MatrixLaws(size, tuple(found), 0))  # fmt: skip
    rank = min(size, columns)
    laws = MatrixLaws(size, tuple(found), rank * (2 * size + 1 - rank) // 2)
    return Space(name, size, f"GL({size})", size * size, roles, laws)


def scale_spaces(sides: list[ParameterSide], solution: GaugeSolution) -> list[Space]:
    """Diagonal generators, those that touch the same axes together."""
    scales = solution.scales
    place = np.full(len(solution.root), -1)
    place[scales.coordinates] = np.arange(len(scales.coordinates))
    owners, coordinates, rows, signs = ([np.zeros(0, np.int64)] for _ in range(4))
    for number, side in enumerate(sides):
        found = place[solution.root[side.labels]]
        kept = np.flatnonzero(found >= 0 if side.dead is None else (found >= 0) & ~side.dead.all(axis=1))
        owners.append(np.full(len(kept), number))
        coordinates.append(found[kept])
        rows.append(kept)
        signs.append(solution.sign[side.labels[kept]])
    owner, coordinate, row, sign = (
        np.concatenate(part).astype(np.int64) for part in (owners, coordinates, rows, signs)
    )
    count = len(scales.coordinates)
    every = np.arange(len(owner))
    # rows of parameters × solutions: the logarithm of the scale by which a generator multiplies a row
    action = (sparse.csr_array((sign, (every, coordinate)), shape=(len(owner), count)) @ scales.basis).tocsc()
    if any(side.dead is not None for side in sides):  # what is left of two generators may be the same
        action = action[:, independent(action)]
    return [_scale_space(sides, action[:, numbers], owner, row, used) for used, numbers in alike(action, owner)]


def alike(action: sparse.csc_array, owner: Residues) -> list[tuple[Residues, list[int]]]:
    """The solutions that touch the same owners, together."""
    number = np.repeat(np.arange(action.shape[1]), np.diff(action.indptr))
    most = int(owner.max(initial=0)) + 1
    solution, touched = np.divmod(np.unique(number * most + owner[action.indices]), most)
    starts = np.searchsorted(solution, np.arange(action.shape[1] + 1)).tolist()
    groups: dict[bytes, list[int]] = defaultdict(list)
    for each, (start, end) in enumerate(pairwise(starts)):
        if end > start:
            groups[touched[start:end].tobytes()].append(each)
    return [(np.frombuffer(key, dtype=np.int64), numbers) for key, numbers in groups.items()]


def _scale_space(
    sides: list[ParameterSide], action: sparse.csc_array, owner: Residues, row: Residues, used: Residues
) -> Space:
    part = action.tocsr()
    lines = np.flatnonzero(np.diff(part.indptr))
    axes, picked, order = [], [], []
    for number in used.tolist():
        here = lines[owner[lines] == number]
        axes.append(sides[number].axis)
        picked.append(row[here].astype(np.intp))
        order.append(here)
    weights = sparse.csr_array(part[np.concatenate(order)].T, dtype=np.float64)
    size = part.shape[1]
    roles = tuple(sides[number].role for number in used.tolist())
    laws = ScaleLaws(tuple(axes), tuple(picked), weights, size)
    return Space(roles[0].split(" ")[0], size, "scales", size, roles, laws)
