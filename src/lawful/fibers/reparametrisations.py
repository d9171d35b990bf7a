"""Changes of parameters that keep the function, each with the condition under which it does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from lawful.errors import CertificateError, LawfulError
from lawful.fibers.layers import Array, Stack, floating, rational
from lawful.fibers.regions.domain import Domain
from lawful.fibers.row_matching import entry_gap
from lawful.network import Mlp


class SymmetryStep(Protocol):
    """One change of parameters; `layer` counts hidden layers from 1."""

    @property
    def layer(self) -> int:
        """The hidden layer it changes."""

    def apply(self, stack: Stack, tolerance: float = 0.0) -> Stack:
        """The changed network, or `CertificateError` if the function might not be kept."""


@dataclass(frozen=True)
class Reorder:
    """Neuron `order[k]` becomes neuron k."""

    layer: int
    order: tuple[int, ...]

    def apply(self, stack: Stack, tolerance: float = 0.0) -> Stack:
        """Permute rows below and columns above."""
        order = list(self.order)
        if sorted(order) != list(range(_width(stack, self.layer))):
            raise CertificateError(f"layer {self.layer}: not an order of its {_width(stack, self.layer)} neurons")
        return _rewire(stack, self.layer, stack.row(self.layer - 1)[order], stack.weights[self.layer][:, order])


@dataclass(frozen=True)
class Rescale:
    """Neuron k times `factors[k] > 0`, its outgoing weights divided by it."""

    layer: int
    factors: tuple[Any, ...]

    def apply(self, stack: Stack, tolerance: float = 0.0) -> Stack:
        """Scale rows below and columns above."""
        factors = _numbers(stack, self.factors)
        if len(factors) != _width(stack, self.layer) or not all(factor > 0 for factor in factors):
            raise CertificateError(f"layer {self.layer}: rescaling needs one positive factor per neuron")
        rows = stack.row(self.layer - 1) * factors[:, None]
        return _rewire(stack, self.layer, rows, stack.weights[self.layer] / factors)


@dataclass(frozen=True)
class Drop:
    """Remove a neuron that is silent, ignored, or constant (its constant moves into the next bias)."""

    layer: int
    neuron: int

    def apply(self, stack: Stack, tolerance: float = 0.0) -> Stack:
        """Delete the neuron if one of the three reasons holds."""
        row, out = stack.row(self.layer - 1)[self.neuron], stack.weights[self.layer][:, self.neuron]
        bias = stack.biases[self.layer]
        if all(item == 0 for item in row[:-1]):
            slope = stack.slopes[self.layer - 1]
            gain = rational(np.array([slope]))[0] if stack.exact else slope
            bias = bias + out * (row[-1] if row[-1] > 0 else gain * row[-1])
        elif not (all(item == 0 for item in out) or is_silent(stack, self.layer, self.neuron)):
            raise CertificateError(f"layer {self.layer}: neuron {self.neuron} cannot be dropped, it is active")
        rows = np.delete(stack.row(self.layer - 1), self.neuron, axis=0)
        columns = np.delete(stack.weights[self.layer], self.neuron, axis=1)
        return _rewire(stack, self.layer, rows, columns).with_layer(self.layer, bias=bias)


@dataclass(frozen=True)
class Quiet:
    """Remove a ReLU neuron that intervals show to be inactive on the whole box `low ≤ x ≤ high`."""

    layer: int
    neuron: int
    low: tuple[float, ...]
    high: tuple[float, ...]

    def apply(self, stack: Stack, tolerance: float = 0.0) -> Stack:
        """Delete the neuron if the upper bound of its preactivation is negative."""
        if self.neuron not in quiet_neurons(stack, self.layer, self.low, self.high):
            raise CertificateError(f"layer {self.layer}: neuron {self.neuron} may be active on the box")
        rows = np.delete(stack.row(self.layer - 1), self.neuron, axis=0)
        return _rewire(stack, self.layer, rows, np.delete(stack.weights[self.layer], self.neuron, axis=1))


@dataclass(frozen=True)
class Merge:
    """Remove neuron `drop`, whose row is a positive multiple of the row of neuron `keep`."""

    layer: int
    keep: int
    drop: int

    def apply(self, stack: Stack, tolerance: float = 0.0) -> Stack:
        """Let `keep` speak for `drop`."""
        rows, outs = stack.row(self.layer - 1), stack.weights[self.layer].copy()
        pivot = int(np.argmax(np.abs(floating(rows[self.keep]))))
        factor = rows[self.drop][pivot] / rows[self.keep][pivot]
        ours, theirs = rows[self.drop], factor * rows[self.keep]
        alike = (ours == theirs).all() if stack.exact else entry_gap(ours, theirs) <= 2 * tolerance
        if self.keep == self.drop or not factor > 0 or not alike:
            raise CertificateError(f"layer {self.layer}: neurons {self.keep} and {self.drop} are not multiples")
        outs[:, self.keep] = outs[:, self.keep] + factor * outs[:, self.drop]
        return _rewire(stack, self.layer, np.delete(rows, self.drop, axis=0), np.delete(outs, self.drop, axis=1))


@dataclass(frozen=True)
class Collapse:
    """Remove a hidden layer that is linear: by its activation, or because nothing that it sees or adds is negative."""

    layer: int

    def apply(self, stack: Stack, tolerance: float = 0.0) -> Stack:
        """Multiply the matrices on both sides."""
        at = self.layer - 1
        if not is_linear(stack, self.layer):
            raise CertificateError(f"layer {self.layer} is not linear")
        weight = stack.weights[at + 1] @ stack.weights[at]
        bias = stack.weights[at + 1] @ stack.biases[at] + stack.biases[at + 1]
        return Stack(
            (*stack.weights[:at], weight, *stack.weights[at + 2 :]),
            (*stack.biases[:at], bias, *stack.biases[at + 2 :]),
            (*stack.slopes[:at], *stack.slopes[at + 1 :]),
        )


@dataclass(frozen=True)
class Translate:
    """Move a hidden hyperplane: `b_l[i] += t`, `b_{l+1}[j] −= t W_{l+1}[j, i]` (P4 Section 5, Lemma 5)."""

    layer: int
    neuron: int
    shift: Any

    def apply(self, stack: Stack, tolerance: float = 0.0) -> Stack:
        """Shift, if the next layer hides the neuron before and after."""
        if not hides(stack, self.layer, self.neuron):
            raise CertificateError(f"layer {self.layer + 1} does not hide neuron {self.neuron} of the layer below")
        shift = _numbers(stack, (self.shift,))[0]
        below = stack.biases[self.layer - 1].copy()
        below[self.neuron] = below[self.neuron] + shift
        above = stack.biases[self.layer] - shift * stack.weights[self.layer][:, self.neuron]
        if any(item > 0 for item in above):
            raise CertificateError(f"a shift by {float(floating(np.array([shift]))[0]):g} uncovers the hidden neuron")
        return stack.with_layer(self.layer - 1, bias=below).with_layer(self.layer, bias=above)


@dataclass(frozen=True)
class Flip:
    """Reverse the neurons `flipped` below a single neuron that hides neuron i: the group `F_S` (P4 Section 5).

    With weights `W_{l+1}[0, i] = 1` and −1 elsewhere, `F_S = I − Σ_{k∈S} (2 e_k e_kᵀ + e_i e_kᵀ)` acts on `(W_l, b_l)`.
    """

    layer: int
    neuron: int
    flipped: tuple[int, ...]

    def apply(self, stack: Stack, tolerance: float = 0.0) -> Stack:
        """Reverse each flipped row and subtract it, in the scale that the neuron above sees, from the hidden one."""
        above = stack.weights[self.layer]
        if len(above) != 1 or not hides(stack, self.layer, self.neuron) or self.neuron in self.flipped:
            raise CertificateError(f"flips need one neuron above layer {self.layer} that hides neuron {self.neuron}")
        rows = stack.row(self.layer - 1).copy()
        for k in self.flipped:
            rows[self.neuron] = rows[self.neuron] + rows[k] * above[0, k] / above[0, self.neuron]
            rows[k] = -rows[k]
        return _rewire(stack, self.layer, rows, above)


def hides(stack: Stack, layer: int, neuron: int) -> bool:
    """Whether every neuron above gives `neuron` a positive weight, all others and its bias none (P4 Definition 3)."""
    above, bias = stack.weights[layer], stack.biases[layer]
    if layer >= len(stack.weights) - 1 or not len(above) or stack.slopes[layer - 1 : layer + 1] != (0.0, 0.0):
        return False
    others = np.delete(above, neuron, axis=1)
    return bool((above[:, neuron] > 0).all() and (others <= 0).all() and (bias <= 0).all())


def is_linear(stack: Stack, layer: int) -> bool:
    """Whether a layer's activation does nothing."""
    if stack.slopes[layer - 1] == 1.0:
        return True
    return layer >= 2 and stack.slopes[layer - 2] == 0.0 and bool((stack.row(layer - 1) >= 0).all())


def is_silent(stack: Stack, layer: int, neuron: int) -> bool:
    """Whether a ReLU neuron that sees only nonnegative values can never be active: all weights and bias ≤ 0."""
    if layer < 2 or stack.slopes[layer - 2] != 0.0 or stack.slopes[layer - 1] != 0.0:
        return False
    return bool((stack.row(layer - 1)[neuron] <= 0).all())


def quiet_neurons(stack: Stack, layer: int, low: Sequence[float], high: Sequence[float]) -> list[int]:
    """The neurons of a ReLU layer whose preactivations stay negative on a box, by interval arithmetic."""
    if stack.slopes[layer - 1] != 0.0:
        return []
    domain = Domain(np.array(low), np.array(high))
    for below in range(layer - 1):
        domain = domain.through(stack.row(below), stack.slopes[below])
    upper = domain.through(stack.row(layer - 1), 1.0).high
    return [int(k) for k in np.flatnonzero(upper < 0)]


def translate(network: Mlp, neuron: int, shift: float, *, layer: int = 1) -> Mlp:
    """The network with a hidden hyperplane moved by `shift`; the same function (P4 Section 5).

    >>> network = Mlp([[[1.0, 0.0], [0.0, 1.0]], [[1.0, -1.0]], [[2.0]]], [[0.0, 0.0], [-1.0], [0.0]])
    >>> translate(network, 0, 0.5).biases[:2]
    (array([0.5, 0. ]), array([-1.5]))
    """
    return _public(network, Translate(layer, neuron, float(shift)))


def flip(network: Mlp, neuron: int, flipped: tuple[int, ...], *, layer: int = 1) -> Mlp:
    """The network with some first-layer neurons reversed and the hidden one adjusted; the same function (P4 Section 5).

    >>> network = Mlp([[[1.0, 0.0], [0.0, 1.0]], [[1.0, -1.0]], [[2.0]]], [[0.0, 0.0], [-1.0], [0.0]])
    >>> flip(network, 0, (1,)).weights[0]
    array([[ 1., -1.],
           [-0., -1.]])
    """
    return _public(network, Flip(layer, neuron, tuple(flipped)))


def _public(network: Mlp, step: SymmetryStep) -> Mlp:
    try:
        return step.apply(Stack.of(network)).to_mlp()
    except CertificateError as error:
        raise LawfulError(str(error)) from None


def _width(stack: Stack, layer: int) -> int:
    if not 1 <= layer <= stack.hidden:
        raise CertificateError(f"there is no hidden layer {layer}")
    return len(stack.weights[layer - 1])


def _rewire(stack: Stack, layer: int, rows: Array, columns: Array) -> Stack:
    weights, biases = list(stack.weights), list(stack.biases)
    weights[layer - 1], biases[layer - 1], weights[layer] = rows[:, :-1], rows[:, -1], columns
    return replace(stack, weights=tuple(weights), biases=tuple(biases))


def _numbers(stack: Stack, values: tuple[Any, ...]) -> Array:
    """Factors as the stack's own kind of number."""
    if not stack.exact:
        return np.array([float(value) for value in values])
    if any(isinstance(value, float) for value in values):
        return rational(np.array([float(value) for value in values]))
    table = np.empty(len(values), dtype=object)
    table[:] = values
    return table
