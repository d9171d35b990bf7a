"""A graph with skips as a layered network: extra neurons carry values from layer to layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flint
import numpy as np
from numpy.typing import NDArray

from lawful.errors import Unsupported
from lawful.fibers.layers import Array, Stack
from lawful.network import Dag, Role

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
    weights, biases, slopes, own = [], [], [], []
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
        own.append(np.array([*(float(dag.slopes[node]) for node in nodes), *[1.0] * (len(rows) - len(nodes))]))
        known, width = fresh, len(rows)
    if not paired:
        return Stack(tuple(weights), tuple(biases), (), tuple(own[:-1]))
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
