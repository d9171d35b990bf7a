"""Laws of a program as identities: their derivative along every field vanishes at all weights and inputs.

A law h is conserved if the derivative of the output along ∇h(θ) is 0 for all θ and x. That derivative is computed
modulo a random prime of 256 bits, at random θ and x. Values of exp, erf, sin, … are drawn at random too, as if they
were variables of their own with the right derivatives, and so is which of two entries a choice takes. What vanishes for
all such values vanishes for the true ones. A derivative that is not identically 0 vanishes here with a probability of
at most its degree, divided by the prime, plus the share of primes that divide all its coefficients (Schwartz-Zippel).

On data the inputs are given numbers, a sample after the other, and every choice takes a given side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, log2
from random import SystemRandom
from typing import Any

import numpy as np
from flint import fmpz, fmpz_mod_ctx

from lawful.verify.core.program import ReadStep, Table

BITS = 256
Law = Sequence[tuple[tuple[int, ...], Fraction]]


@dataclass(frozen=True)
class Sample:
    """An input, and for each step that chooses the side that every entry takes."""

    values: Sequence[float]
    sides: Sequence[Any]


def identities(
    steps: Sequence[ReadStep],
    laws: Sequence[Law],
    classes: int,
    tokens: int,
    data: Sequence[Sample] = (),
    plain: int | None = None,
) -> int:
    """The k for which all laws hold at all weights, unless an event of probability 2^−k occurred; 0 if not shown.

    Under cross-entropy (`classes` outputs in a run) the output's derivative may be the same for a whole run. With
    `tokens` inputs in a run, each run adds up to 1, as the unit vectors of token ids do; inputs from
    `plain` on are no tokens. On `data` the laws need to
    hold at its samples alone.
    """
    size = _Size.of(steps, laws, [value for sample in data for value in sample.values])
    doubt = size.degree / 2.0 ** (BITS - 1) + size.bits / (BITS - 1) / 2.0 ** (BITS - 1 - ceil(log2(BITS)))
    k = int(-log2(doubt)) if 0 < doubt < 0.5 else 0
    if not k:
        return 0
    try:
        for sample in data or (None,):
            slopes = _Moving(steps, classes, tokens, sample, plain).output(laws)
            if any(bool(value != 0) for value in slopes.ravel()):
                return 0
    except ZeroDivisionError:
        return 0
    return k


class _Moving:
    """Values modulo a prime and their derivatives along a combination of the laws' gradients."""

    def __init__(
        self,
        steps: Sequence[ReadStep],
        classes: int,
        tokens: int,
        sample: Sample | None = None,
        plain: int | None = None,
    ) -> None:
        self.steps, self.classes, self.tokens, self.sample, self.plain = steps, classes, tokens, sample, plain
        self.random = SystemRandom()
        self.prime = self._prime()
        self.field = fmpz_mod_ctx(fmpz(self.prime))
        self.zero, self.drawn = self.field(0), {}  # type: ignore[var-annotated]

    def _prime(self) -> int:
        while True:
            found = self.random.getrandbits(BITS - 1) | 1 << (BITS - 1) | 1
            if fmpz(found).is_prime():
                return found

    def _any(self, count: int) -> Table:
        return self._table([self.field(self.random.randrange(self.prime)) for _ in range(count)])

    @staticmethod
    def _table(values: list[Any]) -> Table:
        found = np.empty(len(values), dtype=object)
        found[:] = values
        return found

    def _number(self, value: Fraction) -> Any:
        return self.field(value.numerator) / self.field(value.denominator)

    def output(self, laws: Sequence[Law]) -> Table:
        """The derivative of the output, which is 0 for laws."""
        point = self._any(self.steps[0].length)
        along = self._table([self.zero] * len(point))
        for law in laws:
            factor = self._any(1)[0]
            for monomial, coefficient in law:
                for place, edge in enumerate(monomial):
                    term = factor * self._number(coefficient)
                    for other in (*monomial[:place], *monomial[place + 1 :]):
                        term = term * point[other]
                    along[edge] = along[edge] + term
        pairs: list[tuple[Table, Table]] = []
        for number, step in enumerate(self.steps):
            if number == 0:
                pairs.append((point, along))
            elif step.kind in ("input", "constant"):
                given = self._inputs(step.length) if step.kind == "input" else self._constants(step.values)
                pairs.append((given, self._table([self.zero] * step.length)))
            else:
                side = self.sample.sides[number] if self.sample is not None and step.kind == "choose" else None
                pairs.append(self._step(step, [pairs[source] for source in step.sources], side))
        slopes = pairs[-1][1]
        if self.classes:
            runs = slopes.reshape(-1, self.classes)
            slopes = runs - runs[:, :1]
        return slopes

    def _inputs(self, length: int) -> Table:
        if self.sample is not None:
            return self._constants(self.sample.values)
        found = self._any(length)
        if self.tokens:
            runs = found[: self.plain].reshape(-1, self.tokens)
            runs[:, -1] = self.field(1) - runs[:, :-1].sum(axis=1)
        return found

    def _constants(self, values: Sequence[float]) -> Table:
        return self._table([self._number(Fraction(value)) for value in values])

    def _step(self, step: ReadStep, given: Sequence[tuple[Table, Table]], side: Any = None) -> tuple[Table, Table]:
        value, slope = given[0] if given else (None, None)
        match step.kind:
            case "take":
                return self._taken(step, [pair[0] for pair in given]), self._taken(step, [pair[1] for pair in given])
            case "add":
                return value + given[1][0], slope + given[1][1]
            case "mul":
                return value * given[1][0], slope * given[1][0] + value * given[1][1]
            case "matmul":
                (a, s), (b, t) = given
                return _stacked(step, a, b), _stacked(step, s, b) + _stacked(step, a, t)
            case "sum":
                return tuple(part.reshape(-1, step.extra[0]).sum(axis=1) for part in (value, slope))  # type: ignore
            case "choose":
                (_, _), (a, s), (b, t) = given
                if side is not None:
                    return np.where(side, a, b), np.where(side, s, t)
                gate = self._free("choose", step.sources[0], step.length)
                return gate * (a - b) + b, gate * (s - t) + t
        found, derivative = self._function(step, value)
        return found, derivative * slope

    def _taken(self, step: ReadStep, parts: list[Table]) -> Table:
        return np.concatenate([*parts, self._table([self.zero])])[np.array(step.extra, dtype=np.intp)]

    def _free(self, name: str, source: int, length: int) -> Table:
        """Random values of a function of one array, the same whenever they are asked for."""
        if (name, source) not in self.drawn:
            self.drawn[name, source] = self._any(length)
        return self.drawn[name, source]

    def _inverse(self, value: Table) -> Table:
        return self._table([1 / entry for entry in value])

    def _function(self, step: ReadStep, value: Table) -> tuple[Table, Table]:
        """Values and derivatives: free ones, related by what the functions satisfy whatever they are."""
        if step.kind == "reciprocal":
            found = self._inverse(value)
            return found, -found * found
        free = self._free(step.kind, step.sources[0], step.length)
        match step.kind:
            case "exp":
                return free, free
            case "rsqrt":
                return free, free * self._inverse(value) * self._number(Fraction(-1, 2))
            case "log":
                return free, self._inverse(value)
            case "sin":
                return free, self._free("cos", step.sources[0], step.length)
            case "cos":
                return free, -self._free("sin", step.sources[0], step.length)
        return free, self._free(f"slope of {step.kind}", step.sources[0], step.length)


def _stacked(step: ReadStep, a: Table, b: Table) -> Table:
    n, p, q, r = step.extra
    return np.matmul(a.reshape(n, p, q), b.reshape(n, q, r)).ravel()


@dataclass(frozen=True)
class _Size:
    """Bounds for the largest entry of an array, as a quotient of two polynomials with integer coefficients.

    `degree` bounds both degrees, `bits` the logarithms of both sums of |coefficients|; `plain` says that it has no
    denominator but a whole number.
    """

    degree: float
    bits: float
    plain: bool = True

    def times(self, other: _Size) -> _Size:
        """Of products, of values and of derivatives alike."""
        return _Size(self.degree + other.degree, self.bits + other.bits, self.plain and other.plain)

    def added(self, terms: int) -> _Size:
        """Of sums, brought to a common denominator."""
        degree = self.degree if self.plain else self.degree * terms
        return _Size(degree, self.bits * terms + log2(max(terms, 1)), self.plain)

    @staticmethod
    def of(steps: Sequence[ReadStep], laws: Sequence[Law], data: Sequence[float] = ()) -> _Size:
        """The output's derivative along the combination of laws; `data` are all numbers that stand for inputs."""
        free = _Size(1.0, 1.0)
        coefficients = [factor for law in laws for _, factor in law]
        most = max((len(monomial) for law in laws for monomial, _ in law), default=0)
        digits = sum(_digits(factor) for factor in set(coefficients))
        along = _Size(most + 1.0, digits + log2(8.0 + 8 * len(coefficients)))
        pairs: list[tuple[_Size, _Size]] = []
        for number, step in enumerate(steps):
            given = [pairs[source] for source in step.sources]
            if number == 0:
                pairs.append((free, along))
            elif step.kind == "input" and not data:
                pairs.append((_Size(1.0, log2(step.length + 2.0)), _Size(0.0, 0.0)))
            elif step.kind in ("input", "constant"):
                values = data if step.kind == "input" else step.values
                bits = max((_digits(Fraction(value)) for value in values), default=0.0)
                pairs.append((_Size(0.0, bits), _Size(0.0, 0.0)))
            else:
                pairs.append(_grown(step, given))
        return pairs[-1][1].added(2)


def _grown(step: ReadStep, given: Sequence[tuple[_Size, _Size]]) -> tuple[_Size, _Size]:
    free = _Size(1.0, 1.0)
    values, slopes = [pair[0] for pair in given], [pair[1] for pair in given]
    value, slope = _largest(values), _largest(slopes)
    match step.kind:
        case "take":
            return value, slope
        case "sum":
            return value.added(step.extra[0]), slope.added(step.extra[0])
        case "add":
            return value.added(2), slope.added(2)
        case "mul" | "matmul":
            terms = step.extra[2] if step.kind == "matmul" else 1
            return values[0].times(values[1]).added(terms), value.times(slope).added(2 * terms)
        case "choose":
            return free.times(value).added(3), free.times(slope).added(3)
        case "reciprocal":
            inverse = _Size(value.degree, value.bits, plain=value.degree == 0)
            return inverse, inverse.times(inverse).times(slope)
        case "log" | "rsqrt":
            return free, _Size(value.degree + 1.0, value.bits + 3.0, plain=False).times(slope)
    return free, free.times(slope)


def _largest(sizes: Sequence[_Size]) -> _Size:
    return _Size(
        max(size.degree for size in sizes), max(size.bits for size in sizes), all(size.plain for size in sizes)
    )


def _digits(value: Fraction) -> float:
    return float(value.numerator.bit_length() + value.denominator.bit_length())
