"""How many directions a module without choices reaches, modulo random primes, and how likely that is too few.

Such a module is a polynomial of its parameters and inputs, so brackets at random residues are what
`lawful.conservation.closure.error_probability`
speaks of: a run that finds fewer directions than there are is bad luck of a known probability.
"""

from __future__ import annotations

from math import ceil, log2

import numpy as np

from lawful.conservation.closure.error_probability import ENOUGH, MOST_RUNS, miss_probability, random_prime
from lawful.conservation.closure.lie_closure import MOST_WORK, SPARE
from lawful.conservation.closure.program_brackets import Sampled
from lawful.exact import rank
from lawful.program.core.jets import modulo
from lawful.program.core.steps import STEPS
from lawful.program.core.straight_line import StraightLineProgram

DEEPEST = 8
LARGEST = 150  # parameters


def directions(
    program: StraightLineProgram, at_most: int, classes: int, seed: int
) -> tuple[tuple[int, ...], float] | None:
    """Dimensions level by level, and the probability that the last is too small; None where that is not known.

    `classes` outputs in a run move together (cross-entropy). Directions that reach `at_most` are too few with
    probability 0.

    >>> from lawful.program.core.straight_line import Writer
    >>> writer = Writer(2, 1)
    >>> first, second = (writer.take((0,), np.array([place])) for place in (0, 1))
    >>> _ = writer.pair("mul", writer.pair("mul", first, second), 1)
    >>> found = directions(StraightLineProgram(tuple(writer.steps)), 2, 0, 0)
    >>> found[0], found[1] < 1e-29
    ((1, 1), True)
    """
    size = _size(program)
    if size is None or program.parameters > LARGEST:
        return None
    best: tuple[int, ...] = (0,)
    error = 1.0
    for number in range(MOST_RUNS):
        found = _close_brackets(program, at_most, classes, random_prime(seed, number), seed + number)
        if found is None:
            return None
        if found[-1] > best[-1]:
            best, error = found, 1.0
        if best[-1] >= at_most:
            return best, 0.0
        error *= miss_probability(program.parameters, len(found), *size)
        if error <= ENOUGH:
            break
    return (best, error) if error < 1 else None


def _close_brackets(
    program: StraightLineProgram, at_most: int, classes: int, prime: int, seed: int
) -> tuple[int, ...] | None:
    """Brackets of fresh random fields at one random point, level by level, until they add nothing."""
    rng = np.random.default_rng((seed, prime))
    theta = rng.integers(prime, size=program.parameters)
    basis = np.zeros((0, program.parameters), dtype=np.int64)
    dimensions: list[int] = []
    with modulo(prime):
        for level in range(DEEPEST + 1):
            count = at_most - (dimensions[-1] if dimensions else 0) + SPARE
            if float(count) * sum(step.length for step in program.steps) * 4.0**level > MOST_WORK:
                return None
            fields = count * (level + 1)
            weights = rng.integers(prime, size=(fields, program.outputs))
            if classes:
                runs = weights.reshape(fields, -1, classes)
                runs[:, :, -1] = -runs[:, :, :-1].sum(axis=2) % prime
            drawn = Sampled(program, theta, rng.integers(prime, size=(fields, program.inputs)), weights)
            fresh = drawn.brackets(np.arange(fields).reshape(count, level + 1))
            basis = np.concatenate([basis, fresh % prime])
            dimensions.append(rank(basis, prime))
            if dimensions[-1] >= at_most or (level and dimensions[-1] == dimensions[-2]):
                return tuple(dimensions)
    return None


def _size(program: StraightLineProgram) -> tuple[float, int] | None:
    """Of a field's entries, log2 of the sum of the coefficients' sizes over one power of 2, and the degree.

    None for programs with choices and functions.
    """
    found: list[tuple[float, int, int]] = []  # log2 of the sum of sizes, binary places, degree
    for step in program.steps:
        given = [found[source] for source in step.sources]
        if step.kind in ("parameters", "input"):
            found.append((0.0, 0, 1))
            continue
        if step.values is not None:
            pairs = [float(value).as_integer_ratio() for value in np.unique(step.values)]
            places = max((bottom.bit_length() - 1 for _, bottom in pairs), default=0)
            sizes = [abs(top).bit_length() - bottom.bit_length() + 1 for top, bottom in pairs if top]
            found.append((float(max(sizes, default=0)), places, 0))
            continue
        kind = STEPS[step.kind]
        terms = log2(kind.count(step))
        if kind.degree == 1:
            most = tuple(max(part[place] for part in given) for place in range(3))
            found.append((max(most[0], 0.0) + terms, int(most[1]), int(most[2])))
        elif kind.degree == 2:
            (first, here, low), (second, there, high) = given
            found.append((first + second + terms, here + there, low + high))
        else:
            return None
    size, places, degree = found[-1]
    return ceil(size) + places + log2(max(degree, 1) * program.outputs * 4 * program.parameters), degree + 1
