"""A layered network in floats or in exact rationals, and its exact value at a point."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import flint
import numpy as np
from numpy.typing import ArrayLike, NDArray

from lawful.errors import LawfulError
from lawful.network import Mlp
from lawful.types import Floats

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Stack:
    """`x → W_L σ(… σ(W_1 x + b_1) …) + b_L` whose numbers are all floats, or all exact rationals (`flint.fmpq`).

    Unlike an `Mlp` it always has biases, and a hidden layer may have lost all its neurons.
    """

    weights: tuple[Array, ...]
    biases: tuple[Array, ...]
    slopes: tuple[float, ...]

    @classmethod
    def of(cls, mlp: Mlp, *, exact: bool = False) -> Stack:
        """The same network; with `exact` every float becomes the rational that it is."""
        biases = [
            np.zeros(len(weight)) if bias is None else bias
            for weight, bias in zip(mlp.weights, mlp.biases, strict=True)
        ]
        stack = cls(tuple(np.array(weight) for weight in mlp.weights), tuple(map(np.array, biases)), mlp.slopes)
        return stack.rational() if exact else stack

    def rational(self) -> Stack:
        """Every float as the rational number that it is."""
        if self.exact:
            return self
        return replace(self, weights=tuple(map(rational, self.weights)), biases=tuple(map(rational, self.biases)))

    def floating(self) -> Stack:
        """Every number as the nearest float."""
        return replace(self, weights=tuple(map(floating, self.weights)), biases=tuple(map(floating, self.biases)))

    def to_mlp(self) -> Mlp:
        """As an `Mlp` of floats; a layer without neurons gets one that is always silent."""
        stack = self.floating()
        weights, biases = list(stack.weights), list(stack.biases)
        for layer in range(self.hidden):
            if not len(weights[layer]):
                weights[layer], biases[layer] = np.zeros((1, weights[layer].shape[1])), np.zeros(1)
                weights[layer + 1] = np.zeros((len(weights[layer + 1]), 1))
        return Mlp(weights, biases, self.slopes)

    @property
    def exact(self) -> bool:
        """Whether the numbers are rationals."""
        return self.weights[0].dtype == object

    @property
    def hidden(self) -> int:
        """Number of hidden layers."""
        return len(self.weights) - 1

    @property
    def widths(self) -> tuple[int, ...]:
        """Sizes of all layers, input first."""
        return (self.weights[0].shape[1], *(len(weight) for weight in self.weights))

    def row(self, layer: int) -> Array:
        """`[W_l | b_l]`, with layers counted from 0."""
        return np.concatenate([self.weights[layer], self.biases[layer][:, None]], axis=1)

    def replaced(self, layer: int, weight: Array | None = None, bias: Array | None = None) -> Stack:
        """A copy with one layer's numbers changed."""
        weights, biases = list(self.weights), list(self.biases)
        if weight is not None:
            weights[layer] = weight
        if bias is not None:
            biases[layer] = bias
        return replace(self, weights=tuple(weights), biases=tuple(biases))

    def preactivations(self, inputs: ArrayLike) -> list[Floats]:
        """`W_l h_{l-1} + b_l` of every layer for a batch of floats; the last is the output."""
        stack = self._float
        values = np.asarray(inputs, dtype=np.float64)
        found = []
        for weight, bias, slope in zip(stack.weights, stack.biases, (*self.slopes, 1.0), strict=True):
            summed = values @ weight.T + bias
            found.append(summed)
            values = np.where(summed > 0, summed, slope * summed) if slope != 1.0 else summed
        return found

    def evaluate(self, inputs: ArrayLike) -> Floats:
        """Outputs for a batch of floats."""
        return self.preactivations(inputs)[-1]

    def magnitude(self, inputs: ArrayLike) -> Floats:
        """`|W_L|(…(|W_1||x| + |b_1|)…) + |b_L|`: changes of all L layers by ε move the output by about L ε of it."""
        stack = self._float
        values = np.abs(np.asarray(inputs, dtype=np.float64))
        for weight, bias, slope in zip(stack.weights, stack.biases, (*self.slopes, 1.0), strict=True):
            values = (values @ np.abs(weight).T + np.abs(bias)) * max(1.0, abs(slope))
        return values

    @cached_property
    def _float(self) -> Stack:
        return self.floating() if self.exact else self

    @cached_property
    def _dyadic(self) -> list[tuple[Array, int]]:
        return [_dyadic(self.row(layer)) for layer in range(len(self.weights))]

    def absolute(self) -> Stack:
        """The network of absolute values, whose outputs at `|x|` are the magnitudes (for slopes up to 1)."""
        return replace(self, weights=tuple(map(np.abs, self.weights)), biases=tuple(map(np.abs, self.biases)))

    def exact_outputs(self, point: ArrayLike) -> tuple[Fraction, ...]:
        """The outputs at a point of floats, with no rounding at all.

        >>> Stack.of(Mlp([[[0.1]], [[3.0]]])).exact_outputs([1.0])
        (Fraction(10808639105689191, 36028797018963968),)
        """
        if self.exact:
            return self._rational_outputs(point)
        values, exponent = _dyadic(np.asarray(point, dtype=np.float64))
        for (rows, scale), slope in zip(self._dyadic, (*self.slopes, 1.0), strict=True):
            one = 1 << -exponent if exponent < 0 else 1
            values = values if exponent < 0 else values << exponent
            summed = rows @ np.concatenate([values, np.array([one], dtype=object)])
            exponent = min(exponent, 0) + scale
            if slope != 1.0:
                low, shift = _dyadic(np.array([1.0, slope]))
                summed = np.array([item * low[int(item <= 0)] for item in summed], dtype=object)
                exponent += shift
            values = summed
        return tuple(Fraction(int(item)) * Fraction(2) ** exponent for item in values)

    def _rational_outputs(self, point: ArrayLike) -> tuple[Fraction, ...]:
        values = rational(np.asarray(point, dtype=np.float64))
        for weight, bias, slope in zip(self.weights, self.biases, (*self.slopes, 1.0), strict=True):
            values = weight @ values + bias if weight.shape[1] else bias
            gain = rational(np.array([slope]))[0]
            values = np.array([item if item > 0 else gain * item for item in values], dtype=object)
        return tuple(Fraction(int(item.p), int(item.q)) for item in values)


def rational(array: ArrayLike) -> Array:
    """Floats as the rationals that they are."""
    floats = np.asarray(array, dtype=np.float64)
    found = np.empty(floats.shape, dtype=object)
    found.ravel()[:] = [flint.fmpq(*number.as_integer_ratio()) for number in floats.ravel().tolist()]
    return found


def floating(array: Array) -> Floats:
    """Numbers of either kind as floats."""
    if array.dtype != object:
        return np.asarray(array, dtype=np.float64)
    values = [int(number.p) / int(number.q) for number in array.ravel()]
    return np.array(values, dtype=np.float64).reshape(array.shape)


def row_gaps(ours: Floats, theirs: Floats) -> Floats:
    """How far rows `[w | b]` differ: weights relative to the largest weight, the bias to the larger of both."""
    sizes = np.maximum(np.abs(ours), np.abs(theirs))
    weights = sizes[:, :-1].max(axis=1, initial=0.0)
    biases = np.maximum(weights, sizes[:, -1])
    gaps = np.abs(ours - theirs)
    weight_gap = gaps[:, :-1].max(axis=1, initial=0.0) / np.where(weights > 0, weights, 1.0)
    found = np.maximum(weight_gap, gaps[:, -1] / np.where(biases > 0, biases, 1.0))
    return np.where(np.isfinite(biases), found, np.inf)  # overflow is never agreement


def zeros_like(array: Array, shape: int | tuple[int, ...]) -> Array:
    """Zeros of the same kind of number."""
    return rational(np.zeros(shape)) if array.dtype == object else np.zeros(shape)


def _dyadic(array: Floats) -> tuple[Array, int]:
    """Integers `n` and one exponent `e` with `array = n 2^e`, exactly."""
    mantissa, exponent = np.frexp(array)
    shifts = exponent.astype(np.int64) - 53
    nonzero = array != 0
    if array.size and not np.isfinite(array).all():
        raise LawfulError("exact evaluation needs finite numbers")
    lowest = int(shifts[nonzero].min()) if nonzero.any() else 0
    whole = (mantissa * 2.0**53).astype(np.int64).astype(object)
    return np.left_shift(whole, np.where(nonzero, shifts - lowest, 0).astype(object)), lowest


def check_sizes(stacks: Sequence[Stack]) -> str | None:
    """Why two networks cannot be the same function by their shapes alone, or None."""
    first, second = stacks
    for what, place in (("inputs", 0), ("outputs", -1)):
        if first.widths[place] != second.widths[place]:
            return f"{first.widths[place]} {what} against {second.widths[place]}"
    return None
