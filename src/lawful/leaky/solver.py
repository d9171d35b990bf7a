"""Two ways to a geodesic: a second-order solver, and the paper's recipe of Adam and SGD (P3 Appendix B)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy.interpolate import PchipInterpolator

from lawful.errors import LawfulError, Unsupported
from lawful.leaky.corrector import corrected
from lawful.leaky.lbfgs import Point, minimise
from lawful.leaky.mechanics import lifted, operator_norm, ridges
from lawful.leaky.model import LeakyResNet
from lawful.leaky.objective import Curvature, Objective
from lawful.leaky.steps import LARGEST_LEAK, adapted, capped, positions, resampled
from lawful.leaky.task import TeacherTask
from lawful.types import Floats

ADAPT_AFTER = 60  # evaluations between two adaptations of the steps
SINGLE_NOISE = 1e-7  # relative error of a cost whose passes were in single precision
STRETCH = 300  # evaluations before the first correction
ALMOST = 0.98  # of the tolerance is asked of single precision, so that double agrees
SINGLE_FLOOR = 1e-4  # a stationarity that single precision still sees
SAME_COST = 1e-3  # relative: costs so close belong to the same geodesic
Watch = Callable[["SolverProgress"], None]
Keep = Callable[[Callable[[], LeakyResNet], int], None]


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


def solve(
    network: LeakyResNet,
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

    From time to time a damped Newton step clears the gradient out of steep directions (`corrector`).
    `adaptations` times, early on, the layer steps are adapted to the path found so far and `W_p` is carried over to
    the new grid. The passes are in single precision until they reach the tolerance, or 1e-4; double precision then has
    the last word, and goes on if it disagrees. Curvature estimates count as evaluations. An unconverged result is
    returned as such. `watch` hears of every iteration; `keep` is offered the network of every iteration, made when
    asked for, and the evaluations so far.
    """
    if network.learns_maps:
        raise Unsupported(
            "with learned maps the cost need not have a minimum (weights shrink while the map out grows): "
            "fix the maps to find geodesics, or use `recipe` to train them along"
        )
    rng = np.random.default_rng(seed)
    history: list[SolverProgress] = []
    spent = 0
    for stage in range(adaptations + 2):
        last = stage > adaptations
        budget = evaluations if stage >= adaptations else min(spent + ADAPT_AFTER, evaluations)
        objective = Objective(network, task, ridge, np.float64 if last else np.float32)
        objective.evaluations = spent
        goal = tolerance if last else max(ALMOST * tolerance, SINGLE_FLOOR)
        told = (history, watch, keep)
        if stage < adaptations:
            point = _descend(objective, network, budget, goal, memory, rng, *told)
        else:
            point = _descend_and_correct(objective, network, budget, goal, memory, rng, *told)
        spent = objective.evaluations
        network = network.replaced(point.position / objective.roots)
        if stage < adaptations:
            objective(point.position)  # the buffers may belong to a trial of the line search
            steps = adapted(objective.steps, objective.states, network.effective_depth)
            weights = resampled(point.position / objective.roots, objective.steps, steps)
            network, spent = network.replaced(weights, steps), spent + 1
    cost, gradient = objective(point.position)
    return Geodesic(
        network=network,
        ridge=ridge,
        cost=cost,
        data_cost=objective.data_cost,
        stationarity=objective.stationarity(point.position, gradient),
        tolerance=tolerance,
        evaluations=spent + 1,
        history=tuple(history),
    )


def _descend_and_correct(
    objective: Objective,
    network: LeakyResNet,
    budget: int,
    tolerance: float,
    memory: int,
    rng: np.random.Generator,
    history: list[SolverProgress],
    watch: Watch | None,
    keep: Keep | None,
) -> Point:
    """L-BFGS, and from time to time a step that clears steep directions: rarer where it does not help much."""
    stretch = STRETCH
    while True:
        until = min(objective.evaluations + stretch, budget)
        point = _descend(objective, network, until, tolerance, memory, rng, history, watch, keep)
        before = objective.stationarity(point.position, point.gradient)
        if before <= tolerance or objective.evaluations >= budget:
            return point
        objective(point.position)
        point = corrected(objective, point, Curvature(objective, rng).solve)
        network = network.replaced(point.position / objective.roots)
        after = objective.stationarity(point.position, point.gradient)
        if after > before / 2:
            stretch *= 2


def _descend(
    objective: Objective,
    network: LeakyResNet,
    budget: int,
    tolerance: float,
    memory: int,
    rng: np.random.Generator,
    history: list[SolverProgress],
    watch: Watch | None,
    keep: Keep | None,
) -> Point:
    """Until the tolerance or the end of the budget; then the most stationary point of nearly the last cost.

    The stationarity goes up and down by a factor of ten while the cost creeps: the last point is rarely the best.
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
        if keep is not None:
            keep(lambda: network.replaced(point.position / objective.roots), objective.evaluations)
        return entry.stationarity <= tolerance or objective.evaluations >= budget

    last = minimise(
        objective,
        network.weights.detach().numpy() * objective.roots,
        stop=stop,
        precondition=lambda: Curvature(objective, rng).solve,
        memory=memory,
        noise=0.0 if objective.precision is np.float64 else SINGLE_NOISE,
    )
    return last if best is None else best[1]


def deepened(network: LeakyResNet, effective_depth: float, task: TeacherTask, gamma_ratio: float = 1e-3) -> LeakyResNet:
    """A start for another effective depth that follows the same path of representations.

    Layer by layer, `W` is the ridge regression of the step that the old path takes next, from where the new path is:
    errors do not add up. Steps are capped so that every layer remembers some of its input.
    """
    with torch.no_grad():
        states = torch.stack(network.path(torch.from_numpy(task.inputs.copy()))).numpy()
    steps = network.steps.numpy()
    grid = capped(steps.copy(), float(steps.sum()), LARGEST_LEAK / effective_depth)
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
        sigma, kept = lifted(state, network.softness), (1 - step * depth) * state
        (fit,) = ridges(sigma, gamma_ratio * operator_norm(sigma), (goals[layer + 1] - kept) / step)
        weights[layer] = fit.weights
        state = kept + step * (fit.weights @ sigma)
    return network.replaced(weights, grid, depth)


def refined(network: LeakyResNet, layers: int, task: TeacherTask) -> LeakyResNet:
    """The same path of representations with more layers: a geodesic on a coarse grid is a start on a finer one.

    Steps keep their shape; the path between the old layers is interpolated, and each `W` is the ridge regression of the
    step that the path takes next, as in `deepened`.
    """
    if layers < network.layers:
        raise LawfulError(f"{layers} layers are fewer than the {network.layers} that there are")
    ends = positions(network.steps.numpy())
    grid = np.diff(np.interp(np.linspace(0, network.layers, layers + 1), np.arange(network.layers + 1.0), ends))
    with torch.no_grad():
        states = torch.stack(network.path(torch.from_numpy(task.inputs.copy()))).numpy()
    return _following(network, PchipInterpolator(ends, states, axis=0)(positions(grid).clip(max=ends[-1])), grid)


def recipe(
    network: LeakyResNet,
    task: TeacherTask,
    ridge: float,
    *,
    adam: int = 20_000,
    sgd: int = 10_000,
    rate: float = 1e-3,
    sgd_rate: float = 1e-3,
    adapt_every: int = 0,
    tolerance: float = 1e-3,
    watch: Watch | None = None,
) -> Geodesic:
    """The paper's training: Adam, then SGD with a smaller rate to tighten; full batches throughout.

    `adapt_every` steps the layer steps are adapted. Learned maps are trained along.
    """
    if min(adam, sgd, adapt_every) < 0 or not adam + sgd:
        raise LawfulError("the recipe needs a positive number of steps")
    net = network.replaced(network.weights)
    objective = Objective(net, task, ridge)
    inputs, targets = torch.from_numpy(task.inputs.copy()), torch.from_numpy(task.targets.copy())
    chosen = [parameter for parameter in net.parameters() if parameter.requires_grad]
    optimiser: torch.optim.Optimizer = torch.optim.Adam(chosen, lr=rate)
    history: list[SolverProgress] = []
    for step in range(adam + sgd):
        if step == adam:
            optimiser = torch.optim.SGD(chosen, lr=sgd_rate)
        if adapt_every and step and step % adapt_every == 0 and step < adam:
            net.steps.copy_(torch.from_numpy(adapted(objective.steps, objective.states, net.effective_depth)))
            objective.steps[:] = net.steps.numpy()
            objective.roots[:] = np.sqrt(objective.steps)[:, None, None]
        cost, gradient = _cost_and_gradients(net, objective, inputs, targets)
        history.append(SolverProgress(step + 1, cost, gradient))
        if watch is not None:
            watch(history[-1])
        optimiser.step()
    cost, stationarity = _cost_and_gradients(net, objective, inputs, targets)
    return Geodesic(net, ridge, cost, objective.data_cost, stationarity, tolerance, adam + sgd, tuple(history))


def _cost_and_gradients(
    net: LeakyResNet, objective: Objective, inputs: torch.Tensor, targets: torch.Tensor
) -> tuple[float, float]:
    """Set the gradients of the parameters; return cost and stationarity. Learned maps need autograd."""
    if net.learns_maps:
        net.zero_grad()
        cost = net.cost(inputs, targets, objective.ridge)
        cost.backward()  # type: ignore[no-untyped-call]
        assert net.weights.grad is not None  # noqa: S101 - backward fills it
        gradient = net.weights.grad.numpy() / objective.roots
        point = net.weights.detach().numpy() * objective.roots
        with torch.no_grad():
            objective.states[:] = torch.stack(net.path(inputs)).numpy()
            objective.data_cost = float((net(inputs) - targets).square().sum()) / len(inputs)
        return float(cost.detach()), objective.stationarity(point, gradient)
    point = net.weights.detach().numpy() * objective.roots
    value, gradient = objective(point)
    net.weights.grad = torch.from_numpy(gradient * objective.roots)
    return value, objective.stationarity(point, gradient)


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
            deepened(found[-1].network, depth, task)
            if found
            else network.replaced(network.weights, effective_depth=depth)
        )
        found.append(
            solve(start, task, ridge, tolerance=tolerance, evaluations=evaluations, adaptations=adaptations, seed=seed)
        )
    return found
