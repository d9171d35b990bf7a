"""Discrete optimisers beside the flow: how far each conserved quantity drifts, and how far theory says it should."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from lawful.errors import LawfulError
from lawful.network.dynamics import GradientFlow
from lawful.result import Shown
from lawful.training.integration.integrate import integrate
from lawful.training.integration.trajectory import Reason, Trajectory
from lawful.training.problems.losses import Problem
from lawful.training.quantities import Quantities
from lawful.types import Floats

# Discrete optimisers on a training problem, in float64, and the exact drift that theory gives some of them.


ADAMW_DECAY = 0.01  # the default `weight_decay` of torch.optim.AdamW; its other optimisers have 0
UNSET: float = None  # type: ignore[assignment]  # a decay that was not given: the method's own is taken
FORMS = (
    "flow[:decay=D], sgd:RATE[:momentum=M[:nesterov]][:batch=B][:decay=D], adam:RATE[:batch=B][:decay=D], "
    "adamw:RATE[:...]"
)


@dataclass(frozen=True)
class Optimizer:
    """A method and its settings; prints and parses itself.

    `sgd` is PyTorch's SGD (decay added to the gradient, heavy-ball or Nesterov momentum), `adam` and `adamw` are
    PyTorch's with their default betas, `flow` is the gradient flow. Defaults are PyTorch's: `adamw` decays by 0.01.
    `batch` 0 is the full batch.

    >>> Optimizer.parse("sgd:0.1:momentum=0.9"), Optimizer.parse("adamw:0.01")
    (Optimizer('sgd:0.1:momentum=0.9'), Optimizer('adamw:0.01:decay=0.01'))
    """

    name: str
    rate: float = 0.0
    momentum: float = 0.0
    decay: float = UNSET
    batch: int = 0
    nesterov: bool = False

    def __post_init__(self) -> None:
        if self.name not in ("flow", "sgd", "adam", "adamw"):
            raise LawfulError(f"unknown optimizer {self.name[:40]!r}: write {FORMS}")
        if self.decay is UNSET:
            object.__setattr__(self, "decay", ADAMW_DECAY if self.name == "adamw" else 0.0)
        if self.name != "flow" and not (math.isfinite(self.rate) and self.rate > 0):
            raise LawfulError(f"{self.name} needs a positive step size: write {self.name}:0.01")
        if self.name == "flow" and self.rate:
            raise LawfulError("the flow has no step size: write flow")
        if not 0 <= self.momentum < 1 or (self.momentum and self.name != "sgd"):
            raise LawfulError("momentum is a number from 0 up to 1, for sgd")
        if self.nesterov and not self.momentum:
            raise LawfulError("nesterov needs momentum: write sgd:0.01:momentum=0.9:nesterov")
        if not (math.isfinite(self.decay) and self.decay >= 0):
            raise LawfulError("decay is not negative")
        if self.batch < 0 or (self.batch and self.name == "flow"):
            raise LawfulError("a batch has at least one sample, and the flow takes no batches")

    @classmethod
    def parse(cls, text: str) -> Optimizer:
        """Read `sgd:0.1:batch=32`."""
        name, *words = text.strip().split(":")
        nesterov = "nesterov" in words
        if nesterov:
            words.remove("nesterov")
        options: dict[str, float] = {}
        for number, word in enumerate(words):
            key, _, value = word.rpartition("=")
            key = key or ("rate" if number == 0 and name != "flow" else "")
            if key not in ("rate", "momentum", "decay", "batch") or key in options:
                raise LawfulError(f"cannot read {word[:40]!r} in {text[:60]!r}: write {FORMS}")
            try:
                options[key] = float(value)
            except ValueError:
                raise LawfulError(f"{value[:40]!r} in {text[:60]!r} is not a number: write {FORMS}") from None
        batch = options.pop("batch", 0.0)
        if batch != int(batch) if math.isfinite(batch) else True:
            raise LawfulError(f"batch must be a whole number, not {batch:g}")
        return cls(name, **options, batch=int(batch), nesterov=nesterov)

    def __str__(self) -> str:
        words = [self.name] + [f"{self.rate:g}"] * (self.name != "flow")
        shown = {"momentum": bool(self.momentum), "decay": bool(self.decay) or self.name == "adamw",
                 "batch": bool(self.batch)}  # fmt: skip
        words += [f"{key}={getattr(self, key):g}" for key, is_shown in shown.items() if is_shown]
        return ":".join(words + ["nesterov"] * self.nesterov)

    def __repr__(self) -> str:
        return f"Optimizer({str(self)!r})"

    def steps(self, time: float) -> int:
        """How many steps cover a time of the flow, to the nearest; momentum moves `1/(1 − μ)` times as fast.

        >>> Optimizer("sgd", 0.1).steps(0.37)
        4
        """
        if not self.pace <= time * (1 + 1e-9):  # rounding of until = 0.3, momentum = 0.9
            moves = f", with momentum {self.momentum:g} {self.pace:g}" if self.momentum else ""
            raise LawfulError(f"one step of {self} covers a time of {self.rate:g}{moves}, more than the whole {time:g}")
        return round(min(time / self.pace, 1e18))

    @property
    def pace(self) -> float:
        """The time of the flow that a step covers."""
        return self.rate / (1.0 - self.momentum)

    @property
    def drift_rate(self) -> float | None:
        """The drift of a quadratic law c in a time dt is this times `c(g) dt`, to first order; None if not known.

        Heavy-ball momentum μ has `η (1 + μ)/(1 − μ)²`, Nesterov's `η (1 − μ + 2μ²)/(1 − μ)²`: from `ExactDrift`, where
        velocities are steady.
        """
        if self.name != "sgd" or self.decay or self.batch:
            return None
        momentum = self.momentum
        factor = 1.0 - momentum + 2.0 * momentum**2 if self.nesterov else 1.0 + momentum
        return self.rate * factor / (1.0 - momentum) ** 2


@dataclass(frozen=True)
class OptimizerStep:
    """One update: the parameters before it, and the two directions that made it.

    `next = theta − rate · direction`, and `gradient` is the (mini-batch) gradient without decay. `velocity` is what
    momentum carries on: the direction itself, unless momentum is Nesterov's.
    """

    theta: Floats
    next: Floats
    loss: float
    gradient: Floats
    direction: Floats
    velocity: Floats


def steps(problem: Problem, optimizer: Optimizer, count: int, *, seed: int = 0) -> Iterator[OptimizerStep]:
    """Run an optimiser; batches are drawn without replacement, epoch by epoch, from `seed`.

    >>> from lawful.training import problem
    >>> from lawful.network import Mlp
    >>> at = problem(Mlp([[[1.0]], [[2.0]]]), [[1.0]], [[6.0]])
    >>> [round(step.loss, 3) for step in steps(at, Optimizer("sgd", 0.05), 3)]
    [16.0, 2.822, 0.002]
    """
    move = (_sgd if optimizer.name == "sgd" else _adam)(optimizer)
    theta = np.array(problem.start)
    batches = _batches(problem, optimizer.batch, np.random.default_rng(seed))
    for _ in range(count):
        value = next(batches).evaluate(theta)
        after, direction, velocity = move(theta, value.gradient)
        yield OptimizerStep(theta, after, value.loss, value.gradient, direction, velocity)
        theta = after


Move = Callable[[Floats, Floats], tuple[Floats, Floats, Floats]]


def _sgd(optimizer: Optimizer) -> Move:
    buffer: Floats | None = None

    def move(theta: Floats, gradient: Floats) -> tuple[Floats, Floats, Floats]:
        nonlocal buffer
        slope = gradient + optimizer.decay * theta if optimizer.decay else gradient
        buffer = slope if buffer is None or not optimizer.momentum else optimizer.momentum * buffer + slope
        direction = slope + optimizer.momentum * buffer if optimizer.nesterov else buffer
        return theta - optimizer.rate * direction, direction, buffer

    return move


def _adam(optimizer: Optimizer, first: float = 0.9, second: float = 0.999, tiny: float = 1e-8) -> Move:
    mean: Floats | float = 0.0
    square: Floats | float = 0.0
    count = 0

    def move(theta: Floats, gradient: Floats) -> tuple[Floats, Floats, Floats]:
        nonlocal mean, square, count
        count += 1
        slope = gradient + optimizer.decay * theta if optimizer.name == "adam" else gradient
        mean = first * mean + (1 - first) * slope
        square = second * square + (1 - second) * slope**2
        direction = (mean / (1 - first**count)) / (np.sqrt(square / (1 - second**count)) + tiny)
        if optimizer.name == "adamw":
            direction = direction + optimizer.decay * theta
        return theta - optimizer.rate * direction, direction, direction

    return move


def _batches(problem: Problem, size: int, rng: np.random.Generator) -> Iterator[Problem]:
    if size > problem.samples:
        raise LawfulError(f"a batch of {size} is more than the {problem.samples} samples")
    while True:
        if not size:
            yield problem
            continue
        order = rng.permutation(problem.samples)
        for start in range(0, problem.samples - size + 1, size):
            yield problem.rows(order[start : start + size])


class ExactDrift:
    """What theory says a quadratic law becomes under sgd, step by step, from its gradients alone.

    With `θ⁺ = θ − η d`, `v⁺ = μ v + g + λθ` and `⟨∇c(θ), g⟩ = 0`, write `b(·,·)` for the bilinear form of c:
    `c⁺ = c − 2η b(θ, d) + η² c(d)`, and `p = b(θ, v⁺)` obeys `p⁺ = μ (p − η b(d, v⁺)) + λ c⁺`. The heavy ball has
    `d = v⁺`, so `b(θ, d) = p`; Nesterov's momentum has `d = g + λθ + μ v⁺`, so `b(θ, d) = λc + μp`. Without momentum
    this is `c⁺ = (1 − ηλ)² c + η² c(g)`: the decay law and the drift of gradient descent.
    """

    def __init__(self, laws: Quantities, optimizer: Optimizer, start: Floats) -> None:
        if optimizer.name != "sgd" or not laws.quadratic:
            raise LawfulError("the exact drift is known for sgd and quadratic laws")
        self.laws, self.optimizer = laws, optimizer
        self.value = laws.values(start)
        self._product = np.zeros_like(self.value)
        self._mixed = np.zeros_like(self.value)

    def update(self, step: OptimizerStep) -> Floats:
        """The value after one more step."""
        rate, momentum, decay = self.optimizer.rate, self.optimizer.momentum, self.optimizer.decay
        self._product = momentum * (self._product - rate * self._mixed) + decay * self.value
        square, along = self.laws.values(step.direction), self._product
        self._mixed = square
        if self.optimizer.nesterov:
            along = decay * self.value + momentum * self._product
            both, other = self.laws.values(step.direction + step.velocity), self.laws.values(step.velocity)
            self._mixed = (both - square - other) / 2.0
        self.value = self.value - 2.0 * rate * along + rate**2 * square
        return self.value


POINTS = 101  # at most this many records of a run
HUGE = 1e100  # an entry from which a run has diverged: its square is still a number, its loss need not be
# Times 1/(1 - momentum) steps: before that momentum has not got going (e^-4 of it, two percent, is missing), and the
# first order says nothing.
STEADY = 4


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
