"""From a solution to named spaces: which parameters each part of the group moves, along which axes, and its laws."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from math import prod

import numpy as np
import scipy.sparse as sparse

from lawful.symmetry.families import Axis, ColumnLaws, MatrixLaws, Member, ScaleLaws, SumLaws
from lawful.symmetry.labels import flat, occurrences, varying
from lawful.symmetry.reading import Demands
from lawful.symmetry.result import Dead, Space
from lawful.symmetry.shift_solution import ShiftSolution
from lawful.symmetry.solve import GaugeSolution
from lawful.types import Indices, Residues


@dataclass(frozen=True, eq=False)
class ParameterSide:
    """One gauge field of one parameter: the axis, the label of each of its rows, and how many entries a row has."""

    axis: Axis
    labels: Residues
    width: int
    role: str


def parameter_sides(demands: Demands) -> list[ParameterSide]:
    """Every field of every parameter, in the order of the graph."""
    found = []
    for name, fields in demands.fields.items():
        shape = demands.shapes[name]
        for field in fields:
            dims = varying(field)
            rows = prod(shape[d] for d in dims)
            words = "whole" if not dims else f"axis {', '.join(map(str, dims))}"
            centre = demands.gauges.centres.get(name)
            found.append(ParameterSide(Axis(name, dims, centre), flat(field), prod(shape) // rows, f"{name} ({words})"))
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
            if len(part):
                places = rows[part]
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
        columns += len(table) * side.width
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
    owners, coordinates, rows, signs = [], [], [], []
    for number, side in enumerate(sides):
        found = place[solution.root[side.labels]]
        kept = np.flatnonzero(found >= 0)
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
    return [_scale_space(sides, action[:, numbers], owner, row, used) for used, numbers in _alike(action, owner)]


def _alike(action: sparse.csc_array, owner: Residues) -> list[tuple[Residues, list[int]]]:
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


def shift_spaces(solution: ShiftSolution, shapes: dict[str, tuple[int, ...]]) -> tuple[list[Space], list[Dead]]:
    """Constant directions that no operation sees, and the entries that are dead because they are alone in theirs."""
    found: list[Space] = []
    dead: dict[str, int] = defaultdict(int)
    size = np.bincount(solution.root, minlength=len(solution.root))
    for direction in solution.directions:
        labels, dims = flat(direction.labels), varying(direction.labels)
        roots = solution.root[labels]
        kept = np.flatnonzero(solution.free[roots])
        if direction.weight == 1 or direction.mean or not len(kept):
            continue
        contrast = any(other.mean for other in solution.directions if other.parameter == direction.parameter)
        axis = Axis(direction.parameter, dims)
        classes = np.unique(roots[kept], return_inverse=True)[1]
        laws = ColumnLaws(axis, kept.astype(np.intp), classes.astype(np.intp), direction.weight, contrast)
        role = f"{direction.parameter} (axis {', '.join(map(str, dims)) or 'all'})"
        found.append(Space(direction.parameter, direction.weight, "shifts", laws.count, (role,), laws))
        if not contrast:
            dead[direction.parameter] += int((size[roots[kept]] == 1).sum()) * direction.weight
    single, alone = _single_shifts(solution)
    for name, entries in alone.items():
        dead[name] += entries
    return [*found, *single], [Dead(name, n, prod(shapes[name]), unused=False) for name, n in dead.items() if n]


def _single_shifts(solution: ShiftSolution) -> tuple[list[Space], dict[str, int]]:
    """Combinations of single unknowns, those of the same parameters together."""
    place = np.full(len(solution.root), -1)
    place[solution.single.coordinates] = np.arange(len(solution.single.coordinates))
    directions = [each for each in solution.directions if each.weight == 1 or each.mean]
    owners, columns, rows = [np.zeros(0, int)], [np.zeros(0, int)], [np.zeros(0, int)]
    for number, direction in enumerate(directions):
        found = place[solution.root[flat(direction.labels)]]
        kept = np.flatnonzero(found >= 0)
        owners.append(np.full(len(kept), number))
        columns.append(found[kept])
        rows.append(kept)
    owner, column, row = (np.concatenate(part) for part in (owners, columns, rows))
    table = sparse.csr_array(
        (np.ones(len(owner)), (np.arange(len(owner)), column)), shape=(len(owner), len(solution.single.coordinates))
    )
    action = (table @ solution.single.basis).tocsc()
    alone: dict[str, int] = defaultdict(int)
    for line in action.indices[action.indptr[:-1][np.diff(action.indptr) == 1]].tolist():
        if directions[owner[line]].weight == 1:
            alone[directions[owner[line]].parameter] += 1
    spaces = []
    for found, numbers in _alike(action, owner):
        part = action[:, numbers].tocsr()
        lines = np.flatnonzero(np.diff(part.indptr))
        used = found.tolist()
        order = [lines[owner[lines] == number] for number in used]
        axes = tuple(Axis(directions[n].parameter, varying(directions[n].labels)) for n in used)
        weights = sparse.csr_array(part[np.concatenate(order)].T, dtype=np.float64)
        laws = SumLaws(axes, tuple(row[here].astype(np.intp) for here in order), weights, len(numbers))
        roles = tuple(f"{directions[n].parameter} (all)" for n in used)
        spaces.append(Space(axes[0].parameter, len(numbers), "shifts", len(numbers), roles, laws))
    return spaces, alone


def unused_parameters(names: tuple[str, ...], shapes: dict[str, tuple[int, ...]]) -> list[Dead]:
    """Parameters that the graph never reads."""
    return [Dead(name, prod(shapes[name]), prod(shapes[name]), unused=True) for name in names]
