"""The value of a program: each operator's own meaning, in NumPy or PyTorch, in any floating type."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from lawful.errors import LawfulError
from lawful.program.arrays import NumpyArrays, TorchArrays, arrays_for
from lawful.program.domains.interpret import AbstractDomain, interpret
from lawful.program.program import Node, Program


class Evaluation(AbstractDomain[Any]):
    """Arrays. `tensors` is asked for a weight just before its first use, and it is forgotten after its last."""

    def __init__(
        self, arrays: NumpyArrays | TorchArrays, inputs: Mapping[str, Any], tensors: Mapping[str, Any]
    ) -> None:
        self.arrays, self.inputs, self.tensors = arrays, inputs, tensors

    def leaf(self, node: Node) -> Any:
        """An array of the library and floating type in which all is computed."""
        if node.op == "constant":
            array = node["value"]
        else:
            array = (self.inputs if node.op == "input" else self.tensors)[node["name"]]
        if tuple(array.shape) != node.shape:
            raise LawfulError(f"{node['name']} has size {list(array.shape)}, not {list(node.shape)}")
        return self.arrays.cast(self._as_own_array(array), node.kind)

    def _as_own_array(self, held: Any) -> Any:
        if isinstance(self.arrays, NumpyArrays):
            return (
                held
                if isinstance(held, np.ndarray)
                else np.asarray(held.detach().double() if held.is_floating_point() else held.detach())
            )
        if isinstance(held, np.ndarray):
            return self.arrays.torch.from_numpy(held.copy() if not held.flags.writeable else held)
        return held

    def other(self, node: Node, *operands: Any) -> Any:
        """Every family: what the table says."""
        if node.op == "opaque":
            return self._call(node, operands)
        return self.arrays.cast(node.operator.meaning(self.arrays, node.attributes, *operands), node.kind)

    def _call(self, node: Node, operands: tuple[Any, ...]) -> Any:
        """The framework's own function: of arrays, or of PyTorch's tensors."""
        call = node["call"]
        if getattr(call, "of_arrays", False):
            result = call(*operands)
            value = result if isinstance(self.arrays, NumpyArrays) else self.arrays.torch.from_numpy(result)
            return self.arrays.cast(value, node.kind)
        if isinstance(self.arrays, TorchArrays):
            return self.arrays.cast(call(*operands), node.kind)
        import torch

        result = call(*(torch.from_numpy(np.array(operand)) for operand in operands))
        return self.arrays.cast(np.asarray(result), node.kind)


def evaluate(
    program: Program,
    *inputs: Any,
    tensors: Mapping[str, Any] | None = None,
    real: Any = None,
    keep: Collection[Node] = (),
) -> list[Any]:
    """The outputs (and then the values of `keep`) for inputs in the order of `program.inputs`.

    Arrays are of the kind of the first input; `real` is the floating type in which reals are computed, float64 unless
    it is given. `tensors` replace the program's own parameters and buffers.
    """
    if len(inputs) != len(program.inputs):
        raise LawfulError(f"the program has {len(program.inputs)} inputs, not {len(inputs)}")
    arrays = arrays_for(inputs[0] if inputs else np.zeros(0), real)
    named = {node["name"]: value for node, value in zip(program.inputs, inputs, strict=True)}
    domain = Evaluation(arrays, named, program.tensors if tensors is None else tensors)
    with np.errstate(all="ignore"):
        values = interpret(program, domain, keep)
    return [values[node] for node in (*program.outputs, *keep)]
