"""From a solution to named spaces: which parameters each part of the group moves, along which axes, and its laws.

Some spaces are more than gauges. *Means*: on the coordinates of a residual stream that is read by layer normalisations
and by bare linear maps, `X = 1 1ᵀ` moves nothing that a normalisation sees. It acts on what writes the mean and on what
reads it: one law for each such stream, `Σ_written ‖1ᵀP‖² − Σ_read ‖1ᵀP‖²`. *Shifts*: constant directions that no
operation sees, and entries that are dead because they may move alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import prod

import numpy as np
import scipy.sparse as sparse

from lawful.program.frontends.export import ExportedModule
from lawful.program.program import Node, Program
from lawful.program.table import OperatorFamily
from lawful.symmetry.demands.gauges import Link
from lawful.symmetry.demands.labels import flat, occurrences, varying
from lawful.symmetry.demands.parameter_axes import users_of
from lawful.symmetry.demands.reading import Demands, read_graph
from lawful.symmetry.demands.shifts import Direction
from lawful.symmetry.laws.families import Axis, ColumnLaws, MatrixLaws, MeanLaw, Member, ScaleLaws, SumLaws
from lawful.symmetry.result import Dead, Space
from lawful.symmetry.solver.gauge_solution import GaugeSolution, ShiftSolution, solve
from lawful.symmetry.solver.nullspace import independent_columns
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
    sides = []
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
            sides.append(ParameterSide(axis, flat(field), prod(shape) // rows, f"{name} ({words})", gone))
    return sides


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
    space, columns = [], 0
    for side, places, labels in parts:
        copies = occurrences(labels)
        order = np.lexsort([solution.root[labels], copies])
        table = places[order].reshape(-1, size)
        sample = int(labels[order[0]])
        sign = int(solution.sign[sample]) * reference[int(solution.root[sample])]
        space.append(Member(side.axis, table, sign))
        columns += sum(side.live(copy) for copy in table)
    roles = tuple(dict.fromkeys(side.role for side, _, _ in parts))
    name = roles[0].split(" ")[0]
    if bool(solution.skew[parts[0][2][0]]):
        free = size - int(ones)
        return Space(name, size, f"O({size})" + (" fixing 1" if ones else ""), free * (free - 1) // 2, roles,
                     MatrixLaws(size, tuple(space), 0))  # fmt: skip
    rank = min(size, columns)
    laws = MatrixLaws(size, tuple(space), rank * (2 * size + 1 - rank) // 2)
    return Space(name, size, f"GL({size})", size * size, roles, laws)


def scale_spaces(sides: list[ParameterSide], solution: GaugeSolution) -> list[Space]:
    """Diagonal generators, those that touch the same axes together."""
    scales = solution.scales
    place = np.full(len(solution.root), -1)
    place[scales.coordinates] = np.arange(len(scales.coordinates))
    owners, coordinates, rows, signs = ([np.zeros(0, np.int64)] for _ in range(4))
    for number, side in enumerate(sides):
        spaces = place[solution.root[side.labels]]
        entries = np.flatnonzero(spaces >= 0 if side.dead is None else (spaces >= 0) & ~side.dead.all(axis=1))
        owners.append(np.full(len(entries), number))
        coordinates.append(spaces[entries])
        rows.append(entries)
        signs.append(solution.sign[side.labels[entries]])
    owner, coordinate, row, sign = (
        np.concatenate(part).astype(np.int64) for part in (owners, coordinates, rows, signs)
    )
    count = len(scales.coordinates)
    every = np.arange(len(owner))
    # rows of parameters × solutions: the logarithm of the scale by which a generator multiplies a row
    action = (sparse.csr_array((sign, (every, coordinate)), shape=(len(owner), count)) @ scales.basis).tocsc()
    # What is left of two generators may be the same where entries are dead, and where scales of rows and columns meet.
    meeting = _meeting_sides(sides, owner, coordinate)
    if meeting or any(side.dead is not None for side in sides):
        action = action[:, independent_columns((_on_entries(sides, owner, meeting) @ action).tocsc())]
    return [_scale_space(sides, action[:, numbers], owner, row, used) for used, numbers in alike(action, owner)]


def _meeting_sides(sides: list[ParameterSide], owner: Residues, coordinate: Residues) -> list[list[int]]:
    """For each parameter the sides along which one scale of all of it may act, if these are two or more.

    Such a scale may be the inverse of the other: together they do nothing, as at `sign(W)` with its rows and columns.
    A scale that also acts on a part of another side, or on a parameter with this side alone, is no such scale.
    """
    parts = np.split(coordinate, np.searchsorted(owner, np.arange(1, len(sides))))
    rows = [len(side.labels) if side.dead is None else int((~side.dead.all(axis=1)).sum()) for side in sides]
    whole = np.array([0 < count == len(part) for part, count in zip(parts, rows, strict=True)], dtype=bool)
    by_parameter: dict[str, list[int]] = defaultdict(list)
    for number, side in enumerate(sides):
        by_parameter[side.axis.parameter].append(number)
    still = np.zeros(int(coordinate.max(initial=-1)) + 1, dtype=bool)
    while True:
        before = int(whole.sum())
        for numbers in by_parameter.values():
            if np.count_nonzero(whole[numbers]) == 1:
                whole[numbers] = False
        for number in np.flatnonzero(~whole).tolist():
            still[parts[number]] = True
        for number in np.flatnonzero(whole).tolist():
            whole[number] = not still[parts[number]].any()
        if int(whole.sum()) == before:
            return [
                [number for number in numbers if whole[number]]
                for numbers in by_parameter.values()
                if whole[numbers].any()
            ]


def _on_entries(sides: list[ParameterSide], owner: Residues, meeting: list[list[int]]) -> sparse.csr_array:
    """What rows of sides tell of entries: of sides that meet, the differences of rows and the sum of the first ones."""
    first = np.searchsorted(owner, np.arange(len(sides)))
    every = np.arange(len(owner))
    entries = [(np.ones(len(owner)), every, every)]
    for numbers in meeting:
        for number in numbers:
            rows = np.flatnonzero(owner == number)
            entries.append((np.full(len(rows), -1.0), rows, np.full(len(rows), first[number])))
        entries.append((np.ones(len(numbers)), np.full(len(numbers), first[numbers[0]]), first[numbers]))
    value, row, column = (np.concatenate(part) for part in zip(*entries, strict=True))
    return sparse.csr_array((value, (row, column)), shape=(len(owner), len(owner)))


def alike(action: sparse.csc_array, owner: Residues) -> list[tuple[Residues, list[int]]]:
    """The solutions that touch the same owners, together."""
    number = np.repeat(np.arange(action.shape[1]), np.diff(action.indptr))
    most = int(owner.max(initial=0)) + 1
    solution, touched = np.divmod(np.unique(number * most + owner[action.indices]), most)
    starts = np.searchsorted(solution, np.arange(action.shape[1] + 1)).tolist()
    groups: dict[bytes, list[int]] = defaultdict(list)
    for member, (start, end) in enumerate(pairwise(starts)):
        if end > start:
            groups[touched[start:end].tobytes()].append(member)
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


def mean_spaces(
    exported: ExportedModule, program: Program, frozen: Iterable[str], dead: Mapping[str, Mask]
) -> list[Space]:
    """One space for each stream whose mean is written and read by parameters, and seen by nothing else."""
    if not _bare_readers(program):
        return []
    demands = read_graph(exported, frozen, centred=True, means=True, program=program)
    solution = solve(demands.gauges)
    marked = _centred_blocks(demands.gauges.centrings, solution)
    sides = [side for side in parameter_sides(demands, dead) if marked[solution.block[side.labels]].any()]
    spaces = []
    for space in matrix_spaces(sides, solution, np.zeros(0, np.int64)):
        laws = space.laws
        if not isinstance(laws, MatrixLaws) or not space.group.startswith("GL"):
            continue
        label = next(side.labels for side in sides if side.axis is laws.members[0].axis)[laws.members[0].places[0, 0]]
        if marked[solution.block[label]] and {member.sign for member in laws.members} == {1, -1}:
            spaces.append(Space(space.name, 1, "scales", 1, space.roles, MeanLaw(laws.members)))
    return spaces


def _centred_blocks(centrings: Iterable[Link], solution: GaugeSolution) -> Mask:
    """Blocks that normalisations centre, whole and alone: their vector 1 is the block's own."""
    sizes = np.bincount(solution.cell)
    met, spoiled = (np.zeros(int(solution.block.max()) + 1, dtype=bool) for _ in range(2))
    for link in centrings:
        met[solution.block[link.left]] = True
        if not _whole_cells(link.group, solution.cell[link.left], sizes):
            spoiled[solution.block[link.left]] = True
    return np.asarray(met & ~spoiled)


def _whole_cells(group: Residues, cell: Residues, sizes: Residues) -> bool:
    number = np.unique(group, return_inverse=True)[1]
    first = np.full(int(number.max(initial=-1)) + 1, -1)
    first[number] = cell
    return bool((first[number] == cell).all() and (sizes[first] == np.bincount(number)).all())


def _bare_readers(program: Program) -> bool:
    """Whether something besides normalisations and sums reads what a centred normalisation reads."""
    users = users_of(program)
    waiting = [node.inputs[0] for node in program.nodes if _centres(node)]
    seen = set()
    while waiting:
        node = waiting.pop()
        if node in seen:
            continue
        seen.add(node)
        for user in users[node]:
            if _passes(user):
                waiting.append(user)
            elif not _centres(user):
                return True
        if _passes(node):
            waiting += node.inputs
    return False


def _centres(node: Node) -> bool:
    return bool(node.attributes.get("centre", False))


def _passes(node: Node) -> bool:
    """Sums, movements, and products with gates of dropout."""
    noisy = node.family is OperatorFamily.PRODUCT and any(operand.traits.noise for operand in node.inputs)
    return noisy or node.family in (OperatorFamily.ADDITION, OperatorFamily.MOVEMENT)


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
    centred = {direction.parameter for direction in solution.directions if direction.mean}
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
        axes = tuple(Axis(direction.parameter, varying(direction.labels)) for direction in directions)
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
        result = place[solution.root[flat(direction.labels)]]
        entries = np.flatnonzero(result >= 0)
        owners.append(np.full(len(entries), number))
        columns.append(result[entries])
        rows.append(entries)
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
    result = {}
    for name, parts in free.items():
        if name in centred and len(parts) < 2:
            continue
        entries = np.logical_and.reduce([np.broadcast_to(part, shapes[name]) for part in parts.values()])
        if entries.any():
            result[name] = entries
    return result


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
