"""What is known of the distance of two networks on a box."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from lawful.bounds.pair import NetworkPair
from lawful.bounds.spectral import SpectralBound
from lawful.result import Shown
from lawful.types import Floats

Status = Literal["proved", "violated", "undecided", "bounded"]


@dataclass(frozen=True, eq=False)
class OutputDistance:
    """Bounds of the largest difference of one output."""

    output: int
    lower: Fraction
    upper: float

    @property
    def lower_float(self) -> float:
        """The lower bound as a float that is not above it."""
        return float_below(self.lower)


@dataclass(frozen=True, eq=False)
class Distance(Shown):
    """Bounds of `max ‖g(x) − f(x)‖` over a box, and an input that attains the lower one.

    `lower` is exact: both networks were evaluated in rationals at `input`. `upper` was computed in float64, every
    rounding error bounded and added. `tree` is the splitting that proves it, in preorder, and `spectral` what singular
    values say of the whole box where that is more.
    """

    lower: Fraction
    upper: float
    input: Floats
    per_output: tuple[OutputDistance, ...]
    boxes: int
    tree: tuple[int, ...]
    status: Status
    within: Fraction | None
    norm: float
    low: Floats
    high: Floats
    seconds: float
    interrupted: bool
    pair: NetworkPair
    spectral: SpectralBound | None = None
    stalled: bool = False  # it ended before its time, since neither bound moved any more

    @property
    def lower_float(self) -> float:
        """The lower bound as a float that is not above it."""
        return float_below(self.lower)


def float_below(value: Fraction) -> float:
    """The largest float that is at most a fraction.

    >>> float_below(Fraction(1, 10)) < 0.1 == float_below(Fraction(0.1))
    True
    """
    try:
        near = float(value)
    except OverflowError:
        return math.inf if value == math.inf else math.copysign(1.7976931348623157e308, value)
    return near if Fraction(near) <= value else math.nextafter(near, -math.inf)


def norm_below(gaps: list[Fraction], norm: float) -> Fraction:
    """The norm of exact numbers, for norm 2 rounded down to 64 bits.

    >>> norm_below([Fraction(-3), Fraction(4)], 2.0), norm_below([Fraction(-3), Fraction(4)], 1.0)
    (Fraction(5, 1), Fraction(7, 1))
    """
    sizes = [abs(gap) for gap in gaps]
    if norm == math.inf:
        return max(sizes)
    if norm == 1:
        return sum(sizes, Fraction(0))
    square = sum((size * size for size in sizes), Fraction(0))
    if not square:
        return square
    bits = max(0, 128 - square.numerator.bit_length() + square.denominator.bit_length())
    return Fraction(math.isqrt((square.numerator << 2 * bits) // square.denominator), 1 << bits)
