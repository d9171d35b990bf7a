"""Layers, which make new channels: Einstein sums and convolutions with a stored weight, and tables of embeddings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from lawful.program.program import Node
from lawful.pruning.channels.program import Operation
from lawful.pruning.channels.reading import attention
from lawful.pruning.channels.reading.record import ChannelRecord, channels_along
from lawful.pruning.channels.reading.values import Channels, Held, Value, tensor_name


def contract(record: ChannelRecord, node: Node, x: Value, y: Value) -> Value:
    """A layer, a fixed map of positions, or a part of an attention."""
    if isinstance(x, Held) and isinstance(y, Held):
        return Held(node)
    if "spec" not in node.attributes:
        return _convolve(record, node, x, y)
    letters, out = node["spec"].split("->")
    operands = zip((x, y), letters.split(","), strict=True)
    (term, lx), (factor, ly) = sorted(operands, key=lambda pair: isinstance(pair[0], Held))
    if not isinstance(factor, Held):
        return attention.contract(record, node, (term, lx), (factor, ly), out)
    settled = record.settle(term)
    if settled is None:
        return record.other(node, x, y)
    inner, outer = [c for c in lx if c not in out], [c for c in ly if c not in lx]
    weight = tensor_name(factor)
    if weight is not None and len(inner) == len(outer) == 1 and len(ly) == 2:
        source = record.along(settled, lx.index(inner[0]))
        return add_layer(record, node, source, weight, out.index(outer[0]), turned=ly[0] == inner[0])
    if factor.node.op == "constant" and not {lx[axis] for axis in settled.axes} & set(ly):
        shares = np.asarray(factor.node["value"], dtype=np.float64)
        summed = tuple(k for k, c in enumerate(ly) if c in inner)
        terms = math.prod(shares.shape[k] for k in summed)
        # Shares of interpolations add up to 1 but for the rounding of each when they were read.
        steady = bool((np.abs(shares.sum(axis=summed) - 1) <= 2.0**-52 * terms).all())
        name = record.add_by_channel("pool", record.name(node), [settled.name], padded=not steady)
        return _contract_positions(node, settled, lx, out, name)
    return record.other(node, x, y)


def _contract_positions(node: Node, x: Channels, letters: str, out: str, name: str) -> Channels:
    """Labels after a contraction of positions: their axes in the order of the result, and size 1 along its new ones."""
    before, after = [c for c in letters if c in out], [c for c in out if c in letters]
    lines = x.labels[tuple(slice(None) if c in out else 0 for c in letters)]
    turned = lines.transpose([before.index(c) for c in after])
    sizes = [turned.shape[after.index(c)] if c in after else 1 for c in out]
    return replace(x, name=name, labels=turned.reshape(sizes), shape=node.shape, root="", mixture=None)


def _convolve(record: ChannelRecord, node: Node, x: Value, weight: Value) -> Value:
    settled, name = record.settle(x), tensor_name(weight)
    if settled is None or name is None:
        return record.other(node, x, weight)
    groups, padded = node["groups"], any(node["padding"])
    if node["transposed"] and groups != 1:
        return record.other(node, settled, weight)
    source = record.along(settled, 1)
    if node["transposed"]:  # beside the border there is less to add, as beside zeros
        return add_layer(record, node, source, name, 1, turned=True, padded=True)
    if 1 < groups == settled.shape[1] == node.shape[1]:
        tensors = {"weight": name, "bias": None}
        made = record.add_by_channel("depthwise", record.name(node), [source], tensors=tensors, padded=padded)
        return channels_along(made, node, 1, groups)
    return add_layer(record, node, source, name, 1, padded=padded, groups=groups)


def look_up(record: ChannelRecord, node: Node, operands: Sequence[Value]) -> Value:
    """A table is a layer without a bias that reads one row: its columns are the channels."""
    if all(isinstance(each, Held) for each in operands):
        return Held(node)
    name, rows = tensor_name(operands[0]), node.inputs[0]
    whole_rows = rows.rank == 2 and node.attributes.get("axis") == 0 and len(operands) == 2
    if name is None or not whole_rows or node.shape != (*node.inputs[1].shape, rows.shape[1]):
        return record.other(node, *operands)
    sources = record.sources_of(operands[1])
    for source in sources:
        record.program.pin(source)
    row = record.name(node, " row")
    record.add_source(Operation("other", row, tuple(sources)), rows.shape[0], pinned=True)
    return add_layer(record, node, row, name, node.rank - 1, turned=True, function="embedding")


def add_layer(
    record: ChannelRecord,
    node: Node,
    source: str,
    weight: str,
    axis: int,
    *,
    turned: bool = False,
    padded: bool = False,
    groups: int = 1,
    function: str = "",
) -> Channels:
    """A layer without a bias so far, whose channels lie along an axis; `turned`: its weight has inputs first."""
    if turned:
        record.program.transposed.add(weight)
    tensors = {"weight": weight, "bias": None}
    layer = Operation("layer", record.name(node), (source,), tensors, padded, function=function, groups=groups)
    record.add_source(layer, node.shape[axis])
    return channels_along(layer.name, node, axis, node.shape[axis])
