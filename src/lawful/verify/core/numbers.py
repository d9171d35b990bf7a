"""Exact numbers: FLINT's rationals, doubles as the rationals that they are, and ranges that may be unbounded.

Numbers of a network grow with its depth: each layer adds the length of a weight. A file of 150 kB can hold a chain of
3,000 neurons whose values have three million bits, so arithmetic is counted by the length of its results (`cost_of`).
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import Any

from flint import fmpq

from lawful.verify.core.schema import number, rational

Rational = Any  # flint.fmpq, whose type the stubs do not tell
Span = tuple[Rational | None, Rational | None]  # None is unbounded
ZERO, ONE = fmpq(0), fmpq(1)


def exact(value: float) -> Rational:
    """A double as the rational that it is."""
    return fmpq(*value.as_integer_ratio())


def fraction(value: object, where: str) -> Rational:
    """A fraction written as text."""
    written = rational(value, where)
    return fmpq(written.numerator, written.denominator)


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
