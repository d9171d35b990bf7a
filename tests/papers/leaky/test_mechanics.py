"""The identities of paper 3 on random (A, B): no training, only algebra and autodiff."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from effort import trials
from hypothesis import given, settings
from hypothesis import strategies as st

from lawful.errors import LawfulError
from lawful.papers.leaky.mechanics import lift, operator_norm
from reproduction.mechanics import (
    hamiltonian,
    identity_cost,
    integrate,
    lagrangian,
    minimal_weights,
    motion,
    stable_norm,
    stable_rank,
    theorem_four,
)

DEPTH = 3.5


def pair(seed: int, width: int = 5, samples: int = 7, layers: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    shape = (width, samples) if layers is None else (layers, width, samples)
    return rng.normal(size=shape), rng.normal(size=shape) * 10 ** rng.uniform(-2, 1)


def norm_by_inverse(M: np.ndarray, A: np.ndarray, gamma: float) -> float:
    sigma = lift(A)
    inverse = np.linalg.inv(sigma.T @ sigma + gamma * np.eye(A.shape[1]))
    return float(np.trace(M @ inverse @ M.T))


@pytest.mark.parametrize("softness", [0.0, 0.3])
@pytest.mark.parametrize("seed", range(5))
def test_hamiltons_equations_are_the_gradient_of_the_hamiltonian(seed: int, softness: float) -> None:
    """P3 Section 2.4: ∂_p A = ∂𝓗/∂B and -∂_p B = ∂𝓗/∂A, by autodiff."""
    from lawful.papers.leaky.model import rectify

    a, b = pair(seed)
    A, B = torch.tensor(a, requires_grad=True), torch.tensor(b, requires_grad=True)
    sigma = torch.cat([rectify(A, softness), torch.ones(1, A.shape[1], dtype=A.dtype)])
    energy = DEPTH / 2 * (B @ sigma.T).square().sum() - DEPTH * (B * A).sum()
    energy.backward()
    move, push = motion(a, b, DEPTH, softness)
    np.testing.assert_allclose(move, B.grad, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(-push, A.grad, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(hamiltonian(a, b, DEPTH, softness), energy.item(), rtol=1e-12)


@given(st.integers(0, 10**6), st.integers(1, 6), st.integers(1, 9), st.floats(1e-6, 10))
@settings(max_examples=trials(20, 60), deadline=None)
def test_stable_norm_is_the_trace_with_the_inverse(seed: int, width: int, samples: int, gamma: float) -> None:
    A, M = pair(seed, width, samples)
    np.testing.assert_allclose(stable_norm(M, lift(A), gamma), norm_by_inverse(M, A, gamma), rtol=1e-7)


@given(st.integers(0, 10**6), st.integers(1, 8), st.integers(1, 12), st.floats(1e-4, 100))
@settings(max_examples=trials(20, 60), deadline=None)
def test_theorem_four_first_line_for_any_pair(seed: int, width: int, samples: int, ratio: float) -> None:
    """P3 Theorem 4: 𝓗 = ‖∂A + γL̃B‖²/(2L̃) - (L̃/2)‖A‖² - γ(L̃/2)‖B‖² whenever ∂A = L̃(BK - A)."""
    A, B = pair(seed, width, samples)
    velocity = motion(A, B, DEPTH)[0]
    gamma = ratio * float(operator_norm(lift(A)))
    right = (
        norm_by_inverse(velocity + gamma * DEPTH * B, A, gamma) / (2 * DEPTH)
        - DEPTH / 2 * norm_by_inverse(A, A, gamma)
        - gamma * DEPTH / 2 * (B**2).sum()
    )
    sizes = DEPTH * (gamma + operator_norm(lift(A))) * (B**2).sum() + DEPTH
    assert abs(right - hamiltonian(A, B, DEPTH)) < 1e-9 * sizes


@pytest.mark.parametrize("seed", range(trials(3, 6)))
def test_theorem_four_all_sides_on_a_hamiltonian_flow(seed: int) -> None:
    A, B = pair(seed, 4, 6)
    states, momenta = integrate(A, 0.2 * B / np.abs(B).max(), 2.0, until=0.6, steps=300)
    velocity = motion(states, momenta, 2.0)[0]
    gamma = 1e-2 * operator_norm(lift(states))
    found = theorem_four(states, momenta, velocity, np.full(len(states), 0.6 / 300), 2.0, gamma)
    assert found.violations() == dict.fromkeys(found.violations(), 0.0)
    assert found.rank_low < found.rank_middle <= found.rank_high + 1e-9


def test_theorem_four_notices_a_velocity_that_does_not_belong() -> None:
    A, B = pair(0, layers=4)
    wrong = 1.1 * motion(A, B, DEPTH)[0]
    gamma = 1e-2 * operator_norm(lift(A))
    assert theorem_four(A, B, wrong, np.full(4, 0.25), DEPTH, gamma).violations()["identity"] > 1e-4


@pytest.mark.parametrize("seed", range(4))
def test_flow_conserves_energy(seed: int) -> None:
    """Kinks are located: 100 steps of Runge and Kutta's method drift by up to 1.8e-2."""
    A, B = pair(seed, 4, 5)
    B = 0.1 * B / np.abs(B).max()

    def drift(steps: int, softness: float) -> float:
        energy = hamiltonian(*integrate(A, B, 2.0, until=0.5, steps=steps, softness=softness), 2.0, softness)
        return float(np.ptp(energy) / np.abs(energy).max())

    assert drift(20, 0.5) < 1e-7
    assert drift(20, 0.0) < 1e-8


def test_the_path_does_not_depend_on_where_it_is_looked_at() -> None:
    A, B = pair(0, 4, 5)
    few, many = (integrate(A, 0.1 * B / np.abs(B).max(), 2.0, until=0.5, steps=steps) for steps in (2, 40))
    np.testing.assert_array_equal(few[0], many[0][::20])
    assert ((many[0][0] > 0) != (many[0][-1] > 0)).any()  # entries did change sign
    with pytest.raises(LawfulError, match="at least one step"):
        integrate(A, B, 2.0, steps=0)


def test_energy_is_kinetic_plus_potential_in_the_exact_norm() -> None:
    """P3 equation 2, with K invertible on the samples (w + 1 > N)."""
    A, B = pair(3, width=9, samples=4)
    velocity = motion(A, B, DEPTH)[0]
    K = lift(A).T @ lift(A)
    norm = lambda M: np.trace(M @ np.linalg.solve(K, M.T))  # noqa: E731
    expected = norm(velocity) / (2 * DEPTH) - DEPTH / 2 * norm(A)
    np.testing.assert_allclose(hamiltonian(A, B, DEPTH), expected, rtol=1e-9)


def test_lagrangian_terms_add_up_and_weights_are_minimal() -> None:
    rng = np.random.default_rng(5)
    A, velocity = rng.normal(size=(9, 4)), rng.normal(size=(9, 4))
    weight = minimal_weights(A, velocity, DEPTH)
    np.testing.assert_allclose(weight @ lift(A), DEPTH * A + velocity, atol=1e-10)
    terms = lagrangian(A, velocity, DEPTH, 1e-11)
    np.testing.assert_allclose(terms.total, (weight**2).sum() / (2 * DEPTH), rtol=1e-6)
    null = rng.normal(size=weight.shape)
    null -= null @ lift(A) @ np.linalg.pinv(lift(A))
    np.testing.assert_allclose((weight + null) @ lift(A), weight @ lift(A), atol=1e-9)
    assert (np.linalg.norm(weight + null)) > np.linalg.norm(weight)


@given(st.integers(0, 10**6), st.integers(1, 6), st.integers(2, 7))
@settings(max_examples=trials(17, 50), deadline=None)
def test_nonnegative_cost_is_the_rank_and_bounds_the_stable_rank(seed: int, rank: int, samples: int) -> None:
    """P3 Section 2.3: A >= 0 has COI without bias equal to its rank, at least the stable rank (Proposition 1)."""
    rng = np.random.default_rng(seed)
    A = rng.uniform(0.1, 1, size=(8, rank)) @ rng.uniform(0.1, 1, size=(rank, samples))
    found = identity_cost(A, bias=False)
    assert found.value == pytest.approx(np.linalg.matrix_rank(A, tol=1e-9 * np.linalg.norm(A, 2)), abs=1e-5)
    assert stable_rank(A) <= found.value + 1e-6


@pytest.mark.parametrize("seed", range(trials(3, 10)))
def test_proposition_1_on_wide_representations(seed: int) -> None:
    A = np.random.default_rng(seed).normal(size=(12, 5))
    cost = identity_cost(A, bias=False)
    assert np.isfinite(cost.value)
    assert cost.value >= stable_rank(A) - 1e-9
    assert identity_cost(A).value <= cost.value + 1e-9


def test_cost_is_infinite_when_identity_is_impossible() -> None:
    narrow = np.random.default_rng(0).normal(size=(2, 20))
    found = identity_cost(narrow)
    assert found.value == np.inf
    assert found.residual > 0.1
    assert identity_cost(np.zeros((3, 4))).value == 0.0


def test_balancedness_rate_by_finite_differences() -> None:
    """The corrected Proposition 10: ∂_p ‖L̃Bσ(A)ᵀ‖² = 2L̃ ‖L̃B1‖², not L̃."""
    A, B = pair(8)
    move, push = motion(A, B, DEPTH)
    size = lambda t: ((DEPTH * (B + t * push) @ lift(A + t * move).T) ** 2).sum()  # noqa: E731
    h = 1e-6
    rate = (size(h) - size(-h)) / (2 * h)
    bias = ((DEPTH * B.sum(axis=1)) ** 2).sum()
    assert rate == pytest.approx(2 * DEPTH * bias, rel=1e-5)
    assert rate != pytest.approx(DEPTH * bias, rel=0.1)
