"""A network in a certificate: dense layers as packed doubles, or a graph. Its digest is the one of its edges."""

from __future__ import annotations

import base64
import hashlib
import zlib
from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from lawful.errors import Unsupported
from lawful.verify.bounds.boxes import read_network
from lawful.verify.bounds.layers import Floats, Plain, plain_layers
from lawful.verify.core.schema import integer, items, number, object_with_keys, require

MOST_NUMBERS = (
    40_000_000  # of a network, or of a table: zeros take a thousandth of it in a file, and 32 bytes each here
)


class DenseLayer(NamedTuple):
    """`φ(W h + b)` with one slope below 0 for each neuron."""

    weight: Floats
    bias: Floats
    slopes: Floats


class DenseNetwork(NamedTuple):
    """Layers, the last one of slope 1, and the name of the network."""

    layers: list[DenseLayer]
    digest: str

    def plain(self) -> list[Plain]:
        """The same in rationals."""
        return [
            Plain(
                [{int(j): Fraction(float(row[j])) for j in np.flatnonzero(row)} for row in layer.weight],
                [Fraction(float(value)) for value in layer.bias],
                [Fraction(float(value)) for value in layer.slopes],
            )
            for layer in self.layers
        ]


def read_dense(value: object) -> DenseNetwork:
    """Either form."""
    if isinstance(value, dict) and "layers" in value:
        return _packed(value)
    network = read_network(value, "network")
    require(network.weights is not None, "the network has no weights")
    layers, width, total = [], len(network.inputs), 0
    for layer in plain_layers(network):
        total += len(layer.rows) * (width + 1)
        if total > MOST_NUMBERS:
            raise Unsupported(f"a network of more than {MOST_NUMBERS:,} numbers is not checked")
        weight = np.zeros((len(layer.rows), width))
        for at, row in enumerate(layer.rows):
            weight[at, list(row)] = [float(entry) for entry in row.values()]  # exact: they were doubles
        rest = (np.array([float(entry) for entry in each]) for each in (layer.bias, layer.slopes))
        layers.append(DenseLayer(weight, *rest))
        width = len(layer.rows)
    return DenseNetwork(layers, network.digest())


def _packed(value: object) -> DenseNetwork:
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
        DenseLayer(weight, np.zeros(len(weight)) if bias is None else bias, np.full(len(weight), slope))
        for weight, bias, slope in zip(weights, biases, [*slopes, 1.0], strict=True)
    ]
    return DenseNetwork(layers, _digest(weights, biases, slopes))


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
