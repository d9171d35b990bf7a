"""Bounds of the difference of two networks on many boxes at once, in float64, every rounding error bounded here.

Idea: intervals go forward; for neurons of unknown sign a linear function is substituted backwards through the layers
below, each activation replaced by a line, each difference by a plane. An activation φ has slope 1 on the right of
0 and one from 0 to 1 on the left: it is convex, so that a line above it at both ends of an interval is above it in
between, and it never rises faster than the identity. Cost: one pass backwards for every neuron of unknown sign.

What is computed stays true because of these facts, whatever order a library sums in:

- a sum of n products computed in float64 is off by at most `(n + 1) 2^-53` times the sum of the products' sizes, plus
  what underflow loses, less than 1e-323 a product (Higham, *Accuracy and Stability*, chapter 3; it holds for fused
  multiply-adds, and for any order or blocking, but not for Strassen's algorithm, which no BLAS uses for doubles);
- weights and biases of f are exact, those of g and of the difference off by at most five roundings and by what `pair`
  doubts; where one underflowed it is off by less than TINY;
- if `value >= r · v - error` holds for exact v, then with other coefficients r' in place of r it holds with the error
  enlarged by `|r' - r| · |v|`, and |v| is bounded by intervals known before.

So every step enlarges the error by `slack` times the sizes of all its terms, with a slack of four times what the
facts ask for; that also pays for the roundings of the errors themselves. TINY is added to what is lost *per unit of a
coefficient*: coefficients may be as large as doubles are, and what underflowed beside them is not small then. A NaN or
an overflow bounds nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from lawful.verify.bounds.network import Floats, Indices
from lawful.verify.bounds.pair import TINY, Shared

# A unit in the last place: twice the largest relative error of one rounding, so each slack below is doubled.
UNIT = 2.0**-52
VERSIONS = ("low", "flat", "high")  # of lines below an activation: any slope from its own to 1 serves


class Ends(NamedTuple):
    """Intervals of y (a neuron of f), z (of g) and `d = z - y`, of shape (boxes, neurons)."""

    y_low: Floats
    y_high: Floats
    z_low: Floats
    z_high: Floats
    d_low: Floats
    d_high: Floats

    def tighten(self) -> Ends:
        """Each interval cut by what the others say; an end that is NaN or on the wrong side of infinity is none."""
        y_low, z_low, d_low = (np.where(end < np.inf, end, -np.inf) for end in self[::2])
        y_high, z_high, d_high = (np.where(end > -np.inf, end, np.inf) for end in self[1::2])
        d_low, d_high = np.fmax(d_low, _down(z_low - y_high)), np.fmin(d_high, _up(z_high - y_low))
        y_low, y_high = np.fmax(y_low, _down(z_low - d_high)), np.fmin(y_high, _up(z_high - d_low))
        z_low, z_high = np.fmax(z_low, _down(y_low + d_low)), np.fmin(z_high, _up(y_high + d_high))
        return Ends(y_low, y_high, z_low, z_high, d_low, d_high)

    @property
    def sizes(self) -> tuple[Floats, Floats, Floats]:
        """The largest |y|, |z| and |d|."""
        y, z, d = (np.maximum(np.abs(low), np.abs(high)) for low, high in zip(self[::2], self[1::2], strict=True))
        return y, z, d

    def activate(self, slopes: Floats) -> Ends:
        """Intervals of φ(y), φ(z) and their difference, which is d times a slope between φ's two."""
        on, off = (self.y_low >= 0) & (self.z_low >= 0), (self.y_high <= 0) & (self.z_high <= 0)
        least, most = np.where(on, 1.0, slopes), np.where(off, slopes, 1.0)
        h_low, k_low = (_down(np.where(end > 0, end, slopes * end)) for end in (self.y_low, self.z_low))
        h_high, k_high = (_up(np.where(end > 0, end, slopes * end)) for end in (self.y_high, self.z_high))
        d_low = _down(np.where(self.d_low < 0, most, least) * self.d_low)
        d_high = _up(np.where(self.d_high > 0, most, least) * self.d_high)
        d_low, d_high = np.fmax(d_low, _down(k_low - h_high)), np.fmin(d_high, _up(k_high - h_low))
        return Ends(h_low, h_high, k_low, k_high, d_low, d_high)


class Line(NamedTuple):
    """`low · v <= φ(v)` (also with `flat`), and `φ(v) <= high · v + shift`."""

    low: Floats
    flat: Floats
    high: Floats
    shift: Floats


class Plane(NamedTuple):
    """A plane `d · (z - y) + y · y + shift`."""

    d: Floats
    y: Floats
    shift: Floats


def lines(low: Floats, high: Floats, slopes: Floats) -> Line:
    """Any slope from φ's to 1 gives a line below; above, any slope with the shift that both ends need."""
    loose = (low < 0) & (high > 0) & (slopes != 1)
    settled = np.where(low >= 0, 1.0, slopes)
    steep = np.clip((high - slopes * low) / np.where(loose, high - low, 1.0), slopes, 1.0)
    needed = np.maximum((slopes - steep) * low, (1.0 - steep) * high)
    return Line(
        np.where(loose & (high > -low), 1.0, np.where(loose, slopes, settled)),
        np.where(loose, slopes, settled),
        np.where(loose, steep, settled),
        np.where(loose, needed * (1 + 16 * UNIT) + TINY, 0.0),
    )


def planes(known: Ends, f: Line, g: Line, slopes: Floats) -> tuple[Plane, Plane]:
    """Planes below and above `φ(z) - φ(y)`, which is at most `φ(d)`, and at most a line for z less one for y."""
    rise, fall = lines(known.d_low, known.d_high, slopes), lines(-known.d_high, -known.d_low, slopes)
    zero = np.zeros_like(rise.high)
    below = _better(known, Plane(g.low, g.low - f.high, -f.shift), Plane(fall.high, zero, -fall.shift), -1.0)
    above = _better(known, Plane(g.high, g.high - f.low, g.shift), Plane(rise.high, zero, rise.shift), 1.0)
    return below, above


def _better(known: Ends, one: Plane, other: Plane, sign: float) -> Plane:
    """Of two true planes the one that says more in the middle."""
    d, y = (known.d_low + known.d_high) / 2, (known.y_low + known.y_high) / 2
    here, there = (sign * (plane.d * d + plane.y * y + plane.shift) for plane in (one, other))
    return Plane(*(np.where(there < here, theirs, ours) for ours, theirs in zip(one, other, strict=True)))


class RelaxedLayer(NamedTuple):
    """The lines and planes of a hidden layer, and what rounding changes at each per unit of a coefficient."""

    alone: tuple[Line, Line]  # of f, of g
    below: Plane
    above: Plane
    rough: tuple[Floats, Floats]
    rough_below: Floats
    rough_above: Floats


class LinearRows(NamedTuple):
    """`coefficients · x + constant - error`, at most the function that it stands for."""

    coefficients: Floats
    constant: Floats
    error: Floats


def bounds(layers: Sequence[Shared], centre: Floats, radius: Floats) -> tuple[Floats, Floats]:
    """Lower and upper bounds of every output of `g - f`, of shape (boxes, outputs)."""
    with np.errstate(all="ignore"):
        return _Pass(layers, centre, radius).bounds()


def hidden_ends(layers: Sequence[Shared], centre: Floats, radius: Floats) -> list[Ends]:
    """Intervals of all hidden layers."""
    with np.errstate(all="ignore"):
        walk = _Pass(layers, centre, radius)
        walk.bounds()
    return walk.ends


class _Pass:
    """One walk through the layers, with what is known of those below."""

    def __init__(self, layers: Sequence[Shared], centre: Floats, radius: Floats) -> None:
        self.layers, self.centre, self.radius = layers, centre, radius
        self.ends: list[Ends] = []
        self.hidden: list[RelaxedLayer] = []
        self.rough: list[tuple[Floats, Floats, Floats]] = []  # what a layer's products change: of f, g, difference
        self.slacks = [2 * (max(layer.W.shape) + len(layers) + 16) * UNIT for layer in layers]
        self.underflow = np.full(len(centre), TINY)  # of coefficients, times what they act on, in all layers so far

    def bounds(self) -> tuple[Floats, Floats]:
        low, high = _down(self.centre - self.radius), _up(self.centre + self.radius)
        entering = Ends(low, high, low, high, np.zeros_like(low), np.zeros_like(low))
        for number, layer in enumerate(self.layers):
            ends = self.sums(number, entering).tighten()
            if number == len(self.layers) - 1:
                return self.outputs(ends)
            if number:
                ends = self.refine(number, ends)
            self.ends.append(ends)
            self.hidden.append(self.relax(number, ends))
            entering = ends.activate(layer.slopes)
        raise AssertionError("a network has at least one layer")

    def sums(self, number: int, entering: Ends) -> Ends:
        """Intervals of sums from what enters, `z - y` as `V (k - h) + E h + e`, and what products may lose there."""
        layer, slack = self.layers[number], self.slacks[number]
        (h, h_width), (k, k_width), (d, d_width) = (
            (low / 2 + high / 2, high / 2 - low / 2) for low, high in zip(entering[::2], entering[1::2], strict=True)
        )
        W, V, E = (np.abs(matrix).T for matrix in (layer.W, layer.V, layer.E))
        h_size, k_size, d_size = entering.sizes
        tiny = TINY * (8 + (h_size + k_size + d_size).sum(axis=1))
        self.underflow = self.underflow + tiny
        self.rough.append((
            slack * (h_size @ W + np.abs(layer.b)) + tiny[:, None],
            slack * (k_size @ V + np.abs(layer.c)) + tiny[:, None],
            slack * (d_size @ V + h_size @ E + np.abs(layer.e)) + tiny[:, None]
            + 2 * (h_size @ layer.doubt.T + layer.shift_doubt),
        ))  # fmt: skip
        middles = h @ layer.W.T + layer.b, k @ layer.V.T + layer.c, d @ layer.V.T + h @ layer.E.T + layer.e
        widths = h_width @ W, k_width @ V, d_width @ V + h_width @ E
        ends = [
            middle + sign * (width + rough)
            for middle, width, rough in zip(middles, widths, self.rough[number], strict=True)
            for sign in (-1.0, 1.0)
        ]
        return Ends(*ends)

    def relax(self, number: int, ends: Ends) -> RelaxedLayer:
        """Lines and planes, and what rounding their coefficients and summing their shifts may lose."""
        slopes, slack = self.layers[number].slopes, self.slacks[number]
        f, g = lines(ends.y_low, ends.y_high, slopes), lines(ends.z_low, ends.z_high, slopes)
        below, above = planes(ends, f, g, slopes)
        y, z, d = ends.sizes
        self.underflow = self.underflow + TINY * (8 + 2 * (y + z + d).sum(axis=1))
        rough_f, rough_g = (8 * UNIT * size + slack * line.shift + TINY for size, line in ((y, f), (z, g)))
        rough_below, rough_above = (
            8 * UNIT * (np.abs(plane.d) * d + np.abs(plane.y) * y) + 2 * slack * np.abs(plane.shift) + TINY
            for plane in (below, above)
        )
        return RelaxedLayer((f, g), below, above, (rough_f, rough_g), rough_below, rough_above)

    def refine(self, number: int, ends: Ends) -> Ends:
        """Backward bounds for the neurons of unknown sign."""
        loose = ((ends.y_low < 0) & (ends.y_high > 0)) | ((ends.z_low < 0) & (ends.z_high > 0))
        at, neuron = np.nonzero(loose & (self.layers[number].slopes != 1))
        if not len(at):
            return ends
        rows = np.zeros((2 * len(at), loose.shape[1]))
        rows[np.arange(len(at)), neuron] = 1.0
        rows[len(at) + np.arange(len(at)), neuron] = -1.0
        twice = np.concatenate([at, at])
        bests = [
            np.fmax.reduce([self.least(self.alone(which, number, rows, twice, version), twice) for version in VERSIONS])
            for which in (0, 1)
        ]
        bests.append(self.least(self.together(number, rows, twice), twice))
        better = [end.copy() for end in ends]
        for which, best in enumerate(bests):
            low, high = better[2 * which], better[2 * which + 1]
            low[at, neuron] = np.fmax(low[at, neuron], best[: len(at)])
            high[at, neuron] = np.fmin(high[at, neuron], -best[len(at) :])
        return Ends(*better).tighten()

    def outputs(self, ends: Ends) -> tuple[Floats, Floats]:
        """The best of intervals, of substitution through the difference, and of substitution through both networks."""
        boxes, count = ends.d_low.shape
        rows = np.tile(np.concatenate([np.eye(count), -np.eye(count)]), (boxes, 1))
        at = np.repeat(np.arange(boxes), 2 * count)
        last = len(self.layers) - 1
        f, g = self.alone(0, last, -rows, at, "low"), self.alone(1, last, rows, at, "low")
        apart = LinearRows(*(mine + yours for mine, yours in zip(f, g, strict=True)))
        best = np.fmax(self.least(self.together(last, rows, at), at), self.least(apart, at)).reshape(boxes, 2, count)
        return np.fmax(ends.d_low, best[:, 0]), np.fmin(ends.d_high, -best[:, 1])

    def alone(self, which: int, number: int, rows: Floats, at: Indices, version: str) -> LinearRows:
        """Rows on the sums of the layer `number` of one network (0 is f, 1 is g)."""
        constant, error = np.zeros(len(rows)), np.zeros(len(rows))
        for layer in range(number, -1, -1):
            here = self.layers[layer]
            constant += rows @ here.biases[which]
            error += _dot(np.abs(rows), self.rough[layer][which][at])
            rows = rows @ here.matrices[which]
            if layer:
                line, rough = self.hidden[layer - 1].alone[which], self.hidden[layer - 1].rough[which]
                negative = np.minimum(rows, 0.0)
                constant += _dot(negative, line.shift[at])
                error += _dot(np.abs(rows), rough[at])
                rows = (rows - negative) * getattr(line, version)[at] + negative * line.high[at]
        return LinearRows(rows, constant, error)

    def together(self, number: int, rows: Floats, at: Indices) -> LinearRows:
        """Rows on the differences `z - y` of the layer `number`."""
        constant, error = np.zeros(len(rows)), np.zeros(len(rows))
        on_d, on_y = rows, np.zeros_like(rows)
        for layer in range(number, -1, -1):
            here, (rough_y, _, rough_d) = self.layers[layer], self.rough[layer]
            constant += on_d @ here.e + on_y @ here.b
            error += _dot(np.abs(on_d), rough_d[at]) + _dot(np.abs(on_y), rough_y[at])
            on_h, on_D = on_d @ here.E + on_y @ here.W, on_d @ here.V
            if not layer:
                break
            (line, _), below, above, rough, rough_below, rough_above = self.hidden[layer - 1]
            negative = np.minimum(on_h, 0.0)
            constant += _dot(negative, line.shift[at])
            error += _dot(np.abs(on_h), rough[0][at])
            on_y = (on_h - negative) * line.low[at] + negative * line.high[at]
            negative = np.minimum(on_D, 0.0)
            positive = on_D - negative
            constant += _dot(positive, below.shift[at]) + _dot(negative, above.shift[at])
            error += _dot(positive, rough_below[at]) - _dot(negative, rough_above[at])
            on_d = positive * below.d[at] + negative * above.d[at]
            on_y += positive * below.y[at] + negative * above.y[at]
        return LinearRows(on_h, constant, error)

    def least(self, function: LinearRows, at: Indices) -> Floats:
        """A lower bound on the row's box; minus infinity where arithmetic failed."""
        rows, constant, error = function
        centre, radius, size = self.centre[at], self.radius[at], np.abs(rows)
        error = error + self.slacks[0] * (_dot(size, np.abs(centre) + radius) + np.abs(constant)) + self.underflow[at]
        bound = constant + _dot(rows, centre) - _dot(size, radius) - error
        return np.where(np.isfinite(bound), bound, -np.inf)


def _dot(first: Floats, second: Floats) -> Floats:
    return np.asarray(np.einsum("rn,rn->r", first, second))


def _down(values: Floats) -> Floats:
    return np.nextafter(values, -np.inf)


def _up(values: Floats) -> Floats:
    return np.nextafter(values, np.inf)
