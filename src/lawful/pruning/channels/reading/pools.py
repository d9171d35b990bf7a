"""Pools over positions: maxima, sums that may turn out to be means, and means."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from lawful.program.arrays import NUMPY
from lawful.program.program import Node
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
)


def reduce(record: ChannelRecord, node: Node, x: Value) -> Value:
    """A pool over positions."""
    if isinstance(x, (Held, Mixture)):
        return record.other(node, x)
    if isinstance(x, (HeadScores, Attended)):
        return Guard(x)
    axes, traits = node.attributes.get("axes", ()), node.traits
    padded = x if isinstance(x, Padded) else None
    value = x.value if isinstance(x, Padded) else record.settle(x)
    if value is None or not axes or set(axes) & set(value.axes):
        return record.other(node, x)
    shape = tuple(1 if axis in axes else size for axis, size in enumerate(value.shape))
    if traits.linear == "jointly":
        if padded is not None and padded.number != 0:
            return record.other(node, x)
        count = np.full((1,) * node.rank, float(math.prod(value.shape[axis] for axis in axes)))
        if padded is not None:
            count = _places_inside(padded, axes).sum(axis=tuple(axes), keepdims=True).astype(float)
        return Total(node, replace(value, shape=shape), count, padded is not None)
    if traits.shift != 1 or traits.degree != 1:
        return record.other(node, x)
    if padded is not None and not _ignores_padding(node, padded):
        value = record.settle(x)
        if value is None:
            return record.other(node, x)
    name = record.add_by_channel("pool", record.name(node), [value.name])
    return replace(value, name=name, shape=shape, root="", mixture=None)


def _places_inside(padded: Padded, axes: tuple[int, ...]) -> NDArray[np.bool_]:
    """Where channels are, in full along some axes."""
    sizes = [padded.value.shape[axis] if axis in axes else n for axis, n in enumerate(padded.outside.shape)]
    return ~np.broadcast_to(padded.outside, sizes)


def _ignores_padding(node: Node, padded: Padded) -> bool:
    """Whether a pool of padded windows is one of what lies inside: ∓∞ beside a maximum or a minimum, never alone."""
    pair = NUMPY.cast(np.array([padded.number, 0.0]), "f")
    neutral = float(np.asarray(node.operator.meaning(NUMPY, {"axes": (0,)}, pair)).item()) == 0.0
    axes = node["axes"]
    return neutral and math.isinf(padded.number) and bool(_places_inside(padded, axes).any(axis=tuple(axes)).all())


def take_mean(record: ChannelRecord, node: Node, total: Total, factor: Node) -> Channels | None:
    """A sum times one over the number of its terms; a number that is an exact multiple of that as well."""
    value, count = factor["value"], total.count
    try:
        inverse = np.broadcast_to(1.0 / count, np.broadcast_shapes(count.shape, value.shape))
    except ValueError:
        return None
    name, source = record.name(node), total.value.name
    if bool((inverse == value).all()):  # the quotient that reading rounded: it is a mean
        record.add_by_channel("pool", name, [source])
    else:
        if total.padded or count.size > 1 or value.size > 1 or not math.isfinite(float(value.item())):
            return None
        number = Fraction(float(value.item())) * int(count.item())
        if Fraction(float(number)) != number:
            return None
        record.add_mean(name, source, float(number))
    return replace(total.value, name=name, shape=node.shape, root="")
