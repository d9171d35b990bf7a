"""The hand-written gradients against autograd, for every architecture, loss and pattern."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional

import lawful
from lawful import Dag, LawfulError, Mlp, Unsupported
from lawful.sources.modules.convert import to_module
from lawful.training import problem

LOSSES = {
    "mse": functional.mse_loss,
    "bce": functional.binary_cross_entropy_with_logits,
    "ce": functional.cross_entropy,
}


def data(network: Mlp | Dag, loss: str, samples: int = 7, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    dag = network.to_dag()
    x, y = rng.normal(size=(samples, len(dag.inputs))), rng.normal(size=(samples, len(dag.outputs)))
    return x, {"mse": y, "bce": (y > 0).astype(float), "ce": rng.integers(len(dag.outputs), size=samples)}[loss]


@pytest.mark.parametrize("loss", LOSSES)
def test_gradients_are_autograds(network: Mlp | Dag, loss: str) -> None:
    x, y = data(network, loss)
    weights = torch.tensor(network.to_dag().theta, requires_grad=True)
    expected = LOSSES[loss](network.to_dag().evaluate(torch.tensor(x), weights), torch.tensor(y))
    (gradient,) = torch.autograd.grad(expected, weights)
    for form in (network, network.to_dag()):
        value = problem(form, x, y, loss).evaluate(form.theta)
        assert value.loss == pytest.approx(expected.item(), abs=1e-13)
        np.testing.assert_allclose(value.gradient, gradient.numpy(), atol=1e-13)


def test_a_loss_of_the_output_is_a_network_flow(network: Mlp | Dag) -> None:
    """P0 Proposition 1: B̃ (θ ⊙ g) = 0, also with gates that no input produces."""
    at = problem(network, *data(network, "mse"))
    gates = np.random.default_rng(1).uniform(size=len(at.heights(network.theta)))
    for pattern in (None, gates):
        gradient = at.evaluate(network.theta, pattern).gradient
        balance = network.to_dag().hidden_incidence @ (network.theta * gradient)
        assert np.abs(balance).max(initial=0.0) < 1e-12


def test_gates_pushes_and_height_gradients_are_derivatives(network: Mlp | Dag) -> None:
    """∇z by differences, and dg = push ∇z dα where z = 0 (checked by shifting the weights onto a kink)."""
    at = problem(network, *data(network, "mse"))
    gates = (at.heights(network.theta) > 0).astype(float)
    if not len(gates):
        return
    rng = np.random.default_rng(2)
    chosen = sorted({int(gate) for gate in rng.integers(len(gates), size=4)})
    found = at.height_gradients(network.theta, gates, chosen)
    direction = rng.normal(size=len(network.theta))
    step = 1e-6
    ahead, behind = (at.heights(network.theta + sign * step * direction, gates)[chosen] for sign in (1, -1))
    np.testing.assert_allclose(found @ direction, (ahead - behind) / (2 * step), atol=1e-7)
    open_, shut = gates.copy(), gates.copy()
    gate = chosen[0]
    open_[gate], shut[gate] = 1.0, 0.0
    theta = network.theta
    for _ in range(30):  # onto the kink of this gate
        slope = at.height_gradients(theta, gates, [gate])[0]
        if not slope.any():
            return
        theta = theta - at.heights(theta, gates)[gate] * slope / (slope @ slope)
    value = at.evaluate(theta, shut)
    change = at.evaluate(theta, open_).gradient - value.gradient
    np.testing.assert_allclose(change, value.pushes[gate] * at.height_gradients(theta, shut, [gate])[0], atol=1e-10)


@pytest.mark.parametrize("loss", LOSSES)
def test_a_module_gives_the_same_problem(loss: str) -> None:
    from lawful import Architecture

    network = Architecture.parse("3-5-4-2 leaky_relu(0.1) bias").initialise(seed=1)
    assert isinstance(network, Mlp)
    x, y = data(network, loss)
    ours, theirs = problem(network, x, y, loss), problem(to_module(network), x, y, loss)
    np.testing.assert_allclose(theirs.start, network.theta)
    gates = np.random.default_rng(0).uniform(size=len(ours.heights(network.theta)))
    for pattern in (None, gates):
        first, second = ours.evaluate(network.theta, pattern), theirs.evaluate(network.theta, pattern)
        assert first.loss == pytest.approx(second.loss)
        for name in ("gradient", "heights", "pushes"):
            np.testing.assert_allclose(getattr(first, name), getattr(second, name), atol=1e-13)
    chosen = [0, 9, len(gates) - 1]
    np.testing.assert_allclose(
        ours.height_gradients(network.theta, gates, chosen), theirs.height_gradients(network.theta, gates, chosen),
        atol=1e-13,
    )  # fmt: skip
    assert [ours.label(gate)[0] for gate in chosen] == [theirs.label(gate)[0] for gate in chosen]


def test_batches_are_rows(network: Mlp | Dag) -> None:
    x, y = data(network, "mse")
    part = problem(network, x, y).rows(np.array([1, 4]))
    np.testing.assert_array_equal(
        part.evaluate(network.theta).gradient, problem(network, x[[1, 4]], y[[1, 4]]).evaluate(network.theta).gradient
    )


@pytest.mark.parametrize(
    ("x", "y", "loss", "words"),
    [
        (np.zeros((4, 2)), np.zeros((4, 2)), "mse", "has 3 inputs, but x has 2 columns"),
        (np.zeros((4, 3)), np.zeros((4, 1)), "mse", "2 outputs, but the data have 1 targets"),
        (np.zeros((4, 3)), np.zeros((5, 2)), "mse", "x has 4 samples but y has 5"),
        (np.full((4, 3), np.nan), np.zeros((4, 2)), "mse", "NaN or an infinity in sample 0"),
        (np.zeros((4, 3)), np.full((4, 2), 2.0), "bce", "between 0 and 1, not 2"),
        (np.zeros((4, 3)), np.full(4, 2), "ce", "class numbers 0 to 1"),
        (np.zeros((4, 3)), np.full(4, 0.5), "ce", "not 0.5"),
        (np.zeros((4, 3)), np.zeros((4, 2)), "ce", "one class number per sample"),
        (np.zeros((0, 3)), np.zeros((0, 2)), "mse", "at least one sample"),
        ([["a"] * 3], [[0, 0]], "mse", "must be numbers"),
        (np.zeros((4, 3)), np.zeros((4, 2)), "hinge", "unknown loss"),
    ],
)
def test_bad_data_are_refused_in_one_line(x: object, y: object, loss: str, words: str) -> None:
    network = Mlp([np.ones((4, 3)), np.ones((2, 4))])
    with pytest.raises(LawfulError, match=words):
        problem(network, x, y, loss)


def test_bad_modules_are_refused() -> None:
    x, y = np.zeros((4, 3)), np.zeros((4, 2))
    model = torch.nn.Linear(3, 2)
    with pytest.raises(LawfulError, match="must be a scalar tensor, not shape"):
        problem(model, x, y, lambda outputs, targets: outputs - targets)
    with pytest.raises(LawfulError, match="does not run on x of shape"):
        problem(model, np.zeros((4, 5)), y)
    with pytest.raises(LawfulError, match="no parameters that train"):
        problem(torch.nn.ReLU(), x, y)
    with pytest.raises(Unsupported, match=r"call \.eval"):
        problem(torch.nn.Sequential(model, torch.nn.Dropout(0.5)), np.ones((4, 3)), y)


class Elsewhere(torch.nn.Module):
    """The reader is registered before what it reads, and a layer is never used."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.b, self.a, self.c = torch.nn.Linear(4, 2), torch.nn.Linear(3, 4), torch.nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(torch.relu(self.a(x)))


def test_laws_of_a_module_are_in_the_order_of_its_flow() -> None:
    """The order of a module's parameters is not that of its graph's edges."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(12, 3)), rng.normal(size=(12, 2))
    run = lawful.flow(Elsewhere().double(), (x, y), until=0.2)
    assert len(run.law_names) == 4
    assert run.max_drift < 1e-9
    module = torch.nn.Sequential(Elsewhere(), torch.nn.Softmax(-1)).double()
    ended = lawful.flow(module, (x, np.abs(y)), until=0.2)
    start = torch.mean((module(torch.tensor(x)) - torch.tensor(np.abs(y))) ** 2)
    assert ended.max_drift < 1e-9
    assert ended.trajectory.losses[0] == pytest.approx(start.item())


class Still(Elsewhere):
    """The hidden values are computed without gradients: b alone moves."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            hidden = torch.relu(self.a(x))
        return self.b(hidden)


def test_what_is_computed_without_gradients_stands_still() -> None:
    rng = np.random.default_rng(1)
    module = Still().double()
    run = lawful.flow(module, (rng.normal(size=(12, 3)), rng.normal(size=(12, 2))), until=0.2)
    moved = run.trajectory.theta[-1] != run.trajectory.theta[0]
    assert moved.sum() == module.b.weight.numel() + module.b.bias.numel()
    assert run.trajectory.losses[-1] < run.trajectory.losses[0]
    assert not run.law_names
