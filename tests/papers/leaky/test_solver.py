"""Geodesics: found, recognised, read, certified; and refused when they are not."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from lawful.errors import CertificateError, LawfulError, NotACertificate, Unsupported
from lawful.papers.leaky import (
    Geodesic,
    LeakyResNet,
    TeacherTask,
    balance,
    deepen,
    energies,
    recipe,
    solve,
    solve_depths,
    teacher,
    trace,
)
from lawful.papers.leaky.mechanics import operator_norm
from lawful.papers.leaky.path import GAMMA, certificate
from lawful.papers.leaky.solver import geodesic
from lawful.papers.leaky.solver.geodesic import LEG, Hessian, Leg, newton_correction
from lawful.papers.leaky.solver.lbfgs import Point, minimise
from lawful.papers.leaky.solver.objective import Curvature, Objective
from lawful.papers.leaky.solver.paper_recipe import RecipeState
from lawful.verify import verify
from reproduction.mechanics import hamiltonian, motion, stable_norm, theorem_four

RIDGE = 0.06


@cache
def start(softness: float = 0.01) -> tuple[LeakyResNet, TeacherTask]:
    train, _ = teacher((5, 2, 5), 30)
    net = LeakyResNet.random(width=9, layers=16, effective_depth=5.0, inputs=5, outputs=5, softness=softness)
    return net, train


@cache
def solved() -> tuple[Geodesic, TeacherTask]:
    net, train = start()
    return solve(net, train, RIDGE, tolerance=1e-4, evaluations=4000), train


def test_solver_reaches_a_geodesic_and_says_how() -> None:
    geodesic, train = solved()
    assert geodesic.converged
    assert trace(geodesic.network, train, RIDGE).stationarity == pytest.approx(geodesic.stationarity, rel=1e-6)
    costs = np.array([entry.cost for entry in geodesic.history])
    assert (np.diff(costs) <= 2e-6 * costs[:-1]).all()  # also from leg to leg: no leg is undone
    reached = geodesic.evaluations_to(1e-2)
    assert reached is not None
    assert reached < geodesic.evaluations
    assert geodesic.evaluations_to(1e-30) is None


def test_a_cut_search_keeps_its_most_stationary_point() -> None:
    net, train = start()
    found = solve(net, train, RIDGE, tolerance=1e-9, evaluations=400)
    late = [entry for entry in found.history if entry.cost <= found.history[-1].cost * 1.0005]
    assert len(late) > 5
    assert found.stationarity <= 1.01 * min(entry.stationarity for entry in late)
    assert found.cost <= found.history[-1].cost * 1.0011


def test_double_precision_has_the_last_word() -> None:
    """A tolerance that single precision cannot see is reached nevertheless."""
    net, train = start()
    found = solve(net, train, RIDGE, tolerance=1e-7, evaluations=12_000)
    assert found.stationarity <= 1e-7
    assert trace(found.network, train, RIDGE).stationarity == pytest.approx(found.stationarity, rel=1e-3)


def test_at_a_geodesic_the_layers_are_symplectic_euler() -> None:
    """A_ℓ - A_{ℓ-1} = ρ ∂𝓗/∂B and B_{ℓ-1} - B_ℓ = ρ ∂𝓗/∂A at (A_{ℓ-1}, B_ℓ), up to the stationarity."""
    geodesic, train = solved()
    path = trace(geodesic.network, train, RIDGE)
    move, push = motion(path.A, path.B, path.effective_depth, path.softness)
    error = np.linalg.norm(move - path.velocity) / np.linalg.norm(path.velocity)
    assert error < 1e-3
    backwards = (path.B[:-1] - path.B[1:]) / path.steps[1:, None, None]
    assert np.linalg.norm(backwards + push[1:]) / np.linalg.norm(push[1:]) < 1e-3


def test_theorem_four_holds_on_a_trained_network() -> None:
    geodesic, train = solved()
    path = trace(geodesic.network, train, RIDGE)
    gamma = 1e-2 * operator_norm(path.lifted)
    found = theorem_four(
        path.A, path.B, path.velocity, path.steps, path.effective_depth, gamma, path.softness
    ).violations(1e-3)
    assert found["identity"] == found["distance"] == found["rate"] == found["rank_high"] == 0.0


def test_fast_energies_are_the_formulas() -> None:
    """`energies` shares work between quantities; the functions of `mechanics` do not."""
    geodesic, train = solved()
    path = trace(geodesic.network, train, RIDGE)
    found = energies(path)
    depth = path.effective_depth
    np.testing.assert_allclose(found.gamma, GAMMA * operator_norm(path.lifted), rtol=1e-10)
    np.testing.assert_allclose(
        found.rank, -2 / depth * hamiltonian(path.A, path.B, depth, path.softness), rtol=1e-9, atol=1e-9
    )
    np.testing.assert_allclose(found.coi, stable_norm(path.A, path.lifted, found.gamma), rtol=1e-8)
    np.testing.assert_allclose(
        found.kinetic * depth**2, stable_norm(path.velocity, path.lifted, found.gamma), rtol=1e-8
    )
    assert found.stationarity == pytest.approx(path.stationarity, rel=1e-9)
    for layer in (0, 7):  # B = W σ(A) K⁺ / L̃, literally
        sigma = path.lifted[layer]
        B = path.weights[layer] @ sigma @ np.linalg.pinv(sigma.T @ sigma, rcond=1e-12) / depth
        expected = 2 * (B * path.A[layer]).sum() - ((B @ sigma.T) ** 2).sum()
        assert found.rank_weights[layer] == pytest.approx(expected, rel=1e-3, abs=1e-3)


def test_second_order_estimate_varies_less_along_the_path() -> None:
    geodesic, train = solved()
    found = energies(trace(geodesic.network, train, RIDGE))
    assert np.ptp(found.rank_smooth) < np.ptp(found.rank)


def test_relu_geodesics_sit_on_kinks() -> None:
    """The soft network is stationary, the same weights with ReLU are not: why softness exists."""
    geodesic, train = solved()
    net = geodesic.network
    relu = LeakyResNet(net.weights, net.effective_depth, net.steps, into=net.into.detach(), out=net.out.detach())
    assert trace(relu, train, RIDGE).stationarity > 30 * geodesic.stationarity


def test_balance_measures_both_laws() -> None:
    geodesic, train = solved()
    found = balance(trace(geodesic.network, train, RIDGE))
    assert 0 < found.corrected < 1
    assert 0 < found.printed < 1


def test_depths_are_chained_and_adaptive_steps_are_used() -> None:
    net, train = start()
    found = solve_depths(net, train, RIDGE, (6.0, 3.0), tolerance=2e-2, evaluations=600, adaptations=2)
    assert [geodesic.network.effective_depth for geodesic in found] == [3.0, 6.0]
    for one in found:
        steps = one.network.steps.numpy()
        assert steps.sum() == pytest.approx(1.0)
        assert np.ptp(steps) > 1e-3


def test_a_deeper_start_follows_the_path_and_keeps_every_skip_connection_positive() -> None:
    """Long adaptive steps would turn negative at a larger effective depth; scaled weights would leave the path."""
    geodesic, train = solved()
    net = geodesic.network
    deeper = deepen(net, 8.0, train)
    before, after = trace(net, train, RIDGE).states[-1], trace(deeper, train, RIDGE).states[-1]
    assert np.linalg.norm(after - before) < 0.3 * np.linalg.norm(before)
    long = net.replaced(net.weights, np.r_[np.full(15, 0.84 / 15), 0.16])
    steps = deepen(long, 12.0, train).steps
    assert steps.sum().item() == pytest.approx(1.0)
    assert (steps * 12.0).max().item() < 1


def test_recipe_lowers_the_cost_and_learns_maps() -> None:
    first, train = start()
    net = first.replaced(first.weights, effective_depth=2.0)
    fixed = recipe(net, train, RIDGE, adam=150, sgd=20, rate=1e-2, adapt_every=50)
    assert fixed.cost < 0.5 * fixed.history[0].cost
    assert fixed.stationarity == pytest.approx(trace(fixed.network, train, RIDGE).stationarity, rel=1e-9)
    learner = LeakyResNet(
        net.weights, 2.0, into=net.into.detach(), out=net.out.detach(), learn_maps=True, softness=0.01
    )
    learned = recipe(learner, train, RIDGE, adam=60, sgd=5, rate=1e-2)
    assert learned.cost < fixed.history[0].cost
    assert np.abs(learned.network.out.detach().numpy() - net.out.detach().numpy()).max() > 1e-3
    with pytest.raises(Unsupported, match="recipe"):
        solve(learner, train, RIDGE)
    with pytest.raises(LawfulError, match="positive"):
        recipe(net, train, RIDGE, adam=0, sgd=0)


def test_the_same_seed_gives_the_same_bytes() -> None:
    net, train = start()
    first, second = (solve(net, train, RIDGE, evaluations=60, seed=3) for _ in range(2))
    assert first.network.weights.detach().numpy().tobytes() == second.network.weights.detach().numpy().tobytes()


def test_a_search_taken_up_from_any_leg_ends_at_the_same_bytes() -> None:
    net, train = start()
    legs: list[Leg] = []
    options = {"tolerance": 1e-5, "evaluations": 2 * LEG + 250, "adaptations": 2, "seed": 3}
    whole = solve(net, train, RIDGE, keep=legs.append, **options)
    assert [leg.stage for leg in legs[:3]] == [1, 2, 2]
    assert legs[-1].network is whole.network
    for leg in legs[::2]:
        again = solve(leg, train, RIDGE, **options)
        assert again.network.weights.detach().numpy().tobytes() == whole.network.weights.detach().numpy().tobytes()
        assert (again.cost, again.stationarity, again.evaluations) == (
            whole.cost,
            whole.stationarity,
            whole.evaluations,
        )


def test_every_leg_is_corrected_also_after_a_correction_that_did_not_help(monkeypatch: pytest.MonkeyPatch) -> None:
    net, train = start()
    legs: list[Leg] = []
    tried: list[Point] = []

    def useless(objective: Objective, point: Point, *_: object) -> Point:
        tried.append(point)
        return point

    monkeypatch.setattr(geodesic, "newton_correction", useless)
    monkeypatch.setattr(geodesic, "LEG", 20)
    solve(net, train, RIDGE, tolerance=1e-5, evaluations=150, keep=legs.append)
    assert len(tried) == len(legs) - 1 >= 4  # the last leg ends with the budget


def test_the_recipe_taken_up_again_ends_at_the_same_bytes() -> None:
    net, train = start()
    states: list[RecipeState] = []
    options = {"adam": 230, "sgd": 90, "rate": 1e-2, "adapt_every": 10}
    whole = recipe(net, train, RIDGE, keep=states.append, **options)
    assert [state.step for state in states] == [100, 200, 300]
    for state in states:
        again = recipe(state, train, RIDGE, **options)
        assert again.network.weights.detach().numpy().tobytes() == whole.network.weights.detach().numpy().tobytes()
        assert again.network.steps.numpy().tobytes() == whole.network.steps.numpy().tobytes()


def test_certificates_are_enclosed_in_balls() -> None:
    geodesic, train = solved()
    made = certificate(geodesic.network, train, RIDGE, energies(trace(geodesic.network, train, RIDGE)))
    assert "stationarity in [" in verify(made).statement
    for key, value in (
        ("stationarity", [end + 1e-3 for end in made["stationarity"]]),
        ("ranks", [[end + 0.01 for end in ends] for ends in made["ranks"]]),
        ("ridge", 2 * RIDGE),
        ("softness", 0.0),
        ("weights", (np.array(made["weights"]) * 1.001).tolist()),
        ("weights", (np.array(made["weights"]) * 0.0).tolist()),
    ):
        with pytest.raises(CertificateError):
            verify(made | {key: value})
    for key, value in (("weights", "nothing"), ("steps", made["steps"][:-1]), ("stationarity", [0.0, float("inf")])):
        with pytest.raises(NotACertificate):
            verify(made | {key: value})
    with pytest.raises(NotACertificate):
        verify({"kind": "geodesic"})


@pytest.mark.parametrize("conditioned", [False, True])
def test_lbfgs_minimises_rosenbrock_and_a_kinked_function(conditioned: bool) -> None:
    def rosenbrock(x: np.ndarray) -> tuple[float, np.ndarray]:
        a, b = x
        return (1 - a) ** 2 + 100 * (b - a * a) ** 2, np.array(
            [-2 * (1 - a) - 400 * a * (b - a * a), 200 * (b - a * a)]
        )

    solve_identity = (lambda: lambda g: 0.01 * g) if conditioned else None
    found = minimise(
        rosenbrock, np.array([-1.2, 1.0]), stop=lambda point: point.value < 1e-12, precondition=solve_identity
    )
    np.testing.assert_allclose(found.position, 1.0, atol=1e-5)

    def kinked(x: np.ndarray) -> tuple[float, np.ndarray]:
        return float(np.abs(x).sum() + x @ x), np.sign(x) + 2 * x

    count = 0

    def stop(point: object) -> bool:
        nonlocal count
        count += 1
        return count > 200

    assert minimise(kinked, np.array([3.0, -2.0, 1.0]), stop=stop).value < 1e-3


def test_products_with_the_hessian_are_differences_of_gradients() -> None:
    train, _ = teacher((5, 2, 5), 20)
    start = LeakyResNet.random(width=8, layers=6, effective_depth=3.0, inputs=5, outputs=5, softness=0.05, seed=3)
    objective = Objective(start, train, 0.06)
    point = start.weights.detach().numpy() * objective.roots
    direction = np.random.default_rng(0).normal(size=point.shape).astype(np.float32)
    objective(point)
    product = Hessian(objective)(direction)
    step = 1e-7
    ahead, behind = objective(point + step * direction)[1].copy(), objective(point - step * direction)[1]
    np.testing.assert_allclose(product, (ahead - behind) / (2 * step), atol=1e-5 * np.abs(product).max())


def test_a_correction_clears_steep_directions_and_never_makes_it_worse() -> None:
    """A path shaken at random has a gradient along steep directions: one step takes most of it, at no higher cost."""
    train, _ = teacher((6, 2, 6), 40)
    start = LeakyResNet.random(width=12, layers=12, effective_depth=4.0, inputs=6, outputs=6, softness=0.01)
    found = solve(start, train, 0.06, evaluations=250, tolerance=1e-6)
    objective = Objective(found.network, train, 0.06)
    position = found.network.weights.detach().numpy() * objective.roots
    position += 1e-3 * np.random.default_rng(1).normal(size=position.shape)
    before = Point(position, *objective(position))
    after = newton_correction(objective, before, Curvature(objective, np.random.default_rng(0)).solve)
    assert np.linalg.norm(after.gradient) < 0.3 * np.linalg.norm(before.gradient)
    assert after.value <= before.value * (1 + 1e-9)
