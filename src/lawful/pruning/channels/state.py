"""The weights of a program of channels as they are now, who reads and writes each cell, and which cells are left."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from lawful.errors import InvalidNetwork
from lawful.program.core.functions import Value
from lawful.program.program import Program
from lawful.pruning.channels.groups import repeated_cells, with_whole_rows
from lawful.pruning.channels.program import ChannelProgram, Operation
from lawful.types import Floats


def read_arrays(source: Program, program: ChannelProgram) -> dict[str, Floats]:
    """The weights of all operations, rows first: those of the program, not to be changed."""
    arrays: dict[str, Floats] = {}
    for name in dict.fromkeys(name for operation in program.operations for name in operation.tensors.values()):
        if name is not None:
            tensor = source.tensors[name]
            if hasattr(tensor, "detach"):
                tensor = tensor.detach().cpu()
                tensor = (
                    tensor if str(tensor.dtype) in ("torch.float32", "torch.float64") else tensor.double()
                ).numpy()
            array = np.asarray(tensor)
            array = (array if array.dtype in (np.float32, np.float64) else array.astype(np.float64)).view()
            array.flags.writeable = False  # a weight that changes is copied first: `ChannelWeights.own_weight`
            if not np.isfinite(array).all():
                raise InvalidNetwork(f"a weight of {name[:60]} is not finite")
            arrays[name] = np.swapaxes(array, 0, 1) if name in program.transposed else array
    return arrays


class ChannelState:
    """The weights of a program, to be changed, and the cells that are left."""

    def __init__(self, program: ChannelProgram, arrays: dict[str, Floats]) -> None:
        self.program, self.arrays = program, with_whole_rows(program, arrays)
        self.added: dict[str, Floats] = {}  # biases of layers that had none, by their weight's name
        self.alive = dict.fromkeys(program.cells, True)
        self.uses: dict[str, list[Operation]] = {}  # by the weight of a layer: most are used once
        for operation in program.operations:
            if operation.kind == "layer":
                self.uses.setdefault(str(operation.tensors["weight"]), []).append(operation)
        self.layers = [uses[0] for uses in self.uses.values()]
        again = [operation for uses in self.uses.values() if len(uses) > 1 for operation in uses]
        self.used_again = {
            int(cell)
            for operation in again
            for name in (operation.name, operation.sources[0])
            for cell in program.activations[name]
        }
        self.readers = self._readers()
        self.pinned = program.pinned | repeated_cells(program)
        self._exact: dict[tuple[str, int], Value] = {}  # entries of biases that are no doubles
        self._rounded: dict[str, NDArray[np.bool_]] = {}

    @property
    def gone(self) -> tuple[int, ...]:
        """The cells that left."""
        return tuple(cell for cell, alive in self.alive.items() if not alive)

    def weight(self, operation: Operation) -> Floats:
        """The weight of a layer, in float64."""
        return self.arrays[str(operation.tensors["weight"])].astype(np.float64, copy=False)

    def own_weight(self, operation: Operation) -> Floats:
        """The weight of a layer, to be changed: large models are held once, and only what changes is copied."""
        name = str(operation.tensors["weight"])
        if not self.arrays[name].flags.writeable or self.arrays[name].dtype != np.float64:
            self.arrays[name] = np.array(self.arrays[name], dtype=np.float64)
        return self.arrays[name]

    def bias(self, operation: Operation) -> Floats:
        """The bias of a layer, zeros if it has none."""
        place = operation.tensors["bias"]
        if place is not None:
            return self.arrays[place].astype(np.float64, copy=False)
        weight = str(operation.tensors["weight"])
        return self.added.get(weight, np.zeros(len(self.arrays[weight])))

    def exact_bias(self, operation: Operation, row: int) -> Value:
        """One entry of the bias, before it was rounded."""
        unrounded = self._exact.get((str(operation.tensors["weight"]), row))
        return Fraction(float(self.bias(operation)[row])) if unrounded is None else unrounded

    def rounded(self, operation: Operation) -> NDArray[np.bool_]:
        """Rows with an entry that was rounded."""
        weight = str(operation.tensors["weight"])
        if weight not in self._rounded:
            self._rounded[weight] = np.zeros(len(self.arrays[weight]), dtype=bool)
        return self._rounded[weight]

    def alive_at(self, name: str) -> NDArray[np.bool_]:
        """For every channel of an activation whether it is left."""
        return np.array([self.alive[int(cell)] for cell in self.program.activations[name]])

    def _readers(self) -> dict[int, list[tuple[Operation, list[int]]]]:
        """For every cell the layers that read it, and at which of their columns."""
        by_cell: dict[int, list[tuple[Operation, list[int]]]] = {}
        for operation in self.layers:
            places: dict[int, list[int]] = {}
            for place, cell in enumerate(self.program.activations[operation.sources[0]].tolist()):
                places.setdefault(cell, []).append(place)
            for cell, where in places.items():
                by_cell.setdefault(cell, []).append((operation, where))
        return by_cell


def layer_name(operation: Operation) -> str:
    """The module that holds a layer's weight; files may have numbers for it, and a name for its bias."""
    weight, bias = str(operation.tensors["weight"]), str(operation.tensors.get("bias"))
    named = next((name for name in (weight, bias) if name.rpartition(".")[2] in ("weight", "bias")), None)
    return weight if named is None else named.rpartition(".")[0]
