"""Follow a flow of truncation maps from sign change to sign change, with R orthogonal to round-off."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.integrate import DOP853
from scipy.optimize import lsq_linear

from lawful.errors import LawfulError
from lawful.flow.truncation.crossing import Sample, first_crossing
from lawful.flow.truncation.field import Field, Maps, Velocity

Floats = NDArray[np.float64]
Index = tuple[int, ...]
CHART = 1.0  # entries of θ beyond which the Cayley chart is moved to the current R
SHARE = 1e-9  # how far a held coordinate's share may leave [0, 1] by round-off


@dataclass(frozen=True)
class Event:
    """At `time`, map `layer` changes what it does to `coordinate` of `point`: "truncate", "release" or "hold".

    A held coordinate stays on the boundary `z = 0`: the flow pushes it there from both sides.
    """

    time: float
    kind: str
    layer: int
    point: int
    coordinate: int


@dataclass(frozen=True, eq=False)
class Trajectory:
    """The flow at chosen times, and every sign change in between.

    `truncated` has H^⊥ (L, N, Q) at each time. `descent` has the two parts `−|∂_s β|²` and `−|Ω|²` of `∂_s C` (3.24).
    `halted` says why a run ended before the last time: undecided, not wrong.
    """

    times: Floats
    maps: tuple[Maps, ...]
    truncated: tuple[NDArray[np.bool_], ...]
    costs: Floats
    descent: Floats
    events: tuple[Event, ...]
    evaluations: int
    halted: str | None = None


def integrate(
    field: Field,
    start: Maps,
    times: ArrayLike,
    *,
    tolerance: float = 1e-11,
    max_events: int = 1_000_000,
    progress: Callable[[float], None] = lambda time: None,
) -> Trajectory:
    """Integrate `∂_s β`, `∂_s R = ΩR` through `times` (increasing, from the first).

    Between sign changes the velocity is smooth. There `R(s) = cay(θ(s))R_0` with the Cayley transform
    `cay(θ) = (1 − θ/2)⁻¹(1 + θ/2)` and `∂_s θ = (1 − θ/2)Ω(1 + θ/2)`, so that R is orthogonal whatever the error of θ;
    an eighth-order Runge-Kutta method follows β and θ, and the first root of any pre-activation ends the piece.

    >>> from lawful.flow.truncation.field import Separated
    >>> field = Separated(np.array([[-1.0, -1.0], [1.0, 0.5]]), np.array([2.0, 2.0]))
    >>> run = integrate(field, Maps(np.zeros((1, 2)), np.eye(2)[None]), [0.0, 5.0])
    >>> [(event.kind, event.point, event.coordinate) for event in run.events]
    [('truncate', 1, 1), ('truncate', 1, 0)]
    """
    run = _Run(field, start, np.asarray(times, dtype=np.float64), tolerance, max_events)
    while run.next < len(run.times) and run.halted is None:
        run.piece()
        progress(run.now)
    return Trajectory(
        run.times[: run.next], tuple(run.states), tuple(run.truncated), np.array(run.costs), np.array(run.descent),
        tuple(run.events), run.evaluations, run.halted,
    )  # fmt: skip


def cayley(generator: Floats) -> Floats:
    """`(1 − θ/2)⁻¹(1 + θ/2)`, orthogonal for antisymmetric θ; works on stacks.

    >>> np.round(cayley(np.array([[0.0, -2.0], [2.0, 0.0]])), 12)
    array([[ 0., -1.],
           [ 1.,  0.]])
    """
    one = np.eye(generator.shape[-1])
    return np.asarray(np.linalg.solve(one - generator / 2, one + generator / 2), dtype=np.float64)


def orthogonalised(rotations: Floats) -> Floats:
    """One Newton step towards the nearest orthogonal matrix: errors of size ε become ε²."""
    return 0.5 * rotations @ (3 * np.eye(rotations.shape[-1]) - np.swapaxes(rotations, -1, -2) @ rotations)


class _Run:
    """The moving state of one integration; `active` is H, with values between 0 and 1 where a coordinate is held."""

    def __init__(self, field: Field, start: Maps, times: Floats, tolerance: float, max_events: int) -> None:
        if times.ndim != 1 or not len(times) or not np.isfinite(times).all() or (np.diff(times) <= 0).any():
            raise LawfulError("times must be finite and increasing")
        self.field, self.times, self.tolerance, self.max_events = field, times, tolerance, max_events
        self.maps, self.now, self.next = start, float(times[0]), 0
        z = field.preactivations(start)
        self.active = (z > 0).astype(np.float64)
        self.held: list[list[Index]] = []  # groups of coordinates that coincide, each with one share
        self.response: tuple[Floats, Floats, Floats] | None = None  # of the held coordinates, see `respond`
        self.slack = 1e-13 * max(float(np.abs(z).max()), 1.0)
        self.offset = np.zeros(z.size)
        self.step: float | None = None
        self.halted: str | None = None
        self.evaluations = 0
        self.states: list[Maps] = []
        self.truncated: list[NDArray[np.bool_]] = []
        self.costs: list[float] = []
        self.descent: list[tuple[float, float]] = []
        self.events: list[Event] = []

    # The velocity, held coordinates included

    def share(self, shares: Floats) -> None:
        """Let the held coordinates count as active by these shares."""
        for group, share in zip(self.held, shares, strict=True):
            self.active[tuple(np.array(group).T)] = share

    def shares(self) -> Floats:
        """By how much each held group counts as active."""
        return np.array([self.active[group[0]] for group in self.held])

    def trial(self, maps: Maps, shares: Floats) -> tuple[Velocity, Floats]:
        """The velocity with these shares, and the rate of z that it gives each held group."""
        self.share(shares)
        self.evaluations += 1
        velocity = self.field.velocity(maps, self.active)
        rates = self.field.rates(maps, velocity, self.active)
        return velocity, np.array([rates[group[0]] for group in self.held])

    def velocity(self, maps: Maps) -> Velocity:
        """Minus the gradient; shares of held coordinates are solved for so that these stay at zero (Filippov)."""
        if not self.held:
            self.evaluations += 1
            return self.field.velocity(maps, self.active)
        shares = self.shares()
        velocity, rates = self.trial(maps, shares)
        response = self.response or self.respond(maps, shares, velocity, rates)
        for attempt in range(12):
            if attempt == 6:
                response = self.respond(maps, shares, velocity, rates)
            change = response[0] @ rates
            if np.abs(rates).max() <= 10 * self.slack:
                break
            shares = np.clip(shares - change, -1.0, 2.0)  # a wild guess far from the path must not overflow
            velocity, rates = self.trial(maps, shares)
        self.share(shares - change)
        self.response = response
        return Velocity(velocity.shifts - response[1] @ change, velocity.generators - response[2] @ change)

    def respond(self, maps: Maps, shares: Floats, velocity: Velocity, rates: Floats) -> tuple[Floats, Floats, Floats]:
        """Inverse of the rates' derivative in the shares, and the velocity's derivatives (last axis)."""
        trials = [self.trial(maps, shares + unit) for unit in np.eye(len(shares))]
        inverse = np.linalg.pinv(np.array([trial[1] - rates for trial in trials]).T, rcond=1e-8)
        shifts = np.stack([trial[0].shifts - velocity.shifts for trial in trials], axis=-1)
        return inverse, shifts, np.stack([trial[0].generators - velocity.generators for trial in trials], axis=-1)

    def signed(self, maps: Maps, sign: Floats) -> Sample:
        """Every pre-activation times the sign it should have, and its rate; held coordinates count as positive."""
        velocity = self.velocity(maps)
        z = sign * self.field.preactivations(maps, self.active)
        rates = sign * self.field.rates(maps, velocity, self.active)
        for group in self.held:
            where = tuple(np.array(group).T)
            z[where], rates[where] = 1.0, 0.0
        return z.ravel() - self.offset, rates.ravel()

    # One smooth piece

    def piece(self) -> None:
        """Move to the next sign change, or to the last time, recording the times on the way."""
        origin, one = self.maps, np.eye(self.maps.rotations.shape[-1])
        count, shape = origin.shifts.size, origin.rotations.shape

        def at(values: Floats) -> Maps:
            return Maps(values[:count].reshape(origin.shifts.shape), cayley(values[count:].reshape(shape)) @ origin[1])

        def slope(_: float, values: Floats) -> Floats:
            theta = values[count:].reshape(shape)
            moved = self.velocity(at(values))
            turn = (one - theta / 2) @ moved.generators @ (one + theta / 2)
            return np.concatenate([moved.shifts.ravel(), turn.ravel()])

        end = float(self.times[-1])
        if self.now >= end:
            self.record(lambda _: self.maps, end)
            return
        first = None if self.step is None else min(self.step, end - self.now)
        values = np.concatenate([origin.shifts.ravel(), np.zeros(origin.rotations.size)])
        solver = DOP853(slope, self.now, values, end, rtol=self.tolerance, atol=self.tolerance, first_step=first)
        sign = np.where(self.active > 0.5, 1.0, -1.0)
        self.offset = np.zeros(sign.size)
        self.offset = np.minimum(self.signed(origin, sign)[0], 0.0)  # round-off of what has just left the boundary
        here = self.signed(origin, sign)
        stop, crossed = self.now, False
        while solver.status == "running" and not crossed and np.abs(solver.y[count:]).max() < CHART:
            message = solver.step()
            if solver.status == "failed":
                raise LawfulError(f"the flow could not be integrated past s = {solver.t:g}: {message}")
            path = _path(solver.dense_output(), at)
            there = self.signed(at(solver.y), sign)
            watch = _watch(self.signed, path, sign)
            found = first_crossing(watch, solver.t_old, solver.t, here, there, self.slack)
            stop = solver.t if found is None else found
            left = self.first_release(path, solver.t_old, stop)
            stop, crossed = (stop, found is not None) if left is None else (left, True)
            self.record(path, stop)
            here = there
            self.maps = path(stop)
        self.step = max(min(solver.step_size, 4 * (stop - self.now)), 1e-12) if crossed else solver.step_size
        self.maps = Maps(self.maps.shifts, orthogonalised(self.maps.rotations))
        self.now = stop
        if crossed:
            self.settle()

    def record(self, path: Callable[[float], Maps], stop: float) -> None:
        """Keep the state at every chosen time up to `stop`."""
        while self.next < len(self.times) and self.times[self.next] <= stop:
            maps = path(float(self.times[self.next]))
            maps = Maps(maps.shifts, orthogonalised(maps.rotations))
            velocity = self.velocity(maps)
            self.states.append(maps)
            self.truncated.append(self.active < 1)
            self.costs.append(self.field.cost(maps, self.active))
            self.descent.append((-float((velocity.shifts**2).sum()), -float((velocity.generators**2).sum())))
            self.next += 1

    # Sign changes

    def first_release(self, path: Callable[[float], Maps], low: float, high: float) -> float | None:
        """The time at which a held coordinate's share leaves [0, 1], by bisection."""

        def inside(time: float) -> bool:
            self.velocity(path(time))
            shares = self.shares()
            return bool((shares > -SHARE).all() and (shares < 1 + SHARE).all())

        if not self.held or inside(high):
            return None
        while high - low > 1e-14 * max(1.0, abs(high)):
            middle = 0.5 * (low + high)
            if not low < middle < high:
                break
            low, high = (middle, high) if inside(middle) else (low, middle)
        return high

    def kind(self, index: Index) -> str:
        return "hold" if 0.0 < self.active[index] < 1.0 else "release" if self.active[index] > 0.5 else "truncate"

    def settle(self) -> None:
        """Decide for every coordinate at zero whether it passes, turns back, or is held between two pushes.

        The velocity is affine in the shares of the coordinates at zero, and each column of that map is normal to its
        boundary. Where activity pushes back (a convex kink of the cost) the flow takes the shares in [0, 1] of least
        velocity; elsewhere a coordinate goes where it is pushed.
        """
        z = self.field.preactivations(self.maps, self.active)
        found = {tuple(int(i) for i in index) for index in np.argwhere(np.abs(z) <= 4 * self.slack)}
        before = {index: self.kind(index) for index in sorted(found.union(*self.held))}
        self.share(np.clip(self.shares(), 0.0, 1.0))
        self.held, self.response = [], None
        for _ in range(2 * len(before) + 2):
            groups = self._settle_once(list(before))
            if groups is not None:
                self.held = groups
                break
        else:
            self.halted = (
                f"at s = {self.now:.6g} coordinates of {len(before)} points meet at once, held by several maps"
            )
        for index, kind in before.items():
            if self.kind(index) != kind:
                self.events.append(Event(float(self.now), self.kind(index), *index))
        if len(self.events) > self.max_events:
            self.halted = f"more than {self.max_events:,} sign changes before s = {self.now:.6g}"

    def _settle_once(self, touching: list[Index]) -> list[list[Index]] | None:
        """One pass over the coordinates at zero: the held groups, or None if any coordinate changed."""
        base = self.velocity(self.maps)
        rates = self.field.rates(self.maps, base, self.active)
        shares = np.array([self.active[index] for index in touching])
        columns, back = [], []
        for index, share in zip(touching, shares, strict=True):
            self.active[index] = 1.0 if share < 0.5 else 0.0
            step = self.active[index] - share
            other = self.velocity(self.maps)
            columns.append((_flat(other) - _flat(base)) / step)
            back.append((self.field.rates(self.maps, other, self.active)[index] - rates[index]) / step < -self.slack)
            self.active[index] = share
        pushed = np.array([rates[index] for index in touching])
        wanted = np.where(pushed > self.slack, 1.0, np.where(pushed < -self.slack, 0.0, shares))
        convex = np.flatnonzero(back)
        groups = [convex[group] for group in _groups([columns[number] for number in convex])]
        if groups:
            summed = np.array([sum(columns[number] for number in group) for group in groups]).T
            rest = _flat(base) - np.array(columns)[convex].T @ shares[convex]
            least = lsq_linear(summed, -rest, (0, 1), method="bvls", tol=1e-14).x
            least = np.where(least < SHARE, 0.0, np.where(least > 1 - SHARE, 1.0, least))
            for group, share in zip(groups, least, strict=True):
                wanted[group] = share
        for index, share in zip(touching, wanted, strict=True):
            self.active[index] = share
        if (np.abs(wanted - shares) > 1e-3 * SHARE).any():
            return None
        return [[touching[number] for number in group] for group in groups if 0.0 < wanted[group[0]] < 1.0]


def _path(dense: Callable[[float], Floats], at: Callable[[Floats], Maps]) -> Callable[[float], Maps]:
    return lambda time: at(dense(time))


def _watch(
    signed: Callable[[Maps, Floats], Sample], path: Callable[[float], Maps], sign: Floats
) -> Callable[[float], Sample]:
    return lambda time: signed(path(time), sign)


def _flat(velocity: Velocity) -> Floats:
    return np.concatenate([velocity.shifts.ravel(), velocity.generators.ravel()])


def _groups(columns: list[Floats]) -> list[list[int]]:
    """Numbers of the columns that agree: points that coincide move together and share alike."""
    groups: list[list[int]] = []
    for number, column in enumerate(columns):
        for group in groups:
            if np.abs(column - columns[group[0]]).max() <= 1e-7 * np.abs(column).max():
                group.append(number)
                break
        else:
            groups.append([number])
    return groups
