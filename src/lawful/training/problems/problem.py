"""What is being trained: an `Mlp`, a `Dag` or any PyTorch module on data, as a loss of its parameters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sparse
from numpy.typing import ArrayLike

from lawful.errors import LawfulError
from lawful.network import Architecture, Dag, Mlp, Role
from lawful.sources.opening import Source, open_graph, open_trained
from lawful.training.problems.losses import Loss, LossValue, Problem, check_data, find_loss
from lawful.types import Floats, Indices


class MlpProblem:
    """The loss of an `Mlp` on data, by hand-written backpropagation in NumPy."""

    def __init__(self, network: Mlp, x: ArrayLike, y: ArrayLike, loss: str | Loss = "mse") -> None:
        self.network, self.loss = network, find_loss(loss)
        self.x, raw = check_data(x, y)
        _check_inputs(self.x, network.widths[0])
        self.targets = raw
        self.y = self.loss.targets(raw, network.widths[-1])
        self.start = network.theta
        sizes = [len(self.x) * width if slope != 1.0 else 0 for width, slope in _hidden(network)]
        ends = [0, *np.cumsum(sizes).tolist()]
        self._spans = [slice(ends[layer], ends[layer + 1]) for layer in range(len(sizes))]
        self._slots = _slots(network)

    @property
    def samples(self) -> int:
        """Number of samples."""
        return len(self.x)

    def rows(self, samples: Indices) -> MlpProblem:
        """The same problem on some of the samples."""
        return MlpProblem(self.network, self.x[samples], self.targets[samples], self.loss)

    def label(self, gate: int) -> tuple[int, str]:
        """Sample and neuron of a gate."""
        layer, sample, neuron = self._find(gate)
        return sample, f"h{layer + 1}.{neuron}"

    def _find(self, gate: int) -> tuple[int, int, int]:
        """Hidden layer (from 0), sample and neuron of a gate."""
        layer = next(number for number, span in enumerate(self._spans) if gate < span.stop)
        sample, neuron = divmod(gate - self._spans[layer].start, self.network.widths[layer + 1])
        return layer, sample, neuron

    def heights(self, theta: Floats, gates: Floats | None = None) -> Floats:
        """Pre-activations under a fixed pattern, or under the true one."""
        return self._forward(theta, gates, self.x)[2]

    def evaluate(self, theta: Floats, gates: Floats | None = None) -> LossValue:
        """Loss, gradient and heights under a fixed pattern, or under the true one."""
        layers, factors, heights = self._forward(theta, gates, self.x)
        value, delta = self.loss.value_and_slope(layers[-1], self.y)
        gradient, pushes = np.empty_like(theta), np.empty_like(heights)
        for layer in range(len(self._slots) - 1, -1, -1):
            weight, into, bias = self._slots[layer]
            np.matmul(delta.T, layers[layer], out=gradient[weight].reshape(into))
            if bias is not None:
                np.sum(delta, axis=0, out=gradient[bias])
            if layer:
                delta = delta @ theta[weight].reshape(into)
                factor = factors[layer - 1]
                if factor is not None:
                    np.multiply(delta.ravel(), 1.0 - self.network.slopes[layer - 1], out=pushes[self._spans[layer - 1]])
                    delta *= factor
        return LossValue(value, gradient, heights, pushes)

    def height_gradients(self, theta: Floats, gates: Floats, chosen: Sequence[int]) -> Floats:
        """`∇z` of some heights (rows): one small backward pass with a row per chosen gate."""
        places = [self._find(gate) for gate in chosen]
        rows = np.array([sample for _, sample, _ in places])
        gates_of_rows = [
            gates[span].reshape(self.samples, -1)[rows].ravel() for span in self._spans if span.stop > span.start
        ]
        layers, factors, _ = self._forward(theta, np.concatenate(gates_of_rows), self.x[rows])
        gradients = np.zeros((len(rows), len(theta)))
        delta = np.zeros((len(rows), self.network.widths[-1]))
        for layer in range(len(self._slots) - 1, -1, -1):
            weight, into, bias = self._slots[layer]
            gradients[:, weight] = np.einsum("ki,kj->kij", delta, layers[layer]).reshape(len(rows), -1)
            if bias is not None:
                gradients[:, bias] = delta
            if layer:
                delta = delta @ theta[weight].reshape(into)
                factor = factors[layer - 1]
                delta = delta if factor is None else delta * factor
                for row, (place, _, neuron) in enumerate(places):
                    if place == layer - 1:
                        delta[row, neuron] += 1.0
        return gradients

    def _forward(
        self, theta: Floats, gates: Floats | None, x: Floats
    ) -> tuple[list[Floats], list[Floats | None], Floats]:
        """Layers' values, each hidden layer's factor `h / z` (None where linear), and the heights."""
        layers, factors = [x], list[Floats | None]()
        heights, at = np.empty(self._spans[-1].stop // self.samples * len(x) if self._spans else 0), 0
        for layer, (weight, into, bias) in enumerate(self._slots):
            values = layers[-1] @ theta[weight].reshape(into).T
            if bias is not None:
                values += theta[bias]
            if layer < len(self._spans):
                slope, factor = self.network.slopes[layer], None
                if slope != 1.0:
                    span = slice(at, at + values.size)
                    at = span.stop
                    heights[span] = values.ravel()
                    gate = (values > 0).astype(np.float64) if gates is None else gates[span].reshape(values.shape)
                    factor = gate if slope == 0.0 else slope + (1.0 - slope) * gate
                    values *= factor
                factors.append(factor)
            layers.append(values)
        return layers, factors, heights


class DagProblem:
    """The loss of any `Dag` on data: one sparse product per level forward, one per level back."""

    def __init__(self, network: Dag, x: ArrayLike, y: ArrayLike, loss: str | Loss = "mse") -> None:
        self.network, self.loss = network, find_loss(loss)
        self.x, raw = check_data(x, y)
        _check_inputs(self.x, len(network.inputs))
        self.targets = raw
        self.y = self.loss.targets(raw, len(network.outputs))
        self.start = network.theta
        self._place = network.schedule.place
        order = np.argsort(self._place)
        self._slopes = network.slopes[order][:, None]
        kinked = (network.roles == Role.HIDDEN) & (network.slopes != 1.0)
        self._kinked = np.flatnonzero(kinked[order])
        self._nodes = order[self._kinked]

    @property
    def samples(self) -> int:
        """Number of samples."""
        return len(self.x)

    def rows(self, samples: Indices) -> DagProblem:
        """The same problem on some of the samples."""
        return DagProblem(self.network, self.x[samples], self.targets[samples], self.loss)

    def label(self, gate: int) -> tuple[int, str]:
        """Sample and neuron of a gate."""
        row, sample = divmod(gate, self.samples)
        return sample, self.network.names[self._nodes[row]]

    def heights(self, theta: Floats, gates: Floats | None = None) -> Floats:
        """Pre-activations under a fixed pattern, or under the true one."""
        return self._forward(theta, gates)[2]

    def evaluate(self, theta: Floats, gates: Floats | None = None) -> LossValue:
        """Loss, gradient and heights under a fixed pattern, or under the true one."""
        values, factors, heights = self._forward(theta, gates)
        outputs = self._place[self.network.outputs]
        value, slope = self.loss.value_and_slope(values[outputs].T, self.y)
        delta, seeds, gradient = np.zeros_like(values), np.zeros_like(values), np.empty_like(theta)
        delta[outputs] = slope.T
        for edges, above, below in self._backward(theta, values, factors, delta, seeds):
            gradient[edges] = np.einsum("es,es->e", above, below)
        pushes = delta[self._kinked] * (1.0 - self._slopes[self._kinked])
        return LossValue(value, gradient, heights, pushes.ravel())

    def height_gradients(self, theta: Floats, gates: Floats, chosen: Sequence[int]) -> Floats:
        """`∇z` of some heights (rows): one small backward pass with a column per chosen gate."""
        values, factors, _ = self._forward(theta, gates)
        rows, samples = np.divmod(np.asarray(chosen), self.samples)
        values, factors = values[:, samples], factors[:, samples]
        delta, seeds = np.zeros_like(values), np.zeros_like(values)
        seeds[self._kinked[rows], np.arange(len(rows))] = 1.0
        gradients = np.empty((len(rows), len(theta)))
        for edges, above, below in self._backward(theta, values, factors, delta, seeds):
            gradients[:, edges] = (above * below).T
        return gradients

    def _backward(
        self, theta: Floats, values: Floats, factors: Floats, delta: Floats, seeds: Floats
    ) -> Iterator[tuple[Indices, Floats, Floats]]:
        """Level by level from the outputs: edges, `∂/∂z` at their heads, `h` at their tails. `delta` gets `∂/∂h`."""
        for start, stop, edges, matrix in reversed(self._levels(theta)):
            here = delta[start:stop] * factors[start:stop] + seeds[start:stop]
            delta[:start] += matrix.T @ here
            rows = np.repeat(np.arange(stop - start), np.diff(matrix.indptr))
            yield edges, here[rows], values[matrix.indices]

    def _levels(self, theta: Floats) -> list[tuple[int, int, Indices, sparse.csr_array]]:
        spans, start = [], len(self.network.layers[0])
        for level in self.network.schedule.levels:
            stop = start + len(level.nodes)
            entries = (theta[level.edges], level.indices, level.indptr)
            spans.append((start, stop, level.edges, sparse.csr_array(entries, shape=(stop - start, start))))
            start = stop
        return spans

    def _forward(self, theta: Floats, gates: Floats | None) -> tuple[Floats, Floats, Floats]:
        """Values of all nodes and their factors `h / z` (rows in level order), and the heights."""
        values = np.zeros((len(self.network.names), len(self.x)))
        before, factors = np.zeros_like(values), np.ones_like(values)
        if gates is not None:
            slope = self._slopes[self._kinked]
            factors[self._kinked] = slope + (1.0 - slope) * gates.reshape(len(self._kinked), self.samples)
        values[self._place[self.network.inputs]] = self.x.T
        if self.network.constant is not None:
            values[self._place[self.network.constant]] = 1.0
        for start, stop, _, matrix in self._levels(theta):
            summed = before[start:stop] = matrix @ values[:start]
            if gates is None:
                factors[start:stop] = np.where(summed > 0, 1.0, self._slopes[start:stop])
            values[start:stop] = summed * factors[start:stop]
        return values, factors, np.asarray(before[self._kinked].ravel())


def problem(model: Source, x: Any, y: Any, loss: Any = "mse") -> Problem:
    """The training problem of a network or any PyTorch module; `loss` is a name or, for modules, a callable.

    >>> mlp = Mlp([[[1.0]], [[2.0]]])
    >>> at = problem(mlp, [[1.0], [-1.0]], [[0.0], [0.0]])
    >>> value = at.evaluate(mlp.theta)
    >>> value.loss, value.gradient  # (2·1)²/2, and θ·∂L is the same for both weights (P0 Proposition 1)
    (2.0, array([4., 2.]))
    """
    reading = model.reading if isinstance(model, (Mlp, Dag)) else None
    whole = isinstance(model, (Mlp, Dag)) and (reading is None or not (reading.entangled or reading.tail))
    if not whole:  # a graph whose edges are the parameters is trained in its own order, whatever it was read from
        model = open_trained(model)
    if isinstance(model, Architecture):
        model = open_graph(model)
    if isinstance(model, Mlp):
        return MlpProblem(model, x, y, loss)
    if isinstance(model, Dag):
        return DagProblem(model, x, y, loss)
    from lawful.training.problems.module_problem import ModuleProblem

    return ModuleProblem(model, x, y, loss)


def _hidden(network: Mlp) -> list[tuple[int, float]]:
    return list(zip(network.widths[1:-1], network.slopes, strict=True))


def _slots(network: Mlp) -> Sequence[tuple[slice, tuple[int, int], slice | None]]:
    """Where each layer's matrix (and its shape) and bias live in θ."""
    slots, at = [], 0
    for weight, bias in zip(network.weights, network.biases, strict=True):
        matrix = slice(at, at + weight.size)
        at = matrix.stop
        vector = None if bias is None else slice(at, at + bias.size)
        at += 0 if bias is None else bias.size
        slots.append((matrix, (weight.shape[0], weight.shape[1]), vector))
    return slots


def _check_inputs(x: Floats, width: int) -> None:
    if x.ndim != 2 or x.shape[1] != width:
        came = f"{x.shape[1]} columns" if x.ndim == 2 else f"shape {x.shape}"
        raise LawfulError(f"the network has {width} inputs, but x has {came}")
