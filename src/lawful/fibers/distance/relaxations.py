"""Straight lines above and below an activation, and planes above and below a difference of two of them.

A slope may be any float: the shift is then what the ends of the interval need, rounded outwards. Products of a slope
with something else are rounded where they are used (`backward`, `forms`), in proportion to `Lines.scale` and
`Planes.scale`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lawful.types import Floats, Mask

ULP = 2.0**-52
TINY = 1e-300  # more than what all underflows of a layer can lose


class Bounds(NamedTuple):
    """Intervals of the pre-activations y and z of two networks and of `d = z − y`, all of one shape."""

    y_low: Floats
    y_high: Floats
    z_low: Floats
    z_high: Floats
    d_low: Floats
    d_high: Floats

    def tightened(self) -> Bounds:
        """Each interval cut with what the two others say of it; where nothing is known (NaN), it has no end."""
        y_low, y_high, z_low, z_high, d_low, d_high = (
            np.where(np.isnan(end), -np.inf if number % 2 == 0 else np.inf, end) for number, end in enumerate(self)
        )
        d_low, d_high = np.fmax(d_low, down(z_low - y_high)), np.fmin(d_high, up(z_high - y_low))
        y_low, y_high = np.fmax(y_low, down(z_low - d_high)), np.fmin(y_high, up(z_high - d_low))
        z_low, z_high = np.fmax(z_low, down(y_low + d_low)), np.fmin(z_high, up(y_high + d_high))
        return Bounds(y_low, y_high, z_low, z_high, d_low, d_high)


class Lines(NamedTuple):
    """`low · z ≤ φ(z) ≤ high · z + shift` on an interval; `low` in three versions, each of them true."""

    low: Floats
    parallel: Floats
    flat: Floats
    high: Floats
    shift: Floats
    scale: Floats  # of all the terms above and of φ(z)


class Planes(NamedTuple):
    """`φ(z) − φ(y)` between two planes `on_d · d + on_y · y + shift`."""

    low_d: Floats
    low_y: Floats
    low_shift: Floats
    high_d: Floats
    high_y: Floats
    high_shift: Floats
    scale: Floats  # of all the terms above and of the difference itself


def down(values: Floats) -> Floats:
    """At most the exact value of a sum or product that was rounded once."""
    return np.asarray(values - ULP * np.abs(values))


def up(values: Floats) -> Floats:
    """At least the exact value of a sum or product that was rounded once."""
    return np.asarray(values + ULP * np.abs(values))


def largest(low: Floats, high: Floats) -> Floats:
    """The largest absolute value in an interval."""
    return np.maximum(np.abs(low), np.abs(high))


def chord(low: Floats, high: Floats) -> tuple[Floats, Floats]:
    """Slope and shift of a line above ReLU on an interval.

    >>> slope, shift = chord(np.array([-1.0, 0.5, -2.0]), np.array([1.0, 2.0, -1.0]))
    >>> slope, shift.round(9)
    (array([0.5, 1. , 0. ]), array([0.5, 0. , 0. ]))
    """
    bent = (low < 0) & (high > 0)
    slope = np.where(bent, high / np.where(bent, high - low, 1.0), (low >= 0).astype(np.float64))
    needed = np.maximum(-slope * low, (1.0 - slope) * high)
    return slope, np.where(bent, needed + 4 * ULP * needed + TINY, 0.0)


def base(low: Floats, high: Floats) -> Floats:
    """Slope of a line through 0 below ReLU: 1 or 0, whichever leaves less area."""
    return np.where(low >= 0, 1.0, np.where(high <= 0, 0.0, (high > -low).astype(np.float64)))


def lines(low: Floats, high: Floats, slopes: Floats) -> Lines:
    """Lines for neurons of given slopes (broadcast along the boxes): `φ(z) = slope · z + (1 − slope) · relu(z)`."""
    steep, shift = chord(low, high)
    lower = base(low, high)
    flat = np.where((low < 0) & (high > 0), 0.0, lower)
    if slopes.any():
        rest = 1.0 - slopes
        lower, steep, flat = (slopes + rest * each for each in (lower, steep, flat))
        shift = shift + 2 * ULP * shift if slopes.all() else np.where(slopes == 1, 0.0, rest * shift * (1 + 8 * ULP))
    return Lines(lower, steep, flat, steep, shift, np.maximum(lower, steep) * largest(low, high) + shift)


def planes(bounds: Bounds, slopes: Floats) -> Planes:
    """Of three true planes on each side, the one that is best in the middle.

    `relu(z) − relu(y)` is at most `max(d, 0)`; at most a line above `relu(z)` less a line below `relu(y)`; and at most
    `d` plus the same for `relu(−z)` and `relu(−y)`; mirrored for the other side.
    """
    y_low, y_high, z_low, z_high, d_low, d_high = bounds
    (z_steep, z_shift), (y_steep, y_shift) = chord(z_low, z_high), chord(y_low, y_high)
    (z_fall, z_rest), (y_fall, y_rest) = chord(-z_high, -z_low), chord(-y_high, -y_low)
    z_base, y_base, z_foot, y_foot = (
        base(*ends) for ends in ((z_low, z_high), (y_low, y_high), (-z_high, -z_low), (-y_high, -y_low))
    )
    rise, rise_shift = chord(d_low, d_high)
    fall, fall_shift = chord(-d_high, -d_low)
    none = np.zeros_like(rise)
    above = [(rise, none, rise_shift), (z_steep, z_steep - y_base, z_shift), (1 - z_fall, y_foot - z_fall, z_rest)]
    below = [(fall, none, -fall_shift), (z_base, z_base - y_steep, -y_shift), (1 - z_foot, y_fall - z_foot, -y_rest)]
    middle = (d_low + d_high) / 2, (y_low + y_high) / 2
    settled = ((y_low >= 0) & (z_low >= 0)) | ((y_high <= 0) & (z_high <= 0))
    high, low = _best(above, middle, 1.0, settled), _best(below, middle, -1.0, settled)
    if slopes.any():
        rest = 1.0 - slopes
        stretch = np.where(slopes == 1, 0.0, rest * (1 + 8 * ULP))
        high, low = ((slopes + rest * on_d, rest * on_y, stretch * shift) for on_d, on_y, shift in (high, low))
    d_size, y_size = largest(d_low, d_high), largest(y_low, y_high)
    scale = np.maximum(*(abs(on_d) * d_size + abs(on_y) * y_size + abs(shift) for on_d, on_y, shift in (high, low)))
    return Planes(*low, *high, scale)


def _best(
    choices: list[tuple[Floats, Floats, Floats]], middle: tuple[Floats, Floats], sign: float, settled: Mask
) -> tuple[Floats, Floats, Floats]:
    """The plane that is lowest (highest) in the middle; the second one, which is exact, where both signs are known."""
    best = choices[1]
    value = np.where(settled, -np.inf, sign * (best[0] * middle[0] + best[1] * middle[1] + best[2]))
    for other in (choices[0], choices[2]):
        here = sign * (other[0] * middle[0] + other[1] * middle[1] + other[2])
        better = here < value
        best = tuple(np.where(better, theirs, ours) for theirs, ours in zip(other, best, strict=True))  # type: ignore[assignment]
        value = np.where(better, here, value)
    return best
