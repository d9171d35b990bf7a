"""Integrate a flow: DOP853 on a smooth piece, a restart at each kink, snapshots from the dense output."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import ArrayLike
from scipy.integrate import DOP853, OdeSolution

from lawful.errors import LawfulError
from lawful.flow.dynamics import Dynamics, GradientFlow, HeavyBall
from lawful.flow.kinks import Pattern, first_zero
from lawful.flow.losses import Floats
from lawful.flow.problem import Problem, Value
from lawful.flow.trajectory import Kink, Reason, Stop, Trajectory

Path = Callable[[float], Floats]
MAX_NUMBERS = 200_000_000  # snapshots times parameters: 1.6 GB


def integrate(
    problem: Problem,
    time: float,
    dynamics: Dynamics | None = None,
    *,
    snapshots: int | ArrayLike = 101,
    relative: float = 1e-10,
    absolute: float = 1e-12,
    max_step: float = np.inf,
    loss_below: float | None = None,
    gradient_below: float | None = None,
    locate_kinks: bool = True,
    project: Callable[[Floats], Floats] | None = None,
    dense: bool = False,
    max_evaluations: int = 10_000_000,
    on_step: Callable[[float, float], None] | None = None,
) -> Trajectory:
    """Follow `θ̇ = −∇L(θ)` (or other dynamics) from the problem's start for a time.

    Between kinks the field is smooth and the solver keeps its order 8; kinks are found on the dense output and the
    solver restarts there. `snapshots` is a number of equally spaced times or the times themselves; `project` is applied
    after each step (see `balance_projection`); `on_step(time, loss)` is called after each step. Ctrl-C, a blow-up and
    `max_evaluations` end the run and keep what was computed: look at `stop`.

    >>> from lawful.network import Mlp
    >>> from lawful.flow import problem
    >>> at = problem(Mlp([[[1.0]], [[2.0]]]), [[1.0]], [[6.0]])
    >>> u, v = integrate(at, 10.0).end
    >>> round(u * v, 9), round(v * v - u * u, 9)  # learns 6, and keeps v² − u² = 3 (P1 Example 2.3)
    (6.0, 3.0)
    """
    if not (np.isfinite(time) and time > 0):
        raise LawfulError(f"the time of a flow must be positive and finite, not {time:g}")
    times = np.linspace(0.0, time, snapshots) if isinstance(snapshots, int) else np.asarray(snapshots, dtype=np.float64)
    if len(times) < 1 or (np.diff(times) <= 0).any() or times[0] < 0 or times[-1] > time:
        raise LawfulError("snapshot times must increase and lie between 0 and the time of the flow")
    if len(times) * len(problem.start) > MAX_NUMBERS:
        raise LawfulError(f"{len(times)} snapshots of {len(problem.start):,} parameters do not fit: ask for fewer")
    run = _Run(problem, dynamics or GradientFlow(), times, locate_kinks, dense)
    run.limits = (loss_below, gradient_below)
    options = {"rtol": relative, "atol": absolute, "max_step": max_step}
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        stop = run.follow(time, options, project, max_evaluations, on_step)
    return run.result(stop)


class _Run:
    """One integration in progress."""

    def __init__(self, problem: Problem, dynamics: Dynamics, times: Floats, locate: bool, dense: bool) -> None:
        self.problem, self.dynamics, self.times, self.dense = problem, dynamics, times, dense
        self.size = len(problem.start)
        self.pattern = Pattern(problem, dynamics, problem.start) if locate else None
        self.limits: tuple[float | None, float | None] = (None, None)
        self.rows: list[tuple[Floats, float, float]] = []
        self.kinks: list[Kink] = []
        self._plain = 0
        self.margin = np.inf
        self.last = self._value(problem.start)
        if not np.isfinite(self.last.loss) or not np.isfinite(self.last.gradient).all():
            raise LawfulError("the loss or its gradient is not finite at the start: check the data and the weights")
        self.ends, self.pieces = [0.0], list[Path]()

    def field(self, time: float, state: Floats) -> Floats:
        """The right-hand side, noting the last value and whether the pattern was left."""
        theta = state[: self.size]
        self.last = self._value(theta)
        if self.pattern is not None:
            self.margin = min(self.margin, self.pattern.margins(self.last.heights).min(initial=np.inf))
        if isinstance(self.dynamics, HeavyBall):
            velocity = state[self.size :]
            return np.concatenate([velocity, self.dynamics.acceleration(time, velocity, self.last.gradient)])
        return self.dynamics.velocity(theta, self.last.gradient)

    def _value(self, theta: Floats) -> Value:
        if self.pattern is not None:
            return self.pattern.evaluate(theta)
        self._plain += 1
        return self.problem.evaluate(theta)

    @property
    def evaluations(self) -> int:
        """Gradients computed so far."""
        return self._plain if self.pattern is None else self.pattern.evaluations

    def follow(
        self,
        end: float,
        options: dict[str, float],
        project: Callable[[Floats], Floats] | None,
        max_evaluations: int,
        on_step: Callable[[float, float], None] | None,
    ) -> Stop:
        """Step until something stops it."""
        time, state = 0.0, np.array(self.problem.start)
        if isinstance(self.dynamics, HeavyBall):
            state = np.concatenate([state, np.zeros_like(state)])
        step: float | None = None
        solver: DOP853 | None = None
        with _interruptible() as interrupted:
            self._snapshot(0.0, lambda _: state, inclusive=True)
            while time < end:
                try:
                    if solver is None:
                        step = None if step is None else min(step, end - time)
                        solver = DOP853(self.field, time, state, end, first_step=step, **options)
                    self.margin = np.inf
                    failure = solver.step()
                except np.linalg.LinAlgError:
                    failure = "the metric is singular"
                except KeyboardInterrupt:
                    failure = None
                    interrupted.append(True)
                if failure is not None or not np.isfinite(self.last.loss):
                    size = float(np.abs(state[: self.size]).max())
                    return Stop(
                        Reason.BLOW_UP, time, f"the flow blows up after t = {time:.6g}: {_because(failure, size)}"
                    )
                if interrupted:
                    return Stop(Reason.INTERRUPTED, time, f"interrupted at t = {time:.6g}")
                event = self._event(solver, time)
                restart = event is not None or project is not None
                found = self._limit(solver, time, solver.t if event is None else event)
                until = found[1] if found else solver.t if event is None else event
                path = self._path(solver, time, until, restart or found is not None)
                step, state = solver.h_abs, solver.y if path is None else path(until)
                time = until
                if path is not None:
                    self._snapshot(time, path)
                if found:
                    return Stop(*found)
                if event is not None and self.pattern is not None:
                    self.kinks += self.pattern.switch(state[: self.size], time)
                if project is not None:
                    state = np.concatenate([project(state[: self.size]), state[self.size :]])
                if restart:
                    solver = None
                if on_step is not None:
                    on_step(time, self.last.loss)
                if self.evaluations > max_evaluations and time < end:
                    return Stop(
                        Reason.EVALUATIONS, time, f"stopped at t = {time:.6g} after {self.evaluations} evaluations"
                    )
        return Stop(Reason.TIME, end, f"reached t = {end:g}")

    def _event(self, solver: DOP853, start: float) -> float | None:
        """When the pattern first changes in the step just made, if it does."""
        pattern = self.pattern
        if pattern is None or self.margin >= 0:
            return None
        path, kept = solver.dense_output(), self.last
        found = first_zero(lambda time: pattern.margins_at(path(time)[: self.size]), start, solver.t)
        self.last = kept
        return found

    def _limit(self, solver: DOP853, start: float, end: float) -> tuple[Reason, float, str] | None:
        """The first stop condition met in the step just made."""
        found = []
        for reason, limit in zip((Reason.LOSS, Reason.GRADIENT), self.limits, strict=True):
            if limit is None or self._measure(reason, self.last) >= limit:
                continue
            path: Path = solver.dense_output()

            def height(time: float, reason: Reason = reason, limit: float = limit, path: Path = path) -> Floats:
                return np.array([self._measure(reason, self._value(path(time)[: self.size])) - limit])

            when = first_zero(height, start, end)
            if when is not None:
                found.append((reason, when, f"{reason} fell below {limit:g} at t = {when:.6g}"))
        return min(found, key=lambda item: item[1], default=None)

    @staticmethod
    def _measure(reason: Reason, value: Value) -> float:
        return value.loss if reason is Reason.LOSS else float(np.linalg.norm(value.gradient))

    def _path(self, solver: DOP853, start: float, end: float, needed: bool) -> Path | None:
        """Dense output of the step, if anyone will read it."""
        due = len(self.rows) < len(self.times) and self.times[len(self.rows)] <= end
        if not (needed or due or self.dense):
            return None
        path: Path = solver.dense_output()
        if self.dense:
            self.ends.append(end)
            self.pieces.append(path)
        return path

    def _snapshot(self, until: float, path: Path, inclusive: bool = False) -> None:
        kept = self.last
        while len(self.rows) < len(self.times) and self.times[len(self.rows)] <= until:
            state = np.array(path(self.times[len(self.rows)]))
            value = self._value(state[: self.size])
            self.rows.append((state, value.loss, float(np.linalg.norm(value.gradient))))
        self.last = kept

    def result(self, stop: Stop) -> Trajectory:
        """What was computed, as a frozen value."""
        states = np.array([row[0] for row in self.rows])
        path = OdeSolution(self.ends, self.pieces) if len(self.ends) > 1 else None
        return Trajectory(
            self.times[: len(self.rows)],
            states[:, : self.size],
            np.array([row[1] for row in self.rows]),
            np.array([row[2] for row in self.rows]),
            tuple(self.kinks),
            stop,
            self.evaluations,
            states[:, self.size :] if isinstance(self.dynamics, HeavyBall) else None,
            (lambda time: path(time)[: self.size]) if path is not None else None,
        )


@contextmanager
def _interruptible() -> Iterator[list[bool]]:
    """Collects a Ctrl-C that falls between two steps."""
    interrupted: list[bool] = []
    try:
        yield interrupted
    except KeyboardInterrupt:
        interrupted.append(True)
        raise


def _because(failure: str | None, size: float) -> str:
    why = failure if failure and "singular" in failure else "the step size went to zero"
    return f"{why} with the largest weight at {size:.3g}"
