"""Any piecewise linear network as layers of one kind, evaluated in floats and exactly.

A layer is a matrix, a bias, and one slope per neuron.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse

from lawful.errors import Unsupported
from lawful.network import Dag, Mlp, Role
from lawful.types import Floats, Indices

MOST_ENTRIES = 40_000_000  # of all matrices together: 320 MB
# 200 rows times matrices of oval21, collins_rul and tllverifybench: 3 to 15 times as fast below 6%, slower from 20%.
SPARSE, LEAST_ENTRIES = 0.08, 10_000
Matrix = Any  # an array, or a sparse one, which multiplies arrays from both sides as an array does


class Layer(NamedTuple):
    """`x → φ(W x + b)` with `φ(z) = max(z, 0) + slope · min(z, 0)`, neuron by neuron; the last layer has slopes 1."""

    weight: Matrix
    bias: Floats
    slopes: Floats


def layers_of(network: Mlp | Dag, *, sparse: bool = False) -> tuple[Layer, ...]:
    """The same function, exactly: a value that skips a layer passes it through a neuron of slope 1.

    With `sparse`, matrices that are nearly all zeros are stored so, and the network may be larger.

    >>> from lawful.network import Architecture
    >>> dag = Architecture.parse("2-3-3-1 relu skip(0,2)").initialise(seed=0)
    >>> [layer.weight.shape for layer in layers_of(dag)]
    [(5, 2), (5, 5), (1, 5)]
    >>> bool(np.allclose(evaluate(layers_of(dag), np.ones((1, 2))), dag.evaluate([[1.0, 1.0]])))
    True
    """
    layers = _of_mlp(network) if isinstance(network, Mlp) else _of_dag(network, sparse)
    for number, layer in enumerate(layers, 1):
        odd = layer.slopes[~((layer.slopes >= 0) & (layer.slopes <= 1))]
        if len(odd):
            raise Unsupported(f"layer {number} has an activation of slope {odd[0]:g}: bounds need slopes from 0 to 1")
    return layers


def keep_sparse(matrix: Matrix) -> Matrix:
    """The same matrix, sparse if that is the quicker way to multiply by it."""
    count = matrix.nnz if issparse(matrix) else np.count_nonzero(matrix)
    entries = matrix.shape[0] * matrix.shape[1]
    if entries < LEAST_ENTRIES or count > SPARSE * entries:
        return matrix.toarray() if issparse(matrix) else matrix
    return csr_array(matrix)


def rows_of(matrix: Matrix, rows: Indices) -> Floats:
    """Some of its rows, as an array."""
    chosen = matrix[rows]
    return np.asarray(chosen.toarray() if issparse(chosen) else chosen)


def evaluate(layers: tuple[Layer, ...], points: Floats) -> Floats:
    """Outputs for a batch of points (rows)."""
    values = points
    for weight, bias, slopes in layers:
        summed = values @ weight.T + bias
        values = np.maximum(summed, 0.0) + slopes * np.minimum(summed, 0.0)
    return values


def trace(layers: tuple[Layer, ...], points: Floats) -> tuple[Floats, list[Floats]]:
    """Outputs for a batch of points, and the slopes of every layer's activations there."""
    values, rises = points, []
    for weight, bias, slopes in layers:
        summed = values @ weight.T + bias
        rises.append(np.where(summed > 0, 1.0, slopes))
        values = summed * rises[-1]
    return values, rises


def pull_back(layers: tuple[Layer, ...], rises: list[Floats], rows: Floats) -> Floats:
    """The gradient of `row · outputs` at each point that was traced, a row for a point."""
    for layer, rise in zip(reversed(layers), reversed(rises), strict=True):
        rows = (rows * rise) @ layer.weight
    return rows


def gradients(layers: tuple[Layer, ...], points: Floats, rows: Floats) -> Floats:
    """The gradient of `row · outputs` at each point, a row for a point.

    >>> layer = Layer(np.array([[2.0, -3.0]]), np.zeros(1), np.zeros(1))
    >>> gradients((layer,), np.array([[1.0, 0.0], [-1.0, 0.0]]), np.ones((2, 1)))
    array([[ 2., -3.],
           [ 0.,  0.]])
    """
    return pull_back(layers, trace(layers, points)[1], rows)


def zero_layers(layers: tuple[Layer, ...]) -> tuple[Layer, ...]:
    """A network of as many layers that is zero: no neurons, and outputs that hear none."""
    widths = [layers[0].weight.shape[1], *[0] * (len(layers) - 1), len(layers[-1].weight)]
    return tuple(Layer(np.zeros((m, n)), np.zeros(m), np.ones(m)) for n, m in pairwise(widths))


def pad_depth(layers: tuple[Layer, ...], depth: int) -> tuple[Layer, ...]:
    """The same function in more layers: the values below the outputs pass through neurons of slope 1."""
    width = layers[-1].weight.shape[1]
    extra = Layer(np.eye(width), np.zeros(width), np.ones(width))
    return (*layers[:-1], *[extra] * (depth - len(layers)), layers[-1])


def fold_mirrors(layers: tuple[Layer, ...]) -> tuple[Layer, ...]:
    """The same function, exactly, with fewer bends: of two ReLUs of z and -z one becomes linear.

    `max(-z, 0) = max(z, 0) - z`, so the second passes -z on and whoever reads it reads the first as well. Maxima and
    minima written as `(a + b ± |a - b|) / 2` (tllverifybench) have four bends each, of which one is left; the other
    three would each be relaxed, and no multipliers make up for that. Neurons keep their places, so that trees of splits
    name the same ones; the checker folds by itself.

    >>> one, two = (Layer(np.array(rows), np.zeros(len(rows)), np.zeros(len(rows))) for rows in (
    ...     [[1.0, 1.0], [-1.0, -1.0], [1.0, -1.0], [-1.0, 1.0]], [[0.5, -0.5, 0.5, 0.5]]))
    >>> folded = fold_mirrors((one, two))
    >>> folded[0].slopes, folded[1].weight
    (array([1., 1., 0., 1.]), array([[ 0. , -0.5,  1. ,  0.5]]))
    """
    folded = list(layers)
    for number in range(len(layers) - 1):
        layer, above = folded[number], folded[number + 1]
        slopes, readers = layer.slopes.copy(), above.weight
        first, second = _mirrors(layer)
        one, two = readers[:, first], readers[:, second]
        total = one + two
        # Sums that round would make another function: both differences give the other part back iff none did.
        exact = _largest_by_column(total - one - two) + _largest_by_column(total - two - one) == 0
        first, second = first[exact], second[exact]
        if len(first):
            width = len(slopes)
            both = csr_array((np.ones(len(first)), (second, first)), shape=(width, width))
            readers = keep_sparse(readers + readers @ both)
            slopes[second] = 1.0
        slopes[_largest_by_column(readers) == 0] = 1.0  # nobody reads it: its bend is nothing to relax
        folded[number], folded[number + 1] = layer._replace(slopes=slopes), above._replace(weight=readers)
    return tuple(folded)


def _mirrors(layer: Layer) -> tuple[Indices, Indices]:
    """Pairs of ReLUs whose sums are each other's negatives, weight by weight."""
    table = csr_array(layer.weight, copy=True)
    table.eliminate_zeros()
    table.sort_indices()
    waiting: dict[tuple[bytes, bytes], int] = {}
    pairs: list[tuple[int, int]] = []
    for neuron in np.flatnonzero(layer.slopes == 0).tolist():
        span = slice(table.indptr[neuron], table.indptr[neuron + 1])
        columns, values = table.indices[span].tobytes(), np.append(table.data[span], layer.bias[neuron]) + 0.0
        partner = waiting.pop((columns, (0.0 - values).tobytes()), None)
        if partner is None:
            waiting[columns, values.tobytes()] = neuron
        else:
            pairs.append((partner, neuron))
    first, second = np.array(pairs, dtype=np.intp).reshape(-1, 2).T
    return first, second


def _largest_by_column(matrix: Matrix) -> Floats:
    size = abs(matrix)
    if not min(size.shape) > 0:
        return np.zeros(size.shape[1])
    largest = size.max(axis=0)
    return np.asarray(largest.toarray() if issparse(largest) else largest).ravel()


def _of_mlp(mlp: Mlp) -> tuple[Layer, ...]:
    zipped = zip(mlp.weights, mlp.biases, (*mlp.slopes, 1.0), strict=True)
    return tuple(
        Layer(weight, np.zeros(len(weight)) if bias is None else bias, np.full(len(weight), slope))
        for weight, bias, slope in zipped
    )


def _of_dag(dag: Dag, sparse: bool) -> tuple[Layer, ...]:
    depth = max(int(dag.levels.max(initial=1)), 1)
    needed = np.zeros(len(dag.names), dtype=np.intp)  # the last level that hears a node
    np.maximum.at(needed, dag.tails, dag.levels[dag.heads])
    needed[dag.outputs] = depth + 1
    level = np.where(dag.roles == Role.OUTPUT, np.maximum(dag.levels, 1), dag.levels)
    variable = dag.roles != Role.CONSTANT
    sizes = [int((variable & (level <= step) & (needed > step)).sum()) for step in range(depth + 1)]
    passed = sum(sizes)  # more than all ones of neurons that pass a value on
    total = len(dag.tails) + passed if sparse else sum(below * above for below, above in pairwise(sizes))
    if total > MOST_ENTRIES:
        raise Unsupported(f"as layers this network has {total:,} weights, more than {MOST_ENTRIES:,}")
    carried, layers = dag.inputs, []
    for step in range(1, depth + 1):
        place = np.full(len(dag.names), -1)
        place[carried] = np.arange(len(carried))
        fresh = np.flatnonzero(variable & (level == step))
        passed_on = carried[needed[carried] > step]
        nodes = dag.outputs if step == depth else np.concatenate([fresh, passed_on])
        row = np.full(len(dag.names), -1)
        row[nodes] = np.arange(len(nodes))
        entering = level[dag.heads] == step
        constant = dag.roles[dag.tails] == Role.CONSTANT
        sums, shifts = np.flatnonzero(entering & ~constant), np.flatnonzero(entering & constant)
        passing = passed_on[np.isin(passed_on, nodes)]
        rows = np.concatenate([row[dag.heads[sums]], row[passing]])
        columns = np.concatenate([place[dag.tails[sums]], place[passing]])
        values = np.concatenate([dag.theta[sums], np.ones(len(passing))])
        stored = csr_array((values, (rows, columns)), shape=(len(nodes), len(carried)))
        weight = keep_sparse(stored) if sparse else stored.toarray()
        bias, slopes = np.zeros(len(nodes)), np.ones(len(nodes))
        bias[row[dag.heads[shifts]]] = dag.theta[shifts]
        slopes[row[fresh]] = dag.slopes[fresh]
        layers.append(Layer(weight, bias, slopes))
        carried = nodes
    return tuple(layers)


Integers = NDArray[Any]  # of Python integers


def exact_difference(first: tuple[Layer, ...], second: tuple[Layer, ...], point: Floats) -> list[Fraction]:
    """`g(x) − f(x)`, output by output."""
    return [b - a for a, b in zip(exact_outputs(first, point), exact_outputs(second, point), strict=True)]


def exact_outputs(layers: tuple[Layer, ...], point: Floats | Sequence[Fraction]) -> list[Fraction]:
    """The outputs as fractions; an input may be any rationals.

    >>> layer = Layer(np.array([[0.1, 1.0]]), np.array([-0.5]), np.ones(1))
    >>> exact_outputs((layer,), np.array([1.0, 0.5]))[0] == Fraction(0.1)
    True
    >>> exact_outputs((layer,), [Fraction(1, 3), Fraction(1)])[0] == Fraction(0.1) / 3 + Fraction(1, 2)
    True
    """
    values, power, divisor = _rationals(point)
    for weight, bias, slopes in layers:
        rows, columns = weight.nonzero()
        entries, one = _integers(np.asarray(weight[rows, columns]))
        shifts, two = _integers(bias)
        power += one
        summed = np.zeros(len(bias), dtype=object)
        np.add.at(summed, rows, entries * values[columns])
        common = min(power, two)
        summed = summed * (1 << (power - common)) + shifts * (divisor << (two - common))
        tilt, three = _integers(slopes)
        negative = summed < 0
        values = np.where(negative, summed * tilt, summed * (1 << -min(three, 0)))
        power = common + min(three, 0)
        if three > 0:  # whole slopes above 1
            values = np.where(negative, values * (1 << three), values)
    scale = Fraction(2) ** power / divisor
    return [int(value) * scale for value in values]


def _rationals(point: Floats | Sequence[Fraction]) -> tuple[Integers, int, int]:
    """Integers, a power of two and a divisor: `point = integers · 2^power / divisor`, exactly."""
    if isinstance(point, np.ndarray):
        return *_integers(point), 1
    divisor = math.lcm(*(value.denominator for value in point))
    return np.array([int(value * divisor) for value in point], dtype=object), 0, divisor


def _integers(values: Floats) -> tuple[Integers, int]:
    """Integers and one power of two: `values = integers · 2^power`, exactly."""
    mantissas, exponents = np.frexp(values)
    whole = (mantissas * 2.0**53).astype(np.int64)
    used = whole != 0
    power = int((exponents[used] - 53).min(initial=0)) if used.any() else 0
    lifted = [int(m) << int(e) - 53 - power if m else 0 for m, e in zip(whole, exponents, strict=True)]
    return np.array(lifted, dtype=object), power
