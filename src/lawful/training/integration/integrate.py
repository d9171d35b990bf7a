"""Integrate a flow: DOP853 on a smooth piece, a restart at each kink, snapshots from the dense output.

Idea: a solver of order eight is of order one across a jump of the gradient. So every gate is frozen, which makes the
right-hand side smooth beyond the kink as well, and the step is cut at the first time that a pre-activation changes its
sign. There the gates are decided anew: crossed, or pinned where both sides push back (Filippov's sliding solution, with
the gate that keeps the pre-activation at zero; a linear complementarity problem if several meet).

Invariant: between events the pattern is the true one up to `TOLERANCE`; a law is conserved on every piece and, because
the sliding velocity is a mean of both sides' velocities, along every kink too. Cost: one root search a kink.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.integrate import DOP853, OdeSolution
from scipy.optimize import brentq

from lawful.errors import LawfulError
from lawful.network.dynamics import Dynamics, GradientFlow, HeavyBall
from lawful.training.integration.trajectory import FlowState, Kink, Reason, Stop, Trajectory
from lawful.training.problems.losses import LossValue, Problem
from lawful.types import Floats

Path = Callable[[float], Floats]
SINGULAR = "singular metric"
# Weights that grow by more than this have blown up: beside their squares float64 has no digit of a balance of size 1.
MAX_GROWTH = 1e9
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
    keep: Callable[[FlowState], None] | None = None,
    resume: FlowState | None = None,
) -> Trajectory:
    """Follow `θ̇ = −∇L(θ)` (or other dynamics) from the problem's start for a time.

    Between kinks the field is smooth and the solver keeps its order 8; kinks are found on the dense output and the
    solver restarts there. `snapshots` is a number of equally spaced times or the times themselves; `project` is applied
    after each step (see `balance_projection`); `on_step(time, loss)` is called after each step. Ctrl-C, a blow-up and
    `max_evaluations` end the run and keep what was computed: look at `stop`. `keep` gets a checkpoint every tenth of
    the snapshots, and `resume` goes on from one to the same end as if nothing had happened.

    >>> from lawful.network import Mlp
    >>> from lawful.training import problem
    >>> at = problem(Mlp([[[1.0]], [[2.0]]]), [[1.0]], [[6.0]])
    >>> u, v = integrate(at, 10.0).end
    >>> round(float(u * v), 9), round(float(v * v - u * u), 9)  # learns 6, and keeps v² − u² = 3 (P1 Example 2.3)
    (6.0, 3.0)
    """
    if not (np.isfinite(time) and time > 0):
        raise LawfulError(f"the time of a flow must be positive and finite, not {time:g}")
    for name, value in (("relative", relative), ("absolute", absolute)):
        if not (np.isfinite(value) and value > 0):  # with NaN or 0 the solver would shrink its steps without end
            raise LawfulError(f"the {name} tolerance of a flow must be positive and finite, not {value:g}")
    if max_evaluations < 1:
        raise LawfulError(f"a flow needs at least one evaluation, not {max_evaluations}")
    count = snapshots if isinstance(snapshots, int) else np.size(snapshots)
    if count * len(problem.start) > MAX_NUMBERS:
        raise LawfulError(f"{count:,} snapshots of {len(problem.start):,} parameters do not fit: ask for fewer")
    times = np.linspace(0.0, time, snapshots) if isinstance(snapshots, int) else np.asarray(snapshots, dtype=np.float64)
    if not count or (np.diff(times) <= 0).any() or times[0] < 0 or times[-1] > time:
        raise LawfulError("snapshot times must increase and lie between 0 and the time of the flow")
    if not isinstance(dynamics, Dynamics | None):
        raise LawfulError(f"cannot follow {dynamics!r}: choose GradientFlow, HeavyBall, Metric or Riemannian")
    run = _FlowIntegration(problem, dynamics or GradientFlow(), times, locate_kinks, dense)
    run.project = project
    run.limits = {Reason.LOSS: loss_below, Reason.GRADIENT: gradient_below}
    options = {"rtol": relative, "atol": absolute, "max_step": max_step}
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        if resume is not None:
            run.restore(resume)
        run.keep = keep
        stop = run.follow(time, options, max_evaluations, on_step)
    return run.result(stop)


class _FlowIntegration:
    """One integration in progress."""

    def __init__(self, problem: Problem, dynamics: Dynamics, times: Floats, locate: bool, dense: bool) -> None:
        self.problem, self.dynamics, self.times, self.dense = problem, dynamics, times, dense
        self.size = len(problem.start)
        self.pattern = Pattern(problem, dynamics, problem.start) if locate else None
        self.limits: dict[Reason, float | None] = {}
        self.project: Callable[[Floats], Floats] | None = None
        self.rows: list[tuple[Floats, float, float]] = []
        self.kinks: list[Kink] = []
        self._plain = 0
        self.margin = np.inf
        self.last = self._value(problem.start)
        if not np.isfinite(self.last.loss) or not np.isfinite(self.last.gradient).all():
            raise LawfulError("the loss or its gradient is not finite at the start: check the data and the weights")
        self.ends, self.pieces = [0.0], list[Path]()
        self.time, self.state = 0.0, np.array(problem.start)
        self.step: float | None = None
        if isinstance(dynamics, HeavyBall):
            self.state = np.concatenate([self.state, np.zeros_like(self.state)])
        self.solver: Any = None
        self.keep: Callable[[FlowState], None] | None = None
        self.kept = 0
        self.huge = MAX_GROWTH * max(1.0, float(np.abs(problem.start).max()))

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

    def _value(self, theta: Floats) -> LossValue:
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
        max_evaluations: int,
        on_step: Callable[[float, float], None] | None,
    ) -> Stop:
        """Step until something stops it."""
        if not self.rows:
            self._snapshot(0.0, lambda _: self.state)
        while self.time < end:
            try:
                stop = self._advance(end, options)
                if stop is None and self.time < end:
                    self._checkpoint()
                if on_step is not None:
                    on_step(self.time, self.last.loss)
            except KeyboardInterrupt:
                return Stop(Reason.INTERRUPTED, self.time, f"interrupted at t = {self.time:.6g}")
            if stop is not None:
                return stop
            if self.evaluations > max_evaluations and self.time < end:
                words = f"stopped at t = {self.time:.6g} after {self.evaluations} gradients"
                return Stop(Reason.EVALUATIONS, self.time, words)
        return Stop(Reason.TIME, end, f"reached t = {end:g}")

    def _advance(self, end: float, options: dict[str, float]) -> Stop | None:
        """One step of the solver, cut short where the pattern changes or a stop condition is met."""
        try:
            if self.solver is None:
                step = None if self.step is None else min(self.step, end - self.time)
                self.solver = DOP853(self.field, self.time, self.state, end, first_step=step, **options)
            self.margin = np.inf
            failure = self.solver.step()
        except np.linalg.LinAlgError:
            failure = SINGULAR
        reached = self.state if self.solver is None else self.solver.y
        size = float(np.abs(reached[: self.size]).max())
        if failure is not None or not np.isfinite(self.last.loss) or size > self.huge:
            why = "the metric is singular" if failure == SINGULAR else "steps shrink" if failure else "weights explode"
            words = f"blows up after t = {self.time:.6g}: {why} with the largest weight at {size:.3g}"
            return Stop(Reason.BLOW_UP, self.time, words)
        solver = self.solver
        event = self._first_event(solver, self.time)
        until = solver.t if event is None else event
        limit = self._limit(solver, self.time, until)
        until = limit.time if limit else until
        restart = event is not None or self.project is not None
        path = self._path(solver, until, restart or limit is not None)
        self.step, self.state, self.time = solver.h_abs, solver.y if path is None else path(until), until
        if path is not None:
            self._snapshot(until, path)
        if limit:
            return limit
        if event is not None and self.pattern is not None:
            self.kinks += self.pattern.switch(self.state[: self.size], until)
        self.state = self._project(self.state)
        self.solver = None if restart else solver
        return None

    def _checkpoint(self) -> None:
        """After every tenth of the snapshots; the solver then starts afresh, as it will when the flow is resumed."""
        if self.keep is None or (10 * len(self.rows)) // len(self.times) == self.kept:
            return
        self.kept, self.solver = (10 * len(self.rows)) // len(self.times), None
        pattern = self.pattern
        empty = np.zeros(0)
        self.keep(
            FlowState(
                time=self.time, step=self.step or 0.0, state=np.array(self.state), kinks=tuple(self.kinks),
                rows=np.array([row[0] for row in self.rows]), losses=np.array([row[1] for row in self.rows]),
                norms=np.array([row[2] for row in self.rows]), evaluations=self.evaluations,
                gates=empty if pattern is None else pattern.gates.copy(),
                signs=empty if pattern is None else pattern.signs.copy(),
                zeros=empty if pattern is None else pattern.zeros.copy(),
                tolerance=0.0 if pattern is None else pattern.tolerance,
                pinned=() if pattern is None else tuple(pattern.pinned), nested=pattern is not None and pattern.nested,
            )
        )  # fmt: skip

    def restore(self, state: FlowState) -> None:
        """Stand where a checkpoint stood."""
        pattern = self.pattern
        if state.state.shape != self.state.shape or state.gates.shape != (
            (0,) if pattern is None else pattern.gates.shape
        ):
            raise LawfulError("the checkpoint is of another network or other data")
        self.time, self.step, self.state = state.time, state.step or None, np.array(state.state)
        self.rows = list(zip(state.rows, state.losses.tolist(), state.norms.tolist(), strict=True))
        self.kinks, self.kept = list(state.kinks), (10 * len(state.rows)) // len(self.times)
        if pattern is None:
            self._plain = state.evaluations
            return
        pattern.gates, pattern.signs, pattern.zeros = state.gates.copy(), state.signs.copy(), state.zeros.copy()
        pattern.tolerance, pattern.pinned, pattern.nested = state.tolerance, list(state.pinned), state.nested
        pattern.evaluations = state.evaluations

    def _first_event(self, solver: Any, start: float) -> float | None:
        """When the pattern first changes in the step just made, if it does."""
        pattern = self.pattern
        if pattern is None or self.margin >= 0:
            return None
        path, recorded = solver.dense_output(), self.last
        crossing = first_zero(lambda time: pattern.margins_at(path(time)[: self.size]), start, solver.t)
        self.last = recorded
        return crossing

    def _limit(self, solver: Any, start: float, end: float) -> Stop | None:
        """The first stop condition met in the step just made."""
        crossings = []
        for reason, limit in self.limits.items():
            if limit is None or self._measure(reason, self.last) >= limit:
                continue
            path: Path = solver.dense_output()

            def height(time: float, reason: Reason = reason, limit: float = limit, path: Path = path) -> Floats:
                return np.array([self._measure(reason, self._value(path(time)[: self.size])) - limit])

            when = first_zero(height, start, end)
            if when is not None:
                crossings.append(Stop(reason, when, f"{reason} fell below {limit:g} at t = {when:.6g}"))
        return min(crossings, key=lambda stop: stop.time, default=None)

    @staticmethod
    def _measure(reason: Reason, value: LossValue) -> float:
        return value.loss if reason is Reason.LOSS else float(np.linalg.norm(value.gradient))

    def _path(self, solver: Any, end: float, needed: bool) -> Path | None:
        """Dense output of the step, if anyone will read it."""
        due = len(self.rows) < len(self.times) and self.times[len(self.rows)] <= end
        if not (needed or due or self.dense):
            return None
        path: Path = solver.dense_output()
        if self.dense:
            self.ends.append(end)
            self.pieces.append(path)
        return path

    def _snapshot(self, until: float, path: Path) -> None:
        recorded = self.last
        while len(self.rows) < len(self.times) and self.times[len(self.rows)] <= until:
            state = self._project(np.array(path(self.times[len(self.rows)])))
            value = self._value(state[: self.size])
            self.rows.append((state, value.loss, float(np.linalg.norm(value.gradient))))
        self.last = recorded

    def _project(self, state: Floats) -> Floats:
        if self.project is None:
            return state
        return np.concatenate([self.project(state[: self.size]), state[self.size :]])

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


TOLERANCE = 1e-13  # how far past zero a pre-activation goes before its gate changes, relative to the largest at start
# How far out of [0, 1] the gate of a pinned neuron goes before it is released: far above the rounding of the linear
# system that gives it, so that a gate at an end does not flicker.
SLACK = 1e-9
NEWTON = 8  # corrections of the gates of pinned neurons in one evaluation, at most
LOOKS = 8  # parts of a step in which an event is looked for when the step ends where it began


class Pattern:
    """The gates of a problem along a flow: which neurons are on, off, or pinned to their kink.

    On a kink the gradient jumps. Where the flow on both sides runs into the kink it can only slide along it, with the
    gate α ∈ (0, 1) that keeps `ż = 0` (Filippov's solution). Every law c with `⟨∇c, g⟩ = 0` survives, because the
    sliding velocity is a combination of the velocities on both sides.
    """

    def __init__(self, problem: Problem, dynamics: Dynamics, theta: Floats) -> None:
        self.problem, self.dynamics, self.evaluations = problem, dynamics, 0
        heights = problem.heights(theta)
        self.gates = (heights > 0).astype(np.float64)
        self.signs = 2.0 * self.gates - 1.0
        self.zeros = np.zeros_like(heights)  # where each gate changes: 0 up to the error made while pinned
        self.tolerance = TOLERANCE * max(1.0, float(np.abs(heights).max(initial=0.0)))
        self.pinned: list[int] = []
        self.nested = False

    def evaluate(self, theta: Floats) -> LossValue:
        """The loss and gradient under this pattern; gates of pinned neurons are solved for."""
        value = self._plain(theta)
        for _ in range(NEWTON if self.pinned else 0):
            rates, matrix, slopes = self._rates(theta, value, self.pinned)
            change = _solve(matrix, -rates)
            self.gates[self.pinned] += change
            # With z = 0 a gate changes nothing but the gradient, and that linearly, unless pinned neurons feed others.
            value = replace(value, gradient=value.gradient + (value.pushes[self.pinned] * change) @ slopes)
            if not self.nested or np.abs(change).max() < 1e-9:
                break
            value = self._plain(theta)
        return value

    def margins(self, heights: Floats) -> Floats:
        """All positive while the pattern is the true one (to the tolerance): signed heights, then pinned gates."""
        low = self.signs * (heights - self.zeros) + self.tolerance
        if not self.pinned:
            return low
        alpha = self.gates[self.pinned]
        return np.concatenate([low, np.minimum(alpha, 1.0 - alpha) + SLACK])

    def margins_at(self, theta: Floats) -> Floats:
        """The margins at a point, solving for the gates of pinned neurons."""
        return self.margins(self.evaluate(theta).heights if self.pinned else self.problem.heights(theta, self.gates))

    def switch(self, theta: Floats, time: float) -> list[Kink]:
        """Change the gates at an event; returns what happened."""
        heights = self.evaluate(theta).heights
        beyond = self.signs * (heights - self.zeros) <= -0.5 * self.tolerance
        hits, pinned = [int(gate) for gate in np.flatnonzero(beyond)], self.pinned
        self.gates[hits] = 1.0 - self.gates[hits]
        if not isinstance(self.dynamics, HeavyBall):  # a ball has one velocity on both sides: it always crosses
            self._settle(theta, [*hits, *pinned])
        here = np.array([*hits, *pinned], dtype=np.intp)
        inside = (self.gates[here] > 0.0) & (self.gates[here] < 1.0)
        self.pinned = [int(gate) for gate in here[inside]]
        samples = [self.problem.label(gate)[0] for gate in self.pinned]
        self.nested = len(set(samples)) < len(samples)
        self.signs[here] = np.where(inside, 0.0, 2.0 * self.gates[here] - 1.0)
        released = [gate for gate in pinned if gate not in self.pinned]
        self.zeros[released] = heights[released]
        events = {gate: "pinned" if gate in self.pinned else "crossed" for gate in hits} | dict.fromkeys(
            released, "released"
        )
        return [Kink(time, *self.problem.label(gate), kind) for gate, kind in events.items()]

    def _settle(self, theta: Floats, gates: list[int]) -> None:
        """Gates at their kink agree with the velocities: 0 where `ż < 0`, 1 where `ż > 0`, between only if `ż = 0`."""
        for _ in range(NEWTON if gates else 0):
            before = self.gates[gates]
            rates, matrix, _ = self._rates(theta, self._plain(theta), gates)
            self.gates[gates] = complementary(rates, matrix, before)
            if np.abs(self.gates[gates] - before).max() < 1e-9:
                return

    def _plain(self, theta: Floats) -> LossValue:
        self.evaluations += 1
        return self.problem.evaluate(theta, self.gates)

    def _rates(self, theta: Floats, value: LossValue, gates: list[int]) -> tuple[Floats, Floats, Floats]:
        """`ż` of some gates, its derivative in the gates (`−push_l ⟨∇z_k, ∇z_l⟩` for a gradient flow), and `∇z`."""
        assert not isinstance(self.dynamics, HeavyBall)  # noqa: S101 (for the type checker)
        slopes = self.problem.height_gradients(theta, self.gates, gates)
        rates = slopes @ self.dynamics.velocity(theta, value.gradient)
        return rates, slopes @ self.dynamics.response(theta, slopes).T * value.pushes[gates], slopes


def complementary(rates: Floats, matrix: Floats, start: Floats) -> Floats:
    """Gates `α ∈ [0, 1]` with `F = rates + matrix (α − start)`: F ≤ 0 at 0, F ≥ 0 at 1, F = 0 between.

    Projected Gauss-Seidel. A gate whose own push is not against it is not pinned: it takes the side it moves to.

    >>> complementary(np.array([1.0]), np.array([[-4.0]]), np.array([0.0]))  # pushed back from both sides: slides
    array([0.25])
    >>> complementary(np.array([1.0]), np.array([[-0.5]]), np.array([0.0]))  # passes
    array([1.])
    """
    alpha = start.copy()
    for _ in range(10_000):
        before = alpha.copy()
        for k in range(len(alpha)):
            rate = rates[k] + matrix[k] @ (alpha - start)
            if matrix[k, k] < 0:
                alpha[k] = min(1.0, max(0.0, alpha[k] - rate / matrix[k, k]))
            else:
                alpha[k] = float(rate > 0)
        if np.abs(alpha - before).max() < 1e-14:
            break
    return alpha


def _solve(matrix: Floats, rates: Floats) -> Floats:
    if len(rates) == 1:
        return np.asarray(rates / matrix[0])
    return np.asarray(np.linalg.lstsq(matrix, rates, rcond=1e-12)[0])


def first_zero(heights: Callable[[float], Floats], start: float, end: float) -> float | None:
    """The first time in a step at which one of several functions is negative (to rounding), or None.

    The answer is on the negative side of the root.

    >>> round(first_zero(lambda t: np.array([2.0 - t * t, 4.0 - t]), 0.0, 3.0), 12)
    1.414213562373
    """
    high, above, below = end, heights(start), heights(end)
    if (above < 0).any():
        return start
    if (below >= 0).all():  # all is well at the end: look for something that went and came back
        for time in np.linspace(start, end, LOOKS + 1)[1:-1]:
            high, below = float(time), heights(time)
            if (below < 0).any():
                break
        else:
            return None
    tiny = 1e-14 * max(abs(end), end - start)
    while True:
        candidates = np.flatnonzero(below < 0)
        first = candidates[np.argmin(above[candidates] / (above[candidates] - below[candidates]))]
        root = float(brentq(lambda time, first=first: heights(time)[first], start, high, xtol=tiny, rtol=1e-15))
        step = tiny
        while (below := heights(root))[first] >= 0 and root < high:
            root, step = min(root + step, high), 2.0 * step
        if (below < 0).sum() == 1 or root > high - 2.0 * tiny:
            return root
        below[first] = 0.0  # another one was earlier
        high = root
