"""Rows of weights that are exact multiples of each other, as rational numbers."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from lawful.types import Floats

ONE = Fraction(1)


def rays(rows: Floats) -> tuple[list[Any], list[Fraction]]:
    """For every row a key, equal only for rows that are exact multiples of each other, and its factor.

    >>> rays(np.array([[1.0, -0.0], [3.0, 0.0], [-1.0, 0.0], [1.0, 1.0]]))[0]
    [0, 0, 0, 3]
    """
    groups: dict[bytes, list[int]] = {}
    keys: list[Any] = []
    factors: list[Fraction] = []
    for place, row in enumerate(rows):
        size = _largest(row)
        if not size:
            keys.append(("zero",))
            factors.append(ONE)
            continue
        leaders = groups.setdefault((row / size + 0.0).tobytes(), [])
        leader = next((other for other in leaders if _multiple(row, rows[other])), None)
        if leader is None:
            leaders.append(place)
        at = place if leader is None else leader
        keys.append(at)
        factors.append(Fraction(size) / Fraction(_largest(rows[at])))
    return keys, factors


def ordinary(values: Floats) -> bool:
    """Whether no entry but 0 is so small that products with powers of two could be rounded."""
    return bool(np.abs(values[values != 0]).min(initial=1.0) > 1e-200)


def power_of_two(ratio: Fraction) -> bool:
    """Whether doubles of ordinary size times a ratio are doubles.

    >>> power_of_two(Fraction(-1, 4)), power_of_two(Fraction(3))
    (True, False)
    """
    parts = abs(ratio.numerator), ratio.denominator
    return ratio != 0 and all(part & (part - 1) == 0 for part in parts) and max(parts) < 2**200


def _largest(row: Floats) -> float:
    """The first entry of the largest size, with its sign; 0 for no entries."""
    return float(row[np.argmax(np.abs(row))]) if len(row) else 0.0


def _multiple(row: Floats, leader: Floats) -> bool:
    """Whether one row is an exact multiple of another, as rational numbers."""
    at = int(np.argmax(np.abs(leader)))
    value, other = Fraction(float(row[at])), Fraction(float(leader[at]))
    ratio = value / other if other else Fraction(0)
    if not ratio:
        return False
    if power_of_two(ratio) and ordinary(row) and ordinary(leader):
        return bool((row == leader * float(ratio)).all())
    return all(Fraction(a) == ratio * Fraction(b) for a, b in zip(row.tolist(), leader.tolist(), strict=True))
