"""Networks of layers, graphs of scalar weights and architectures as text, as programs: no PyTorch needed."""

from __future__ import annotations

import numpy as np

from lawful.network import Architecture, Dag, Mlp
from lawful.network.validity import Role
from lawful.program.builder import Builder
from lawful.program.operators.elementwise import leaky_relu
from lawful.program.program import Node, Program


def read_layers(network: Mlp | Dag | Architecture, batch: int = 1) -> Program:
    """The program of a perceptron (a weight and a bias each layer) or of a graph (one parameter for all its edges).

    >>> print(read_layers(Mlp([[[1.0, 2.0]], [[3.0]]])).text())
    %0 = input(name='x') : f[1, 2]
    %1 = parameter(name='0.weight') : f[1, 2]
    %2 = contract(%0, %1, spec='ab,cb->ac') : f[1, 1]
    %3 = relu(%2) : f[1, 1]
    %4 = parameter(name='1.weight') : f[1, 1]
    %5 = contract(%3, %4, spec='ab,cb->ac') : f[1, 1]
    return %5
    """
    if isinstance(network, Architecture):
        network = network.initialise(seed=0)
    return _read_mlp(network, batch) if isinstance(network, Mlp) else _read_dag(network, batch)


def _read_mlp(network: Mlp, batch: int) -> Program:
    b = Builder(repr(network))
    x = b.input("x", (batch, network.widths[0]))
    slopes = (*network.slopes, 1.0)
    for k, (weight, bias, slope) in enumerate(zip(network.weights, network.biases, slopes, strict=True)):
        w = b.parameter(f"{k}.weight", weight)
        x = b.linear(x, w, None if bias is None else b.parameter(f"{k}.bias", bias))
        x = activate(b, x, slope)
    return b.finish([x])


def activate(b: Builder, x: Node, slope: float) -> Node:
    """The activation that is its slope: 1 is none, 0 is ReLU."""
    if slope == 1:
        return x
    return b.function("relu", x) if slope == 0 else leaky_relu(b, x, float(slope))


def _read_dag(network: Dag, batch: int) -> Program:
    """Level by level: what a level reads, times a matrix of its edges (a movement of the weights and zeros)."""
    b = Builder(repr(network))
    x = b.input("x", (batch, len(network.inputs)))
    weights = b.parameter("weights", network.theta)
    parts: list[Node] = [x]  # columns of values so far, and the nodes that they belong to
    order = [int(node) for node in network.inputs]
    if network.constant is not None:
        parts.append(b.expand(b.constant([[1.0]]), (batch, 1)))
        order.append(network.constant)
    for layer in network.layers:
        heads = [int(node) for node in layer if network.roles[node] in (Role.HIDDEN, Role.OUTPUT)]
        if not heads:
            continue
        place = {node: k for k, node in enumerate(order)}
        edges = np.flatnonzero(np.isin(network.heads, heads))
        row = {node: k for k, node in enumerate(heads)}
        labels = np.zeros((len(heads), len(order)), dtype=np.int64)
        labels[[row[int(network.heads[e])] for e in edges], [place[int(network.tails[e])] for e in edges]] = edges + 1
        values = b.concatenate(parts, 1) if len(parts) > 1 else parts[0]
        level_sums = b.linear(values, b.take_labels(labels, (weights,)))
        slopes = network.slopes[heads]
        if bool((slopes == slopes[0]).all()):
            level_sums = activate(b, level_sums, float(slopes[0]))
        else:
            level_sums = leaky_relu(b, level_sums, b.constant(slopes[None]))
        parts, order = [values, level_sums], [*order, *heads]
    whole = b.concatenate(parts, 1)
    places = np.array([order.index(int(node)) for node in network.outputs])
    return b.finish([b.pick(whole, 1, places)])


def read_text(text: str, batch: int = 1, seed: int = 0) -> Program:
    """The program of an architecture, with weights drawn from a seed.

    >>> sorted(read_text("3-4-2 relu bias").parameters)
    ['0.bias', '0.weight', '1.bias', '1.weight']
    """
    return read_layers(Architecture.parse(text).initialise(seed=seed), batch)
