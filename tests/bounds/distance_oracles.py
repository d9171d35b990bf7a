"""Pairs of networks, and how far apart they are by other means: samples, exact kinks, a mixed-integer program."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
from fibers.kinks import exact_kinks, exact_value
from scipy.optimize import Bounds, LinearConstraint, milp

from lawful import Dag, Mlp
from lawful.bounds.result import norm_below


def random_mlp(rng: np.random.Generator, widths: tuple[int, ...], slope: float = 0.0) -> Mlp:
    weights = [rng.normal(size=(m, n)) * math.sqrt(2 / n) for n, m in pairwise(widths)]
    return Mlp(weights, [0.3 * rng.normal(size=m) for m in widths[1:]], slope)


def moved(network: Mlp, rng: np.random.Generator, size: float) -> Mlp:
    return network.with_theta(network.theta + size * rng.normal(size=network.parameters))


def disguised(network: Mlp, rng: np.random.Generator, scales: float = 1.0, single: bool = False) -> Mlp:
    """The same function: neurons permuted and rescaled."""
    weights, biases = [np.array(w) for w in network.weights], [np.array(b) for b in network.biases]
    for layer in range(len(weights) - 1):
        order, factor = rng.permutation(len(weights[layer])), np.exp(scales * rng.normal(size=len(weights[layer])))
        weights[layer], biases[layer] = (weights[layer] * factor[:, None])[order], (biases[layer] * factor)[order]
        weights[layer + 1] = (weights[layer + 1] / factor)[:, order]
    kind = np.float32 if single else np.float64
    return Mlp([w.astype(kind) for w in weights], [b.astype(kind) for b in biases], network.slopes)


def sampled(first: Mlp | Dag, second: Mlp | Dag, low: np.ndarray, high: np.ndarray, norm: float = math.inf) -> float:
    points = np.random.default_rng(5).uniform(low, high, (4000, len(low)))
    gaps = second.evaluate(points) - first.evaluate(points)
    return float(np.linalg.norm(gaps, ord=norm, axis=1).max())


def exact_distance(first: Mlp, second: Mlp, low: float, high: float, norm: float = math.inf) -> Fraction:
    """The largest difference of two networks of one input, attained at a kink of one of them (norms are convex)."""
    ends = Fraction(low), Fraction(high)
    places = sorted({*exact_kinks(first, *ends), *exact_kinks(second, *ends)})
    return max(
        norm_below([b - a for a, b in zip(exact_value(first, x), exact_value(second, x), strict=True)], norm)
        for x in places
    )


def milp_distance(first: Mlp, second: Mlp, low: np.ndarray, high: np.ndarray) -> float:
    """The largest `|g − f|` of one output by a mixed-integer program with generous constants."""
    inputs, best = len(low), 0.0
    for sign in (1.0, -1.0):
        rows, lower, upper, start = [], [], [], []
        count, integral = inputs, [0] * inputs
        bounds_low, bounds_high = list(low), list(high)
        ends = []
        for network in (first, second):
            below = [({i: 1.0}, 0.0) for i in range(inputs)]  # affine expressions
            for weight, bias, slope in zip(network.weights, network.biases, (*network.slopes, 1.0), strict=True):
                above = []
                for row, shift in zip(weight, bias, strict=True):
                    terms: dict[int, float] = {}
                    constant = float(shift)
                    for w, (expression, offset) in zip(row, below, strict=True):
                        constant += w * offset
                        for name, factor in expression.items():
                            terms[name] = terms.get(name, 0.0) + w * factor
                    if slope == 1.0:
                        above.append((terms, constant))
                        continue
                    h, delta, big = count, count + 1, 60.0
                    count += 2
                    integral += [0, 1]
                    bounds_low += [0.0, 0.0]
                    bounds_high += [big, 1.0]
                    for more, lo, hi in (
                        ({h: 1.0, **{k: -v for k, v in terms.items()}}, constant, np.inf),  # h ≥ z
                        ({h: 1.0, delta: big, **{k: -v for k, v in terms.items()}}, -np.inf, constant + big),
                        ({h: 1.0, delta: -big}, -np.inf, 0.0),
                    ):
                        rows.append(more)
                        lower.append(lo)
                        upper.append(hi)
                    above.append(({h: 1.0}, 0.0))
                below = above
            ends.append(below[0])
        cost = np.zeros(count)
        for factor, (terms, _) in ((1.0, ends[0]), (-1.0, ends[1])):
            for name, each in terms.items():
                cost[name] += sign * factor * each
        matrix = np.zeros((len(rows), count))
        for number, row in enumerate(rows):
            for name, each in row.items():
                matrix[number, name] = each
        found = milp(
            cost, integrality=np.array(integral), bounds=Bounds(bounds_low, bounds_high),
            constraints=LinearConstraint(matrix, lower, upper), options={"mip_rel_gap": 1e-9},
        )  # fmt: skip
        assert found.success
        best = max(best, -found.fun + sign * (ends[1][1] - ends[0][1]))
        start.append(best)
    return best
