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

from lawful.exact import is_prime, residues
from lawful.network import Dag
from lawful.network.dynamics import GradientFlow, HeavyBall, Metric
from lawful.types import Floats

SMALLEST, PRIMES = 2**22, 268_216  # the primes between 2²² and 2²³
ENOUGH = 1e-30
MOST_RUNS = 24


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
    given = [] if constants is None else [constants]
    given.append(dag.slopes)
    if decay:
        given.append(np.array([decay]))
    if isinstance(flow, HeavyBall):
        given.append(np.array([flow.constant_friction]))
    if isinstance(flow, Metric):
        given += [np.asarray(flow.diagonal)] if flow.diagonal is not None else [block for _, block in flow.blocks]
    bits = max((_bits(values) for values in given), default=0.0)
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
