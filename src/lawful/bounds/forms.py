"""Affine forms in the input: two networks and their difference, pushed forward through the layers together.

Over a box `x = centre + radius · t` with t in [−1, 1]^n. A form is its constant and its n coefficients, and each
quantity has one form below and one above it. Arrays are (1 + n, neurons, boxes). Every rounding error of the
coefficients goes into the constants, outwards.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lawful.bounds.pair import Layered
from lawful.bounds.planes import ULP, Bounds
from lawful.network.relaxation import TINY, Lines, lines
from lawful.types import Floats


class Form(NamedTuple):
    """`low(t) ≤ value ≤ high(t)`; the two may be one array if the value is affine."""

    low: Floats
    high: Floats

    @property
    def reach(self) -> Floats:
        """The sum of the sizes of all coefficients of the middle and of half the width."""
        if self.low is self.high:
            return np.asarray(np.abs(self.low).sum(axis=0))
        return np.asarray(np.maximum(np.abs(self.low), np.abs(self.high)).sum(axis=0))


class Trio(NamedTuple):
    """Forms of f, of g and of g − f at one layer."""

    f: Form
    g: Form
    difference: Form


def start(centre: Floats, radius: Floats) -> Trio:
    """The inputs themselves, of shape (boxes, n): both networks get the same."""
    boxes, inputs = centre.shape
    form = np.zeros((1 + inputs, inputs, boxes))
    form[0] = centre.T
    form[1 + np.arange(inputs), np.arange(inputs)] = radius.T
    zero = np.zeros_like(form)
    return Trio(Form(form, form), Form(form, form), Form(zero, zero))


def affine(layer: Layered, values: Trio, first: bool) -> Trio:
    """`y = W h + b`, `z = V k + c`, `z − y = V (k − h) + E h + e`."""
    size_W, size_V, size_E = layer.sizes
    slack = 8 * (max(layer.W.shape) + 16) * ULP
    h, k, D = values
    reach_h, reach_D = h.reach, D.reach
    y = _mapped([(layer.W, size_W, h)], layer.b, slack * (size_W @ reach_h))
    z = _mapped([(layer.V, size_V, k)], layer.c, slack * (size_V @ k.reach))
    error = slack * (size_V @ reach_D + size_E @ reach_h) + layer.doubt @ reach_h + layer.shift_doubt[:, None]
    d = _mapped([(layer.V, size_V, D), (layer.E, size_E, h)], layer.e, error)
    if not first:  # z − y is the other way to the difference; take what is better in the middle
        high, low = _sum(z.high, -y.low, 1.0), _sum(z.low, -y.high, -1.0)
        d = Form(np.where(low[0] > d.low[0], low, d.low), np.where(high[0] < d.high[0], high, d.high))
    return Trio(y, z, d)


def _mapped(parts: list[tuple[Floats, Floats, Form]], bias: Floats, error: Floats) -> Form:
    """`Σ A v + bias` for forms v: the middle times A, plus and minus half the width times |A|."""
    middle: Floats | float = 0.0
    width: Floats | float | None = None
    for matrix, size, form in parts:
        if form.low is form.high:
            middle = middle + matrix @ form.low
        else:
            middle = middle + matrix @ ((form.low + form.high) / 2)
            width = (0.0 if width is None else width) + size @ ((form.high - form.low) / 2)
    whole = np.asarray(middle)
    whole[0] += bias[:, None]
    error = error + 4 * ULP * np.abs(bias)[:, None] + TINY
    low, high = (whole.copy(), whole) if width is None else (whole - width, whole + width)
    low[0] -= error
    high[0] += error
    return Form(low, high)


def bounds_of(forms: Trio) -> Bounds:
    """The intervals that the forms give."""
    return Bounds(*(end for form in forms for end in (_extreme(form.low, -1.0), _extreme(form.high, 1.0))))


def _extreme(form: Floats, sign: float) -> Floats:
    reach = np.abs(form[1:]).sum(axis=0)
    return np.asarray(form[0] + sign * (reach + (len(form) + 4) * ULP * (reach + np.abs(form[0]))))


def activated(forms: Trio, bounds: Bounds, lines_y: Lines, lines_z: Lines, slopes: Floats) -> Trio:
    """Forms after the activations, with lines that are true on the given intervals.

    Three bounds of `φ(z) − φ(y)`: a line in d; lines in z and in y; and d itself plus lines for `φ(z) − z` and
    `φ(y) − y`. The one that is best in the middle is taken.
    """
    y_low, y_high, z_low, z_high, d_low, d_high = bounds
    y, z, d = forms
    h, k = (
        Form(_line(v.low, each.low, 0.0, -1.0), _line(v.high, each.high, each.shift, 1.0))
        for v, each in ((y, lines_y), (z, lines_z))
    )
    rise, fall = lines(d_low, d_high, slopes), lines(-d_high, -d_low, slopes)
    high, low = 1.0 - lines_z.high, 1.0 - lines_y.low
    above = [
        _line(d.high, rise.high, rise.shift, 1.0),
        _sum(k.high, -h.low, 1.0),
        _sum(_sum(d.high, _line(-z.low, high, lines_z.shift, 1.0), 1.0), _line(y.high, low, 0.0, 1.0), 1.0),
    ]
    high, low = 1.0 - lines_y.high, 1.0 - lines_z.low
    below = [
        -_line(-d.low, fall.high, fall.shift, 1.0),
        _sum(k.low, -h.high, -1.0),
        _sum(_sum(d.low, -_line(-y.low, high, lines_y.shift, 1.0), -1.0), _line(-z.high, low, 0.0, -1.0), -1.0),
    ]
    on, off = (y_low >= 0) & (z_low >= 0), (y_high <= 0) & (z_high <= 0)
    D = Form(_pick(below, -1.0), _pick(above, 1.0))
    for end, exact, sign in ((D.low, d.low, -1.0), (D.high, d.high, 1.0)):
        np.copyto(end, exact, where=on)
        np.copyto(end, _line(exact, slopes, 0.0, sign), where=off)
    return Trio(h, k, D)


def moves(forms: Trio, bounds: Bounds) -> Floats:
    """How much each input coordinate moves each neuron of unknown sign, of shape (n, neurons, boxes)."""
    y_low, y_high, z_low, z_high, _, _ = bounds
    return np.asarray(
        np.abs(forms.f.low[1:] + forms.f.high[1:]) * ((y_low < 0) & (y_high > 0))
        + np.abs(forms.g.low[1:] + forms.g.high[1:]) * ((z_low < 0) & (z_high > 0))
    )


# Each of these moves the constant outwards (`sign`) by more than its own roundings


def _sum(first: Floats, second: Floats, sign: float) -> Floats:
    total = first + second
    total[0] += sign * 4 * ULP * np.abs(total).sum(axis=0)
    return np.asarray(total)


def _line(form: Floats, slope: Floats, shift: Floats | float, sign: float) -> Floats:
    result = form * slope
    result[0] += shift + sign * 8 * ULP * (np.abs(result).sum(axis=0) + np.abs(shift))
    return np.asarray(result)


def _pick(choices: list[Floats], sign: float) -> Floats:
    """The form that is best in the middle."""
    best = choices[0]
    for other in choices[1:]:
        best = np.where(sign * other[0] < sign * best[0], other, best)
    return best
