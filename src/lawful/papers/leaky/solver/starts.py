"""Where to start: a path that is known, carried over to another effective depth or to more layers."""

from __future__ import annotations

import numpy as np
import torch
from scipy.interpolate import PchipInterpolator

from lawful.errors import LawfulError
from lawful.papers.leaky.mechanics import lift, operator_norm, ridges
from lawful.papers.leaky.model import LeakyResNet
from lawful.papers.leaky.steps import LARGEST_LEAK, cap_steps, positions
from lawful.papers.leaky.task import TeacherTask
from lawful.types import Floats


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
        sigma, kept = lift(state, network.softness), (1 - step * depth) * state
        (fit,) = ridges(sigma, gamma_ratio * operator_norm(sigma), (goals[layer + 1] - kept) / step)
        weights[layer] = fit.weights
        state = kept + step * (fit.weights @ sigma)
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
