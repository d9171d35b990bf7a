"""The flow at fixed rotations, in closed form: each coordinate is a one-dimensional problem (P2 Section 4.3)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lawful.errors import LawfulError
from lawful.types import Floats


@dataclass(frozen=True, eq=False)
class TruncationSchedule:
    """One coordinate's whole history: `b(s) → y` passes data points at `times`, with rate `rates[k]` after `times[k]`.

    `times[0] = 0` is the start; `levels[k] = b(times[k])`. Between events `y − b` decays like `e^{−(n/N)s}`, n counting
    the points at or below b. `order[k − 1]` is the point passed at `times[k]`.
    """

    target: float
    times: Floats
    levels: Floats
    rates: Floats
    order: NDArray[np.intp]

    def __call__(self, times: ArrayLike) -> Floats:
        """`b(s)` at any times, to machine precision."""
        asked = np.asarray(times, dtype=np.float64)
        piece = np.searchsorted(self.times, asked, side="right") - 1
        start = self.levels[piece]
        moved = -np.expm1(-self.rates[piece] * (asked - self.times[piece])) * (self.target - start)
        return np.asarray(start + moved)

    @property
    def limit(self) -> float:
        """`b(∞)`: the target, or the last data point before it if no truncated point is left to drive the flow."""
        return self.target if self.rates[-1] > 0 else float(self.levels[-1])


def schedule(values: ArrayLike, start: float, target: float) -> TruncationSchedule:
    """Solve `∂_s(y − b) = −(#{x_i <= b}/N)(y − b)` for one coordinate: all truncation times at once.

    `s_{n+1} = s_n + (N/n) log((y − x_n)/(y − x_{n+1}))` (4.49) when b rises to y. When y lies below b, points are
    released one by one instead, the rate *falls*, and b stops at the lowest point if y lies beyond it.

    >>> found = schedule([0.0, 1.0, 2.0], start=0.0, target=3.0)
    >>> np.allclose(found.times, [0.0, 3 * np.log(3 / 2), 3 * np.log(3 / 2) + 1.5 * np.log(2 / 1)])
    True
    >>> (found.rates * 3).tolist()
    [1.0, 2.0, 3.0]
    """
    data = np.asarray(values, dtype=np.float64)
    if data.ndim != 1 or not len(data) or not (np.isfinite(data).all() and np.isfinite([start, target]).all()):
        raise LawfulError("a coordinate needs at least one finite value, a finite start and a finite target")
    order = np.argsort(data)
    ranked = data[order]
    count = len(data)
    low = int(np.searchsorted(ranked, start, side="right"))  # points at or below b, so truncated
    if target >= start:
        stop = int(np.searchsorted(ranked, target, side="left"))
        passed = np.arange(low, max(stop, low)) if low else np.arange(0)
        after = passed + 1.0
    else:
        passed = np.arange(low - 1, int(np.searchsorted(ranked, target, side="right")) - 1, -1)
        after = passed.astype(np.float64)
    levels = np.concatenate([[start], ranked[passed]])
    rates = np.concatenate([[float(low)], after]) / count
    gaps = np.abs(np.diff(levels))
    # log((y − x_n)/(y − x_{n+1})) without cancellation, summed in extended precision
    logs = np.log1p(gaps / np.abs(target - levels[1:]))
    times = np.concatenate([[0.0], np.cumsum((logs / rates[:-1]).astype(np.longdouble)).astype(np.float64)])
    return TruncationSchedule(float(target), times, levels, rates, order[passed])


@dataclass(frozen=True, eq=False)
class FixedFlow:
    """The flow of β at fixed R: one schedule per coordinate of `−Rβ`."""

    rotation: Floats
    schedules: tuple[TruncationSchedule, ...]

    def shift(self, time: float) -> Floats:
        """`β(s)`."""
        return -np.array([float(schedule(time)) for schedule in self.schedules]) @ self.rotation


def fixed_flow(points: ArrayLike, target: ArrayLike, shift: ArrayLike, rotation: ArrayLike) -> FixedFlow:
    """Solve `∂_s β = −Rᵀ⟨1−H⟩R(β + ỹ)` at fixed R, coordinate by coordinate (4.38)-(4.50)."""
    matrix = np.asarray(rotation, dtype=np.float64)
    values = np.asarray(points, dtype=np.float64) @ matrix.T
    starts, targets = -matrix @ np.asarray(shift), matrix @ np.asarray(target)
    found = (schedule(values[:, r], float(starts[r]), float(targets[r])) for r in range(len(matrix)))
    return FixedFlow(matrix, tuple(found))
