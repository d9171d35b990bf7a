"""Discrete optimisers beside the flow: how far each conserved quantity drifts, and how far theory says it should."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from lawful.errors import LawfulError
from lawful.network.dynamics import GradientFlow
from lawful.result import Shown
from lawful.training.integration.integrate import integrate
from lawful.training.integration.trajectory import Reason, Trajectory
from lawful.training.optimizers import ExactDrift, Optimizer, steps
from lawful.training.problems.loss_value import Problem
from lawful.training.quantities import Quantities
from lawful.types import Floats

POINTS = 101  # at most this many records of a run
HUGE = 1e100
STEADY = 4  # times 1/(1 - momentum) steps: before that momentum has not got going, and the first order says nothing


@dataclass(frozen=True, eq=False)
class Row:
    """One method's run. Rows of `values` are `times`, columns the laws.

    `drift` is measured from the flow's own law with the same decay, `c(t) = c(0) e^{−2λt}`, λ being `shrink`: the
    optimizer's decay, but 0 for laws that are not quadratic and for `adam`, which divides decay as it does gradients.
    """

    optimizer: Optimizer
    steps: int
    times: Floats
    losses: Floats
    values: Floats
    drift: Floats
    shrink: float
    exact: Floats | None
    first_order: Floats | None
    message: str

    @property
    def max_drift(self) -> float:
        """The largest drift of any law at the end."""
        return float(np.abs(self.drift[-1]).max(initial=0.0))

    @property
    def exact_error(self) -> float | None:
        """How far the exact formula for sgd is from what was measured, at the end."""
        return None if self.exact is None else float(np.abs(self.exact - self.values[-1]).max(initial=0.0))

    @property
    def predicted_drift(self) -> float | None:
        """The largest drift that the flow alone predicts, to first order in the step size."""
        return None if self.first_order is None else float(np.abs(self.first_order).max(initial=0.0))


@dataclass(frozen=True, eq=False)
class Comparison(Shown):
    """All methods on one problem over one time of the flow."""

    time: float
    names: tuple[str, ...]
    start: Floats
    rows: tuple[Row, ...]

    def order(self, name: str = "sgd") -> float | None:
        """The measured exponent p of `drift ∝ η^p` over the plain full-batch runs of one method, or None if too few."""
        plain = [
            row
            for row in self.rows
            if row.optimizer == Optimizer(name, row.optimizer.rate or 1.0)
            and row.max_drift > 0
            and row.steps >= 10
            and not row.message
        ]
        rates = [row.optimizer.rate for row in plain]
        if len(set(rates)) < 2:
            return None
        return float(np.polyfit(np.log(rates), np.log([row.max_drift for row in plain]), 1)[0])


def compare(
    problem: Problem,
    laws: Quantities,
    optimizers: Sequence[Optimizer],
    time: float,
    *,
    seed: int = 0,
    max_evaluations: int = 1_000_000,
    on_step: Callable[[str, float], None] | None = None,
) -> Comparison:
    """Run each method for a time of the flow (`time/η` steps) and measure the drift of every law.

    Gradient descent changes a quadratic law by `η² c(g)` a step, so over a time by `η ∫ c(g) dt` to first order; with
    momentum by a factor (`Optimizer.drift_rate`). Adam's drift does not vanish with the step size. If the flow itself
    needs more than `max_evaluations` gradients, there is no prediction. A method of which one step covers more than the
    whole time, or that needs more steps than `max_evaluations`, is refused.
    """
    if not optimizers:
        raise LawfulError("name at least one optimizer to compare, such as flow,sgd:0.1,adam:0.001")
    if not (np.isfinite(time) and time > 0):
        raise LawfulError(f"the time of a comparison must be positive and finite, not {time:g}")
    for optimizer in optimizers:  # before anything runs
        if optimizer.name != "flow" and (count := optimizer.steps(time)) > max_evaluations:
            raise LawfulError(
                f"{optimizer} needs {count:,} steps for a time of {time:g}, more than {max_evaluations:,}"
            )
    reference = integrate(problem, time, snapshots=4 * (POINTS - 1) + 1, max_evaluations=max_evaluations)
    if reference.stop.reason is Reason.INTERRUPTED:
        raise KeyboardInterrupt
    integral = _integral(problem, laws, reference) if laws.quadratic and reference.stop.complete else None
    rows = []
    for optimizer in optimizers:
        tell = None if on_step is None else (lambda part, name=str(optimizer): on_step(name, part))
        if optimizer.name == "flow":
            rows.append(_flow_row(problem, laws, optimizer, time, reference))
        else:
            rows.append(_row(problem, laws, optimizer, time, integral, seed, tell))
    return Comparison(time, laws.names, laws.values(problem.start), tuple(rows))


def _integral(problem: Problem, laws: Quantities, flow: Trajectory) -> Floats:
    squares = laws.along(np.array([problem.evaluate(theta).gradient for theta in flow.theta]))
    return np.asarray(np.trapezoid(squares, flow.times, axis=0))


def _flow_row(problem: Problem, laws: Quantities, optimizer: Optimizer, time: float, plain: Trajectory) -> Row:
    flow = integrate(problem, time, GradientFlow(optimizer.decay), snapshots=POINTS) if optimizer.decay else plain
    if flow.stop.reason is Reason.INTERRUPTED:
        raise KeyboardInterrupt
    values = laws.along(flow.theta)
    shrink = optimizer.decay if laws.quadratic else 0.0
    drift = values - values[0] * np.exp(-2.0 * shrink * flow.times)[:, None]
    message = "" if flow.stop.complete else flow.stop.message
    return Row(optimizer, flow.evaluations, flow.times, flow.losses, values, drift, shrink, None, None, message)


def _row(
    problem: Problem,
    laws: Quantities,
    optimizer: Optimizer,
    time: float,
    integral: Floats | None,
    seed: int,
    tell: Callable[[float], None] | None,
) -> Row:
    count = optimizer.steps(time)
    marks = set(np.unique(np.linspace(0, count, POINTS).round().astype(int)).tolist())
    start = problem.evaluate(problem.start)
    exact = ExactDrift(laws, optimizer, problem.start) if optimizer.name == "sgd" and laws.quadratic else None
    times, losses, thetas, message, done = [0.0], [start.loss], [problem.start], "", 0
    with np.errstate(over="ignore", invalid="ignore"):
        for step in steps(problem, optimizer, count, seed=seed):
            if not np.isfinite(step.next).all() or np.abs(step.next).max() > HUGE:
                message = f"diverged at step {done + 1}"
                break
            done += 1
            if exact is not None:
                exact.update(step)
            if done in marks:
                times.append(done * optimizer.pace)
                losses.append(problem.evaluate(step.next).loss)
                thetas.append(step.next)
                if tell is not None:
                    tell(done / count)
        values = laws.along(np.array(thetas))
    shrink = optimizer.decay if laws.quadratic and optimizer.name != "adam" else 0.0
    drift = values - values[0] * np.exp(-2.0 * shrink * np.array(times))[:, None]
    rate, steady = optimizer.drift_rate, count * (1.0 - optimizer.momentum) >= STEADY
    first = rate * integral if rate is not None and integral is not None and steady else None
    ended = exact.value if exact is not None and not message else None
    return Row(optimizer, done, np.array(times), np.array(losses), values, drift, shrink, ended, first, message)
