"""Riemannian reduction: involutivity, the metric from the laws, closed forms, trajectories."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from lawful import LawfulError, Unsupported
from lawful.conservation import count_laws
from lawful.conservation.reduction import (
    Factorisation,
    Reduction,
    follow,
    involutivity,
    reduce_network,
)
from reproduction.claims.laws_theory import polar
from reproduction.formulas import polar_metric, product_metric

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


def test_a_network_between_two_kinks_is_linear_in_its_factorisation(dag) -> None:  # type: ignore[no-untyped-def]
    """`g_θ(x) = Σ over paths of x_input φ_path(θ)` over the paths whose neurons are all active, for leaky ReLU too."""
    phi = Factorisation(dag)
    point = np.random.default_rng(3).normal(size=len(dag.inputs))
    signal = np.zeros(len(dag.names))
    signal[dag.inputs] = point
    if dag.constant is not None:
        signal[dag.constant] = 1.0
    gates = np.ones(len(dag.names))
    before = np.zeros(len(dag.names))
    for node in np.concatenate(dag.layers):
        if dag.in_degree[node]:
            into = dag.heads == node
            before[node] = dag.theta[into] @ (signal * gates)[dag.tails[into]]
            signal[node] = before[node]
            if node in dag.hidden and before[node] <= 0:
                gates[node] = dag.slopes[node]
    answer = np.zeros(len(dag.names))
    for (source, *middle, output), value in zip(phi.places, phi.image(dag.theta), strict=True):
        answer[output] += signal[source] * np.prod(gates[middle]) * value
    assert np.allclose(answer[dag.outputs], dag.evaluate(point[None])[0], atol=1e-10)


@pytest.mark.parametrize("text", ["3-2-2 relu bias", "1-3-4 relu", "4-2-1 leaky_relu(0.1) bias"])
def test_the_metric_of_a_network_follows_from_z_and_balances(text: str) -> None:
    count = count_laws(text)
    theta = np.random.default_rng(0).normal(size=count.parameters)
    found = reduce_network(count, theta)
    assert found.involutive
    assert found.rank == found.dimension == count.parameters - count.laws
    assert found.error is not None
    assert found.error < 1e-11
    assert count.dag is not None
    assert involutivity(Factorisation(count.dag), theta).involutive
    flipped = theta.copy()
    hidden = count.dag.hidden[0]
    flipped[(count.dag.heads == hidden) | (count.dag.tails == hidden)] *= -1  # the same z, the same balances
    again = reduce_network(count, flipped)
    assert again.metric is not None
    assert np.allclose(again.metric, found.metric)


def test_exact_brackets_and_automatic_ones_agree_on_involutivity() -> None:
    for text in ("3-2-3 linear", "2-2-2-2 relu", "2-1-2 linear", "2-2-2 linear bias"):
        count = count_laws(text)
        assert count.dag is not None
        theta = np.random.default_rng(1).normal(size=count.parameters)
        slow = involutivity(Factorisation(count.dag), theta)
        fast = reduce_network(count, theta)
        assert (fast.dimension, fast.with_brackets) == (slow.dimension, slow.with_brackets)


def test_no_reduction_beyond_gradient_flow() -> None:
    with pytest.raises(Unsupported, match="gradient flow"):
        reduce_network(count_laws("2-2-2 relu", loss="cross-entropy"), np.ones(8))


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
