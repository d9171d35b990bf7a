"""Which axis of a stream holds its neurons: what reads the stream and what writes to it tell."""

from __future__ import annotations

from collections.abc import Iterator

from lawful.program.passes.fold import LayerReader
from lawful.program.program import Node
from lawful.program.table import OperatorFamily

NORM, SCALE, LAYER = range(3)  # how good a witness is: an MLP over tokens is a layer too
FAR = 12  # operators away from the stream
Vote = tuple[int, int]  # rank of the witness, axis


def neurons(nodes: tuple[Node, ...], reader: LayerReader) -> list[Vote]:
    """What the operators near these values (of one shape) say, each with its rank: the smallest is the best.

    A normalisation works over neurons, a gain has one number for each, and a layer mixes them. Operators entry by entry
    and permutations are followed; any other movement hides what is behind it.
    """
    votes: list[Vote] = []
    for node in nodes:
        axes = tuple(range(node.rank))
        votes += [*_onwards(node, axes, reader, FAR), *_back(node, axes, reader, FAR)]
    return votes


def _onwards(node: Node, axes: tuple[int, ...], reader: LayerReader, far: int) -> Iterator[Vote]:
    """From a value to its readers; `axes` says which axis of the stream each axis of the value is."""
    for user in reader.users[node]:
        witness = _witness(user, reader, reads=node)
        if witness is not None:
            yield witness[0], axes[witness[1]]
        elif far and (order := _order(user, node)) is not None:
            yield from _onwards(user, tuple(axes[k] for k in order), reader, far - 1)


def _back(node: Node, axes: tuple[int, ...], reader: LayerReader, far: int) -> Iterator[Vote]:
    """From a value to what computed it."""
    witness = _witness(node, reader)
    if witness is not None:
        yield witness[0], axes[witness[1]]
        return
    source = next((each for each in node.inputs if _order(node, each) is not None), None)
    if not far or source is None:
        return
    order = _order(node, source) or ()
    before = [0] * len(axes)
    for here, there in enumerate(order):
        before[there] = axes[here]
    yield from _back(source, tuple(before), reader, far - 1)


def _witness(node: Node, reader: LayerReader, reads: Node | None = None) -> Vote | None:
    """What an operator says about the axis of neurons in the value that it reads (in its own, if none is given)."""
    if node.family is OperatorFamily.NORMALISATION and "centre" in node.attributes:
        return (NORM, node["axes"][0]) if len(node["axes"]) == 1 else None
    layer = reader.layer(node)
    if layer is not None:
        if reads is None:
            return (LAYER, layer.result_axis) if layer.result.rank == node.rank else None
        return (LAYER, layer.value_axis) if layer.value is reads else None
    if node.family is OperatorFamily.PRODUCT:
        if reader.statistics(node) is not None:
            return NORM, 1
        scale = reader.scale(node)
        return None if scale is None or scale.scale is None else (SCALE, scale.axis)
    return None


def _order(node: Node, source: Node) -> tuple[int, ...] | None:
    """For every axis of a node, which axis of one of its operands it is: after a permutation, or entry by entry."""
    if node.family is OperatorFamily.MOVEMENT:
        one = len(node.inputs) == 1 and "map" in node.attributes
        return node["map"].permutation_of(source.shape) if one else None
    entries = node.family is not OperatorFamily.CONTRACTION and node.shape == source.shape
    return tuple(range(node.rank)) if entries else None
