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
from math import ceil, log2, prod
from random import SystemRandom
from typing import Any

import numpy as np
from flint import fmpz, fmpz_mod_ctx, fmpz_mod_mat

from lawful.verify.core.program import Jet, Numbers, ReadStep, Table, each, interpret, plus

# Of the random prime: a polynomial of degree 2^100 still vanishes at random with a chance below 2^-155.
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
    `tokens` inputs in a run, each run adds up to 1, as the unit vectors of token ids do; inputs from `plain` on are no
    tokens. On `data` the laws need to hold at its samples alone.
    """
    size = _Size.of(steps, laws, [value for sample in data for value in sample.values])
    doubt = size.degree / 2.0 ** (BITS - 1) + size.bits / (BITS - 1) / 2.0 ** (BITS - 1 - ceil(log2(BITS)))
    k = int(-log2(doubt)) if 0 < doubt < 0.5 else 0
    if not k:
        return 0
    try:
        for sample in data or (None,):
            slopes = _slopes(steps, laws, tokens, sample, plain)
            if classes:  # all of a run may be the same
                runs = slopes.reshape(-1, classes)
                slopes = runs - runs[:, :1]
            if any(bool(value != 0) for value in slopes.ravel()):
                return 0
    except ZeroDivisionError:
        return 0
    return k


class FreeFunctions(Numbers):
    """Residues modulo a random prime; functions of an array are free variables, tied by what always holds of them."""

    def __init__(self, sample: Sample | None) -> None:
        self.random, self.sample = SystemRandom(), sample
        self.prime = 4
        while not fmpz(self.prime).is_prime():
            self.prime = self.random.getrandbits(BITS - 1) | 1 << (BITS - 1) | 1
        self.field = fmpz_mod_ctx(fmpz(self.prime))
        self.drawn: dict[tuple[str, int], Table] = {}

    def number(self, value: float | Fraction) -> Any:
        """A rational, exactly."""
        exact = Fraction(value)
        return self.field(exact.numerator) / self.field(exact.denominator)

    def matrix(self, rows: int, columns: int, entries: list[Any]) -> Any:
        """FLINT's."""
        return fmpz_mod_mat(rows, columns, entries, self.field)

    def draw(self, count: int) -> Table:
        """Random numbers, one row."""
        return np.array([[self.field(self.random.randrange(self.prime)) for _ in range(count)]], dtype=object)

    def free(self, name: str, step: ReadStep) -> Table:
        """Random values of a function of one array, the same whenever they are asked for."""
        key = name, step.sources[0]
        if key not in self.drawn:
            self.drawn[key] = self.draw(step.length)
        return self.drawn[key]

    def series(self, step: ReadStep, value: Table, order: int) -> list[Table]:
        """A value and its derivative."""
        kind = step.kind
        if kind == "reciprocal":
            inverse = 1 / value
            return [inverse, -inverse * inverse]
        free = self.free(kind, step)
        match kind:
            case "exp":
                return [free, free]
            case "rsqrt":
                return [free, free / value * self.number(Fraction(-1, 2))]
            case "log":
                return [free, 1 / value]
            case "sin":
                return [free, self.free("cos", step)]
            case "cos":
                return [free, -self.free("sin", step)]
        return [free, self.free(f"slope of {kind}", step)]

    def choose(self, place: int, step: ReadStep, sign: Jet, first: Jet, second: Jet) -> Jet:
        """On data the side that was told, else a random combination of both."""
        if self.sample is None:
            gate = self.free("choose", step)
        else:
            gate = np.where(self.sample.sides[place], self.number(1), self.number(0))
        return plus(each(first, lambda x: gate * x), each(second, lambda x: x - gate * x))


def _slopes(
    steps: Sequence[ReadStep], laws: Sequence[Law], tokens: int, sample: Sample | None, plain: int | None
) -> Any:
    """The derivative of the output along a random combination of the laws' gradients, which is 0 for laws."""
    numbers = FreeFunctions(sample)
    point = numbers.draw(steps[0].length)
    along = np.full_like(point, numbers.number(0))
    for law in laws:
        factor = numbers.draw(1)[0, 0]
        for monomial, coefficient in law:
            for place, edge in enumerate(monomial):
                others = (*monomial[:place], *monomial[place + 1 :])
                along[0, edge] += prod(
                    (point[0, other] for other in others), start=factor * numbers.number(coefficient)
                )

    def leaf(step: ReadStep) -> Jet:
        if step.kind == "parameters":
            return [point, along]
        if step.kind == "constant" or sample is not None:
            return [numbers.table([step.values if sample is None or step.kind == "constant" else sample.values]), None]
        drawn = numbers.draw(step.length)
        if tokens:
            runs = drawn[0, :plain].reshape(-1, tokens)  # a view
            runs[:, -1] = numbers.number(1) - runs[:, :-1].sum(axis=1)
        return [drawn, None]

    slope = interpret(steps, numbers, leaf, keep=False)[0][1]
    return np.zeros((1, steps[-1].length), dtype=object) if slope is None else slope


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

    def add_terms(self, terms: int) -> _Size:
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
            operands = [pairs[source] for source in step.sources]
            if number == 0:
                pairs.append((free, along))
            elif step.kind == "input" and not data:
                pairs.append((_Size(1.0, log2(step.length + 2.0)), _Size(0.0, 0.0)))
            elif step.kind in ("input", "constant"):
                values = data if step.kind == "input" else step.values
                bits = max((_digits(Fraction(value)) for value in values), default=0.0)
                pairs.append((_Size(0.0, bits), _Size(0.0, 0.0)))
            else:
                pairs.append(_grow(step, operands))
        return pairs[-1][1].add_terms(2)


def _grow(step: ReadStep, given: Sequence[tuple[_Size, _Size]]) -> tuple[_Size, _Size]:
    free = _Size(1.0, 1.0)
    values, slopes = [pair[0] for pair in given], [pair[1] for pair in given]
    value, slope = _largest(values), _largest(slopes)
    match step.kind:
        case "take":
            return value, slope
        case "sum":
            return value.add_terms(step.extra[0]), slope.add_terms(step.extra[0])
        case "add":
            return value.add_terms(2), slope.add_terms(2)
        case "mul" | "matmul":
            terms = step.extra[2] if step.kind == "matmul" else 1
            return values[0].times(values[1]).add_terms(terms), value.times(slope).add_terms(2 * terms)
        case "choose":
            return free.times(value).add_terms(3), free.times(slope).add_terms(3)
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
