"""A rank in floating point that says how clear it was."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.linalg

from lawful.types import Floats

SMALL = 1e-7  # relative to the largest, below which a singular value may be zero
NOISE = 1e-11  # and above which it is no rounding error: then nothing is clear


@dataclass(frozen=True, eq=False)
class Rank:
    """A rank in floating point, and the ratio of the two singular values that it separates (1 if nothing is clear)."""

    rank: int
    gap: float
    rows: Floats

    @cached_property
    def basis(self) -> Floats:
        """Orthonormal vectors that span the rows; they take four times as long as the rank, and are rarely needed."""
        return _svd(self.rows, vectors=True)[1][: self.rank] if self.rank else self.rows[:0]


def rank_with_gap(rows: Floats) -> Rank:
    """Cut the singular values at their largest jump into the range where rounding lives.

    >>> rank_with_gap(np.diag([1.0, 0.5, 1e-15])).rank
    2
    """
    if not rows.any():
        return Rank(0, float("inf"), rows)
    values, _ = _svd(rows, vectors=False)
    floor = values[0] * 1e-16 * max(rows.shape)
    ends = np.maximum(np.append(values, floor), floor)
    ratios = ends[:-1] / ends[1:]
    cut = int(np.argmax(np.where(ends[1:] <= SMALL * values[0], ratios, 0.0)))
    gap = float(ratios[cut]) if ends[cut + 1] <= NOISE * values[0] else 1.0
    return Rank(cut + 1, gap, rows)


def _svd(rows: Floats, *, vectors: bool) -> tuple[Floats, Floats]:
    """Singular values and right singular vectors; the slower of LAPACK's methods where the faster does not converge."""
    for driver in ("gesdd", "gesvd"):
        try:
            factors = scipy.linalg.svd(rows, full_matrices=False, compute_uv=vectors, lapack_driver=driver)
        except np.linalg.LinAlgError:
            continue
        return (np.asarray(factors[1]), np.asarray(factors[2])) if vectors else (np.asarray(factors), rows[:0])
    raise np.linalg.LinAlgError("the singular values do not converge")
