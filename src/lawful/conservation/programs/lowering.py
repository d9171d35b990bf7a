"""A module, or a function of tensors, as the straight-line program of a proof."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import torch

from lawful.conservation.fields.normalisations import composite
from lawful.conservation.programs.module_function import Probe
from lawful.program.core.straight_line import StraightLineProgram
from lawful.program.domains.straighten import straighten
from lawful.program.frontends.torch_function import read_function
from lawful.program.program import Program


def lower(case: Probe, batch: torch.Tensor) -> StraightLineProgram:
    """The program that computes the module's output from its parameters and an input of the batch's size."""
    draws = case.draws(len(batch))
    numbers = (torch.zeros(sum(draw.count for draw in draws), dtype=torch.float64),) if draws else ()

    def function(tensors: dict[str, torch.Tensor], inputs: torch.Tensor, *given: torch.Tensor) -> torch.Tensor:
        return case.output(tensors, inputs, given[0] if given else None)

    with composite():
        program = _read(function, dict(zip(case.names, case.shapes, strict=True)), (batch, *numbers))
    found = straighten(program, dict(zip(case.names, case.shapes, strict=True)), vocabulary=case.vocabulary)
    return replace(found, draws=tuple((draw.kind, draw.count) for draw in draws))


def lower_function(
    function: Callable[[list[torch.Tensor]], torch.Tensor], shapes: Sequence[torch.Size], most: int
) -> StraightLineProgram:
    """The program of a function of tensors of these shapes, whatever else it uses being constant, if all its arrays
    together have at most so many entries.

    >>> program = lower_function(lambda parts: parts[0] @ parts[1].tanh(), [torch.Size([2, 3]), torch.Size([3])], 99)
    >>> program.parameters, program.inputs, program.outputs
    (9, 0, 2)
    """
    named = {str(place): shape for place, shape in enumerate(shapes)}
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        program = _read(lambda tensors: function(list(tensors.values())), named, ())
    return straighten(program, named, most=most)


def _read(
    function: Callable[..., torch.Tensor], shapes: Mapping[str, torch.Size], inputs: tuple[torch.Tensor, ...]
) -> Program:
    tensors = {name: torch.zeros(shape, dtype=torch.float64) for name, shape in shapes.items()}
    return read_function(function, tensors, inputs)
