"""Compare lists of numbers entry by entry, each relative to itself, and find which row belongs to which."""

from __future__ import annotations

from typing import Any

import flint
import numpy as np
from scipy.optimize import linear_sum_assignment

from lawful.fibers.layers import Array, quotient
from lawful.types import Floats


def entry_gap(ours: Array, theirs: Array) -> float:
    """Largest difference of two entries relative to the smaller of the two; infinite where one alone is zero.

    In floats it is rounded; of rationals it is an upper bound.

    >>> entry_gap(np.array([1.0, 0.0]), np.array([1.25, 0.0])), entry_gap(np.array([0.0]), np.array([1e-30]))
    (0.25, inf)
    """
    if ours.dtype == object:
        return _rational_gap(ours, theirs)
    differ = ours != theirs
    if not differ.any():
        return 0.0
    one, other = ours[differ], theirs[differ]
    least = np.minimum(np.abs(one), np.abs(other))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        gaps = np.abs(one - other) / least
    return float(np.where(np.isfinite(gaps), gaps, np.inf).max())


def nearest_order(ours: Floats, theirs: Floats, signatures: tuple[Floats, Floats] | None = None) -> Any:
    """The order of `theirs` that lies nearest to `ours`, row by row and whatever the scales of rows and columns.

    Sorted shadows decide it if they can, else an assignment; `signatures` tell rows apart that are almost multiples.
    """
    columns = column_sizes(ours)
    mine, yours = (unit_rows(rows / columns) for rows in (ours, theirs))
    if signatures is None:
        probe = np.random.default_rng(ours.shape[1]).uniform(0.5, 1.5, size=ours.shape[1])
        first, second = np.argsort(mine @ probe, kind="stable"), np.argsort(yours @ probe, kind="stable")
        order = np.empty(len(ours), dtype=np.intp)
        order[first] = second
        if np.abs(mine - yours[order]).max(initial=0.0) <= 1e-12:
            return order
        costs = squared_distances(mine, yours)
    else:
        costs = squared_distances(mine, yours)
        costs = np.where(costs > 1e-10, costs, 0.0) + 1e-6 * squared_distances(*signatures)
    if not np.isfinite(costs).all():
        return np.arange(len(ours))
    return linear_sum_assignment(costs)[1]


def column_sizes(rows: Floats) -> Floats:
    """Geometric means of the columns' entries once rows have one size: rescaled columns have rescaled sizes."""
    with np.errstate(divide="ignore"):
        logs = np.log2(np.abs(rows))
    used = np.isfinite(logs)
    logs = np.where(used, logs, 0.0)
    sizes = np.zeros(rows.shape[1])
    for _ in range(4):
        lengths = _means(np.where(used, logs - sizes, 0.0), used, 1)
        sizes = _means(np.where(used, logs - lengths[:, None], 0.0), used, 0)
    return np.asarray(np.exp2(np.clip(np.round(sizes), -1000, 1000)))


def _means(values: Floats, used: Any, axis: int) -> Floats:
    return np.asarray(values.sum(axis=axis) / np.maximum(used.sum(axis=axis), 1))


def unit_rows(rows: Floats) -> Floats:
    """Rows of length one; zero rows stay."""
    sizes = np.abs(rows).max(axis=1, keepdims=True, initial=0.0)
    rows = rows / np.where(sizes > 0, sizes, 1.0)
    sizes = np.sqrt((rows**2).sum(axis=1, keepdims=True))
    return np.asarray(rows / np.where(sizes > 0, sizes, 1.0))


def squared_distances(ours: Floats, theirs: Floats) -> Floats:
    """Between every two rows."""
    squares = (ours**2).sum(axis=1)[:, None] + (theirs**2).sum(axis=1)
    return np.asarray(np.maximum(squares - 2 * ours @ theirs.T, 0.0))


def _rational_gap(ours: Array, theirs: Array) -> float:
    worst = flint.fmpq(0)
    for one, other in zip(ours.ravel(), theirs.ravel(), strict=True):
        if one == other:
            continue
        least = min(abs(one), abs(other))
        if least == 0:
            return float("inf")
        worst = max(worst, abs(one - other) / least)
    number = quotient(int(worst.p), int(worst.q))
    return float(np.nextafter(number, np.inf)) if worst != 0 else 0.0
