"""Is `A x = b, x ≥ 0` solvable, and do open half-spaces have a common point? Decided in rationals, with evidence.

Exactly one of two things exists: such an x, or a y with `yᵀA ≥ 0` and `yᵀb < 0` (Farkas, 1902). Floating point proposes
which columns to use; the simplex method in fractions has the last word, so no scale and no threshold enters the answer.
Half-spaces have no common point iff a nonnegative combination of them is `0 > 0` (Gordan, 1873).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import lcm
from typing import Any

import flint
import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class InnerPoint:
    """A point strictly inside all half-spaces."""

    point: tuple[Any, ...]


@dataclass(frozen=True)
class EmptyMeet:
    """Half-spaces that alone have no common point: positive multipliers sum their rows to `0·x + c` with c ≤ 0."""

    multipliers: dict[int, Any]


def common_point(rows: Sequence[Sequence[Any]]) -> InnerPoint | EmptyMeet:
    """Whether some x has `row[:-1]·x + row[-1] > 0` for all rows of rationals (Motzkin's alternative).

    The simplex method solves `min Σ y_i c_i` over `y ≥ 0, Σ y_i = 1, Σ y_i a_i = 0`. Its value is positive, or it has
    no solution, exactly if there is a point; Bland's rule ends every run.

    >>> rows = [[flint.fmpq(1), flint.fmpq(0)], [flint.fmpq(-1), flint.fmpq(1, 10**40)]]
    >>> common_point(rows)
    InnerPoint(point=(1/20000000000000000000000000000000000000000,))
    >>> common_point([*rows, [flint.fmpq(-2), flint.fmpq(0)]])
    EmptyMeet(multipliers={0: 2/3, 2: 1/3})
    """
    size = len(rows[0]) if rows else 1
    if not rows:
        return InnerPoint(())
    zero, one = flint.fmpq(0), flint.fmpq(1)
    columns = [[*row[:-1], one] for row in rows]  # the last equation is Σ y = 1
    costs = [(zero, row[-1]) for row in rows]  # (cost of artificial columns, cost): compared in this order
    count = len(columns)
    columns += [[one if k == j else zero for k in range(size)] for j in range(size)]
    costs += [(one, zero)] * size
    basis = list(range(count, count + size))
    inverse = [[one if k == j else zero for k in range(size)] for j in range(size)]
    values = [zero] * (size - 1) + [one]
    while True:
        prices = [
            (sum((costs[b][0] * inverse[k][j] for k, b in enumerate(basis)), zero),
             sum((costs[b][1] * inverse[k][j] for k, b in enumerate(basis)), zero))
            for j in range(size)
        ]  # fmt: skip
        entering = _entering(columns[:count], costs, prices, basis)
        if entering is None:
            break
        way = [sum((inverse[k][j] * columns[entering][j] for j in range(size)), zero) for k in range(size)]
        ratios = [(values[k] / way[k], basis[k], k) for k in range(size) if way[k] > 0]
        leaving = min(ratios)[2]  # there is one: the set is bounded
        _pivot(inverse, values, way, leaving)
        basis[leaving] = entering
    artificial = sum((values[k] for k, b in enumerate(basis) if b >= count), zero)
    value = sum((costs[b][1] * values[k] for k, b in enumerate(basis)), zero)
    if artificial == 0 and value <= 0:
        return EmptyMeet({b: values[k] for k, b in sorted(enumerate(basis), key=lambda p: p[1]) if values[k] > 0})
    return InnerPoint(_point(rows, prices))


def _entering(columns: Any, costs: Any, prices: Any, basis: list[int]) -> int | None:
    """The first column whose reduced cost is negative."""
    inside = set(basis)
    for place, column in enumerate(columns):
        if place in inside:
            continue
        first = costs[place][0] - sum((p[0] * c for p, c in zip(prices, column, strict=True)), flint.fmpq(0))
        if first > 0:
            continue
        if first < 0:
            return place
        if costs[place][1] < sum((p[1] * c for p, c in zip(prices, column, strict=True)), flint.fmpq(0)):
            return place
    return None


def _pivot(inverse: list[list[Any]], values: list[Any], way: list[Any], leaving: int) -> None:
    pivot = way[leaving]
    inverse[leaving] = [item / pivot for item in inverse[leaving]]
    values[leaving] = values[leaving] / pivot
    for k, factor in enumerate(way):
        if k != leaving and factor != 0:
            inverse[k] = [a - factor * b for a, b in zip(inverse[k], inverse[leaving], strict=True)]
            values[k] = values[k] - factor * values[leaving]


def _point(rows: Sequence[Sequence[Any]], prices: Any) -> tuple[Any, ...]:
    """The dual solution: a point, moved far enough along a direction that leaves no half-space."""
    way, here = ([-price[k] for price in prices[:-1]] for k in (0, 1))
    far = flint.fmpq(0)
    for row in rows:
        slope = sum((a * w for a, w in zip(row, way, strict=False)), flint.fmpq(0))
        start = sum((a * h for a, h in zip(row, here, strict=False)), row[-1])
        if slope > 0 and start <= 0:
            far = max(far, 1 - start / slope)
    return tuple(h + far * w for h, w in zip(here, way, strict=True))


Integers = NDArray[np.object_]
DEGENERATE = 20  # pivots without progress before the rule changes to one that cannot cycle (Bland's)


@dataclass(frozen=True)
class Solution:
    """`A x = b` with `x ≥ 0`: the positive entries of a basic solution, by column."""

    entries: dict[int, Fraction]


@dataclass(frozen=True)
class Farkas:
    """`yᵀA ≥ 0` and `yᵀb < 0`: no nonnegative x can solve the system."""

    multipliers: tuple[Fraction, ...]


def feasible(
    matrix: Integers, wanted: Sequence[int], guess: Iterable[int] = (), most: int = 2000
) -> Solution | Farkas | None:
    """Decide `A x = b, x ≥ 0` for integers; `guess` are columns to try first. None after `most` pivots.

    >>> matrix = np.array([[1, 2], [1, -1]], dtype=object)
    >>> feasible(matrix, [3, 0]).entries
    {0: Fraction(1, 1), 1: Fraction(1, 1)}
    >>> feasible(matrix, [1, 2]).multipliers
    (Fraction(1, 1), Fraction(-1, 1))
    """
    columns = list(guess)
    return solution(matrix, wanted, columns) or _Simplex(matrix, wanted, columns).run(most)


def solution(matrix: Integers, wanted: Sequence[int], columns: Sequence[int]) -> Solution | None:
    """The solution that uses these columns alone, if one was found; None does not mean that there is none.

    >>> solution(np.array([[1, 2], [1, -1]], dtype=object), [3, 3], [0])
    Solution(entries={0: Fraction(3, 1)})
    """
    direct = _solve(matrix[:, list(columns)], wanted) if columns else None
    if direct is None or min(direct) < 0:
        return None
    return Solution({column: value for column, value in zip(columns, direct, strict=True) if value})


def integers(rows: NDArray[np.float64]) -> Integers:
    """Floats as integers: each column times the power of two that clears its denominators (exact, any scale).

    >>> integers(np.array([[0.5, 1e300], [0.25, 0.0]])).tolist()[0][0]
    2
    """
    table = np.empty(rows.shape, dtype=object)
    for column in range(rows.shape[1]):
        ratios = [value.as_integer_ratio() for value in rows[:, column].tolist()]
        common = max((below for _, below in ratios), default=1)
        table[:, column] = [above * (common // below) for above, below in ratios]
    return table


def _solve(matrix: Integers, wanted: Sequence[int]) -> list[Fraction] | None:
    """One exact solution of an overdetermined system, free unknowns 0; None if there is none."""
    rows, unknowns = matrix.shape
    joined = [[*(int(v) for v in matrix[row]), int(wanted[row])] for row in range(rows)]
    reduced, rank = flint.fmpq_mat(flint.fmpz_mat(joined)).rref()
    values = [Fraction(0)] * unknowns
    for row in range(rank):
        pivot = next(column for column in range(unknowns + 1) if reduced[row, column] != 0)
        if pivot == unknowns:
            return None
        values[pivot] = _fraction(reduced[row, unknowns])
    return values


class _Simplex:
    """Phase one of the simplex method in fractions: make the sum of artificial variables as small as it gets."""

    def __init__(self, matrix: Integers, wanted: Sequence[int], first: Sequence[int]) -> None:
        signs = np.array([1 if value >= 0 else -1 for value in wanted], dtype=object)
        self.signs, self.matrix = signs, matrix * signs[:, None]
        self.wanted = flint.fmpq_mat(flint.fmpz_mat([[int(abs(value))] for value in wanted]))
        self.rows, self.count = matrix.shape
        self.first = frozenset(first)
        self.basis = list(range(self.count, self.count + self.rows))  # artificial columns: unit vectors
        self.inverse = flint.fmpq_mat(
            self.rows, self.rows, [int(r == c) for r in range(self.rows) for c in range(self.rows)]
        )

    def run(self, most: int) -> Solution | Farkas | None:
        stuck = 0
        for _ in range(most):
            values = self.inverse * self.wanted
            prices = self._prices()
            entering = self._entering(prices, bland=stuck > DEGENERATE)
            if entering is None:
                return self._answer(values, prices)
            column = self.inverse * flint.fmpq_mat(flint.fmpz_mat([[int(v)] for v in self.matrix[:, entering]]))
            leaving = self._leaving(values, column)
            stuck = stuck + 1 if values[leaving, 0] == 0 else 0
            self._pivot(leaving, column)
            self.basis[leaving] = entering
        return None

    def _prices(self) -> list[Any]:
        costs = [[int(column >= self.count) for column in self.basis]]
        prices = flint.fmpq_mat(flint.fmpz_mat(costs)) * self.inverse
        return [prices[0, row] for row in range(self.rows)]

    def _entering(self, prices: list[Any], bland: bool) -> int | None:
        """A column that lowers the sum: the steepest in scaled units, guessed ones first; by Bland the first."""
        common = lcm(*(int(price.q) for price in prices))
        weights = np.array([int(price.p) * (common // int(price.q)) for price in prices], dtype=object)
        gains = weights @ self.matrix
        better = [column for column in range(self.count) if gains[column] > 0]
        if not better:
            return None
        if bland:
            return better[0]
        better = [column for column in better if column in self.first] or better
        return max(better, key=lambda column: Fraction(gains[column], int(np.abs(self.matrix[:, column]).sum())))

    def _leaving(self, values: Any, column: Any) -> int:
        """The row that reaches zero first; of several the artificial one, then the first column (Bland)."""
        ratios = [
            (_fraction(values[row, 0]) / _fraction(column[row, 0]), basic < self.count, basic, row)
            for row, basic in enumerate(self.basis)
            if column[row, 0] > 0
        ]
        return min(ratios)[-1]

    def _pivot(self, leaving: int, column: Any) -> None:
        change = flint.fmpq_mat(self.rows, self.rows, [int(r == c) for r in range(self.rows) for c in range(self.rows)])
        for row in range(self.rows):
            change[row, leaving] = (-column[row, 0] if row != leaving else flint.fmpq(1)) / column[leaving, 0]
        self.inverse = change * self.inverse

    def _answer(self, values: Any, prices: list[Any]) -> Solution | Farkas:
        if any(values[row, 0] > 0 for row, basic in enumerate(self.basis) if basic >= self.count):
            return Farkas(tuple(-_fraction(price) * int(sign) for price, sign in zip(prices, self.signs, strict=True)))
        real = [(basic, _fraction(values[row, 0])) for row, basic in enumerate(self.basis) if basic < self.count]
        return Solution({basic: value for basic, value in sorted(real) if value})


def _fraction(value: Any) -> Fraction:
    return Fraction(int(value.p), int(value.q))
