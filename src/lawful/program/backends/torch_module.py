"""A program as a PyTorch module: trained, exported and saved like any other, its weights under the same names."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn

from lawful.program.backends.torch_calls import TorchProgram
from lawful.program.program import Program


class ProgramModule(nn.Module):
    """What a program computes, in the floating type of its first parameter (or `real`)."""

    def __init__(self, program: Program, real: torch.dtype | None = None) -> None:
        """Copy the program's parameters and buffers; `state_dict` has the program's own names."""
        super().__init__()
        self.program, self.run = program, TorchProgram(program)
        held = {name: _tensor(program.tensors[name]) for name in (*program.parameters, *program.buffers)}
        self._real = real or next((held[name].dtype for name in program.parameters), torch.float64)
        for name, tensor in held.items():
            home, _, last = name.rpartition(".")
            place = self._place(home)
            if name in program.parameters:
                place.register_parameter(last, nn.Parameter(tensor.to(self._real)))
            else:
                place.register_buffer(last, tensor.to(self._real) if tensor.is_floating_point() else tensor)

    @property
    def real(self) -> torch.dtype:
        """The floating type in which it computes: that of its parameters now, which `double()` and `half()` change."""
        return next((each.dtype for each in self.parameters() if each.is_floating_point()), self._real)

    def __deepcopy__(self, memo: dict[int, Any]) -> ProgramModule:
        """A copy has weights of its own; the program, which never changes, is shared."""
        made = ProgramModule.__new__(ProgramModule)
        memo |= {id(self): made, id(self.program): self.program, id(self.run): self.run}
        made.__dict__ = copy.deepcopy(self.__dict__, memo)
        return made

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
        tensors = {**dict(self.named_parameters()), **dict(self.named_buffers())}
        outputs = self.run(inputs, tensors, self.real)
        return outputs[0] if len(outputs) == 1 else outputs


def _tensor(held: Any) -> torch.Tensor:
    return held.detach().clone() if isinstance(held, torch.Tensor) else torch.tensor(held)
