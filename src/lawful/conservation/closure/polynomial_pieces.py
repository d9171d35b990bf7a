"""Modules that are polynomials on each of their pieces: brackets modulo a prime instead of balls.

A matrix of rational numbers whose residues are invertible modulo a prime is invertible. Which piece an input belongs to
is told by float64 where rounding cannot change a sign.
"""

from __future__ import annotations

import numpy as np

from lawful.conservation.closure.program_brackets import Sampled
from lawful.exact import PRIME, rank, to_residues
from lawful.program.core.jets import Array
from lawful.program.core.steps import FUNCTIONS, STEPS
from lawful.program.core.straight_line import ProgramStep, StraightLineProgram
from lawful.types import Floats

ROUNDING = 2.0**-40  # relative to the sum of absolute values: above what MOST roundings can lose
MOST = 4096
SMALL = 2.0**-20  # what a parameter that happens to be 0 counts as: it may move


def is_polynomial(program: StraightLineProgram) -> bool:
    """Whether the output is a polynomial of the parameters wherever the choices are fixed."""
    constant: list[bool] = []
    for step in program.steps:
        fixed = step.values is not None or (bool(step.sources) and all(constant[source] for source in step.sources))
        constant.append(fixed)
        if step.kind in FUNCTIONS and not (FUNCTIONS[step.kind].rational and fixed):
            return False
    return True


def independent_modulo(
    program: StraightLineProgram,
    theta: Floats,
    inputs: Floats,
    weights: Floats,
    words: list[tuple[int, ...]],
    columns: list[int],
) -> bool:
    """Whether brackets are proved independent in some coordinates, by their residues; numbers are exact in float64."""
    gates = pieces(program, theta, inputs)
    if gates is None:
        return False
    fields = Sampled(program, to_residues(theta), to_residues(inputs), to_residues(weights), gates)
    rows = np.zeros((len(words), program.parameters), dtype=np.int64)
    for length in sorted({len(word) for word in words}):
        where = [number for number, word in enumerate(words) if len(word) == length]
        rows[where] = fields.brackets(np.array([words[number] for number in where], dtype=np.intp))
    return rank(rows[:, columns], PRIME) == len(columns)


def pieces(program: StraightLineProgram, theta: Floats, inputs: Floats) -> dict[int, Array] | None:
    """Which array every choice takes for each input, as factors 1 and 0; None where rounding could change one.

    Every value comes with the same sums and products of absolute values: what rounding loses is a multiple of that.
    Where both arrays are 0 whatever the parameters (a maximum over inactive neurons) the choice does not matter.
    """
    if sum(max(STEPS[step.kind].count(step), 2) if step.sources else 2 for step in program.steps) > MOST:
        return None
    found: dict[int, Array] = {}
    pairs: list[tuple[Floats, Floats]] = []
    for number, step in enumerate(program.steps):
        if step.kind == "parameters":
            pairs.append((theta[None], np.maximum(np.abs(theta), SMALL)[None]))
        elif step.kind == "input":
            pairs.append((inputs, np.abs(inputs)))
        elif step.values is not None:
            pairs.append((step.values[None], np.abs(step.values)[None]))
        else:
            given = [pairs[source] for source in step.sources]
            if step.kind == "choose":
                value, bulk = given[0]
                idle = (given[1][1] == 0) & (given[2][1] == 0)
                if not (idle | (np.abs(value) > ROUNDING * bulk)).all():
                    return None
                found[number] = np.broadcast_to(value > 0, (len(inputs), step.length)).astype(np.int64)
            pairs.append(_pair(step, given))
    return found


def _pair(step: ProgramStep, given: list[tuple[Floats, Floats]]) -> tuple[Floats, Floats]:
    if step.kind == "choose":
        positive = given[0][0] > 0
        return (
            np.where(positive, given[1][0], given[2][0]),
            np.where(positive, given[1][1], given[2][1]),
        )
    first, second = (STEPS[step.kind].forward(step, [{0: pair[place]} for pair in given])[0] for place in (0, 1))
    return first, second
