"""Which neurons act linearly near given weights: for any data, or for one data set.

At given weights a ReLU neuron may be dead for every input, or active for every input. Training cannot see the
difference to a linear neuron, so there are more laws than at the φ level (P4 Theorem 6).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lawful.errors import LawfulError
from lawful.exact import residues, to_residues
from lawful.network import Dag, Role
from lawful.types import Floats, Residues

SAMPLES = 2**16  # inputs that look for activation patterns, fewer for networks of more than
ENTRIES = 2**23  # so many values in all
MOST_PATTERNS = 1024


@dataclass(frozen=True, eq=False)
class Region:
    """The activation patterns that inputs realise at θ.

    `patterns` has a row per pattern and a column per hidden neuron, holding gates (1, or the neuron's slope).
    `witnesses` are inputs that show them: one each or, if there are `groups`, all the data, with the number of the
    pattern that each shows; `spans` then holds the data of each pattern (with a 1 for the constant) as residues.
    `fixed` is the gate of every node that provably has one gate only, else NaN. `unsure` are neurons that showed one
    gate only although nothing proves that it is the only one.
    """

    patterns: Floats
    witnesses: Floats
    fixed: Floats
    unsure: tuple[str, ...]
    spans: tuple[Residues, ...] | None = None
    groups: NDArray[np.intp] | None = None

    def gates(self, prime: int) -> Residues:
        """The patterns as residues."""
        values, where = np.unique(self.patterns, return_inverse=True)
        return to_residues(values, prime)[where].reshape(self.patterns.shape)


def near(dag: Dag, seed: int = 0) -> Region:
    """The patterns of random inputs of many sizes, and the gates that interval bounds prove for every input.

    >>> from lawful.network import Mlp
    >>> always_on = Mlp([[[1.0], [-1.0]], [[1.0, 2.0]], [[1.0]]], [[0.0, 0.0], [0.5], None]).to_dag()
    >>> near(always_on).fixed[always_on.index["h2.0"]]
    np.float64(1.0)
    """
    rng = np.random.default_rng(seed)
    samples = min(SAMPLES, max(256, ENTRIES // (len(dag.names) + dag.parameters)))
    sizes = 10.0 ** rng.uniform(-3, 3, size=(samples, 1))
    inputs = rng.normal(size=(samples, len(dag.inputs))) * sizes
    _, witnesses, _ = _patterns(dag, inputs)
    if len(witnesses) > MOST_PATTERNS:
        witnesses = rng.choice(witnesses, MOST_PATTERNS, replace=False)
    patterns, witnesses, _ = _patterns(dag, _rounded(witnesses))
    fixed = proved_gates(dag)
    seen_once = (patterns == patterns[:1]).all(axis=0)
    unsure = tuple(dag.names[node] for node, once in zip(dag.hidden, seen_once, strict=True) if once)
    return Region(patterns, witnesses, fixed, tuple(name for name in unsure if np.isnan(fixed[dag.index[name]])))


def at_data(dag: Dag, data: ArrayLike, prime: int) -> Region:
    """The patterns of the data, and for each pattern the span of its points (with a 1 for the constant)."""
    points = np.asarray(data, dtype=np.float64)
    if points.ndim != 2 or points.shape[1] != len(dag.inputs) or not len(points):
        raise LawfulError(f"data for this network has shape (samples, {len(dag.inputs)}), not {points.shape}")
    if not np.isfinite(points).all():
        raise LawfulError("the data has entries that are not finite")
    patterns, _, where = _patterns(dag, points)
    fixed = np.where(dag.slopes == 1.0, 1.0, np.nan)
    once = (patterns == patterns[:1]).all(axis=0)
    fixed[dag.hidden[once]] = patterns[0, once]
    extended = points if dag.constant is None else np.append(points, np.ones((len(points), 1)), axis=1)
    exact = to_residues(extended, prime)
    spans = tuple(_basis(exact[where == number], prime) for number in range(len(patterns)))
    return Region(patterns, points, fixed, (), spans, where)


def _patterns(dag: Dag, inputs: Floats) -> tuple[Floats, Floats, NDArray[np.intp]]:
    """Distinct gates of the hidden neurons, an input for each, and the pattern of every input."""
    positive = preactivations(dag, inputs) > 0
    distinct, first, where = np.unique(positive, axis=0, return_index=True, return_inverse=True)
    gates = np.where(distinct, 1.0, dag.slopes[dag.hidden])
    gates, again, merged = np.unique(gates, axis=0, return_index=True, return_inverse=True)
    return gates, inputs[first[again]], np.asarray(merged.ravel()[where.ravel()])


def _rounded(values: Floats) -> Floats:
    """Short decimal numbers: certificates store them."""
    return np.array([float(f"{value:.4g}") for value in values.ravel()]).reshape(values.shape)


def preactivations(dag: Dag, inputs: Floats) -> Floats:
    """What each hidden neuron reads, one row per sample."""
    values = dag.activations(inputs)
    found = np.zeros((len(inputs), len(dag.names)))
    np.add.at(found.T, dag.heads, (values[:, dag.tails] * dag.theta).T)
    return found[:, dag.hidden]


def _basis(points: Residues, prime: int) -> Residues:
    """At most as many combinations of the points as there are coordinates, with the same span."""
    count, width = points.shape
    if count <= width:
        return points
    weights = residues(0, (3,), np.arange(width), count, prime)
    total = np.zeros((width, width), dtype=np.int64)
    for point, weight in zip(points, weights.T, strict=True):
        total = (total + weight[:, None] * point[None]) % prime
    return total


def proved_gates(dag: Dag) -> Floats:
    """The gate of each node that interval bounds over *all* inputs prove, robustly under small changes of θ; else NaN.

    A weight that is exactly 0 on an unbounded signal proves nothing: the slightest change could turn the neuron.
    """
    low, high = np.full(len(dag.names), -np.inf), np.full(len(dag.names), np.inf)
    if dag.constant is not None:
        low[dag.constant] = high[dag.constant] = 1.0
    gates = np.where(dag.slopes == 1.0, 1.0, np.nan)
    for node in np.concatenate(dag.layers):
        if dag.roles[node] != Role.HIDDEN:
            continue
        edges = np.flatnonzero(dag.heads == node)
        bottom, top = _interval(dag.theta[edges], low[dag.tails[edges]], high[dag.tails[edges]])
        slope = dag.slopes[node]
        if bottom > 0:
            gates[node] = 1.0
        elif top < 0 or bottom == top == 0.0:
            gates[node] = slope
        ends = [end if end > 0 else slope * end if slope else 0.0 for end in (bottom, top)]
        low[node], high[node] = min(ends), max(ends)
    return gates


def _interval(weights: Floats, low: Floats, high: Floats) -> tuple[float, float]:
    bottom = top = 0.0
    for weight, least, most in zip(weights, low, high, strict=True):
        if least == most == 0.0:
            continue
        if weight == 0.0 and np.isinf([least, most]).any():
            return -np.inf, np.inf
        ends = sorted((weight * least if least else 0.0, weight * most if most else 0.0))
        bottom, top = bottom + ends[0], top + ends[1]
    return bottom, top
