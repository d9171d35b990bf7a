"""Follow a flow of truncation maps from sign change to sign change, with R orthogonal to round-off.

Idea: while no coordinate changes its sign the velocity is smooth, so DOP853 keeps its order; a sign change is found on
the dense output, and there `boundary.py` decides which coordinates pass and which are held. Rotations move in a Cayley
chart `R(θ) R₀` around the last R, which keeps them orthogonal whatever the step does; the chart is moved before θ is of
size 1. Invariant: between two events the signs are those of the data, up to a slack of round-off; where no choice of
signs settles, the jump is rounded off for a stretch that the trajectory names. Cost: one velocity for each stage, of a
product of all points with R each; a run that makes no headway within `MOST` of them halts undecided.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.integrate import DOP853

from lawful.errors import LawfulError
from lawful.papers.truncation.flow.boundary import Boundary, Sample, TooMuchWork, first_crossing, smooth_passage
from lawful.papers.truncation.flow.field import Chart, Field, Maps, orthogonalise
from lawful.types import Floats

CHART = 1.0  # entries of θ beyond which the Cayley chart is moved to the current R
STALL = 10  # pieces in a row that change nothing new, after which coordinates are said to chatter
RECENT = 4  # pieces that are remembered for that
# Evaluations of the velocity for a twentieth of the time, or up to the next sign change. Whole runs of two to ten maps
# take 1,000 to 13,000 (random starts, tolerance 1e-11); where more are not enough for so little, the method crawls.
MOST = 20_000
STRETCH = 0.05
PASSAGE = 1e-3  # of the whole time: the first rounded passage from a corner; the next are longer

Shares = Callable[[Maps], Floats]


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
class TruncationTrajectory:
    """The flow at chosen times, and every sign change in between.

    `truncated` has H^⊥ (L, N, Q) at each time. `descent` has the two parts `−|∂_s β|²` and `−|Ω|²` of `∂_s C` (3.24).
    `rounded` are the stretches of time in which no choice of signs settled and jumps were rounded off instead: what
    changed meanwhile has the time of the end. `halted` says why a run ended before the last time: undecided, not wrong;
    `interrupted`, that a user ended it.
    """

    times: Floats
    maps: tuple[Maps, ...]
    truncated: tuple[NDArray[np.bool_], ...]
    costs: Floats
    descent: Floats
    events: tuple[Event, ...]
    evaluations: int
    halted: str | None = None
    interrupted: bool = False
    rounded: tuple[tuple[float, float], ...] = ()


def integrate(
    field: Field,
    start: Maps,
    times: ArrayLike,
    *,
    tolerance: float = 1e-11,
    max_events: int = 1_000_000,
    progress: Callable[[float], None] = lambda time: None,
) -> TruncationTrajectory:
    """Integrate `∂_s β`, `∂_s R = ΩR` through `times` (increasing, from the first).

    Between sign changes the velocity is smooth. There `R(s) = cay(θ(s))R_0` with the Cayley transform
    `cay(θ) = (1 − θ/2)⁻¹(1 + θ/2)` and `∂_s θ = (1 − θ/2)Ω(1 + θ/2)`, so that R is orthogonal whatever the error of θ;
    an eighth-order Runge-Kutta method follows β and θ, and the first root of any pre-activation ends the piece.

    >>> from lawful.papers.truncation.flow.field import Separated
    >>> field = Separated(np.array([[-1.0, -1.0], [1.0, 0.5]]), np.array([2.0, 2.0]))
    >>> run = integrate(field, Maps(np.zeros((1, 2)), np.eye(2)[None]), [0.0, 5.0])
    >>> [(event.kind, event.point, event.coordinate) for event in run.events]
    [('truncate', 1, 1), ('truncate', 1, 0)]
    """
    (trajectory,) = integrate_together(
        [(field, start)], times, tolerance=tolerance, max_events=max_events, progress=progress
    )
    return trajectory


def integrate_together(
    problems: Sequence[tuple[Field, Maps]],
    times: ArrayLike,
    *,
    tolerance: float = 1e-11,
    max_events: int = 1_000_000,
    progress: Callable[[float], None] = lambda time: None,
) -> tuple[TruncationTrajectory, ...]:
    """Several flows that do not touch, the one that is behind moving next: an interrupt keeps what all have reached."""
    chosen = np.asarray(times, dtype=np.float64)
    runs = [_TruncationIntegration(field, start, chosen, tolerance, max_events) for field, start in problems]
    interrupted = False
    for run in runs:
        run.record(lambda _, run=run: run.maps, run.now)  # type: ignore[misc]
    try:
        while moving := [run for run in runs if run.next < len(run.times) and run.halted is None]:
            behind = min(moving, key=lambda run: run.now)
            behind.piece()
            progress(min(run.now for run in runs))
    except KeyboardInterrupt:
        interrupted = True
    return tuple(run.result(interrupted) for run in runs)


class _TruncationIntegration:
    """The moving state of one integration."""

    def __init__(self, field: Field, start: Maps, times: Floats, tolerance: float, max_events: int) -> None:
        if times.ndim != 1 or not len(times) or not np.isfinite(times).all() or (np.diff(times) <= 0).any():
            raise LawfulError("times must be finite and increasing")
        self.field, self.times, self.tolerance, self.max_events = field, times, tolerance, max_events
        self.boundary = Boundary(field, start)
        self.maps, self.now, self.next = start, float(times[0]), 0
        self.step: float | None = None
        self.stalled = 0
        self.recent: deque[frozenset[tuple[int, ...]]] = deque(maxlen=RECENT)
        self.rounded: list[tuple[float, float]] = []
        self.halted: str | None = None
        self.states: list[Maps] = []
        self.truncated: list[NDArray[np.bool_]] = []
        self.costs: list[float] = []
        self.descent: list[tuple[float, float]] = []
        self.events: list[Event] = []
        self.allow()

    def piece(self) -> None:
        """Move to the next sign change, or to the last time, recording the times on the way; halt where it crawls."""
        try:
            if self.follow():
                self.cross()
                self.allow()
        except TooMuchWork:
            self.halted = (
                f"from s = {self.allowed:.6g} to {self.now:.6g} the velocity was evaluated {MOST:,} times and no sign "
                "changed: the flow is too stiff there for an explicit method"
            )

    def allow(self) -> None:
        """Let the velocity be evaluated so often again: the run got on."""
        self.allowed, self.boundary.limit = self.now, self.boundary.evaluations + MOST

    def follow(self) -> bool:
        """The smooth part of a piece; whether it ended at a sign change."""
        chart = Chart(self.maps)

        def slope(_: float, values: Floats) -> Floats:
            return chart.slope(values, self.boundary.velocity(chart.at(values)))

        end = float(self.times[-1])
        if self.now >= end:
            self.record(lambda _: self.maps, end)
            return False
        first = None if self.step is None else min(self.step, end - self.now)
        solver = DOP853(slope, self.now, chart.origin, end, rtol=self.tolerance, atol=self.tolerance, first_step=first)
        sign, here = self.boundary.watch(self.maps)
        begun, stop, crossed = self.now, self.now, False
        while solver.status == "running" and not crossed and np.abs(chart.theta(solver.y)).max() < CHART:
            message = solver.step()
            if solver.status == "failed":
                self.halted = f"the flow could not be integrated past s = {solver.t:.6g}: {message}"
                return False
            path = _path(solver.dense_output(), chart.at)
            there = self.boundary.signed(chart.at(solver.y), sign)
            sample = _sample(self.boundary, path, sign)
            crossing = first_crossing(sample, solver.t_old, solver.t, here, there, self.boundary.slack)
            stop = float(solver.t if crossing is None else crossing)
            left = self.boundary.first_release(path, solver.t_old, stop)
            stop, crossed = (stop, crossing is not None) if left is None else (left, True)
            self.record(path, stop)
            here = there
            self.maps = path(stop)
            self.now = stop
            if self.now - self.allowed >= STRETCH * (end - self.times[0]):
                self.allow()
        self.step = max(min(solver.step_size, 4 * (stop - begun)), 1e-12) if crossed else solver.step_size
        self.maps = Maps(self.maps.shifts, orthogonalise(self.maps.rotations))
        return crossed

    def cross(self) -> None:
        """Settle the signs that have reached zero, and write down what changed."""
        before = self.boundary.active.copy()
        changes = self.boundary.settle(self.maps)
        changed = frozenset(changes or ())
        self.stalled = self.stalled + 1 if changed <= frozenset().union(*self.recent) else 0
        self.recent.append(changed)
        if changes is None or self.stalled > STALL:
            self.boundary.active = before
            self.pass_by()
        else:
            self.events += [Event(self.now, kind, *index) for index, kind in changes.items()]
        if len(self.events) > self.max_events:
            self.halted = f"more than {self.max_events:,} sign changes before s = {self.now:.6g}"

    def pass_by(self) -> None:
        """Round the jumps off for a while, longer each time that signs do not settle afterwards."""
        before, begin, end = self.boundary.kinds(), self.now, float(self.times[-1])
        while self.now < end:
            span = PASSAGE * (end - self.times[0]) * 4 ** min(len(self.rounded), 5)
            passage = smooth_passage(self.field, self.maps, self.now, float(min(self.now + span, end)))
            if passage is None:
                self.halted = f"at s = {self.now:.6g} many coordinates meet zero at once, and no method got past them"
                return
            self.boundary.evaluations += passage.evaluations
            self.allow()
            self.record(passage.path, passage.end, passage.shares)
            self.maps, self.now = passage.path(passage.end), passage.end
            self.maps = Maps(self.maps.shifts, orthogonalise(self.maps.rotations))
            self.boundary.take(passage.shares(self.maps))
            self.rounded.append((begin, self.now))
            self.step, self.stalled, begin = None, 0, self.now
            if self.boundary.settle(self.maps) is not None:
                break
            self.boundary.take(passage.shares(self.maps))
        self.events += [Event(self.now, kind, *index) for index, kind in self.boundary.kinds().items()
                        if before[index] != kind]  # fmt: skip

    def record(self, path: Callable[[float], Maps], stop: float, shares: Shares | None = None) -> None:
        """Keep the state at every chosen time up to `stop`; `shares` are those of a rounded passage."""
        while self.next < len(self.times) and self.times[self.next] <= stop:
            maps = path(float(self.times[self.next]))
            maps = Maps(maps.shifts, orthogonalise(maps.rotations))
            if shares is None:
                velocity = self.boundary.velocity(maps)
            else:
                self.boundary.take(shares(maps))
                velocity = self.field.velocity(maps, self.boundary.active)
            self.states.append(maps)
            self.truncated.append(self.boundary.active < 1)
            self.costs.append(self.field.cost(maps, self.boundary.active))
            self.descent.append((-float((velocity.shifts**2).sum()), -float((velocity.generators**2).sum())))
            self.next += 1

    def result(self, interrupted: bool) -> TruncationTrajectory:
        """What was computed; an interrupt may have come between two lines of `record`."""
        stopped = interrupted and self.next < len(self.times)
        halted = f"interrupted at s = {self.now:.6g}" if stopped and self.halted is None else self.halted
        return TruncationTrajectory(
            self.times[: self.next], tuple(self.states[: self.next]), tuple(self.truncated[: self.next]),
            np.array(self.costs[: self.next]), np.array(self.descent[: self.next]), tuple(self.events),
            self.boundary.evaluations, halted, stopped, tuple(self.rounded),
        )  # fmt: skip


def _path(dense: Callable[[float], Floats], at: Callable[[Floats], Maps]) -> Callable[[float], Maps]:
    return lambda time: at(dense(time))


def _sample(boundary: Boundary, path: Callable[[float], Maps], sign: Floats) -> Callable[[float], Sample]:
    return lambda time: boundary.signed(path(time), sign)
