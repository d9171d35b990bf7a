"""The cost of identity as a landscape (P3 Propositions 2 and 3)."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from lawful.errors import LawfulError
from reproduction.landscape import added_neuron_gain, flat_path, minimise_identity_cost, stable_cost
from reproduction.mechanics import identity_cost


@pytest.mark.parametrize("seed", range(4))
def test_gradient_of_the_stable_cost(seed: int) -> None:
    a = np.random.default_rng(seed).normal(size=(6, 4))
    A = torch.tensor(a, requires_grad=True)
    sigma = torch.cat([A.relu(), torch.ones(1, 4, dtype=A.dtype)])
    kernel = sigma.T @ sigma + 0.1 * torch.eye(4, dtype=A.dtype)
    value = torch.trace(A @ torch.linalg.solve(kernel, A.T))
    value.backward()
    ours, gradient = stable_cost(a, 0.1)
    assert ours == pytest.approx(value.item(), rel=1e-12)
    np.testing.assert_allclose(gradient, A.grad, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("seed", [1, 2])
def test_descent_ends_where_proposition_2_says(seed: int) -> None:
    found = minimise_identity_cost(np.random.default_rng(seed).normal(size=(24, 4)))
    assert found.lowest_entry > -1e-4
    assert found.with_bias == pytest.approx(found.rank, abs=1e-3)
    assert found.without_bias == pytest.approx(found.rank, abs=1e-3)
    assert found.worst_gain > -1e-9
    np.testing.assert_allclose(found.proof_gap, 0, atol=1e-3)


@pytest.mark.parametrize("seed", range(5))
def test_added_neuron_gain_is_the_second_derivative(seed: int) -> None:
    rng = np.random.default_rng(seed)
    A, z = rng.normal(size=(8, 5)), rng.normal(size=5)
    z /= np.linalg.norm(z)
    epsilon = 1e-3
    bigger = np.vstack([A, epsilon * z])
    change = (identity_cost(bigger).value - identity_cost(A).value) / epsilon**2
    assert change == pytest.approx(added_neuron_gain(A, z), rel=1e-3, abs=1e-4)


@pytest.mark.parametrize("seed", range(5))
def test_flat_path_keeps_both_kernels(seed: int) -> None:
    A = np.random.default_rng(seed).normal(size=(17, 3))
    path = flat_path(A)
    assert path.freed >= 17 - 12
    assert (path.factors >= 0).all()
    for t in (0.0, 0.4, 1.0):
        moved = path.at(t)
        np.testing.assert_allclose(moved.T @ moved, A.T @ A, atol=1e-9)
        positive, before = np.maximum(moved, 0), np.maximum(A, 0)
        np.testing.assert_allclose(positive.T @ positive, before.T @ before, atol=1e-9)
    assert (path.at(1.0)[path.factors == 0] == 0).all()


def test_bad_shapes_are_refused() -> None:
    with pytest.raises(LawfulError, match="as many neurons"):
        minimise_identity_cost(np.zeros((2, 5)))
    with pytest.raises(LawfulError, match="more than"):
        flat_path(np.zeros((6, 2)))
