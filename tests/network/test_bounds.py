"""Intervals contain the true pre-activations, computed in exact fractions; dead and linear neurons are so."""

from __future__ import annotations

import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from effort import trials
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))
from network_instances import all_networks, sparse_dag

from lawful.errors import LawfulError, Unsupported
from lawful.network import Architecture, Dag, Mlp, Role
from lawful.network.relaxation import classify, preactivation_bounds


def exact_preactivations(dag: Dag, inputs: np.ndarray) -> list[Fraction]:
    """Every node's sum in rational arithmetic, node by node: slow, and nothing like the code under test."""
    sums = [Fraction(0)] * len(dag.names)
    values = [Fraction(0)] * len(dag.names)
    for place, node in enumerate(dag.inputs):
        sums[node] = values[node] = Fraction(float(inputs[place]))
    if dag.constant is not None:
        sums[dag.constant] = values[dag.constant] = Fraction(1)
    for node in np.argsort(dag.levels, kind="stable"):
        if dag.roles[node] in (Role.HIDDEN, Role.OUTPUT):
            edges = np.flatnonzero(dag.heads == node)
            sums[node] = sum((Fraction(float(dag.theta[e])) * values[dag.tails[e]] for e in edges), Fraction(0))
            slope = Fraction(float(dag.slopes[node]))
            values[node] = sums[node] if sums[node] > 0 else slope * sums[node]
    return sums


@settings(max_examples=trials(13, 40), deadline=None)
@given(
    seed=st.integers(0, 10**6),
    slope=st.sampled_from([0.0, 1.0, 0.1, -0.7, 3.0, "mixed"]),
    radius=st.floats(0, 1e3),
    scale=st.sampled_from([1.0, 1e-200, 1e150]),
)
def test_bounds_contain_the_exact_sums(seed: int, slope: object, radius: float, scale: float) -> None:
    dag = sparse_dag(seed, nodes=16, density=0.4, slopes=slope)
    dag = dag.with_theta(dag.theta * scale)
    rng = np.random.default_rng(seed)
    middle = rng.normal(size=len(dag.inputs))
    low, high = middle - radius, middle + radius
    lower, upper = preactivation_bounds(dag, low, high)
    corners = np.where(rng.random((3, len(middle))) < 0.5, low, high)
    for point in (low, high, *corners, *rng.uniform(low, high, (3, len(middle)))):
        for node, total in enumerate(exact_preactivations(dag, point)):
            assert lower[node] == -np.inf or Fraction(float(lower[node])) <= total
            assert upper[node] == np.inf or total <= Fraction(float(upper[node]))


def test_bounds_of_one_linear_layer_are_attained() -> None:
    mlp = Mlp([np.array([[2.0, -3.0], [0.0, 1.0]])], [np.array([0.5, 0.0])])
    lower, upper = preactivation_bounds(mlp.to_dag(), [-1.0, -2.0], [1.0, 4.0])
    assert lower[2:4] == pytest.approx([-13.5, -2.0], rel=1e-14)
    assert upper[2:4] == pytest.approx([8.5, 4.0], rel=1e-14)
    assert lower[3] == -2.0  # nothing was rounded there


def test_unbounded_inputs_and_zero_weights() -> None:
    mlp = Mlp([np.array([[0.0], [1.0], [-2.0]]), np.array([[-1.0, -1.0, 0.0], [1.0, 0.0, 0.0]])], [[1.0, 0, 0], None])
    lower, upper = preactivation_bounds(mlp.to_dag())
    assert (lower[1:4].tolist(), upper[1:4].tolist()) == ([1.0, -np.inf, -np.inf], [1.0, np.inf, np.inf])
    assert (lower[4:6].tolist(), upper[4:6].tolist()) == ([-np.inf, 1.0], [-1.0, 1.0])


@pytest.mark.parametrize("name", all_networks())
def test_settled_neurons_behave_so_on_samples(name: str) -> None:
    dag = all_networks()[name].to_dag()
    low, high = np.full(len(dag.inputs), 0.0), np.full(len(dag.inputs), 0.5)
    found = classify(dag, low, high)
    values = dag.activations(np.random.default_rng(0).uniform(low, high, (500, len(low))))
    assert (values[:, found.dead] == 0).all()
    rising = found.always_linear & (found.lower >= 0)
    assert (values[:, rising] >= 0).all()
    assert not (found.dead & found.always_linear).any()
    assert not (found.dead | found.always_linear)[dag.roles != Role.HIDDEN].any()


def test_a_network_with_known_dead_and_linear_neurons() -> None:
    # Layer 2 sees only nonnegative values: negative weights and bias kill a neuron, positive ones make it linear.
    second = np.array([[-1.0, -2.0, 0.0], [1.0, 0.5, 0.0], [1.0, -1.0, 1.0]])
    mlp = Mlp([np.eye(3), second, np.ones((1, 3))], [None, [-0.5, 0.0, -1.0], None])
    found = classify(mlp.to_dag())
    assert found.dead[6:9].tolist() == [True, False, False]
    assert found.always_linear[6:9].tolist() == [False, True, False]
    leaky = classify(Mlp(mlp.weights, mlp.biases, 0.5).to_dag())
    assert not leaky.dead.any()


def test_bad_boxes_are_refused() -> None:
    dag = Architecture.parse("2-2-1 relu").initialise().to_dag()
    with pytest.raises(LawfulError, match="low ≤ high"):
        preactivation_bounds(dag, 1.0, 0.0)
    with pytest.raises(LawfulError, match="low ≤ high"):
        preactivation_bounds(dag, [0.0, np.nan], 1.0)
    with pytest.raises(LawfulError, match="2 inputs"):
        preactivation_bounds(dag, [0.0, 0.0, 0.0], 1.0)
    with pytest.raises(Unsupported, match="no weights"):
        preactivation_bounds(Architecture.parse("2-2-1").to_dag())


def test_an_output_that_hears_nothing_is_zero() -> None:
    roles = [Role.INPUT, Role.HIDDEN, Role.OUTPUT, Role.OUTPUT]
    dag = Dag(("x", "h", "y", "z"), roles, [0, 1], [1, 2], [1.0, 1.0])
    lower, upper = preactivation_bounds(dag, 0.0, 1.0)
    assert lower[3] == upper[3] == dag.evaluate([[1.0]])[0, 1] == 0.0
