"""From a start to a geodesic: L-BFGS with corrections, in legs that can be taken up again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from lawful.errors import Unsupported
from lawful.papers.leaky.model import LeakyResNet
from lawful.papers.leaky.solver.lbfgs import Point, minimise
from lawful.papers.leaky.solver.newton_corrector import DAMPING, newton_correction
from lawful.papers.leaky.solver.objective import Curvature, Objective
from lawful.papers.leaky.solver.starts import deepen
from lawful.papers.leaky.steps import adapt_steps, resample
from lawful.papers.leaky.task import TeacherTask

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

    After every leg a damped Newton step clears the gradient out of steep directions (`corrector`).
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
        last, best = _descend(objective, leg.network, until, goal, memory, rng, history, watch)
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


def _descend(
    objective: Objective,
    network: LeakyResNet,
    budget: int,
    tolerance: float,
    memory: int,
    rng: np.random.Generator,
    history: list[SolverProgress],
    watch: Watch | None,
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
        return entry.stationarity <= tolerance or objective.evaluations >= budget

    last = minimise(
        objective,
        network.weights.detach().numpy() * objective.roots,
        stop=stop,
        precondition=lambda: Curvature(objective, rng).solve,
        memory=memory,
        noise=0.0 if objective.precision is np.float64 else SINGLE_NOISE,
    )
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
    found: list[Geodesic] = []
    for depth in sorted(effective_depths):
        start = (
            deepen(found[-1].network, depth, task)
            if found
            else network.replaced(network.weights, effective_depth=depth)
        )
        found.append(
            solve(start, task, ridge, tolerance=tolerance, evaluations=evaluations, adaptations=adaptations, seed=seed)
        )
    return found
