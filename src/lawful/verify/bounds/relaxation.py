"""Bounds of the difference of two networks on many boxes at once, in float64, every rounding error bounded here.

Forms go forward (`distance_forms`); for neurons of unknown sign a linear function is substituted backwards through the
layers below. What is computed stays true because of these facts, whatever order a library sums in:

- a sum of n products computed in float64 is off by at most `(n + 1) 2^-53` times the sum of the products' sizes, plus
  what underflow loses, less than 1e-323 a product (Higham, *Accuracy and Stability*, chapter 3; it holds for fused
  multiply-adds, and for any order or blocking, but not for Strassen's algorithm, which no BLAS uses for doubles);
- weights and biases of f, g and their difference are the floats nearest to the exact numbers, so off by 2^-53 of
  themselves;
- if `value >= r · v - error` holds for exact v, then with other coefficients r' in place of r it holds with the error
  enlarged by `|r' - r| · |v|`, and |v| is bounded by intervals known before.

So every step enlarges the error by `slack` times the sizes of all its terms, with a slack of four times what the
facts ask for; that also pays for the roundings of the errors themselves. A NaN or an overflow bounds nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lawful.verify.bounds import forms as forward
from lawful.verify.bounds.layers import Floats, Shared
from lawful.verify.bounds.lines import TINY, UNIT, Ends, Line, Plane, lines, planes

Indices = NDArray[np.intp]
VERSIONS = ("low", "flat", "high")  # of lines below an activation: any slope from its own to 1 serves


class Known(NamedTuple):
    """What is known of a hidden layer, of shape (boxes, neurons)."""

    f: Line
    g: Line
    below: Plane
    above: Plane
    sizes: tuple[Floats, Floats, Floats]


class CentredBoxes(NamedTuple):
    """Centres and radii, (boxes, inputs)."""

    centre: Floats
    radius: Floats


def bounds(layers: Sequence[Shared], centre: Floats, radius: Floats) -> tuple[Floats, Floats]:
    """Lower and upper bounds of every output of `g - f`, of shape (boxes, outputs)."""
    with np.errstate(all="ignore"):
        return _Pass(layers, CentredBoxes(centre, radius)).bounds()


def hidden_ends(layers: Sequence[Shared], centre: Floats, radius: Floats) -> list[Ends]:
    """Intervals of all hidden layers."""
    with np.errstate(all="ignore"):
        walk = _Pass(layers, CentredBoxes(centre, radius))
        walk.bounds()
    return walk.ends


class _Pass:
    """One walk through the layers, with what is known of those below."""

    def __init__(self, layers: Sequence[Shared], boxes: CentredBoxes) -> None:
        self.layers, self.boxes = layers, boxes
        self.known: list[Known] = []
        self.ends: list[Ends] = []
        sizes = [max(layer.W.shape) for layer in layers]
        self.slacks = [2 * (size + len(layers) + 16) * UNIT for size in sizes]
        size = np.abs(boxes.centre) + boxes.radius
        self.entering = [(size, size, np.zeros_like(size))]  # sizes of what enters each layer

    def bounds(self) -> tuple[Floats, Floats]:
        values = forward.inputs(*self.boxes)
        for number, layer in enumerate(self.layers):
            forms = forward.through(layer, values, self.slacks[number], number == 0)
            ends = forward.ends(forms).tightened()
            if number == len(self.layers) - 1:
                return self.outputs(ends)
            if number:
                ends = self.refined(number, ends)
            f, g = lines(ends.y_low, ends.y_high, layer.slopes), lines(ends.z_low, ends.z_high, layer.slopes)
            values = forward.activated(forms, ends, f, g, layer.slopes)
            self.known.append(Known(f, g, *planes(ends, f, g, layer.slopes), ends.sizes))
            self.entering.append(ends.sizes)
            self.ends.append(ends)
        raise AssertionError("a network has at least one layer")

    def refined(self, number: int, ends: Ends) -> Ends:
        """Backward bounds for the neurons of unknown sign."""
        y_low, y_high, z_low, z_high = ends[:4]
        bent = ((y_low < 0) & (y_high > 0)) | ((z_low < 0) & (z_high > 0))
        at, neuron = np.nonzero(bent & (self.layers[number].slopes != 1))
        if not len(at):
            return ends
        rows = np.zeros((2 * len(at), bent.shape[1]))
        rows[np.arange(len(at)), neuron] = 1.0
        rows[len(at) + np.arange(len(at)), neuron] = -1.0
        twice = np.concatenate([at, at])
        found = [
            np.fmax.reduce([self.least(self.alone(which, number, rows, twice, version), twice) for version in VERSIONS])
            for which in (0, 1)
        ]
        found.append(self.least(self.together(number, rows, twice), twice))
        better = [end.copy() for end in ends]
        for which, best in enumerate(found):
            low, high = better[2 * which], better[2 * which + 1]
            low[at, neuron] = np.fmax(low[at, neuron], best[: len(at)])
            high[at, neuron] = np.fmin(high[at, neuron], -best[len(at) :])
        return Ends(*better).tightened()

    def outputs(self, ends: Ends) -> tuple[Floats, Floats]:
        """The best of forms, of substitution through the difference, and of substitution through both networks."""
        boxes, count = ends.d_low.shape
        rows = np.tile(np.concatenate([np.eye(count), -np.eye(count)]), (boxes, 1))
        at = np.repeat(np.arange(boxes), 2 * count)
        last = len(self.layers) - 1
        apart = _added(self.alone(0, last, -rows, at, "low"), self.alone(1, last, rows, at, "low"))
        best = np.fmax(self.least(self.together(last, rows, at), at), self.least(apart, at)).reshape(boxes, 2, count)
        return np.fmax(ends.d_low, best[:, 0]), np.fmin(ends.d_high, -best[:, 1])

    # Rows become functions of the input: (coefficients, constant, error)

    def alone(self, which: int, number: int, rows: Floats, at: Indices, version: str) -> tuple[Floats, Floats, Floats]:
        """From the layer `number` of one network (0 is f, 1 is g)."""
        constant, error = np.zeros(len(rows)), np.zeros(len(rows))
        for layer in range(number, -1, -1):
            matrix, bias = self.layers[layer].matrices[which], self.layers[layer].biases[which]
            constant += rows @ bias
            error += self.lost(layer, rows, [(matrix, self.entering[layer][which])], bias, at)
            rows = rows @ matrix
            if layer:
                below = self.known[layer - 1]
                line, size = (below.f, below.g)[which], below.sizes[which]
                negative = np.minimum(rows, 0.0)
                constant += _dot(negative, line.shift[at])
                error += self.bent(layer, rows, size, line.shift, at) + _underflow(size)[at]
                rows = (rows - negative) * getattr(line, version)[at] + negative * line.high[at]
        return rows, constant, error

    def together(self, number: int, rows: Floats, at: Indices) -> tuple[Floats, Floats, Floats]:
        """From `z - y` at the layer `number`."""
        constant, error = np.zeros(len(rows)), np.zeros(len(rows))
        on_d, on_y = rows, np.zeros_like(rows)
        for layer in range(number, -1, -1):
            here, (h, _, D) = self.layers[layer], self.entering[layer]
            constant += on_d @ here.e + on_y @ here.b
            error += self.lost(layer, on_d, [(here.V, D), (here.E, h)], here.e, at)
            error += self.lost(layer, on_y, [(here.W, h)], here.b, at)
            on_h, on_D = on_d @ here.E + on_y @ here.W, on_d @ here.V
            if not layer:
                return on_h, constant, error
            line, _, below, above, sizes = self.known[layer - 1]
            negative = np.minimum(on_h, 0.0)
            constant += _dot(negative, line.shift[at])
            error += self.bent(layer, on_h, sizes[0], line.shift, at)
            on_y = (on_h - negative) * line.low[at] + negative * line.high[at]
            negative = np.minimum(on_D, 0.0)
            positive = on_D - negative
            constant += _dot(positive, below.shift[at]) + _dot(negative, above.shift[at])
            error += self.bent(layer, positive, below.size, below.shift, at)
            error += self.bent(layer, negative, above.size, above.shift, at)
            error += _underflow(sizes[0] + sizes[2])[at]
            on_d = positive * below.d[at] + negative * above.d[at]
            on_y += positive * below.y[at] + negative * above.y[at]
        raise AssertionError("a network has at least one layer")

    def bent(self, layer: int, rows: Floats, size: Floats, shift: Floats, at: Indices) -> Floats:
        """What an activation's lines may change: few roundings of each coefficient, and a sum of shifts."""
        return np.asarray(_dot(np.abs(rows), (8 * UNIT * size + self.slacks[layer] * np.abs(shift))[at]))

    def lost(
        self, layer: int, rows: Floats, parts: Sequence[tuple[Floats, Floats]], bias: Floats, at: Indices
    ) -> Floats:
        """What multiplying rows by matrices may change, with the sizes of what the matrices are applied to."""
        reach: Any = np.abs(bias)
        least: Any = 0.0
        for matrix, size in parts:
            reach = reach + size @ np.abs(matrix).T
            least = least + _underflow(size)
        return np.asarray(self.slacks[layer] * _dot(np.abs(rows), reach[at]) + least[at])

    def least(self, function: tuple[Floats, Floats, Floats], at: Indices) -> Floats:
        """A lower bound on the row's box; minus infinity where arithmetic failed."""
        rows, constant, error = function
        centre, radius = self.boxes.centre[at], self.boxes.radius[at]
        size = np.abs(rows)
        error = error + self.slacks[0] * (_dot(size, np.abs(centre) + radius) + np.abs(constant)) + TINY
        found = constant + _dot(rows, centre) - _dot(size, radius) - error
        return np.where(np.isfinite(found), found, -np.inf)


def _added(one: tuple[Floats, ...], other: tuple[Floats, ...]) -> tuple[Floats, Floats, Floats]:
    rows, constant, error = (mine + yours for mine, yours in zip(one, other, strict=True))
    return rows, constant, error


def _underflow(size: Floats) -> Floats:
    """What coefficients that underflow may change, of things this large."""
    return np.asarray(TINY * (1.0 + size.sum(axis=1)))


def _dot(first: Floats, second: Floats) -> Floats:
    return np.asarray(np.einsum("rn,rn->r", first, second))
