"""One region of a network in floats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import flint
import numpy as np
from numpy.typing import NDArray

from lawful.fibers.layers import Array, Stack, rational
from lawful.types import Floats, Mask

# The affine functions that neurons compute on one region: floats with a bound on their error, and exact rationals.

UNIT = 2.0**-53  # relative rounding of one operation
TINY = 2.0**-1060  # added to every error: what underflow may lose
KEPT = 4096  # exact maps kept at once
Bits = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class AffineRows:
    """Functions `row·(x, 1)`, a row each; the true coefficients lie within `error` of these."""

    values: Floats
    error: Floats

    def __getitem__(self, chosen: Any) -> AffineRows:
        return AffineRows(self.values[chosen], self.error[chosen])


class AffineMaps:
    """What the layers of a network compute on regions given by activation patterns."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack.floating()
        self.slopes = [stack.bends(layer) for layer in range(stack.hidden)]  # neuron by neuron
        self.sizes = [np.abs(weight) for weight in self.stack.weights]
        inexact = stack.exact
        self.given = UNIT if inexact else 0.0  # rationals were rounded to floats
        self.source = stack
        self._exact: dict[tuple[int, bytes], Array] = {}
        self._rational: dict[int, tuple[Any, Array]] = {}

    def inputs(self) -> AffineRows:
        """The inputs themselves."""
        count = self.stack.widths[0]
        values = np.concatenate([np.eye(count), np.zeros((count, 1))], axis=1)
        return AffineRows(values, np.zeros_like(values))

    def layer(self, number: int, below: AffineRows) -> AffineRows:
        """The preactivations of a layer, given its inputs as functions."""
        weight, size = self.stack.weights[number], self.sizes[number]
        bias = self.stack.biases[number]
        values = weight @ below.values
        values[:, -1] += bias
        if number == 0:  # the inputs themselves: nothing was rounded
            return AffineRows(values, self.given * np.abs(values))
        terms = size @ np.abs(below.values)
        terms[:, -1] += np.abs(bias)
        room = (weight.shape[1] + 6) * UNIT + self.given
        error = room * terms + (1 + 4 * room) * (size @ below.error)
        return AffineRows(values, error + TINY * (error > 0))

    def activate(self, number: int, rows: AffineRows, bits: Bits) -> AffineRows:
        """What the layer passes on where these neurons are active."""
        gain = np.where(bits, 1.0, self.slopes[number])[:, None]
        values = rows.values * gain
        return AffineRows(values, np.abs(gain) * rows.error + np.where(bits[:, None], 0.0, UNIT * np.abs(values)))

    def last(self, sums: AffineRows, pattern: Sequence[Bits]) -> Floats:
        """The outputs, given the sums of the last hidden layer (or the inputs, if there is none)."""
        hidden = self.stack.hidden
        below = self.activate(hidden - 1, sums, pattern[-1]) if hidden else sums
        return self.layer(hidden, below).values

    def exact(self, number: int, pattern: Sequence[Bits]) -> Array:
        """The preactivations of a layer on the region of a pattern of the layers below, as rational rows."""
        key = number, b"".join(bits.tobytes() for bits in pattern[:number])
        if key not in self._exact:
            if len(self._exact) > KEPT:
                self._exact.clear()
            matrix, bias = self._layer(number)
            if number == 0:
                count = self.stack.widths[0]
                below = rational(np.concatenate([np.eye(count), np.zeros((count, 1))], axis=1))
            else:
                below = self.exact(number - 1, pattern)
                gain = rational(np.where(pattern[number - 1], 1.0, self.slopes[number - 1]))
                below = below * gain[:, None]
            shape = len(bias), self.stack.widths[0] + 1
            if len(below):
                product = matrix * flint.fmpq_mat([list(row) for row in below])
                table = np.array(product.tolist(), dtype=object).reshape(shape)
            else:
                table = rational(np.zeros(shape))
            table[:, -1] = table[:, -1] + bias
            self._exact[key] = table
        return self._exact[key]

    def _layer(self, number: int) -> tuple[Any, Array]:
        if number not in self._rational:
            exact = Stack(
                self.source.weights[number : number + 1], self.source.biases[number : number + 1], ()
            ).rational()
            weight = exact.weights[0]
            matrix = flint.fmpq_mat([list(row) for row in weight]) if weight.size else None
            self._rational[number] = matrix, exact.biases[0]
        return self._rational[number]


class OutOfTime(Exception):
    """The time limit ended a search; its caller turns it into *undecided*."""


@dataclass(frozen=True, eq=False)
class Cell:
    """A full-dimensional region: the points with `rows[k]·(x, 1) ≥ 0` for all k, each the row of one hidden neuron.

    `pattern[l]` says which neurons of hidden layer l are active; `matrix x + offset` is the network here; `point` lies
    inside, at distance `radius` from the nearest side. In a box of few inputs the rows are the region's facets, and
    `tight[c, k]` says that corner c lies on facet k.
    """

    pattern: tuple[Bits, ...]
    point: Floats
    radius: float
    rows: Floats
    neurons: tuple[tuple[int, int], ...]
    matrix: Floats
    offset: Floats
    corners: Floats | None = None
    tight: Mask | None = None

    @property
    def key(self) -> bytes:
        """The activation pattern as bytes."""
        return key_of(self.pattern)


def key_of(pattern: tuple[Bits, ...]) -> bytes:
    """An activation pattern as bytes."""
    return np.concatenate(pattern).tobytes() if pattern else b""


def region_rows(maps: AffineMaps, pattern: tuple[Bits, ...]) -> list[Floats]:
    """The preactivations of every layer as functions of the input, turned so that they are not negative here."""
    layers, below = [], maps.inputs()
    for number, bits in enumerate(pattern):
        rows = maps.layer(number, below)
        layers.append(np.where(bits[:, None], rows.values, -rows.values))
        below = maps.activate(number, rows, bits)
    return layers
