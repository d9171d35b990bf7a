"""On which side of zero every neuron is at given inputs: decided exactly where floating point could be wrong."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from lawful.network import Dag, Role
from lawful.types import Floats, Indices

ROUNDING = 2.0**-40  # relative to the sum of absolute values: well above what float64 can lose
HALVINGS = 60
MOST_INTERVALS = 4096
SILENT = -2


def signs(dag: Dag, inputs: Floats) -> NDArray[np.int8]:
    """The sign of what each hidden neuron reads, a row per input: 1, −1, or 0 on a boundary.

    A neuron is on a boundary if its sum is 0 although a signal arrives: another weight would turn it. Where no signal
    arrives whatever the weights (inputs of 0, inactive neurons) the gate does not matter, and the sign is −1. The
    first input on a boundary ends the search: later rows then keep what floating point can tell.

    >>> from lawful.network import Mlp
    >>> signs(Mlp([[[1.0], [0.0]], [[1.0, 1.0]]]).to_dag(), np.array([[1.0], [0.0]])).tolist()
    [[1, 0], [-1, -1]]
    """
    sides = rough_signs(dag, inputs)
    for row in np.flatnonzero((sides == 0).any(axis=1)):
        sides[row] = exact_signs(dag, inputs[row])
        if (sides[row] == 0).any():
            break
    return sides


def rough_signs(dag: Dag, inputs: Floats) -> NDArray[np.int8]:
    """The signs that float64 can tell for sure; 0 where rounding could decide."""
    return np.maximum(_Levels(dag).signs(inputs), -1)


class _Levels:
    """Hidden nodes level by level, with the matrices of their weights on the nodes that they read."""

    def __init__(self, dag: Dag) -> None:
        self.dag = dag
        self.steps: list[tuple[Indices, Indices, Floats]] = []
        into_hidden = np.flatnonzero(dag.roles[dag.heads] == Role.HIDDEN)
        levels = dag.levels[dag.heads[into_hidden]]
        for level in np.unique(levels):
            edges = into_hidden[levels == level]
            nodes, rows = np.unique(dag.heads[edges], return_inverse=True)
            tails, columns = np.unique(dag.tails[edges], return_inverse=True)
            matrices = np.zeros((3, len(nodes), len(tails)))  # weights, their sizes, and where there are some
            for matrix, entries in zip(matrices, (dag.theta[edges], np.abs(dag.theta[edges]), 1.0), strict=True):
                np.add.at(matrix, (rows, columns), entries)
            self.steps.append((nodes, tails, matrices))

    def signs(self, inputs: Floats) -> NDArray[np.int8]:
        """The signs that float64 can tell at each input, 0 where rounding could decide, SILENT without a signal."""
        dag = self.dag
        value, size = (np.zeros((len(dag.names), len(inputs))) for _ in range(2))
        value[dag.inputs], size[dag.inputs] = inputs.T, np.abs(inputs.T)
        if dag.constant is not None:
            value[dag.constant] = size[dag.constant] = 1.0
        sides = np.zeros((len(dag.names), len(inputs)), dtype=np.int8)
        for nodes, tails, (weights, sizes, read) in self.steps:
            total = weights @ value[tails]
            bulk = sizes @ size[tails]
            silent = read @ (size[tails] != 0) == 0
            sign = np.where(np.abs(total) > ROUNDING * bulk, np.sign(total), 0.0)
            sides[nodes] = np.where(silent, SILENT, sign)
            slope = dag.slopes[nodes, None]
            value[nodes] = np.where(total > 0, total, slope * total)
            off = silent | ((slope == 0) & (sign < 0))
            size[nodes] = np.where(off, 0.0, np.maximum(bulk, np.finfo(float).tiny))
        return np.ascontiguousarray(sides[dag.hidden].T)


def exact_signs(dag: Dag, given: Floats) -> NDArray[np.int8]:
    """The same for one input in fractions."""
    value = [Fraction(0)] * len(dag.names)
    arrives = [False] * len(dag.names)
    sign = [0] * len(dag.names)
    for node, coordinate in zip(dag.inputs.tolist(), given.tolist(), strict=True):
        value[node], arrives[node] = Fraction(coordinate), coordinate != 0
    if dag.constant is not None:
        value[dag.constant], arrives[dag.constant] = Fraction(1), True
    into: list[list[int]] = [[] for _ in dag.names]
    for edge, head in enumerate(dag.heads.tolist()):
        into[head].append(edge)
    for node in np.concatenate(dag.layers).tolist():
        if dag.roles[node] != Role.HIDDEN:
            continue
        tails = [(int(dag.tails[edge]), Fraction(float(dag.theta[edge]))) for edge in into[node]]
        total = sum((weight * value[tail] for tail, weight in tails), Fraction(0))
        signal = any(arrives[tail] for tail, _ in tails)
        sign[node] = (total > 0) - (total < 0) if signal else -1
        slope = Fraction(float(dag.slopes[node]))
        value[node] = total if total > 0 else slope * total
        arrives[node] = signal and not (slope == 0 and total < 0)
    return np.array([sign[node] for node in dag.hidden.tolist()], dtype=np.int8)


def refine_patterns(dag: Dag, starts: Floats, ends: Floats) -> tuple[Floats, tuple[tuple[str, ...], ...]]:
    """Inputs that show the patterns between two inputs, and the sets of neurons that nothing could part.

    Each segment is halved until the patterns at its ends differ in one neuron only, so that hyperplanes which almost
    coincide are told apart as far as float64 has numbers between them.
    """
    low, high, levels = starts, ends, _Levels(dag)
    below, above = levels.signs(low), levels.signs(high)
    inputs: list[Floats] = []
    stuck: set[tuple[str, ...]] = set()
    for _ in range(HALVINGS):
        differ = (below != above) | (below == 0)  # what rounding hides may differ
        differ &= (below != SILENT) & (above != SILENT)
        split = np.flatnonzero(differ.sum(axis=1) > 1)[:MOST_INTERVALS]
        low, high, below, above = low[split], high[split], below[split], above[split]
        middle = (low + high) / 2
        parted = ((middle != low) & (middle != high)).any(axis=1)
        stuck |= {tuple(dag.names[node] for node in dag.hidden[row]) for row in differ[split][~parted]}
        if not parted.any():
            break
        low, high, below, above = (part[parted] for part in (low, high, below, above))
        middle = middle[parted]
        there = levels.signs(middle)
        inputs.append(_new(middle, there))
        low, high = np.concatenate([low, middle]), np.concatenate([middle, high])
        below, above = np.concatenate([below, there]), np.concatenate([there, above])
    every = np.concatenate(inputs) if inputs else starts[:0]
    return _new(every, rough_signs(dag, every)), tuple(sorted(stuck))


def _new(inputs: Floats, found: NDArray[np.int8]) -> Floats:
    """One input for each pattern."""
    return inputs[distinct(np.concatenate([found > 0, found == 0, found == SILENT], axis=1))[0]]


def distinct(rows: NDArray[np.bool_]) -> tuple[Indices, Indices]:
    """The first of each kind of row, in an order of the kinds, and the kind of every row.

    >>> [part.tolist() for part in distinct(np.array([[True, False], [False, True], [True, False]]))]
    [[1, 0], [1, 0, 1]]
    """
    bits = np.packbits(rows, axis=1)
    words = np.zeros((len(bits), max(-(-bits.shape[1] // 8), 1) * 8), dtype=np.uint8)
    words[:, : bits.shape[1]] = bits
    numbers = words.view(">u8").astype(np.uint64)
    keys = numbers.ravel() if numbers.shape[1] == 1 else words.view(f"V{words.shape[1]}").ravel()
    _, first, where = np.unique(keys, return_index=True, return_inverse=True)
    return first, np.asarray(where.ravel())
