"""Straight lines above and below an activation, planes above and below the difference of two, all true after rounding.

An activation φ has slope 1 on the right of 0 and one from 0 to 1 on the left: it is convex, so that a line above it at
both ends of an interval is above it in between, and it never rises faster than the identity.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lawful.verify.bounds.layers import Floats

UNIT = 2.0**-52
TINY = 1e-312  # far more than underflows lose: each loses less than 1e-323


class Ends(NamedTuple):
    """Intervals of y (a neuron of f), z (of g) and `d = z - y`, of shape (boxes, neurons)."""

    y_low: Floats
    y_high: Floats
    z_low: Floats
    z_high: Floats
    d_low: Floats
    d_high: Floats

    def tightened(self) -> Ends:
        """Each interval cut by what the others say; an end that is NaN or on the wrong side of infinity is none."""
        y_low, z_low, d_low = (np.where(end < np.inf, end, -np.inf) for end in self[::2])
        y_high, z_high, d_high = (np.where(end > -np.inf, end, np.inf) for end in self[1::2])
        d_low, d_high = np.fmax(d_low, _down(z_low - y_high)), np.fmin(d_high, _up(z_high - y_low))
        y_low, y_high = np.fmax(y_low, _down(z_low - d_high)), np.fmin(y_high, _up(z_high - d_low))
        z_low, z_high = np.fmax(z_low, _down(y_low + d_low)), np.fmin(z_high, _up(y_high + d_high))
        return Ends(y_low, y_high, z_low, z_high, d_low, d_high)

    @property
    def sizes(self) -> tuple[Floats, Floats, Floats]:
        """The largest |y|, |z| and |d|; activations and their differences are no larger."""
        return (
            np.maximum(np.abs(self.y_low), np.abs(self.y_high)),
            np.maximum(np.abs(self.z_low), np.abs(self.z_high)),
            np.maximum(np.abs(self.d_low), np.abs(self.d_high)),
        )


class Line(NamedTuple):
    """`low · v <= φ(v)` (also with `flat`), and `φ(v) <= high · v + shift`."""

    low: Floats
    flat: Floats
    high: Floats
    shift: Floats


class Plane(NamedTuple):
    """A plane `d · (z - y) + y · y + shift`, and a bound of the sizes of its three terms together."""

    d: Floats
    y: Floats
    shift: Floats
    size: Floats


def lines(low: Floats, high: Floats, slopes: Floats) -> Line:
    """Any slope from φ's to 1 gives a line below; above, any slope with the shift that both ends need."""
    bent = (low < 0) & (high > 0) & (slopes != 1)
    settled = np.where(low >= 0, 1.0, slopes)
    steep = np.clip((high - slopes * low) / np.where(bent, high - low, 1.0), slopes, 1.0)
    needed = np.maximum((slopes - steep) * low, (1.0 - steep) * high)
    return Line(
        np.where(bent & (high > -low), 1.0, np.where(bent, slopes, settled)),
        np.where(bent, slopes, settled),
        np.where(bent, steep, settled),
        np.where(bent, needed * (1 + 16 * UNIT) + TINY, 0.0),
    )


def planes(known: Ends, f: Line, g: Line, slopes: Floats) -> tuple[Plane, Plane]:
    """Planes below and above `φ(z) - φ(y)`, which is at most `φ(d)`, and at most a line for z less one for y."""
    rise, fall = lines(known.d_low, known.d_high, slopes), lines(-known.d_high, -known.d_low, slopes)
    zero = np.zeros_like(rise.high)
    below = _better(known, (g.low, g.low - f.high, -f.shift), (fall.high, zero, -fall.shift), -1.0)
    above = _better(known, (g.high, g.high - f.low, g.shift), (rise.high, zero, rise.shift), 1.0)
    return below, above


def _better(known: Ends, one: tuple[Floats, ...], other: tuple[Floats, ...], sign: float) -> Plane:
    d, y = (known.d_low + known.d_high) / 2, (known.y_low + known.y_high) / 2
    here, there = (sign * (on_d * d + on_y * y + shift) for on_d, on_y, shift in (one, other))
    on_d, on_y, shift = (np.where(there < here, theirs, ours) for ours, theirs in zip(one, other, strict=True))
    y_size, _, d_size = known.sizes
    return Plane(on_d, on_y, shift, np.abs(on_d) * d_size + np.abs(on_y) * y_size + np.abs(shift))


def _down(values: Floats) -> Floats:
    return np.nextafter(values, -np.inf)


def _up(values: Floats) -> Floats:
    return np.nextafter(values, np.inf)
