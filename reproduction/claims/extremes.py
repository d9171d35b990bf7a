"""Largest and smallest of measured numbers, where a NaN is the worst of all and never lost."""

from __future__ import annotations

from collections.abc import Iterable
from math import isnan, nan


def largest(*values: float | Iterable[float]) -> float:
    """The largest number, or NaN if one is: `max(0.0, nan)` is 0.0, and a claim that measured nothing would hold.

    >>> largest(0.0, float("nan")), largest([1.0, 3.0], 2.0)
    (nan, 3.0)
    """
    numbers = _flat(values)
    return nan if any(isnan(number) for number in numbers) else float(max(numbers))


def smallest(*values: float | Iterable[float]) -> float:
    """The smallest number, or NaN if one is.

    >>> smallest(1.0, float("nan")), smallest([1.0, 3.0], 2.0)
    (nan, 1.0)
    """
    numbers = _flat(values)
    return nan if any(isnan(number) for number in numbers) else float(min(numbers))


def _flat(values: Iterable[float | Iterable[float]]) -> list[float]:
    found: list[float] = []
    for value in values:
        found += value if isinstance(value, Iterable) else [value]
    return found
