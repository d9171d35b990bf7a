"""Gradient fields of a program and their brackets, in ball arithmetic.

Values go forwards and sensitivities backwards; a bracket differentiates along fields by jets (`core/program.py`). A
choice between two arrays needs a sign that is sure at the point, so the same side is taken near it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from flint import arb, fmpz

from lawful.verify.core.program import Jet, Numbers, ReadStep, Table, each, interpret, plus, times
from lawful.verify.core.schema import require

TOGETHER = 64  # brackets that are evaluated at once


def dyadics(rows: Sequence[Sequence[int]], bits: int) -> Table:
    """Whole multiples of `2^−bits`, exactly."""
    scale = arb(fmpz(2) ** bits)
    table = np.empty((len(rows), len(rows[0]) if rows else 0), dtype=object)
    for i, row in enumerate(rows):
        for j, value in enumerate(row):
            table[i, j] = arb(fmpz(value)) / scale
    return table


class SureChoices(Numbers):
    """Balls whose choices are sure; where both sides are 0 near the point whatever the parameters, either will do."""

    def __init__(self, steps: Sequence[ReadStep], count: int) -> None:
        self.steps, self.count = steps, count
        self.idle: list[Any] = []  # which entries of each step are such zeros, as far as they were needed
        self.sides: list[Any] = [None] * len(steps)

    def choose(self, place: int, step: ReadStep, sign: Jet, first: Jet, second: Jet) -> Jet:
        """By the sign of the value, the same for all derivatives."""
        for earlier in range(len(self.idle), place):
            self.idle.append(self._idle(earlier, self.steps[earlier]))
        either = (self.idle[step.sources[1]] & self.idle[step.sources[2]]).ravel().tolist()
        told = [(bool(x > 0), bool(x < 0)) for x in np.ravel(sign[0])]
        sure = all(up or down or same for (up, down), same in zip(told, either, strict=True))
        require(sure, "a sign that decides a piece cannot be told")
        self.sides[place] = up = np.array([up for up, _ in told]).reshape(np.shape(sign[0]))
        return plus(
            each(first, lambda x: np.where(up, x, arb(0))),
            each(second, lambda x: np.where(up, arb(0), x)),
        )

    def _idle(self, place: int, step: ReadStep) -> Any:
        """Constants of 0 and what they make 0, near the point."""
        given, count = [self.idle[source] for source in step.sources], self.count
        match step.kind:
            case "constant":
                return np.repeat(np.array([value == 0.0 for value in step.values], dtype=bool)[None], count, axis=0)
            case "take":
                last = np.ones((count, 1), dtype=bool)
                return np.concatenate([*given, last], axis=1)[:, np.array(step.extra, dtype=np.intp)]
            case "add":
                return given[0] & given[1]
            case "mul":
                return given[0] | given[1]
            case "matmul":
                n, p, q, r = step.extra
                left, right = (~given[0]).reshape(count, n, p, q), (~given[1]).reshape(count, n, q, r)
                return (np.matmul(left.astype(int), right.astype(int)) == 0).reshape(count, -1)
            case "sum":
                return given[0].reshape(count, step.length, step.extra[0]).all(axis=2)
            case "choose":
                return np.where(self.sides[place], given[1], given[2])
        return np.zeros((count, step.length), dtype=bool)


class Fields:
    """Gradients of `⟨w, output⟩` by the parameters, for samples of inputs and output weights."""

    def __init__(self, steps: Sequence[ReadStep], point: Table, inputs: Table, weights: Table) -> None:
        self.steps, self.point, self.inputs, self.weights = steps, point, inputs, weights

    def brackets(self, words: Sequence[Sequence[int]]) -> Table:
        """The value of every bracket, a row each."""
        rows = np.empty((len(words), self.steps[0].length), dtype=object)
        for length in sorted({len(word) for word in words}):
            where = [number for number, word in enumerate(words) if len(word) == length]
            for start in range(0, len(where), TOGETHER):
                part = where[start : start + TOGETHER]
                table = np.array([words[number] for number in part])
                value = self._bracket(table, [np.repeat(self.point, len(part), axis=0)])[0]
                rows[part] = arb(0) if value is None else value
        return rows

    def _bracket(self, words: Any, state: Jet) -> Jet:
        """`[X, Z] = JX·Z − JZ·X`: each derivative is the coefficient of a new infinitesimal."""
        if words.shape[1] == 1:
            return self.gradient(words[:, 0], state)
        size = len(state)
        outer = self.gradient(words[:, 0], state)
        inner = self._bracket(words[:, 1:], state)
        along_inner = self.gradient(words[:, 0], state + inner)[size:]
        along_outer = self._bracket(words[:, 1:], state + outer)[size:]
        return plus(along_inner, each(along_outer, lambda x: -x))

    def sides(self, fields: Any) -> list[Any]:
        """Which array every choice takes at the point, for each of some inputs: a table for each step that chooses."""
        return self._values(fields, [np.repeat(self.point, len(fields), axis=0)])[1].sides

    def _values(self, fields: Any, state: Jet) -> tuple[list[Jet], SureChoices]:
        count, rest = len(fields), [None] * (len(state) - 1)
        numbers = SureChoices(self.steps, count)

        def leaf(step: ReadStep) -> Jet:
            if step.kind == "parameters":
                return state
            row = (
                self.inputs[fields] if step.kind == "input" else np.repeat(numbers.table([step.values]), count, axis=0)
            )
            return [row, *rest]

        return interpret(self.steps, numbers, leaf), numbers

    def gradient(self, fields: Any, state: Jet) -> Jet:
        """Values forwards, sensitivities backwards."""
        size = len(state)
        values, numbers = self._values(fields, state)
        slopes: list[Jet] = [[None] * size for _ in self.steps]
        slopes[-1] = [self.weights[fields], *[None] * (size - 1)]
        for place in range(len(self.steps) - 1, 1, -1):
            step = self.steps[place]
            if any(part is not None for part in slopes[place]):
                arguments = [values[source] for source in step.sources]
                for which, source in enumerate(step.sources):
                    passed = self._pass_back(numbers, place, which, slopes[place], arguments)
                    slopes[source] = plus(slopes[source], passed)
        return slopes[0]

    def _pass_back(self, numbers: SureChoices, place: int, which: int, slope: Jet, arguments: Sequence[Jet]) -> Jet:
        """What the sensitivity of a step adds to that of one of its sources: the transpose of its derivative."""
        step = self.steps[place]
        match step.kind:
            case "take":
                lengths = [self.steps[source].length for source in step.sources]
                start = sum(lengths[:which])
                return each(slope, lambda x: _put_back(x, step.extra, start, lengths[which]))
            case "add":
                return slope
            case "mul":
                return times(slope, arguments[1 - which], np.multiply)
            case "matmul":
                n, p, q, r = step.extra
                if which == 0:
                    return times(slope, arguments[1], lambda g, y: numbers.product(
                        g.reshape(-1, n, p, r), y.reshape(-1, n, q, r).swapaxes(2, 3)))  # fmt: skip
                return times(slope, arguments[0], lambda g, x: numbers.product(
                    x.reshape(-1, n, p, q).swapaxes(2, 3), g.reshape(-1, n, p, r)))  # fmt: skip
            case "sum":
                return each(slope, lambda x: np.repeat(x, step.extra[0], axis=1))
            case "choose":
                if which == 0:
                    return [None] * len(slope)
                here = numbers.sides[place] if which == 1 else ~numbers.sides[place]
                return each(slope, lambda x: np.where(here, x, arb(0)))
        return times(slope, numbers.compose(step, arguments[0], 1), np.multiply)


def _put_back(slope: Table, indices: Sequence[int], start: int, length: int) -> Table:
    total = np.full((len(slope), length), arb(0), dtype=object)
    for place, index in enumerate(indices):
        if start <= index < start + length:
            total[:, index - start] = total[:, index - start] + slope[:, place]
    return total
