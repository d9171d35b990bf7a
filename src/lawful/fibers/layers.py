"""A layered network in floats or in exact rationals, and its exact value at a point."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import flint
import numpy as np
from numpy.typing import ArrayLike, NDArray

from lawful.errors import LawfulError, Unsupported
from lawful.network import Dag, Mlp, Role
from lawful.types import Floats

# The natural unit of every input of a network, so that nothing depends on the units that it came in.


def input_scales(*stacks: Stack) -> Floats:
    """Powers of two: the size of each input at which first-layer neurons bend; without biases there, the first layer
    that has some.

    >>> from lawful.network import Mlp
    >>> input_scales(Stack.of(Mlp([[[1.0, 1e9], [2.0, -1e9]], [[1.0, 1.0]]], [[1.0, -1.0], None])))
    array([1.00000000e+00, 9.31322575e-10])
    """
    rows = np.concatenate([_unit_rows(stack.floating().row(0)) for stack in stacks])
    with np.errstate(divide="ignore"):
        logs = np.log2(np.abs(rows))
    used = np.isfinite(logs)
    logs = np.where(used, logs, 0.0)
    sizes = np.zeros(rows.shape[1])
    for _ in range(4):
        shift = np.where(used, logs + sizes, 0.0).sum(axis=1) / np.maximum(used.sum(axis=1), 1)
        sizes = np.where(used, shift[:, None] - logs, 0.0).sum(axis=0) / np.maximum(used.sum(axis=0), 1)
    scales = np.exp2(np.clip(np.round(sizes[:-1] - (sizes[-1] if used[:, -1].any() else 0.0)), -1000, 1000))
    return scales if used[:, -1].any() else scales * _radius(stacks, scales)


def _radius(stacks: tuple[Stack, ...], scales: Floats) -> float:
    """How far out the first layer with biases bends, if the first layer has none; 1 for homogeneous networks."""
    stack = stacks[0].balance(scales)
    values = np.random.default_rng(0).normal(size=(16, len(scales)))
    for layer, (weight, bias) in enumerate(zip(stack.weights, stack.biases, strict=True)):
        values = values @ weight.T
        if not bias.size:  # a layer that has lost all its neurons: what follows is constant
            return 1.0
        sizes = float(np.sqrt((values**2).mean())), float(np.sqrt((bias**2).mean()))
        if all(0 < size < np.inf for size in sizes):
            return float(np.exp2(np.round(np.log2(sizes[1] / sizes[0]))))
        if layer < stack.hidden:
            values = np.where(values > 0, values, stack.bends(layer) * values)
    return 1.0


def _unit_rows(rows: Floats) -> Floats:
    sizes = np.abs(rows).max(axis=1, keepdims=True, initial=0.0)
    return np.asarray(rows / np.where(sizes > 0, sizes, 1.0))


# A graph with skips as a layered network: extra neurons carry values from layer to layer.

_Known = dict[int, dict[int, Any]]  # node -> its value as a combination of the places in a layer


def as_layers(dag: Dag, *, paired: bool = True) -> Stack:
    """The same function without skips, exactly: in rationals where floats would have to round.

    A value that is never negative (the output of a ReLU) passes a layer through one neuron, any other value v through
    the pair `σ(v) − σ(−v) = (1 + slope) v`. Without pairs it passes through one neuron that does not bend, so that no
    kink is there that the graph has not.

    >>> from lawful.network import Architecture
    >>> dag = Architecture.parse("2-3-3-1 relu bias skip(0,2)").initialise(seed=0)
    >>> bool(np.allclose(as_layers(dag).evaluate([[1.0, -2.0]]), dag.evaluate([[1.0, -2.0]])))
    True
    """
    levels = _levels(dag)
    depth = int(levels[dag.outputs].max(initial=1))
    into: list[list[int]] = [[] for _ in dag.names]
    for edge, head in enumerate(dag.heads):
        into[head].append(edge)
    last_use = np.zeros(len(dag.names), dtype=np.intp)
    np.maximum.at(last_use, dag.tails, levels[dag.heads])
    number = _exact if _rounds(dag, paired) else float
    known: _Known = {int(node): {place: number(1.0)} for place, node in enumerate(dag.inputs)}
    width = len(dag.inputs)
    weights, biases, slopes, layer_slopes = [], [], [], []
    for level in range(1, depth + 1):
        nodes = [int(v) for v in np.flatnonzero(levels == level) if dag.roles[v] in (Role.HIDDEN, Role.OUTPUT)]
        final = level == depth
        slope = 1.0 if final or not paired else _slope(dag, nodes, level)
        carried = [] if final else [node for node in known if last_use[node] > level]
        rows: list[Array] = []
        bias: list[Any] = []
        fresh: _Known = {}
        for node in dag.outputs if final else nodes:
            row, shift = _row(dag, into[node], known, width, number)
            fresh[int(node)] = {len(rows): number(1.0)}
            rows.append(row)
            bias.append(shift)
        for node in carried:
            row = np.array([known[node].get(place, number(0.0)) for place in range(width)])
            if not paired or (dag.roles[node] == Role.HIDDEN and dag.slopes[node] == 0.0):
                fresh[node] = {len(rows): number(1.0)}
                rows.append(row)
            else:
                share = 1 / (1 + number(slope))
                fresh[node] = {len(rows): share, len(rows) + 1: -share}
                rows += [row, -row]
            bias += [number(0.0)] * (len(rows) - len(bias))
        weights.append(np.array(rows).reshape(len(rows), width))
        biases.append(np.array(bias))
        slopes.append(slope)
        layer_slopes.append(np.array([*(float(dag.slopes[node]) for node in nodes), *[1.0] * (len(rows) - len(nodes))]))
        known, width = fresh, len(rows)
    if not paired:
        return Stack(tuple(weights), tuple(biases), (), tuple(layer_slopes[:-1]))
    return Stack(tuple(weights), tuple(biases), tuple(slopes[:-1]))


def _exact(value: float) -> Any:
    return flint.fmpq(*float(value).as_integer_ratio())


def _rounds(dag: Dag, paired: bool) -> bool:
    """Whether floats would round: shares `1 / (1 + slope)` that are no powers of two, or parallel edges."""
    shares = 1 / (1 + dag.slopes[dag.hidden][dag.slopes[dag.hidden] != -1.0])
    parallel = len(np.unique(np.stack([dag.tails, dag.heads]), axis=1).T) < len(dag.heads)
    return parallel or (paired and bool((np.frexp(shares)[0] != 0.5).any()))


def _levels(dag: Dag) -> NDArray[np.intp]:
    """Distance from the inputs; outputs all at the end, nodes fed by the constant alone at 1."""
    levels = dag.levels.copy()
    levels[dag.outputs] = int(levels[dag.hidden].max(initial=0)) + 1
    return levels


def _slope(dag: Dag, nodes: list[int], level: int) -> float:
    slopes = {float(dag.slopes[node]) for node in nodes}
    if len(slopes) > 1:
        raise Unsupported(f"level {level} of the graph mixes activations {sorted(slopes)}: give each level one")
    slope = slopes.pop() if slopes else 0.0
    if slope == -1.0:
        raise Unsupported("slope -1 is the absolute value, through which no pair of neurons carries a value")
    return slope


def _row(dag: Dag, edges: list[int], known: _Known, width: int, number: Callable[[float], Any]) -> tuple[Array, Any]:
    row, shift = np.array([number(0.0)] * width), number(0.0)
    for edge in edges:
        tail, weight = int(dag.tails[edge]), number(float(dag.theta[edge]))
        if dag.roles[tail] == Role.CONSTANT:
            shift += weight
            continue
        for place, factor in known[tail].items():
            row[place] += factor * weight
    return row, shift


Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Stack:
    """`x → W_L σ(… σ(W_1 x + b_1) …) + b_L` whose numbers are all floats, or all exact rationals (`flint.fmpq`).

    Unlike an `Mlp` it always has biases, and a hidden layer may have lost all its neurons. Where the neurons of a layer
    differ in their slopes, `own` has them one by one, and `slopes` is empty.
    """

    weights: tuple[Array, ...]
    biases: tuple[Array, ...]
    slopes: tuple[float, ...]
    own: tuple[Floats, ...] | None = None

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

    def bends(self, layer: int) -> Floats:
        """The slopes of a hidden layer's neurons below zero; one of slope 1 does not bend at all."""
        return np.full(len(self.weights[layer]), self.slopes[layer]) if self.own is None else self.own[layer]

    def row(self, layer: int) -> Array:
        """`[W_l | b_l]`, with layers counted from 0."""
        return np.concatenate([self.weights[layer], self.biases[layer][:, None]], axis=1)

    def with_layer(self, layer: int, weight: Array | None = None, bias: Array | None = None) -> Stack:
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
        sums = []
        for weight, bias, slope in zip(stack.weights, stack.biases, (*self.slopes, 1.0), strict=True):
            summed = values @ weight.T + bias
            sums.append(summed)
            values = np.where(summed > 0, summed, slope * summed) if slope != 1.0 else summed
        return sums

    def evaluate(self, inputs: ArrayLike) -> Floats:
        """Outputs for a batch of floats."""
        return self.preactivations(inputs)[-1]

    def sensitivity(self, inputs: ArrayLike) -> Floats:
        """`(Σ_w (w ∂f/∂w)²)^½` for a batch and every output: how far relative changes of single weights move it.

        To first order, per change; it does not change when inputs or neurons are rescaled.
        """
        stack = self._float
        values = np.asarray(inputs, dtype=np.float64)
        seen, masks = [values], []
        for layer, summed in enumerate(self.preactivations(values)[:-1]):
            masks.append(np.where(summed > 0, 1.0, self.slopes[layer]))
            seen.append(summed * masks[-1])
        outputs = len(stack.biases[-1])
        back = np.broadcast_to(np.eye(outputs), (len(values), outputs, outputs))
        total = np.zeros((len(values), outputs))
        for layer in reversed(range(len(stack.weights))):
            terms = seen[layer] ** 2 @ (stack.weights[layer] ** 2).T + stack.biases[layer] ** 2
            total += np.einsum("sok,sk->so", back**2, terms)
            if layer:
                back = (back @ stack.weights[layer]) * masks[layer - 1][:, None, :]
        return np.sqrt(total)

    @cached_property
    def _float(self) -> Stack:
        return self.floating() if self.exact else self

    @cached_property
    def _dyadic(self) -> list[tuple[Array, int]]:
        return [_dyadic(self.row(layer)) for layer in range(len(self.weights))]

    def balance(self, inputs: Floats) -> Stack:
        """The same function of `x / inputs` in floats, each neuron rescaled by a power of two to a row of size one."""
        stack = self._float
        weights, biases = [], []
        before = inputs
        for layer, (weight, bias) in enumerate(zip(stack.weights, stack.biases, strict=True)):
            weight = weight * before
            if layer < self.hidden:
                sizes = np.abs(weight).max(axis=1, initial=0.0)
                sizes = np.where(sizes > 0, sizes, np.abs(bias))
                before = np.where((sizes > 0) & np.isfinite(sizes), np.exp2(np.frexp(sizes)[1]), 1.0)
                weight, bias = weight / before[:, None], bias / before
            weights.append(weight)
            biases.append(bias)
        return replace(stack, weights=tuple(weights), biases=tuple(biases))

    def exact_outputs(self, point: ArrayLike) -> tuple[Fraction, ...]:
        """The outputs at a point of floats or rationals, with no rounding at all.

        >>> Stack.of(Mlp([[[0.1]], [[3.0]]])).exact_outputs([1.0])
        (Fraction(10808639105689191, 36028797018963968),)
        """
        array = np.asarray(point)
        if self.exact or array.dtype == object:
            return self.rational()._rational_outputs(array)
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

    def _rational_outputs(self, point: Array) -> tuple[Fraction, ...]:
        values = point if point.dtype == object else rational(point)
        for weight, bias, slope in zip(self.weights, self.biases, (*self.slopes, 1.0), strict=True):
            values = weight @ values + bias if weight.shape[1] else bias
            gain = rational(np.array([slope]))[0]
            values = np.array([item if item > 0 else gain * item for item in values], dtype=object)
        return tuple(Fraction(int(item.p), int(item.q)) for item in values)


def rational(array: ArrayLike) -> Array:
    """Floats as the rationals that they are."""
    floats = np.asarray(array, dtype=np.float64)
    fractions = np.empty(floats.shape, dtype=object)
    fractions.ravel()[:] = [flint.fmpq(*number.as_integer_ratio()) for number in floats.ravel().tolist()]
    return fractions


def floating(array: Array) -> Floats:
    """Numbers of either kind as floats."""
    if array.dtype != object:
        return np.asarray(array, dtype=np.float64)
    values = [quotient(int(number.p), int(number.q)) for number in array.ravel()]
    return np.array(values, dtype=np.float64).reshape(array.shape)


def quotient(numerator: int, denominator: int) -> float:
    """The nearest float of a fraction with a positive denominator, infinite where there is none.

    >>> quotient(10**400, 3), quotient(-(10**400), 3), quotient(1, 4)
    (inf, -inf, 0.25)
    """
    try:
        return numerator / denominator
    except OverflowError:
        return float("inf") if numerator > 0 else float("-inf")


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
