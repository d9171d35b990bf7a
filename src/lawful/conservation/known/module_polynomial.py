"""Polynomial laws of a degree of a module, exact over the rationals, and laws with logarithms.

As for graphs (`known/polynomial.py`, and `known/logarithmic.py` for `Σ c log|p| + h`): linear equations in the
coefficients, one for each random field at a random point modulo a prime. They are all, if the module's pieces are
polynomials. Choices take random factors, so the laws hold on every piece. Functions such as exp take random values, so
the laws hold whatever these are; one that needs more than the rules of differentiation is not found.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import comb

import numpy as np
import torch

from lawful.conservation.closure.error_probability import random_prime
from lawful.conservation.closure.program_brackets import free_fields, is_free, is_polynomial
from lawful.conservation.known.law import Law
from lawful.conservation.known.logarithmic import LogarithmicLaws
from lawful.conservation.known.logarithmic import search as search_logarithms
from lawful.conservation.known.polynomial import PolynomialLaws, monomial_speeds, monomials, rational_law
from lawful.conservation.programs.module_function import probe
from lawful.conservation.rank_proof import program_of
from lawful.conservation.regions.module_data import SeenData
from lawful.errors import LawfulError, Unsupported
from lawful.exact import PRIME, nullspace, rank, to_residues
from lawful.program.core.jets import Array, modulo
from lawful.program.core.straight_line import StraightLineProgram
from lawful.types import Residues

MOST_MONOMIALS = 5000
SPARE = 8
ROWS = 256


def module_polynomial_laws(
    module: torch.nn.Module,
    input_shape: tuple[int, ...] | None = None,
    degree: int = 2,
    *,
    loss: str = "full",
    mode: str = "train",
    classes_axis: int | None = None,
    seed: int = 0,
) -> PolynomialLaws:
    """All polynomial laws of degree at most `degree` that hold on every piece of a module.

    >>> module = torch.nn.Sequential(torch.nn.Conv1d(1, 2, 2), torch.nn.ReLU(), torch.nn.Conv1d(2, 1, 1))
    >>> found = module_polynomial_laws(module, (1, 3))
    >>> len(found), found.independent
    (2, 2)
    """
    if degree < 1:
        raise LawfulError(f"the degree of a law is at least 1, not {degree}")
    case = probe(module, input_shape, None, loss, mode, classes_axis)
    program = program_of(case)
    if not is_polynomial(program):
        kinds = sorted(step.kind for step in program.steps if is_free(step))
        raise Unsupported(
            f"polynomial laws are found for modules whose pieces are polynomials, and this one has {kinds[0]}"
            if kinds
            else "polynomial laws are found for modules whose pieces are polynomials, and this one divides"
        )
    laws, independent, total = search(program, degree, classes=case.classes, tokens=case.vocabulary or 0, seed=seed)
    return PolynomialLaws(None, degree, laws, independent, total, 1, total, 2.0**-60, case.places)


def search(
    program: StraightLineProgram,
    degree: int,
    *,
    classes: int = 0,
    tokens: int = 0,
    seed: int = 0,
    seen: SeenData | None = None,
) -> tuple[tuple[Law, ...], int, int]:
    """The laws, how many are independent, and the number of monomials.

    On data the choices take the sides that they take at the samples, in turn; inputs are any all the same.
    """
    size = program.parameters
    total = comb(size + degree, degree) - 1
    if total > MOST_MONOMIALS:
        raise Unsupported(
            f"{total:,} monomials of degree {degree} in {size} parameters are more than {MOST_MONOMIALS:,}: "
            "lower the degree"
        )
    table = monomials(size, degree)
    rng = np.random.default_rng(seed)
    points = rng.integers(PRIME, size=(total + SPARE, size))
    slopes = np.concatenate(
        [
            _gradients(program, points[at : at + ROWS], rng, classes, tokens, seen, at)
            for at in range(0, len(points), ROWS)
        ]
    )
    laws = [
        rational_law(line, [tuple(int(edge) for edge in row if edge >= 0) for row in table], PRIME)
        for line in nullspace(monomial_speeds(table, points.T, slopes.T, PRIME).T, PRIME)
    ]
    if len(identities(program, laws, classes=classes, tokens=tokens, seed=seed, seen=seen)) < len(laws):
        raise Unsupported("some candidates are no laws over the rationals: try another --seed")
    gradients = [law.gradient_modulo(points[:1].T, PRIME)[:, 0] for law in laws]
    return tuple(laws), rank(np.array(gradients), PRIME) if laws else 0, total


def independent_laws(laws: Sequence[Law], size: int) -> tuple[Law, ...]:
    """Of laws those whose gradients are independent at a random point, short ones first."""
    point = np.random.default_rng(1).integers(PRIME, size=(size, 1))
    independent: list[Law] = []
    rows = np.zeros((0, size), dtype=np.int64)
    for law in sorted(laws, key=lambda law: (max(map(len, law.terms)), len(law.terms))):
        longer = np.concatenate([rows, law.gradient_modulo(point, PRIME).T])
        if rank(longer, PRIME) > len(rows):
            rows = longer
            independent.append(law)
    return tuple(independent)


def _gradients(
    program: StraightLineProgram,
    points: Residues,
    rng: np.random.Generator,
    classes: int,
    tokens: int,
    seen: SeenData | None,
    start: int,
) -> Array:
    fields = free_fields(program, points, rng, classes, tokens)
    for number, gates in seen.gates.items() if seen is not None else ():
        fields.gates[number] = gates[(start + np.arange(len(points))) % len(gates)]
    return np.broadcast_to(fields.gradient(np.arange(len(points)), {0: points})[0], points.shape)


def module_logarithmic_laws(
    module: torch.nn.Module,
    input_shape: tuple[int, ...] | None = None,
    degree: int = 1,
    *,
    loss: str = "full",
    mode: str = "train",
    classes_axis: int | None = None,
    seed: int = 0,
) -> LogarithmicLaws:
    """All such laws that hold on every piece of a module, whatever its functions are.

    >>> from lawful.conservation.wording import ModuleWording
    >>> class Detour(torch.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.s, self.p, self.q = (torch.nn.Parameter(torch.ones(1)) for _ in range(3))
    ...     def forward(self, x):
    ...         return x * (self.s + self.p * self.q)
    >>> found = module_logarithmic_laws(Detour(), (1,))
    >>> [law.words(ModuleWording(found.places)) for law in found.laws]
    ['log|p[0] + q[0]| − s[0]', 'log|p[0] − q[0]| + s[0]']
    """
    case = probe(module, input_shape, None, loss, mode, classes_axis)
    program = program_of(case)

    def samples(prime: int, seed: int, count: int) -> tuple[Residues, Residues]:
        rng = np.random.default_rng((seed, prime))
        points = rng.integers(prime, size=(count, case.size))
        fields = []
        with modulo(prime):
            for start in range(0, count, ROWS):
                some = points[start : start + ROWS]
                drawn = free_fields(program, some, rng, case.classes, case.vocabulary or 0)
                fields.append(np.broadcast_to(drawn.gradient(np.arange(len(some)), {0: some})[0], some.shape))
        return points.T, np.concatenate(fields).T

    return LogarithmicLaws(None, degree, *search_logarithms(samples, case.size, degree, seed), case.places)


TRIALS = 5  # primes between 2²² and 2²³: a law that is none passes one with probability degree/2²²
DRAWN = 8  # primes that are tried, if numbers that are divided by happen to be 0 modulo some


def identities(
    program: StraightLineProgram,
    laws: Iterable[Law],
    *,
    classes: int = 0,
    tokens: int = 0,
    seed: int = 0,
    seen: SeenData | None = None,
) -> tuple[Law, ...]:
    """Those of the laws that hold identically.

    `classes` outputs in a run may move together (cross-entropy), and `tokens` inputs in a run add up to 1. What is
    drawn at random is any number.
    """
    identical, passed = tuple(laws), 0
    for number in range(DRAWN):
        if not identical or passed == TRIALS:
            break
        prime, rng = random_prime(seed, number), np.random.default_rng((seed, number))
        with modulo(prime):
            rows = 1 if seen is None else len(seen.inputs)
            points = np.repeat(rng.integers(prime, size=(1, program.parameters)), rows, axis=0)
            fields = free_fields(program, points, rng, classes, tokens, binary=False)
            if seen is not None:
                fields.inputs = to_residues(seen.inputs, prime)
                fields.gates |= seen.gates
            try:
                slopes = np.broadcast_to(fields.gradient(np.arange(rows), {0: points})[0], points.shape)
            except ZeroDivisionError:
                continue
        point = points[0].tolist()
        identical, passed = (
            tuple(law for law in identical if not _derivative(law, point, slopes, prime).any()),
            passed + 1,
        )
    return identical if passed == TRIALS else ()


def _derivative(law: Law, point: list[int], slopes: Residues, prime: int) -> Residues:
    """`⟨∇h, field⟩` for every field, in plain integers: laws have few terms each, and there are many laws."""
    gradient: dict[int, int] = {}
    for edges, coefficient in law.terms.items():
        start = coefficient.numerator * pow(coefficient.denominator, -1, prime) % prime
        for place, edge in enumerate(edges):
            term = start
            for other in edges[:place] + edges[place + 1 :]:
                term = term * point[other] % prime
            gradient[edge] = (gradient.get(edge, 0) + term) % prime
    entries = slopes[:, list(gradient)] * np.array(list(gradient.values()), dtype=np.int64) % prime
    return np.asarray(entries.sum(axis=1) % prime)
