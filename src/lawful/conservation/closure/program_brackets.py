"""Brackets of a program's gradient fields: reverse mode over jets."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lawful.exact import PRIME, rank, to_residues
from lawful.program.core.jets import Array, Jet, add_direction, lift, plus, prime, scale_jet, split_jet, zeros
from lawful.program.core.steps import FUNCTIONS, STEPS
from lawful.program.core.straight_line import ProgramStep, StraightLineProgram
from lawful.types import Floats, Residues

Words = NDArray[np.intp]
ROWS = 256


class Sampled:
    """Fields `∇_θ ⟨w, g_θ(x)⟩` of a program at chosen inputs and output weights, a row each.

    Residues have no sign: for them `gates` holds a row of factors for each field at each step that chooses, 1 where the
    first array is taken and 0 where the second is. Nor have they functions: there `gates` holds values, and `slopes`
    the derivatives of those whose derivative is no rational function of value and argument (gradients only).
    """

    def __init__(
        self,
        program: StraightLineProgram,
        theta: Array,
        inputs: Array,
        weights: Array,
        gates: dict[int, Array] | None = None,
        slopes: dict[int, Array] | None = None,
    ) -> None:
        self.program, self.theta, self.inputs, self.weights = program, theta, inputs, weights
        self.gates, self.slopes = gates or {}, slopes or {}
        self.constants = {
            number: lift(step.values[None], theta)
            for number, step in enumerate(program.steps)
            if step.values is not None
        }
        self.moving = _moving(program)

    def brackets(self, words: Words) -> Array:
        """`[X_a, [X_b, … [X_y, X_z]]]` at θ for each row a, b, …, z of numbers of fields."""
        start: Jet = {0: self.theta[None]}
        parts = [words[i : i + ROWS] for i in range(0, len(words), ROWS)]
        shape = self.program.parameters
        return np.concatenate([np.broadcast_to(self._bracket(part, start, 0)[0], (len(part), shape)) for part in parts])

    def _bracket(self, words: Words, state: Jet, level: int) -> Jet:
        """`[X, Z] = JX·Z − JZ·X`, with X the first field and Z the bracket of the others."""
        field = words[:, 0]
        if words.shape[1] == 1:
            return self.gradient(field, state)
        epsilon = 1 << level
        value = self.gradient(field, state)
        both = self._bracket(words[:, 1:], add_direction(state, value, epsilon), level + 1)
        inner, along_value = split_jet(both, epsilon)
        _, along_inner = split_jet(self.gradient(field, add_direction(state, inner, epsilon)), epsilon)
        return plus(along_inner, scale_jet(along_value, -1))

    def values(self, fields: Words, theta: Jet) -> list[Jet]:
        """Every array of the program."""
        values: list[Jet] = []
        for number, step in enumerate(self.program.steps):
            if step.kind == "parameters":
                values.append(theta)
            elif step.kind == "input":
                values.append({0: self.inputs[fields]})
            elif step.kind == "constant":
                values.append({0: self.constants[number]})
            else:
                gate = self.gates[number][fields] if number in self.gates else None
                values.append(STEPS[step.kind].forward(step, [values[source] for source in step.sources], gate))
        return values

    def gradient(self, fields: Words, theta: Jet) -> Jet:
        """Forwards through the steps, then backwards from the output weights."""
        steps = self.program.steps
        values = self.values(fields, theta)
        slopes: dict[int, Jet] = {len(steps) - 1: {0: self.weights[fields]}}
        for number in range(len(steps) - 1, 0, -1):
            slope = slopes.pop(number, None)
            if not slope:  # nothing reads it, or only the sign of something does
                continue
            step = steps[number]
            arguments = [values[source] for source in step.sources]
            gate = self.gates[number][fields] if number in self.gates else None
            if number in self.slopes:
                gate = self.slopes[number][fields]
            for place, source in enumerate(step.sources):
                if self.moving[source]:
                    part = STEPS[step.kind].backward(step, place, slope, arguments, values[number], gate)
                    slopes[source] = plus(slopes[source], part) if source in slopes else part
        return slopes.get(0, {0: zeros((1, self.program.parameters), self.theta)})


def _moving(program: StraightLineProgram) -> list[bool]:
    """Which arrays depend on the parameters."""
    moving: list[bool] = []
    for step in program.steps:
        moving.append(step.kind == "parameters" or any(moving[source] for source in step.sources))
    return moving


def free_fields(
    program: StraightLineProgram,
    points: Residues,
    rng: np.random.Generator,
    classes: int,
    tokens: int,
    *,
    binary: bool = True,
) -> Sampled:
    """As many random fields as points, at the first of them: any inputs, output weights, choices and functions.

    Gates that are drawn are 0 or 1, or any numbers too if not `binary`.
    """
    rows, modulus = len(points), prime()
    inputs = rng.integers(modulus, size=(rows, program.inputs))
    start = program.given
    for kind, count in program.draws:
        if kind == "gate" and binary:
            inputs[:, start : start + count] %= 2
        start += count
    if tokens:
        runs = inputs[:, : program.given].reshape(rows, -1, tokens)
        runs[:, :, -1] = (1 - runs[:, :, :-1].sum(axis=2)) % modulus
        inputs[:, : program.given] = runs.reshape(rows, -1)
    weights = rng.integers(modulus, size=(rows, program.outputs))
    if classes:
        ends = weights.reshape(rows, -1, classes)
        ends[:, :, -1] = -ends[:, :, :-1].sum(axis=2) % modulus
    drawn: dict[tuple[str, int], Array] = {}

    def free(kind: str, step: ProgramStep) -> Array:
        return drawn.setdefault((kind, step.sources[0]), rng.integers(modulus, size=(rows, step.length)))

    gates, slopes = {}, {}
    for number, step in enumerate(program.steps):
        if step.kind == "choose" or is_free(step):
            gates[number] = free(step.kind, step)
        if is_free(step) and FUNCTIONS[step.kind].partner[0]:
            partner, sign = FUNCTIONS[step.kind].partner
            slopes[number] = sign * free(partner, step) % modulus
    return Sampled(program, points[0], inputs, weights, gates, slopes)


def is_free(step: ProgramStep) -> bool:
    """Whether a step is a function that has no residues: any numbers may stand for its values."""
    return step.kind in FUNCTIONS and not FUNCTIONS[step.kind].rational


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
    choices: dict[int, Array] = {}
    pairs: list[tuple[Floats, Floats]] = []
    for number, step in enumerate(program.steps):
        if step.kind == "parameters":
            pairs.append((theta[None], np.maximum(np.abs(theta), SMALL)[None]))
        elif step.kind == "input":
            pairs.append((inputs, np.abs(inputs)))
        elif step.values is not None:
            pairs.append((step.values[None], np.abs(step.values)[None]))
        else:
            operands = [pairs[source] for source in step.sources]
            if step.kind == "choose":
                value, bulk = operands[0]
                idle = (operands[1][1] == 0) & (operands[2][1] == 0)
                if not (idle | (np.abs(value) > ROUNDING * bulk)).all():
                    return None
                choices[number] = np.broadcast_to(value > 0, (len(inputs), step.length)).astype(np.int64)
            pairs.append(_pair(step, operands))
    return choices


def _pair(step: ProgramStep, given: list[tuple[Floats, Floats]]) -> tuple[Floats, Floats]:
    if step.kind == "choose":
        positive = given[0][0] > 0
        return (
            np.where(positive, given[1][0], given[2][0]),
            np.where(positive, given[1][1], given[2][1]),
        )
    first, second = (STEPS[step.kind].forward(step, [{0: pair[place]} for pair in given])[0] for place in (0, 1))
    return first, second
