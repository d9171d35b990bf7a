"""A rank in floating point that says how clear it was."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
SMALL = 1e-7  # relative to the largest, below which a singular value may be zero


@dataclass(frozen=True)
class Rank:
    """A rank in floating point, and the ratio of the two singular values that it separates."""

    rank: int
    gap: float
    basis: Floats


def rank_with_gap(rows: Floats) -> Rank:
    """Cut the singular values at their largest jump into the range where rounding lives.

    >>> rank_with_gap(np.diag([1.0, 0.5, 1e-15])).rank
    2
    """
    if not rows.any():
        return Rank(0, float("inf"), rows[:0])
    _, values, basis = np.linalg.svd(rows, full_matrices=False)
    floor = values[0] * 1e-16 * max(rows.shape)
    ends = np.maximum(np.append(values, 0.0 if len(values) == rows.shape[1] else floor), floor)
    ratios = ends[:-1] / ends[1:]
    allowed = ends[1:] <= SMALL * values[0]
    cut = int(np.argmax(np.where(allowed, ratios, 0.0))) if allowed.any() else len(values) - 1
    return Rank(cut + 1, float(ratios[cut]), basis[: cut + 1])
