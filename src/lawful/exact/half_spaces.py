"""Do open half-spaces have a common point? Decided in rationals, with evidence either way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import flint


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
