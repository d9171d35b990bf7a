"""Feasibility of `A x = b, x ≥ 0` in rationals: a point, or a vector that shows there is none."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from flint import fmpq, fmpq_mat

Column = Sequence[Fraction]


def solution(columns: Sequence[Column], wanted: Column) -> list[Fraction] | None:
    """One exact solution of `Σ x_k columns_k = wanted`, any signs, zero on columns that others span; None if none.

    >>> one = Fraction(1)
    >>> solution([[one, 2 * one], [one, -one]], [one, one])
    [Fraction(2, 3), Fraction(1, 3)]
    """
    count = len(columns)
    entries = [[*(column[row] for column in columns), value] for row, value in enumerate(wanted)]
    table = fmpq_mat([[fmpq(entry.numerator, entry.denominator) for entry in row] for row in entries])
    reduced, rank = table.rref()
    found = [Fraction(0)] * count
    for row in range(rank):
        place = next(k for k in range(count + 1) if reduced[row, k] != 0)
        if place == count:
            return None
        found[place] = Fraction(int(reduced[row, count].p), int(reduced[row, count].q))
    return found


def feasible(columns: Sequence[Column], wanted: Column) -> list[Fraction] | None:
    """A solution `x ≥ 0` of `Σ x_k columns_k = wanted` with at most as many nonzeros as rows, or None if there is none.

    Phase one of the simplex method with Bland's rule, which never cycles; exact, so meant for small systems.

    >>> one = Fraction(1)
    >>> feasible([[one, 2 * one], [one, -one]], [one, one])
    [Fraction(2, 3), Fraction(1, 3)]
    >>> feasible([[one], [2 * one]], [-one]) is None
    True
    """
    rows, count = len(wanted), len(columns)
    signs = [-1 if value < 0 else 1 for value in wanted]
    table = [[sign * column[row] for column in columns] for row, sign in enumerate(signs)]
    right = [sign * value for sign, value in zip(signs, wanted, strict=True)]
    basis = [count + row for row in range(rows)]  # one artificial variable per row
    gains = [sum((table[row][k] for row in range(rows)), Fraction(0)) for k in range(count)]
    while True:
        entering = next((k for k in range(count) if gains[k] > 0 and k not in basis), None)
        if entering is None:
            break
        ratios = [
            (right[row] / table[row][entering], basis[row], row) for row in range(rows) if table[row][entering] > 0
        ]
        _, _, leaving = min(ratios)
        pivot = table[leaving][entering]
        table[leaving] = [value / pivot for value in table[leaving]]
        right[leaving] /= pivot
        for row in range(rows):
            factor = table[row][entering]
            if row != leaving and factor:
                table[row] = [a - factor * b if b else a for a, b in zip(table[row], table[leaving], strict=True)]
                right[row] -= factor * right[leaving]
        factor = gains[entering]
        gains = [a - factor * b if b else a for a, b in zip(gains, table[leaving], strict=True)]
        basis[leaving] = entering
    if any(name >= count and value for name, value in zip(basis, right, strict=True)):
        return None
    found = [Fraction(0)] * count
    for name, value in zip(basis, right, strict=True):
        if name < count:
            found[name] = value
    return found
