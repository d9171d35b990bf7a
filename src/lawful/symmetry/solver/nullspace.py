"""Scales of coordinates that stand alone, tied by relations `t_z = t_x + k t_y`: an exact basis of what is left."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

import numpy as np
import scipy.sparse as sparse
from scipy.sparse.csgraph import connected_components

from lawful.symmetry.demands.gauges import Relation
from lawful.types import Mask, Residues

Row = dict[int, Fraction]


@dataclass(frozen=True, eq=False)
class Nullspace:
    """Solutions t of the relations: column j of `basis` gives the scale of coordinate `coordinates[i]` in its row i."""

    coordinates: Residues
    basis: sparse.csr_array  # coordinates × solutions

    @property
    def dimension(self) -> int:
        """How many independent solutions there are."""
        return int(self.basis.shape[1])


def nullspace(relations: Sequence[Relation], root: Residues, sign: Residues, free: Mask) -> Nullspace:
    """Solve all relations for the free coordinates; those that are not free have t = 0."""
    coordinates = np.flatnonzero(free & (root == np.arange(len(root))))
    column = np.full(len(root), -1)
    column[coordinates] = np.arange(len(coordinates))
    matrix = _matrix(relations, root, sign, column, len(coordinates))
    return Nullspace(coordinates, kernel(matrix))


def _matrix(
    relations: Sequence[Relation], root: Residues, sign: Residues, column: Residues, width: int
) -> sparse.csr_array:
    rows, columns, entries, count = [], [], [], 0
    for relation in relations:
        size = len(relation.result)
        for labels, factor in ((relation.result, -1.0), (relation.first, 1.0), (relation.second, relation.factor)):
            place = column[root[labels]]
            unknown = place >= 0
            rows.append(count + np.flatnonzero(unknown))
            columns.append(place[unknown])
            entries.append(factor * sign[labels][unknown])
        count += size
    parts = [np.concatenate(part) if part else np.zeros(0) for part in (entries, rows, columns)]
    result = sparse.csr_array((parts[0], (parts[1].astype(int), parts[2].astype(int))), shape=(count, width))
    result.sum_duplicates()
    result.eliminate_zeros()
    return result


def kernel(matrix: sparse.csr_array) -> sparse.csr_array:
    """A basis of the kernel (columns).

    A variable that one equation alone names is given by the others: such equations are set aside, layer by layer, and
    solved last, all at once; what remains is small.
    """
    layers, rest = [], matrix
    while rest.shape[0]:
        private = np.bincount(rest.indices, minlength=rest.shape[1])[rest.indices] == 1
        owner = np.repeat(np.arange(rest.shape[0]), np.diff(rest.indptr))
        rows, last = np.unique(owner[private][::-1], return_index=True)
        if not len(rows):
            break
        pivot = np.flatnonzero(private)[::-1][last]
        # What one equation alone names occurs nowhere in the rest, so the rest is solved without it.
        layers.append((rest[rows], rest.indices[pivot], rest.data[pivot]))
        rest = rest[np.setdiff1d(np.arange(rest.shape[0]), rows)]
    result = {column for _, columns, _ in layers for column in columns.tolist()}
    others = np.setdiff1d(np.arange(matrix.shape[1]), np.fromiter(result, dtype=np.int64, count=len(result)))
    inner = _kernel_by_parts(rest[:, others])
    place = sparse.csr_array((np.ones(len(others)), (others, np.arange(len(others)))), (matrix.shape[1], len(others)))
    basis = place @ inner
    # In reverse: an outer layer may name the variables of inner ones, never the other way round.
    for rows, columns, entries in reversed(layers):
        solved = sparse.diags_array(-1.0 / entries) @ (rows @ basis)
        spread = (np.ones(len(columns)), (columns, np.arange(len(columns))))
        basis = basis + sparse.csr_array(spread, (matrix.shape[1], len(columns))) @ solved
    basis.eliminate_zeros()
    return basis.tocsr()


def _kernel_by_parts(matrix: sparse.csr_array) -> sparse.csr_array:
    """A basis of the kernel (columns), by exact elimination in each connected part; equal parts are solved once.

    >>> _kernel_by_parts(sparse.csr_array([[1.0, 1.0, 0.0, 0.0], [0.0, 2.0, -1.0, 0.0]])).toarray().T
    array([[ 0.,  0.,  0.,  1.],
           [ 1., -1., -2.,  0.]])
    """
    height, width = matrix.shape
    bordered = sparse.bmat([[None, matrix], [matrix.T, None]]) if height else sparse.coo_array((width, width))
    _, component = connected_components(bordered, directed=False)
    part_of_row, part_of_column = component[:height], component[height:]
    columns = np.argsort(part_of_column, kind="stable")
    filled = np.flatnonzero(np.diff(matrix.indptr))
    rows = filled[np.argsort(part_of_row[filled], kind="stable")]
    ordered, ordered_rows = part_of_column[columns], part_of_row[rows]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]]) if width else np.zeros(0, dtype=int)
    ends = np.r_[starts[1:], width]
    low = np.searchsorted(ordered_rows, ordered[starts])
    high = np.searchsorted(ordered_rows, ordered[starts], side="right")
    local = np.empty(width, dtype=np.int64)
    local[columns] = np.arange(width) - np.repeat(starts, ends - starts)
    places: list[np.ndarray] = []
    entries: list[np.ndarray] = []
    solutions: list[np.ndarray] = []
    known: dict[tuple[int, tuple[tuple[tuple[int, ...], tuple[float, ...]], ...]], list[Row]] = {}
    lone = starts[low == high]
    places.append(columns[lone])
    entries.append(np.ones(len(lone)))
    solutions.append(np.arange(len(lone)))
    count = len(lone)
    pointer, indices, data = matrix.indptr, local[matrix.indices], matrix.data
    for at in np.flatnonzero(low != high).tolist():
        members = columns[starts[at] : ends[at]]
        lines = tuple(
            (
                tuple(indices[pointer[row] : pointer[row + 1]].tolist()),
                tuple(data[pointer[row] : pointer[row + 1]].tolist()),
            )
            for row in rows[low[at] : high[at]].tolist()
        )
        key = (len(members), lines)
        # Layers of one architecture give equal parts: one elimination in fractions serves them all.
        if key not in known:
            known[key] = _kernel([dict(zip(where, map(Fraction, what), strict=True)) for where, what in lines], key[0])
        for vector in known[key]:
            places.append(members[list(vector)])
            entries.append(np.array([float(value) for value in vector.values()]))
            solutions.append(np.full(len(vector), count))
            count += 1
    table = (np.concatenate(entries), (np.concatenate(places), np.concatenate(solutions)))
    return sparse.csr_array(table, shape=(width, count))


def _kernel(rows: list[Row], width: int) -> list[Row]:
    """The kernel of rows given as dictionaries, by elimination in fractions."""
    solved: dict[int, Row] = {}  # variable -> its expression in free variables
    used: dict[int, set[int]] = defaultdict(set)  # free variable -> the variables whose expressions name it
    for row in rows:
        line = _substitute(row, solved)
        if not line:
            continue
        # The last variable: the free ones are then the first, whatever order the equations come in.
        pivot = max(line)
        factor = -1 / line.pop(pivot)
        expression = {place: factor * value for place, value in line.items()}
        for variable in used.pop(pivot, set()):
            solved[variable] = _substitute(solved[variable], {pivot: expression})
            for place in solved[variable]:
                used[place].add(variable)
        solved[pivot] = expression
        for place in expression:
            used[place].add(pivot)
    result = {free: {free: Fraction(1)} for free in range(width) if free not in solved}
    for variable, expression in solved.items():
        for free, value in expression.items():
            result[free][variable] = value
    return list(result.values())


def _substitute(row: Row, solved: dict[int, Row]) -> Row:
    line: Row = {}
    for place, value in row.items():
        for other, factor in solved.get(place, {place: Fraction(1)}).items():
            line[other] = line.get(other, Fraction(0)) + value * factor
    return {place: value for place, value in line.items() if value}


def independent_columns(matrix: sparse.csc_array) -> list[int]:
    """Columns that are a basis of the column space, the first ones that will do.

    >>> independent_columns(sparse.csc_array([[1.0, 2.0, 0.0], [1.0, 2.0, 3.0]]))
    [0, 2]
    """
    solved: dict[int, Row] = {}  # a row that one basis column alone has -> that column, cleared of the others' rows
    columns = []
    single = np.bincount(matrix.indices, minlength=matrix.shape[0]) == 1
    for number, (start, end) in enumerate(pairwise(matrix.indptr.tolist())):
        rows = matrix.indices[start:end]
        if single[rows].any():  # no other column has this row
            columns.append(number)
            continue
        line = dict(zip(rows.tolist(), map(Fraction, matrix.data[start:end].tolist()), strict=True))
        for row in [row for row in line if row in solved]:
            factor = line.get(row, Fraction(0))
            for place, value in solved[row].items():
                line[place] = line.get(place, Fraction(0)) - factor * value
        line = {place: value for place, value in line.items() if value}
        if line:
            pivot = min(line)
            line = {place: value / line[pivot] for place, value in line.items()}
            for row, other in solved.items():
                if factor := other.get(pivot):
                    solved[row] = {
                        place: value
                        for place in {*other, *line}
                        if (value := other.get(place, Fraction(0)) - factor * line.get(place, Fraction(0)))
                    }
            solved[pivot] = line
            columns.append(number)
    return columns
