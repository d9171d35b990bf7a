"""The flow: orders of convergence, kinks, conservation, stop conditions, other dynamics."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from lawful import Architecture, Dag, LawfulError, Mlp
from lawful.network.dynamics import Metric
from lawful.training import (
    GradientFlow,
    HeavyBall,
    Reason,
    Riemannian,
    balance_projection,
    balances,
    integrate,
    known_laws,
    problem,
)
from lawful.training.integration.integrate import complementary, first_zero
from lawful.training.problems.losses import Problem


def example(text: str = "3-5-4-2 relu bias", samples: int = 8, seed: int = 0, loss: str = "mse") -> Problem:
    network = Architecture.parse(text).initialise(seed=seed)
    rng = np.random.default_rng(seed)
    dag = network.to_dag()
    x, y = rng.normal(size=(samples, len(dag.inputs))), rng.normal(size=(samples, len(dag.outputs)))
    return problem(network, x, {"mse": y, "bce": (y > 0).astype(float), "ce": y.argmax(axis=1)}[loss], loss)


def fixed_step_errors(at: Problem, time: float, counts: list[int], **options: bool) -> list[float]:
    """Errors of the end for fixed steps of the solver (its error control switched off), against a tight run."""
    true = integrate(at, time, snapshots=2, relative=1e-13, absolute=1e-15).end
    loose = {"relative": 1e3, "absolute": 1e3}
    return [
        float(np.abs(integrate(at, time, snapshots=2, max_step=time / count, **loose, **options).end - true).max())
        for count in counts
    ]


def test_order_is_8_on_a_smooth_problem() -> None:
    """DOP853 has order 8."""
    errors = fixed_step_errors(example("4-5-3 linear"), 4.0, [4, 8])
    assert np.log2(errors[0] / errors[1]) > 7


@pytest.mark.parametrize(("seed", "kind"), [(3, "crossed"), (2, "pinned")])
def test_order_is_kept_across_kinks_and_lost_without_locating_them(seed: int, kind: str) -> None:
    """Kinks are located on DOP853's dense output, which has order 7."""
    at, counts = example("2-6-1 relu", samples=6, seed=seed), np.array([5, 10, 20])
    assert kind in {kink.kind for kink in integrate(at, 4.0).kinks}
    located = fixed_step_errors(at, 4.0, list(counts))
    ignored = fixed_step_errors(at, 4.0, list(counts), locate_kinks=False)
    assert np.polyfit(np.log(counts), -np.log(located), 1)[0] > 6.5
    assert np.polyfit(np.log(counts), -np.log(ignored), 1)[0] < 3
    assert ignored[-1] > 1e4 * located[-1]


@pytest.mark.parametrize("loss", ["mse", "bce", "ce"])
@pytest.mark.parametrize(
    "text", ["3-5-4-2 relu bias", "3-4-3 linear bias", "3-5-2 leaky_relu(0.1)", "3-4-4-2 relu bias skip(1,2)"]
)
def test_laws_are_kept(text: str, loss: str) -> None:
    """P0 Proposition 2 and P1 Proposition 4.1: drift below 1e-9; the loss never rises."""
    network = Architecture.parse(text).initialise(seed=0)
    at = example(text, loss=loss)
    flow = integrate(at, 3.0, snapshots=21)
    values = known_laws(network).along(flow.theta)
    assert flow.stop.reason is Reason.TIME
    assert np.abs(values - values[0]).max() < 1e-9
    assert (np.diff(flow.losses) < 0).all()
    assert np.abs(flow.theta[-1] - flow.theta[0]).max() > 1e-2


def test_a_pinned_neuron_slides_on_its_kink() -> None:
    """One neuron, two samples: one pulls it up from below its kink, the other pushes it down from above."""
    network = Mlp([[[1.0, 0.2]], [[1.0]]])
    at = problem(network, [[1.0, 0.0], [0.3, -1.0]], [[3.0], [-2.0]])
    flow = integrate(at, 2.0, snapshots=401, dense=True)
    kinds = [kink.kind for kink in flow.kinks if kink.sample == 1]
    assert "pinned" in kinds
    moment = next(kink.time for kink in flow.kinks if kink.kind == "pinned")
    pinned_until = next((kink.time for kink in flow.kinks if kink.kind == "released"), 2.0)
    during = [theta for time, theta in zip(flow.times, flow.theta, strict=True) if moment < time < pinned_until]
    assert len(during) > 5
    assert max(abs(theta[:2] @ [0.3, -1.0]) for theta in during) < 1e-9
    values = balances(network).along(flow.theta)
    assert np.abs(values - values[0]).max() < 1e-9
    # Forward Euler with tiny steps chatters about the kink, and its mean is the sliding flow.
    theta, step = np.array(network.theta), 2e-4
    for _ in range(round(1.0 / step)):
        theta = theta - step * at.evaluate(theta).gradient
    np.testing.assert_allclose(theta, flow.at(1.0), atol=1e-3)


def test_many_neurons_pinned_together_end_without_chattering() -> None:
    at = example("4-8-8-2 relu bias", samples=20, seed=1)
    flow = integrate(at, 12.0, snapshots=11, max_evaluations=60_000)
    assert flow.stop.reason is Reason.TIME
    assert sum(kink.kind == "pinned" for kink in flow.kinks) >= 3
    assert (np.diff(flow.losses) < 0).all()


def test_complementary_gates_satisfy_their_definition() -> None:
    rng = np.random.default_rng(0)
    for size in (1, 2, 5, 9):
        slopes = rng.normal(size=(size, 12))
        matrix = -(slopes @ slopes.T) * rng.uniform(0.1, 2.0, size=size)
        rates, start = rng.normal(size=size), rng.uniform(size=size)
        alpha = complementary(rates, matrix, start)
        rate = rates + matrix @ (alpha - start)
        assert ((alpha >= 0) & (alpha <= 1)).all()
        assert (rate[alpha == 0] <= 1e-9).all()
        assert (rate[alpha == 1] >= -1e-9).all()
        assert np.abs(rate[(alpha > 0) & (alpha < 1)]).max(initial=0.0) < 1e-9


def test_first_zero_finds_the_earliest_and_the_one_that_returns() -> None:
    assert first_zero(lambda t: np.array([1.0, 2.0]), 0.0, 1.0) is None
    two = first_zero(lambda t: np.array([0.9 - t, np.cos(4.0 * t)]), 0.0, 1.0)
    assert two == pytest.approx(np.pi / 8)
    back = first_zero(lambda t: np.array([(t - 0.3) * (t - 0.6)]), 0.0, 1.0)
    assert back == pytest.approx(0.3)


def test_dense_output_agrees_with_snapshots() -> None:
    at = example()
    flow = integrate(at, 2.0, snapshots=[0.0, 0.7, 1.9], dense=True)
    for time, theta in zip(flow.times, flow.theta, strict=True):
        np.testing.assert_allclose(flow.at(time), theta, atol=1e-12)
    with pytest.raises(LawfulError, match="covers times 0 to 2"):
        flow.at(2.5)
    with pytest.raises(LawfulError, match="dense=True"):
        integrate(at, 1.0).at(0.5)


def test_stop_conditions_are_met_exactly() -> None:
    at = example()
    flow = integrate(at, 50.0, loss_below=0.8)
    assert flow.stop.reason is Reason.LOSS
    end = integrate(at, flow.stop.time, snapshots=2).losses[-1]
    assert end == pytest.approx(0.8, abs=1e-9)
    smooth = example("3-4-2 linear")
    flow = integrate(smooth, 500.0, gradient_below=1e-3)
    assert flow.stop.reason is Reason.GRADIENT
    assert integrate(smooth, flow.stop.time, snapshots=2).gradient_norms[-1] == pytest.approx(1e-3, rel=1e-6)
    assert integrate(at, 50.0, max_evaluations=100).stop.reason is Reason.EVALUATIONS


def test_a_blow_up_stops_and_keeps_what_was_computed() -> None:
    """L = −θ³/3 from θ = 1: θ = 1/(1 − t) leaves every bound at t = 1."""

    class Cube(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.theta = torch.nn.Parameter(torch.ones(1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.theta**3 * torch.ones_like(x)

    at = problem(Cube(), np.ones((1, 1)), np.ones((1, 1)), lambda outputs, _: -outputs.mean() / 3)
    flow = integrate(at, 2.0, snapshots=[0.0, 0.5, 0.9, 0.98, 1.5], relative=1e-8)
    assert flow.stop.reason is Reason.BLOW_UP
    assert flow.stop.time == pytest.approx(1.0, abs=1e-3)
    assert "largest weight" in flow.stop.message
    assert flow.times.tolist() == [0.0, 0.5, 0.9, 0.98]
    np.testing.assert_allclose(flow.theta[:, 0], 1.0 / (1.0 - flow.times), rtol=1e-5)


def test_ctrl_c_keeps_what_was_computed() -> None:
    def interrupt(time: float, loss: float) -> None:
        if time > 1.0:
            raise KeyboardInterrupt

    flow = integrate(example(), 50.0, snapshots=501, on_step=interrupt)
    assert flow.stop.reason is Reason.INTERRUPTED
    assert 10 <= len(flow.times) < 60


def test_weight_decay_shrinks_laws_at_twice_its_rate() -> None:
    network = Architecture.parse("3-5-2 relu bias").initialise(seed=0)
    flow = integrate(example("3-5-2 relu bias"), 2.0, GradientFlow(decay=0.3), snapshots=11)
    values = balances(network).along(flow.theta)
    assert np.abs(values - values[0] * np.exp(-0.6 * flow.times)[:, None]).max() < 1e-9


def test_heavy_ball_obeys_its_balance_equation() -> None:
    """q = B̃θ² has q̈ + γq̇ = 2 B̃θ̇², because B̃(θ ⊙ g) = 0; integrated twice against the solver's own velocities."""
    network = Architecture.parse("3-5-2 relu bias").initialise(seed=0)
    flow = integrate(example("3-5-2 relu bias"), 3.0, HeavyBall(0.7), snapshots=3001)
    assert flow.velocity is not None
    laws = balances(network)
    values, squares = laws.along(flow.theta), laws.along(flow.velocity)
    step = flow.times[1]
    rate = np.gradient(values, step, axis=0)[1:-1]
    bend = np.diff(values, 2, axis=0) / step**2
    assert np.abs(bend + 0.7 * rate - 2.0 * squares[1:-1]).max() < 1e-4
    assert np.abs(values[-1] - values[0]).max() > 1e-3  # so the gradient flow's laws are broken
    energy = flow.losses + 0.5 * (flow.velocity**2).sum(axis=1)
    assert (np.diff(energy) < 1e-9).all()


def test_riemannian_flow_of_a_change_of_variables() -> None:
    """θ = exp(s): gradient flow in s is the flow in θ with the metric diag(1/θ²)."""
    x, y = np.array([[1.0, 2.0], [0.5, -1.0], [2.0, 1.0]]), np.array([[1.0], [0.2], [1.5]])
    network = Mlp([np.array([[0.7, 0.4]])])
    flow = integrate(problem(network, x, y), 2.0, Riemannian(lambda theta: np.diag(1.0 / theta**2)), snapshots=3)
    diagonal = integrate(problem(network, x, y), 2.0, Riemannian(lambda theta: 1.0 / theta**2), snapshots=3)
    np.testing.assert_allclose(flow.theta, diagonal.theta, atol=1e-12)

    class Exponential(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.s = torch.nn.Parameter(torch.log(torch.tensor([0.7, 0.4], dtype=torch.float64)))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x @ self.s.exp()[:, None]

    other = integrate(problem(Exponential(), x, y), 2.0, snapshots=3)
    np.testing.assert_allclose(np.exp(other.theta), flow.theta, atol=1e-8)
    with pytest.raises(LawfulError, match="a metric on 2 parameters"):
        integrate(problem(network, x, y), 1.0, Riemannian(lambda theta: np.ones(3)))
    singular = integrate(problem(network, x, y), 1.0, Riemannian(lambda theta: np.zeros((2, 2))))
    assert singular.stop.reason is Reason.BLOW_UP


@pytest.mark.parametrize(
    "metric",
    [
        Metric(np.linspace(0.5, 2.0, 32)),
        Metric(blocks=((np.array([4, 7]), np.array([[2.0, 1.0], [1.0, 2.0]])), (np.array([30]), np.array([[3.0]])))),
    ],
)
def test_a_constant_metric_is_the_inverse_of_a_riemannian_one(metric: Metric) -> None:
    """Kinks, pinned ones included, are met alike whichever way the metric is given."""
    at = example("3-5-2 relu bias", samples=6)
    inverse = np.linalg.inv(metric.apply(np.eye(32)))
    first = integrate(at, 2.0, Riemannian(metric), snapshots=3)
    second = integrate(at, 2.0, Riemannian(lambda theta: inverse), snapshots=3)
    np.testing.assert_allclose(first.theta, second.theta, atol=1e-9)
    assert len(first.kinks) == len(second.kinks) > 0
    assert np.abs(first.end - integrate(at, 2.0, snapshots=3).end).max() > 1e-3
    with pytest.raises(LawfulError, match="31 entries for 32 parameters"):
        integrate(at, 1.0, Riemannian(Metric(np.ones(31))))


def test_projection_holds_the_invariant_set_at_loose_tolerance() -> None:
    network = Architecture.parse("3-5-4-2 relu bias").initialise(seed=0)
    at, laws = example(), balances(network)
    loose = {"relative": 1e-3, "absolute": 1e-5, "snapshots": 2}
    free = integrate(at, 3.0, **loose).end
    held = integrate(at, 3.0, **loose, project=balance_projection(network)).end
    assert np.abs(laws.values(free) - laws.values(network.theta)).max() > 1e-7
    assert np.abs(laws.values(held) - laws.values(network.theta)).max() < 1e-12


def test_a_projection_reaches_a_given_balance(network: Mlp | Dag) -> None:
    laws = balances(network)
    goal = laws.values(network.theta) + 0.01
    found = balance_projection(network, goal)(network.theta)
    assert np.abs(laws.values(found) - goal).max(initial=0.0) < 1e-12
    with pytest.raises(LawfulError, match="as many balances"):
        balance_projection(network, np.zeros(99))


def test_a_module_flows_like_its_network() -> None:
    from lawful.sources.modules.convert import to_module

    network = Architecture.parse("3-5-2 relu bias").initialise(seed=0)
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(6, 3)), rng.normal(size=(6, 2))
    ours, theirs = (integrate(problem(model, x, y), 2.0, snapshots=3) for model in (network, to_module(network)))
    np.testing.assert_allclose(ours.theta, theirs.theta, atol=1e-9)
    assert [kink.kind for kink in ours.kinks] == [kink.kind for kink in theirs.kinks]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"time": 0.0}, "positive and finite"),
        ({"time": float("nan")}, "positive and finite"),
        ({"time": 1.0, "snapshots": [0.0, 2.0]}, "between 0 and the time"),
        ({"time": 1.0, "snapshots": 100_000_000}, "do not fit"),
    ],
)
def test_bad_requests_are_refused(options: dict, words: str) -> None:
    with pytest.raises(LawfulError, match=words):
        integrate(example(), **options)


def test_a_start_that_is_not_finite_is_refused() -> None:
    huge = Mlp([np.full((2, 2), 1e200), np.full((1, 2), 1e200)])
    with np.errstate(over="ignore", invalid="ignore"), pytest.raises(LawfulError, match="not finite at the start"):
        integrate(problem(huge, np.ones((1, 2)), np.ones((1, 1))), 1.0)
