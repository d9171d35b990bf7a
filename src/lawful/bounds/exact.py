"""The outputs of a network at a float input, exactly: every float is an integer times a power of two."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lawful.bounds.layers import Layer
from lawful.types import Floats

Integers = NDArray[Any]  # of Python integers


def exact_difference(first: tuple[Layer, ...], second: tuple[Layer, ...], point: Floats) -> list[Fraction]:
    """`g(x) − f(x)`, output by output."""
    return [b - a for a, b in zip(exact_outputs(first, point), exact_outputs(second, point), strict=True)]


def exact_outputs(layers: tuple[Layer, ...], point: Floats | Sequence[Fraction]) -> list[Fraction]:
    """The outputs as fractions; an input may be any rationals.

    >>> layer = Layer(np.array([[0.1, 1.0]]), np.array([-0.5]), np.ones(1))
    >>> exact_outputs((layer,), np.array([1.0, 0.5]))[0] == Fraction(0.1)
    True
    >>> exact_outputs((layer,), [Fraction(1, 3), Fraction(1)])[0] == Fraction(0.1) / 3 + Fraction(1, 2)
    True
    """
    values, power, divisor = _rationals(point)
    for weight, bias, slopes in layers:
        rows, columns = weight.nonzero()
        entries, one = _integers(np.asarray(weight[rows, columns]))
        shifts, two = _integers(bias)
        power += one
        summed = np.zeros(len(bias), dtype=object)
        np.add.at(summed, rows, entries * values[columns])
        common = min(power, two)
        summed = summed * (1 << (power - common)) + shifts * (divisor << (two - common))
        tilt, three = _integers(slopes)
        negative = summed < 0
        values = np.where(negative, summed * tilt, summed * (1 << -min(three, 0)))
        power = common + min(three, 0)
        if three > 0:  # whole slopes above 1
            values = np.where(negative, values * (1 << three), values)
    scale = Fraction(2) ** power / divisor
    return [int(value) * scale for value in values]


def _rationals(point: Floats | Sequence[Fraction]) -> tuple[Integers, int, int]:
    """Integers, a power of two and a divisor: `point = integers · 2^power / divisor`, exactly."""
    if isinstance(point, np.ndarray):
        return *_integers(point), 1
    divisor = math.lcm(*(value.denominator for value in point))
    return np.array([int(value * divisor) for value in point], dtype=object), 0, divisor


def _integers(values: Floats) -> tuple[Integers, int]:
    """Integers and one power of two: `values = integers · 2^power`, exactly."""
    mantissas, exponents = np.frexp(values)
    whole = (mantissas * 2.0**53).astype(np.int64)
    used = whole != 0
    power = int((exponents[used] - 53).min(initial=0)) if used.any() else 0
    lifted = [int(m) << int(e) - 53 - power if m else 0 for m, e in zip(whole, exponents, strict=True)]
    return np.array(lifted, dtype=object), power
