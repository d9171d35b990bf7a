"""A module as the straight-line program of a proof."""

from __future__ import annotations

from dataclasses import replace

import torch

from lawful.conservation.fields.normalisations import composite
from lawful.conservation.programs.module_function import Probe
from lawful.program.core.straight_line import StraightLineProgram
from lawful.program.domains.straighten import straighten
from lawful.program.frontends.torch_function import read_function


def lower(case: Probe, batch: torch.Tensor) -> StraightLineProgram:
    """The program that computes the module's output from its parameters and an input of the batch's size."""
    draws = case.draws(len(batch))
    numbers = (torch.zeros(sum(draw.count for draw in draws), dtype=torch.float64),) if draws else ()

    def function(tensors: dict[str, torch.Tensor], inputs: torch.Tensor, *given: torch.Tensor) -> torch.Tensor:
        return case.output(tensors, inputs, given[0] if given else None)

    shapes = dict(zip(case.names, case.shapes, strict=True))
    tensors = {name: torch.zeros(shape, dtype=torch.float64) for name, shape in shapes.items()}
    with composite():
        program = read_function(function, tensors, (batch, *numbers))
    found = straighten(program, shapes, vocabulary=case.vocabulary)
    return replace(found, draws=tuple((draw.kind, draw.count) for draw in draws))
