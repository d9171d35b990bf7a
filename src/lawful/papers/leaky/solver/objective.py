"""The regularised cost of a Leaky ResNet with a hand-written gradient and a curvature model, in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lawful.errors import LawfulError
from lawful.papers.leaky.model import LeakyResNet, TeacherTask
from lawful.types import Floats, Singles


class Objective:
    """`f(V) = C(A_L) + λ/(2L̃) ‖V‖²` in the variables `V_ℓ = √ρ_ℓ W_ℓ`, in which the penalty is round.

    Buffers are reused from call to call: `states`, `lifted`, `slopes` and `momenta` belong to the last point asked for.
    `precision` is that of the passes: single is twice as fast, and good to about 1e-5 of the stationarity; the cost is
    summed in double either way.
    """

    def __init__(
        self, network: LeakyResNet, task: TeacherTask, ridge: float, precision: type[np.floating[Any]] = np.float64
    ) -> None:
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
        self.precision = precision
        self.out = self.out.astype(precision)
        self.targets: NDArray[Any] = np.ascontiguousarray(task.targets.T)
        self.steps: NDArray[Any] = network.steps.numpy().copy()
        self.depth: float = network.effective_depth
        self.ridge: float = float(ridge)
        self.softness: float = network.softness
        layers, width, samples = network.layers, network.width, len(task)
        self.roots: NDArray[Any] = np.sqrt(self.steps)[:, None, None]
        self.states: NDArray[Any] = np.empty((layers + 1, width, samples), precision)
        self.states[0] = task.inputs.T if into is None else into.detach().numpy() @ task.inputs.T
        self.lifted: NDArray[Any] = np.ones((layers, width + 1, samples), precision)
        self.slopes: NDArray[Any] = np.empty((layers, width, samples), precision)
        self.momenta: NDArray[Any] = np.empty((layers, width, samples), precision)  # ∂C/∂A_ℓ, ℓ = 1..L
        self.moves: NDArray[Any] = np.empty((layers, width, width + 1), precision)  # ρ_ℓ W_ℓ
        self._kept = np.empty((width, samples), precision)  # a layer's scratch: allocating costs as much as adding
        self.data_cost = np.nan
        self.evaluations = 0

    @np.errstate(over="ignore", invalid="ignore")
    def __call__(self, point: Floats) -> tuple[float, Floats]:
        """Cost and gradient at `V` of shape (L, w, w + 1): one forward and one backward pass.

        A point too far out gives a cost that is not finite, which no search accepts.
        """
        self.evaluations += 1
        roots = self.roots.astype(self.precision)
        weights = point.astype(self.precision, copy=False)
        np.multiply(weights, roots, out=self.moves)
        self._forward()
        residual = self.out @ self.states[-1] - self.targets  # double, as the targets are
        samples = residual.shape[1]
        self.data_cost = float(np.vdot(residual, residual)) / samples
        gradient = np.empty(point.shape, self.precision)
        np.matmul(self.out.T, (residual * (2 / samples)).astype(self.precision), out=self.momenta[-1])
        for layer in reversed(range(len(self.steps))):
            np.matmul(self.momenta[layer], self.lifted[layer].T, out=gradient[layer])
            if layer:
                self.backward(layer, self.momenta[layer], self.momenta[layer - 1])
        gradient *= roots
        gradient += (self.ridge / self.depth) * weights
        return self.data_cost + self.ridge / (2 * self.depth) * float(np.vdot(point, point)), gradient

    def stationarity(self, point: Floats, gradient: Floats) -> float:
        """`‖W - L̃ B σ(A)ᵀ‖ / ‖W‖` over the whole path: the gradient in units of what weight decay alone would do."""
        size = float(np.linalg.norm(point))
        return float(np.linalg.norm(gradient)) * self.depth / self.ridge / size if size else np.inf

    def _forward(self) -> None:
        for layer, step in enumerate(self.steps.tolist()):
            state, after = self.states[layer], self.states[layer + 1]
            self._rectify(state, self.lifted[layer, :-1], self.slopes[layer])
            np.matmul(self.moves[layer], self.lifted[layer], out=after)
            after += np.multiply(state, 1 - step * self.depth, out=self._kept)

    def _rectify(self, state: Floats, rectified: Floats, slope: Floats) -> None:
        """`σ` and its derivative `s`; with softness ε, `s = clip(a/2ε + 1/2, 0, 1)` and `σ = max(a, ε s²)`."""
        if self.softness:
            np.multiply(state, 0.5 / self.softness, out=slope)
            slope += 0.5
            np.clip(slope, 0, 1, out=slope)
            np.multiply(slope, slope, out=rectified)
            rectified *= self.softness
            np.maximum(rectified, state, out=rectified)
        else:
            np.maximum(state, 0, out=rectified)
            np.greater(state, 0, out=slope)

    def backward(self, layer: int, behind: Floats, before: Floats | None = None) -> Floats:
        """A gradient by `A_ℓ` carried back through layer ℓ, to one by `A_{ℓ-1}` (written to `before`, if given)."""
        before = np.matmul(self.moves[layer, :, :-1].T, behind, out=before)
        before *= self.slopes[layer]
        before += np.multiply(behind, 1 - float(self.steps[layer]) * self.depth, out=self._kept)
        return before


class Curvature:
    """A block of the Gauss-Newton matrix per layer, as a Kronecker product: `2ρ E[JᵀJ] ⊗ E[σσᵀ] + λ/L̃`.

    `J` is the derivative of the outputs by the layer's representation; `E[JᵀJ]` is estimated by back-propagating
    random signs. Its inverse preconditions L-BFGS; the solution does not depend on it, only the speed.
    """

    def __init__(self, objective: Objective, rng: np.random.Generator, probes: int = 2, damping: float = 0.0) -> None:
        """Sample at the objective's last point. Costs about three evaluations, and is counted as three.

        `damping` is added, in units of weight decay's curvature.
        """
        layers, width, samples = objective.momenta.shape
        backward = np.zeros((layers, width, width), np.float32)
        for _ in range(probes):
            behind = objective.out.T @ rng.choice([-1.0, 1.0], size=objective.targets.shape).astype(objective.precision)
            for layer in reversed(range(layers)):
                backward[layer] += behind @ behind.T
                behind = objective.backward(layer, behind)
        forward = objective.lifted @ objective.lifted.transpose(0, 2, 1)
        left, left_basis = np.linalg.eigh(backward / (samples * probes))
        right, right_basis = np.linalg.eigh((forward / samples).astype(np.float32, copy=False))
        products = np.maximum(left, 0)[:, :, None] * np.maximum(right, 0)[:, None, :]
        decay = (1 + damping) * objective.ridge / objective.depth
        inverse = 1 / (2 * objective.steps[:, None, None] * products + decay)
        self._left, self._right = left_basis.astype(np.float32), right_basis.astype(np.float32)
        self._inverse = inverse.astype(np.float32)
        objective.evaluations += 3

    def solve(self, gradient: Singles) -> Singles:
        """Apply the inverse, in single precision."""
        inner = self._left.transpose(0, 2, 1) @ gradient @ self._right
        inner *= self._inverse
        return np.asarray(self._left @ inner @ self._right.transpose(0, 2, 1))
