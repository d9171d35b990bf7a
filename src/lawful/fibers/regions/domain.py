"""Where the inputs live: all of space, the nonnegative orthant, or a box."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import flint
import numpy as np
from numpy.typing import ArrayLike

from lawful.errors import LawfulError
from lawful.fibers.layers import Array, quotient
from lawful.network.intervals import EPSILON, NORMAL, activation_range, affine, between
from lawful.types import Floats


@dataclass(frozen=True, eq=False)
class Domain:
    """The product of intervals `low_k ≤ x_k ≤ high_k`, some of them endless.

    >>> Domain.space(2)
    Domain('R^2')
    >>> Domain.orthant(3)
    Domain('orthant of R^3')
    >>> Domain.box(2, -1.0, 1.0).range(np.array([2.0, -1.0, 0.5]))
    (-2.5, 3.5)
    """

    low: Floats
    high: Floats

    def __post_init__(self) -> None:
        if self.low.shape != self.high.shape or not (self.low < self.high).all():
            raise LawfulError(
                "a box needs low < high in every coordinate here (`distance` and `check` also take fixed coordinates)"
            )

    @classmethod
    def space(cls, dimension: int) -> Domain:
        """All of R^d."""
        return cls(np.full(dimension, -np.inf), np.full(dimension, np.inf))

    @classmethod
    def orthant(cls, dimension: int) -> Domain:
        """Nonnegative coordinates: what a layer sees above a ReLU layer."""
        return cls(np.zeros(dimension), np.full(dimension, np.inf))

    @classmethod
    def box(cls, dimension: int, low: ArrayLike, high: ArrayLike) -> Domain:
        """One interval for all coordinates, or one for each."""
        ends = [np.broadcast_to(np.asarray(end, dtype=np.float64), dimension).copy() for end in (low, high)]
        if not np.isfinite(ends).all():
            raise LawfulError("a box needs finite ends")
        return cls(*ends)

    def __repr__(self) -> str:
        return f"Domain({str(self)!r})"

    def __str__(self) -> str:
        count = len(self.low)
        if np.isinf(self.low).all() and np.isinf(self.high).all():
            return f"R^{count}"
        if (self.low == 0).all() and np.isinf(self.high).all():
            return f"orthant of R^{count}"
        if (self.low == self.low[0]).all() and (self.high == self.high[0]).all():
            return f"[{self.low[0]:g}, {self.high[0]:g}]^{count}"
        return f"box in R^{count}"

    @property
    def bounded(self) -> bool:
        """Whether every interval is finite."""
        return bool(np.isfinite(self.low).all() and np.isfinite(self.high).all())

    def range(self, row: Array) -> tuple[Any, Any]:
        """Least and greatest value of `w·x + b` here, for a row `[w | b]` of floats or rationals."""
        return _extreme(row, self.low, self.high), _extreme(row, self.high, self.low)

    def through(self, rows: Array, slope: float) -> Domain:
        """Intervals that hold all values of a layer with rows `[w | b]`, ends rounded outwards.

        >>> Domain.orthant(2).through(np.array([[-1.0, -2.0, 3.0], [1.0, 0.0, -1.0]]), 0.0).high.round(6)
        array([ 3., inf])
        """
        if rows.dtype == object:
            ends = np.array(
                [[_outward(end, way) for end, way in zip(self.range(row), (-1, 1), strict=True)] for row in rows]
            )
            lower, upper = ends.reshape(len(rows), 2).T
        else:
            lower, upper = affine(rows[:, :-1], rows[:, -1], self.low, self.high)
        low, high = activation_range(lower, upper, np.full(len(rows), slope))
        return Domain(low, np.where(high > low, high, low + np.maximum(np.abs(low) * EPSILON, NORMAL)))  # never a point

    def contains(self, point: ArrayLike) -> bool:
        """Whether a point lies here."""
        values = np.asarray(point, dtype=np.float64)
        return bool((values >= self.low).all() and (values <= self.high).all())

    def within(self, low: ArrayLike, high: ArrayLike) -> bool:
        """Whether this domain lies inside a box."""
        return bool((self.low >= np.asarray(low)).all() and (self.high <= np.asarray(high)).all())

    def sample(self, count: int, rng: np.random.Generator, scale: float = 1.0) -> Floats:
        """Random points: uniform where an interval is finite, Gaussian or exponential of this scale where it is not."""
        shape = (count, len(self.low))
        finite_low, finite_high = np.isfinite(self.low), np.isfinite(self.high)
        low, high = np.where(finite_low, self.low, 0.0), np.where(finite_high, self.high, 0.0)
        points = scale * rng.normal(size=shape)
        points = np.where(finite_low & ~finite_high, low + np.abs(points), points)
        points = np.where(~finite_low & finite_high, high - np.abs(points), points)
        return np.where(finite_low & finite_high, between(low, high, rng.uniform(size=shape)), points)

    def centre(self) -> Floats:
        """A point inside."""
        low = np.where(np.isfinite(self.low), self.low, np.where(np.isfinite(self.high), self.high - 2.0, -1.0))
        high = np.where(np.isfinite(self.high), self.high, np.where(np.isfinite(self.low), self.low + 2.0, 1.0))
        return (low + high) / 2


def _outward(value: Any, way: int) -> float:
    """A float that is no less (`way` 1), or no greater (−1), than a rational or an infinite end."""
    if isinstance(value, float):
        return value
    exact = Fraction(int(value.p), int(value.q))
    try:
        near = float(exact)
    except OverflowError:
        near = math.inf if exact > 0 else -math.inf
    right = near >= exact if way > 0 else near <= exact
    return near if right else math.nextafter(near, way * math.inf)


def _extreme(row: Array, when_positive: Floats, when_negative: Floats) -> Any:
    """`Σ w_k e_k + b`, with `e_k` the end that the sign of `w_k` asks for: exact, or the float next to it."""
    total = _rational(row[-1])
    for weight, positive, negative in zip(row[:-1], when_positive, when_negative, strict=True):
        if weight == 0:
            continue
        end = float(positive if weight > 0 else negative)
        if math.isinf(end):
            return math.inf if (end > 0) == (weight > 0) else -math.inf
        total += _rational(weight) * _rational(end)
    return total if row.dtype == object else quotient(int(total.p), int(total.q))


def _rational(value: Any) -> flint.fmpq:
    return value if isinstance(value, flint.fmpq) else flint.fmpq(*float(value).as_integer_ratio())
