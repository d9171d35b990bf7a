"""The regularised cost of a Leaky ResNet with a hand-written gradient and a curvature model, in NumPy."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lawful.bottleneck.model import LeakyResNet
from lawful.bottleneck.task import Task
from lawful.errors import LawfulError

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]


class Objective:
    """`f(V) = C(A_L) + λ/(2L̃) ‖V‖²` in the variables `V_ℓ = √ρ_ℓ W_ℓ`, in which the penalty is round.

    Buffers are reused from call to call: `states`, `lifted`, `slopes` and `momenta` belong to the last point asked for.
    """

    def __init__(self, network: LeakyResNet, task: Task, ridge: float) -> None:
        """Fix the task, the maps, the steps and λ."""
        if not (np.isfinite(ridge) and ridge > 0):
            raise LawfulError(f"the ridge must be positive, got {ridge}")
        into, out = network.into, network.out
        takes = network.width if into is None else into.shape[1]
        self.out = np.eye(network.width) if out is None else out.detach().numpy().copy()
        if (takes, len(self.out)) != (task.inputs.shape[1], task.targets.shape[1]):
            raise LawfulError(
                f"the task has {task.inputs.shape[1]} inputs and {task.targets.shape[1]} outputs, "
                f"the network takes {takes} and gives {len(self.out)}"
            )
        self.targets = np.ascontiguousarray(task.targets.T)
        self.steps = network.steps.numpy().copy()
        self.depth, self.ridge, self.softness = network.effective_depth, float(ridge), network.softness
        layers, width, samples = network.layers, network.width, len(task)
        self.roots = np.sqrt(self.steps)[:, None, None]
        self.states = np.empty((layers + 1, width, samples))
        self.states[0] = task.inputs.T if into is None else into.detach().numpy() @ task.inputs.T
        self.lifted = np.ones((layers, width + 1, samples))
        self.slopes = np.empty((layers, width, samples))
        self.momenta = np.empty((layers, width, samples))  # ∂C/∂A_ℓ, ℓ = 1..L
        self.weights = np.empty((layers, width, width + 1))
        self.data_cost = np.nan
        self.evaluations = 0

    def __call__(self, point: Floats) -> tuple[float, Floats]:
        """Cost and gradient at `V` of shape (L, w, w + 1): one forward and one backward pass."""
        self.evaluations += 1
        np.divide(point, self.roots, out=self.weights)
        self._forward()
        residual = self.out @ self.states[-1] - self.targets
        samples = residual.shape[1]
        self.data_cost = float(np.vdot(residual, residual)) / samples
        gradient = np.empty_like(point)
        behind = self.out.T @ (residual * (2 / samples))
        for layer in reversed(range(len(self.steps))):
            self.momenta[layer] = behind
            np.matmul(behind, self.lifted[layer].T, out=gradient[layer])
            behind = self.backward(layer, behind)
        gradient *= self.roots
        gradient += (self.ridge / self.depth) * point
        return self.data_cost + self.ridge / (2 * self.depth) * float(np.vdot(point, point)), gradient

    def stationarity(self, point: Floats, gradient: Floats) -> float:
        """`‖W - L̃ B σ(A)ᵀ‖ / ‖W‖` over the whole path: the gradient in units of what weight decay alone would do."""
        size = float(np.linalg.norm(point))
        return float(np.linalg.norm(gradient)) * self.depth / self.ridge / size if size else np.inf

    def _forward(self) -> None:
        for layer, step in enumerate(self.steps):
            state, rectified, slope = self.states[layer], self.lifted[layer, :-1], self.slopes[layer]
            if self.softness:
                np.multiply(state, 0.5 / self.softness, out=slope)
                slope += 0.5
                np.clip(slope, 0, 1, out=slope)
                np.multiply(slope, slope, out=rectified)
                rectified *= self.softness
                np.copyto(rectified, state, where=slope == 1)
            else:
                np.maximum(state, 0, out=rectified)
                np.greater(state, 0, out=slope)
            after = self.states[layer + 1]
            np.matmul(self.weights[layer], self.lifted[layer], out=after)
            after *= step
            after += (1 - step * self.depth) * state

    def backward(self, layer: int, behind: Floats) -> Floats:
        """A gradient by `A_ℓ` carried back through layer ℓ, to one by `A_{ℓ-1}`."""
        step = self.steps[layer]
        before = self.weights[layer, :, :-1].T @ behind
        before *= self.slopes[layer]
        before *= step
        before += (1 - step * self.depth) * behind
        return before


class Curvature:
    """A block of the Gauss-Newton matrix per layer, as a Kronecker product: `2ρ E[JᵀJ] ⊗ E[σσᵀ] + λ/L̃`.

    `J` is the derivative of the outputs by the layer's representation; `E[JᵀJ]` is estimated by back-propagating
    random signs. Its inverse preconditions L-BFGS; the solution does not depend on it, only the speed.
    """

    def __init__(self, objective: Objective, rng: np.random.Generator, probes: int = 2) -> None:
        """Sample at the objective's last point. Costs about three evaluations, and is counted as three."""
        layers, width, samples = objective.momenta.shape
        backward = np.zeros((layers, width, width))
        for _ in range(probes):
            behind = objective.out.T @ rng.choice([-1.0, 1.0], size=objective.targets.shape)
            for layer in reversed(range(layers)):
                backward[layer] += behind @ behind.T
                behind = objective.backward(layer, behind)
        forward = objective.lifted @ objective.lifted.transpose(0, 2, 1)
        left, left_basis = np.linalg.eigh(backward / (samples * probes))
        right, right_basis = np.linalg.eigh(forward / samples)
        products = np.maximum(left, 0)[:, :, None] * np.maximum(right, 0)[:, None, :]
        inverse = 1 / (2 * objective.steps[:, None, None] * products + objective.ridge / objective.depth)
        self._left, self._right = left_basis.astype(np.float32), right_basis.astype(np.float32)
        self._inverse = inverse.astype(np.float32)
        objective.evaluations += 3

    def solve(self, gradient: Singles) -> Singles:
        """Apply the inverse, in single precision."""
        inner = self._left.transpose(0, 2, 1) @ gradient @ self._right
        inner *= self._inverse
        return np.asarray(self._left @ inner @ self._right.transpose(0, 2, 1))
