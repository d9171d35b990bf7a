"""A network in a certificate, packed: dense layers, or a graph by its edges. Its digest is the one of its edges."""

from __future__ import annotations

import base64
import hashlib
import zlib
from fractions import Fraction
from itertools import pairwise
from math import lcm
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lawful.errors import Unsupported
from lawful.verify.core.dag import CONSTANT, HIDDEN, INPUT, OUTPUT, CheckedDag, read_dag, read_mlp
from lawful.verify.core.schema import integer, items, limit_cost, number, object_with_keys, require

MOST_NUMBERS = 40_000_000  # of a network, or of a table: 32 bytes each here, and zeros take a thousandth in a file
MOST_LEVELS = 2_000  # of a graph
SPARSE, LEAST_ENTRIES = 0.08, 10_000  # a share of entries below which sparse products are the quicker ones
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
    found = matrix[rows]
    return np.asarray(found if isinstance(found, np.ndarray) else found.toarray())


def read_packed(value: object) -> PackedNetwork:
    """Either form."""
    if isinstance(value, dict) and "layers" in value:
        return _packed(value)
    graph = _read_graph(value)
    return PackedNetwork(_layers(graph), _digest_of_graph(graph))


def read_network(value: object, where: str) -> CheckedDag:
    """A network with weights whose numbers are listed: layers, or a graph."""
    listed = isinstance(value, dict) and "biases" in value
    network = read_mlp(value, where).to_dag() if listed else read_dag(value, where)
    require(network.weights is not None, "a network has no weights")
    return network


def pack(dag: CheckedDag) -> PackedNetwork:
    """A graph as layers."""
    slopes = np.ones(len(dag.roles))
    slopes[dag.hidden] = dag.slopes
    require(bool(((slopes >= 0) & (slopes <= 1)).all()), "an activation has a slope that is not between 0 and 1")
    roles, tails, heads, levels = (np.array(each, np.int64) for each in (dag.roles, dag.tails, dag.heads, dag.levels))
    return PackedNetwork(_layers(_Graph(roles, tails, heads, slopes, np.array(dag.weights), levels)), dag.digest())


class _Graph(NamedTuple):
    """A network by its edges; a level is the length of the longest path to a node."""

    roles: Integers
    tails: Integers
    heads: Integers
    slopes: Floats  # of every node
    weights: Floats
    levels: Integers


def _layers(graph: _Graph) -> list[PackedLayer]:
    """Layers of a graph: a value that is needed later passes each layer between as a neuron of slope 1.

    The neurons of a layer are the nodes of its level in their order, then what passes; the last layer is the outputs.
    """
    roles, tails, heads = graph.roles, graph.tails, graph.heads
    outputs, count = np.flatnonzero(roles == OUTPUT), len(roles)
    level = np.where(roles == OUTPUT, np.maximum(graph.levels, 1), graph.levels)
    depth = max(1, int(level.max()))
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


def _matrix(values: Floats, places: tuple[Integers, Integers], shape: tuple[int, int]) -> Matrix:
    """A matrix of these entries: that of a convolution is nearly all zeros."""
    entries = shape[0] * shape[1]
    if entries >= LEAST_ENTRIES and len(values) <= SPARSE * entries:
        from scipy.sparse import csr_array  # where it is needed: the checker starts without it

        return csr_array((values, places), shape=shape)
    if entries > MOST_NUMBERS:
        raise Unsupported(f"a network of more than {MOST_NUMBERS:,} numbers is not checked")
    matrix = np.zeros(shape)
    matrix[places] = values
    return matrix


def _read_graph(value: object) -> _Graph:
    given = object_with_keys(value, "network", "nodes edges roles ends slopes weights")
    count, edges = (integer(given[name], "network", 1, MOST_NUMBERS // 8) for name in ("nodes", "edges"))
    roles = unpacked(given["roles"], "u1", 1, count)[0].astype(np.int64)
    tails, heads = unpacked(given["ends"], "<i4", 2, edges).astype(np.int64)
    weights = unpacked(given["weights"], "<f8", 1, edges)[0] + 0.0
    hidden = np.flatnonzero(roles == HIDDEN)
    slopes = np.ones(count)
    slopes[hidden] = unpacked(given["slopes"], "<f8", 1, len(hidden))[0] + 0.0
    require(bool((roles <= CONSTANT).all()) and int((roles == CONSTANT).sum()) <= 1, "two nodes are constant")
    require(bool((roles == INPUT).any() and (roles == OUTPUT).any()), "there is no input or no output")
    ends = np.concatenate([tails, heads])
    require(bool(((ends >= 0) & (ends < count)).all()), "an edge names a node that does not exist")
    require(bool((np.diff(np.sort(tails * count + heads)) > 0).all()), "an edge appears twice")
    right = np.isin(roles[heads], (HIDDEN, OUTPUT)) & (roles[tails] != OUTPUT)
    require(bool(right.all()), "an edge points the wrong way")
    require(bool(np.isin(hidden, tails).all() and np.isin(hidden, heads).all()), "a hidden node has no way in or out")
    require(bool(np.isfinite(weights).all()), "a weight is not finite")
    require(bool(((slopes >= 0) & (slopes <= 1)).all()), "an activation has a slope that is not between 0 and 1")
    levels = np.zeros(count, dtype=np.int64)
    while True:  # one pass a level; no path is longer than there are nodes, unless it is a cycle
        require(int(levels.max()) <= min(count, MOST_LEVELS), "the graph has a cycle, or too many levels")
        raised = levels.copy()
        np.maximum.at(raised, heads, levels[tails] + 1)
        if (raised == levels).all():
            return _Graph(roles, tails, heads, slopes, weights, levels)
        levels = raised


def _digest_of_graph(graph: _Graph) -> str:
    """Nodes are numbered inputs, hidden ones by level, outputs, the constant; edges go by head and tail."""
    roles, levels = graph.roles, graph.levels
    hidden = np.flatnonzero(roles == HIDDEN)
    hidden = hidden[np.argsort(levels[hidden], kind="stable")]
    constant = np.flatnonzero(roles == CONSTANT)
    biased = len(constant) > 0 and bool((graph.tails == constant[0]).any())
    inputs, outputs = np.flatnonzero(roles == INPUT), np.flatnonzero(roles == OUTPUT)
    nodes = np.concatenate([inputs, hidden, outputs, constant if biased else constant[:0]])
    place = np.zeros(len(roles), dtype=np.int64)
    place[nodes] = np.arange(len(nodes))
    tails, heads = place[graph.tails], place[graph.heads]
    order = np.lexsort((tails, heads))
    counts = [len(inputs), len(hidden), len(outputs), int(biased), len(order)]
    found = hashlib.sha256(b"lawful network 1\n")
    found.update(np.array(counts, dtype="<i8").tobytes())
    found.update(graph.slopes[hidden].astype("<f8").tobytes())
    found.update(np.stack([heads[order], tails[order]], axis=1).astype("<i8").tobytes())
    found.update(graph.weights[order].astype("<f8").tobytes())
    return f"network:{found.hexdigest()}"


def _packed(value: object) -> PackedNetwork:
    given = object_with_keys(value, "network", "layers slopes")
    parts = [
        object_with_keys(each, "network", "shape weights bias")
        for each in items(given["layers"], "network", most=10_000)
    ]
    require(bool(parts), "the network has no layers")
    slopes = [number(each, "network") for each in items(given["slopes"], "network", length=len(parts) - 1)]
    require(all(0 <= slope <= 1 for slope in slopes), "an activation has a slope that is not between 0 and 1")
    weights, biases = [], []
    total = 0
    for part in parts:
        rows, columns = (
            integer(each, "network", 1, MOST_NUMBERS) for each in items(part["shape"], "network", length=2)
        )
        total += rows * (columns + 1)
        if total > MOST_NUMBERS:
            raise Unsupported(f"a network of more than {MOST_NUMBERS:,} numbers is not checked")
        weights.append(unpacked(part["weights"], "<f8", rows, columns) + 0.0)
        biases.append(None if part["bias"] is None else unpacked(part["bias"], "<f8", 1, rows)[0] + 0.0)
    require(all(len(one) == two.shape[1] for one, two in pairwise(weights)), "layers do not fit")
    every = [*weights, *(bias for bias in biases if bias is not None)]
    require(all(bool(np.isfinite(each).all()) for each in every), "a weight is not finite")
    layers = [
        PackedLayer(weight, np.zeros(len(weight)) if bias is None else bias, np.full(len(weight), slope))
        for weight, bias, slope in zip(weights, biases, [*slopes, 1.0], strict=True)
    ]
    return PackedNetwork(layers, _digest(weights, biases, slopes))


def _digest(weights: list[Floats], biases: list[Floats | None], slopes: list[float]) -> str:
    """The digest of the graph: every weight is an edge, ordered by head and then by tail; the constant comes last."""
    widths = [weights[0].shape[1], *(len(weight) for weight in weights)]
    starts = np.cumsum([0, *widths])
    edges, values = [], []
    for layer, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        tails = np.broadcast_to(np.arange(starts[layer], starts[layer + 1]), weight.shape)
        table = weight
        if bias is not None:
            tails = np.concatenate([tails, np.full((len(weight), 1), starts[-1])], axis=1)
            table = np.concatenate([weight, bias[:, None]], axis=1)
        heads = np.broadcast_to(np.arange(starts[layer + 1], starts[layer + 2])[:, None], tails.shape)
        edges.append(np.stack([heads, tails], axis=2).astype("<i8").tobytes())
        values.append(table.astype("<f8").tobytes())
    count = sum(len(each) for each in values) // 8
    biased = any(bias is not None for bias in biases)
    found = hashlib.sha256(b"lawful network 1\n")
    found.update(np.array([widths[0], sum(widths[1:-1]), widths[-1], int(biased), count], dtype="<i8").tobytes())
    hidden = [np.full(width, slope) for width, slope in zip(widths[1:-1], slopes, strict=True)]
    found.update(np.concatenate([*hidden, np.zeros(0)]).astype("<f8").tobytes())
    for part in (*edges, *values):
        found.update(part)
    return f"network:{found.hexdigest()}"


def unpacked(value: object, kind: str, rows: int, columns: int) -> Floats:
    """A table of numbers, packed by zlib and written in base 64, as doubles."""
    size = rows * columns * np.dtype(kind).itemsize
    require(isinstance(value, str) and rows * columns <= MOST_NUMBERS, "a packed table is missing or too large")
    unpacker = zlib.decompressobj()
    try:
        found = unpacker.decompress(base64.b64decode(str(value), validate=True), size + 1)  # no more than it should be
    except (zlib.error, ValueError):
        found = b""
    whole_stream = unpacker.eof and not unpacker.unused_data
    require(whole_stream and len(found) == size, "a packed table has not the size that it should have")
    return np.frombuffer(found, dtype=kind).reshape(rows, columns).astype(np.float64)
