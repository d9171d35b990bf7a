"""Bounds by substitution backwards (CROWN): a linear function of a layer becomes one of the input.

A row is a vector of coefficients with the box that it belongs to; rows of many boxes are one matrix, and a lower bound
comes out for each. The first rows are single neurons, so that the layer's own matrix is the first step. Rounding:
replacing exact coefficients by computed ones changes the function by no more than the error of each coefficient times
the size of what it multiplies, which is known for each layer and box (`Roundings`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from lawful.bounds.pair import Layered
from lawful.bounds.planes import ULP, Planes
from lawful.network.relaxation import TINY, Lines
from lawful.types import Floats, Indices


class Box(NamedTuple):
    """Centres and radii of boxes, of shape (boxes, n); the radius is rounded up."""

    centre: Floats
    radius: Floats


class Roundings(NamedTuple):
    """What all roundings of one layer can change, per unit of a row's coefficient: (boxes, neurons) each."""

    f: Floats
    g: Floats
    difference: Floats


class Hidden(NamedTuple):
    """A hidden layer's relaxations, of shape (boxes, neurons)."""

    f: Lines
    g: Lines
    difference: Planes


class Units(NamedTuple):
    """What is to be bounded from below: single neurons of a layer, or their negatives, each on one box."""

    neurons: Indices
    signs: Floats
    at: Indices


class Rows(NamedTuple):
    """Linear functions of the input, one a row: `coefficients · x + constant ± error`."""

    coefficients: Floats
    constant: Floats
    error: Floats

    def least(self, box: Box, at: Indices) -> Floats:
        """A lower bound on the row's box."""
        size = np.abs(self.coefficients)
        centre, radius = box.centre[at], box.radius[at]
        reach = _dot(size, np.abs(centre) + radius) + np.abs(self.constant)
        error = self.error + 8 * (size.shape[-1] + 16) * ULP * reach + TINY
        return np.asarray(self.constant + _dot(self.coefficients, centre) - _dot(size, radius) - error)


def sizes(layer: Layered, below: Hidden | None, box: Box) -> Roundings:
    """Bounds for the roundings at one layer."""
    size_W, size_V, size_E = layer.sizes
    slack = 8 * (max(layer.W.shape) + 16) * ULP
    if below is None:
        h = k = np.abs(box.centre) + box.radius
        D = np.zeros_like(h)
    else:
        h, k, D = below.f.scale, below.g.scale, below.difference.scale
    lost = TINY * (1.0 + (h + k + D).sum(axis=1, keepdims=True))
    f = slack * (h @ size_W.T + np.abs(layer.b)) + lost
    g = slack * (k @ size_V.T + np.abs(layer.c)) + lost
    difference = slack * (D @ size_V.T + h @ size_E.T + np.abs(layer.e)) + h @ layer.doubt.T + layer.shift_doubt + lost
    return Roundings(f, g, difference)


def single(
    weights: list[Floats],
    biases: list[Floats],
    lines: list[Lines],
    rough: list[Floats],
    units: Units,
    versions: tuple[str, ...] = ("low",),
) -> Rows:
    """Pre-activations of the last given layer of one network as rows on its inputs, once for each version of lines."""
    at = units.at
    constant = np.tile(units.signs * biases[-1][units.neurons], (len(versions), 1))
    error = np.tile(rough[-1][at, units.neurons], (len(versions), 1))
    rows = np.tile(units.signs[:, None] * weights[-1][units.neurons], (len(versions), 1, 1))
    for number in range(len(weights) - 2, -1, -1):
        line = lines[number]
        negative = np.minimum(rows, 0.0)
        constant += _dot(negative, line.shift[at])
        rows -= negative
        for which, version in enumerate(versions):
            rows[which] *= getattr(line, version)[at]
        negative *= line.high[at]
        rows += negative
        constant += rows @ biases[number]
        error += _dot(np.abs(rows, out=negative), rough[number][at])
        rows = rows @ weights[number]
    return Rows(rows, constant, error)


def paired(
    layers: Sequence[Layered],
    hidden: list[Hidden],
    rough: list[Roundings],
    units: Units,
    heard: list[Floats] | None = None,
) -> Rows:
    """Differences `z − y` at the last given layer as rows on the inputs; `heard` gets each hidden layer's share."""
    at, last = units.at, layers[-1]
    constant, error = units.signs * last.e[units.neurons], rough[-1].difference[at, units.neurons]
    on_h, on_D = (units.signs[:, None] * matrix[units.neurons] for matrix in (last.E, last.V))
    for number in range(len(layers) - 2, -1, -1):
        if heard is not None:
            heard.append(np.abs(on_h) + np.abs(on_D))
        layer, line, plane = layers[number], hidden[number].f, hidden[number].difference
        negative = np.minimum(on_h, 0.0)
        constant += _dot(negative, line.shift[at])
        on_h -= negative
        on_h *= line.low[at]
        negative *= line.high[at]
        on_y = on_h
        on_y += negative
        negative = np.minimum(on_D, 0.0, out=negative)
        on_D -= negative
        constant += _dot(on_D, plane.low_shift[at]) + _dot(negative, plane.high_shift[at])
        on_y += on_D * plane.low_y[at]
        on_y += negative * plane.high_y[at]
        on_D *= plane.low_d[at]
        negative *= plane.high_d[at]
        on_d = on_D
        on_d += negative
        constant += on_d @ layer.e + on_y @ layer.b
        error += _dot(np.abs(on_d, out=negative), rough[number].difference[at])
        on_h, on_D = on_d @ layer.E + on_y @ layer.W, on_d @ layer.V
        error += _dot(np.abs(on_y, out=negative), rough[number].f[at])
    return Rows(on_h, constant, error)


def both(layers: Sequence[Layered], hidden: list[Hidden], rough: list[Roundings], units: Units) -> Rows:
    """Differences `z − y` at the outputs as rows on the inputs, through the two networks separately."""
    against = units._replace(signs=-units.signs)
    f = single([a.W for a in layers], [a.b for a in layers], [a.f for a in hidden], [a.f for a in rough], against)
    g = single([a.V for a in layers], [a.c for a in layers], [a.g for a in hidden], [a.g for a in rough], units)
    return Rows(*(mine[0] + yours[0] for mine, yours in zip(f, g, strict=True)))


def _dot(first: Floats, second: Floats) -> Floats:
    return np.asarray(np.einsum("...rn,rn->...r", first, second))
