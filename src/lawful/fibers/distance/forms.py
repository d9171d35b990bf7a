"""Affine forms in the input: two networks and their difference, pushed forward through the layers together.

Over a box `x = centre + radius · t` with t in [−1, 1]^n. A form is its constant and its n coefficients, and each
quantity has one form below and one above it. Arrays are (1 + n, neurons, boxes). Every rounding error of the
coefficients goes into the constants, outwards.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lawful.fibers.distance.pair import Layered
from lawful.fibers.distance.relaxations import TINY, ULP, Bounds, base, chord
from lawful.types import Floats, Mask


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
    slack = 4 * (layer.W.shape[1] + 16) * ULP
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


def activated(forms: Trio, bounds: Bounds, slopes: Floats) -> Trio:
    """Forms after the activations, with lines and planes that are true on the given intervals."""
    y_low, y_high, z_low, z_high, d_low, d_high = bounds
    y, z, d = forms
    h, k = _relu(y, y_low, y_high), _relu(z, z_low, z_high)
    minus_y, minus_z = _relu(_negative(y), -y_high, -y_low), _relu(_negative(z), -z_high, -z_low)
    above = [
        _line(d.high, *chord(d_low, d_high)),
        _sum(k.high, -h.low, 1.0),
        _sum(_sum(d.high, minus_z.high, 1.0), -minus_y.low, 1.0),
    ]
    below = [
        -_line(-d.low, *chord(-d_high, -d_low)),
        _sum(k.low, -h.high, -1.0),
        _sum(_sum(d.low, minus_z.low, -1.0), -minus_y.high, -1.0),
    ]
    on, off = (y_low >= 0) & (z_low >= 0), (y_high <= 0) & (z_high <= 0)
    D = Form(_pick(below, -1.0, on, off, d.low), _pick(above, 1.0, on, off, d.high))
    return Trio(_mixed(slopes, y, h), _mixed(slopes, z, k), _mixed(slopes, d, D)) if slopes.any() else Trio(h, k, D)


def smear(forms: Trio, bounds: Bounds) -> Floats:
    """How much each input coordinate moves the neurons of unknown sign, of shape (boxes, n)."""
    y_low, y_high, z_low, z_high, _, _ = bounds
    total: Floats | float = 0.0
    for form, bent in ((forms.f, (y_low < 0) & (y_high > 0)), (forms.g, (z_low < 0) & (z_high > 0))):
        total = total + np.einsum("inb,nb->bi", np.abs(form.low[1:] + form.high[1:]), bent.astype(np.float64))
    return np.asarray(total)


# Each of these moves the constant outwards (`sign`) by more than its own roundings


def _sum(first: Floats, second: Floats, sign: float) -> Floats:
    total = first + second
    total[0] += sign * 4 * ULP * np.abs(total).sum(axis=0)
    return np.asarray(total)


def _line(form: Floats, slope: Floats, shift: Floats) -> Floats:
    result = form * slope
    result[0] += shift + 4 * ULP * (np.abs(result).sum(axis=0) + shift)
    return np.asarray(result)


def _mixed(slopes: Floats, whole: Form, bent: Form) -> Form:
    """`slope · z + (1 − slope) · relu(z)`."""
    rest = 1.0 - slopes
    ends = []
    for sign, one, other in ((-1.0, whole.low, bent.low), (1.0, whole.high, bent.high)):
        total = slopes * one + rest * other
        total[0] += sign * 8 * ULP * (slopes * np.abs(one).sum(axis=0) + rest * np.abs(other).sum(axis=0))
        ends.append(total)
    return Form(*ends)


def _relu(form: Form, low: Floats, high: Floats) -> Form:
    return Form(form.low * base(low, high), _line(form.high, *chord(low, high)))


def _negative(form: Form) -> Form:
    return Form(-form.high, -form.low)


def _pick(choices: list[Floats], sign: float, on: Mask, off: Mask, exact: Floats) -> Floats:
    """The form that is best in the middle; where both signs are known, the exact one."""
    best = choices[0]
    for other in choices[1:]:
        best = np.where(sign * other[0] < sign * best[0], other, best)
    return np.where(on, exact, np.where(off, 0.0, best))
