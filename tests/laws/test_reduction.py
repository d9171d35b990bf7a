"""Riemannian reduction: involutivity, the metric from the laws, closed forms, trajectories."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from lawful import LawfulError, Unsupported
from lawful.laws.reduction import Reduction, follow, involutivity, polar_metric, product_metric
from lawful.study.claims.laws_theory import polar

START = np.array([1.3, 0.4, -0.7, 0.9])


def product(theta: torch.Tensor) -> torch.Tensor:
    return theta[0] * theta[1:]


def balance(theta: torch.Tensor) -> torch.Tensor:
    return (theta[0] ** 2 - theta[1:] @ theta[1:])[None]


def delta(theta: np.ndarray) -> float:
    return float(theta[0] ** 2 - theta[1:] @ theta[1:]) / 2


def test_involutivity_of_known_maps() -> None:
    """P1 Examples 3.6 and 3.7."""
    assert involutivity(product, START).involutive
    rng = np.random.default_rng(0)
    relu = involutivity(
        lambda t: torch.einsum("ir,jr->rij", t[:6].view(3, 2), t[6:].view(2, 2)).flatten(), rng.normal(size=10)
    )
    assert (relu.dimension, relu.involutive) == ((3 + 2 - 1) * 2, True)
    linear = involutivity(lambda t: (t[:6].view(3, 2) @ t[6:].view(2, 3)).flatten(), rng.normal(size=12))
    assert (linear.dimension, linear.with_brackets) == (8, 9)


@pytest.mark.parametrize(("phi", "closed"), [(product, product_metric), (polar, polar_metric)])
def test_the_metric_depends_on_z_and_the_laws_alone(phi, closed) -> None:  # type: ignore[no-untyped-def]
    """At other θ with the same law and the same z up to sign, and at every nearby z, the closed form is right."""
    reduction = Reduction(phi, balance, START)
    rng = np.random.default_rng(1)
    for _ in range(5):
        theta = START + 0.2 * rng.normal(size=4)
        theta[0] = np.sqrt(2 * delta(START) + theta[1:] @ theta[1:])  # back to the leaf of START
        z = reduction.image(theta)
        jacobian = torch.func.jacrev(phi)(torch.as_tensor(theta)).numpy()
        assert np.allclose(reduction.metric(z), jacobian @ jacobian.T, atol=1e-9)
        assert np.allclose(closed(z, delta(START)), jacobian @ jacobian.T, atol=1e-9)
        assert np.allclose(reduction.lift(z, START), theta, atol=1e-9)


def test_the_reduced_flow_follows_the_image_of_the_flow() -> None:
    reduction = Reduction(product, balance, START)
    target = np.array([0.5, 1.0, -0.3])
    times = [0.0, 0.3, 0.8]
    outside = follow(lambda z: product_metric(z, delta(START)), lambda z: z - target, reduction.image(START), times)

    def slope(theta: np.ndarray) -> np.ndarray:
        jacobian = torch.func.jacrev(product)(torch.as_tensor(theta)).numpy()
        return np.asarray(jacobian.T @ (reduction.image(theta) - target))

    inside = follow(lambda t: np.eye(4), slope, START, times)
    assert np.allclose([reduction.image(theta) for theta in inside], outside, atol=1e-9)


def test_what_cannot_be_reduced() -> None:
    with pytest.raises(Unsupported, match="with brackets 9"):
        Reduction(lambda t: (t[:6].view(3, 2) @ t[6:].view(2, 3)).flatten(), lambda t: t[:3], np.arange(12.0) % 5 - 1.7)
    with pytest.raises(LawfulError, match="1 independent laws, not 0"):
        Reduction(product, lambda t: torch.zeros(1, dtype=torch.float64) * t.sum(), START)
    reduction = Reduction(product, balance, START)
    with pytest.raises(LawfulError, match="not finite"):
        reduction.lift([np.inf, 0.0, 0.0], START)
    flat = Reduction(polar, balance, START)
    with pytest.raises(LawfulError, match="not the image"):
        flat.lift([1.0, 2.0, 0.0, 0.0], START)  # the direction of an image has length 1
