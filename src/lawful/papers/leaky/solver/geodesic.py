"""From a start to a geodesic: L-BFGS with corrections, in legs that can be taken up again.

Idea: L-BFGS on all weights, preconditioned by a Kronecker model of the Gauss-Newton matrix, lowers the cost in the many
flat directions; what it leaves in the few steep ones a damped Newton step clears after every leg. Early legs run in
single precision, at half the price, and the last in double, which has the last word. Invariant: a leg holds all that
the search needs, so that a run which was killed ends at the same bytes, and what is called a geodesic is stationary to
the tolerance on the network as it is stored. Cost: an evaluation is a forward and a backward pass over all samples; a
product with the Hessian is two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

import numpy as np
import torch
from scipy.interpolate import PchipInterpolator

from lawful.errors import LawfulError, Unsupported
from lawful.papers.leaky.mechanics import lift, operator_norm, ridges
from lawful.papers.leaky.model import (
    LARGEST_LEAK,
    LeakyResNet,
    TeacherTask,
    adapt_steps,
    cap_steps,
    positions,
    resample,
)
from lawful.papers.leaky.solver.lbfgs import Point, Solve, minimise
from lawful.papers.leaky.solver.objective import Curvature, Objective
from lawful.types import Floats, Singles

# Where to start: a path that is known, carried over to another effective depth or to more layers.


def deepen(network: LeakyResNet, effective_depth: float, task: TeacherTask, gamma_ratio: float = 1e-3) -> LeakyResNet:
    """A start for another effective depth that follows the same path of representations.

    Layer by layer, `W` is the ridge regression of the step that the old path takes next, from where the new path is:
    errors do not add up. Steps are capped so that every layer remembers some of its input.
    """
    with torch.no_grad():
        states = torch.stack(network.path(torch.from_numpy(task.inputs.copy()))).numpy()
    steps = network.steps.numpy()
    grid = cap_steps(steps.copy(), float(steps.sum()), LARGEST_LEAK / effective_depth)
    places = np.interp(positions(grid), positions(steps), np.arange(len(steps) + 1.0))
    below = np.minimum(places.astype(int), len(steps) - 1)
    share = (places - below)[:, None, None]
    goals = (1 - share) * states[below] + share * states[below + 1]
    return _following(network, goals, grid, effective_depth, gamma_ratio)


def _following(
    network: LeakyResNet, goals: Floats, grid: Floats, effective_depth: float | None = None, gamma_ratio: float = 1e-3
) -> LeakyResNet:
    """The network whose path follows the goals `A_0, …, A_L` by ridge regressions, layer by layer."""
    depth = network.effective_depth if effective_depth is None else effective_depth
    weights, state = np.empty((len(grid), network.width, network.width + 1)), goals[0]
    for layer, step in enumerate(grid):
        sigma, leaked = lift(state, network.softness), (1 - step * depth) * state
        (fit,) = ridges(sigma, gamma_ratio * operator_norm(sigma), (goals[layer + 1] - leaked) / step)
        weights[layer] = fit.weights
        state = leaked + step * (fit.weights @ sigma)
    return network.replaced(weights, grid, depth)


def change_grid(network: LeakyResNet, layers: int, task: TeacherTask, steps: Floats | None = None) -> LeakyResNet:
    """The same path of representations with more layers, or with fewer: a geodesic on one grid is a start on another.

    Steps keep their shape unless new ones are given; the path between the old layers is interpolated, and each `W` is
    the ridge regression of the step that the path takes next, as in `deepen`.
    """
    if layers < 1 or (steps is not None and len(steps) != layers):
        raise LawfulError(f"{layers} layers need as many steps, and at least one")
    if layers == network.layers and steps is None:
        return network
    ends = positions(network.steps.numpy())
    places = np.linspace(0, network.layers, layers + 1)
    grid = np.diff(np.interp(places, np.arange(network.layers + 1.0), ends)) if steps is None else steps
    with torch.no_grad():
        states = torch.stack(network.path(torch.from_numpy(task.inputs.copy()))).numpy()
    return _following(network, PchipInterpolator(ends, states, axis=0)(positions(grid).clip(max=ends[-1])), grid)


# A damped Newton step that clears the gradient out of steep directions, where L-BFGS leaves it.

DAMPING = 10.0  # in units of the weight decay's curvature: flatter directions are left to L-BFGS
PRODUCTS = 20  # with the Hessian, at most
ENOUGH = 0.03  # of the gradient
PAUSE, WORTHWHILE = 3, 0.97  # so many products must leave at most this share of the residual
HALVINGS = 5
NOISE = 1e-6  # relative: costs so close are the same


class Hessian:
    """Products with the second derivative of an objective at its last point, each at the price of two evaluations."""

    def __init__(self, objective: Objective) -> None:
        """Keep what the products need; nobody may evaluate the objective while they are used."""
        self.objective = objective
        self.pulls = np.matmul(objective.moves[:, :, :-1].transpose(0, 2, 1), objective.momenta)
        self.bends: Floats | None = None
        if objective.softness:
            inside = (objective.slopes > 0) & (objective.slopes < 1)
            self.bends = (inside * self.pulls / (2 * objective.softness)).astype(objective.precision)

    def __call__(self, direction: Singles) -> Singles:
        """`H d`: the tangent of the forward pass, then of the backward pass."""
        model = self.objective
        roots, keep = model.roots.astype(np.float32), (1 - model.steps * model.depth).tolist()
        turns, layers = direction * roots, len(model.steps)
        states, lifted = np.zeros_like(model.slopes), np.empty_like(model.slopes)
        state = np.zeros_like(model.slopes[0])
        for layer in range(layers):
            states[layer] = state
            np.multiply(model.slopes[layer], state, out=lifted[layer])
            ahead = turns[layer] @ model.lifted[layer] + model.moves[layer, :, :-1] @ lifted[layer]
            state = keep[layer] * state + ahead
        result = np.empty(direction.shape, model.precision)
        behind = model.out.T @ (model.out @ state) * (2 / model.targets.shape[1])
        for layer in reversed(range(layers)):
            np.matmul(behind, model.lifted[layer].T, out=result[layer])
            result[layer, :, :-1] += model.momenta[layer] @ lifted[layer].T
            before = model.moves[layer, :, :-1].T @ behind + turns[layer, :, :-1].T @ model.momenta[layer]
            before *= model.slopes[layer]
            if self.bends is not None:
                before += self.bends[layer] * states[layer]
            behind = (before + keep[layer] * behind).astype(model.precision, copy=False)
        result *= roots
        result += (model.ridge / model.depth) * direction
        model.evaluations += 2
        return result.astype(np.float32, copy=False)


def newton_correction(
    objective: Objective, point: Point, precondition: Solve, damping: float = DAMPING, enough: float = ENOUGH
) -> Point:
    """The step with the smallest `‖g + (H + μ) d‖` of a few, halved until the gradient is smaller at no higher cost.

    Conjugate residuals: each product with the Hessian is made orthogonal to those before it, and takes its share of
    what is left of the gradient. Conjugate gradients would lower the model of the cost, and let the gradient, which is
    what a geodesic is judged by, go up and down. If no step is better, the same point.
    """
    objective(point.position)
    hessian, added = Hessian(objective), np.float32(damping * objective.ridge / objective.depth)
    step = np.zeros(point.gradient.shape, np.float32)
    rest = (-point.gradient).astype(np.float32)
    ways: list[tuple[Singles, Singles]] = []  # directions and their products, which are orthonormal
    sizes = [float(np.linalg.norm(rest))]
    while len(ways) < PRODUCTS and sizes[-1] > enough * sizes[0]:
        way = precondition(rest)
        image = hessian(way) + added * way
        for other, orthogonal in ways:
            share = np.float32(np.vdot(orthogonal, image))
            image -= share * orthogonal
            way -= share * other
        size = np.float32(np.linalg.norm(image))
        if not size > 0:
            break
        way /= size
        image /= size
        share = np.float32(np.vdot(image, rest))
        step += share * way
        rest -= share * image
        ways.append((way, image))
        sizes.append(float(np.linalg.norm(rest)))
        if len(sizes) > PAUSE and sizes[-1] > WORTHWHILE * sizes[-1 - PAUSE]:
            break
    before = float(np.linalg.norm(point.gradient))
    for halving in range(HALVINGS):
        position = point.position + 0.5**halving * step
        trial = Point(position, *objective(position))
        if trial.value <= (1 + NOISE) * point.value and float(np.linalg.norm(trial.gradient)) < before:
            return trial
    return point


ADAPT_AFTER = 60  # evaluations between two adaptations of the steps
SINGLE_NOISE = 1e-7  # relative error of a cost whose passes were in single precision
LEG = 200  # evaluations between two starts of L-BFGS
ALMOST = 0.98  # of the tolerance is asked of single precision, so that double agrees
SINGLE_FLOOR = 1e-4  # a stationarity that single precision still sees
NEAR = 1.6  # times the goal: a second correction may reach it
REACH = 0.9  # of the goal is asked of the model of a correction
SAME_COST = 1e-3  # relative: costs so close belong to the same geodesic
Watch = Callable[["SolverProgress"], None]
Keep = Callable[["Leg"], None]


@dataclass(frozen=True)
class SolverProgress:
    """One line of a solver's history."""

    evaluations: int
    cost: float
    stationarity: float


@dataclass(frozen=True, eq=False)
class Geodesic:
    """A trained network and the evidence for it: `stationarity = ‖W - L̃ B σ(A)ᵀ‖ / ‖W‖`."""

    network: LeakyResNet
    ridge: float
    cost: float
    data_cost: float
    stationarity: float
    tolerance: float
    evaluations: int
    history: tuple[SolverProgress, ...]

    @property
    def converged(self) -> bool:
        """Whether the stationarity reached the tolerance."""
        return self.stationarity <= self.tolerance

    def evaluations_to(self, stationarity: float) -> int | None:
        """Gradient evaluations until this stationarity was first reached, None if it never was."""
        for entry in self.history:
            if entry.stationarity <= stationarity:
                return entry.evaluations
        return None


@dataclass(frozen=True, eq=False)
class Leg:
    """Where a search stands between two starts of L-BFGS: all it needs, so that it ends at the same bytes from here."""

    network: LeakyResNet
    spent: int = 0  # evaluations
    stage: int = 0  # adaptations behind it; after the last of them single precision, then double, then the end


def solve(
    start: LeakyResNet | Leg,
    task: TeacherTask,
    ridge: float,
    *,
    tolerance: float = 1e-3,
    evaluations: int = 5000,
    adaptations: int = 0,
    memory: int = 12,
    seed: int = 0,
    watch: Watch | None = None,
    keep: Keep | None = None,
) -> Geodesic:
    """Minimise the regularised cost by L-BFGS, preconditioned by a Kronecker model of the Gauss-Newton matrix.

    After every leg a damped Newton step clears the gradient out of steep directions (`newton_correction`).
    `adaptations` times, early on, the layer steps are adapted to the path found so far and `W_p` is carried over to
    the new grid. The passes are in single precision until they reach the tolerance, or 1e-4; double precision then has
    the last word, and goes on if it disagrees. Curvature estimates count as evaluations. An unconverged result is
    returned as such. `watch` hears of every iteration, `keep` of every leg: a search that starts from a leg ends at the
    same bytes as the one that made it.
    """
    leg = start if isinstance(start, Leg) else Leg(start)
    if leg.network.learns_maps:
        raise Unsupported(
            "with learned maps the cost need not have a minimum (weights shrink while the map out grows): "
            "fix the maps to find geodesics, or use `recipe` to train them along"
        )
    history: list[SolverProgress] = []
    while leg.stage <= adaptations + 1 and leg.spent < evaluations:
        double = leg.stage > adaptations
        objective = Objective(leg.network, task, ridge, np.float64 if double else np.float32)
        objective.evaluations = leg.spent
        goal = tolerance if double else max(ALMOST * tolerance, SINGLE_FLOOR)
        until = min(leg.spent + (ADAPT_AFTER if leg.stage < adaptations else LEG), evaluations)
        rng = np.random.default_rng((seed, leg.spent))
        last, best = descend(
            objective, leg.network.weights.detach().numpy() * objective.roots,
            partial(_precondition, objective, rng),
            budget=until, tolerance=goal, memory=memory, history=history, watch=watch,
            noise=0.0 if double else SINGLE_NOISE,
        )  # fmt: skip
        if leg.stage < adaptations:
            leg = _adapt_steps(leg, objective, best)
        elif objective.stationarity(last.position, last.gradient) <= goal:
            leg = replace(leg, network=leg.network.replaced(last.position / objective.roots), stage=leg.stage + 1)
        elif objective.evaluations >= evaluations:  # the stationarity goes up and down: the last is rarely the best
            leg = replace(leg, network=leg.network.replaced(best.position / objective.roots))
        else:
            leg = _correct(leg, objective, last, goal, rng)
        leg = replace(leg, spent=objective.evaluations)
        if keep is not None:
            keep(leg)
    objective = Objective(leg.network, task, ridge)
    position = leg.network.weights.detach().numpy() * objective.roots
    cost, gradient = objective(position)
    return Geodesic(
        network=leg.network,
        ridge=ridge,
        cost=cost,
        data_cost=objective.data_cost,
        stationarity=objective.stationarity(position, gradient),
        tolerance=tolerance,
        evaluations=leg.spent + 1,
        history=tuple(history),
    )


def _adapt_steps(leg: Leg, objective: Objective, point: Point) -> Leg:
    """The layer steps adapted to the path, `W_p` carried over to them."""
    objective(point.position)  # the buffers may belong to a trial of the line search
    steps = adapt_steps(objective.steps, objective.states, leg.network.effective_depth)
    weights = resample(point.position / objective.roots, objective.steps, steps)
    return replace(leg, network=leg.network.replaced(weights, steps), stage=leg.stage + 1)


def _correct(leg: Leg, objective: Objective, point: Point, goal: float, rng: np.random.Generator) -> Leg:
    """On from the last point, the lowest, with steep directions cleared.

    Not from the most stationary point: with costs so close that would undo the leg. Close to the goal a second
    correction, less damped, reaches flatter directions too.
    """
    after, damping = objective.stationarity(point.position, point.gradient), DAMPING
    while damping == DAMPING or (goal < after < NEAR * goal and damping > DAMPING / 10):
        objective(point.position)
        near = Curvature(objective, rng, damping=damping).solve
        point = newton_correction(objective, point, near, damping, REACH * goal / after)
        after, damping = objective.stationarity(point.position, point.gradient), damping / 3
    return replace(leg, network=leg.network.replaced(point.position / objective.roots))


def _precondition(objective: Objective, rng: np.random.Generator) -> Solve:
    return Curvature(objective, rng).solve


class Stationary(Protocol):
    """A cost that counts its evaluations and says how far a point is from stationary."""

    evaluations: int

    def __call__(self, position: Floats, /) -> tuple[float, Floats]:
        """Cost and gradient."""
        ...

    def stationarity(self, position: Floats, gradient: Floats, /) -> float:
        """The gradient in units of what decay of the weights would do."""
        ...


def descend(
    objective: Stationary,
    start: Floats,
    precondition: Callable[[], Solve],
    *,
    budget: int,
    tolerance: float,
    memory: int,
    history: list[SolverProgress],
    watch: Watch | None,
    noise: float = 0.0,
) -> tuple[Point, Point]:
    """Until the tolerance or the end of the budget: the last point, and the most stationary one of nearly its cost.

    The stationarity goes up and down by a factor of ten while the cost creeps.
    """
    best: tuple[float, Point] | None = None

    def stop(point: Point) -> bool:
        nonlocal best
        entry = SolverProgress(
            objective.evaluations, point.value, objective.stationarity(point.position, point.gradient)
        )
        history.append(entry)
        if best is None or entry.stationarity <= best[0] or point.value < (1 - SAME_COST) * best[1].value:
            best = entry.stationarity, point
        if watch is not None:
            watch(entry)
        return entry.stationarity <= tolerance or entry.evaluations >= budget

    last = minimise(objective, start, stop=stop, precondition=precondition, memory=memory, noise=noise)
    return last, last if best is None else best[1]


def solve_depths(
    network: LeakyResNet,
    task: TeacherTask,
    ridge: float,
    effective_depths: Sequence[float],
    *,
    tolerance: float = 1e-3,
    evaluations: int = 5000,
    adaptations: int = 0,
    seed: int = 0,
) -> list[Geodesic]:
    """Geodesics over increasing effective depths, each started from the one before.

    A cold start at a large effective depth tends to die at the zero representation; a chain of warm ones does not.
    """
    geodesics: list[Geodesic] = []
    for depth in sorted(effective_depths):
        start = (
            deepen(geodesics[-1].network, depth, task)
            if geodesics
            else network.replaced(network.weights, effective_depth=depth)
        )
        geodesics.append(
            solve(start, task, ridge, tolerance=tolerance, evaluations=evaluations, adaptations=adaptations, seed=seed)
        )
    return geodesics
