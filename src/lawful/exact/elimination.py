"""Gaussian elimination modulo a prime: a rank whose inner loop is BLAS, and nullspaces by FLINT.

Idea: float64 products of residues are exact as long as their sums stay below 2⁵³. With residues centred around zero and
a prime below 2²³, 256 products fit into one sum (`DEPTH`); then everything is reduced again. So matrix products modulo
p are ordinary BLAS calls, and elimination by recursive halving of the columns (an LU decomposition without storing
either factor) spends nearly all its time in them, as FFLAS and FLINT do.

Invariant: entries of `work` are integers of size at most p/2 whenever a function returns. Cost: O(n³) for an n × n
matrix at BLAS speed; rows are permuted in place, columns never.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lawful.types import Floats, Residues

DEPTH = 256  # |a|, |b| <= p/2 < 2²²: 256 products of two residues add up below 2⁵³, exactly
PANEL = 64  # below DEPTH


def rank(matrix: NDArray[Any], prime: int) -> int:
    """The rank of an integer matrix modulo a prime below 2²³.

    Recursive elimination by halves of the columns: all the work is float64 matrix products, which are exact here.

    >>> rank(np.array([[1, 2, 3], [4, 5, 6], [5, 7, 9]]), 8_388_593)
    2
    """
    rows, columns = matrix.shape
    work = matrix.T if columns > rows else matrix  # the panels are then narrow and tall
    residues = _centre(np.array(work, dtype=np.float64), prime)
    return len(_eliminate(residues, 0, 0, residues.shape[1], prime))


def independent_rows(matrix: NDArray[Any], prime: int) -> list[int]:
    """The rows that are no combinations of rows before them, modulo a prime below 2²³.

    >>> independent_rows(np.array([[1, 2], [2, 4], [0, 1]]), 8_388_593)
    [0, 2]
    """
    residues = _centre(np.array(matrix.T, dtype=np.float64, order="C"), prime)
    return _eliminate(residues, 0, 0, residues.shape[1], prime)


def _centre(values: Floats, prime: int) -> Floats:
    """Residues between −p/2 and p/2, in place."""
    quotient = values * (1.0 / prime)
    np.rint(quotient, out=quotient)
    quotient *= prime
    values -= quotient
    return values


def _eliminate(work: Floats, row: int, start: int, stop: int, prime: int) -> list[int]:
    """Pivot columns of `work[row:, start:stop]`; multipliers stay below the pivots, in the pivot columns."""
    if stop - start <= PANEL:
        return _eliminate_panel(work, row, start, stop, prime)
    middle = (start + stop) // 2
    left = _eliminate(work, row, start, middle, prime)
    count = len(left)
    if count:
        lower = work[row:, left]
        top = _solve_unit_lower(lower[:count], work[row : row + count, middle:stop], prime)
        work[row : row + count, middle:stop] = top
        _subtract_product(work[row + count :, middle:stop], lower[count:], top, prime)
    if row + count >= len(work):
        return left
    return left + _eliminate(work, row + count, middle, stop, prime)


def _eliminate_panel(work: Floats, row: int, start: int, stop: int, prime: int) -> list[int]:
    """Crout: a column and a row are brought up to date, by one product each, when their turn comes."""
    pivots: list[int] = []
    for column in range(start, stop):
        at = row + len(pivots)
        before = slice(start, column) if len(pivots) == column - start else pivots
        target = work[at:, column]
        if pivots:
            target -= work[at:, before] @ work[row:at, column]
            _centre(target, prime)
        nonzero = target.nonzero()[0]
        if not len(nonzero):
            continue
        other = at + int(nonzero[0])
        if other != at:
            work[[at, other]] = work[[other, at]]
        factors, line = work[at + 1 :, column], work[at, column + 1 : stop]
        inverse = pow(int(work[at, column]), -1, prime)
        factors *= inverse - prime if inverse > prime // 2 else inverse
        _centre(factors, prime)
        if pivots:
            line -= work[at, before] @ work[row:at, column + 1 : stop]
            _centre(line, prime)
        pivots.append(column)
        if at + 1 == len(work):
            break
    return pivots


def _solve_unit_lower(lower: Floats, right: Floats, prime: int) -> Floats:
    """`L⁻¹ B` for a unit lower triangular L."""
    size = len(lower)
    if size == 1:
        return right.copy()
    half = size // 2
    top = _solve_unit_lower(lower[:half, :half], right[:half], prime)
    bottom = right[half:].copy()
    _subtract_product(bottom, lower[half:, :half], top, prime)
    return np.concatenate([top, _solve_unit_lower(lower[half:, half:], bottom, prime)])


def _subtract_product(target: Floats, left: Floats, right: Floats, prime: int) -> None:
    """`target −= left · right` modulo p, in slices whose sums stay exact and whose temporaries stay small."""
    for first in range(0, len(target), 1024):
        rows = target[first : first + 1024]
        for inner in range(0, left.shape[1], DEPTH):
            rows -= left[first : first + 1024, inner : inner + DEPTH] @ right[inner : inner + DEPTH]
            _centre(rows, prime)


def nullspace(matrix: NDArray[Any], prime: int) -> Residues:
    """A basis (rows) of `{x : Ax = 0}` modulo a prime, in reduced echelon form, by FLINT.

    >>> nullspace(np.array([[1, 1, 0], [0, 0, 1]]), 101).tolist()
    [[1, 100, 0]]
    """
    from flint import nmod_mat

    rows, columns = matrix.shape
    entries = (np.asarray(matrix, dtype=np.int64) % prime).ravel().tolist()
    basis, nullity = nmod_mat(rows, columns, entries, prime).nullspace()
    if nullity == 0:
        return np.zeros((0, columns), dtype=np.int64)
    vectors = np.array([[int(value) for value in line] for line in basis.tolist()], dtype=np.int64)
    reduced, _ = nmod_mat(nullity, columns, vectors[:, :nullity].T.ravel().tolist(), prime).rref()
    return np.array([[int(value) for value in line] for line in reduced.tolist()], dtype=np.int64)


def batched_nullities(matrices: Residues, prime: int) -> NDArray[np.intp]:
    """Nullities of many small matrices (count, rows, columns) at once, rows at least columns.

    >>> batched_nullities(np.array([[[1, 2], [2, 4]], [[1, 2], [3, 4]]]), 101).tolist()
    [1, 0]
    """
    work = np.array(matrices, dtype=np.int64) % prime
    count, rows, columns = work.shape
    every = np.arange(count)
    filled = np.zeros(count, dtype=np.intp)
    for column in range(columns):
        usable = (work[:, :, column] != 0) & (np.arange(rows)[None] >= filled[:, None])
        has = usable.any(axis=1)
        which = every[has]
        if not len(which):
            continue
        pivot, target = usable[has].argmax(axis=1), filled[has]
        line = work[which, pivot]
        work[which, pivot] = work[which, target]
        line = line * _inverses(line[:, column], prime)[:, None] % prime
        work[which, target] = line
        factors = work[which, :, column] * (np.arange(rows)[None] > target[:, None])
        work[which] = (work[which] - factors[:, :, None] * line[:, None, :]) % prime
        filled[has] += 1
    return np.asarray(columns - filled)


def _inverses(values: Residues, prime: int) -> Residues:
    """Inverses by Fermat: `a^(p−2)`, with products below 2⁴⁶."""
    result, power, exponent = np.ones_like(values), values % prime, prime - 2
    while exponent:
        if exponent & 1:
            result = result * power % prime
        power = power * power % prime
        exponent >>= 1
    return result
