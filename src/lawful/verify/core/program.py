"""A program of exact steps on flat arrays, its gradient fields and their brackets in ball arithmetic.

A number is a list of balls, one for each set of infinitesimals (bit masks); functions are composed by their Taylor
series, which FLINT computes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from flint import arb, arb_series, fmpz

from lawful.verify.core.schema import integer, integers, items, numbers, object_with_keys, require, word

PAIRS = ("add", "mul")
FUNCTIONS = ("exp", "erf", "reciprocal", "rsqrt", "log", "sin", "cos")
Table = Any  # a NumPy array of balls, (rows, entries)
Number = list[Table | None]  # by set of infinitesimals; None is 0


@dataclass(frozen=True)
class ReadStep:
    """One array of the program."""

    kind: str
    sources: tuple[int, ...]
    length: int
    extra: tuple[int, ...] = ()
    values: tuple[float, ...] = ()


def read_steps(value: object) -> list[ReadStep]:
    """The steps of a program: parameters, then the input, then steps that read earlier ones."""
    found: list[ReadStep] = []
    for number, line in enumerate(items(value, "steps", most=20_000)):
        kind = line.get("kind") if isinstance(line, dict) else None
        require(
            (kind == "parameters") is (number == 0) and (kind == "input") is (number == 1), "steps in a wrong order"
        )
        found.append(_step(kind, line, found))
    require(len(found) > 2, "the program has no steps")
    return found


def _step(kind: Any, line: Any, before: Sequence[ReadStep]) -> ReadStep:
    if kind in ("parameters", "input"):
        return ReadStep(
            kind, (), integer(object_with_keys(line, "step", "kind length")["length"], "length", 0, 5_000_000)
        )
    if kind == "constant":
        values = numbers(object_with_keys(line, "step", "kind values")["values"], "values")
        return ReadStep(kind, (), len(values), values=tuple(values))
    keys = {"take": "kind sources indices", "matmul": "kind sources sizes", "sum": "kind sources sizes"}
    given = object_with_keys(line, "step", keys.get(kind, "kind sources") if isinstance(kind, str) else "kind")
    sources = tuple(integers(given["sources"], "sources", 0, len(before) - 1, most=1000))
    lengths = [before[source].length for source in sources]
    if kind == "take":
        indices = tuple(integers(given["indices"], "indices", -1, sum(lengths) - 1))
        return ReadStep(kind, sources, len(indices), indices)
    if kind == "matmul":
        n, p, q, r = sizes = tuple(integers(given["sizes"], "sizes", 1, 5_000_000, length=4))
        require(lengths == [n * p * q, n * q * r], "a matrix product does not fit")
        require(n * p * r <= 5_000_000, "a matrix product is too large")
        return ReadStep(kind, sources, n * p * r, sizes)
    if kind == "sum":
        (run,) = integers(given["sizes"], "sizes", 1, length=1)
        require(len(lengths) == 1 and lengths[0] % run == 0, "a sum does not fit")
        return ReadStep(kind, sources, lengths[0] // run, (run,))
    word(kind, "step", *PAIRS, *FUNCTIONS, "choose")
    arity = 2 if kind in PAIRS else 3 if kind == "choose" else 1
    require(len(lengths) == arity and len(set(lengths)) == 1, "a step does not fit its sources")
    return ReadStep(kind, sources, lengths[0])


def dyadics(rows: Sequence[Sequence[int]], bits: int) -> Table:
    """Whole multiples of `2^−bits`, exactly."""
    scale = arb(fmpz(2) ** bits)
    table = np.empty((len(rows), len(rows[0]) if rows else 0), dtype=object)
    for i, row in enumerate(rows):
        for j, value in enumerate(row):
            table[i, j] = arb(fmpz(value)) / scale
    return table


def exactly(rows: Sequence[Sequence[float]]) -> Table:
    """Doubles as the exact numbers that they are."""
    return np.array([[arb(value) for value in row] for row in rows], dtype=object)


# Numbers with infinitesimals


def _plus(a: Number, b: Number) -> Number:
    return [y if x is None else x if y is None else x + y for x, y in zip(a, b, strict=True)]


def _multiply(a: Number, b: Number, times: Callable[[Table, Table], Table]) -> Number:
    found: Number = [None] * len(a)
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            if x is not None and y is not None and i & j == 0:
                part, term = found[i | j], times(x, y)
                found[i | j] = term if part is None else part + term
    return found


def _each(a: Number, function: Callable[[Table], Table]) -> Number:
    return [None if x is None else function(x) for x in a]


def _padded(a: Number, size: int) -> Number:
    return a + [None] * (size - len(a))


def _series(kind: str, x: Any, order: int) -> list[Any]:
    """Taylor coefficients of a function at a ball, up to the order."""
    at = arb_series([x, 1], order + 1)
    match kind:
        case "exp":
            found = at.exp()
        case "erf":
            found = at.erf()
        case "reciprocal":
            found = 1 / at
        case "rsqrt":
            found = at.rsqrt()
        case "log":
            found = at.log()
        case "sin":
            found = at.sin()
        case _:
            found = at.cos()
    return [found[k] for k in range(order + 1)]


def _taylor(kind: str, a: Number, derived: int) -> Number:
    """`f(a)` or `f'(a)`: the series at the value without infinitesimals, in powers of the rest."""
    value = a[0]
    if value is None:
        raise ValueError("a function of nothing")
    order = (len(a) - 1).bit_length()
    tables = [np.empty(value.shape, dtype=object) for _ in range(order + 1)]
    for place in np.ndindex(value.shape):
        coefficients = _series(kind, value[place], order + derived)
        for k in range(order + 1):
            tables[k][place] = coefficients[k + derived] * ((k + 1) if derived else 1)
    rest: Number = [None, *a[1:]]
    power: Number = [None] * len(a)
    found: Number = [tables[0], *[None] * (len(a) - 1)]
    for k in range(1, order + 1):
        power = rest if k == 1 else _multiply(power, rest, np.multiply)
        table = tables[k]
        found = _plus(found, _each(power, lambda x, table=table: x * table))  # type: ignore[misc]
    return found


# Fields and brackets


class Fields:
    """Gradients of `⟨w, output⟩` by the parameters, for samples of inputs and output weights."""

    def __init__(self, steps: Sequence[ReadStep], point: Table, inputs: Table, weights: Table) -> None:
        self.steps, self.point, self.inputs, self.weights = steps, point, inputs, weights

    def brackets(self, words: Sequence[Sequence[int]]) -> Table:
        """The value of every bracket, a row each."""
        rows = np.empty((len(words), self.steps[0].length), dtype=object)
        for length in sorted({len(found) for found in words}):
            where = [number for number, found in enumerate(words) if len(found) == length]
            for start in range(0, len(where), 64):
                part = where[start : start + 64]
                table = np.array([words[number] for number in part])
                value = self._bracket(table, [np.repeat(self.point, len(part), axis=0)])[0]
                rows[part] = arb(0) if value is None else value
        return rows

    def _bracket(self, words: Any, state: Number) -> Number:
        """`[X, Z] = JX·Z − JZ·X`: each derivative is the coefficient of a new infinitesimal."""
        if words.shape[1] == 1:
            return self.gradient(words[:, 0], state)
        size = len(state)
        outer = self.gradient(words[:, 0], state)
        inner = self._bracket(words[:, 1:], state)
        along_inner = self.gradient(words[:, 0], state + inner)[size:]
        along_outer = self._bracket(words[:, 1:], state + outer)[size:]
        return _plus(along_inner, _each(along_outer, lambda x: -x))

    def sides(self, fields: Any) -> list[Any]:
        """Which array every choice takes at the point, for each of some inputs: a table for each step that chooses."""
        return self._values(fields, [np.repeat(self.point, len(fields), axis=0)])[1]

    def _values(self, fields: Any, state: Number) -> tuple[list[Number], list[Any]]:
        size, count = len(state), len(fields)
        values: list[Number] = []
        idle: list[Any] = []  # where an array is 0 whatever the parameters
        sides: list[Any] = []
        for step in self.steps:
            given = [idle[source] for source in step.sources]
            sides.append(_side(values[step.sources[0]], given) if step.kind == "choose" else None)
            if step.kind == "parameters":
                values.append(state)
            elif step.kind == "input":
                values.append(_padded([self.inputs[fields]], size))
            elif step.kind == "constant":
                row = np.array([arb(value) for value in step.values], dtype=object).reshape(1, -1)
                values.append(_padded([np.repeat(row, count, axis=0)], size))
            else:
                values.append(_value(step, [values[source] for source in step.sources], sides[-1]))
            idle.append(_idle(step, given, sides[-1], count))
        return values, sides

    def gradient(self, fields: Any, state: Number) -> Number:
        """Values forwards, sensitivities backwards."""
        size = len(state)
        values, sides = self._values(fields, state)
        heard: list[Number] = [[None] * size for _ in self.steps]
        heard[-1] = _padded([self.weights[fields]], size)
        for number in range(len(self.steps) - 1, 1, -1):
            step = self.steps[number]
            if any(part is not None for part in heard[number]):
                arguments = [values[source] for source in step.sources]
                lengths = [self.steps[source].length for source in step.sources]
                for place, source in enumerate(step.sources):
                    told = _told(step, place, heard[number], arguments, lengths, sides[number])
                    heard[source] = _plus(heard[source], told)
        return heard[0]


def _value(step: ReadStep, arguments: Sequence[Number], positive: Any) -> Number:
    match step.kind:
        case "take":
            return _taken(step, arguments)
        case "add":
            return _plus(arguments[0], arguments[1])
        case "mul":
            return _multiply(arguments[0], arguments[1], np.multiply)
        case "matmul":
            n, p, q, r = step.extra
            return _multiply(arguments[0], arguments[1], lambda x, y: _stacked(x, y, (n, p, q), (n, q, r)))
        case "sum":
            return _each(arguments[0], lambda x: x.reshape(len(x), step.length, step.extra[0]).sum(axis=2))
        case "choose":
            return _plus(
                _each(arguments[1], lambda x: np.where(positive, x, arb(0))),
                _each(arguments[2], lambda x: np.where(positive, arb(0), x)),
            )
    return _taylor(step.kind, arguments[0], 0)


def _told(
    step: ReadStep, place: int, slope: Number, arguments: Sequence[Number], lengths: Sequence[int], positive: Any
) -> Number:
    """What the sensitivity of a step adds to that of one of its sources."""
    match step.kind:
        case "take":
            return _each(slope, lambda x: _returned(x, step.extra, sum(lengths[:place]), lengths[place]))
        case "add":
            return slope
        case "mul":
            return _multiply(slope, arguments[1 - place], np.multiply)
        case "matmul":
            n, p, q, r = step.extra
            if place == 0:
                return _multiply(slope, arguments[1], lambda g, y: _stacked(g, y, (n, p, r), (n, q, r), (1,)))
            return _multiply(slope, arguments[0], lambda g, x: _stacked(x, g, (n, p, q), (n, p, r), (0,)))
        case "sum":
            return _each(slope, lambda x: np.repeat(x, step.extra[0], axis=1))
        case "choose":
            if place == 0:
                return [None] * len(slope)
            kept = positive if place == 1 else ~positive
            return _each(slope, lambda x: np.where(kept, x, arb(0)))
    return _multiply(slope, _taylor(step.kind, arguments[0], 1), np.multiply)


def _taken(step: ReadStep, arguments: Sequence[Number]) -> Number:
    found: Number = []
    indices = np.array(step.extra, dtype=np.intp)
    for parts in zip(*arguments, strict=True):
        given = [part for part in parts if part is not None]
        if not given:
            found.append(None)
            continue
        count = len(given[0])
        whole_ = [
            np.full((count, _width(argument)), arb(0), dtype=object) if part is None else part
            for part, argument in zip(parts, arguments, strict=True)
        ]
        found.append(np.concatenate([*whole_, np.full((count, 1), arb(0), dtype=object)], axis=1)[:, indices])
    return found


def _width(argument: Number) -> int:
    return int(next(part for part in argument if part is not None).shape[1])


def _returned(slope: Table, indices: Sequence[int], start: int, length: int) -> Table:
    found = np.full((len(slope), length), arb(0), dtype=object)
    for place, index in enumerate(indices):
        if start <= index < start + length:
            found[:, index - start] = found[:, index - start] + slope[:, place]
    return found


def _stacked(x: Table, y: Table, first: tuple[int, ...], second: tuple[int, ...], turn: tuple[int, ...] = ()) -> Table:
    """A stack of matrix products, the factor in `turn` transposed."""
    left, right = x.reshape(len(x), *first), y.reshape(len(y), *second)
    left = left.swapaxes(2, 3) if 0 in turn else left
    right = right.swapaxes(2, 3) if 1 in turn else right
    return np.matmul(left, right).reshape(len(x), -1)


def _side(argument: Number, idle: Sequence[Any]) -> Any:
    """Where the first array is positive; where both others are 0 whatever the parameters it does not matter."""
    value = argument[0]
    require(value is not None, "a choice by nothing")
    flat = [(bool(x > 0), bool(x < 0)) for x in value.ravel()]  # type: ignore[union-attr]
    either = (idle[1] & idle[2]).ravel().tolist()
    told = all(up or down or same for (up, down), same in zip(flat, either, strict=True))
    require(told, "a sign that decides a piece cannot be told")
    return np.array([up for up, _ in flat]).reshape(value.shape)  # type: ignore[union-attr]


def _idle(step: ReadStep, given: Sequence[Any], positive: Any, count: int) -> Any:
    """Which entries are 0 near the point, whatever the parameters do there: constants of 0 and what they make 0."""
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
            left, right = ((~given[0]).reshape(count, n, p, q), (~given[1]).reshape(count, n, q, r))
            return (np.matmul(left.astype(int), right.astype(int)) == 0).reshape(count, -1)
        case "sum":
            return given[0].reshape(count, step.length, step.extra[0]).all(axis=2)
        case "choose":
            return np.where(positive, given[1], given[2])
    return np.zeros((count, step.length), dtype=bool)
