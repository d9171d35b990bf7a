"""A network in a certificate, packed: dense layers, or a graph by its edges. Its digest is the one of its edges."""

from __future__ import annotations

import base64
import hashlib
import zlib
from itertools import pairwise

import numpy as np

from lawful.errors import Unsupported
from lawful.verify.bounds.network import (
    MOST_NUMBERS,
    Floats,
    LayeredGraph,
    PackedLayer,
    PackedNetwork,
    layers_of,
)
from lawful.verify.core.dag import CONSTANT, HIDDEN, INPUT, OUTPUT
from lawful.verify.core.schema import integer, items, number, object_with_keys, require

MOST_LEVELS = 2_000  # of a graph


def read_packed(value: object) -> PackedNetwork:
    """Either form."""
    if isinstance(value, dict) and "layers" in value:
        return _read_layers(value)
    graph = _read_graph(value)
    return PackedNetwork(layers_of(graph), _digest_of_graph(graph))


def _read_graph(value: object) -> LayeredGraph:
    parts = object_with_keys(value, "network", "nodes edges roles ends slopes weights")
    count, edges = (integer(parts[name], "network", 1, MOST_NUMBERS // 8) for name in ("nodes", "edges"))
    roles = unpack_table(parts["roles"], "u1", 1, count)[0].astype(np.int64)
    tails, heads = unpack_table(parts["ends"], "<i4", 2, edges).astype(np.int64)
    weights = unpack_table(parts["weights"], "<f8", 1, edges)[0] + 0.0
    hidden = np.flatnonzero(roles == HIDDEN)
    slopes = np.ones(count)
    slopes[hidden] = unpack_table(parts["slopes"], "<f8", 1, len(hidden))[0] + 0.0
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
            return LayeredGraph(roles, tails, heads, slopes, weights, levels)
        levels = raised


def _digest_of_graph(graph: LayeredGraph) -> str:
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
    total = hashlib.sha256(b"lawful network 1\n")
    total.update(np.array(counts, dtype="<i8").tobytes())
    total.update(graph.slopes[hidden].astype("<f8").tobytes())
    total.update(np.stack([heads[order], tails[order]], axis=1).astype("<i8").tobytes())
    total.update(graph.weights[order].astype("<f8").tobytes())
    return f"network:{total.hexdigest()}"


def _read_layers(value: object) -> PackedNetwork:
    listed = object_with_keys(value, "network", "layers slopes")
    parts = [
        object_with_keys(item, "network", "shape weights bias")
        for item in items(listed["layers"], "network", most=10_000)
    ]
    require(bool(parts), "the network has no layers")
    slopes = [number(item, "network") for item in items(listed["slopes"], "network", length=len(parts) - 1)]
    require(all(0 <= slope <= 1 for slope in slopes), "an activation has a slope that is not between 0 and 1")
    weights, biases = [], []
    total = 0
    for part in parts:
        rows, columns = (
            integer(item, "network", 1, MOST_NUMBERS) for item in items(part["shape"], "network", length=2)
        )
        total += rows * (columns + 1)
        if total > MOST_NUMBERS:
            raise Unsupported(f"a network of more than {MOST_NUMBERS:,} numbers is not checked")
        weights.append(unpack_table(part["weights"], "<f8", rows, columns) + 0.0)
        biases.append(None if part["bias"] is None else unpack_table(part["bias"], "<f8", 1, rows)[0] + 0.0)
    require(all(len(one) == two.shape[1] for one, two in pairwise(weights)), "layers do not fit")
    every = [*weights, *(bias for bias in biases if bias is not None)]
    require(all(bool(np.isfinite(item).all()) for item in every), "a weight is not finite")
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
    count = sum(len(rows_written) for rows_written in values) // 8
    biased = any(bias is not None for bias in biases)
    total = hashlib.sha256(b"lawful network 1\n")
    total.update(np.array([widths[0], sum(widths[1:-1]), widths[-1], int(biased), count], dtype="<i8").tobytes())
    hidden = [np.full(width, slope) for width, slope in zip(widths[1:-1], slopes, strict=True)]
    total.update(np.concatenate([*hidden, np.zeros(0)]).astype("<f8").tobytes())
    for part in (*edges, *values):
        total.update(part)
    return f"network:{total.hexdigest()}"


def unpack_table(value: object, kind: str, rows: int, columns: int) -> Floats:
    """A table of numbers, packed by zlib and written in base 64, as doubles."""
    size = rows * columns * np.dtype(kind).itemsize
    require(isinstance(value, str) and rows * columns <= MOST_NUMBERS, "a packed table is missing or too large")
    unpacker = zlib.decompressobj()
    try:
        content = unpacker.decompress(
            base64.b64decode(str(value), validate=True), size + 1
        )  # no more than it should be
    except (zlib.error, ValueError):
        content = b""
    whole_stream = unpacker.eof and not unpacker.unused_data
    require(whole_stream and len(content) == size, "a packed table has not the size that it should have")
    return np.frombuffer(content, dtype=kind).reshape(rows, columns).astype(np.float64)
