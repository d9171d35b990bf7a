"""Tensors at their new sizes: rows and columns of the channels that are left."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from lawful.pruning.channels.groups import cut_rows
from lawful.pruning.channels.program import ChannelProgram
from lawful.types import Floats


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
