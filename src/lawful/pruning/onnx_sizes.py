"""Sizes that the nodes of an ONNX file state, once channels have left: of a reshape into heads, of parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from lawful.errors import Unsupported
from lawful.network.modules.export import ExportedModule
from lawful.network.modules.onnx_module import OnnxModule
from lawful.program.arrays import NUMPY
from lawful.program.domains.interpret import AbstractDomain, interpret
from lawful.program.frontends.onnx import SizeStatement
from lawful.program.program import Node
from lawful.pruning.cut import KeptChannels, cut_tensors
from lawful.pruning.groups import cut_rows

Sizes = tuple[int, ...]
Mask = NDArray[np.bool_]


def stated_sizes(
    module: OnnxModule, read: ExportedModule, state: KeptChannels, examples: Sequence[torch.Tensor]
) -> dict[str, Sizes]:
    """What the nodes of a file must state for the channels that are left, by their first outputs."""
    masks = {module.names[path]: mask for path, mask in _masks(state).items() if path in module.names}
    if all(bool(mask.all()) for mask in masks.values()):
        return {}
    program, statements = module.statements(examples)
    left = interpret(program, _Left(masks))
    found: dict[str, Sizes] = {}
    for each in statements:
        before, after = (_counted(left[node]) for node in (each.source, each.results[0]))
        parts = [_counted(left[node]) for node in each.results]
        if all(size == node.shape for size, node in zip(parts, each.results, strict=True)):
            continue
        if each.axis is None:
            found[each.name] = _reshaped(each, before, after)
        else:
            found[each.name] = tuple(size[each.axis] for size in parts)
    return found


class _Labels:
    """The weights' own positions in place of their numbers."""

    def __init__(self, state: KeptChannels) -> None:
        self.program, self.alive_at = state.program, state.alive_at
        self.arrays: dict[str, Any] = {
            name: np.arange(array.size).reshape(array.shape) for name, array in state.arrays.items()
        }
        self.added: dict[str, Any] = {}


def _masks(state: KeptChannels) -> dict[str, Mask]:
    """For every entry of a weight whether it is left: its position is cut like its number."""
    labels = _Labels(state)
    grouped = {str(each.tensors["weight"]): each.groups for each in state.program.operations if each.groups > 1}
    found: dict[str, Mask] = {}
    for name, kept in cut_tensors(labels).items():
        mask: Any = np.zeros(labels.arrays[name].size, dtype=bool)
        mask[np.asarray(kept).ravel()] = True
        mask = mask.reshape(labels.arrays[name].shape)
        if name in grouped:  # written out as whole rows while channels leave
            every = (np.ones(size, dtype=bool) for size in mask.shape[:2])
            mask = cut_rows(mask, grouped[name], *every)
        found[name] = np.swapaxes(mask, 0, 1) if name in state.program.transposed else mask
    return found


class _Left(AbstractDomain[Mask]):
    """Which entries of a value are left: those of which something that is left is made."""

    def __init__(self, masks: Mapping[str, Mask]) -> None:
        self.masks = masks

    def leaf(self, node: Node) -> Mask:
        """Weights are cut; inputs and constants are whole."""
        return self.masks.get(node.attributes.get("name", ""), np.ones(node.shape, dtype=bool))

    def movement(self, node: Node, *sources: Mask) -> Mask:
        """Entries keep their marks."""
        return np.asarray(NUMPY.take(sources, node["map"]))

    def contraction(self, node: Node, x: Mask, y: Mask) -> Mask:
        """Where both operands have something left."""
        return np.asarray(node.operator.meaning(NUMPY, node.attributes, x.astype(float), y.astype(float)) > 0)

    def reduction(self, node: Node, x: Mask) -> Mask:
        """Where something is left to reduce."""
        axes = node.attributes.get("axes") or (node["axis"],)
        return np.asarray(x.any(axis=tuple(axes), keepdims=True))

    def lookup(self, node: Node, *operands: Mask) -> Mask:
        """Rows of a table have what the table has in any row."""
        table = operands[0].any(axis=node["axis"])
        place = node["axis"]
        wide = table.reshape(*table.shape[:place], *(1,) * (node.rank - table.ndim), *table.shape[place:])
        return np.broadcast_to(wide, node.shape)

    def other(self, node: Node, *operands: Mask) -> Mask:
        """Entry by entry, where all operands have something left."""
        return np.asarray(np.broadcast_to(np.logical_and.reduce(np.broadcast_arrays(*operands)), node.shape))


def _counted(left: Mask) -> Sizes:
    """Sizes of what is left of a tensor, if every line that is left keeps equally much.

    >>> _counted(np.array([[True, False, True], [False, False, False], [True, True, False]]))
    (2, 2)
    """
    sizes: list[int] = []
    while left.ndim:
        sizes.append(int(left.sum(axis=-1).max()))
        left = np.asarray(left.any(axis=-1))
    return tuple(reversed(sizes))


def _reshaped(statement: SizeStatement, below: Sizes, above: Sizes) -> Sizes:
    """The sizes of a result: 0 where one is passed on, −1 where one is worked out."""
    before, after = statement.source.shape, statement.results[0].shape
    stated = statement.written
    given = [None] * len(after) if stated is None or len(stated) != len(after) else stated
    found: list[int] = []
    for at, size in enumerate(given):
        passed = before[at : at + 1] == after[at : at + 1] and below[at] == above[at]
        if size is None:
            found.append(0 if passed else -1 if after[at] == above[at] else above[at])
        else:
            kept = size == -1 or (passed if size == 0 else after[at] == above[at])
            found.append(size if kept else above[at])
    if found.count(-1) > 1:
        raise Unsupported("several sizes of a result depend on the input")
    return tuple(found)
