"""Entrywise functions, sums and products of channels, with the names and numbers that certificates have for them.

They are of one activation, of one and a number or vector by channel, or of two activations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from lawful.program.core.functions import Arguments, name_function
from lawful.program.operators.choice import CLAMPS
from lawful.program.program import Node
from lawful.program.table import OperatorFamily
from lawful.pruning.channels.reading import attention, reductions
from lawful.pruning.channels.reading.record import ChannelRecord, renumber
from lawful.pruning.channels.reading.values import (
    BY_CHANNEL,
    Attended,
    Centred,
    Channels,
    Guard,
    HeadScores,
    Held,
    Mixture,
    Padded,
    Total,
    Value,
    number_of,
    vector_name,
)


def apply_function(
    record: ChannelRecord, node: Node, x: Channels, kind: str, function: str, arguments: Arguments = ()
) -> Channels:
    """A function of each channel of x; what x is a function of, this is one of too."""
    name = record.add_by_channel(kind, record.name(node), [x.name], function=function, arguments=arguments)
    return replace(x, name=name, shape=node.shape, root=x.origin, mixture=None)


def bend(record: ChannelRecord, node: Node, operands: Sequence[Value]) -> Value:
    """A function entry by entry."""
    if all(isinstance(operand, Held) for operand in operands):
        return Held(node)
    if len(operands) > 1:
        return _combine(record, node, operands)
    x = operands[0]
    if isinstance(x, HeadScores):
        return replace(x, bent=True)
    settled = None if isinstance(x, Mixture) else record.settle(x)
    return record.other(node, x) if settled is None else apply_function(record, node, settled, *name_function(node))


def choose(record: ChannelRecord, node: Node, operands: Sequence[Value]) -> Value:
    """A bound on both sides by numbers; else any function of one channel."""
    if all(isinstance(operand, Held) for operand in operands):
        return Held(node)
    if any(isinstance(operand, (HeadScores, Attended, Guard)) for operand in operands):
        return attention.choose(record, node, operands)
    if node.op in CLAMPS and len(operands) == 2:
        x, bound = sorted(operands, key=lambda each: isinstance(each, Held))
        settled = None if isinstance(x, Mixture) else record.settle(x)
        number = number_of(bound)
        if settled is not None and number is not None:
            return apply_function(record, node, settled, "bend", CLAMPS[node.op], (number,))
    return _combine(record, node, operands)


def compare(record: ChannelRecord, node: Node, operands: Sequence[Value]) -> Value:
    """A truth value of each channel, or of scores."""
    if all(isinstance(operand, Held) for operand in operands):
        return Held(node)
    scores = [operand for operand in operands if isinstance(operand, (HeadScores, Attended, Guard))]
    if not scores:
        return _combine(record, node, operands)
    if len(scores) > 1:
        return record.other(node, *operands)
    return Guard(scores[0].source if isinstance(scores[0], Guard) else scores[0])


def _combine(record: ChannelRecord, node: Node, operands: Sequence[Value]) -> Value:
    """A function of each channel that is made of several functions of it.

    Its parts alone say what it is, so no other channel is known to be a multiple of it: it has a key of its own.
    """
    known = [
        record.settle(operand) if isinstance(operand, (Channels, Padded, Total)) else operand for operand in operands
    ]
    channels = [value for value in known if isinstance(value, Channels)]
    numbers = all(
        isinstance(value, Channels) or (value is not None and number_of(value) is not None) for value in known
    )
    alike = channels and all(
        (channel.origin, channel.width) == (channels[0].origin, channels[0].width)
        and np.array_equal(channel.labels, channels[0].labels)
        for channel in channels
    )
    if not alike or not numbers or node.family not in BY_CHANNEL:
        return record.other(node, *operands)
    first = channels[0]
    name = record.add_by_channel("bend", record.name(node), [first.origin], function=f"entrywise {node.op}")
    return replace(first, name=name, shape=node.shape, root=first.origin, mixture=None)


WITH_BIAS = ("layer", "depthwise", "norm", "scale")


def add(record: ChannelRecord, node: Node, x: Value, y: Value) -> Value:
    """A bias, a shift by channel, a number, the start of a normalisation, or a sum of two activations."""
    if isinstance(x, Held) and isinstance(y, Held):
        return Held(node)
    operands = zip((x, y), node.inputs, strict=True)
    (term, inside), (added, beside) = sorted(operands, key=lambda pair: isinstance(pair[0], Held))
    if isinstance(term, HeadScores):
        return attention.mask(record, node, term, added, beside)
    if not isinstance(added, Held):
        return _pair(record, node, "add", x, y)
    settled = None if isinstance(term, Mixture) else record.settle(term)
    if settled is None:
        return record.other(node, x, y)
    number = number_of(added)
    if number is None:
        if (vector := _vector(added.node, settled)) is not None:
            return _shift(record, node, inside, settled, vector)
        number = _shared_number(record, added)
    if number is not None:
        return apply_function(record, node, settled, "bend", "add number", (number,))
    mean = reductions.read_mean(added.node, settled)
    return record.other(node, x, y) if mean is None else Centred(settled, mean)


def multiply(record: ChannelRecord, node: Node, x: Value, y: Value) -> Value:
    """A number, a scale by channel, the end of a mean or of a normalisation, or a product of two activations."""
    if isinstance(x, Held) and isinstance(y, Held):
        return Held(node)
    term, factor = sorted((x, y), key=lambda value: isinstance(value, Held))
    if isinstance(term, HeadScores) and number_of(factor):
        return term
    if not isinstance(factor, Held):
        return _pair(record, node, "mul", x, y)
    if isinstance(term, Centred):
        return reductions.end_norm(record, node, term, factor) or record.other(node, x, y)
    if isinstance(term, Total) and factor.node.op == "constant":
        mean = reductions.take_mean(record, node, term, factor.node)
        if mean is not None:
            return mean
    settled = None if isinstance(term, Mixture) else record.settle(term)
    if settled is None:
        return record.other(node, x, y)
    number = number_of(factor)
    mixture = None if number is None else settled.mixture  # heads stay alike under one number
    if number is None:
        if (vector := _vector(factor.node, settled)) is not None:
            return _scale(record, node, settled, {"weight": vector, "bias": None})
        number = _shared_number(record, factor)
    if number is None:
        return record.other(node, x, y)
    product = apply_function(record, node, settled, "same", "mul number", (number,))
    return replace(product, mixture=mixture)


def _shared_number(record: ChannelRecord, value: Held) -> float | None:
    """The number in a tensor of one entry, which all channels share."""
    name = vector_name(value.node, 1)
    if name is None:
        return None
    record.touched.add(name)
    return float(record.source.tensors[name].reshape(-1)[0])


def _vector(node: Node, x: Channels) -> str | None:
    """The tensor with a number for each channel of x."""
    return vector_name(node, x.labels.size) if node.shape == x.labels.shape else None


def _shift(record: ChannelRecord, node: Node, operand: Node, x: Channels, bias: str) -> Value:
    """The bias of the layer or normalisation before, if nothing else reads that; else a step of its own."""
    operation = record.operation(x.name)
    if (
        operation is not None
        and operation.kind in WITH_BIAS
        and operation.tensors["bias"] is None
        and len(record.source.tensors[bias].shape) == 1  # a layer's own bias: files also hold (1, C, 1, 1)
        and x.width == 1
        and np.array_equal(x.labels.ravel(), np.arange(record.count(x.name)))
        and _has_one_reader(record, operand)
    ):
        record.replace_operation(replace(operation, tensors={**operation.tensors, "bias": bias}))
        return replace(x, shape=node.shape)
    return _scale(record, node, x, {"weight": None, "bias": bias})


def _has_one_reader(record: ChannelRecord, operand: Node) -> bool:
    """Whether one node alone reads what an operation makes, through movements that only one node reads."""
    readers = record.readers
    while readers[operand] == 1 and operand.family is OperatorFamily.MOVEMENT and len(operand.inputs) == 1:
        operand = operand.inputs[0]
    return readers[operand] == 1 and operand.family is not OperatorFamily.MOVEMENT


def _scale(record: ChannelRecord, node: Node, x: Channels, tensors: dict[str, str | None]) -> Channels:
    source = record.sequence(x)
    if source is None:
        return record.pin(node, [x.name], node.op)
    return renumber(record.add_by_channel("scale", record.name(node), [source], tensors=tensors), node, x)


def _pair(record: ChannelRecord, node: Node, kind: str, x: Value, y: Value) -> Value:
    """Two activations, channel by channel: channels of both are one from now on."""
    if isinstance(x, Mixture) or isinstance(y, Mixture):
        return record.other(node, x, y)
    one, two = record.settle(x), record.settle(y)
    if one is None or two is None or one.labels.shape != two.labels.shape:
        return record.other(node, x, y)
    sizes = zip(one.shape, two.shape, one.labels.shape, strict=True)
    if any(a != b and 1 in (a, b) and n > 1 for a, b, n in sizes):
        return record.other(node, x, y)
    first, second = record.sequence(one), record.sequence(two)
    if first is None or second is None:
        return record.other(node, x, y)
    alike = np.array_equal(one.labels, two.labels)
    shrinkage = _shrinkage(record, one, two) if kind == "add" and alike else None
    if shrinkage is not None:  # relu(x - λ) - relu(-x - λ) is odd, which its parts do not say
        source, bound = shrinkage
        name = record.add_by_channel("bend", record.name(node), [source], function="softshrink", arguments=(bound,))
        return replace(one, name=name, shape=node.shape, root=one.origin, mixture=None)
    record.program.join(first, second)
    name = record.add_by_channel(kind, record.name(node), [first, second])
    if alike and one.origin == two.origin and (first, second) == (one.name, two.name):
        return Channels(name, one.labels, node.shape, one.width, one.origin)
    return renumber(name, node, one)


def _shrinkage(record: ChannelRecord, one: Channels, two: Channels) -> tuple[str, float] | None:
    """The activation x and λ ≥ 0 of relu(x - λ) - relu(-x - λ)."""
    for right, left in ((one.name, two.name), (two.name, one.name)):
        bound, x = _before(record, _before(record, right, "relu")[1], "add number")
        negative = _before(record, _before(record, left, "mul number", -1.0)[1], "relu")[1]
        other, y = _before(record, negative, "add number")
        opposite = _before(record, y, "mul number", -1.0)[1]
        if x and x == opposite and bound is not None and bound == other and bound <= 0:
            return x, -bound
    return None


def _before(record: ChannelRecord, name: str, function: str, number: float | None = None) -> tuple[float | None, str]:
    """The number of a function that makes an activation, and what it reads; nothing if another one does."""
    operation = record.operation(name)
    if operation is None or operation.function != function or number not in (None, *operation.arguments):
        return None, ""
    return (float(operation.arguments[0]) if operation.arguments else None), operation.sources[0]
