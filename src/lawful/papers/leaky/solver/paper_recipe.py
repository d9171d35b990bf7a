"""The paper's own training, Adam and then SGD (P3 Appendix B), to compare the solver with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from lawful.errors import LawfulError
from lawful.papers.leaky.model import LeakyResNet, TeacherTask, adapt_steps
from lawful.papers.leaky.solver.geodesic import Geodesic, SolverProgress, Watch
from lawful.papers.leaky.solver.objective import Objective
from lawful.types import Floats

KEEP_EVERY = 100  # steps


@dataclass(frozen=True, eq=False)
class RecipeState:
    """Where the recipe stands before a step: the network, and Adam's two moments of each parameter."""

    network: LeakyResNet
    step: int = 0
    moments: tuple[Floats, ...] = ()


def recipe(
    start: LeakyResNet | RecipeState,
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
    keep: Callable[[RecipeState], None] | None = None,
) -> Geodesic:
    """The paper's training: Adam, then SGD with a smaller rate to tighten; full batches throughout.

    `adapt_every` steps the layer steps are adapted. Learned maps are trained along. `keep` hears of the state every
    hundred steps: the recipe goes on from it to the same bytes.
    """
    if min(adam, sgd, adapt_every) < 0 or not adam + sgd:
        raise LawfulError("the recipe needs a positive number of steps")
    at = start if isinstance(start, RecipeState) else RecipeState(start)
    net = at.network.replaced(at.network.weights)
    objective = Objective(net, task, ridge)
    inputs, targets = torch.from_numpy(task.inputs.copy()), torch.from_numpy(task.targets.copy())
    chosen = [parameter for parameter in net.parameters() if parameter.requires_grad]
    optimiser = _optimiser(chosen, at, adam, rate, sgd_rate)
    history: list[SolverProgress] = []
    for step in range(at.step, adam + sgd):
        if step == adam:
            optimiser = torch.optim.SGD(chosen, lr=sgd_rate)
        if adapt_every and at.step < step < adam and step % adapt_every == 0:
            net.steps.copy_(torch.from_numpy(adapt_steps(objective.steps, objective.states, net.effective_depth)))
            objective.steps[:] = net.steps.numpy()
            objective.roots[:] = np.sqrt(objective.steps)[:, None, None]
        if keep is not None and step > at.step and step % KEEP_EVERY == 0:
            keep(RecipeState(net.replaced(net.weights), step, _moments(optimiser, chosen)))
        cost, gradient = _cost_and_gradients(net, objective, inputs, targets)
        history.append(SolverProgress(step + 1, cost, gradient))
        if watch is not None:
            watch(history[-1])
        optimiser.step()
    cost, stationarity = _cost_and_gradients(net, objective, inputs, targets)
    return Geodesic(net, ridge, cost, objective.data_cost, stationarity, tolerance, adam + sgd, tuple(history))


def _optimiser(
    chosen: list[torch.nn.Parameter], at: RecipeState, adam: int, rate: float, sgd_rate: float
) -> torch.optim.Optimizer:
    """The optimiser of a step, Adam with the moments that it had."""
    if at.step > adam:
        return torch.optim.SGD(chosen, lr=sgd_rate)
    optimiser = torch.optim.Adam(chosen, lr=rate)
    for parameter, first, second in zip(chosen, at.moments[::2], at.moments[1::2], strict=False):
        optimiser.state[parameter] = {
            "step": torch.tensor(float(at.step)),
            "exp_avg": torch.from_numpy(first.copy()),
            "exp_avg_sq": torch.from_numpy(second.copy()),
        }
    return optimiser


def _moments(optimiser: torch.optim.Optimizer, chosen: list[torch.nn.Parameter]) -> tuple[Floats, ...]:
    """Adam's first and second moment of each parameter; SGD has none."""
    return tuple(
        optimiser.state[parameter][name].numpy().copy()
        for parameter in chosen
        for name in ("exp_avg", "exp_avg_sq")
        if name in optimiser.state[parameter]
    )


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
