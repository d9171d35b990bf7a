"""Find the first moment at which any of many smooth functions changes sign."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from lawful.types import Floats

Sample = tuple[Floats, Floats]  # values and derivatives at one time


def first_crossing(
    sample: Callable[[float], Sample], low: float, high: float, at_low: Sample, at_high: Sample, slack: float
) -> float | None:
    """The first time in (low, high] at which a function falls below zero, or None.

    Every function starts at or above zero. On an interval a function's cubic Hermite interpolant lies in the hull of
    its four Bernstein coefficients, so a function whose coefficients all exceed `−slack` needs no further look; for
    the others the interpolant's first root splits the interval. `slack` is the value that counts as zero.

    >>> first_crossing(lambda t: (np.array([1 - t * t]), np.array([-2 * t])), 0.0, 3.0,
    ...                (np.array([1.0]), np.array([0.0])), (np.array([-8.0]), np.array([-6.0])), 1e-12)
    1.0...
    """
    pending = [(low, high, at_low, at_high)]
    while pending:
        start, stop, here, there = pending.pop()
        coefficients = _bernstein(stop - start, here, there)
        suspects = (coefficients[1:] < -slack).any(axis=0)
        if not suspects.any():
            continue
        middle = start + _first_root(coefficients[:, suspects]) * (stop - start)
        if not start < middle < stop:
            middle = 0.5 * (start + stop)
        if not start < middle < stop:  # the two ends are neighbouring numbers
            return stop
        between = sample(middle)
        lowest = between[0].min()
        clear = _bernstein(middle - start, here, between)[1:].min() >= -slack
        if clear and lowest <= slack and (between[1][between[0] <= slack] < 0).any():
            return middle
        if lowest >= -slack:
            pending.append((middle, stop, between, there))
        if not clear:
            pending.append((start, middle, here, between))
    return None


def _bernstein(length: float, here: Sample, there: Sample) -> Floats:
    step = length / 3
    return np.array([np.maximum(here[0], 0.0), here[0] + step * here[1], there[0] - step * there[1], there[0]])


def _first_root(coefficients: Floats) -> float:
    """The first place in [0, 1] at which one of the cubics falls below zero (0.5 if none does)."""
    grid = np.linspace(0.0, 1.0, 33)
    rest = 1.0 - grid
    basis = np.array([rest**3, 3 * grid * rest**2, 3 * grid**2 * rest, grid**3])
    values = coefficients.T @ basis
    below = values[:, 1:] < 0
    if not below.any():
        return 0.5
    column = int(np.flatnonzero(below.any(axis=0))[0])
    cubics = coefficients[:, below[:, column]]
    c0, c1, c2, c3 = cubics
    a1, a2, a3 = 3 * (c1 - c0), 3 * (c0 - 2 * c1 + c2), c3 - c0 + 3 * (c1 - c2)
    root = np.full(cubics.shape[1], grid[column + 1])
    for _ in range(4):
        slope = a1 + root * (2 * a2 + 3 * root * a3)
        step = (c0 + root * (a1 + root * (a2 + root * a3))) / np.where(slope == 0, 1.0, slope)
        root = np.clip(root - step, grid[column], grid[column + 1])
    return float(root.min())
