"""How likely is a count too large that was made with random numbers modulo random primes? (Schwartz-Zippel)

Brackets at a random point are a matrix of polynomials in the point and in the multipliers of the fields, with integer
coefficients. If it has the generic rank r, some minor M of size r is not the zero polynomial, and a run sees a smaller
rank only if

- the prime divides every coefficient of M: of primes between 2²² and 2²³ at most log2 ‖M‖₁ / 22 do, and there are
  268,216 of them, or
- M modulo the prime vanishes at the random numbers: a probability of at most deg M / p.

Brackets that add nothing end the search, so a count is too large only if the last rank is too small. Runs with other
primes and other random numbers are independent, and all of them have to fail.
"""

from __future__ import annotations

from math import ceil, log2

import numpy as np

from lawful.conservation.closure.lie_closure import MOST_WORK, SPARE
from lawful.conservation.closure.program_brackets import Sampled
from lawful.exact import is_prime, rank, residues
from lawful.network import Dag
from lawful.network.dynamics import GradientFlow, HeavyBall, Metric
from lawful.program.core.jets import modulo
from lawful.program.core.steps import STEPS
from lawful.program.core.straight_line import StraightLineProgram
from lawful.types import Floats

SMALLEST, PRIMES = 2**22, 268_216  # the primes between 2²² and 2²³
ENOUGH = 1e-30  # more runs would only make a small number smaller
MOST_RUNS = 24
DEEPEST, LARGEST = 8, 150  # levels of brackets and parameters of a module that is counted so


def random_prime(seed: int, number: int) -> int:
    """A prime between 2²² and 2²³, each as likely as any other.

    >>> random_prime(0, 0) != random_prime(0, 1)
    True
    """
    for draw in range(10_000):
        candidate = SMALLEST + int(residues(seed, (7, number), [draw], 1, 2**23)[0, 0]) % SMALLEST
        if is_prime(candidate):
            return candidate
    raise AssertionError("one of fifteen numbers of that size is prime")


def miss(dag: Dag, levels: int, flow: object, constants: Floats | None) -> float:
    """The probability that one run misses a direction: `levels` levels of brackets, gates and inputs `constants`."""
    decay = flow.decay if isinstance(flow, GradientFlow) else 0.0
    size = dag.parameters * (2 if isinstance(flow, HeavyBall) else 1) + (isinstance(flow, HeavyBall) or decay > 0)
    length = int(dag.levels.max())
    degree = 2 * length + 3  # of an entry of a field: weights, gates, input, output weight, drift
    numbers = [] if constants is None else [constants]
    numbers.append(dag.slopes)
    if decay:
        numbers.append(np.array([decay]))
    if isinstance(flow, HeavyBall):
        numbers.append(np.array([flow.constant_friction]))
    if isinstance(flow, Metric):
        numbers += [np.asarray(flow.diagonal)] if flow.diagonal is not None else [block for _, block in flow.blocks]
    bits = max((_bits(values) for values in numbers), default=0.0)
    field = _log_paths(dag) + (length + 2) * bits + log2(4 * size)  # log2 of the sum of |coefficients| of an entry
    return miss_probability(size, levels, field, degree)


def miss_probability(size: int, levels: int, field: float, degree: int) -> float:
    """The same from the entries of fields: log2 of the sum of their coefficients' sizes, and their degree."""
    entry = levels * field + (levels - 1) * log2(2 * levels * degree)
    minor = size * (entry + log2(max(size, 2)))
    return float(min(1.0, ceil(minor / 22) / PRIMES + size * levels * degree / SMALLEST))


def _bits(values: Floats) -> float:
    """Binary digits of the largest numerator and denominator among some floats."""
    pairs = [float(value).as_integer_ratio() for value in np.unique(np.asarray(values, dtype=np.float64))]
    return float(sum(max(abs(pair[place]).bit_length() for pair in pairs) for place in (0, 1))) if pairs else 0.0


def _log_paths(dag: Dag) -> float:
    paths = [0] * len(dag.names)
    for node in np.concatenate([np.flatnonzero(dag.in_degree == 0), *dag.layers]).tolist():
        into = dag.tails[dag.heads == node].tolist()
        paths[node] = sum(paths[tail] for tail in into) if into else 1
    return log2(max(2, sum(paths[node] for node in dag.outputs.tolist())))


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
        dimensions = _close_brackets(program, at_most, classes, random_prime(seed, number), seed + number)
        if dimensions is None:
            return None
        if dimensions[-1] > best[-1]:
            best, error = dimensions, 1.0
        if best[-1] >= at_most:
            return best, 0.0
        error *= miss_probability(program.parameters, len(dimensions), *size)
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
    sizes_of: list[tuple[float, int, int]] = []  # log2 of the sum of sizes, binary places, degree
    for step in program.steps:
        terms_of = [sizes_of[source] for source in step.sources]
        if step.kind in ("parameters", "input"):
            sizes_of.append((0.0, 0, 1))
            continue
        if step.values is not None:
            pairs = [float(value).as_integer_ratio() for value in np.unique(step.values)]
            places = max((bottom.bit_length() - 1 for _, bottom in pairs), default=0)
            sizes = [abs(top).bit_length() - bottom.bit_length() + 1 for top, bottom in pairs if top]
            sizes_of.append((float(max(sizes, default=0)), places, 0))
            continue
        kind = STEPS[step.kind]
        terms = log2(kind.count(step))
        if kind.degree == 1:
            most = tuple(max(part[place] for part in terms_of) for place in range(3))
            sizes_of.append((max(most[0], 0.0) + terms, int(most[1]), int(most[2])))
        elif kind.degree == 2:
            (first, here, low), (second, there, high) = terms_of
            sizes_of.append((first + second + terms, here + there, low + high))
        else:
            return None
    size, places, degree = sizes_of[-1]
    return ceil(size) + places + log2(max(degree, 1) * program.outputs * 4 * program.parameters), degree + 1
