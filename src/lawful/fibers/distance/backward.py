"""Bounds by substitution backwards (CROWN): a linear function of a layer becomes one of the input.

A row is a vector of coefficients with the box that it belongs to; rows of many boxes are one matrix, and a lower bound
comes out for each. Rounding: replacing exact coefficients by computed ones changes the function by no more than the
error of each coefficient times the size of what it multiplies, which is known for each layer and box (`Roundings`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lawful.fibers.distance.pair import Layered, NetworkPair
from lawful.fibers.distance.relaxations import ULP, Planes
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


class Rows(NamedTuple):
    """Linear functions of the input, one a row: `coefficients · x + constant ± error`."""

    coefficients: Floats
    constant: Floats
    error: Floats

    def plus(self, other: Rows) -> Rows:
        """The sum, row by row."""
        return Rows(*(mine + yours for mine, yours in zip(self, other, strict=True)))

    def least(self, box: Box, at: Indices) -> Floats:
        """A lower bound on the row's box."""
        size = np.abs(self.coefficients)
        centre, radius = box.centre[at], box.radius[at]
        reach = _dot(size, np.abs(centre) + radius) + np.abs(self.constant)
        error = self.error + 8 * (size.shape[1] + 16) * ULP * reach + TINY
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
    rows: Floats,
    at: Indices,
    version: str = "low",
) -> Rows:
    """Rows on the pre-activations of the last given layer of one network, as rows on its inputs."""
    constant, error = np.zeros(len(rows)), np.zeros(len(rows))
    for number in range(len(weights) - 1, -1, -1):
        constant += rows @ biases[number]
        error += _dot(np.abs(rows), rough[number][at])
        rows = rows @ weights[number]
        if number:
            line = lines[number - 1]
            negative = np.minimum(rows, 0.0)
            constant += _dot(negative, line.shift[at])
            rows = (rows - negative) * getattr(line, version)[at] + negative * line.high[at]
    return Rows(rows, constant, error)


def paired(
    layers: tuple[Layered, ...], hidden: list[Hidden], rough: list[Roundings], rows: Floats, at: Indices
) -> Rows:
    """Rows on `z − y` at the last given layer, as rows on the inputs."""
    constant, error = np.zeros(len(rows)), np.zeros(len(rows))
    on_d, on_y = rows, np.zeros((0, 0))
    for number in range(len(layers) - 1, -1, -1):
        layer = layers[number]
        constant += on_d @ layer.e
        error += _dot(np.abs(on_d), rough[number].difference[at])
        on_h, on_D = on_d @ layer.E, on_d @ layer.V
        if on_y.size:
            constant += on_y @ layer.b
            error += _dot(np.abs(on_y), rough[number].f[at])
            on_h += on_y @ layer.W
        if not number:
            return Rows(on_h, constant, error)
        line, plane = hidden[number - 1].f, hidden[number - 1].difference
        negative = np.minimum(on_h, 0.0)
        constant += _dot(negative, line.shift[at])
        on_y = (on_h - negative) * line.low[at] + negative * line.high[at]
        negative = np.minimum(on_D, 0.0)
        positive = on_D - negative
        constant += _dot(positive, plane.low_shift[at]) + _dot(negative, plane.high_shift[at])
        on_d = positive * plane.low_d[at] + negative * plane.high_d[at]
        on_y += positive * plane.low_y[at] + negative * plane.high_y[at]
    raise AssertionError("a pair has at least one layer")


def both(pair: NetworkPair, hidden: list[Hidden], rough: list[Roundings], rows: Floats, at: Indices) -> Rows:
    """Rows on `z − y` at the outputs through the two networks separately."""
    layers = pair.layers
    f = single([a.W for a in layers], [a.b for a in layers], [a.f for a in hidden], [a.f for a in rough], -rows, at)
    g = single([a.V for a in layers], [a.c for a in layers], [a.g for a in hidden], [a.g for a in rough], rows, at)
    return f.plus(g)


def _dot(first: Floats, second: Floats) -> Floats:
    return np.asarray(np.einsum("rn,rn->r", first, second))
