"""L-BFGS with a preconditioner and a line search that survives kinks."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.linalg.blas import saxpy

from lawful.types import Floats, Singles

Function = Callable[[Floats], tuple[float, Floats]]
Solve = Callable[[Singles], Singles]
Pairs = deque[tuple[Singles, Singles, float]]  # move, change of gradient, 1 / their product
RESCALE = 5  # iterations


@dataclass(frozen=True, eq=False)
class Point:
    """Where the search stands."""

    position: Floats
    value: float
    gradient: Floats


def minimise(
    function: Function,
    start: Floats,
    *,
    stop: Callable[[Point], bool],
    precondition: Callable[[], Solve] | None = None,
    refresh: int = 50,
    memory: int = 20,
    noise: float = 0.0,
) -> Point:
    """Walk downhill until `stop` says so or no step lowers the value.

    `precondition` is asked for a fresh approximate inverse Hessian every `refresh` iterations; it is scaled by a recent
    curvature pair, as L-BFGS scales the identity. The curvature pairs outlive it. Directions are computed in single
    precision, which halves their cost: they only have to point downhill. `noise` is the relative error of the values:
    a step may seem to rise by that much.

    >>> stiff = np.array([1.0, 100.0])
    >>> found = minimise(lambda x: (0.5 * x @ (stiff * x), stiff * x), np.ones(2),
    ...                  stop=lambda point: float(np.abs(point.gradient).max()) < 1e-9)
    >>> bool(np.abs(found.position).max() < 1e-9)
    True
    """
    point = Point(start, *function(start))
    pairs: Pairs = deque(maxlen=memory)
    solve: Solve | None = None
    scale, iteration = 1.0, 0
    while not stop(point):
        if precondition is not None and iteration % refresh == 0:
            solve = precondition()
        if iteration % RESCALE == 0 or len(pairs) == 1 or solve is None:
            scale = _scale(point.gradient, pairs, solve)
        direction = _direction(point.gradient, pairs, solve, scale)
        lower = _search(function, point, direction, noise)
        iteration += 1
        if lower is None:
            if not pairs:
                break
            pairs.clear()
            continue
        move = (lower.position - point.position).astype(np.float32)
        change = (lower.gradient - point.gradient).astype(np.float32)
        product = float(np.vdot(move, change))
        if product > 1e-12 * float(np.linalg.norm(move) * np.linalg.norm(change)):
            pairs.append((move, change, 1 / product))
        point = lower
    return point


def _scale(gradient: Floats, pairs: Pairs, solve: Solve | None) -> float:
    """`sᵀy / yᵀPy` of the newest pair, a cautious guess before there is one."""
    if not pairs:
        return 0.1 if solve is not None else 1 / max(float(np.linalg.norm(gradient)), 1e-30)
    _, change, inverse = pairs[-1]
    return 1 / (inverse * float(np.vdot(change, change if solve is None else solve(change))))


def _direction(gradient: Floats, pairs: Pairs, solve: Solve | None, scale: float) -> Singles:
    """The two loops of Nocedal, without a temporary array in either."""
    result = np.negative(gradient, dtype=np.float32, casting="same_kind").ravel()
    factors = []
    for move, change, inverse in reversed(pairs):
        factors.append(inverse * float(np.vdot(move, result)))
        result = saxpy(change.ravel(), result, a=-factors[-1])
    if solve is not None:
        result = np.ascontiguousarray(solve(result.reshape(gradient.shape))).ravel()
    result *= np.float32(scale)
    for (move, change, inverse), factor in zip(pairs, reversed(factors), strict=True):
        result = saxpy(move.ravel(), result, a=factor - inverse * float(np.vdot(change, result)))
    return np.asarray(result.reshape(gradient.shape))


def _search(function: Function, point: Point, direction: Singles, noise: float, trials: int = 25) -> Point | None:
    """A step with the weak Wolfe conditions by bisection (Lewis and Overton), which needs no smoothness."""
    slope = float(np.vdot(point.gradient, direction))
    if slope >= 0:
        return None
    low, high, step = 0.0, np.inf, 1.0
    allowed = point.value + noise * abs(point.value)
    best: Point | None = None
    for _ in range(trials):
        position = point.position + step * direction
        trial = Point(position, *function(position))
        if not trial.value <= allowed + 1e-4 * step * slope:
            high = step
        else:
            best = trial
            if float(np.vdot(trial.gradient, direction)) >= 0.9 * slope:
                break
            low = step
        step = (low + high) / 2 if np.isfinite(high) else 2 * low
    return best
