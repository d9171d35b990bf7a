"""A graph with skips as a layered network: extra neurons carry values from layer to layer."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lawful.errors import Unsupported
from lawful.network import Dag, Mlp, Role
from lawful.types import Floats


def layered(dag: Dag) -> Mlp:
    """The same function without skips.

    A value that is never negative (the output of a ReLU) passes a layer through one neuron, any other value v through
    the pair `σ(v) − σ(−v) = (1 + slope) v`.

    >>> from lawful.network import Architecture
    >>> dag = Architecture.parse("2-3-3-1 relu bias skip(0,2)").initialise(seed=0)
    >>> bool(np.allclose(layered(dag).evaluate([[1.0, -2.0]]), dag.evaluate([[1.0, -2.0]])))
    True
    """
    levels = _levels(dag)
    depth = int(levels[dag.outputs].max(initial=1))
    into: list[list[int]] = [[] for _ in dag.names]
    for edge, head in enumerate(dag.heads):
        into[head].append(edge)
    last_use = np.zeros(len(dag.names), dtype=np.intp)
    np.maximum.at(last_use, dag.tails, levels[dag.heads])
    # each value known at a layer: node -> {position in the layer: coefficient}
    known = {int(node): {place: 1.0} for place, node in enumerate(dag.inputs)}
    width = len(dag.inputs)
    weights, biases, slopes = [], [], []
    for level in range(1, depth + 1):
        nodes = [int(v) for v in np.flatnonzero(levels == level) if dag.roles[v] in (Role.HIDDEN, Role.OUTPUT)]
        final = level == depth
        slope = 1.0 if final else _slope(dag, nodes, level)
        carried = [] if final else [node for node in known if last_use[node] > level]
        rows: list[Floats] = []
        bias: list[float] = []
        fresh: dict[int, dict[int, float]] = {}
        for node in dag.outputs if final else nodes:
            row, shift = _row(dag, into[node], known, width)
            fresh[int(node)] = {len(rows): 1.0}
            rows.append(row)
            bias.append(shift)
        for node in carried:
            row = np.zeros(width)
            for place, factor in known[node].items():
                row[place] = factor
            if dag.roles[node] == Role.HIDDEN and dag.slopes[node] == 0.0:
                fresh[node] = {len(rows): 1.0}
                rows.append(row)
            else:
                fresh[node] = {len(rows): 1 / (1 + slope), len(rows) + 1: -1 / (1 + slope)}
                rows += [row, -row]
            bias += [0.0] * (len(rows) - len(bias))
        weights.append(np.array(rows))
        biases.append(np.array(bias))
        slopes.append(slope)
        known, width = fresh, len(rows)
    return Mlp(weights, biases, slopes[:-1])


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


def _row(dag: Dag, edges: list[int], known: dict[int, dict[int, float]], width: int) -> tuple[Floats, float]:
    row, shift = np.zeros(width), 0.0
    for edge in edges:
        tail = int(dag.tails[edge])
        if dag.roles[tail] == Role.CONSTANT:
            shift += float(dag.theta[edge])
            continue
        for place, factor in known[tail].items():
            row[place] += factor * dag.theta[edge]
    return row, shift
