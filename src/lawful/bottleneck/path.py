"""A network's way through representation space, with its momenta and what they say."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from lawful.bottleneck.mechanics import (
    hamiltonian,
    lifted,
    operator_norm,
    ridges,
)
from lawful.bottleneck.model import LeakyResNet
from lawful.bottleneck.objective import Objective
from lawful.bottleneck.steps import positions
from lawful.bottleneck.task import Task

Floats = NDArray[np.float64]
GAMMA = 1e-3  # γ_p = GAMMA ‖K_p‖_op


@dataclass(frozen=True, eq=False)
class Path:
    """Representations `A_0, …, A_L`, momenta `B_1, …, B_L` and weights `W_1, …, W_L`.

    A critical point of the discrete cost obeys `W_ℓ = L̃ B_ℓ σ(A_{ℓ-1})ᵀ`, which is the symplectic Euler method for
    Hamilton's equations: layer ℓ pairs `A_{ℓ-1}` with `B_ℓ`.
    """

    states: Floats
    momenta: Floats
    weights: Floats
    steps: Floats
    effective_depth: float
    softness: float = 0.0

    @property
    def A(self) -> Floats:  # noqa: N802 - the paper's letter
        """`A_{ℓ-1}`, the representation each layer starts from."""
        return self.states[:-1]

    @property
    def B(self) -> Floats:  # noqa: N802
        """`B_ℓ`, the momentum each layer pairs with it."""
        return self.momenta

    @cached_property
    def velocity(self) -> Floats:
        """`∂_p A = (A_ℓ - A_{ℓ-1}) / ρ_ℓ`."""
        return np.asarray(np.diff(self.states, axis=0) / self.steps[:, None, None])

    @cached_property
    def lifted(self) -> Floats:
        """`σ(A_{ℓ-1})`."""
        return lifted(self.A, self.softness)

    @property
    def p(self) -> Floats:
        """Where each layer starts."""
        return positions(self.steps)[:-1]

    @cached_property
    def gaps(self) -> Floats:
        """`‖W_ℓ - L̃ B_ℓ σ(A_{ℓ-1})ᵀ‖` of each layer."""
        wanted = self.effective_depth * (self.B @ np.swapaxes(self.lifted, -1, -2))
        return np.asarray(np.linalg.norm(self.weights - wanted, axis=(1, 2)))

    @property
    def stationarity(self) -> float:
        """`‖W - L̃ B σ(A)ᵀ‖ / ‖W‖` over the whole path; 0 at a geodesic."""
        sizes = np.linalg.norm(self.weights, axis=(1, 2))
        return float(np.sqrt((self.steps * self.gaps**2).sum() / (self.steps * sizes**2).sum()))


def trace(network: LeakyResNet, task: Task, ridge: float) -> Path:
    """Run the network forwards and backwards: `B_ℓ = -(1/λ) ∂C/∂A_ℓ`."""
    objective = Objective(network, task, ridge)
    objective(network.weights.detach().numpy() * objective.roots)
    return Path(
        objective.states,
        -objective.momenta / ridge,
        network.weights.detach().numpy().copy(),
        objective.steps,
        network.effective_depth,
        network.softness,
    )


@dataclass(frozen=True, eq=False)
class Energies:
    """What P3 plots along a path, per layer. `rank_*` are estimates of the bottleneck rank, `-2𝓗/L̃`.

    No estimate means anything unless `stationarity` is small: read them together.
    """

    p: Floats
    steps: Floats
    effective_depth: float
    stationarity: float
    gamma: Floats
    rank: Floats  # from the momenta
    rank_smooth: Floats  # from the momenta, the first-order error of the Euler steps removed
    rank_weights: Floats  # from W alone, B = W σ(A) K⁺ / L̃ in the range of K
    rank_stable: Floats  # -2𝓗_γ/L̃
    coi: Floats  # ‖A‖²_{K+γ}
    kinetic: Floats  # ‖∂A‖²_{K+γ} / L̃², in the same units
    path_length: float
    momentum_norms: Floats  # ‖B‖
    product_norms: Floats  # ‖B σ(A)ᵀ‖
    speeds: Floats  # ‖∂A‖_F
    negative_share: Floats  # ‖min(A, 0)‖² / ‖A‖²
    singular_values: Floats  # of W_ℓ without its bias, largest first

    @property
    def bottleneck_rank(self) -> float:
        """The median of `-2𝓗/L̃` over the layers."""
        return float(np.median(self.rank_smooth))

    @property
    def coi_min(self) -> float:
        """`min_p ‖A_p‖²_{K+γ}`."""
        return float(self.coi.min())


def energies(path: Path, gamma_ratio: float = GAMMA, singular_values: int = 10) -> Energies:
    """All energies of a path, with `γ_p = gamma_ratio · ‖K_p‖_op`."""
    depth, sigma, A, B = path.effective_depth, path.lifted, path.A, path.B
    gamma = gamma_ratio * operator_norm(sigma)
    here, move = ridges(sigma, gamma, A, path.velocity)
    coi, kinetic = here.inner(here), move.inner(move)
    sizes = np.square(A).sum(axis=(1, 2))
    first, second = _ranks(path)
    return Energies(
        p=path.p,
        steps=path.steps,
        effective_depth=depth,
        stationarity=path.stationarity,
        gamma=gamma,
        rank=first,
        rank_smooth=second,
        rank_weights=rank_from_weights(path),
        rank_stable=coi - kinetic / depth**2,
        coi=coi,
        kinetic=kinetic / depth**2,
        path_length=float((path.steps * np.sqrt(kinetic)).sum()),
        momentum_norms=np.linalg.norm(B, axis=(1, 2)),
        product_norms=np.linalg.norm(B @ np.swapaxes(sigma, -1, -2), axis=(1, 2)),
        speeds=np.linalg.norm(path.velocity, axis=(1, 2)),
        negative_share=np.square(np.minimum(A, 0)).sum(axis=(1, 2)) / np.maximum(sizes, 1e-300),
        singular_values=np.asarray(np.linalg.svd(path.weights[:, :, :-1], compute_uv=False)[:, :singular_values]),
    )


def _ranks(path: Path) -> tuple[Floats, Floats]:
    """`-2𝓗/L̃` at `(A_{ℓ-1}, B_ℓ)`, and averaged with `(A_ℓ, B_ℓ)`: symplectic Euler conserves the average better."""
    factor = -2 / path.effective_depth
    half = factor * hamiltonian(path.A, path.B, path.effective_depth, path.softness)
    node = factor * hamiltonian(path.states[1:], path.B, path.effective_depth, path.softness)
    return half, (half + node) / 2


def rank_from_weights(path: Path, tolerance: float = 1e-6) -> Floats:
    """`-2𝓗/L̃` with `B = L̃⁻¹ W σ(A) K⁺`, blind to the momenta; meaningful where A lies in the range of K.

    With `σ = U S Vᵀ` cut at `tolerance · S_max`: `2 Tr[W U S⁻¹ (A V)ᵀ] / L̃ - ‖W U‖² / L̃²`.
    """
    depth = path.effective_depth
    found = np.empty(len(path.steps))
    for layer, (sigma, weight, state) in enumerate(zip(path.lifted, path.weights, path.A, strict=True)):
        squares, left = np.linalg.eigh(sigma @ sigma.T)
        keep = squares > tolerance**2 * squares[-1]
        left, squares = left[:, keep], squares[keep]
        seen = weight @ left
        along = state @ (sigma.T @ left)
        found[layer] = 2 / depth * (seen * along / squares).sum() - np.square(seen).sum() / depth**2
    return found


@dataclass(frozen=True)
class Balance:
    """How far `‖W_p‖²` is from its law, as the largest relative error over the layers.

    `corrected` is `∂_p ‖W‖² = 2L̃ ‖b‖²`, `printed` P3 Proposition 10, `∂_p ‖W‖² = L̃ ‖b‖²`, with `b` the bias column.
    Both are laws of the continuous path: layers add an error of the order of their steps.
    """

    corrected: float
    printed: float


def balance(path: Path) -> Balance:
    """Measure both laws on a path."""
    steps = path.steps
    bias = np.square(path.weights[:, :, -1]).sum(axis=1)
    total = np.square(path.weights).sum(axis=(1, 2))
    gained = path.effective_depth * (np.cumsum(steps * bias) - 0.5 * steps * bias)
    mean = float((steps * total).sum() / steps.sum())

    def spread(values: Floats) -> float:
        return float((values.max() - values.min()) / mean)

    return Balance(corrected=spread(total - 2 * gained), printed=spread(total - gained))
