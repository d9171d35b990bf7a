"""A damped Newton step that clears the gradient out of steep directions, where L-BFGS leaves it.

On its way along a curved valley L-BFGS excites directions that are a hundred thousand times steeper than weight decay:
the cost hardly notices, the gradient does. There the quadratic model is right, and conjugate gradients solve it.
"""

from __future__ import annotations

import numpy as np

from lawful.leaky.lbfgs import Point, Solve
from lawful.leaky.objective import Objective
from lawful.types import Floats, Singles

DAMPING = 30.0  # in units of the weight decay's curvature: flatter directions are left to L-BFGS
ITERATIONS = 30  # of conjugate gradients
ENOUGH = 0.03  # of the residual, in the preconditioner's norm
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
        each = self.objective
        roots, keep = each.roots.astype(np.float32), (1 - each.steps * each.depth).tolist()
        turns, layers = direction * roots, len(each.steps)
        states, lifted = np.zeros_like(each.slopes), np.empty_like(each.slopes)
        state = np.zeros_like(each.slopes[0])
        for layer in range(layers):
            states[layer] = state
            np.multiply(each.slopes[layer], state, out=lifted[layer])
            ahead = turns[layer] @ each.lifted[layer] + each.moves[layer, :, :-1] @ lifted[layer]
            state = keep[layer] * state + ahead
        result = np.empty(direction.shape, each.precision)
        behind = each.out.T @ (each.out @ state) * (2 / each.targets.shape[1])
        for layer in reversed(range(layers)):
            np.matmul(behind, each.lifted[layer].T, out=result[layer])
            result[layer, :, :-1] += each.momenta[layer] @ lifted[layer].T
            before = each.moves[layer, :, :-1].T @ behind + turns[layer, :, :-1].T @ each.momenta[layer]
            before *= each.slopes[layer]
            if self.bends is not None:
                before += self.bends[layer] * states[layer]
            behind = (before + keep[layer] * behind).astype(each.precision, copy=False)
        result *= roots
        result += (each.ridge / each.depth) * direction
        each.evaluations += 2
        return result.astype(np.float32, copy=False)


def corrected(objective: Objective, point: Point, precondition: Solve, damping: float = DAMPING) -> Point:
    """One step of `(H + μ) d = -g`, halved until the gradient is smaller at no higher cost; else the same point."""
    objective(point.position)
    hessian, added = Hessian(objective), np.float32(damping * objective.ridge / objective.depth)
    step = np.zeros(point.gradient.shape, np.float32)
    rest = (-point.gradient).astype(np.float32)
    level = precondition(rest)
    way, size = level.copy(), float(np.vdot(rest, level))
    first = size
    for _ in range(ITERATIONS):
        bent = hessian(way) + added * way
        curvature = float(np.vdot(way, bent))
        if curvature <= 0:
            break
        share = np.float32(size / curvature)
        step += share * way
        rest -= share * bent
        level = precondition(rest)
        size, old = float(np.vdot(rest, level)), size
        if size <= ENOUGH**2 * first:
            break
        way = level + np.float32(size / old) * way
    before = float(np.linalg.norm(point.gradient))
    for halving in range(HALVINGS):
        position = point.position + 0.5**halving * step
        trial = Point(position, *objective(position))
        if trial.value <= (1 + NOISE) * point.value and float(np.linalg.norm(trial.gradient)) < before:
            return trial
    return point
