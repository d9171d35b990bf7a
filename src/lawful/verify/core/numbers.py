"""Exact numbers: FLINT's rationals, doubles as the rationals that they are, and ranges that may be unbounded.

Numbers of a network grow with its depth: each layer adds the length of a weight. A file of 150 kB can hold a chain of
3,000 neurons whose values have three million bits, so arithmetic is counted by the length of its results (`cost_of`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any

from flint import arb, arb_mat, fmpq

from lawful.verify.core.schema import number, numbers, rational, require

Rational = Any  # flint.fmpq, whose type the stubs do not tell
Span = tuple[Rational | None, Rational | None]  # None is unbounded
ZERO, ONE = fmpq(0), fmpq(1)


def exact(value: float) -> Rational:
    """A double as the rational that it is."""
    return fmpq(*value.as_integer_ratio())


def fraction(value: object, where: str) -> Rational:
    """A fraction written as text."""
    exact_value = rational(value, where)
    return fmpq(exact_value.numerator, exact_value.denominator)


def quotient(value: object, where: str) -> Rational:
    """A factor: a double, or a fraction as text."""
    return fraction(value, where) if isinstance(value, str) else exact(number(value, where))


def as_fraction(value: Rational) -> Fraction:
    """The same number as Python has it, for facts and words."""
    return Fraction(int(value.p), int(value.q))


def cost_of(values: Iterable[Rational | None]) -> float:
    """What it takes to make these numbers, in steps: a product of n words with its common factor takes about n^1.5."""
    lengths = (float(value.height_bits()) for value in values if value is not None)
    return float(sum((1 + length / 64) ** 1.5 for length in lengths))


def sum_range(terms: Iterable[tuple[Rational, Span]], low: Rational | None, high: Rational | None) -> Span:
    """The range of `Σ weight·value` plus something between `low` and `high`, given the ranges of the values."""
    for weight, (least, most) in terms:
        if weight == 0:
            continue
        ends = (least, most) if weight > 0 else (most, least)
        low = None if low is None or ends[0] is None else low + weight * ends[0]
        high = None if high is None or ends[1] is None else high + weight * ends[1]
    return low, high


def activation_range(low: Rational | None, high: Rational | None, slope: Rational) -> Span:
    """The range of a neuron's value, given the range of its sum."""
    ends = [None if end is None else end if end > 0 else slope * end for end in (low, high)]
    if slope > 0:
        return ends[0], ends[1]
    if slope == 0:
        return (ZERO if low is None else ends[0]), ends[1]
    turns = (low is None or low < 0) and (high is None or high > 0)
    known = [end for end in ends if end is not None] + [ZERO] * turns
    return min(known), None if None in ends else max(known)


# Real numbers as balls that surely hold them (FLINT's `arb`): what a comparison affirms is proved.

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
