"""Normalisations by channel: by its own mean and deviation over positions, or by stored ones."""

from __future__ import annotations

import math
from dataclasses import replace

from lawful.program.program import Node
from lawful.program.table import OperatorFamily
from lawful.pruning.channels.program import OWN_MEANS
from lawful.pruning.channels.reading import attention
from lawful.pruning.channels.reading.held import number_of, unwrap, vector_name
from lawful.pruning.channels.reading.record import ChannelRecord, renumber
from lawful.pruning.channels.reading.values import Centred, Channels, HeadScores, Held, Mixture, Value


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
