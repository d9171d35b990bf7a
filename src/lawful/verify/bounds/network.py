"""A network as layers of doubles, sparse where they are nearly all zeros, evaluated exactly at points."""

from __future__ import annotations

from contextlib import suppress
from fractions import Fraction
from math import lcm
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lawful.errors import Unsupported
from lawful.verify.core.dag import CONSTANT, INPUT, OUTPUT, CheckedDag, read_network
from lawful.verify.core.schema import limit_cost, require, spend

MOST_NUMBERS = 40_000_000  # of a network, or of a table: 32 bytes each here, and zeros take a thousandth in a file
SPARSE, LEAST_ENTRIES = 0.08, 10_000  # a share of entries below which sparse products are the quicker ones
# In elementary steps of 3e-7 s: 7e-11 s were measured on ACAS Xu, and sparse products take some 10 ns.
MULTIPLICATION, SPARSE_MULTIPLICATION = 5e-4, 0.05
TOO_LARGE = f"linear layers whose products have more than {MOST_NUMBERS:,} numbers are not checked"
Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Indices = NDArray[np.intp]
Matrix = Any  # an array, or a sparse one of SciPy, which multiplies arrays from both sides as an array does


class PackedLayer(NamedTuple):
    """`φ(W h + b)` with one slope below 0 for each neuron."""

    weight: Matrix
    bias: Floats
    slopes: Floats


class PackedNetwork(NamedTuple):
    """Layers, the last one of slope 1, and the name of the network."""

    layers: list[PackedLayer]
    digest: str

    @property
    def weights(self) -> int:
        """How many numbers its matrices hold."""
        return sum(int(layer.weight.size) for layer in self.layers)

    def evaluate(self, point: list[Fraction]) -> list[Fraction]:
        """The outputs at a point, exactly: integers over one denominator, as every double is one over a power of 2."""
        limit_cost(20.0 * self.weights)  # a microsecond or a few for each
        below = lcm(*(value.denominator for value in point))
        values = [int(value * below) for value in point]
        for layer in self.layers:
            (rows, columns), weights = _entries(layer.weight)
            entries, scale = _integers([*weights, *layer.bias])
            sums = [shift * below for shift in entries[len(weights) :]]
            for row, column, weight in zip(rows, columns, entries, strict=False):
                sums[row] += weight * values[column]
            slopes, unit = _integers(layer.slopes.tolist())
            values = [total * (unit if total > 0 else slope) for total, slope in zip(sums, slopes, strict=True)]
            below *= scale * unit
        return [Fraction(value, below) for value in values]


def _entries(matrix: Matrix) -> tuple[tuple[list[int], list[int]], list[float]]:
    """Rows and columns of what is not zero, and the numbers there."""
    rows, columns = matrix.nonzero()
    return (rows.tolist(), columns.tolist()), np.asarray(matrix[rows, columns]).ravel().tolist()


def _integers(values: list[float]) -> tuple[list[int], int]:
    """Integers and one power of 2 by which they are to be divided."""
    ratios = [value.as_integer_ratio() for value in map(float, values)]
    most = max(below for _, below in ratios)
    return [above * (most // below) for above, below in ratios], most


def rows_of(matrix: Matrix, rows: NDArray[Any]) -> Floats:
    """Some of its rows, as an array."""
    chosen = matrix[rows]
    return np.asarray(chosen if isinstance(chosen, np.ndarray) else chosen.toarray())


def read_weighted_network(value: object, where: str) -> CheckedDag:
    """A network with weights whose numbers are listed: layers, or a graph."""
    network = read_network(value, where)
    require(network.weights is not None, "a network has no weights")
    return network


def pack(dag: CheckedDag) -> PackedNetwork:
    """A graph as layers."""
    slopes = np.ones(len(dag.roles))
    slopes[dag.hidden] = dag.slopes
    require(bool(((slopes >= 0) & (slopes <= 1)).all()), "an activation has a slope that is not between 0 and 1")
    roles, tails, heads, levels = (np.array(part, np.int64) for part in (dag.roles, dag.tails, dag.heads, dag.levels))
    return PackedNetwork(
        layers_of(LayeredGraph(roles, tails, heads, slopes, np.array(dag.weights), levels)), dag.digest()
    )


class LayeredGraph(NamedTuple):
    """A network by its edges; a level is the length of the longest path to a node."""

    roles: Integers
    tails: Integers
    heads: Integers
    slopes: Floats  # of every node
    weights: Floats
    levels: Integers


def layers_of(graph: LayeredGraph) -> list[PackedLayer]:
    """Layers of a graph: a value that is needed later passes each layer between as a neuron of slope 1.

    The neurons of a layer are the nodes of its level in their order, then what passes; the last layer is the outputs.
    """
    roles, tails, heads = graph.roles, graph.tails, graph.heads
    outputs, count = np.flatnonzero(roles == OUTPUT), len(roles)
    level = np.where(roles == OUTPUT, np.maximum(graph.levels, 1), graph.levels)
    depth = max(1, int(level.max()))
    # Each level passes over all nodes ten times; 300 of NumPy's numbers take as long as one elementary step.
    spend(depth * (300.0 + count / 30))
    last = np.zeros(count, dtype=np.int64)  # the level up to which a node is heard
    np.maximum.at(last, tails, level[heads])
    last[outputs] = depth + 1
    carried, layers, total = np.flatnonzero(roles == INPUT), list[PackedLayer](), 0
    by_level = np.argsort(level[heads], kind="stable")
    starts = np.searchsorted(level[heads][by_level], np.arange(depth + 2))
    for step in range(1, depth + 1):
        fresh = np.flatnonzero((level == step) & (roles != CONSTANT))
        nodes = outputs if step == depth else np.concatenate([fresh, carried[last[carried] > step]])
        column, row = np.full(count, -1), np.full(count, -1)
        column[carried], row[nodes] = np.arange(len(carried)), np.arange(len(nodes))
        passing, new = nodes[column[nodes] >= 0], nodes[column[nodes] < 0]
        here = by_level[starts[step] : starts[step + 1]]
        constant = roles[tails[here]] == CONSTANT
        sums, shifts = here[~constant], here[constant]
        bias, slopes = np.zeros(len(nodes)), np.ones(len(nodes))
        bias[row[heads[shifts]]] = graph.weights[shifts]
        slopes[row[new]] = graph.slopes[new]
        places = (
            np.concatenate([row[passing], row[heads[sums]]]),
            np.concatenate([column[passing], column[tails[sums]]]),
        )
        values = np.concatenate([np.ones(len(passing)), graph.weights[sums]])
        weight = _matrix(values, places, (len(nodes), len(carried)))
        total += weight.size
        if total > MOST_NUMBERS:
            raise Unsupported(f"a network of more than {MOST_NUMBERS:,} numbers is not checked")
        layers.append(PackedLayer(weight, bias, slopes))
        carried = nodes
    return layers


def multiply(one: Matrix, other: Matrix) -> Matrix:
    """Their product, sparse if that is nearly all zeros; refused if it costs too much, or would fill the memory."""
    # A number that one stores in column k meets every number that the other stores in row k.
    meetings = float(_stored(one, 0) @ _stored(other, 1))
    is_dense = isinstance(one, np.ndarray) and isinstance(other, np.ndarray)
    spend(meetings * (MULTIPLICATION if is_dense else SPARSE_MULTIPLICATION))
    if min(meetings, one.shape[0] * other.shape[1]) > MOST_NUMBERS:
        raise Unsupported(TOO_LARGE)
    product = one @ other
    if isinstance(product, np.ndarray) and np.count_nonzero(product) > SPARSE * product.size:
        return product
    rows, columns = product.nonzero()
    return _matrix(np.asarray(product[rows, columns]).ravel(), (rows, columns), product.shape)


def _stored(matrix: Matrix, axis: int) -> Floats:
    """How many numbers a matrix stores in each column (0), or row (1)."""
    if isinstance(matrix, np.ndarray):
        return np.full(matrix.shape[1 - axis], float(matrix.shape[axis]))
    return np.bincount(matrix.nonzero()[1 - axis], minlength=matrix.shape[1 - axis]).astype(np.float64)


def _matrix(values: Floats, places: tuple[Integers, Integers], shape: tuple[int, int]) -> Matrix:
    """A matrix of these entries: that of a convolution is nearly all zeros."""
    entries = shape[0] * shape[1]
    if entries >= LEAST_ENTRIES and len(values) <= SPARSE * entries:
        # SciPy's sums have the error bound of any order of summation; without SciPy only small networks are checked
        with suppress(ImportError):
            from scipy.sparse import csr_array

            return csr_array((values, places), shape=shape)
    if entries > MOST_NUMBERS:
        raise Unsupported(f"a network of more than {MOST_NUMBERS:,} numbers is not checked")
    matrix = np.zeros(shape)
    matrix[places] = values
    return matrix
