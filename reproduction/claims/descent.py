"""Plain gradient descent in NumPy: the discrete stand-in for gradient flow."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from lawful.network import Dag, Mlp
from lawful.types import Floats

Loss = Callable[[Floats, Floats], tuple[float, Floats]]  # outputs and targets to the mean loss and its gradient


def squared(outputs: Floats, targets: Floats) -> tuple[float, Floats]:
    """Mean squared error."""
    difference = outputs - targets
    return float((difference**2).mean()), 2 * difference / difference.size


def logistic(outputs: Floats, targets: Floats) -> tuple[float, Floats]:
    """Mean logistic loss of labels 0 and 1."""
    value = float((np.logaddexp(0.0, outputs) - targets * outputs).mean())
    return value, (0.5 * (1 + np.tanh(outputs / 2)) - targets) / outputs.size


def gradient(mlp: Mlp, inputs: Floats, targets: Floats, loss: Loss) -> tuple[float, list[Floats]]:
    """The loss and its gradient with respect to each weight matrix of a perceptron without biases."""
    layers = mlp.activations(inputs)
    value, signal = loss(layers[-1], targets)
    found: list[Floats] = []
    for depth in range(len(mlp.weights) - 1, -1, -1):
        found.append(signal.T @ layers[depth])
        if depth:
            slope = mlp.slopes[depth - 1]
            signal = (signal @ mlp.weights[depth]) * np.where(layers[depth] > 0, 1.0, slope)
    return value, found[::-1]


def descend(mlp: Mlp, inputs: Floats, targets: Floats, loss: Loss, rate: float, steps: int) -> tuple[Floats, Mlp]:
    """Full-batch gradient descent: the loss before every step, and the network after the last."""
    losses = np.empty(steps)
    for step in range(steps):
        losses[step], slopes = gradient(mlp, inputs, targets, loss)
        weights = [weight - rate * slope for weight, slope in zip(mlp.weights, slopes, strict=True)]
        mlp = Mlp(weights, None, mlp.slopes)
    return losses, mlp


def dag_gradient(dag: Dag, theta: Floats, inputs: Floats, targets: Floats, loss: Loss) -> tuple[float, Floats]:
    """The loss and its gradient for a small graph without biases, node by node."""
    values = np.zeros((len(dag.names), len(inputs)))
    values[dag.inputs] = inputs.T
    order = np.argsort(dag.levels[dag.heads], kind="stable").tolist()
    ends = [(edge, int(dag.tails[edge]), int(dag.heads[edge])) for edge in order]
    inner = {int(node): float(dag.slopes[node]) for node in dag.hidden}
    waiting = dict(zip(range(len(dag.names)), dag.in_degree.tolist(), strict=True))
    for edge, tail, head in ends:
        values[head] += theta[edge] * values[tail]
        waiting[head] -= 1
        if not waiting[head] and head in inner:
            values[head] = np.where(values[head] > 0, values[head], inner[head] * values[head])
    value, signal = loss(values[dag.outputs].T, targets)
    back = np.zeros_like(values)
    back[dag.outputs] = signal.T
    found = np.zeros_like(theta)
    for edge, tail, head in reversed(ends):
        through = back[head] * np.where(values[head] > 0, 1.0, inner[head]) if head in inner else back[head]
        found[edge] = through @ values[tail]
        back[tail] += theta[edge] * through
    return value, found
