"""A damped Newton step that clears the gradient out of steep directions, where L-BFGS leaves it.

On its way along a curved valley L-BFGS excites directions that are a hundred thousand times steeper than weight decay:
the cost hardly notices, the gradient does. There the quadratic model is right.
"""

from __future__ import annotations

import numpy as np

from lawful.papers.leaky.solver.lbfgs import Point, Solve
from lawful.papers.leaky.solver.objective import Objective
from lawful.types import Floats, Singles

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
