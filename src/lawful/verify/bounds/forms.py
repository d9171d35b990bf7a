"""Affine forms of two networks and of their difference on boxes, rounded outwards.

On a box the inputs are `centre + radius · t` with t in [-1, 1]^n. A quantity has a form below it and one above it: a
constant and n coefficients, arrays of shape (boxes, neurons, 1 + n). As |t| is at most 1, an error of any coefficient
is paid by moving the constant outwards by as much. See `distance_bounds` for how large the errors can be.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lawful.verify.bounds.layers import Floats, Shared
from lawful.verify.bounds.lines import TINY, UNIT, Ends, Line, lines

FEW = 4 * UNIT  # at least twice the relative error of three roundings


class FormPair(NamedTuple):
    """`low(t) <= value <= high(t)`."""

    low: Floats
    high: Floats


class ThreeForms(NamedTuple):
    """Of a neuron of f, of its partner in g, and of the second less the first."""

    f: FormPair
    g: FormPair
    difference: FormPair


def inputs(centre: Floats, radius: Floats) -> ThreeForms:
    """The inputs, which both networks share."""
    boxes, count = centre.shape
    form = np.zeros((boxes, count, 1 + count))
    form[:, :, 0] = centre
    form[:, np.arange(count), 1 + np.arange(count)] = radius
    nothing = np.zeros_like(form)
    return ThreeForms(FormPair(form, form), FormPair(form, form), FormPair(nothing, nothing))


def through(layer: Shared, values: ThreeForms, slack: float, first: bool) -> ThreeForms:
    """`y = W h + b`, `z = V k + c` and `z - y = V (k - h) + E h + e`, or `z - y` from the forms of both."""
    h, k, D = values
    y = _summed([(layer.W, h)], layer.b, slack)
    z = _summed([(layer.V, k)], layer.c, slack)
    d = _summed([(layer.V, D), (layer.E, h)], layer.e, slack)
    if not first:
        d = FormPair(
            _best([d.low, _plus(z.low, -y.high, -1.0)], -1.0),
            _best([d.high, _plus(z.high, -y.low, 1.0)], 1.0),
        )
    return ThreeForms(y, z, d)


def ends(forms: ThreeForms) -> Ends:
    """Intervals of all values."""
    return Ends(*(_end(form, sign) for pair in forms for form, sign in ((pair.low, -1.0), (pair.high, 1.0))))


def activated(before: ThreeForms, known: Ends, f: Line, g: Line, slopes: Floats) -> ThreeForms:
    """What the activations make of the forms; for the difference the one of three that is best in the middle."""
    y, z, d = before
    h = FormPair(_scaled(y.low, f.low, 0.0, -1.0), _scaled(y.high, f.high, f.shift, 1.0))
    k = FormPair(_scaled(z.low, g.low, 0.0, -1.0), _scaled(z.high, g.high, g.shift, 1.0))
    rise, fall = lines(known.d_low, known.d_high, slopes), lines(-known.d_high, -known.d_low, slopes)
    above = [
        _scaled(d.high, rise.high, rise.shift, 1.0),
        _plus(k.high, -h.low, 1.0),
        _plus(
            _plus(d.high, _scaled(-z.low, 1.0 - g.high, g.shift, 1.0), 1.0), _scaled(y.high, 1.0 - f.low, 0.0, 1.0), 1.0
        ),
    ]
    below = [
        -_scaled(-d.low, fall.high, fall.shift, 1.0),
        _plus(k.low, -h.high, -1.0),
        _plus(
            _plus(d.low, -_scaled(-y.low, 1.0 - f.high, f.shift, 1.0), -1.0),
            _scaled(-z.high, 1.0 - g.low, 0.0, -1.0),
            -1.0,
        ),
    ]
    on = ((known.y_low >= 0) & (known.z_low >= 0))[..., None]
    off = ((known.y_high <= 0) & (known.z_high <= 0))[..., None]
    low, high = _best(below, -1.0), _best(above, 1.0)
    low = np.where(on, d.low, np.where(off, _scaled(d.low, slopes, 0.0, -1.0), low))
    high = np.where(on, d.high, np.where(off, _scaled(d.high, slopes, 0.0, 1.0), high))
    return ThreeForms(h, k, FormPair(low, high))


def _summed(parts: list[tuple[Floats, FormPair]], bias: Floats, slack: float) -> FormPair:
    """Sums of forms with weights: their middle times A, plus and minus half their width times |A|."""
    middle: Floats | float = 0.0
    width: Floats | float = 0.0
    reach = np.abs(bias)
    for matrix, form in parts:
        size = np.abs(matrix)
        middle = middle + matrix @ ((form.low + form.high) / 2)
        width = width + size @ ((form.high - form.low) / 2)
        reach = reach + np.maximum(np.abs(form.low), np.abs(form.high)).sum(axis=2) @ size.T
    low, high = np.asarray(middle - width), np.asarray(middle + width)
    lost = slack * reach + TINY
    low[..., 0] += bias - lost
    high[..., 0] += bias + lost
    return FormPair(low, high)


def _end(form: Floats, sign: float) -> Floats:
    reach = np.abs(form[..., 1:]).sum(axis=2)
    room = (form.shape[2] + 8) * UNIT * (reach + np.abs(form[..., 0])) + TINY
    return np.asarray(form[..., 0] + sign * (reach + room))


def _plus(first: Floats, second: Floats, sign: float) -> Floats:
    total = first + second
    total[..., 0] += sign * (FEW * np.abs(total).sum(axis=2) + TINY)
    return np.asarray(total)


def _scaled(form: Floats, slope: Floats, shift: Floats | float, sign: float) -> Floats:
    """`slope · form + shift`, outwards."""
    found = form * slope[..., None]
    size = np.abs(found).sum(axis=2) + np.abs(shift)
    found[..., 0] += shift + sign * (FEW * size + TINY)
    return np.asarray(found)


def _best(choices: list[Floats], sign: float) -> Floats:
    """Of forms that are all true, the one that says most in the middle of the box."""
    best = choices[0]
    for other in choices[1:]:
        best = np.where((sign * other[..., 0] < sign * best[..., 0])[..., None], other, best)
    return best
