"""The landscape of the cost of identity: its minima (P3 Proposition 2) and flat ways out (Proposition 3)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lawful.errors import LawfulError
from lawful.papers.leaky.mechanics import lift, rectified, ridges
from lawful.papers.leaky.solver.lbfgs import Point, minimise
from lawful.types import Floats
from reproduction.mechanics import identity_cost


def stable_cost(A: Floats, gamma: float) -> tuple[float, Floats]:
    """`‖A‖²_{K+γ}` and its gradient `2X - 2 σ̇(A) ⊙ (σ(A) XᵀX)` with `X = A (K + γ)⁻¹`.

    `-L̃/2` times it is the potential energy, and `X` the momentum of a representation at rest.
    """
    sigma = lift(A)
    (fit,) = ridges(sigma, gamma, A)
    X = fit.rest / gamma
    return float(fit.inner(fit)), 2 * X - 2 * rectified(A)[1] * (fit.weights.T @ X)[:-1]


@dataclass(frozen=True, eq=False)
class IdentityMinimum:
    """A minimum of the cost of identity and what Proposition 2 says of it, measured."""

    A: Floats
    with_bias: float
    without_bias: float
    rank: int
    lowest_entry: float  # relative to the largest
    gradient: float  # relative: ‖∇‖ ‖A‖ / cost
    worst_gain: float  # smallest change by an added neuron; negative means not stable
    proof_gap: Floats  # ‖σ(A_i)‖² - ‖A_i‖² - 1 of each sample, 0 at stable minima


def minimise_identity_cost(
    A: Floats, *, gamma: float = 1e-6, tolerance: float = 1e-4, iterations: int = 20_000, seed: int = 0
) -> IdentityMinimum:
    """Descend on the cost of identity with bias from a representation with at least as many neurons as samples.

    >>> found = minimise_identity_cost(np.random.default_rng(2).normal(size=(24, 4)))
    >>> found.rank, round(found.with_bias, 3), round(found.without_bias, 3)
    (3, 3.0, 3.0)
    """
    if A.ndim != 2 or A.shape[0] < A.shape[1]:
        raise LawfulError(f"the cost is finite near A only with at least as many neurons as samples, got {A.shape}")
    count = 0

    def stop(point: Point) -> bool:
        nonlocal count
        count += 1
        size = np.linalg.norm(point.gradient) * np.linalg.norm(point.position)
        return count > iterations or bool(size <= tolerance * point.value)

    minimum = minimise(lambda X: stable_cost(X, gamma), np.array(A, dtype=np.float64), stop=stop, memory=40)
    return _describe_minimum(minimum, seed)


def _describe_minimum(found: Point, seed: int) -> IdentityMinimum:
    A = found.position
    values = np.linalg.svd(A, compute_uv=False)
    rng = np.random.default_rng(seed)
    kernel = rectified(A)[0].T @ rectified(A)[0]
    trials = [*kernel, *rng.normal(size=(200, A.shape[1]))]
    return IdentityMinimum(
        A=A,
        with_bias=identity_cost(A, tolerance=1e-4).value,
        without_bias=identity_cost(A, bias=False, tolerance=1e-4).value,
        rank=int((values > 1e-4 * values[0]).sum()) if values[0] > 0 else 0,
        lowest_entry=float(A.min() / np.abs(A).max()) if A.any() else 0.0,
        gradient=float(np.linalg.norm(found.gradient) * np.linalg.norm(A) / max(found.value, 1e-300)),
        worst_gain=float(np.min([added_neuron_gain(A, trial, tolerance=1e-4) for trial in trials])),
        proof_gap=np.square(lift(A)).sum(axis=0) - np.square(A).sum(axis=0) - 1,
    )


def added_neuron_gain(A: Floats, z: Floats, *, tolerance: float = 1e-9) -> float:
    """The change of the cost by a new neuron `εz`, divided by ε²: `zᵀK⁺z - ‖A K⁺ σ̄(z)‖²`, for `z ∈ Im K`.

    `z` is projected to the image of K and scaled to length 1. Negative means that A is not a stable minimum.
    """
    sigma = lift(A)
    _, values, right = np.linalg.svd(sigma, full_matrices=False)
    keep = values > tolerance * values[0]
    values, right = values[keep], right[keep]
    inside = right.T @ (right @ z)
    size = float(np.linalg.norm(inside))
    if size == 0:
        return 0.0
    inside = inside / size
    whitened = (right @ inside) / values
    pulled = (right @ np.maximum(inside, 0)) / values**2
    return float(whitened @ whitened - np.square((A @ right.T) @ pulled).sum())


@dataclass(frozen=True, eq=False)
class FlatPath:
    """`A_t` with rows `√((1 - t) + t a_i) A_i`: constant kernels, and at t = 1 some neurons are zero."""

    start: Floats
    factors: Floats  # a_i >= 0

    def at(self, t: float) -> Floats:
        """The representation at time t ∈ [0, 1]."""
        return np.asarray(np.sqrt((1 - t) + t * self.factors)[:, None] * self.start)

    @property
    def freed(self) -> int:
        """How many neurons are zero at the end."""
        return int((self.factors == 0).sum())


def flat_path(A: Floats) -> FlatPath:
    """Caratheodory's theorem, explicitly (P3 Proposition 3): free neurons while `(AᵀA, σ̄(A)ᵀσ̄(A))` stays.

    The pair is a non-negative combination of the neurons' own pairs in a space of dimension N(N + 1). While more
    neurons are used than their pairs have rank, a null vector says how to shift weight until one reaches zero.

    >>> A = np.random.default_rng(0).normal(size=(20, 3))
    >>> flat_path(A).freed >= 20 - 3 * 4
    True
    """
    width, samples = A.shape
    if width <= samples * (samples + 1):
        raise LawfulError(
            f"the flat path needs more than N(N + 1) = {samples * (samples + 1)} neurons for {samples} samples, "
            f"got {width}"
        )
    upper = np.triu_indices(samples)
    pairs = np.stack(
        [np.concatenate([np.outer(row, row)[upper], np.outer(part, part)[upper]])
         for row, part in zip(A, np.maximum(A, 0), strict=True)]
    )  # fmt: skip
    scales = np.linalg.norm(pairs, axis=1)
    factors = np.where(scales > 0, 1.0, 0.0)
    while True:
        used = np.flatnonzero(factors)
        columns = (pairs[used] / scales[used, None]).T
        _, values, right = np.linalg.svd(columns, full_matrices=True)
        rank = int((values > 1e-10 * values[0]).sum()) if len(values) else 0
        if rank == len(used):
            return FlatPath(np.array(A, dtype=np.float64), factors)
        null = right[-1] / scales[used]
        null = null if null.max() > 0 else -null
        ratios = np.where(null > 0, factors[used] / np.where(null > 0, null, 1.0), np.inf)
        first = int(np.argmin(ratios))
        factors[used] = np.maximum(factors[used] - ratios[first] * null, 0.0)
        factors[used[first]] = 0.0
