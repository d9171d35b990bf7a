"""Interval arithmetic in float64, rounded outwards: the true numbers, not only the computed ones, lie inside."""

from __future__ import annotations

import numpy as np

from lawful.types import Floats, Indices

LARGEST = float(np.finfo(np.float64).max)
NORMAL = float(np.finfo(np.float64).tiny)
SMALLEST = float(np.finfo(np.float64).smallest_subnormal)
EPSILON = float(np.finfo(np.float64).eps)


def between(low: Floats, high: Floats, shares: Floats) -> Floats:
    """`low + (high − low) share`, also where the difference is larger than doubles can be.

    >>> between(np.array([-1.5e308, 0.0]), np.array([1.5e308, 4.0]), np.array([0.5, 0.25])).tolist()
    [0.0, 1.0]
    """
    with np.errstate(over="ignore", invalid="ignore"):
        plain = low + (high - low) * shares
        return np.asarray(np.where(np.isfinite(high - low), plain, low * (1 - shares) + high * shares))


def affine(weights: Floats, biases: Floats | None, low: Floats, high: Floats) -> tuple[Floats, Floats]:
    """The range of each row of `W x + b` for `low ≤ x ≤ high`, where ends may be infinite and `0 · ∞ = 0`.

    >>> lower, upper = affine(np.array([[1.0, -2.0]]), np.array([0.5]), np.zeros(2), np.array([1.0, np.inf]))
    >>> lower, upper.round(9)
    (array([-inf]), array([1.5]))
    """
    matrix = weights if biases is None else np.column_stack([weights, biases])
    ends = (low, high) if biases is None else (np.append(low, 1.0), np.append(high, 1.0))
    if not matrix.size:
        return np.zeros(len(matrix)), np.zeros(len(matrix))
    least, most = (np.where(matrix >= 0, one, other).ravel() for one, other in (ends, ends[::-1]))
    starts = np.arange(len(matrix)) * matrix.shape[1]
    return lower_sums(matrix.ravel(), least, starts), -lower_sums(-matrix.ravel(), most, starts)


def lower_sums(weights: Floats, values: Floats, starts: Indices) -> Floats:
    """Lower bounds of sums of products, one sum from each start to the next; a term is never +∞.

    >>> lower_sums(np.array([2.0, 0.1, 0.1]), np.array([1.0, 3.0, 0.5]), np.array([0, 1])) <= [2.0, 0.35]
    array([ True,  True])
    """
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        touched = (weights != 0) & (values != 0)
        terms = np.minimum(np.where(touched, weights * values, 0.0), LARGEST)
        inexact = touched & (np.abs(weights) != 1) & (np.abs(values) != 1)
        tiny = touched & (np.abs(terms) < NORMAL)
        total, size = np.add.reduceat(terms, starts), np.add.reduceat(np.abs(terms), starts)
        number, tinies = (np.add.reduceat(mask.astype(np.float64), starts) for mask in (touched, tiny))
        rounded = (number > 1) | (np.add.reduceat(inexact.astype(np.float64), starts) > 0)
        error = np.where(rounded, (number + 1) * EPSILON * size, 0.0) + tinies * SMALLEST
        return np.asarray(np.where(np.isfinite(total), total - error, -np.inf))  # after an overflow nothing is known


def activation_range(lower: Floats, upper: Floats, slopes: Floats) -> tuple[Floats, Floats]:
    """The range of `max(z, 0) + slope min(z, 0)` over an interval, rounded outwards."""
    under, over = zip(*(_negative_part(end, slopes) for end in (lower, upper)), strict=True)
    # Where z ≤ 0 the ends are slope·z, in either order; where z ≥ 0 the activation is the identity.
    left = np.where(lower >= 0, lower, np.where(upper <= 0, np.minimum(*under), np.minimum(under[0], 0.0)))
    right = np.where(lower >= 0, upper, np.where(upper <= 0, np.maximum(*over), np.maximum(over[0], upper)))
    return left, right


def _negative_part(end: Floats, slopes: Floats) -> tuple[Floats, Floats]:
    """`slope min(z, 0)` rounded down and up."""
    part = np.minimum(end, 0.0)
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        product = np.where((slopes == 0) | (part == 0), 0.0, slopes * part)
    exact = (np.abs(slopes) == 1) | (slopes == 0) | (part == 0)
    down, up = (np.where(exact, product, np.nextafter(product, way)) for way in (-np.inf, np.inf))
    return down, up
