"""Mixtures: functions of several channels of one activation, followed as long as they may be heads of an attention."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from lawful.program.program import Node
from lawful.program.table import OperatorFamily
from lawful.pruning.channels.reading.labels import follow
from lawful.pruning.channels.reading.values import Channels, Held, Mixture, Value

BY_CHANNEL = frozenset({OperatorFamily.ELEMENTWISE, OperatorFamily.CHOICE, OperatorFamily.COMPARISON})
BLENDING = BY_CHANNEL | {OperatorFamily.ADDITION, OperatorFamily.PRODUCT, OperatorFamily.NORMALISATION}


def mixture_of(node: Node, value: Value) -> Mixture | None:
    """The mixture that a node's value is, maybe one of single channels."""
    if isinstance(value, Mixture):
        return value
    if isinstance(value, Channels) and value.width == 1:
        return value.mixture or Mixture(node, value.origin, value.labels, "")
    return None


def blend(node: Node, operands: Sequence[Value], pinned: Sequence[bool]) -> Mixture | None:
    """Operands that meet entry by entry, or in a norm; `pinned` says of which all channels stay.

    Operands that stay come last: the first other one says which activation is mixed, and those beside it only tell
    channels apart.
    """
    parts: list[Mixture] = []
    beside: list[tuple[int, ...]] = []
    for value, source, stays in sorted(zip(operands, node.inputs, pinned, strict=True), key=lambda each: each[2]):
        if not isinstance(value, (Held, Channels, Mixture)):
            return None
        mixture = mixture_of(source, value)
        if mixture is not None and (not parts or mixture.root == parts[0].root):
            parts.append(mixture)
        elif stays:
            beside.append(source.shape)
        else:
            return None
    if not parts or any(part.labels.shape != parts[0].labels.shape for part in parts):
        return None
    first = parts[0].labels
    relations = [relation for part in parts for relation in part.relations]
    relations += [(first, part.labels, True) for part in parts[1:]]
    for shape in beside:
        sizes = [n if first.shape[k] > 1 else 1 for k, n in enumerate(shape)]
        if math.prod(sizes) > 1:
            code = np.arange(math.prod(sizes)).reshape(sizes)
            relations.append((first, np.broadcast_to(code, first.shape), False))
    if node.family is OperatorFamily.NORMALISATION:  # all channels along its axes meet: each meets the first one
        axes = node.attributes.get("axes", (node.attributes.get("axis"),))
        start = first[tuple(slice(0, 1) if k in axes else slice(None) for k in range(first.ndim))]
        relations.append((np.broadcast_to(start, first.shape), first, True))
    return Mixture(node, parts[0].root, first, _reason(node, parts), tuple(relations))


def move_mixtures(node: Node, sources: Sequence[Channels | Mixture | None]) -> Mixture | None:
    """Entries of several functions of one activation's channels after a movement."""
    parts = [mixture for each in sources if each is not None and (mixture := mixture_of(node, each)) is not None]
    if len(parts) < len(sources) or len({part.root for part in parts}) > 1:
        return None
    shapes = [each.shape for each in node.inputs]
    moved = follow(node["map"], [(s, part.labels) for s, part in zip(shapes, parts, strict=True)])
    if moved is None or moved.width > 1 or moved.outside is not None:
        return None
    relations = [relation for part in parts for relation in part.relations]
    if len(parts) > 1:
        # Heads are alike only if each entry comes from the same source in all of them: sources are codes of labels.
        count = len(parts)
        coded = [(s, part.labels * count + k) for k, (s, part) in enumerate(zip(shapes, parts, strict=True))]
        numbered = follow(node["map"], coded)
        if numbered is None or numbered.width > 1:
            return None
        labels, codes = np.broadcast_arrays(moved.labels, numbered.labels % count)
        relations.append((labels, codes, False))
    return Mixture(node, parts[0].root, moved.labels, _reason(node, parts), tuple(relations))


def _reason(node: Node, parts: Sequence[Mixture]) -> str:
    """The operator that is named where a mixture is not followed: the first one that mixed."""
    return next((part.said for part in parts if part.said), "") or node.op
