"""Are laws of a program conserved at all weights and inputs, whatever its functions? A test modulo random primes.

A law h is conserved if the output's derivative along ∇h(θ) is 0 for all θ and x. Values of exp, erf, … and the sides
that choices take are drawn at random like θ and x: what is 0 for all of them is 0 for the true ones. So a pass shows an
identity, and a law that needs more (such as σ(x) + σ(−x) = 1) may fail.

On data the inputs are the samples, each in turn, and the sides of choices are those near the given weights.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from lawful.exact import is_prime
from lawful.laws.jets import Array
from lawful.laws.law import Law
from lawful.laws.module_data import SeenData
from lawful.laws.straight_line import ProgramStep, StraightLineProgram
from lawful.types import Floats, Residues

TRIALS = 3
Pair = tuple[Residues, Residues]  # values and their derivatives


def identities(
    program: StraightLineProgram,
    laws: Iterable[Law],
    *,
    classes: int = 0,
    tokens: int = 0,
    seed: int = 0,
    seen: SeenData | None = None,
) -> tuple[Law, ...]:
    """Those of the laws that hold identically: all at once if so, else one by one."""
    listed = tuple(laws)
    options: dict[str, Any] = {"classes": classes, "tokens": tokens, "seed": seed, "seen": seen}
    if not listed or holds(program, listed, **options):
        return listed
    return tuple(law for law in listed if holds(program, [law], **options))


def holds(
    program: StraightLineProgram,
    laws: Iterable[Law],
    *,
    classes: int = 0,
    tokens: int = 0,
    seed: int = 0,
    seen: SeenData | None = None,
) -> bool:
    """Whether all laws pass, each with random factors, at three random primes of 31 bits.

    `classes` outputs in a run may move together (cross-entropy), and `tokens` inputs in a run add up to 1. What is
    drawn at random is any number.
    """
    listed = tuple(laws)
    try:
        for trial in range(TRIALS):
            tried = _Trial(program, np.random.default_rng((seed, trial)), classes, tokens)
            for row in range(1 if seen is None else len(seen.inputs)):
                if tried.slopes(listed, seen, row).any():
                    return False
    except ZeroDivisionError:
        return False
    return True


class _Trial:
    def __init__(self, program: StraightLineProgram, rng: np.random.Generator, classes: int, tokens: int) -> None:
        self.program, self.rng, self.classes, self.tokens = program, rng, classes, tokens
        self.prime = next(number for number in iter(lambda: int(rng.integers(2**30, 2**31)) | 1, 0) if is_prime(number))
        self.drawn: dict[tuple[str, int], Residues] = {}

    def slopes(self, laws: Sequence[Law], seen: SeenData | None = None, row: int = 0) -> Residues:
        """The output's derivative along a random combination of the laws' gradients, at any input or at a sample."""
        steps, prime = self.program.steps, self.prime
        point = self._any(steps[0].length)
        self.drawn.clear()
        pairs: list[Pair] = [(point, self._gradient(laws, point))]
        for number, step in enumerate(steps[1:], 1):
            given = seen.inputs[row] if seen is not None and step.kind == "input" else step.values
            if given is not None:
                pairs.append((self._residues(given), np.zeros(step.length, dtype=np.int64)))
            elif step.kind == "input":
                pairs.append((self._inputs(step.length), np.zeros(step.length, dtype=np.int64)))
            else:
                sides = None if seen is None or step.kind != "choose" else seen.gates[number][row]
                pairs.append(self._step(step, [pairs[source] for source in step.sources], sides))
        found = pairs[-1][1]
        if self.classes:
            runs = found.reshape(-1, self.classes)
            found = (runs - runs[:, :1]) % prime
        return found

    def _any(self, count: int) -> Residues:
        return self.rng.integers(self.prime, size=count)

    def _residue(self, value: Fraction) -> int:
        return value.numerator % self.prime * pow(value.denominator, -1, self.prime) % self.prime

    def _residues(self, values: Floats) -> Residues:
        distinct, where = np.unique(values, return_inverse=True)
        found = np.array([self._residue(Fraction(float(value))) for value in distinct], dtype=np.int64)
        return np.asarray(found[where.ravel()])

    def _gradient(self, laws: Sequence[Law], point: Residues) -> Residues:
        found = [0] * len(point)
        at = point.tolist()
        for law in laws:
            factor = int(self.rng.integers(self.prime))
            for edges, coefficient in law.terms.items():
                start = factor * self._residue(coefficient)
                for place, edge in enumerate(edges):
                    term = start
                    for other in edges[:place] + edges[place + 1 :]:
                        term = term * at[other] % self.prime
                    found[edge] += term
        return np.array([value % self.prime for value in found], dtype=np.int64)

    def _inputs(self, length: int) -> Residues:
        found = self._any(length)
        if self.tokens:
            runs = found[: self.program.given].reshape(-1, self.tokens)
            runs[:, -1] = (1 - runs[:, :-1].sum(axis=1)) % self.prime
        return found

    def _step(self, step: ProgramStep, given: list[Pair], sides: Array | None = None) -> Pair:
        prime = self.prime
        value, slope = given[0]
        match step.kind:
            case "take":
                indices = step.indices
                return tuple(np.concatenate([*(pair[k] for pair in given), [0]])[indices] for k in (0, 1))  # type: ignore
            case "add":
                return (value + given[1][0]) % prime, (slope + given[1][1]) % prime
            case "mul":
                return value * given[1][0] % prime, (slope * given[1][0] % prime + value * given[1][1] % prime) % prime
            case "matmul":
                (a, s), (b, t) = given
                return self._matmul(step, a, b), (self._matmul(step, s, b) + self._matmul(step, a, t)) % prime
            case "sum":
                return tuple(part.reshape(-1, step.sizes[0]).sum(axis=1) % prime for part in (value, slope))
            case "choose":
                (_, _), (a, s), (b, t) = given
                gate = self._free("choose", step.sources[0], step.length) if sides is None else sides
                return (gate * ((a - b) % prime) + b) % prime, (gate * ((s - t) % prime) + t) % prime
        found, derivative = self._function(step, value)
        return found, derivative * slope % prime

    def _matmul(self, step: ProgramStep, a: Residues, b: Residues) -> Residues:
        n, p, q, r = step.sizes
        left, right = a.reshape(n, p, q), b.reshape(n, q, r)
        total = np.zeros((n, p, r), dtype=np.int64)
        for k in range(q):
            total = (total + left[:, :, k, None] * right[:, k, None, :]) % self.prime
        return total.ravel()

    def _free(self, name: str, source: int, length: int) -> Residues:
        """Random values of a function of one array, the same whenever they are asked for."""
        return self.drawn.setdefault((name, source), self._any(length))

    def _inverse(self, value: Residues) -> Residues:
        if not value.all():
            raise ZeroDivisionError("a residue of 0")
        return np.array([pow(entry, -1, self.prime) for entry in value.tolist()], dtype=np.int64)

    def _function(self, step: ProgramStep, value: Residues) -> Pair:
        prime = self.prime
        if step.kind == "reciprocal":
            found = self._inverse(value)
            return found, -found * found % prime
        free = self._free(step.kind, step.sources[0], step.length)
        match step.kind:
            case "exp":
                return free, free
            case "rsqrt":
                return free, free * self._inverse(value) % prime * (-pow(2, -1, prime) % prime) % prime
            case "log":
                return free, self._inverse(value)
            case "sin":
                return free, self._free("cos", step.sources[0], step.length)
            case "cos":
                return free, -self._free("sin", step.sources[0], step.length) % prime
        return free, self._free(f"slope of {step.kind}", step.sources[0], step.length)
