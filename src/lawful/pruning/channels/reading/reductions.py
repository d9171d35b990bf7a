"""Over positions, channel by channel: pools, sums that may turn out to be means, normalisations."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from lawful.program.arrays import NUMPY
from lawful.program.program import Node
from lawful.program.table import OperatorFamily
from lawful.pruning.channels.program import OWN_MEANS
from lawful.pruning.channels.reading import attention
from lawful.pruning.channels.reading.record import ChannelRecord, renumber
from lawful.pruning.channels.reading.values import (
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
    unwrap,
    vector_name,
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


def normalise(record: ChannelRecord, node: Node, x: Value) -> Value:
    """Each channel by its own mean and deviation over positions; a softmax of scores."""
    if isinstance(x, HeadScores):
        return attention.attend(record, node, x)
    settled = None if isinstance(x, Mixture) else record.settle(x)
    if settled is None:
        return record.other(node, x)
    by_means = node.attributes.get("centre", False) and node.attributes.get("epsilon", 0.0) > 0
    if not by_means or set(node["axes"]) & set(settled.axes):
        return record.other(node, settled)
    name = record.add_by_channel(
        "instance", record.name(node), [settled.name], tensors={"weight": None, "bias": None}, function=OWN_MEANS,
        arguments=(float(node["epsilon"]),),
    )  # fmt: skip
    return replace(settled, name=name, shape=node.shape, root="", mixture=None)


def read_mean(node: Node, x: Channels) -> str | None:
    """The tensor whose negative a held value is, one number for each channel: x less a mean is the start of a norm."""
    if node.shape != x.labels.shape:
        return None
    negative = unwrap(node)
    if negative.family is not OperatorFamily.PRODUCT:
        return None
    for factor, vector in (negative.inputs, negative.inputs[::-1]):
        if number_of(Held(factor)) == -1:
            return vector_name(vector, x.labels.size)
    return None


def end_norm(record: ChannelRecord, node: Node, x: Centred, factor: Held) -> Channels | None:
    """(x - mean) γ / √(variance + ε), with γ or without."""
    count = x.value.labels.size
    if factor.node.shape != x.value.labels.shape:
        return None
    scale, root = None, unwrap(factor.node)
    if root.family is OperatorFamily.PRODUCT:
        orders = (root.inputs, root.inputs[::-1])
        scale, root = next((pair for pair in orders if pair[1].traits.degree == -0.5), root.inputs)
    weight = None if scale is None else vector_name(scale, count)
    deviation = _read_variance(root)
    source = record.sequence(x.value)
    if deviation is None or source is None or (scale is not None and weight is None):
        return None
    variance, epsilon = deviation
    if math.prod(record.source.tensors[variance].shape) != count:
        return None
    tensors = {"weight": weight, "bias": None, "mean": x.mean, "variance": variance}
    name = record.add_by_channel("norm", record.name(node), [source], tensors=tensors, arguments=(epsilon,))
    return renumber(name, node, x.value)


def _read_variance(node: Node) -> tuple[str, float] | None:
    """The tensor and ε of (variance + ε)^-½."""
    if node.family is not OperatorFamily.ELEMENTWISE or node.traits.degree != -0.5:
        return None
    inside = node.inputs[0]
    if inside.family is not OperatorFamily.ADDITION:
        name = vector_name(inside, inside.size)
        return None if name is None else (name, 0.0)
    for number, vector in (inside.inputs, inside.inputs[::-1]):
        epsilon, name = number_of(Held(number)), vector_name(vector, vector.size)
        if epsilon is not None and name is not None:
            return name, epsilon
    return None
