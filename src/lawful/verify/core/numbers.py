"""Exact numbers: doubles as the rationals that they are, fractions as text, and ranges that may be unbounded."""

from __future__ import annotations

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


def quotient(value: object, where: str) -> Rational:
    """A factor: a double, or a fraction as text."""
    if isinstance(value, str):
        found = rational(value, where)
        return fmpq(found.numerator, found.denominator)
    return exact(number(value, where))


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


def fraction(value: object, where: str) -> Rational:
    """A fraction written as text."""
    found = rational(value, where)
    return fmpq(found.numerator, found.denominator)


def as_fraction(value: Rational) -> Fraction:
    """The same number as Python has it, for facts and words."""
    return Fraction(int(value.p), int(value.q))
