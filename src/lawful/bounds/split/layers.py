"""The layers of the search, and how much rounding can change at each.

Layers of slope 1 alone are multiplied into the next (the checker keeps them apart). Matrices with few entries are kept
sparse: those of convolutions, of pooling, of values that skip layers, of the lattices of tllverifybench.

Rounding: every pass takes the row that it *computed* as the definition of the next function and adds up what was lost.
A sum of n products is off by at most n ulp of the sum of their sizes, in any order, so coefficients with a relative
error g on sums of at most `size` change a function by at most `g |row| · size`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lawful.bounds.layers import Layer, Matrix, keep_sparse
from lawful.types import Floats, Indices

ULP = 2.0**-53
TINY = 1e-240  # more than all that underflow loses where no sum exceeds LARGEST: below 1e6 · 2^-1074 · 1e60 a layer
LARGEST = 1e60


class MergedLayers:
    """Matrices, biases and slopes, and where each hidden neuron stands in the network as it was given."""

    def __init__(self, given: tuple[Layer, ...], low: Floats, high: Floats, longest: int) -> None:
        """Merge what is linear; `low` and `high` are the whole box, `longest` counts a case's conditions."""
        self.weights: list[Matrix] = []
        self.biases: list[Floats] = []
        self._sizes: list[tuple[Matrix, Floats, int]] = []  # |W| and |b| before merging, and how many were merged
        slopes: list[Floats] = []
        places: list[Indices] = []
        pending: tuple[Matrix, Floats, Matrix, Floats, int] | None = None
        start, last = 0, len(given) - 1
        for number, layer in enumerate(given):
            weight, bias, count = keep_sparse(layer.weight), layer.bias, 1
            size, shift = abs(weight), np.abs(bias)
            if pending is not None:
                shift = size @ pending[3] + shift
                weight, bias, size, count = (
                    keep_sparse(weight @ pending[0]), weight @ pending[1] + bias, keep_sparse(size @ pending[2]),
                    pending[4] + 1,
                )  # fmt: skip
            linear = number < last and bool((layer.slopes == 1).all())
            pending = (weight, bias, size, shift, count) if linear else None
            if not linear:
                self.weights.append(weight)
                self.biases.append(bias)
                self._sizes.append((size, shift, count))
                slopes.append(layer.slopes)
                places += [np.arange(start, start + len(bias))] * (number < last)
            start += len(bias)
        self.absolute: list[Matrix] = [abs(weight) for weight in self.weights]
        self.depth: int = len(self.weights) - 1  # hidden layers
        self.slopes: list[Floats] = slopes[:-1]
        self.slope: Floats = np.concatenate([*self.slopes, np.zeros(0)])
        self.sizes: list[int] = [len(bias) for bias in self.biases[:-1]]
        self.cuts: Indices = np.cumsum([0, *self.sizes])
        self.count: int = int(self.cuts[-1])
        self.inputs: int = self.weights[0].shape[1]
        self.places: Indices = np.concatenate([*places, np.zeros(0, int)]).astype(np.intp)  # among the neurons as given
        self.given: list[int] = [len(layer.bias) for layer in given[:-1]]
        self.xsize: Floats = np.maximum(np.abs(low), np.abs(high))
        # A dot product of n terms errs by n ulp, two a layer, and a constant passes two additions a layer.
        most = max(longest, *(max(layer.weight.shape) for layer in given))
        self.g: float = 2 * (most + 2 * len(given) + 16) * ULP
        self.scale: Floats = np.ones(self.count)
        self.width: Floats = np.where(high > low, high - low, np.maximum(np.abs(low), 1.0))
        self.simple: tuple[Layer, ...] = tuple(map(Layer, self.weights, self.biases, slopes))
        self.measure(np.full(self.count, np.inf))
        self.is_measured = False  # on the whole box, by more than sums of terms

    def measure(self, known: Floats) -> None:
        """Bound each layer's sums term by term on the whole box, given bounds of hidden sums' sizes."""
        self.most: list[Floats] = []  # |W| |h| + |b|
        self.rough: list[Floats] = []  # what rounding changes, per unit of a coefficient on a sum
        values = self.xsize
        for layer, (size, shift, count) in enumerate(self._sizes):
            self.most.append((size @ values + shift) * 1.01 + TINY)
            self.rough.append(1.01 * self.g * count * self.most[-1])
            if layer < self.depth:
                part = known[self.cuts[layer] : self.cuts[layer + 1]]
                values = np.minimum(self.most[layer], part)
        # Margins are relative to these, so that rescaling a neuron changes nothing.
        largest = np.concatenate([*self.most[:-1], np.zeros(0)])
        self.scale = np.where(np.isfinite(known), np.maximum(known, TINY), largest)
        self.is_measured = True

    @property
    def measurable(self) -> bool:
        """Whether no sum is so large that the account of rounding would fail."""
        return all(bool((size <= LARGEST).all()) for size in self.most)

    def part(self, flat: NDArray[Any], layer: int) -> NDArray[Any]:
        """The columns of one layer, a view."""
        return flat[:, self.cuts[layer] : self.cuts[layer + 1]]
