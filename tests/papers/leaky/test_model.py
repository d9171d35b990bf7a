"""The network, its steps, its cost and its symmetries."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from effort import trials
from hypothesis import given, settings
from hypothesis import strategies as st

from lawful.errors import InvalidNetwork, LawfulError
from lawful.papers.leaky import (
    LeakyResNet,
    TeacherTask,
    adapt_steps,
    equidistant,
    irregular,
    teacher,
    trace,
)
from lawful.papers.leaky.model import parse_teacher, positions, resample
from lawful.papers.leaky.solver.objective import Curvature, Objective
from reproduction.mechanics import change_layers


def network(seed: int = 0, softness: float = 0.0, **options: object) -> LeakyResNet:
    settings = {"width": 9, "layers": 6, "effective_depth": 2.5, "inputs": 5, "outputs": 4, "scale": 0.8}
    return LeakyResNet.random(softness=softness, seed=seed, **(settings | options))  # type: ignore[arg-type]


def task(seed: int = 0, samples: int = 11) -> TeacherTask:
    rng = np.random.default_rng(seed)
    return TeacherTask(rng.normal(size=(samples, 5)), rng.normal(size=(samples, 4)))


@pytest.mark.parametrize("softness", [0.0, 0.05])
@pytest.mark.parametrize("steps", [None, irregular(6, 0.7)])
def test_written_gradient_is_autograd(softness: float, steps: np.ndarray | None) -> None:
    net, data = network(softness=softness, steps=steps), task()
    cost = net.cost(torch.tensor(data.inputs), torch.tensor(data.targets), 0.3)
    cost.backward()
    objective = Objective(net, data, 0.3)
    value, gradient = objective(net.weights.detach().numpy() * objective.roots)
    assert value == pytest.approx(cost.item(), rel=1e-12)
    np.testing.assert_allclose(gradient * objective.roots, net.weights.grad, rtol=1e-10, atol=1e-12)


def test_momenta_are_minus_the_gradient_by_the_representations() -> None:
    net, data, ridge = network(), task(), 0.3
    states = net.path(torch.tensor(data.inputs))
    error = (net.out @ states[-1] - torch.tensor(data.targets.T)).square().sum() / len(data)
    gradients = torch.autograd.grad(error, states[1:])
    path = trace(net, data, ridge)
    for momentum, gradient in zip(path.momenta, gradients, strict=True):
        np.testing.assert_allclose(momentum, -gradient.numpy() / ridge, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(path.states, torch.stack(states).detach().numpy(), rtol=1e-12)


def test_stationarity_is_the_gradient_in_units_of_weight_decay() -> None:
    net, data = network(), task()
    objective = Objective(net, data, 0.3)
    point = net.weights.detach().numpy() * objective.roots
    _, gradient = objective(point)
    assert trace(net, data, 0.3).stationarity == pytest.approx(objective.stationarity(point, gradient), rel=1e-10)


@pytest.mark.parametrize("softness", [0.0, 0.05])
def test_single_precision_is_the_same_function(softness: float) -> None:
    first, data = network(), task()
    net = LeakyResNet(
        first.weights, first.effective_depth, first.steps, into=first.into.detach(), out=first.out.detach(),
        softness=softness,
    )  # fmt: skip
    double, single = Objective(net, data, 0.3), Objective(net, data, 0.3, np.float32)
    point = net.weights.detach().numpy() * double.roots
    (cost, gradient), (cost_single, gradient_single) = double(point), single(point)
    assert gradient_single.dtype == single.states.dtype == single.momenta.dtype == np.float32
    assert cost_single == pytest.approx(cost, rel=1e-5)
    assert cost_single != cost
    assert np.linalg.norm(gradient_single - gradient) < 1e-4 * np.linalg.norm(gradient)


@pytest.mark.filterwarnings("error")
def test_a_point_too_far_out_has_no_finite_cost_and_no_warning() -> None:
    net, data = network(), task()
    objective = Objective(net, data, 0.3, np.float32)
    cost, _ = objective(np.full(net.weights.shape, 1e20))
    assert not np.isfinite(cost)


def test_curvature_solves_its_own_kronecker_system() -> None:
    net, data = network(), task()
    objective = Objective(net, data, 0.3)
    objective(net.weights.detach().numpy() * objective.roots)
    curvature = Curvature(objective, np.random.default_rng(0), probes=3)
    vector = np.random.default_rng(1).normal(size=net.weights.shape).astype(np.float32)
    solved = curvature.solve(vector)
    assert np.vdot(solved, vector) > 0
    assert np.linalg.norm(solved) <= np.linalg.norm(vector) * net.effective_depth / 0.3 * (1 + 1e-5)


@given(st.integers(0, 10**6), st.floats(0.2, 5), st.floats(0.1, 6))
@settings(max_examples=trials(10, 30), deadline=None)
def test_symmetries_are_exact_for_any_steps_and_depth(seed: int, stretch: float, depth: float) -> None:
    """P3 Section 2.1 and A.3: A'_ℓ = s_ℓ A_ℓ for all changes of steps and effective depth, biases included."""
    rng = np.random.default_rng(seed)
    net = network(seed)
    new = rng.uniform(0.2, 1, size=6)
    new *= stretch / new.sum() * min(1.0, 0.95 / (stretch / new.sum() * new.max() * depth))
    changed, scale = change_layers(net, new, depth)
    inputs = torch.tensor(rng.normal(size=(7, 5)))
    for factor, before, after in zip(scale, net.path(inputs), changed.path(inputs), strict=True):
        np.testing.assert_allclose(after.detach(), factor * before.detach(), rtol=1e-9, atol=1e-12)


def test_integration_range_divides_the_parameter_cost() -> None:
    net = network()
    stretched, scale = change_layers(net, 3 * net.steps.numpy(), net.effective_depth / 3)
    np.testing.assert_allclose(scale, 1.0, rtol=1e-12)
    assert stretched.parameter_cost().item() == pytest.approx(net.parameter_cost().item() / 3)


def test_symmetries_refuse_what_they_do_not_cover() -> None:
    with pytest.raises(LawfulError, match="homogeneous"):
        change_layers(network(softness=0.1), effective_depth=1.0)
    with pytest.raises(LawfulError, match="more layers"):
        change_layers(network(), effective_depth=7.0)


@pytest.mark.parametrize("layers", [1, 2, 3, 7, 8, 51])
def test_steps_sum_to_one_and_are_positive(layers: int) -> None:
    for steps in (equidistant(layers), irregular(layers, 0.0), irregular(layers, 0.99)):
        assert steps.sum() == pytest.approx(1.0, abs=1e-14)
        assert (steps > 0).all()


def test_printed_irregular_rule_is_only_normalised_for_even_depth() -> None:
    """P3 Section 4 prints ρ_ℓ = 1/L + (a/L)(1/4 - |ℓ/L - 1/2|)."""

    def printed(layers: int) -> float:
        return sum(1 / layers + 0.9 / layers * (0.25 - abs(k / layers - 0.5)) for k in range(1, layers + 1))

    assert printed(8) == pytest.approx(1.0, abs=1e-14)
    assert abs(printed(7) - 1.0) > 1e-3


def test_adapted_steps_equalise_distances_of_a_known_curve() -> None:
    """Iterating the rule on a fixed curve p → e^{-10p} reaches equal relative moves."""
    steps = equidistant(12)
    for _ in range(200):
        steps = adapt_steps(steps, np.exp(-5 * positions(steps) ** 2)[:, None, None], 1.0)
    curve = np.exp(-5 * positions(steps) ** 2)
    moves = np.abs(np.diff(curve)) / curve[1:]
    assert moves.max() / moves.min() < 1.2
    assert steps.sum() == pytest.approx(1.0)


@given(st.integers(0, 10**6), st.floats(1, 18))
@settings(max_examples=trials(10, 30), deadline=None)
def test_adapted_steps_keep_their_sum_and_the_leak_below_one(seed: int, depth: float) -> None:
    rng = np.random.default_rng(seed)
    path = np.cumsum(rng.exponential(size=(21, 2, 2)) ** 3, axis=0)
    steps = adapt_steps(equidistant(20), path, depth)
    assert steps.sum() == pytest.approx(1.0)
    assert (steps * depth).max() < 1


def test_resampling_keeps_the_integral() -> None:
    rng = np.random.default_rng(0)
    weights, old, new = rng.normal(size=(5, 2, 3)), irregular(5, 0.8), equidistant(9)
    moved = resample(weights, old, new)
    np.testing.assert_allclose(np.tensordot(new, moved, 1), np.tensordot(old, weights, 1), atol=1e-14)


def test_teacher_has_the_rank_it_promises() -> None:
    train, test = teacher((6, 2, 6), 80, seed=3)
    both = np.concatenate([train.targets, test.targets])
    np.testing.assert_allclose(both.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(both.std(axis=0), 1, rtol=1e-12)
    assert parse_teacher("20-5-20") == (20, 5, 20)
    for bad in ("20", "a-b", "20--5", "0-2", ""):
        with pytest.raises(LawfulError):
            parse_teacher(bad)


def test_bad_networks_are_refused() -> None:
    with pytest.raises(InvalidNetwork, match="shape"):
        LeakyResNet(np.zeros((2, 3, 3)), 1.0)
    with pytest.raises(InvalidNetwork, match="finite"):
        LeakyResNet(np.full((2, 3, 4), np.nan), 1.0)
    with pytest.raises(InvalidNetwork, match="steps"):
        LeakyResNet(np.zeros((2, 3, 4)), 1.0, [0.5, -0.5])
    with pytest.raises(LawfulError, match="positive"):
        LeakyResNet(np.zeros((2, 3, 4)), -1.0)
    with pytest.raises(LawfulError, match="inputs and"):
        Objective(network(), TeacherTask(np.zeros((3, 2)), np.zeros((3, 4))), 0.1)
    with pytest.raises(LawfulError, match="rows"):
        TeacherTask(np.zeros((3, 2)), np.zeros((4, 2)))
