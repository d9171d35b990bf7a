"""Leaky ResNets whose maps in and out are learned along, with a penalty that keeps them from running away."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from lawful.errors import LawfulError
from lawful.papers.leaky.model import LeakyResNet, TeacherTask
from lawful.papers.leaky.solver.geodesic import LEG, Geodesic, Keep, Leg, SolverProgress, Watch, descend
from lawful.papers.leaky.solver.objective import Curvature, Objective
from lawful.types import Floats, Singles


class MappedObjective:
    """`f(V, M, O) = C(O A_L) + λ/(2L̃) ‖V‖² + (μ/2)(‖M‖² + ‖O‖²)`, with `A_0 = M X`: all as one vector."""

    def __init__(self, network: LeakyResNet, task: TeacherTask, ridge: float, penalty: float) -> None:
        """Fix the task, the steps, λ and μ."""
        if not (np.isfinite(penalty) and penalty > 0):
            raise LawfulError(
                f"the penalty on learned maps must be positive, got {penalty}: without one the cost need not have a "
                "minimum (weights shrink while the map out grows)"
            )
        if network.into is None or network.out is None:
            raise LawfulError("the network has no maps in and out to learn")
        self.path = Objective(network, task, ridge)
        self.network, self.task, self.penalty = network, task, float(penalty)
        self.shapes = tuple(network.weights.shape), tuple(network.into.shape), tuple(network.out.shape)
        self.ends = np.cumsum([np.prod(shape) for shape in self.shapes])

    @property
    def evaluations(self) -> int:
        """Passes so far, those for curvature estimates too."""
        return self.path.evaluations

    @evaluations.setter
    def evaluations(self, spent: int) -> None:
        self.path.evaluations = spent

    @property
    def start(self) -> Floats:
        """Where the network stands."""
        assert self.network.into is not None and self.network.out is not None  # noqa: S101, PT018 (checked above)
        parts = self.network.weights, self.network.into, self.network.out
        weights, into, out = (part.detach().numpy() for part in parts)
        return np.concatenate([(weights * self.path.roots).ravel(), into.ravel(), out.ravel()])

    def split(self, point: Floats) -> list[Floats]:
        """`V`, `M` and `O`."""
        parts = np.split(point, self.ends[:-1])
        return [part.reshape(shape) for part, shape in zip(parts, self.shapes, strict=True)]

    def __call__(self, point: Floats) -> tuple[float, Floats]:
        """Cost and gradient."""
        weights, into, out = self.split(point)
        self.path.states[0] = into @ self.task.inputs.T
        self.path.out = out
        value, slope = self.path(weights)
        samples = len(self.task)
        residual = (out @ self.path.states[-1] - self.path.targets) * (2 / samples)
        behind = self.path.backward(0, self.path.momenta[0])
        into_slope = behind @ self.task.inputs + self.penalty * into
        out_slope = residual @ self.path.states[-1].T + self.penalty * out
        cost = value + self.penalty / 2 * float(np.vdot(into, into) + np.vdot(out, out))
        return cost, np.concatenate([slope.ravel(), into_slope.ravel(), out_slope.ravel()])

    def stationarity(self, point: Floats, gradient: Floats) -> float:
        """The larger of the path's and the maps' gradient, each in units of what its own decay would do."""
        (weights, into, out), (slope, *maps) = self.split(point), self.split(gradient)
        sizes = [float(np.linalg.norm(map_)) for map_ in (into, out)]
        shares = [
            float(np.linalg.norm(map_)) / (self.penalty * size) if size else np.inf
            for map_, size in zip(maps, sizes, strict=True)
        ]
        return float(np.max([self.path.stationarity(weights, slope), *shares]))  # NaN stays: Python's max may drop it

    def curvature(self, rng: np.random.Generator) -> Callable[[Singles], Singles]:
        """An approximate inverse: the layers' own blocks, and for each map the second moments on its two sides."""
        layers = Curvature(self.path, rng)
        samples = len(self.task)
        inputs, last = self.task.inputs.T, self.path.states[-1]
        behind = np.zeros((self.shapes[1][0], self.shapes[1][0]))
        signs = rng.choice([-1.0, 1.0], size=self.path.targets.shape)
        carried = self.path.out.T @ signs
        for layer in reversed(range(len(self.path.steps))):
            carried = self.path.backward(layer, carried)
        behind += carried @ carried.T / samples
        left, left_basis = np.linalg.eigh(behind)
        right, right_basis = np.linalg.eigh(inputs @ inputs.T / samples)
        into = 1 / (2 * np.maximum(left, 0)[:, None] * np.maximum(right, 0)[None, :] + self.penalty)
        values, basis = np.linalg.eigh(last @ last.T / samples)
        out = 1 / (2 * np.maximum(values, 0)[None, :] + self.penalty)

        def solve(gradient: Singles) -> Singles:
            slope, into_slope, out_slope = self.split(gradient.astype(np.float64))
            first = left_basis @ ((left_basis.T @ into_slope @ right_basis) * into) @ right_basis.T
            second = ((out_slope @ basis) * out) @ basis.T
            step = layers.solve(slope.astype(np.float32))
            return np.concatenate([step.ravel(), first.ravel(), second.ravel()]).astype(np.float32)

        return solve

    def replaced(self, point: Floats) -> LeakyResNet:
        """The network at a point."""
        weights, into, out = self.split(point)
        return LeakyResNet(
            weights / self.path.roots, self.network.effective_depth, self.network.steps.numpy(), into=into, out=out,
            softness=self.network.softness,
        )  # fmt: skip


def solve_with_maps(
    start: LeakyResNet | Leg,
    task: TeacherTask,
    ridge: float,
    penalty: float,
    *,
    tolerance: float = 1e-3,
    evaluations: int = 5000,
    memory: int = 12,
    seed: int = 0,
    watch: Watch | None = None,
    keep: Keep | None = None,
) -> Geodesic:
    """Minimise over weights and both maps at once, `(penalty / 2)(‖into‖² + ‖out‖²)` added to the cost.

    The path of the result is a geodesic between the ends that its maps choose. Steps stay as they are: adapt them with
    `solve` first. Best among points of nearly the last cost is the most stationary one, as for `solve`.

    >>> from lawful.papers.leaky import teacher
    >>> train, _ = teacher((3, 1, 3), 20)
    >>> start = LeakyResNet.random(width=5, layers=4, effective_depth=1.0, inputs=3, outputs=3, softness=0.05)
    >>> found = solve_with_maps(start, train, 0.05, 0.05, tolerance=0.05)
    >>> found.converged, bool(np.allclose(found.network.into.numpy(force=True), start.into.numpy(force=True)))
    (True, False)
    """
    leg = start if isinstance(start, Leg) else Leg(start)
    history: list[SolverProgress] = []
    while not leg.stage:  # 1 is the end
        objective = MappedObjective(leg.network, task, ridge, penalty)
        objective.evaluations = leg.spent
        rng = np.random.default_rng((seed, leg.spent))
        until = min(leg.spent + LEG, evaluations)
        last, best = descend(
            objective, objective.start, partial(objective.curvature, rng),
            budget=until, tolerance=tolerance, memory=memory, history=history, watch=watch,
        )  # fmt: skip
        done = objective.stationarity(last.position, last.gradient) <= tolerance
        over = done or objective.evaluations >= evaluations or objective.evaluations < until
        network = objective.replaced((best if over else last).position)
        leg = replace(leg, network=network, spent=objective.evaluations, stage=int(over))
        if keep is not None:
            keep(leg)
    objective = MappedObjective(leg.network, task, ridge, penalty)
    cost, gradient = objective(objective.start)
    stationarity = objective.stationarity(objective.start, gradient)
    return Geodesic(
        leg.network, ridge, cost, objective.path.data_cost, stationarity, tolerance, leg.spent + 1, tuple(history)
    )
