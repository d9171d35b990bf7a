"""Leaky ResNets as mechanics: Hamilton's equations, Lagrangian, cost of identity and Theorem 4 (P3 Sections 2 and 3).

Only the claims need them. Arrays may carry leading axes (one entry per layer): `A`, `B` and `∂A` have shape
(…, w, N), `W` (…, w, w + 1).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.integrate import DOP853

from lawful.errors import LawfulError
from lawful.papers.leaky import LeakyResNet
from lawful.papers.leaky.mechanics import lift, rectified, ridges
from lawful.types import Floats, Mask

# Hamilton's equations integrated across the kinks of ReLU: the signs of A are held still between two crossings.

TOLERANCE = 1e-12  # relative error of a step
PAST = 1e-13  # how far past zero an entry goes before its sign changes, relative to the largest at the start
LOOKS = 4  # places in a step at which signs are looked at
STALL = 1000  # sign changes in a row without progress
LARGEST = 1e75


def integrate(
    A: Floats, B: Floats, depth: float, *, until: float = 1.0, steps: int = 1000, softness: float = 0.0
) -> tuple[Floats, Floats]:
    """Hamilton's equations from `(A, B)`: `A_p` and `B_p` at `steps + 1` times.

    For ReLU `∂_p B` jumps where an entry of A changes its sign, while `∂_p A` does not: entries cross, none is held. An
    eighth-order method follows the smooth equations of fixed signs and starts again at each crossing, so 𝓗 is kept to
    the method's tolerance. With softness the equations are smooth enough as they are.

    >>> from reproduction.mechanics import hamiltonian
    >>> rng = np.random.default_rng(0)
    >>> A, B = integrate(rng.normal(size=(3, 4)), 0.1 * rng.normal(size=(3, 4)), 2.0, until=0.5, steps=10)
    >>> energy = hamiltonian(A, B, 2.0)
    >>> bool(np.ptp(energy) < 1e-9 * abs(energy[0]))
    True
    """
    if steps < 1 or not (np.isfinite(until) and until > 0):
        raise LawfulError(f"a path needs a positive length and at least one step, got {until} and {steps}")
    return _Crossing(A, B, depth, softness).follow(np.linspace(0.0, until, steps + 1))


class _Crossing:
    """One integration in progress."""

    def __init__(self, A: Floats, B: Floats, depth: float, softness: float) -> None:
        self.shape, self.depth, self.softness = A.shape, depth, softness
        self.state = np.concatenate([np.ravel(A), np.ravel(B)]).astype(np.float64)
        self.size = A.size
        self.active: Mask | None = None if softness else A > 0
        self.past = PAST * max(float(np.abs(A).max(initial=0.0)), 1e-300)

    def _field(self, _: float, state: Floats) -> Floats:
        A, B = (part.reshape(self.shape) for part in np.split(state, 2))
        if self.active is None:
            move, push = motion(A, B, self.depth, self.softness)
        else:
            sigma = np.concatenate([A * self.active, np.ones((1, self.shape[1]))])
            product = B @ sigma.T
            move = self.depth * (product @ sigma - A)
            push = self.depth * (B - (product.T @ B)[:-1] * self.active)
        return np.concatenate([move.ravel(), push.ravel()])

    def follow(self, times: Floats) -> tuple[Floats, Floats]:
        """The states at the times."""
        states, now, stalled = [self.state.copy()], 0.0, 0
        while len(states) < len(times):
            solver = DOP853(self._field, now, self.state, times[-1], rtol=TOLERANCE, atol=TOLERANCE * self._scale())
            while solver.status == "running":
                with np.errstate(over="ignore", invalid="ignore"):
                    solver.step()
                if solver.status == "failed" or not np.abs(solver.y).max() < LARGEST:
                    raise LawfulError(f"the path blows up near p = {now:.4g}: follow it for a shorter time")
                path = solver.dense_output()
                crossed = self._crossed(path, solver.t_old, solver.t)
                end = solver.t if crossed is None else crossed
                while len(states) < len(times) and times[len(states)] <= end:
                    states.append(path(times[len(states)]))
                stalled = 0 if end > now else stalled + 1
                now, self.state = end, path(end) if crossed is not None else solver.y
                if stalled > STALL:
                    raise LawfulError(f"the path stays on a kink near p = {now:.4g}: use softness")
                if crossed is not None:
                    break
        halves = [np.split(state, 2) for state in states]
        return np.array([a.reshape(self.shape) for a, _ in halves]), np.array(
            [b.reshape(self.shape) for _, b in halves]
        )

    def _scale(self) -> float:
        return max(float(np.abs(self.state).max()), 1e-300)

    def _crossed(self, path: Callable[[float], Floats], start: float, end: float) -> float | None:
        """The first time at which an entry of A is past zero; its sign is changed."""
        if self.active is None:
            return None
        signs = np.where(self.active, 1.0, -1.0).ravel()

        def wrong(time: float) -> Mask:
            return np.asarray(signs * path(time)[: self.size] < -self.past)

        low = start
        for high in np.linspace(start, end, LOOKS + 1)[1:]:
            if wrong(high).any():
                break
            low = high
        else:
            return None
        while high - low > 1e-15 * max(1.0, abs(high)):
            middle = 0.5 * (low + high)
            if not low < middle < high:
                break
            low, high = (low, middle) if wrong(middle).any() else (middle, high)
        self.active = self.active ^ wrong(high).reshape(self.shape)
        return float(high)


def hamiltonian(A: Floats, B: Floats, depth: float, softness: float = 0.0) -> Floats:
    """`𝓗 = (L̃/2) ‖B σ(A)ᵀ‖² - L̃ Tr B Aᵀ` (P3 equation 1).

    >>> A = np.array([[1.0, 2.0]])
    >>> float(hamiltonian(A, np.zeros((1, 2)), depth=3.0))
    0.0
    """
    product = B @ _t(lift(A, softness))
    return np.asarray(depth / 2 * _square(product) - depth * _dot(B, A))


def motion(A: Floats, B: Floats, depth: float, softness: float = 0.0) -> tuple[Floats, Floats]:
    """Hamilton's equations: `∂_p A = L̃ (B K - A)` and `∂_p B = -L̃ (σ̇(A) ⊙ [σ(A) Bᵀ B] - B)` (P3 Section 2.4)."""
    sigma = lift(A, softness)
    product = B @ _t(sigma)
    pull = (_t(product) @ B)[..., :-1, :] * rectified(A, softness)[1]
    return depth * (product @ sigma - A), depth * (B - pull)


def stable_norm(M: Floats, sigma: Floats, gamma: Floats | float) -> Floats:
    """`‖M‖²_{K+γI} = Tr M (K + γI)⁻¹ Mᵀ` with `K = σᵀσ`.

    >>> sigma = np.array([[1.0, 2.0], [1.0, 1.0]])
    >>> float(stable_norm(sigma, sigma, 1e-9).round(6))  # as γ → 0: the dimension of the range
    2.0
    """
    (fit,) = ridges(sigma, gamma, M)
    return fit.inner(fit)


@dataclass(frozen=True)
class IdentityCost:
    """`‖A‖²_K`, the squared norm of the smallest `W` with `W σ(A) = A`; infinite when there is none.

    `rank` counts the singular values of σ(A) above the tolerance; `gap` is the ratio of the last one kept to the
    first one dropped; `residual` is how far, relatively, A sticks out of their span.
    """

    value: float
    rank: int
    gap: float
    residual: float


def identity_cost(A: Floats, *, bias: bool = True, softness: float = 0.0, tolerance: float = 1e-9) -> IdentityCost:
    """The cost of identity (COI) with or without bias (P3 Sections 2.2 and 2.3).

    >>> round(identity_cost(np.array([[1.0, 2.0, 0.0], [0.0, 1.0, 1.0]]), bias=False).value, 9)  # A >= 0: its rank
    2.0
    >>> identity_cost(np.array([[1.0, -1.0]]), bias=False).value  # a negative entry no ReLU can give back
    inf
    """
    sigma = lift(A, softness, bias)
    _, values, right = np.linalg.svd(sigma, full_matrices=False)
    if not A.any():
        return IdentityCost(0.0, int(bias), float("inf"), 0.0)
    rank = int((values > tolerance * values[0]).sum()) if values[0] > 0 else 0
    seen = A @ right[:rank].T
    residual = float(np.linalg.norm(A - seen @ right[:rank]) / np.linalg.norm(A))
    if rank and rank < len(values):
        dropped = float(values[rank])
        gap = float(values[rank - 1]) / dropped if dropped > 0 else float("inf")
    else:
        gap = float("inf")
    finite = residual <= max(tolerance, 1e-12) ** 0.5
    value = float(_square(seen / values[:rank])) if finite else float("inf")
    return IdentityCost(value, rank, gap, residual)


def stable_rank(A: Floats) -> Floats:
    """`‖A‖_*² / ‖A‖_F²`, a continuous lower bound of the cost of identity without bias (P3 Proposition 1).

    >>> float(stable_rank(np.diag([2.0, 2.0, 0.0])).round(12))
    2.0
    """
    values = np.linalg.svd(A, compute_uv=False)
    total = (values**2).sum(axis=-1)
    return np.asarray(np.where(total > 0, values.sum(axis=-1) ** 2 / np.where(total > 0, total, 1.0), 0.0))


def minimal_weights(A: Floats, velocity: Floats, depth: float, softness: float = 0.0) -> Floats:
    """The smallest `W` with `∂_p A = -L̃ A + W σ(A)`: `W = (L̃ A + ∂_p A) σ(A)⁺` (P3 Section 2.2)."""
    sigma = lift(A, softness)
    return np.asarray(np.linalg.lstsq(sigma.T, (depth * A + velocity).T, rcond=None)[0].T)


@dataclass(frozen=True, eq=False)
class Lagrangian:
    """The three terms of `‖L̃A + ∂A‖²_K / (2L̃)` (P3 Section 2.2)."""

    identity: Floats  # (L̃/2) ‖A‖²
    middle: Floats  # ⟨∂A, A⟩
    kinetic: Floats  # ‖∂A‖² / (2L̃)

    @property
    def total(self) -> Floats:
        """Their sum."""
        return np.asarray(self.identity + self.middle + self.kinetic)


def lagrangian(A: Floats, velocity: Floats, depth: float, gamma: Floats | float, softness: float = 0.0) -> Lagrangian:
    """The three terms in the γ-norm."""
    here, move = ridges(lift(A, softness), gamma, A, velocity)
    return Lagrangian(depth / 2 * here.inner(here), move.inner(here), move.inner(move) / (2 * depth))


@dataclass(frozen=True, eq=False)
class TheoremFour:
    """Every side of P3 Theorem 4, per layer; each `…_left <= …_right` is a statement of the theorem.

    `identity` is the first line's right side and equals `hamiltonian` for any `(A, B)` with `∂A = L̃(BK - A)`.
    `rate` needs `‖A‖²_{K+γ} + 2𝓗/L̃ >= 0` to have a square root: NaN where it is negative.
    """

    hamiltonian: Floats
    identity: Floats
    stable_hamiltonian: Floats  # 𝓗_γ = kinetic - potential, both in the γ-norm
    stable_identity: Floats  # ‖A‖²_{K+γ}
    speed: Floats  # ‖∂A‖_{K+γ}
    distance_left: Floats  # |2𝓗/L̃ - 2𝓗_γ/L̃|
    distance_right: Floats  # (2/L̃) ‖∂A‖ √γ c + γ c²
    rate_left: Floats  # | ‖∂A‖ - L̃ √(‖A‖² + 2𝓗/L̃) |
    rate_right: Floats  # 2L̃ √γ c
    rank_low: float  # -(ℓ/L̃ + √γ c)²
    rank_middle: float  # -2𝓗/L̃ - min_p ‖A_p‖², with 𝓗 where the minimum is
    rank_high: float  # γ c²

    def violations(self, slack: float = 1e-9) -> dict[str, float]:
        """How far each statement fails, relative to its sizes; all zero up to rounding when the theorem holds."""
        scale = float(np.abs(self.hamiltonian).max() + np.abs(self.stable_hamiltonian).max())
        real = ~np.isnan(self.rate_left)
        excess = {
            "identity": float(np.abs(self.identity - self.hamiltonian).max()) / scale,
            "distance": float((self.distance_left - self.distance_right).max()) / scale,
            "rate": float((self.rate_left - self.rate_right)[real].max(initial=0.0) / self.speed.max(initial=1.0)),
            "rank_low": self.rank_low - self.rank_middle,
            "rank_high": self.rank_middle - self.rank_high,
        }
        return {name: value if value > slack else 0.0 for name, value in excess.items()}


def theorem_four(
    A: Floats, B: Floats, velocity: Floats, steps: Floats, depth: float, gamma: Floats, softness: float = 0.0
) -> TheoremFour:
    """Evaluate all sides on a path; `γ` may differ from layer to layer, `√γ c` stands for `max_p √γ_p ‖B_p‖`."""
    sigma = lift(A, softness)
    here, move, shifted = ridges(sigma, gamma, A, velocity, velocity + _wide(gamma) * depth * B)
    coi, speed = here.inner(here), np.sqrt(move.inner(move))
    total = hamiltonian(A, B, depth, softness)
    stable = speed**2 / (2 * depth) - depth / 2 * coi
    push = np.sqrt(gamma) * np.sqrt(_square(B))  # √γ ‖B‖ of each layer
    excess = coi + 2 * total / depth
    with np.errstate(invalid="ignore"):
        rate = np.abs(speed - depth * np.sqrt(excess))
    worst = float(np.max(push))
    length = float((steps * speed).sum() / steps.sum())  # over a unit of p, as the proof averages
    lowest = int(np.argmin(coi))
    return TheoremFour(
        hamiltonian=total,
        identity=shifted.inner(shifted) / (2 * depth) - depth / 2 * coi - gamma * depth / 2 * _square(B),
        stable_hamiltonian=stable,
        stable_identity=coi,
        speed=speed,
        distance_left=np.abs(2 / depth * (total - stable)),
        distance_right=2 / depth * speed * push + push**2,
        rate_left=rate,
        rate_right=2 * depth * push,
        rank_low=-((length / depth + worst) ** 2),
        rank_middle=float(-2 / depth * total[lowest] - coi[lowest]),
        rank_high=worst**2,
    )


def change_layers(
    network: LeakyResNet, steps: ArrayLike | None = None, effective_depth: float | None = None
) -> tuple[LeakyResNet, np.ndarray]:
    """The symmetries of P3 Section 2.1 and A.3 in one, exact for the discrete ReLU network.

    For any new steps ρ' and effective depth L̃' the network with `V' = (ρ/ρ') (u'/u) V` and `b' = (ρ/ρ') s b`, where
    `u = 1 - ρ L̃` and `s_ℓ = Π_{k ≤ ℓ} u'_k / u_k`, has the path `A'_ℓ = s_ℓ A_ℓ`. Returns it with `s_0, …, s_L`.
    Integration range: `ρ' = cρ`, `L̃' = L̃/c`, so `s = 1`. Output scaling: `ρ' = ρ`, `s_L → exp(L̃ - L̃')`.

    >>> network = LeakyResNet.random(width=4, layers=6, effective_depth=2.0, inputs=4, outputs=4, seed=0)
    >>> stretched, scale = change_layers(network, steps=3 * network.steps.numpy(), effective_depth=2 / 3)
    >>> float(abs(scale - 1).max()) < 1e-12
    True
    """
    if network.softness:
        raise LawfulError("the symmetries need a homogeneous activation: softness must be 0")
    depth = network.effective_depth if effective_depth is None else float(effective_depth)
    old = network.steps.numpy()
    new = old if steps is None else np.asarray(steps, dtype=np.float64)
    if new.shape != old.shape or (new <= 0).any():
        raise LawfulError(f"{len(old)} layers need as many positive steps, got shape {new.shape}")
    keep, keep_new = 1 - old * network.effective_depth, 1 - new * depth
    if (keep <= 0).any() or (keep_new <= 0).any():
        raise LawfulError("the symmetries need ρ L̃ < 1 on every layer, before and after: use more layers")
    ratio = keep_new / keep
    scale = np.concatenate([[1.0], np.cumprod(ratio)])
    weights = network.weights.detach().numpy() * (old / new)[:, None, None]
    weights[:, :, :-1] *= ratio[:, None, None]
    weights[:, :, -1] *= scale[1:, None]
    return network.replaced(weights, new, depth), scale


def _t(matrix: Floats) -> Floats:
    return np.swapaxes(matrix, -1, -2)


def _dot(left: Floats, right: Floats) -> Floats:
    return np.asarray(np.einsum("...ij,...ij->...", left, right))


def _square(matrix: Floats) -> Floats:
    return _dot(matrix, matrix)


def _wide(values: Floats | float) -> Floats:
    return np.asarray(values, dtype=np.float64)[..., None, None]
