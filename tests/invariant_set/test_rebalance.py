"""Rescaling onto a balance keeps the function, reaches the balance, and is the only such rescaling."""

from __future__ import annotations

import numpy as np
import pytest
from effort import trials
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from lawful import Architecture, Dag, LawfulError, Mlp
from lawful.invariant_set import components, draw, locked_outputs, nearest_unlocked, unlock
from lawful.invariant_set.balance import balance
from lawful.invariant_set.rebalance import rebalance
from reproduction.claims.components_graphs import some_balance, some_graph


def weighted(seed: int, spread: float = 1.0) -> Dag:
    graph = some_graph(seed)
    rng = np.random.default_rng(seed)
    weights = rng.choice([-1, 1], graph.parameters) * np.exp(spread * rng.normal(size=graph.parameters))
    return graph.with_theta(weights)


@settings(max_examples=trials(27, 80), deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([0.1, 1.0, 4.0]))
def test_any_balance_is_reached_and_the_function_kept(seed: int, spread: float) -> None:
    """Every orbit meets every H(c) (P0 Section 2), weights spread over many magnitudes."""
    dag = weighted(seed, spread)
    c = np.random.default_rng(seed).normal(size=len(dag.hidden)) * np.exp(spread)
    done = rebalance(dag, c)
    size = max(1.0, float((done.dag.theta**2).max()))
    assert done.residual <= 1e-11 * size
    assert done.reached
    batch = np.random.default_rng(0).normal(size=(20, len(dag.inputs)))
    before, after = dag.evaluate(batch), done.dag.evaluate(batch)
    assert after == pytest.approx(before, rel=1e-9, abs=1e-9 * max(1.0, float(np.abs(before).max())))
    assert dag.rescaled(np.exp(done.log_scales)).theta == pytest.approx(done.dag.theta, rel=1e-12)


@settings(max_examples=trials(8, 20), deadline=None)
@given(st.integers(0, 10**6))
def test_the_rescaling_is_unique(seed: int) -> None:
    """Start anywhere on the orbit: the same point of H(c) is found (P0 Section 2)."""
    dag = weighted(seed)
    c = some_balance(dag, seed)
    other = dag.rescaled(np.exp(np.random.default_rng(seed).normal(size=len(dag.hidden))))
    assert rebalance(other, c).dag.theta == pytest.approx(rebalance(dag, c).dag.theta, rel=1e-7, abs=1e-9)


def test_newton_agrees_with_a_general_minimiser() -> None:
    dag = weighted(5)
    c = np.array(some_balance(dag, 5), dtype=float)
    squares, b = dag.theta**2, dag.hidden_incidence.toarray()

    def energy(scales: np.ndarray) -> float:  # type: ignore[type-arg]
        return float(0.5 * (squares * np.exp(2 * scales @ b)).sum() - c @ scales)

    found = minimize(energy, np.zeros(len(c)), method="BFGS", options={"gtol": 1e-9})
    assert rebalance(dag, c).log_scales == pytest.approx(found.x, abs=1e-5)


def test_equal_norms_and_deep_networks() -> None:
    for text in ("4-8-8-8-8-8-3 relu bias", "2-3-3-1 relu skip(1,2)", "-".join(["1"] * 400), "30-20-1"):
        dag = Architecture.parse(text).initialise(seed=2).to_dag()
        done = rebalance(dag, 0.0)
        assert done.residual < 1e-13
        assert done.locked == 0


def test_a_network_already_there_is_left_alone() -> None:
    dag = weighted(3)
    done = rebalance(dag, balance(dag))
    assert (done.dag.theta == dag.theta).all()
    assert done.steps == 0


def test_neurons_without_a_nonzero_path_are_reported() -> None:
    mlp = Mlp([[[0.0, 0.0], [1.0, 2.0], [3.0, 4.0], [0.0, 0.0]], [[1.0, 2.0, 0.0, 0.0]]])
    done = rebalance(mlp, 0.0)
    assert [done.dag.names[node] for node in done.unreachable] == ["h1.0", "h1.2"]  # h1.3 is balanced as it is
    assert not done.reached
    assert np.isfinite(done.dag.theta).all()
    assert done.residual < 1e-14
    assert balance(done.dag)[1] == pytest.approx(0, abs=1e-14)


def test_targets_out_of_reach_and_bad_ones_are_refused() -> None:
    graph = Architecture.parse("1-1-1").to_dag()
    assert rebalance(graph.with_theta([1e200, 1.0])).dag.theta == pytest.approx([1e100, 1e100])
    with pytest.raises(LawfulError, match="do not fit into float64"):
        rebalance(graph.with_theta([1e-300, 1e-300]), [1.0])
    with pytest.raises(LawfulError, match="one number per hidden node"):
        rebalance(weighted(3), [1.0])


# Unlocking


@settings(max_examples=trials(17, 50), deadline=None)
@given(st.integers(0, 10**6))
def test_unlocking_frees_every_edge_and_keeps_the_function(seed: int) -> None:
    dag = weighted(seed, 0.7)
    done = unlock(dag)
    assert done.locked == 0
    batch = np.random.default_rng(0).normal(size=(20, len(dag.inputs)))
    before = dag.evaluate(batch)
    assert done.dag.evaluate(batch) == pytest.approx(before, rel=1e-9, abs=1e-9 * max(1.0, float(np.abs(before).max())))


@pytest.mark.parametrize("seed", range(trials(4, 12)))
def test_no_other_unlocked_balance_is_nearer(seed: int) -> None:
    """Projection on a convex cone: `⟨c − p, q − p⟩ ≤ 0` for unlocked q, drawn by unlocking random balances."""
    graph = some_graph(seed)
    rng = np.random.default_rng(seed)
    c = 3 * rng.normal(size=len(graph.hidden))
    nearest = nearest_unlocked(graph, c)
    assert components(graph, nearest, tolerance=1e-9).connected
    for _ in range(20):
        other = nearest_unlocked(graph, 3 * rng.normal(size=len(c)))
        assert (c - nearest) @ (other - nearest) <= 1e-9


def test_a_chain_has_only_one_unlocked_balance() -> None:
    """Every neuron is an in- and an out-bottleneck, so c = 0 (P0 Theorem 1)."""
    chain = Architecture((1,) * 202).initialise(seed=5).to_dag()
    done = unlock(chain)
    assert (done.target == 0).all()
    assert done.locked == 0


@pytest.mark.parametrize("text", ["3-6-5-1 relu bias", "1-4-4-1", "2-5-5-2", "5-3-4-3-1 relu bias"])
def test_where_the_cone_has_an_inside_unlocking_is_exact(text: str) -> None:
    for seed in range(5):
        dag = Architecture.parse(text).initialise("uniform", seed=seed).to_dag()
        assert components(unlock(dag).dag).connected


@pytest.mark.parametrize("power", [-1000, -300, 300, 900])
def test_scale_changes_neither_rebalancing_nor_unlocking(power: int) -> None:
    dag = weighted(8)
    far = dag.with_theta(dag.theta * 2.0**power)
    for verb in (rebalance, unlock):
        here, there = verb(dag), verb(far)
        assert there.dag.theta / 2.0**power == pytest.approx(here.dag.theta, rel=1e-9)
        assert there.locked == here.locked == 0
        assert there.reached


def test_weights_whose_squares_vanish_beside_others_still_count() -> None:
    dag = Architecture.parse("2-1-1").to_dag().with_theta([1e-170, 1e-170, 1e170])
    done = rebalance(dag)
    assert done.reached
    assert done.dag.theta == pytest.approx([2**-0.25, 2**-0.25, 2**0.25])


def test_unlocking_a_free_network_changes_nothing() -> None:
    dag = Architecture.parse("3-4-2").initialise(seed=0).to_dag()
    assert (unlock(dag).dag.theta == dag.theta).all()


@pytest.mark.parametrize("scheme", ["torch", "he", "xavier", "uniform"])
def test_initial_weights_have_no_lock_or_the_balance_asked_for(scheme: str) -> None:
    graph = Architecture.parse("2-6-5-1 relu bias")
    plain = [components(graph.initialise(scheme, seed)).log2_components for seed in range(8)]
    free = [components(draw(graph, scheme=scheme, seed=seed)).log2_components for seed in range(8)]
    assert scheme in ("torch", "uniform") or sum(plain) > 0
    assert sum(free) == 0
    c = np.linspace(-1, 1, 11)
    assert balance(draw(graph, balance=c, scheme=scheme)) == pytest.approx(c, abs=1e-13)


# Meaning


def test_a_locked_output_is_confined_and_its_factor_frees_it() -> None:
    dag = Architecture.parse("2-3-1").to_dag().with_theta([1, 1, 2, 0, 1, 1, -3, -4, -5.0])
    (meaning,) = locked_outputs(components(dag))
    assert meaning.confined == "below"
    factors = [neuron.factor for neuron in meaning.locked]
    assert factors == pytest.approx([(9 / 2) ** 0.25, (16 / 4) ** 0.25, (25 / 2) ** 0.25])
    freed = dag.rescaled([1.000001 * (factor or 1.0) for factor in factors])
    assert components(freed).connected
    nearly = dag.rescaled([0.999 * (factor or 1.0) for factor in factors])
    assert components(nearly).log2_components == 3


def test_mixed_signs_leaky_neurons_and_free_neurons_do_not_confine() -> None:
    weights = [1, 1, 2, 0, 1, 1, -3, 4, -5.0]
    assert locked_outputs(components(Architecture.parse("2-3-1").to_dag().with_theta(weights)))[0].confined is None
    leaky = Architecture.parse("2-3-1 leaky_relu(0.1)").to_dag().with_theta([1, 1, 2, 0, 1, 1, 3, 4, 5.0])
    assert locked_outputs(components(leaky))[0].confined is None
    free = Architecture.parse("2-3-1").to_dag().with_theta([9, 9, 2, 0, 1, 1, 3, 4, 5.0])
    assert locked_outputs(components(free))[0].confined is None
    assert len(locked_outputs(components(free))[0].locked) == 2
    assert locked_outputs(components(Architecture.parse("2-3-2").initialise())) == ()
