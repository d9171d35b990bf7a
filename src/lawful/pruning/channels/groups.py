"""Grouped layers: while channels leave, their weights are held as rows that read all channels, with zeros between."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lawful.pruning.channels.program import ChannelProgram, Operation
from lawful.types import Floats, Indices

Kept = NDArray[np.bool_]


def with_whole_rows(program: ChannelProgram, arrays: dict[str, Floats]) -> dict[str, Floats]:
    """All tensors, those of grouped layers with the zeros between their groups."""
    wide = {str(operation.tensors["weight"]): whole_rows(arrays[str(operation.tensors["weight"])], operation.groups)
            for operation in program.operations if operation.groups > 1}  # fmt: skip
    return arrays | wide


def whole_rows(weight: Floats, groups: int) -> Floats:
    """Rows that read all channels.

    >>> whole_rows(np.array([[1.0], [2.0]]), 2)
    array([[1., 0.],
           [0., 2.]])
    """
    rows, width = weight.shape[:2]
    wide = np.zeros((rows, width * groups, *weight.shape[2:]))
    height = rows // groups
    for group in range(groups):
        mine = slice(group * height, (group + 1) * height)
        wide[mine, group * width : (group + 1) * width] = weight[mine]
    return wide


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
    read, written = (program.activations[name] for name in (operation.sources[0], operation.name))
    return read.reshape(operation.groups, -1), written.reshape(operation.groups, -1)


def repeated_cells(program: ChannelProgram) -> set[int]:
    """Cells of grouped layers that these read or write at several places: no group can spare them alone."""
    repeated: set[int] = set()
    for operation in program.operations:
        if operation.groups > 1:
            for table in tables(program, operation):
                cells, count = np.unique(table, return_counts=True)
                if (count > 1).any():
                    repeated |= set(map(int, cells))
    return repeated
