"""Lossless pruning: every trap that public tools fall into, bounds that hold, and a verifier that can fail."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from effort import trials
from hypothesis import given, settings
from hypothesis import strategies as st

from lawful import verify as recheck
from lawful.errors import CertificateError, LawfulError
from lawful.network import Architecture, Dag, Mlp, Role, initialise
from lawful.pruning.neurons.certificate import certificate
from lawful.pruning.neurons.prune import Pruning, prune

RNG = np.random.default_rng(0)


def verify(pruning: Pruning) -> None:
    recheck(certificate(pruning), pruning.original, pruning.network)


def shallow(seed: int = 0, widths: tuple[int, int, int] = (3, 6, 2)) -> tuple[list[np.ndarray], list[np.ndarray]]:
    rng = np.random.default_rng(seed)
    n, h, m = widths
    return [rng.normal(size=(h, n)), rng.normal(size=(m, h))], [0.2 * rng.normal(size=h), rng.normal(size=m)]


def check(pruning: Pruning, neurons: int, spread: float = 3.0) -> None:
    """The verifier agrees, the count is right, and outputs move by no more than stated (and what floats lose)."""
    verify(pruning)
    assert pruning.neurons_after == neurons
    dag = pruning.original.to_dag()
    low, high = pruning.box if pruning.box is not None else (-spread, spread)
    batch = np.random.default_rng(1).uniform(low, high, (500, len(dag.inputs)))
    before = pruning.original.evaluate(batch)
    change = np.abs(before - pruning.network.evaluate(batch)).max()
    assert change <= pruning.bound + spread * pruning.rounding + 1e-13 * np.abs(before).max()


def exactly(pruning: Pruning, neurons: int) -> None:
    assert pruning.bound == 0.0
    assert pruning.rounding < 1e-13
    check(pruning, neurons)


# The traps


def test_zero_inputs_without_bias() -> None:
    weights, _ = shallow()
    weights[0][2] = 0.0
    exactly(prune(Mlp(weights)), 5)


def test_zero_inputs_with_a_bias_fold_the_constant() -> None:
    weights, biases = shallow()
    weights[0][2], biases[0][2] = 0.0, 0.7
    pruning = prune(Mlp(weights, biases))
    exactly(pruning, 5)
    assert pruning.stages[0].evidence == {"h1.2": Fraction(0.7)}


def test_zero_inputs_with_a_negative_bias_need_no_folding() -> None:
    weights, biases = shallow()
    weights[0][2], biases[0][2] = 0.0, -0.7
    pruning = prune(Mlp(weights, biases))
    exactly(pruning, 5)
    assert pruning.rounding == 0.0


def test_zero_outputs() -> None:
    weights, biases = shallow()
    weights[1][:, 4] = 0.0
    exactly(prune(Mlp(weights, biases)), 5)


def test_a_live_neuron_whose_weights_sum_to_zero_stays() -> None:
    mlp = Mlp([[[1.0, -1.0], [0.5, 0.25]], [[1.0, 1.0]]], [[0.0, 0.0], [0.0]])
    pruning = prune(mlp)
    exactly(pruning, 2)
    assert np.array_equal(pruning.network.theta, mlp.theta)


def test_always_inactive_on_the_box_only() -> None:
    weights, biases = shallow()
    biases[0][1] = -np.abs(weights[0][1]).sum() - 0.1
    mlp = Mlp(weights, biases)
    exactly(prune(mlp), 6)
    exactly(prune(mlp, box=(-1.0, 1.0)), 5)
    exactly(prune(mlp, box=(-2.0, 2.0)), 6)


def test_always_inactive_everywhere() -> None:
    weights = [np.array([[1.0, 2.0], [-1.0, 1.0]]), np.array([[-1.0, -2.0], [1.0, -1.0]]), np.array([[1.0, 1.0]])]
    pruning = prune(Mlp(weights))
    exactly(pruning, 3)
    assert [stage.kind for stage in pruning.stages] == ["dead"]


def test_always_active_neurons_of_a_layer_join() -> None:
    weights, biases = shallow(widths=(3, 6, 1))
    for neuron in (0, 2, 5):
        biases[0][neuron] = np.abs(weights[0][neuron]).sum() + 0.1
    pruning = prune(Mlp(weights, biases), box=(-1.0, 1.0))
    exactly(pruning, 4)
    assert isinstance(pruning.network, Mlp)
    assert [stage.kind for stage in pruning.stages] == ["joined"]


def test_always_active_neurons_of_a_graph_become_edges() -> None:
    weights, biases = shallow(widths=(3, 6, 1))
    biases[0][3] = np.abs(weights[0][3]).sum() + 0.1
    pruning = prune(Mlp(weights, biases), box=(-1.0, 1.0), skips=True)
    exactly(pruning, 5)
    assert pruning.network.parameters < pruning.original.parameters


def test_duplicates_up_to_a_positive_scale() -> None:
    weights, biases = shallow()
    weights[0][3], biases[0][3] = 4.0 * weights[0][1], 4.0 * biases[0][1]
    weights[0][5], biases[0][5] = -weights[0][1], -biases[0][1]  # the opposite ray is no duplicate
    exactly(prune(Mlp(weights, biases)), 5)


def test_a_scale_that_rounds_is_no_exact_duplicate_but_a_near_one() -> None:
    weights, biases = shallow()
    weights[0][3], biases[0][3] = weights[0][1] * 0.3, biases[0][1] * 0.3
    mlp = Mlp(weights, biases)
    row, other = [Fraction(x) for x in weights[0][3]], [Fraction(x) for x in weights[0][1]]
    assert len({a / b for a, b in zip(row, other, strict=True)}) > 1
    exactly(prune(mlp), 6)
    pruning = prune(mlp, tolerance=1e-12, box=(-1.0, 1.0), replayable=True)
    check(pruning, 5)
    assert 0 < pruning.bound < 1e-13


def test_cancelling_pairs() -> None:
    weights, biases = shallow()
    weights[0][3], biases[0][3] = 2.0 * weights[0][1], 2.0 * biases[0][1]
    weights[1][:, 3] = -weights[1][:, 1] / 2
    pruning = prune(Mlp(weights, biases))
    exactly(pruning, 4)
    assert pruning.rounding == 0.0


@pytest.mark.parametrize("slope", [0.0, 0.25])
def test_a_pair_that_cancels_up_to_a_linear_part(slope: float) -> None:
    """relu(z) - relu(-z) = z: on a graph both neurons become direct edges."""
    row = np.array([[0.7, -1.3, 0.4]])
    mlp = Mlp([np.vstack([row, -2 * row, [[1.0, 1.0, 1.0]]]), [[3.0, -1.5, 1.0]]], [[0.2, -0.4, 0.1], [0.5]], slope)
    pruning = prune(mlp, skips=True)
    assert [stage.kind for stage in pruning.stages] == ["opposite", "silent"]
    exactly(pruning, 1)
    check(prune(mlp), 3)  # a layered network has no direct edges


def test_a_pair_on_opposite_rays_keeps_one_neuron() -> None:
    row = np.array([[0.7, -1.3, 0.4]])
    mlp = Mlp([np.vstack([row, -2 * row]), [[3.0, 1.0]]])
    exactly(prune(mlp, skips=True), 1)


def test_a_dag_of_single_neurons() -> None:
    names = ("a", "b", "u", "v", "w", "t", "y")
    roles = [Role.INPUT, Role.INPUT, *[Role.HIDDEN] * 4, Role.OUTPUT]
    edges = [("a", "u", 1.0), ("b", "u", -1.0), ("a", "v", 2.0), ("b", "v", -2.0), ("u", "w", 1.0), ("v", "w", 0.5),
             ("w", "y", 1.0), ("b", "t", 1.0), ("t", "y", 0.0), ("u", "y", 3.0)]  # fmt: skip
    dag = Dag(names, roles, *zip(*[(names.index(a), names.index(b)) for a, b, _ in edges], strict=True),  # type: ignore[call-arg]
              [weight for *_, weight in edges])  # fmt: skip
    pruning = prune(dag)
    verify(pruning)
    # t is unheard, v is twice u, and w, which then is 2u with u >= 0, is linear: only u stays
    assert [pruning.network.names[node] for node in pruning.network.hidden] == ["u"]
    batch = RNG.normal(size=(200, 2))
    assert np.allclose(pruning.network.evaluate(batch), dag.evaluate(batch), rtol=1e-13, atol=0)


def test_everything_constant_leaves_the_biases() -> None:
    mlp = Mlp(
        [np.zeros((3, 2)), RNG.normal(size=(4, 3)), RNG.normal(size=(1, 4))], [np.ones(3), np.ones(4), np.ones(1)]
    )
    exactly(prune(mlp), 0)


def test_a_fold_that_does_not_fit_into_a_float_is_left() -> None:
    huge = Mlp([[[0.0], [1.0]], [[1e200, 1.0]]], [[1e200, 0.0], [0.0]])
    pruning = prune(huge)
    verify(pruning)
    assert pruning.neurons_after == 2


def test_deep_network_with_several_redundancies_at_once() -> None:
    mlp = Architecture.parse("4-8-8-6-2 leaky_relu(0.1) bias").initialise("he", seed=3)
    weights, biases = [w.copy() for w in mlp.weights], [b.copy() for b in mlp.biases if b is not None]
    weights[0][0], weights[1][3], weights[2][:, 5] = 0.0, 0.0, 0.0
    weights[1][6], biases[1][6] = 2 * weights[1][1], 2 * biases[1][1]
    exactly(prune(Mlp(weights, biases, mlp.slopes)), 22 - 4)


# Tolerances and bounds


@pytest.mark.parametrize("tolerance", [1e-3, 0.1, 10.0])
@pytest.mark.parametrize("text", ["3-12-2 relu bias", "3-6-6-2 relu bias", "3-6-5-1 leaky_relu(0.2)"])
def test_near_pruning_stays_within_the_tolerance(text: str, tolerance: float) -> None:
    mlp = Architecture.parse(text).initialise(seed=5)
    theta = mlp.theta.copy()
    theta[:12] *= 1e-4
    pruning = prune(mlp.with_theta(theta), tolerance=tolerance, box=(-1.0, 1.0), replayable=True)
    assert pruning.bound + pruning.rounding <= tolerance
    check(pruning, pruning.neurons_after)
    assert pruning.neurons_after < pruning.neurons_before


def test_a_tolerance_without_a_box_takes_the_unit_box() -> None:
    weights, biases = shallow()
    weights[0][0] *= 1e-6
    biases[0][0] = 0.0
    pruning = prune(Mlp(weights, biases), tolerance=1e-3, replayable=True)
    check(pruning, 5)
    assert pruning.box is not None
    assert 0 < pruning.bound <= 1e-3


@settings(max_examples=trials(20, 60), deadline=None)
@given(st.integers(0, 10**6), st.booleans(), st.booleans())
def test_random_graphs_with_small_integer_weights(seed: int, bias: bool, boxed: bool) -> None:
    rng = np.random.default_rng(seed)
    graph = Architecture(tuple(rng.integers(2, 5, size=4)), bias=bias, skips=((1, 2),)).to_dag()
    slopes = rng.choice([0.0, 0.5, 1.0], p=[0.7, 0.2, 0.1], size=len(graph.names))
    theta = rng.choice([-1.0, 0.0, 1.0, 2.0], p=[0.2, 0.45, 0.25, 0.1], size=graph.parameters)
    dag = Dag(graph.names, graph.roles, graph.tails, graph.heads, theta, slopes)
    pruning = prune(dag, replayable=True, box=(-1.0, 1.0) if boxed else None)
    verify(pruning)
    assert pruning.bound == 0.0
    batch = rng.uniform(-1, 1, (100, len(dag.inputs)))
    assert np.abs(pruning.network.evaluate(batch) - dag.evaluate(batch)).max() < 1e-12


# The verifier


def pruned_with(seed: int = 0) -> Pruning:
    weights, biases = shallow(seed)
    weights[0][2], biases[0][2] = 0.0, 0.7
    weights[0][3], biases[0][3] = 4.0 * weights[0][1], 4.0 * biases[0][1]
    return prune(Mlp(weights, biases))


def test_verifier_rejects_changed_weights() -> None:
    pruning = pruned_with()
    stage = pruning.stages[0]
    theta = stage.after.theta.copy()
    theta[-1] += 1e-9
    broken = replace(stage, after=stage.after.with_theta(theta))
    with pytest.raises(CertificateError):
        verify(replace(pruning, stages=(broken, *pruning.stages[1:])))


def test_verifier_rejects_a_live_neuron_removed() -> None:
    pruning = pruned_with()
    stage = pruning.stages[0]
    for kind in ("silent", "constant", "dead", "linear"):
        fake = replace(
            stage, kind=kind, after=stage.before.without_nodes([4]), evidence={stage.before.names[4]: Fraction(1)}
        )
        with pytest.raises(CertificateError):
            recheck(certificate(replace(pruning, stages=(fake,), network=fake.after)))


def test_verifier_rejects_a_wrong_factor() -> None:
    pruning = pruned_with()
    place = next(k for k, stage in enumerate(pruning.stages) if stage.kind == "duplicate")
    stage = pruning.stages[place]
    ((name, (partner, factor)),) = stage.evidence.items()
    wrong = replace(stage, evidence={name: (partner, factor * 2)})
    with pytest.raises(CertificateError, match="an unbounded value"):
        verify(replace(pruning, stages=(*pruning.stages[:place], wrong, *pruning.stages[place + 1 :])))


def test_verifier_rejects_a_bound_too_small() -> None:
    pruning = prune(Mlp(*shallow()), tolerance=3.0, replayable=True)
    place = next(k for k, stage in enumerate(pruning.stages) if stage.kind == "near")
    stage = replace(pruning.stages[place], bound=pruning.stages[place].bound * 0.99)
    verify(pruning)
    with pytest.raises(CertificateError, match="bound"):
        verify(replace(pruning, stages=(*pruning.stages[:place], stage, *pruning.stages[place + 1 :])))


def test_verifier_rejects_a_box_that_was_widened() -> None:
    weights, biases = shallow(widths=(3, 6, 1))
    for neuron in (0, 2, 5):
        biases[0][neuron] = np.abs(weights[0][neuron]).sum() + 0.1
    pruning = prune(Mlp(weights, biases), box=(-1.0, 1.0))
    with pytest.raises(CertificateError, match="not always active"):
        verify(replace(pruning, box=(np.full(3, -2.0), np.full(3, 2.0))))


@pytest.mark.parametrize("box", [(1.0, -1.0), (float("nan"), 1.0), ([0.0, 0.0], [1.0, 1.0])])
def test_a_wrong_box_is_refused(box: tuple) -> None:
    with pytest.raises(LawfulError, match="box"):
        prune(Mlp(*shallow()), box=box)


def test_a_negative_tolerance_is_refused() -> None:
    with pytest.raises(LawfulError, match="tolerance"):
        prune(initialise(Architecture.parse("2-2-1").to_dag()), tolerance=-1.0)
