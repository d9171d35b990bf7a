"""A multilayer perceptron: weight matrices, biases, and one homogeneous activation per hidden layer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lawful.errors import InvalidNetwork, LawfulError, Unsupported
from lawful.network.dag import Dag
from lawful.network.reading import Reading
from lawful.network.validity import Role
from lawful.types import Floats


@dataclass(frozen=True, eq=False, repr=False)
class Mlp:
    """`x → W_L σ(… σ(W_1 x + b_1) …) + b_L`, with `W_l` of shape (outputs, inputs) as in PyTorch.

    `slopes[l]` is the activation of hidden layer l: 0 is ReLU, 1 is linear, between them leaky ReLU.

    >>> mlp = Mlp([[[1.0, -1.0], [0.0, 2.0]], [[1.0, 1.0]]], [[0.0, 1.0], None])
    >>> mlp
    Mlp(2-2-1)
    >>> mlp.evaluate([[3.0, 1.0]])
    array([[5.]])
    >>> Mlp.from_dag(mlp.to_dag()).evaluate([[3.0, 1.0]])
    array([[5.]])
    """

    weights: tuple[Floats, ...]
    biases: tuple[Floats | None, ...]
    slopes: tuple[float, ...]
    reading: Reading | None = None

    def __init__(
        self,
        weights: Iterable[ArrayLike],
        biases: Iterable[ArrayLike | None] | None = None,
        slopes: float | Iterable[float] = 0.0,
        reading: Reading | None = None,
    ) -> None:
        """Copy, check and freeze. `slopes` is one number for all hidden layers, or one per hidden layer.

        `reading` says where the network comes from; whatever is made of it by changing numbers keeps it.
        """
        matrices = tuple(np.array(weight, dtype=np.float64) for weight in weights)
        listed_biases = [None] * len(matrices) if biases is None else list(biases)
        vectors = tuple(None if bias is None else np.array(bias, dtype=np.float64) for bias in listed_biases)
        hidden = max(len(matrices) - 1, 0)
        hidden_slopes = (
            tuple(float(slope) for slope in slopes) if isinstance(slopes, Iterable) else (float(slopes),) * hidden
        )
        _check(matrices, vectors, hidden_slopes)
        for array in (*matrices, *(vector for vector in vectors if vector is not None)):
            array.setflags(write=False)
        for name, value in (
            ("weights", matrices),
            ("biases", vectors),
            ("slopes", hidden_slopes),
            ("reading", reading),
        ):
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        return f"Mlp({'-'.join(map(str, self.widths))})"

    @property
    def widths(self) -> tuple[int, ...]:
        """Sizes of all layers, input first."""
        return (self.weights[0].shape[1], *(len(weight) for weight in self.weights))

    @property
    def parameters(self) -> int:
        """Number of weights and biases."""
        return len(self.theta)

    @cached_property
    def theta(self) -> Floats:
        """All parameters, layer by layer: the matrix row by row, then the bias. The edge order of `to_dag`."""
        parts = [
            part.ravel() for pair in zip(self.weights, self.biases, strict=True) for part in pair if part is not None
        ]
        theta = np.concatenate(parts)
        theta.setflags(write=False)
        return theta

    def with_theta(self, theta: ArrayLike) -> Mlp:
        """The same shape with other parameters, in the order of `theta`."""
        values = np.asarray(theta, dtype=np.float64)
        if values.shape != (self.parameters,):
            raise LawfulError(f"{self} has {self.parameters} parameters, not {values.size}")
        matrices: list[Floats] = []
        vectors: list[Floats | None] = []
        at = 0
        for weight, bias in zip(self.weights, self.biases, strict=True):
            matrices.append(values[at : at + weight.size].reshape(weight.shape))
            at += weight.size
            vectors.append(None if bias is None else values[at : at + bias.size])
            at += 0 if bias is None else bias.size
        reading = None if self.reading is None else self.reading.of_other_weights()
        return Mlp(matrices, vectors, self.slopes, reading)

    def evaluate(self, inputs: Any) -> Any:
        """Outputs for a batch (rows), as NumPy, or PyTorch if `inputs` is a tensor."""
        return self.activations(inputs)[-1]

    def activations(self, inputs: Any) -> list[Any]:
        """Values of every layer for a batch: the inputs, each hidden layer after its activation, the outputs."""
        tensor = not isinstance(inputs, (np.ndarray, list, tuple))
        values = inputs if tensor else np.asarray(inputs, dtype=np.float64)
        if values.ndim != 2 or values.shape[1] != self.widths[0]:
            raise LawfulError(f"a batch for {self} has shape (samples, {self.widths[0]}), not {tuple(values.shape)}")
        layers = [values]
        for weight, bias, slope in zip(self.weights, self.biases, (*self.slopes, 1.0), strict=True):
            matrix, vector = (weight, bias) if not tensor else (_like(values, weight), _like(values, bias))
            values = values @ matrix.T + (0.0 if vector is None else vector)
            if slope != 1.0:
                values = _leaky_relu(values, slope)
            layers.append(values)
        return layers

    def to_dag(self) -> Dag:
        """The same network as a graph; edges follow `theta`. Node names: x0.., h1.0.. (layer.neuron), y0.., bias."""
        widths = self.widths
        starts = np.concatenate([[0], np.cumsum(widths)])
        constant = int(starts[-1])
        tails, heads = [], []
        for layer, bias in enumerate(self.biases):
            below = np.arange(starts[layer], starts[layer + 1])
            above = np.arange(starts[layer + 1], starts[layer + 2])
            tails.append(np.tile(below, len(above)))
            heads.append(np.repeat(above, len(below)))
            if bias is not None:
                tails.append(np.full(len(above), constant))
                heads.append(above)
        biased = any(bias is not None for bias in self.biases)
        names, roles = layered_nodes(widths, biased)
        slopes = np.repeat((1.0, *self.slopes, 1.0, *([1.0] * biased)), (*widths, *([1] * biased)))
        return Dag(names, roles, np.concatenate(tails), np.concatenate(heads), self.theta, slopes, self.reading)

    @classmethod
    def from_dag(cls, dag: Dag) -> Mlp:
        """Read a layered graph back; `Unsupported` if an edge skips a layer. Missing edges become zero weights."""
        layers = _layers(dag)
        place = np.zeros(len(dag.names), dtype=np.intp)
        level = np.full(len(dag.names), -1, dtype=np.intp)
        for number, layer in enumerate(layers):
            place[layer], level[layer] = np.arange(len(layer)), number
        from_constant = dag.roles[dag.tails] == Role.CONSTANT
        skipping = ~from_constant & (level[dag.heads] != level[dag.tails] + 1)
        if skipping.any():
            tail, head = dag.edge_name(int(np.argmax(skipping)))
            raise Unsupported(f"not a layered network: edge {tail} -> {head} skips a layer")
        weights, biases, slopes = [], [], []
        for number, layer in enumerate(layers[1:], 1):
            entering = level[dag.heads] == number
            edges, bias_edges = np.flatnonzero(entering & ~from_constant), np.flatnonzero(entering & from_constant)
            weight = np.zeros((len(layer), len(layers[number - 1])))
            weight[place[dag.heads[edges]], place[dag.tails[edges]]] = dag.theta[edges]
            bias = np.zeros(len(layer))
            bias[place[dag.heads[bias_edges]]] = dag.theta[bias_edges]
            weights.append(weight)
            biases.append(bias if len(bias_edges) else None)
            slopes.append(dag.slopes[layer])
        for number, layer_slopes in enumerate(slopes[:-1], 1):
            if (layer_slopes != layer_slopes[0]).any():
                raise Unsupported(f"not a layered network: hidden layer {number} mixes activations")
        return cls(weights, biases, [float(layer_slopes[0]) for layer_slopes in slopes[:-1]], dag.reading)


def layered_nodes(widths: Sequence[int], biased: bool) -> tuple[list[str], NDArray[np.int8]]:
    """Names and roles of a layered network's nodes: inputs, hidden layers, outputs, then the constant."""
    last = len(widths) - 1
    names = [
        f"x{neuron}" if layer == 0 else f"y{neuron}" if layer == last else f"h{layer}.{neuron}"
        for layer, width in enumerate(widths)
        for neuron in range(width)
    ]
    kinds = [Role.INPUT, *[Role.HIDDEN] * (last - 1), Role.OUTPUT]
    roles = np.repeat(np.array(kinds, dtype=np.int8), widths)
    return ([*names, "bias"], np.append(roles, np.int8(Role.CONSTANT))) if biased else (names, roles)


def _layers(dag: Dag) -> list[NDArray[np.intp]]:
    """Inputs, hidden nodes by their distance from the inputs, outputs; the constant does not count."""
    depth = int(dag.levels[dag.outputs].max(initial=1))
    hidden_level = dag.levels[dag.hidden]
    layers = [dag.hidden[hidden_level == number] for number in range(1, depth)]
    return [dag.inputs, *(layer for layer in layers if len(layer)), dag.outputs]


def _leaky_relu(values: Any, slope: float) -> Any:
    """Leaky ReLU, 0 at −∞ if the slope is 0 (0·∞ is not a number)."""
    if isinstance(values, np.ndarray):
        return np.where(values > 0, values, slope * values) if slope else np.maximum(values, 0.0)
    return values.where(values > 0, slope * values) if slope else values.clamp(min=0.0)


def _like(values: Any, array: Floats | None) -> Any:
    return None if array is None else values.new_tensor(array)


def _check(weights: tuple[Floats, ...], biases: tuple[Floats | None, ...], slopes: tuple[float, ...]) -> None:
    if not weights:
        raise InvalidNetwork("an Mlp needs at least one weight matrix")
    if len(biases) != len(weights):
        raise InvalidNetwork(f"{len(weights)} weight matrices but {len(biases)} biases (use None for a layer without)")
    if len(slopes) != len(weights) - 1 or not np.isfinite(slopes).all():
        raise InvalidNetwork(f"{len(weights) - 1} hidden layers need as many finite slopes, not {slopes}")
    for number, (weight, bias) in enumerate(zip(weights, biases, strict=True), 1):
        if weight.ndim != 2 or 0 in weight.shape:
            raise InvalidNetwork(f"layer {number}: a weight matrix has shape (outputs, inputs), not {weight.shape}")
        if number > 1 and weight.shape[1] != len(weights[number - 2]):
            before = len(weights[number - 2])
            raise InvalidNetwork(f"layer {number}: takes {weight.shape[1]} inputs, but layer {number - 1} has {before}")
        if bias is not None and bias.shape != (len(weight),):
            raise InvalidNetwork(f"layer {number}: bias has shape {bias.shape}, expected ({len(weight)},)")
        for kind, array in (("weight", weight), ("bias", bias)):
            if array is not None and not np.isfinite(array).all():
                where = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
                raise InvalidNetwork(f"layer {number}: {kind}{list(where)} is not finite")
