"""Functions of one number: of each channel, whatever it is, with the name and numbers that certificates have for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from lawful.program.program import Node
from lawful.pruning.channels.program import Arguments
from lawful.pruning.channels.reading import attention
from lawful.pruning.channels.reading.mixtures import BY_CHANNEL
from lawful.pruning.channels.reading.record import ChannelRecord
from lawful.pruning.channels.reading.values import (
    Attended,
    Channels,
    Guard,
    HeadScores,
    Held,
    Mixture,
    Padded,
    Total,
    Value,
    number_of,
)

# Names that certificates have for functions of one number, where they are not the table's own.
ROOTS = {0.5: "sqrt", -0.5: "rsqrt", -1.0: "reciprocal"}
CLAMPS = {"maximum": "clamp_min", "minimum": "clamp_max"}
UNBOUNDED = 1e300  # a softplus that is linear nowhere


def name_function(node: Node) -> tuple[str, str, Arguments]:
    """Kind, name and numbers that certificates have for a function of one number.

    `same` commutes with positive factors.
    """
    traits, numbers = node.traits, tuple(float(v) for v in node.attributes.values() if isinstance(v, (int, float)))
    if node.op == "power" and node["exponent"] in ROOTS:
        return "bend", ROOTS[node["exponent"]], ()
    if node.op == "softplus":
        return "bend", node.op, (1.0, UNBOUNDED)
    return ("same" if node.op in ("relu", "abs") and traits.degree == 1 else "bend"), node.op, numbers


def apply_function(
    record: ChannelRecord, node: Node, x: Channels, kind: str, function: str, arguments: Arguments = ()
) -> Channels:
    """A function of each channel of x; what x is a function of, this is one of too."""
    name = record.add_by_channel(kind, record.name(node), [x.name], function=function, arguments=arguments)
    return replace(x, name=name, shape=node.shape, root=x.origin, mixture=None)


def bend(record: ChannelRecord, node: Node, operands: Sequence[Value]) -> Value:
    """A function entry by entry."""
    if all(isinstance(each, Held) for each in operands):
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
    if all(isinstance(each, Held) for each in operands):
        return Held(node)
    if any(isinstance(each, (HeadScores, Attended, Guard)) for each in operands):
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
    if all(isinstance(each, Held) for each in operands):
        return Held(node)
    scores = [each for each in operands if isinstance(each, (HeadScores, Attended, Guard))]
    if not scores:
        return _combine(record, node, operands)
    if len(scores) > 1:
        return record.other(node, *operands)
    return Guard(scores[0].source if isinstance(scores[0], Guard) else scores[0])


def _combine(record: ChannelRecord, node: Node, operands: Sequence[Value]) -> Value:
    """A function of each channel that is made of several functions of it.

    Its parts alone say what it is, so no other channel is known to be a multiple of it: it has a key of its own.
    """
    known = [record.settle(each) if isinstance(each, (Channels, Padded, Total)) else each for each in operands]
    channels = [each for each in known if isinstance(each, Channels)]
    numbers = all(isinstance(each, Channels) or (each is not None and number_of(each) is not None) for each in known)
    alike = channels and all(
        (each.origin, each.width) == (channels[0].origin, channels[0].width)
        and np.array_equal(each.labels, channels[0].labels)
        for each in channels
    )
    if not alike or not numbers or node.family not in BY_CHANNEL:
        return record.other(node, *operands)
    first = channels[0]
    name = record.add_by_channel("bend", record.name(node), [first.origin], function=f"entrywise {node.op}")
    return replace(first, name=name, shape=node.shape, root=first.origin, mixture=None)
