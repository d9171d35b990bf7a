"""Are laws of a program conserved at all weights and inputs, whatever its functions? A test modulo random primes.

A law h is conserved if every field `∇_θ ⟨w, g_θ(x)⟩` is orthogonal to ∇h(θ). Values of exp, erf, … and the sides
that choices take are drawn at random like θ and x: what is 0 for all of them is 0 for the true ones. So a pass shows an
identity, and a law that needs more (such as σ(x) + σ(−x) = 1) may fail.

On data the inputs are the samples, each in turn, and the sides of choices are those near the given weights.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from lawful.conservation.closure.error_probability import random_prime
from lawful.conservation.closure.program_brackets import free_fields
from lawful.conservation.known.law import Law
from lawful.conservation.regions.module_data import SeenData
from lawful.exact import to_residues
from lawful.program.core.jets import modulo
from lawful.program.core.straight_line import StraightLineProgram
from lawful.types import Residues

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
    held, passed = tuple(laws), 0
    for number in range(DRAWN):
        if not held or passed == TRIALS:
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
        held, passed = tuple(law for law in held if not _derivative(law, point, slopes, prime).any()), passed + 1
    return held if passed == TRIALS else ()


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
