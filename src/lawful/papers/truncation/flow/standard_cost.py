"""The standard cost in two cases that can be solved: collapsed data and clustered data (P2 Sections 8 and 9)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.integrate import solve_ivp

from lawful.errors import LawfulError
from lawful.types import Floats

FLOOR = 1e-16  # of the first cost: what integration at relative tolerance 1e-12 can still tell from zero


@dataclass(frozen=True, eq=False)
class CollapsedRun:
    """`B` (the β as columns) and `W_{Q+1}` along the flow (8.6)-(8.7) of `½|WB + Y|²`.

    `gap` is `λ₀`, the smallest eigenvalue of `±(BBᵀ − WᵀW)` if that is definite, else 0; `cost <= e^{−2λ₀s}cost(0)`.
    """

    times: Floats
    shifts: Floats
    weights: Floats
    costs: Floats
    drift: float
    gap: float

    @property
    def bound(self) -> Floats:
        """`e^{−2λ₀s} cost(0)`, (8.27)."""
        return np.asarray(self.costs[0] * np.exp(-2 * self.gap * self.times))

    @property
    def excess(self) -> float:
        """Largest ratio of cost to bound; costs below 1e-16 of the first are the integrator's own error."""
        seen = self.costs > FLOOR * self.costs[0]
        return float((self.costs[seen] / self.bound[seen]).max(initial=0.0))

    @property
    def rate_over_bound(self) -> float:
        """The slowest mean rate `log(cost(0)/cost(s)) / 2λ₀s` over later times: at least 1 by (8.27)."""
        later = (self.times > self.times[0]) & (self.costs > FLOOR * self.costs[0])
        rates = np.log(self.costs[0] / self.costs[later]) / (2 * self.gap * (self.times[later] - self.times[0]))
        return float(rates.min(initial=np.inf))


def collapsed_flow(shifts: ArrayLike, weight: ArrayLike, labels: ArrayLike, times: ArrayLike) -> CollapsedRun:
    """Gradient flow of the standard cost once every cluster ℓ sits at the point `−β^{(ℓ)}`.

    `∂_s B = −Wᵀ(WB + Y)`, `∂_s W = −(WB + Y)Bᵀ`; `𝓘 = BBᵀ − WᵀW` is conserved (Proposition 8.3). Valid for as long as
    the moving `−β^{(ℓ)}` keep every cluster in its negative sector: the equations do not see the data.

    >>> run = collapsed_flow(-2 * np.eye(2), np.eye(2), np.eye(2), [0.0, 1.0, 5.0])
    >>> run.gap, bool(run.drift < 1e-9), bool(run.excess <= 1 + 1e-9)
    (3.0, True, True)
    """
    start, first, wanted = (np.asarray(array, dtype=np.float64) for array in (shifts, weight, labels))
    if (
        start.ndim != 2
        or first.ndim != 2
        or first.shape[1] != len(start)
        or wanted.shape != (len(first), start.shape[1])
    ):
        raise LawfulError(f"W {first.shape}, B {start.shape} and Y {wanted.shape} do not fit together as WB + Y")
    asked = np.asarray(times, dtype=np.float64)

    def slope(_: float, values: Floats) -> Floats:
        b, w = values[: start.size].reshape(start.shape), values[start.size :].reshape(first.shape)
        error = w @ b + wanted
        return np.concatenate([-(w.T @ error).ravel(), -(error @ b.T).ravel()])

    begin = np.concatenate([start.ravel(), first.ravel()])
    solved = solve_ivp(slope, (asked[0], asked[-1]), begin, "DOP853", asked, rtol=1e-12, atol=1e-14)
    if not solved.success:
        raise LawfulError(f"the flow could not be integrated: {solved.message}")
    bs = solved.y[: start.size].T.reshape(-1, *start.shape)
    ws = solved.y[start.size :].T.reshape(-1, *first.shape)
    kept = bs @ np.swapaxes(bs, 1, 2) - np.swapaxes(ws, 1, 2) @ ws
    eigenvalues = np.linalg.eigvalsh(kept[0])
    errors = ws @ bs + wanted
    return CollapsedRun(
        asked, bs, ws, 0.5 * (errors**2).sum(axis=(1, 2)), float(np.abs(kept - kept[0]).max()),
        float(max(eigenvalues[0], -eigenvalues[-1], 0.0)),
    )  # fmt: skip


def clustered_weight(points: ArrayLike, labels: ArrayLike, weight: ArrayLike, time: float) -> Floats:
    """`W_{Q+1}(s)` when no map truncates anything: `W(0)e^{−sXXᵀ/N} + Y_ext X⁺(1 − e^{−sXXᵀ/N})` (9.10).

    `points` has a row per point and `labels` the wanted output of each row. `time = inf` gives the limit `Y_ext X⁺`
    (9.12), the least-squares solution.

    >>> x = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    >>> np.round(clustered_weight(x, x @ np.array([[2.0], [3.0]]), [[0.0, 0.0]], np.inf), 12)
    array([[2., 3.]])
    """
    x, wanted, start = (np.asarray(array, dtype=np.float64) for array in (points, labels, weight))
    if x.ndim != 2 or wanted.shape != (len(x), len(start)) or start.shape[1:] != x.shape[1:]:
        raise LawfulError(f"points {x.shape}, labels {wanted.shape} and W {start.shape} do not fit together")
    values, axes = np.linalg.eigh(x.T @ x / len(x))
    if values[0] <= values[-1] * len(values) * np.finfo(np.float64).eps:
        raise LawfulError(f"XXᵀ is singular (condition number {values[-1] / max(values[0], 1e-300):.1e}): (9.9) fails")
    decay = np.exp(-values * time) if np.isfinite(time) else np.zeros_like(values)
    limit = np.linalg.lstsq(x, wanted, rcond=None)[0].T
    return np.asarray(limit + (start - limit) @ (axes * decay) @ axes.T)
