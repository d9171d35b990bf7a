"""Movements and concatenations: labels move, and what is put beside channels is remembered."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lawful.program.program import Node
from lawful.pruning.channels.program import Operation
from lawful.pruning.channels.reading import attention
from lawful.pruning.channels.reading.labels import collapse, follow
from lawful.pruning.channels.reading.mixtures import move_mixtures
from lawful.pruning.channels.reading.record import ChannelRecord
from lawful.pruning.channels.reading.values import Attended, Channels, HeadScores, Held, Mixture, Padded, Total, Value


def move(record: ChannelRecord, node: Node, sources: Sequence[Value]) -> Value:
    """Entries of the sources in other places."""
    if all(isinstance(each, Held) for each in sources):
        return Held(node)
    if any(isinstance(each, (HeadScores, Attended)) for each in sources):
        return attention.move(record, node, sources)
    if len(sources) == 1 and isinstance(sources[0], Total):
        total = _move_total(record, node, sources[0])
        if total is not None:
            return total
    labelled: list[Channels | Mixture | None] = []
    for each in sources:
        if isinstance(each, Held) and each.node.op == "constant":
            labelled.append(None)
            continue
        known = each if isinstance(each, Mixture) else record.settle(each)  # a tensor among sources is not settled
        if known is None:
            return record.other(node, *sources)
        labelled.append(known)
    channels = [each for each in labelled if not isinstance(each, Mixture)]
    if len(channels) < len(labelled):
        return move_mixtures(node, labelled) or record.other(node, *sources)
    return _move_channels(record, node, channels) or record.other(node, *sources)


def _move_total(record: ChannelRecord, node: Node, total: Total) -> Total | None:
    """A sum over positions that stays one, for it may become a mean later."""
    moved = move(record, node, [total.value])
    if not isinstance(moved, Channels) or moved.name != total.value.name:
        return None
    if total.count.size > 1:
        count = np.broadcast_to(total.count, node.inputs[0].shape).ravel()[node["map"].positions]
    else:
        count = total.count.reshape((1,) * node.rank)
    return Total(total.node, moved, count, total.padded)


def _move_channels(record: ChannelRecord, node: Node, sources: Sequence[Channels | None]) -> Value | None:
    """Channels of one activation, or of several that become one: labels of each start where the last one's end."""
    known = [each for each in sources if each is not None]
    one = len({(each.name, each.width) for each in known}) == 1
    if not one and any(each.width != 1 for each in known):
        return None
    starts, total = {}, 0
    for each in known:
        if each.name not in starts:
            starts[each.name] = 0 if one else total
            total += record.count(each.name) * each.width
    labelled = [
        (operand.shape, None if each is None else each.labels + starts[each.name])
        for operand, each in zip(node.inputs, sources, strict=True)
    ]
    moved = follow(node["map"], labelled)
    if moved is None:
        return None
    number = _number_beside(node, sources)
    if number is None and moved.outside is not None:
        return None
    width, labels = known[0].width * moved.width, moved.labels
    if width > 1 and (collapsed := collapse(labels, width)) is not None:
        width, labels = 1, collapsed
    if record.still and not (one and width == 1 and np.array_equal(labels, known[0].labels)):
        return None
    mixture = None
    if one:
        name, root = known[0].name, known[0].root
        if known[0].mixture is not None and len(sources) == 1:
            mixture = move_mixtures(node, [known[0].mixture])
    else:
        name, root = record.name(node), ""
        cells = np.concatenate([record.spots[source].cells for source in starts])
        record.add(Operation("cat", name, tuple(starts)), cells)
        if len({each.mixture.root if each.mixture else each.origin for each in known}) == 1:
            mixture = move_mixtures(node, sources)
    value = Channels(name, labels, node.shape, width, root, mixture)
    return value if number is None or moved.outside is None else Padded(value, number, moved.outside)


def _number_beside(node: Node, sources: Sequence[Channels | None]) -> float | None:
    """The one number that lies beside the channels."""
    # A constant among the sources of a movement holds each number once, and all of them are used.
    numbers = [operand["value"].ravel() for operand, each in zip(node.inputs, sources, strict=True) if each is None]
    flat = np.concatenate(numbers) if numbers else np.zeros(0)
    return float(flat[0]) if len(flat) == 1 else None
