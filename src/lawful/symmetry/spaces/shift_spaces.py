"""Constant directions that no operation sees, as named spaces; and entries that are dead: they may move alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

import numpy as np
import scipy.sparse as sparse

from lawful.symmetry.demands.labels import flat, varying
from lawful.symmetry.demands.shifts import Direction
from lawful.symmetry.laws.families import Axis
from lawful.symmetry.laws.row_laws import ColumnLaws, SumLaws
from lawful.symmetry.result import Dead, Space
from lawful.symmetry.solver.shift_solution import ShiftSolution
from lawful.symmetry.spaces.parameter_spaces import alike
from lawful.types import Mask, Residues


@dataclass(frozen=True, eq=False)
class _Lines:
    """Labels of parameters as rows: `action` (rows × solutions) says by how much each solution moves them."""

    directions: list[Direction]
    owner: Residues
    row: Residues
    action: sparse.csc_array


def shift_spaces(solution: ShiftSolution, shapes: Mapping[str, tuple[int, ...]]) -> tuple[list[Space], dict[str, Mask]]:
    """All shifts, those of the same parameters together; and the entries that training never moves, by parameter."""
    lines = _lines(solution)
    centred = {each.parameter for each in solution.directions if each.mean}
    width = np.ones(lines.action.shape[1], dtype=np.int64)
    for number in np.flatnonzero(np.diff(lines.action.indptr)).tolist():
        direction = lines.directions[lines.owner[lines.action.indices[lines.action.indptr[number]]]]
        width[number] = 1 if direction.mean else direction.weight
    spaces = []
    for used, numbers in alike(lines.action, lines.owner):
        part = lines.action[:, numbers].tocsr()
        moved = np.flatnonzero(np.diff(part.indptr))
        order = [moved[lines.owner[moved] == number] for number in used.tolist()]
        directions = [lines.directions[number] for number in used.tolist()]
        axes = tuple(Axis(each.parameter, varying(each.labels)) for each in directions)
        picked = tuple(lines.row[here].astype(np.intp) for here in order)
        weights = sparse.csr_array(part[np.concatenate(order)].T, dtype=np.float64)
        columns = int(width[numbers[0]])
        laws: SumLaws | ColumnLaws
        if columns == 1:
            laws = SumLaws(axes, picked, weights, len(numbers))
        else:
            laws = ColumnLaws(axes, picked, weights, columns, axes[0].parameter in centred)
        size = len(numbers) if columns == 1 else columns
        roles = tuple(_role(direction) for direction in directions)
        spaces.append(Space(axes[0].parameter, size, "shifts", laws.count, roles, laws))
    return spaces, _dead(lines, centred, shapes)


def _role(direction: Direction) -> str:
    if direction.weight == 1 or direction.mean:
        return f"{direction.parameter} (all)"
    return f"{direction.parameter} (axis {', '.join(map(str, varying(direction.labels))) or 'all'})"


def _lines(solution: ShiftSolution) -> _Lines:
    together = solution.together
    place = np.full(len(solution.root), -1)
    place[together.coordinates] = np.arange(len(together.coordinates))
    owners, columns, rows = ([np.zeros(0, dtype=np.int64)] for _ in range(3))
    for number, direction in enumerate(solution.directions):
        found = place[solution.root[flat(direction.labels)]]
        kept = np.flatnonzero(found >= 0)
        owners.append(np.full(len(kept), number))
        columns.append(found[kept])
        rows.append(kept)
    owner, column, row = (np.concatenate(part) for part in (owners, columns, rows))
    table = sparse.csr_array(
        (np.ones(len(owner)), (np.arange(len(owner)), column)), shape=(len(owner), len(together.coordinates))
    )
    return _Lines(list(solution.directions), owner, row, (table @ together.basis).tocsc())


def _dead(lines: _Lines, centred: set[str], shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Mask]:
    """Entries that may take any value: their label is moved alone, and so is the common part of their vector."""
    free: dict[str, dict[bool, Mask]] = defaultdict(dict)
    alone = lines.action.indices[lines.action.indptr[:-1][np.diff(lines.action.indptr) == 1]]
    for number, direction in enumerate(lines.directions):
        here = alone[lines.owner[alone] == number]
        if len(here):
            labels = np.zeros(prod(shapes[direction.parameter][d] for d in varying(direction.labels)), dtype=bool)
            labels[lines.row[here]] = True
            free[direction.parameter][direction.mean] = _spread(labels, direction, shapes[direction.parameter])
    found = {}
    for name, parts in free.items():
        if name in centred and len(parts) < 2:
            continue
        entries = np.logical_and.reduce([np.broadcast_to(part, shapes[name]) for part in parts.values()])
        if entries.any():
            found[name] = entries
    return found


def _spread(labels: Mask, direction: Direction, shape: tuple[int, ...]) -> Mask:
    """What holds for labels, entry by entry."""
    dims = varying(direction.labels)
    return np.broadcast_to(labels.reshape([shape[d] if d in dims else 1 for d in range(len(shape))]), shape)


def dead_parameters(entries: Mapping[str, Mask], shapes: Mapping[str, tuple[int, ...]]) -> list[Dead]:
    """How many entries of each parameter are dead."""
    return [Dead(name, int(part.sum()), prod(shapes[name]), unused=False) for name, part in entries.items()]


def unused_parameters(names: tuple[str, ...], shapes: Mapping[str, tuple[int, ...]]) -> list[Dead]:
    """Parameters that the graph never reads."""
    return [Dead(name, prod(shapes[name]), prod(shapes[name]), unused=True) for name in names]
