"""Brackets of a program's gradient fields: reverse mode over jets."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lawful.errors import Unsupported
from lawful.laws.jets import (
    Array,
    Jet,
    apply,
    derivative,
    kept,
    lifted,
    mapped,
    moved,
    parted,
    plus,
    prime,
    product,
    scaled,
    times,
    zeros,
)
from lawful.laws.straight_line import FUNCTIONS, ProgramStep, StraightLineProgram

Words = NDArray[np.intp]
ROWS = 256
DEPTH = 64  # products of two residues that add up exactly in float64


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
            number: lifted(step.values[None], theta)
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
        both = self._bracket(words[:, 1:], moved(state, value, epsilon), level + 1)
        inner, along_value = parted(both, epsilon)
        _, along_inner = parted(self.gradient(field, moved(state, inner, epsilon)), epsilon)
        return plus(along_inner, scaled(along_value, -1))

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
                values.append(_forward(step, [values[source] for source in step.sources], gate))
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
            lengths = [steps[source].length for source in step.sources]
            gate = self.gates[number][fields] if number in self.gates else None
            if number in self.slopes:
                gate = self.slopes[number][fields]
            for place, source in enumerate(step.sources):
                if self.moving[source]:
                    part = _backward(step, place, slope, arguments, values[number], lengths, gate)
                    slopes[source] = plus(slopes[source], part) if source in slopes else part
        return slopes.get(0, {0: zeros((1, self.program.parameters), self.theta)})


def _moving(program: StraightLineProgram) -> list[bool]:
    """Which arrays depend on the parameters."""
    found: list[bool] = []
    for step in program.steps:
        found.append(step.kind == "parameters" or any(found[source] for source in step.sources))
    return found


# Steps


def _forward(step: ProgramStep, arguments: list[Jet], gate: Array | None = None) -> Jet:
    match step.kind:
        case "take":
            return _take(step, arguments)
        case "add":
            return plus(arguments[0], arguments[1])
        case "mul":
            return product(arguments[0], arguments[1], times)
        case "matmul":
            return product(arguments[0], arguments[1], lambda a, b: _matmul(step, a, b))
        case "sum":
            return mapped(arguments[0], lambda part: kept(part.reshape(len(part), -1, step.sizes[0]).sum(axis=2)))
        case "choose" if gate is not None:
            return plus(product({0: gate}, arguments[1], times), product({0: 1 - gate}, arguments[2], times))
        case "choose":
            return _chosen(told_signs(arguments[0]), arguments[1], arguments[2])
    if step.kind not in FUNCTIONS:
        raise Unsupported(f"a program has no step {step.kind}")
    if gate is not None:
        return {0: gate}
    return apply(step.kind, arguments[0])


def _take(step: ProgramStep, arguments: list[Jet]) -> Jet:
    indices = step.indices if step.indices is not None else np.zeros(0, dtype=np.intp)
    if len(arguments) == 1 and indices.min(initial=0) >= 0:
        return mapped(arguments[0], lambda part: part[:, indices])
    found: Jet = {}
    for mask in {mask for jet in arguments for mask in jet}:
        rows = max(len(jet[mask]) for jet in arguments if mask in jet)
        like = next(jet[mask] for jet in arguments if mask in jet)
        pieces = []
        for jet in arguments:
            length = next(iter(jet.values())).shape[1]
            piece = jet.get(mask)
            piece = zeros((1, length), like) if piece is None else piece
            pieces.append(np.broadcast_to(piece, (rows, length)))
        pieces.append(zeros((rows, 1), like))  # what −1 points to
        found[mask] = np.concatenate(pieces, axis=1)[:, indices]
    return found


def _matmul(step: ProgramStep, first: Array, second: Array) -> Array:
    n, p, q, r = step.sizes
    left, right = first.reshape(-1, n, p, q), second.reshape(-1, n, q, r)
    found = _residue_product(left, right) if first.dtype == np.int64 else np.matmul(left, right)
    return np.asarray(found.reshape(len(found), -1))


def _residue_product(left: Array, right: Array) -> Array:
    """In float64, exactly: residues below 2²³ and at most DEPTH products at a time."""
    total = np.zeros(1, dtype=np.int64)
    for start in range(0, left.shape[-1], DEPTH):
        part = left[..., start : start + DEPTH].astype(float) @ right[..., start : start + DEPTH, :].astype(float)
        total = (total + part.astype(np.int64)) % prime()
    return total


def told_signs(jet: Jet) -> NDArray[np.bool_]:
    """Where the value is positive; where it cannot be told, the program has no derivative that can be trusted."""
    value = jet[0]
    if value.dtype == np.int64:
        raise Unsupported("residues have no sign")
    if value.dtype != object:
        return np.asarray(value > 0)
    positive = np.asarray(np.frompyfunc(lambda x: bool(x > 0), 1, 1)(value), dtype=bool)
    negative = np.asarray(np.frompyfunc(lambda x: bool(x < 0), 1, 1)(value), dtype=bool)
    if not (positive | negative).all():
        raise ArithmeticError("a sign cannot be told")
    return positive


def _chosen(signs: NDArray[np.bool_], positive: Jet, other: Jet) -> Jet:
    zero = zeros((1, 1), next(iter({**positive, **other}.values())))
    return {
        mask: np.where(signs, positive.get(mask, zero), other.get(mask, zero))
        for mask in positive.keys() | other.keys()
    }


def _backward(
    step: ProgramStep,
    place: int,
    slope: Jet,
    arguments: list[Jet],
    value: Jet,
    lengths: list[int],
    gate: Array | None = None,
) -> Jet:
    """The slope of one source from the slope of the step."""
    match step.kind:
        case "take":
            start = sum(lengths[:place])
            return mapped(slope, lambda part: _scattered(part, step, start, lengths[place]))
        case "add":
            return slope
        case "mul":
            return product(slope, arguments[1 - place], times)
        case "matmul":
            n, p, q, r = step.sizes
            other = arguments[1 - place]
            if place == 0:
                turned = mapped(other, lambda part: part.reshape(-1, n, q, r).swapaxes(2, 3).reshape(len(part), -1))
                return product(slope, turned, lambda g, b: _matmul(_resized(step, (n, p, r, q)), g, b))
            turned = mapped(other, lambda part: part.reshape(-1, n, p, q).swapaxes(2, 3).reshape(len(part), -1))
            return product(slope, turned, lambda g, a: _matmul(_resized(step, (n, q, p, r)), a, g))
        case "sum":
            return mapped(slope, lambda part: np.repeat(part, step.sizes[0], axis=1))
        case "choose" if place == 0:
            return {}
        case "choose" if gate is not None:
            return product(slope, {0: gate if place == 1 else 1 - gate}, times)
        case "choose":
            signs = told_signs(arguments[0])
            nothing: Jet = {mask: part * 0 for mask, part in slope.items()}
            return _chosen(signs, slope, nothing) if place == 1 else _chosen(signs, nothing, slope)
    if gate is None:
        return product(slope, derivative(step.kind, arguments[0], value), times)
    return product(slope, {0: _free_slope(step.kind, arguments[0], gate)}, times)


def _free_slope(kind: str, argument: Jet, given: Array) -> Array:
    """The derivative of a function with a free value: `given` is that value for exp and rsqrt, else the derivative."""
    if kind == "rsqrt":
        return times(times(given, apply("reciprocal", argument)[0]), np.asarray((prime() - 1) // 2))
    return apply("reciprocal", argument)[0] if kind == "log" else given


def _resized(step: ProgramStep, sizes: tuple[int, ...]) -> ProgramStep:
    return ProgramStep(step.kind, step.sources, step.length, sizes=sizes)


def _scattered(part: Array, step: ProgramStep, start: int, length: int) -> Array:
    """Add every entry to the place that it was taken from."""
    indices = step.indices if step.indices is not None else np.zeros(0, dtype=np.intp)
    here = np.flatnonzero((indices >= start) & (indices < start + length))
    targets = indices[here] - start
    found = zeros((len(part), length), part)
    if not len(targets):
        return found
    order = np.argsort(targets, kind="stable")
    distinct, first = np.unique(targets[order], return_index=True)
    if len(distinct) == len(targets):
        found[:, targets] = part[:, here]
    else:
        found[:, distinct] = kept(np.add.reduceat(part[:, here[order]], first, axis=1))
    return found
