"""A program as a PyTorch module: trained, exported and saved like any other, its weights under the same names."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from lawful.program.arrays import TorchArrays
from lawful.program.domains.evaluate import Evaluation
from lawful.program.domains.interpret import interpret
from lawful.program.program import Program


class ProgramModule(nn.Module):
    """What a program computes, in the floating type of its first parameter (or `real`)."""

    def __init__(self, program: Program, real: torch.dtype | None = None) -> None:
        """Copy the program's parameters and buffers; `state_dict` has the program's own names."""
        super().__init__()
        self.program = program
        held = {name: _tensor(program.tensors[name]) for name in (*program.parameters, *program.buffers)}
        first = next((held[name].dtype for name in program.parameters), torch.float64)
        self.real = real or first
        for name, tensor in held.items():
            home, _, last = name.rpartition(".")
            place = self._place(home)
            if name in program.parameters:
                place.register_parameter(last, nn.Parameter(tensor.to(self.real)))
            else:
                place.register_buffer(last, tensor.to(self.real))

    def _place(self, home: str) -> nn.Module:
        """The module inside this one in which a name lives; made where it is missing."""
        place: nn.Module = self
        for part in home.split(".") if home else ():
            if part not in place._modules:
                place.add_module(part, nn.Module())
            place = place.get_submodule(part)
        return place

    def forward(self, *inputs: torch.Tensor) -> Any:
        """One output, or a tuple of several."""
        named = {node["name"]: value for node, value in zip(self.program.inputs, inputs, strict=True)}
        tensors = {**dict(self.named_parameters()), **dict(self.named_buffers())}
        values = interpret(self.program, Evaluation(TorchArrays(self.real), named, tensors))
        outputs = tuple(values[each] for each in self.program.outputs)
        return outputs[0] if len(outputs) == 1 else outputs


def _tensor(held: Any) -> torch.Tensor:
    return held.detach().clone() if isinstance(held, torch.Tensor) else torch.tensor(held)
