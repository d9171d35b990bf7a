"""A program that PyTorch runs batch by batch, with weights that change and values that are watched."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from lawful.errors import LawfulError, Unsupported
from lawful.program.backends.torch_calls import TorchProgram
from lawful.program.program import Node, Program
from lawful.types import Floats

REAL = torch.float32  # what networks are trained and run in; sums of products are kept in float64


class RunnableProgram:
    """A program, and its weights as tensors by name; the batch is the one that it was read with."""

    def __init__(self, program: Program, tensors: Mapping[str, Any] | None = None) -> None:
        if len(program.inputs) != 1:
            raise Unsupported(f"a network with one input is pruned to a size, and this one has {len(program.inputs)}")
        self.program = program
        self.batch = program.inputs[0].shape[0]
        held = program.tensors if tensors is None else tensors
        self.tensors = {name: _tensor(held[name]) for name in (*program.parameters, *program.buffers)}
        self._runs: dict[tuple[Node, ...], TorchProgram] = {}

    def with_tensors(self, tensors: Mapping[str, Any]) -> RunnableProgram:
        """The same program with other numbers."""
        made = RunnableProgram(self.program, {**self.tensors, **tensors})
        made._runs = self._runs
        return made

    def batches(self, x: Floats, *, whole: bool = False) -> Iterator[tuple[slice, torch.Tensor]]:
        """Samples in batches; the last one is filled up with its first sample, or left out if batches are `whole`."""
        if x.shape[1:] != self.program.inputs[0].shape[1:]:
            raise LawfulError(f"samples have size {x.shape[1:]}, the network takes {self.program.inputs[0].shape[1:]}")
        kind = REAL if self.program.inputs[0].kind == "f" else torch.int64
        for start in range(0, len(x), self.batch):
            rows = slice(start, min(start + self.batch, len(x)))
            given = torch.as_tensor(np.ascontiguousarray(x[rows])).to(kind)
            missing = self.batch - len(given)
            if missing and whole:
                return
            if missing:
                given = torch.cat([given, given[:1].expand(missing, *given.shape[1:])])
            yield rows, given

    def run(self, given: torch.Tensor, watched: Sequence[Node] = ()) -> tuple[torch.Tensor, ...]:
        """The first output and the watched values; without `watched`, of the whole program."""
        key = tuple(watched)
        if key not in self._runs:
            program = self.program
            wanted = Program.of(program.inputs, (program.outputs[0], *key), program.tensors)
            self._runs[key] = TorchProgram(wanted)
        return self._runs[key]([given], self.tensors, REAL)

    def values(self, given: torch.Tensor, watched: Sequence[Node]) -> tuple[torch.Tensor, ...]:
        """Watched values alone: nothing behind them is computed."""
        key = (*watched, self.program.inputs[0])
        if key not in self._runs:
            self._runs[key] = TorchProgram(Program.of(self.program.inputs, watched, self.program.tensors))
        return self._runs[key]([given], self.tensors, REAL)

    @torch.no_grad()
    def outputs(self, x: Floats) -> torch.Tensor:
        """The first output for all samples."""
        found = [self.run(given)[0][: rows.stop - rows.start] for rows, given in self.batches(x)]
        return torch.cat(found)


def _tensor(held: Any) -> torch.Tensor:
    tensor = held.detach().cpu() if isinstance(held, torch.Tensor) else torch.as_tensor(np.array(held))
    return tensor.to(REAL) if tensor.is_floating_point() else tensor
