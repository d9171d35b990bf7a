"""Planes above and below a difference of two activations, from the lines of each.

Products of a slope with something else are rounded where they are used (`backward`, `forms`), in proportion to
`Lines.scale` and `Planes.scale`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lawful.network.intervals import EPSILON
from lawful.network.relaxation import Lines, lines
from lawful.types import Floats

Plane = tuple[Floats, Floats, Floats]  # coefficients of d and y, shift

ULP = EPSILON


class Bounds(NamedTuple):
    """Intervals of the pre-activations y and z of two networks and of `d = z − y`, all of one shape."""

    y_low: Floats
    y_high: Floats
    z_low: Floats
    z_high: Floats
    d_low: Floats
    d_high: Floats

    def tighten(self) -> Bounds:
        """Each interval cut with what the two others say of it; after an overflow or a NaN it has no end."""
        y_low, y_high, z_low, z_high, d_low, d_high = (
            known_below(end) if number % 2 == 0 else -known_below(-end) for number, end in enumerate(self)
        )
        d_low, d_high = np.fmax(d_low, down(z_low - y_high)), np.fmin(d_high, up(z_high - y_low))
        y_low, y_high = np.fmax(y_low, down(z_low - d_high)), np.fmin(y_high, up(z_high - d_low))
        z_low, z_high = np.fmax(z_low, down(y_low + d_low)), np.fmin(z_high, up(y_high + d_high))
        return Bounds(y_low, y_high, z_low, z_high, d_low, d_high)


class Planes(NamedTuple):
    """`φ(z) − φ(y)` between two planes `on_d · d + on_y · y + shift`."""

    low_d: Floats
    low_y: Floats
    low_shift: Floats
    high_d: Floats
    high_y: Floats
    high_shift: Floats
    scale: Floats  # of all the terms above and of the difference itself


def known_below(low: Floats) -> Floats:
    """Lower bounds, −∞ where an overflow (+∞) or NaN says nothing."""
    return np.where(low < np.inf, low, -np.inf)


def down(values: Floats) -> Floats:
    """At most the exact value of a sum or product that was rounded once."""
    return np.asarray(values - ULP * np.abs(values))


def up(values: Floats) -> Floats:
    """At least the exact value of a sum or product that was rounded once."""
    return np.asarray(values + ULP * np.abs(values))


def largest(low: Floats, high: Floats) -> Floats:
    """The largest absolute value in an interval."""
    return np.maximum(np.abs(low), np.abs(high))


def planes(bounds: Bounds, y: Lines, z: Lines, slopes: Floats) -> Planes:
    """Of two true planes on each side, the one that is best in the middle.

    `φ(z) − φ(y)` is at most `φ(d)`, as φ rises by 1 or by its slope; and at most a line above `φ(z)` less a line below
    `φ(y)`; mirrored for the other side. Where the signs of y and z are known and the same, the second is exact.
    """
    rise, fall = (
        lines(bounds.d_low, bounds.d_high, slopes),
        lines(-bounds.d_high, -bounds.d_low, slopes),
    )
    none = np.zeros_like(rise.high)
    middle = (bounds.d_low + bounds.d_high) / 2, (bounds.y_low + bounds.y_high) / 2
    high = _better((z.high, z.high - y.low, z.shift), (rise.high, none, rise.shift), middle, 1.0)
    low = _better((z.low, z.low - y.high, -y.shift), (fall.high, none, -fall.shift), middle, -1.0)
    d_size, y_size = largest(bounds.d_low, bounds.d_high), largest(bounds.y_low, bounds.y_high)
    scale = np.maximum(*(abs(on_d) * d_size + abs(on_y) * y_size + abs(shift) for on_d, on_y, shift in (high, low)))
    return Planes(*low, *high, scale)


def _better(one: Plane, other: Plane, middle: tuple[Floats, Floats], sign: float) -> Plane:
    here, there = (sign * (on_d * middle[0] + on_y * middle[1] + shift) for on_d, on_y, shift in (one, other))
    chosen = there < here
    on_d, on_y, shift = (np.where(chosen, theirs, ours) for theirs, ours in zip(other, one, strict=True))
    return on_d, on_y, shift
