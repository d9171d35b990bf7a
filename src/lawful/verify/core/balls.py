"""Real numbers as balls that surely hold them (FLINT's `arb`): what a comparison affirms is proved."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from flint import arb, arb_mat, fmpq

from lawful.verify.core.schema import numbers, require

# Six times the 53 of a double: products of five doubles are exact; what is lost is in the radius of the ball.
BITS = 320
Ball = Any
Table = list[list[Ball]]


def ball(value: float | Fraction) -> Ball:
    """A ball around a double (exact) or a rational."""
    exact = Fraction(value)
    return arb(fmpq(exact.numerator, exact.denominator))


def product(left: Table, right: Table) -> Table:
    """The product of two matrices."""
    rows: Table = (arb_mat(left) * arb_mat(right)).tolist()
    return rows


def transpose(table: Sequence[Sequence[Ball]]) -> Table:
    """The transpose."""
    return [list(column) for column in zip(*table, strict=True)]


def squares(table: Table) -> Ball:
    """The sum of squares of all entries."""
    return sum((entry * entry for row in table for entry in row), arb(0))


def interval(value: object, where: str) -> tuple[float, float]:
    """Two doubles in order."""
    low, high = numbers(value, where, length=2)
    require(low <= high, f"{where}: its ends are in the wrong order")
    return low, high


def lies_in(value: Ball, ends: tuple[float, float]) -> bool:
    """Whether a ball surely lies between two ends; one that is not a number never does."""
    return bool(value.is_finite() and ball(ends[0]) <= value and value <= ball(ends[1]))


def surely_below(value: Ball, bound: float) -> bool:
    """Whether a ball surely lies below a bound or on it."""
    return bool(value.is_finite() and value <= ball(bound))
