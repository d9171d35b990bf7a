"""What can be said of a flow in advance: Proposition 4.2 for each cluster, and the closed form at fixed rotations."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.integrate import solve_ivp

from lawful.errors import LawfulError
from lawful.papers.truncation.clusters import Clusters
from lawful.papers.truncation.flow.field import Maps, Separated
from lawful.papers.truncation.flow.integrate import TruncationTrajectory, integrate
from lawful.papers.truncation.flow.motion import Start, TruncationRun
from lawful.types import Floats

# The flow at fixed rotations, in closed form: each coordinate is a one-dimensional problem (P2 Section 4.3).


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
    schedules = (schedule(values[:, r], float(starts[r]), float(targets[r])) for r in range(len(matrix)))
    return FixedFlow(matrix, tuple(schedules))


# Does a cluster collapse to a point in finite time? P2 Propositions 4.1 and 4.2 as checks with numbers.


class Equilibrium(StrEnum):
    """What the flow does where it starts (Proposition 4.1, corrected)."""

    REST = "at rest"
    TURNED = "R at rest, β moves at rate 1"
    MOVING = "moving"


def equilibrium(points: Floats, target: Floats, shift: Floats, rotation: Floats) -> Equilibrium:
    """Untruncated data are at rest. Fully truncated data keep R, but `∂_s β = −(β + ỹ)`: at rest only if β = −ỹ.

    >>> points, zero, one = np.array([[1.0, 2.0], [3.0, 1.0]]), np.zeros(2), np.eye(2)
    >>> equilibrium(points, zero, zero, one).value, equilibrium(-points, np.ones(2), zero, one).value
    ('at rest', 'R at rest, β moves at rate 1')
    """
    z = (points + shift) @ rotation.T
    if (z > 0).all():
        return Equilibrium.REST
    if (z <= 0).all():
        return Equilibrium.REST if not (shift + target).any() else Equilibrium.TURNED
    return Equilibrium.MOVING


@dataclass(frozen=True)
class Hypotheses:
    """Proposition 4.2's constants for one cluster, sound over the whole neighbourhood that it speaks of.

    `eta0`: along every coordinate a share `> 1 − η0` of the points stays truncated. `eta1`: first moment of what may
    lie in mixed sectors. Within `γ|β(0) + ỹ|` of the target everything is truncated (4.16). At `β = −ỹ` that reads
    `R(x − ỹ) <= 0`, so `0 < z_i <= v_i` on active coordinates, `HMH^⊥ = ½(z₊v₋ᵀ + (v − z)₊z₋ᵀ)` and
    `|Ω| <= ½η1|β + ỹ|`, half of the printed (4.25). `eta2` bounds how far R can turn by that. Then
    `s_1 <= log(1/γ)/(1 − η0)` =: `bound`; Ω is antisymmetric and does not enter the rate, so the printed rate
    `1 − η0 − η1'` is safe. `reason` says which hypothesis fails, if one does.
    """

    eta0: float
    eta1: float
    eta2: float
    gamma: float
    bound: float
    reason: str | None

    @property
    def holds(self) -> bool:
        """Whether all hypotheses hold, so that the cluster collapses before `bound`."""
        return self.reason is None

    @property
    def small(self) -> bool:
        """Whether the constants also lie below 1/10, as the paper asks (the proof does not need it)."""
        return self.holds and max(self.eta0, self.eta1, self.gamma) < 0.1


def hypotheses(points: Floats, target: Floats, shift: Floats, rotation: Floats) -> Hypotheses:
    """Check Proposition 4.2 at `(β(0), R(0))`.

    With `z = R(x − ỹ) + R(β + ỹ)`, every `|β + ỹ| <= ρ` and `‖R − R(0)‖ <= η2` move z by at most `ρ + η2|x − ỹ|`, so
    each hypothesis becomes a comparison per point. η2 is the least self-consistent value, found from below.

    >>> cluster = np.vstack([np.full((99, 2), -3.0), [[-0.9, -3.0]]])
    >>> found = hypotheses(cluster, np.zeros(2), np.array([1.0, 0.0]), np.eye(2))
    >>> found.holds, round(found.eta0, 3), round(found.bound, 3)
    (True, 0.01, 0.183)
    """
    radius = float(np.linalg.norm(shift + target))
    place = (points - target) @ rotation.T
    reach = np.linalg.norm(points - target, axis=1)
    if (place + radius <= 0).all():
        return Hypotheses(0.0, 0.0, 0.0, 1.0, 0.0, None)  # collapsed from the start
    eta2 = 0.0
    for _ in range(60):
        slack = (radius + eta2 * reach)[:, None]
        eta0 = float(1.0 - (place + slack <= 0).mean(axis=0).min())
        mixed = ~((place + slack <= 0).all(axis=1) | (place - slack > 0).all(axis=1))
        eta1 = float(((reach + radius) * mixed).mean())
        depth = float((-place - eta2 * reach[:, None]).min())
        gamma = min(1.0, depth / radius) if depth > 0 else 0.0
        rate = 1.0 - eta0
        if gamma <= 0 or rate <= 0:
            reason = (
                "a point is not truncated even at the target (4.16)" if gamma <= 0 else
                "along some coordinate no point is sure to stay truncated (4.14)"
            )  # fmt: skip
            return Hypotheses(eta0, eta1, eta2, gamma, np.inf, reason)
        bound = float(np.log(1 / gamma)) / rate
        turned = 0.5 * eta1 * radius / rate
        if turned <= eta2:
            return Hypotheses(eta0, eta1, eta2, gamma, bound, None)
        eta2 = 1.01 * turned
    return Hypotheses(eta0, eta1, eta2, gamma, np.inf, "R may turn too far for the other hypotheses (4.15)")


@dataclass(frozen=True, eq=False)
class Confirmation:
    """The run that confirms (or refutes) a prediction: when the last coordinate was truncated, and what came after."""

    time: float
    turned_after: float
    rate_after: float
    trajectory: TruncationTrajectory


def confirm(points: Floats, target: Floats, shift: Floats, rotation: Floats, until: float) -> Confirmation:
    """Integrate to `until` and measure `s_1`, how much R moves after it (0), and the rate of `|β + ỹ|` (1)."""
    start = Maps(np.array(shift)[None], np.array(rotation)[None])
    field = Separated(points, target)
    trajectory = integrate(field, start, [0.0, until, until + 1.0])
    before, after = trajectory.maps[-2], trajectory.maps[-1]
    whole = bool((field.preactivations(before) <= 0).all())
    time = max((event.time for event in trajectory.events), default=0.0) if whole else np.inf
    lengths = [float(np.linalg.norm(maps.shifts[0] + target)) for maps in (before, after)]
    rate = float(np.log(lengths[0] / lengths[1])) if min(lengths) > 0 else np.nan
    return Confirmation(time, float(np.abs(after.rotations - before.rotations).max()), rate, trajectory)


# The standard cost in two cases that can be solved: collapsed data and clustered data (P2 Sections 8 and 9).

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
    conserved = bs @ np.swapaxes(bs, 1, 2) - np.swapaxes(ws, 1, 2) @ ws
    eigenvalues = np.linalg.eigvalsh(conserved[0])
    errors = ws @ bs + wanted
    return CollapsedRun(
        asked, bs, ws, 0.5 * (errors**2).sum(axis=(1, 2)), float(np.abs(conserved - conserved[0]).max()),
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


def solve_standard(data: Clusters, start: Start, case: str, until: float, frames: int) -> dict[str, Any]:
    """Either case on a data set: the costs over time, and how well theory and integration agree."""
    times, one = np.linspace(0.0, until, frames), np.eye(data.count)
    if case == "collapsed":  # every cluster sits at its target; W starts small enough for a spectral gap
        small = 0.5 * float(np.linalg.svd(start.targets, compute_uv=False)[-1])
        run = collapsed_flow(-start.targets.T, small * one, one, times)
        return {
            "case": case, "times": times, "costs": run.costs, "drift": run.drift, "gap": run.gap,
            "bounded": run.excess <= 1 + 1e-9,
        }  # fmt: skip
    if case != "clustered":
        raise LawfulError(f"--standard takes collapsed or clustered, not {case[:40]!r}")
    x, y = data.points, one[data.labels]
    solved = solve_ivp(
        lambda _, w: (-(w.reshape(one.shape) @ x.T - y.T) @ x / len(x)).ravel(),
        (0.0, until), one.ravel(), "DOP853", [until], rtol=1e-12, atol=1e-13,
    )  # fmt: skip
    weights = [clustered_weight(x, y, one, float(time)) for time in times]
    return {
        "case": case, "times": times,
        "costs": [float(((x @ w.T - y) ** 2).sum() / (2 * len(x))) for w in weights],
        "difference": float(np.abs(solved.y[:, -1].reshape(one.shape) - weights[-1]).max()),
        "distance": float(np.abs(weights[-1] - clustered_weight(x, y, one, np.inf)).max()),
    }  # fmt: skip


@dataclass(frozen=True)
class Prediction:
    """The hypotheses of Proposition 4.2 for one cluster at a `time` of its run, and when it collapses at the latest."""

    hypotheses: Hypotheses
    time: float

    @property
    def bound(self) -> float:
        """The time of collapse that is promised, counted from the start of the run."""
        return self.hypotheses.bound + self.time


def predictions(run: TruncationRun) -> list[Prediction | None]:
    """Proposition 4.2 for every cluster's own map, at the first time at which its hypotheses hold.

    Where they never hold, the first time says what fails; None if the cluster starts collapsed. The proposition speaks
    of the separated flow only, so of a general one nothing is predicted.
    """
    return [] if run.general else [_prediction(run, number) for number in range(run.data.count)]


def _prediction(run: TruncationRun, number: int) -> Prediction | None:
    cluster, target, end = run.data.cluster(number), run.start.targets[number], run.collapsed[number]
    first = None
    for index, at in enumerate(run.times):
        if end is not None and at >= end:
            break
        maps = run.maps(index)
        prediction = Prediction(hypotheses(cluster, target, maps.shifts[number], maps.rotations[number]), float(at))
        if prediction.hypotheses.holds:
            return prediction
        first = first or prediction
    return first


def fixed_flows(data: Clusters, start: Start) -> tuple[FixedFlow, ...]:
    """The closed form at fixed rotations, for each cluster."""
    maps = zip(start.targets, start.maps.shifts, start.maps.rotations, strict=True)
    return tuple(fixed_flow(data.cluster(number), *map_) for number, map_ in enumerate(maps))
