"""Optimisers against PyTorch's own, and the drift that theory predicts for them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from effort import trials
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from lawful import Architecture, Dag, LawfulError, Mlp
from lawful.training import Optimizer, balances, compare, integrate, known_laws, problem, quantities_of
from lawful.training.comparison import ExactDrift, steps


def example(text: str, samples: int = 12, seed: int = 0) -> tuple[Mlp | Dag, np.ndarray, np.ndarray]:
    network = Architecture.parse(text).initialise(seed=seed)
    rng = np.random.default_rng(seed)
    dag = network.to_dag()
    return network, rng.normal(size=(samples, len(dag.inputs))), rng.normal(size=(samples, len(dag.outputs)))


@pytest.mark.parametrize(
    ("text", "make"),
    [
        ("sgd:0.1", lambda p: torch.optim.SGD(p, 0.1)),
        ("sgd:0.1:momentum=0.9", lambda p: torch.optim.SGD(p, 0.1, momentum=0.9)),
        ("sgd:0.1:decay=0.05:momentum=0.5", lambda p: torch.optim.SGD(p, 0.1, momentum=0.5, weight_decay=0.05)),
        ("sgd:0.1:momentum=0.9:nesterov", lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, nesterov=True)),
        ("adam:0.01", lambda p: torch.optim.Adam(p, 0.01)),
        ("adam:0.01:decay=0.1", lambda p: torch.optim.Adam(p, 0.01, weight_decay=0.1)),
        ("adamw:0.01", lambda p: torch.optim.AdamW(p, 0.01)),
        ("adamw:0.01:decay=0", lambda p: torch.optim.AdamW(p, 0.01, weight_decay=0.0)),
        ("adamw:0.01:decay=0.1", lambda p: torch.optim.AdamW(p, 0.01, weight_decay=0.1)),
    ],
)
def test_steps_are_pytorchs(text: str, make: object) -> None:
    network, x, y = example("3-5-2 relu bias")
    theta = torch.tensor(network.theta, requires_grad=True)
    optimizer = make([theta])  # type: ignore[operator]
    for step in steps(problem(network, x, y), Optimizer.parse(text), 25):
        np.testing.assert_allclose(step.theta, theta.detach().numpy(), atol=1e-12)
        loss = functional.mse_loss(network.to_dag().evaluate(torch.tensor(x), theta), torch.tensor(y))
        assert step.loss == pytest.approx(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@settings(max_examples=trials(8, 25), deadline=None)
@given(
    rate=st.floats(1e-3, 0.3),
    momentum=st.sampled_from([0.0, 0.5, 0.9]),
    decay=st.sampled_from([0.0, 0.1]),
    batch=st.sampled_from([0, 1, 5]),
    nesterov=st.booleans(),
    text=st.sampled_from(["3-4-2 relu bias", "3-4-2 linear", "3-4-4-2 relu skip(1,2)"]),
)
def test_the_exact_drift_of_sgd(
    rate: float, momentum: float, decay: float, batch: int, nesterov: bool, text: str
) -> None:
    """c⁺ = (1 − ηλ)² c + η² c(g), with its extension to momentum, on every batch, step by step."""
    network, x, y = example(text)
    at, laws = problem(network, x, y), known_laws(network)
    optimizer = Optimizer("sgd", rate, momentum, decay, batch, nesterov and momentum > 0)
    exact = ExactDrift(laws, optimizer, at.start)
    for step in steps(at, optimizer, 20):
        scale = max(1.0, float(step.next @ step.next))
        if scale > 1e6:
            return
        value = exact.update(step)
        assert np.abs(value - laws.values(step.next)).max() < 1e-10 * scale
        if not momentum:
            plain = (1 - rate * decay) ** 2 * laws.values(step.theta) + rate**2 * laws.values(step.gradient)
            assert np.abs(plain - laws.values(step.next)).max() < 1e-10 * scale


def test_adams_drift_is_not_described_by_the_formula() -> None:
    network, x, y = example("3-5-2 relu bias")
    laws = balances(network)
    moved = [
        np.abs(laws.values(step.next) - laws.values(step.theta) - 0.01**2 * laws.values(step.direction)).max()
        for step in steps(problem(network, x, y), Optimizer("adam", 0.01), 10)
    ]
    assert min(moved) > 1e-4
    with pytest.raises(LawfulError, match="known for sgd"):
        ExactDrift(laws, Optimizer("adam", 0.1), network.theta)


@pytest.mark.parametrize("text", ["3-6-2 relu bias", "3-6-2 linear bias"])
def test_first_order_drift_of_gradient_descent(text: str) -> None:
    """Drift over a time is η ∫ c(g) dt (1 + O(η)), and (1 + μ)/(1 − μ)² times that with momentum."""
    network, x, y = example(text)
    texts = ["flow", "sgd:0.02", "sgd:0.01", "sgd:0.005", "sgd:0.0005:momentum=0.8", "adam:0.01", "adam:0.005"]
    texts += ["sgd:0.0005:momentum=0.8:nesterov"]
    found = compare(problem(network, x, y), known_laws(network), [Optimizer.parse(text) for text in texts], 2.0)
    flow, *sgd, heavy, adam, finer, ahead = found.rows
    assert flow.max_drift < 1e-9
    gaps = [np.abs(row.drift[-1] - row.first_order).max() / row.predicted_drift for row in sgd]  # type: ignore[operator]
    assert gaps[0] < 0.1
    if "linear" in text:  # on a kink that pins the flow, gradient descent chatters, and its squares do not average
        assert gaps[2] < 0.5 * gaps[0]
    assert np.abs(heavy.drift[-1] - heavy.first_order).max() < 0.1 * heavy.predicted_drift  # type: ignore[operator]
    assert np.abs(ahead.drift[-1] - ahead.first_order).max() < 0.05 * ahead.predicted_drift  # type: ignore[operator]
    assert ahead.predicted_drift == pytest.approx(heavy.predicted_drift * 1.48 / 1.8)
    assert found.order() == pytest.approx(1.0, abs=0.05)
    assert abs(found.order("adam") or 1.0) < 0.4
    assert finer.max_drift > 30 * sgd[0].max_drift
    assert all(row.exact_error is not None and row.exact_error < 1e-12 for row in (*sgd, heavy))
    assert adam.exact_error is None


def test_decay_is_compared_with_the_flow_of_the_same_decay() -> None:
    network, x, y = example("3-6-2 relu bias")
    chosen = [
        Optimizer.parse(text) for text in ("flow:decay=0.2", "sgd:0.001:decay=0.2", "sgd:0.001:decay=0.2:batch=4")
    ]
    found = compare(problem(network, x, y), balances(network), chosen, 2.0)
    assert found.rows[0].max_drift < 1e-9
    assert 1e-7 < found.rows[1].max_drift < 1e-2
    assert found.rows[2].exact_error is not None
    assert found.rows[2].exact_error < 1e-12


def test_divergence_is_reported_and_keeps_the_start() -> None:
    network, x, y = example("3-6-6-2 linear bias")
    row = compare(problem(network, 4.0 * x, y), balances(network), [Optimizer("sgd", 1.0)], 15.0).rows[0]
    assert "diverged at step" in row.message
    assert len(row.times) >= 1


def test_laws_that_are_not_quadratic_have_no_prediction() -> None:
    network, x, y = example("1-1-1 linear")
    law = quantities_of({"log-free": lambda theta: (theta[0] ** 2 - theta[1] ** 2) ** 2})
    found = compare(problem(network, x, y), law, [Optimizer("sgd", 0.01)], 0.5)
    assert found.rows[0].exact is None
    assert found.rows[0].predicted_drift is None
    values = law.along(integrate(problem(network, x, y), 0.5, snapshots=3).theta)
    assert np.abs(values - values[0]).max() < 1e-9


@pytest.mark.parametrize(
    "text",
    [
        "flow",
        "sgd:0.1",
        "adam:0.001:batch=8",
        "adamw:0.1:decay=0",
        "adamw:0.1:decay=0.01",
        "sgd:0.01:momentum=0.9:decay=0.1:batch=2:nesterov",
    ],
)
def test_optimizers_print_what_they_parse(text: str) -> None:
    assert str(Optimizer.parse(text)) == text


@pytest.mark.parametrize(
    "text",
    ["", "lion:0.1", "sgd", "sgd:-1", "sgd:fast", "sgd:0.1:nesterov=1", "adam:0.1:momentum=0.9", "sgd:0.1:batch=1.5",
     "sgd:nan", "sgd:inf", "sgd:0", "flow:batch=3", "flow:rate=1", "adamw:0.1:decay=nan", "sgd:0.1:batch=inf",
     "sgd:0.1:nesterov", "sgd:0.1:momentum=1", "sgd:0.1:0.2", "sgd:0.1:decay=-1"],
)  # fmt: skip
def test_bad_optimizers_are_refused(text: str) -> None:
    with pytest.raises(LawfulError):
        Optimizer.parse(text)


def test_a_batch_larger_than_the_data_is_refused() -> None:
    network, x, y = example("3-4-2 relu")
    with pytest.raises(LawfulError, match="more than the 12 samples"):
        list(steps(problem(network, x, y), Optimizer("sgd", 0.1, batch=13), 1))


def test_only_what_decay_does_is_subtracted() -> None:
    """Adam divides its decay as it divides gradients: e^(-2λt) is no law of its."""
    network, x, y = example("3-4-2 relu bias")
    texts = ["sgd:0.1:decay=0.2", "adam:0.01:decay=0.2", "adamw:0.01:decay=0.2"]
    found = compare(problem(network, x, y), balances(network), [Optimizer.parse(text) for text in texts], 0.37)
    assert [row.shrink for row in found.rows] == [0.2, 0.0, 0.2]
    assert found.rows[0].times[-1] == pytest.approx(0.4)  # four steps, and not the time that was asked for
    for row in found.rows:
        kept = row.values[0] * np.exp(-2 * row.shrink * row.times[-1])
        np.testing.assert_allclose(row.drift[-1], row.values[-1] - kept)


def test_too_few_steps_for_momentum_have_no_prediction() -> None:
    network, x, y = example("3-4-2 relu bias")
    chosen = [Optimizer.parse(f"sgd:{rate}:momentum=0.9") for rate in (0.1, 0.001)]
    few, many = compare(problem(network, x, y), balances(network), chosen, 1.0).rows
    assert few.predicted_drift is None
    assert many.predicted_drift == pytest.approx(many.max_drift, rel=0.2)


@pytest.mark.parametrize("text", ["sgd:50", "sgd:0.5:momentum=0.9", "adam:2.1", "adamw:3"])
def test_a_step_longer_than_the_whole_time_is_refused(text: str) -> None:
    network, x, y = example("3-4-2 relu")
    with pytest.raises(LawfulError, match="more than the whole 2"):
        compare(problem(network, x, y), balances(network), [Optimizer.parse("flow"), Optimizer.parse(text)], 2.0)


def test_times_that_steps_can_cover() -> None:
    assert Optimizer.parse("sgd:0.03:momentum=0.9").steps(0.3) == 1  # 0.03/(1 - 0.9) is more than 0.3 by rounding
    network, x, y = example("3-4-2 relu")
    at, laws = problem(network, x, y), balances(network)
    with pytest.raises(LawfulError, match="needs 1,000,000,000 steps"):
        compare(at, laws, [Optimizer("sgd", 1e-9)], 1.0)
    for time in (0.0, -1.0, np.inf, np.nan):
        with pytest.raises(LawfulError, match="positive and finite"):
            compare(at, laws, [Optimizer("sgd", 0.1)], time)
