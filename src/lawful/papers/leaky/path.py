"""A network's way through representation space, with its momenta and what they say."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from lawful.errors import LawfulError
from lawful.papers.leaky.mechanics import lift
from lawful.papers.leaky.model import LeakyResNet, TeacherTask, positions
from lawful.papers.leaky.solver.objective import Objective
from lawful.types import Floats

# A trained Leaky ResNet with the numbers that `lawful verify` encloses again.

ROOM = 1e-6  # round-off of the measured numbers, relative or absolute, whichever is larger


def certificate(network: LeakyResNet, task: TeacherTask, ridge: float, energies: Energies) -> dict[str, Any]:
    """Network and data, and intervals that hold its stationarity and the rank estimate of every layer."""
    return {
        "kind": "geodesic",
        "version": 1,
        "about": [],
        "effective_depth": float(network.effective_depth),
        "softness": float(network.softness),
        "ridge": float(ridge),
        "steps": network.steps.tolist(),
        "weights": network.weights.tolist(),
        "into": None if network.into is None else network.into.tolist(),
        "out": None if network.out is None else network.out.tolist(),
        "inputs": task.inputs.tolist(),
        "targets": task.targets.tolist(),
        "stationarity": _interval(energies.stationarity),
        "ranks": [_interval(rank) for rank in np.asarray(energies.rank).tolist()],
    }


def _interval(value: float) -> list[float]:
    room = ROOM * (1.0 + abs(value))
    return [value - room, value + room]


LARGEST = 1e75  # of a state or momentum: its fourth power is still a float
GAMMA = 1e-5  # γ_p = GAMMA ‖K_p‖_op; 1e-3 hides a tenth of the cost of identity at rank 5


@dataclass(frozen=True, eq=False)
class RepresentationPath:
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
        return lift(self.A, self.softness)

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


def trace(network: LeakyResNet, task: TeacherTask, ridge: float) -> RepresentationPath:
    """Run the network forwards and backwards: `B_ℓ = -(1/λ) ∂C/∂A_ℓ`."""
    objective = Objective(network, task, ridge)
    objective(network.weights.detach().numpy() * objective.roots)
    if not all(np.abs(values).max() < LARGEST for values in (objective.states, objective.momenta)):  # nor NaN
        raise LawfulError("the network's numbers on these samples are too large for floats")
    return RepresentationPath(
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

    trusted_to: ClassVar[float] = 1e-2  # beyond this stationarity the momenta say little

    @property
    def trusted(self) -> bool:
        """Whether the path is stationary enough for its momenta, and with them the Hamiltonian, to mean much.

        Momenta are gradients over the weight decay: an error of the path is divided by it.
        """
        return self.stationarity <= self.trusted_to

    @property
    def bottleneck_rank(self) -> float:
        """The median of `-2𝓗/L̃` over the layers, whose values a certificate encloses one by one."""
        return float(np.median(self.rank))

    @property
    def coi_min(self) -> float:
        """`min_p ‖A_p‖²_{K+γ}`."""
        return float(self.coi.min())


def energies(path: RepresentationPath, gamma_ratio: float = GAMMA, singular_values: int = 10) -> Energies:
    """All energies of a path, with `γ_p = gamma_ratio · ‖K_p‖_op`."""
    rows = [_read_layer(path, layer, gamma_ratio) for layer in range(len(path.steps))]
    column = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    sizes = np.square(path.weights).sum(axis=(1, 2))
    kinetic, depth = column.pop("speed_square"), path.effective_depth
    return Energies(
        p=path.p,
        steps=path.steps,
        effective_depth=depth,
        stationarity=float(np.sqrt((path.steps * column.pop("gap_square")).sum() / (path.steps * sizes).sum())),
        rank_stable=column["coi"] - kinetic / depth**2,
        kinetic=kinetic / depth**2,
        path_length=float((path.steps * np.sqrt(kinetic)).sum()),
        singular_values=np.asarray(np.linalg.svd(path.weights[:, :, :-1], compute_uv=False)[:, :singular_values]),
        **column,
    )


def _read_layer(path: RepresentationPath, layer: int, gamma_ratio: float) -> dict[str, float]:
    """One layer at a time, so that its matrices stay in the cache; one eigendecomposition serves every solve.

    `-2𝓗/L̃ = 2 Tr B Aᵀ - ‖B σ(A)ᵀ‖²`. Symplectic Euler conserves its mean over `(A_{ℓ-1}, B_ℓ)` and `(A_ℓ, B_ℓ)` to
    second order in the step, and each of the two only to first order.
    """
    depth, step = path.effective_depth, float(path.steps[layer])
    A, after, B, W = path.states[layer], path.states[layer + 1], path.momenta[layer], path.weights[layer]
    sigma, velocity = lift(A, path.softness), (after - A) / step
    squares, basis = np.linalg.eigh(sigma @ sigma.T)
    gamma = gamma_ratio * float(squares[-1])
    product, here, move = B @ sigma.T, A @ sigma.T, velocity @ sigma.T
    rank = 2 * float(np.vdot(B, A)) - float(np.vdot(product, product))
    next_product = B @ lift(after, path.softness).T
    rank_after = 2 * float(np.vdot(B, after)) - float(np.vdot(next_product, next_product))

    def stable(M: Floats, along: Floats) -> float:
        weights = ((along @ basis) / (squares + gamma)) @ basis.T
        rest = M - weights @ sigma
        return float(np.vdot(weights, weights) + np.vdot(rest, rest) / gamma)

    low = np.minimum(A, 0)
    gap = W - depth * product
    return {
        "gamma": gamma,
        "rank": rank,
        "rank_smooth": (rank + rank_after) / 2,
        "rank_weights": _rank_from_weights(W, here, squares, basis, depth),
        "coi": stable(A, here),
        "speed_square": stable(velocity, move),
        "gap_square": float(np.vdot(gap, gap)),
        "momentum_norms": float(np.linalg.norm(B)),
        "product_norms": float(np.linalg.norm(product)),
        "speeds": float(np.linalg.norm(velocity)),
        "negative_share": float(np.vdot(low, low) / max(float(np.vdot(A, A)), 1e-300)),
    }


def _rank_from_weights(
    W: Floats, here: Floats, squares: Floats, basis: Floats, depth: float, tolerance: float = 1e-6
) -> float:
    """`-2𝓗/L̃` with `B = L̃⁻¹ W σ(A) K⁺`, blind to the momenta; meaningful where A lies in the range of K.

    With `σ = U S Vᵀ` cut at `tolerance · S_max`: `2 Tr[W U S⁻² (A σᵀ U)ᵀ] / L̃ - ‖W U‖² / L̃²`.
    """
    keep = squares > tolerance**2 * squares[-1]
    seen, along = W @ basis[:, keep], here @ basis[:, keep]
    return float(2 / depth * (seen * along / squares[keep]).sum() - np.square(seen).sum() / depth**2)


@dataclass(frozen=True)
class EnergyBalance:
    """How far `‖W_p‖²` is from its law, as the largest relative error over the layers.

    `corrected` is `∂_p ‖W‖² = 2L̃ ‖b‖²`, `printed` P3 Proposition 10, `∂_p ‖W‖² = L̃ ‖b‖²`, with `b` the bias column.
    Both are laws of the continuous path: layers add an error of the order of their steps.
    """

    corrected: float
    printed: float


def balance(path: RepresentationPath) -> EnergyBalance:
    """Measure both laws on a path."""
    steps = path.steps
    bias = np.square(path.weights[:, :, -1]).sum(axis=1)
    total = np.square(path.weights).sum(axis=(1, 2))
    gained = path.effective_depth * (np.cumsum(steps * bias) - 0.5 * steps * bias)
    mean = float((steps * total).sum() / steps.sum())

    def spread(values: Floats) -> float:
        return float((values.max() - values.min()) / mean)

    return EnergyBalance(corrected=spread(total - 2 * gained), printed=spread(total - gained))
