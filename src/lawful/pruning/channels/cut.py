"""Tensors at their new sizes: rows and columns of the channels that are left.

Rows of a grouped convolution read the channels of their group only. While channels leave, its weight is written out as
whole rows, with zeros between the groups; what is left of each group is put together again at the end. Groups leave
whole, and those that stay keep equally many channels.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from lawful.pruning.channels.program import ChannelProgram, Operation
from lawful.types import Floats, Indices


class KeptChannels(Protocol):
    """Weights, and which channels are left."""

    program: ChannelProgram

    @property
    def arrays(self) -> Mapping[str, Floats]:
        """All tensors by name."""

    @property
    def added(self) -> Mapping[str, Floats]:
        """Biases of layers that had none, by their weight's name."""

    def alive_at(self, name: str) -> NDArray[np.bool_]:
        """For every channel of an activation whether it is left."""


def cut_tensors(state: KeptChannels) -> dict[str, Floats]:
    """Every tensor of the program at its new size; biases that layers gain are named beside their weights."""
    found: dict[str, Floats] = {}
    for operation in state.program.operations:
        if not operation.tensors:
            continue
        rows, columns = state.alive_at(operation.name), state.alive_at(operation.sources[0])
        for role, name in operation.tensors.items():
            if name is not None:
                array = state.arrays[name]
                array = array if rows.all() else array[rows]  # most tensors of most networks stay as they are
                if operation.groups > 1 and role == "weight":
                    array = cut_rows(state.arrays[name], operation.groups, rows, columns)
                elif operation.kind == "layer" and role == "weight":
                    array = array if columns.all() else array[:, columns]
                found[name] = np.swapaxes(array, 0, 1) if name in state.program.transposed else array
        weight = operation.tensors.get("weight")
        if weight in state.added:
            found[bias_beside(str(weight))] = state.added[str(weight)][rows]
    return found


def bias_beside(weight: str) -> str:
    """The name of the bias that belongs to a weight.

    >>> bias_beside("conv.weight"), bias_beside("W1")
    ('conv.bias', 'W1.bias')
    """
    owner, _, last = weight.rpartition(".")
    name = "bias" if last == "weight" else f"{last}.bias"
    return f"{owner}.{name}" if owner else name


Kept = NDArray[np.bool_]


def with_whole_rows(program: ChannelProgram, arrays: dict[str, Floats]) -> dict[str, Floats]:
    """All tensors, those of grouped layers with the zeros between their groups."""
    wide = {str(each.tensors["weight"]): whole_rows(arrays[str(each.tensors["weight"])], each.groups)
            for each in program.operations if each.groups > 1}  # fmt: skip
    return arrays | wide


def whole_rows(weight: Floats, groups: int) -> Floats:
    """Rows that read all channels.

    >>> whole_rows(np.array([[1.0], [2.0]]), 2)
    array([[1., 0.],
           [0., 2.]])
    """
    rows, width = weight.shape[:2]
    found = np.zeros((rows, width * groups, *weight.shape[2:]))
    each = rows // groups
    for group in range(groups):
        mine = slice(group * each, (group + 1) * each)
        found[mine, group * width : (group + 1) * width] = weight[mine]
    return found


def cut_rows(weight: Floats, groups: int, rows: Kept, columns: Kept) -> Floats:
    """What is left of whole rows, stored by groups again; `rows` and `columns` say what stays."""
    high, wide = weight.shape[0] // groups, weight.shape[1] // groups
    parts = []
    for group in range(groups):
        mine, read = (slice(group * size, (group + 1) * size) for size in (high, wide))
        if rows[mine].any():
            parts.append(weight[mine, read][rows[mine]][:, columns[read]])
    return np.concatenate(parts)


def groups_left(operation: Operation, rows: Kept) -> int:
    """How many groups of a layer have rows that are left."""
    return int(rows.reshape(operation.groups, -1).any(axis=1).sum())


def tables(program: ChannelProgram, operation: Operation) -> tuple[Indices, Indices]:
    """The cells that each group reads, and those that it writes."""
    read, written = (program.spots[name].cells for name in (operation.sources[0], operation.name))
    return read.reshape(operation.groups, -1), written.reshape(operation.groups, -1)


def repeated_cells(program: ChannelProgram) -> set[int]:
    """Cells of grouped layers that these read or write at several places: no group can spare them alone."""
    found: set[int] = set()
    for operation in program.operations:
        if operation.groups > 1:
            for table in tables(program, operation):
                cells, count = np.unique(table, return_counts=True)
                if (count > 1).any():
                    found |= set(map(int, cells))
    return found
