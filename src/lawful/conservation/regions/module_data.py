"""What a data set sees of a module near given weights: its samples, and the side that every choice takes at each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from lawful.conservation.closure.program_brackets import Sampled, is_polynomial, pieces
from lawful.conservation.programs.module_function import Probe
from lawful.program.core.jets import Array, lift
from lawful.program.core.steps import told_signs
from lawful.program.core.straight_line import StraightLineProgram
from lawful.types import Floats

PRECISION = 128
BALLS = np.empty(0, dtype=object)


@dataclass(frozen=True, eq=False)
class SeenData:
    """The samples as a program reads them, a row each, and for each step that chooses the factors 1 and 0 there.

    `gates` are those near the weights at which the data were seen: a law on data has to hold for them alone.
    """

    inputs: Floats
    gates: dict[int, Array]


def seen_data(case: Probe, program: StraightLineProgram, theta: Floats) -> SeenData | None:
    """The samples near weights; None if these lie on a boundary between pieces, or too near to one to tell."""
    inputs = samples_of(case)
    gates = sides(program, theta, inputs)
    return None if gates is None else SeenData(inputs, gates)


def samples_of(case: Probe) -> Floats:
    """The data as inputs of the program, each once: all of them are one input where a batch is mixed."""
    samples = case.data if case.data is not None else torch.zeros((0, *case.input_shape))
    if case.vocabulary is not None:
        samples = torch.nn.functional.one_hot(samples, case.vocabulary)
    rows = np.asarray(samples.double().numpy()).reshape(1 if case.mixes else len(samples), -1)
    return rows[np.sort(np.unique(rows, axis=0, return_index=True)[1])]


def sides(program: StraightLineProgram, theta: Floats, inputs: Floats) -> dict[int, Array] | None:
    """Which array every choice takes for each input, proved; None where a sign cannot be told."""
    if all(step.kind != "choose" for step in program.steps):
        return {}
    choices = pieces(program, theta, inputs) if is_polynomial(program) else None
    return _in_balls(program, theta, inputs) if choices is None else choices


def _in_balls(program: StraightLineProgram, theta: Floats, inputs: Floats) -> dict[int, Array] | None:
    import flint

    before = flint.ctx.prec
    flint.ctx.prec = PRECISION
    try:
        fields = Sampled(program, lift(theta, BALLS), lift(inputs, BALLS), BALLS)
        values = fields.values(np.arange(len(inputs)), {0: fields.theta[None]})
        return {
            number: np.broadcast_to(
                told_signs(values[step.sources[0]]), (len(inputs), step.length)
            ).astype(np.int64)
            for number, step in enumerate(program.steps)
            if step.kind == "choose"
        }  # fmt: skip
    except (ArithmeticError, ValueError):
        return None
    finally:
        flint.ctx.prec = before
