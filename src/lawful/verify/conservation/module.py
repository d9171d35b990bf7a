"""The laws of a module, proved again: at most so many by brackets of its gradient fields, as many by identities.

If the matrix of the brackets' values in some coordinates has an approximate inverse to within 1, it is invertible, so
at this point, and by continuity near it, the brackets span as many directions: a law near the point is constant along
all of them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from flint import arb, arb_mat, ctx, fmpz

from lawful.errors import Unsupported
from lawful.verify.conservation.identity import Sample, identities
from lawful.verify.core.finding import Finding, digest_of
from lawful.verify.core.program import Jet, Numbers, ReadStep, Table, each, interpret, plus, read_steps, times, work_of
from lawful.verify.core.schema import (
    check_clock,
    integer,
    integers,
    items,
    limit_cost,
    number,
    numbers,
    object_with_keys,
    rational,
    require,
    spend,
    word,
)

KEYS = "laws parameters steps theta_bits theta sample_bits inputs weights words columns known classes precision"
MOST_SAMPLES = 100_000
MOST_ENTRIES = 4_000_000  # of all arrays of the program: two numbers of about 120 bytes for each, so 1 GB
PRIME_COST = 20_000.0  # to find a random prime of 256 bits: 6 ms, at 3e-7 s a step
SURE = 100  # a false law may pass with a probability of 2^−100 at most


def check(body: dict[str, Any]) -> Finding:
    """At most how many laws a module has near a point, and that as many explicit ones hold everywhere."""
    parts = object_with_keys(body, "certificate", KEYS, "tokens decay data draws")
    steps = read_steps(parts["steps"])
    size, width, ends = steps[0].length, steps[1].length, steps[-1].length
    require(integer(parts["parameters"], "parameters") == size, "the number of parameters is not the program's")
    precision = integer(parts["precision"], "precision", 64, 1024)
    theta = integers(parts["theta"], "theta", length=size)
    data = [numbers(row, "data", length=width) for row in items(parts.get("data", []), "data", most=MOST_SAMPLES)]
    require("data" not in parts or bool(data), "the data are empty")
    if data:
        inputs: list[Any] = integers(parts["inputs"], "inputs", 0, len(data) - 1)
    else:
        inputs = [integers(row, "inputs", length=width) for row in items(parts["inputs"], "inputs")]
    weights = [integers(row, "weights", length=ends) for row in items(parts["weights"], "weights", length=len(inputs))]
    classes = integer(parts["classes"], "classes", 0, ends)
    loss = _loss(classes, weights)
    bits = [integer(parts[key], key, 0, 64) for key in ("theta_bits", "sample_bits")]
    draws = _draws(parts.get("draws", []), width)
    require(not draws or not data, "random numbers are not drawn on given data")
    plain = width - sum(count for _, count in draws)
    _check_draws(draws, [row[plain:] for row in inputs] if draws else [], 2 ** bits[1])
    tokens = integer(parts.get("tokens", 0), "tokens", 0, plain)
    _check_tokens(tokens, [row[:plain] for row in data or inputs] if tokens else [], 1 if data else 2 ** bits[1])
    words = [integers(row, "words", 0, len(inputs) - 1, most=6) for row in items(parts["words"], "words", most=size)]
    columns = integers(parts["columns"], "columns", 0, size - 1, length=len(words))
    require(len(set(columns)) == len(columns) and all(words), "a coordinate appears twice, or a bracket has no field")
    work = sum(work_of(step) for step in steps)
    if (entries := sum(step.length for step in steps)) > MOST_ENTRIES:
        raise Unsupported(f"the steps of this certificate have {entries:,} numbers, more than {MOST_ENTRIES:,}")
    brackets = sum(60.0 * work * 4.0 ** len(path) for path in words) + 10.0 * len(words) ** 3
    # Identities are evaluated with a value and a slope of 256 bits for every number, once for each sample.
    limit_cost(brackets + 100.0 * work * len(data) + 8.0 * (work + entries) * max(1, len(data)))
    before = ctx.prec
    ctx.prec = precision
    try:
        point = dyadics([theta], bits[0])
        table = Numbers().table(data) if data else dyadics(inputs, bits[1])
        fields = Fields(
            steps, point, table[np.array(inputs, dtype=np.intp)] if data else table, dyadics(weights, bits[1])
        )
        rows = fields.brackets(words)
        samples = _samples(Fields(steps, point, table, table), data)
        require(_invertible(rows[:, columns]), "the brackets are not proved independent")
        laws = [_law(law, size) for law in items(parts["known"], "known", most=size)]
        # every sample draws its own prime, and differentiates all laws anew: two microseconds a factor and term
        places = sum(len(monomial) ** 2 for law in laws for monomial, _ in law)
        spend(float(max(1, len(data))) * (PRIME_COST + 8.0 * places))
        slopes = [_slope(law, point[0]) for law in laws]
        independent = _count_independent(slopes, size)
    finally:
        ctx.prec = before
    most = size - len(words)
    require(
        integer(parts["laws"], "laws", 0, size) == most,
        f"the brackets leave room for {most} laws, not as many as stated",
    )
    require(independent == most, f"{independent} of the explicit laws are independent, not {most}")
    sure = identities(steps, laws, classes, tokens, samples, plain)
    require(not most or sure >= SURE, "the explicit laws are no identities of the program")
    digest = "program:" + _fingerprint([parts["steps"], parts["draws"]] if draws else parts["steps"])
    facts: dict[str, Any] = {
        "laws": most, "parameters": size, "loss": loss, "claim": "near" if data else "somewhere",
        "error": f"2^-{sure}" if most else "0",
    }  # fmt: skip
    if data:
        facts["samples"] = len(data)
    if tokens:
        facts["tokens"] = tokens
    if draws:
        facts |= {"draws": sorted({kind for kind, _ in draws}), "drawn": sum(count for _, count in draws)}
    if "decay" in parts:
        facts["decay"] = number(parts["decay"], "decay")
        require(facts["decay"] > 0, "the weight decay is not positive")
        require(all(len({len(monomial) for monomial, _ in law}) == 1 for law in laws), "a law is not homogeneous")
    others = (digest_of("data", data),) if data else ()
    return Finding(facts, (digest,), others)


def _samples(fields: Fields, data: Sequence[Sequence[float]]) -> list[Sample]:
    """Every sample with the sides that choices take there at the point, and so near it."""
    if not data:
        return []
    sides = fields.sides(list(range(len(data))))
    return [Sample(row, [None if side is None else side[at] for side in sides]) for at, row in enumerate(data)]


def _check_tokens(count: int, inputs: Sequence[Sequence[float]], one: int) -> None:
    """The unit vector of a token has so many entries."""
    for row in inputs:
        runs = [row[start : start + count] for start in range(0, len(row), count)]
        require(len(row) % count == 0, "the inputs are no token ids")
        require(all(sum(run) == one and set(run) <= {0, one} for run in runs), "the inputs are no token ids")


def _draws(value: object, width: int) -> list[tuple[str, int]]:
    """Runs of random numbers at the end of the inputs: gates of 0 and 1, numbers between them, or any."""
    runs = []
    for run in items(value, "draws", most=width):
        kind, count = items(run, "draws", length=2)
        runs.append((word(kind, "draws", "gate", "unit", "real"), integer(count, "draws", 0, width)))
    require(sum(count for _, count in runs) <= width, "more random numbers than inputs")
    return runs


def _check_draws(draws: Sequence[tuple[str, int]], rows: Sequence[Sequence[int]], one: int) -> None:
    """Only numbers that are drawn with a positive chance show a direction that training takes."""
    for row in rows:
        start = 0
        for kind, count in draws:
            run = row[start : start + count]
            start += count
            require(kind != "gate" or set(run) <= {0, one}, "a gate is neither 0 nor 1")
            require(kind != "unit" or all(0 < value < one for value in run), "a number lies outside (0, 1)")


def _loss(classes: int, weights: Sequence[Sequence[int]]) -> str:
    """Which losses the fields belong to: slopes of cross-entropy sum to 0 over each run of `classes` outputs."""
    if not classes:
        return "full"
    for row in weights:
        sums = [sum(row[start : start + classes]) for start in range(0, len(row), classes)]
        require(len(row) % classes == 0 and not any(sums), "the output weights are none of cross-entropy")
    return f"cross-entropy over {classes} classes"


def _fingerprint(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


# Ranks and laws


def _invertible(matrix: Table) -> bool:
    """Whether `‖I − M X‖_∞ < 1`, with X the inverse of the midpoints, in balls."""
    size = len(matrix)
    if not size:
        return True
    sizes = [max((abs(value).mid() for value in row), key=float) for row in matrix]
    scaled = arb_mat([[value / scale for value in row] for row, scale in zip(matrix.tolist(), sizes, strict=True)])
    middle = arb_mat([[value.mid() for value in row] for row in scaled.tolist()])
    try:
        inverse = middle.inv()
    except ZeroDivisionError:
        return False
    exact = arb_mat([[value.mid() for value in row] for row in inverse.tolist()])
    product = (scaled * exact).tolist()
    return all(
        bool(sum((abs(value - int(i == j)) for j, value in enumerate(row)), arb(0)) < 1)
        for i, row in enumerate(product)
    )


def _law(value: object, size: int) -> list[tuple[tuple[int, ...], Fraction]]:
    """A polynomial: monomials of parameters and their coefficients."""
    terms = []
    for term in items(value, "law", most=1_000_000):
        monomial, factor = items(term, "term", length=2)
        terms.append((tuple(integers(monomial, "monomial", 0, size - 1, most=8)), rational(factor, "coefficient")))
    return terms


def _slope(law: Sequence[tuple[tuple[int, ...], Fraction]], point: Any) -> dict[int, Any]:
    gradient: dict[int, Any] = {}
    for monomial, factor in law:
        for place, edge in enumerate(monomial):
            term = arb(fmpz(factor.numerator)) / fmpz(factor.denominator)
            for other in (*monomial[:place], *monomial[place + 1 :]):
                term = term * point[other]
            gradient[edge] = gradient.get(edge, arb(0)) + term
    return gradient


def _count_independent(slopes: Sequence[dict[int, Any]], size: int) -> int:
    """How many gradients of laws are surely independent: eliminate while a pivot surely differs from 0."""
    rows = [dict(slope) for slope in slopes]
    rank = 0
    while rows:
        check_clock()
        best = [
            (float(abs(value).lower()), number, edge) for number, row in enumerate(rows) for edge, value in row.items()
        ]
        sure = [entry for entry in best if entry[0] > 0]
        if not sure:
            break
        _, number, edge = max(sure)
        pivot = rows.pop(number)
        rank += 1
        for row in rows:
            if edge in row:
                factor = row.pop(edge) / pivot[edge]
                for other, value in pivot.items():
                    if other != edge:
                        row[other] = row.get(other, arb(0)) - factor * value
    return rank


# Gradient fields of a program and their brackets, in ball arithmetic.
#
# Values go forwards and sensitivities backwards; a bracket differentiates along fields by jets (`core/program.py`). A
# choice between two arrays needs a sign that is sure at the point, so the same side is taken near it.

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
        signs = [(bool(x > 0), bool(x < 0)) for x in np.ravel(sign[0])]
        sure = all(up or down or same for (up, down), same in zip(signs, either, strict=True))
        require(sure, "a sign that decides a piece cannot be told")
        self.sides[place] = up = np.array([up for up, _ in signs]).reshape(np.shape(sign[0]))
        return plus(
            each(first, lambda x: np.where(up, x, arb(0))),
            each(second, lambda x: np.where(up, arb(0), x)),
        )

    def _idle(self, place: int, step: ReadStep) -> Any:
        """Constants of 0 and what they make 0, near the point."""
        operands, count = [self.idle[source] for source in step.sources], self.count
        match step.kind:
            case "constant":
                return np.repeat(np.array([value == 0.0 for value in step.values], dtype=bool)[None], count, axis=0)
            case "take":
                last = np.ones((count, 1), dtype=bool)
                return np.concatenate([*operands, last], axis=1)[:, np.array(step.extra, dtype=np.intp)]
            case "add":
                return operands[0] & operands[1]
            case "mul":
                return operands[0] | operands[1]
            case "matmul":
                n, p, q, r = step.extra
                left, right = (~operands[0]).reshape(count, n, p, q), (~operands[1]).reshape(count, n, q, r)
                return (np.matmul(left.astype(int), right.astype(int)) == 0).reshape(count, -1)
            case "sum":
                return operands[0].reshape(count, step.length, step.extra[0]).all(axis=2)
            case "choose":
                return np.where(self.sides[place], operands[1], operands[2])
        return np.zeros((count, step.length), dtype=bool)


class Fields:
    """Gradients of `⟨w, output⟩` by the parameters, for samples of inputs and output weights."""

    def __init__(self, steps: Sequence[ReadStep], point: Table, inputs: Table, weights: Table) -> None:
        self.steps, self.point, self.inputs, self.weights = steps, point, inputs, weights

    def brackets(self, words: Sequence[Sequence[int]]) -> Table:
        """The value of every bracket, a row each."""
        rows = np.empty((len(words), self.steps[0].length), dtype=object)
        for length in sorted({*map(len, words)}):
            where = [number for number, path in enumerate(words) if len(path) == length]
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
