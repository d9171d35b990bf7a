"""The energies that Leaky ResNets are read with: σ(A), and γ-norms as ridge regressions (P3 Sections 2 and 3).

Arrays may carry leading axes (one entry per layer): `A` and `B` have shape (…, w, N), `W` (…, w, w + 1).
The γ-norm is the value of a ridge regression, `‖M‖²_{K+γ} = min_W ‖W‖² + ‖M - W σ(A)‖²/γ`: one solve of size w + 1,
a sum of squares, and no pseudo-inverse.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lawful.types import Floats


def rectified(A: Floats, softness: float = 0.0) -> tuple[Floats, Floats]:
    """The rectified entries and their slopes."""
    if softness == 0:
        return np.maximum(A, 0), (A > 0).astype(np.float64)
    slope = np.clip(A / (2 * softness) + 0.5, 0, 1)
    return np.where(slope < 1, softness * slope * slope, A), slope


def lift(A: Floats, softness: float = 0.0, bias: bool = True) -> Floats:
    """`σ(A)`: rectify, and append a row of ones for the bias.

    >>> lift(np.array([[1.0, -2.0]]))
    array([[1., 0.],
           [1., 1.]])
    """
    values = rectified(A, softness)[0]
    return np.concatenate([values, np.ones((*A.shape[:-2], 1, A.shape[-1]))], axis=-2) if bias else values


@dataclass(frozen=True, eq=False)
class RidgeFit:
    """`M ≈ W σ(A)` with `W = M σᵀ (σσᵀ + γ)⁻¹`, and what is left over: everything the γ-norm needs of `M`."""

    weights: Floats
    rest: Floats
    gamma: Floats

    def inner(self, other: RidgeFit) -> Floats:
        """`⟨M, M'⟩_{K+γ} = ⟨W, W'⟩ + ⟨R, R'⟩ / γ`."""
        return np.asarray(_dot(self.weights, other.weights) + _dot(self.rest, other.rest) / self.gamma)


def ridges(sigma: Floats, gamma: Floats | float, *matrices: Floats) -> list[RidgeFit]:
    """One solve for all matrices."""
    level = np.asarray(gamma, dtype=np.float64)
    gram = sigma @ _t(sigma) + level[..., None, None] * np.eye(sigma.shape[-2])
    stacked = np.concatenate(matrices, axis=-2)
    weights = _t(np.asarray(np.linalg.solve(gram, sigma @ _t(stacked)), dtype=np.float64))
    rest = stacked - weights @ sigma
    cuts = np.cumsum([matrix.shape[-2] for matrix in matrices])[:-1]
    return [
        RidgeFit(part, left, level)
        for part, left in zip(np.split(weights, cuts, axis=-2), np.split(rest, cuts, axis=-2), strict=True)
    ]


def operator_norm(sigma: Floats) -> Floats:
    """`‖K‖_op = ‖σ(A)‖²_op`."""
    return np.asarray(np.linalg.eigvalsh(sigma @ _t(sigma))[..., -1])


def _t(matrix: Floats) -> Floats:
    return np.swapaxes(matrix, -1, -2)


def _dot(left: Floats, right: Floats) -> Floats:
    return np.asarray(np.einsum("...ij,...ij->...", left, right))


def _square(matrix: Floats) -> Floats:
    return _dot(matrix, matrix)
