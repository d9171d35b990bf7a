"""Laws near given weights: dead and always-active neurons, for any data and for one data set (P4 Theorem 6)."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from lawful import Architecture, CertificateError, Dag, LawfulError, Mlp
from lawful.conservation import count_laws
from lawful.conservation.regions.near_weights import at_data, near, proved_gates
from lawful.conservation.regions.patterns import SILENT, _Levels, exact_signs, rough_signs, signs


def second_layer(rows: list[list[float]], bias: list[float]) -> Mlp:
    rng = np.random.default_rng(2)
    first, last = rng.normal(size=(3, 4)), rng.normal(size=(2, len(rows)))
    return Mlp([first, rows, last], [rng.normal(size=3), bias, rng.normal(size=2)])


ON, OFF, MIXED = [1.0, 2.0, 0.5], [-1.0, -0.3, -2.0], [1.0, -1.0, 0.7]


@pytest.mark.parametrize(
    ("rows", "bias", "extra"),
    [
        ([MIXED, MIXED], [0.1, -0.2], 0),
        ([ON, ON, MIXED], [1.0, 0.5, 0.1], 1),  # one pair of linear neurons
        ([ON, ON, ON], [1.0, 0.5, 0.1], 3),
        ([OFF, MIXED], [-1.0, 0.1], 5),  # 3 + 1 + 2 resting weights instead of one balance
        ([ON, OFF, ON], [1.0, -1.0, 0.3], 6),
    ],
)
def test_linear_and_dead_neurons_add_their_laws(rows: list[list[float]], bias: list[float], extra: int) -> None:
    mlp = second_layer(rows, bias)
    count = count_laws(mlp, level="near")
    assert count.laws == count_laws(mlp).laws + extra
    assert count.proved


def test_a_network_after_dead_neurons_rests() -> None:
    """Both second-layer neurons are dead: only the output bias still moves."""
    count = count_laws(second_layer([OFF, OFF], [-1.0, -2.0]), level="near")
    assert count.dimensions == (2,)
    assert count.proved


def test_leaky_neurons_on_one_side_are_linear_with_their_slope() -> None:
    base = second_layer([OFF, OFF, ON], [-1.0, -2.0, 1.0])
    leaky = Mlp(base.weights, base.biases, [0.0, 0.25])
    count = count_laws(leaky, level="near")
    assert count.region is not None
    assert count.region.fixed[[7, 8, 9]].tolist() == [0.25, 0.25, 1.0]
    assert count.laws == count_laws(leaky).laws + 1  # the two with equal gates pair up, the third does not
    assert count.proved


def test_weights_of_exactly_zero_prove_nothing() -> None:
    """The slightest change of the zero would turn the neuron for large inputs."""
    dag = second_layer([[1.0, 0.0, 1.0]], [1.0]).to_dag()
    assert np.isnan(proved_gates(dag)[dag.index["h2.0"]])


def test_proved_gates_are_the_gates_of_every_input(dag: Dag) -> None:
    gates = proved_gates(dag)
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(300, len(dag.inputs))) * 10 ** rng.uniform(-2, 2, size=(300, 1))
    found = np.where(signs(dag, inputs) > 0, 1.0, dag.slopes[dag.hidden])
    stated = np.broadcast_to(gates[dag.hidden], found.shape)
    compared = ~np.isnan(stated) & (_Levels(dag).signs(inputs) != SILENT)  # without a signal the gate does not matter
    assert (found[compared] == stated[compared]).all()


def test_near_counts_lie_between_the_extremes(dag: Dag) -> None:
    """Fewer fields than at the φ level, so at least as many laws."""
    count = count_laws(dag, level="near")
    assert count.laws >= count_laws(dag).laws
    assert count.laws >= count.independent


def test_the_exact_count_for_data_agrees_with_autodiff() -> None:
    """Rank of all gradients and brackets of two at θ, in float64."""
    mlp = Architecture.parse("3-4-2 relu bias").initialise(seed=3)
    dag, rng = mlp.to_dag(), np.random.default_rng(0)
    for samples in (1, 2, 4, 30):
        data = rng.normal(size=(samples, 3))
        batch = torch.as_tensor(data)

        def outputs(theta: torch.Tensor, batch: torch.Tensor = batch) -> torch.Tensor:
            return dag.evaluate(batch, theta).flatten()

        theta = torch.as_tensor(dag.theta.copy())
        first = torch.func.jacrev(outputs)(theta)
        second = torch.func.hessian(outputs)(theta)
        turned = torch.einsum("iab,jb->ija", second, first)
        brackets = (turned - turned.transpose(0, 1)).reshape(-1, dag.parameters)
        count = count_laws(mlp, level="data", data=data)
        assert count.dimensions[0] == np.linalg.matrix_rank(first.numpy())
        if len(count.dimensions) > 1:
            both = torch.cat([first, brackets]).numpy()
            assert count.dimensions[1] == np.linalg.matrix_rank(both, tol=1e-9)


def test_more_data_leaves_fewer_laws() -> None:
    mlp = Architecture.parse("3-4-2 relu bias").initialise(seed=0)
    data = np.random.default_rng(0).normal(size=(60, 3))
    laws = [count_laws(mlp, level="data", data=data[:n]).laws for n in (1, 3, 10, 60)]
    assert laws == sorted(laws, reverse=True)
    assert laws[-1] == 4


def test_regions_report_what_they_saw() -> None:
    mlp = second_layer([ON, OFF, MIXED], [1.0, -1.0, 0.1])
    region = near(mlp.to_dag())
    assert region.unsure == ()
    assert len(region.patterns) == len(region.witnesses) > 4
    some = at_data(mlp.to_dag(), np.zeros((1, 4)), 8_388_593)
    assert not np.isnan(some.fixed).any(where=mlp.to_dag().roles == 1)


@pytest.mark.parametrize(
    ("data", "words"), [(np.zeros((3, 5)), "shape"), (np.zeros((0, 4)), "shape"), (np.full((2, 4), np.nan), "finite")]
)
def test_data_that_does_not_fit(data: np.ndarray, words: str) -> None:
    with pytest.raises(LawfulError, match=words):
        count_laws(second_layer([MIXED], [0.0]), level="data", data=data)


def test_a_signal_that_vanishes_because_of_a_weight_is_no_pattern() -> None:
    """A zero weight lies on the boundary of its neuron: what is counted are the laws on a side of it."""
    count = count_laws(Mlp([[[0.0]], [[1.0]]]), level="data", data=[[1.0]])
    assert (count.laws, count.status) == (1, "proved")
    rng = np.random.default_rng(0)
    zero = Mlp([rng.normal(size=(2, 2)), np.zeros((2, 2)), rng.normal(size=(1, 2))])
    for count in (count_laws(zero, level="data", data=rng.normal(size=(20, 2))), count_laws(zero, level="near")):
        assert count.region is not None
        assert count.region.nudged
        assert (count.laws, count.independent) == (4, 4)
        assert np.abs(count.region.theta - zero.to_dag().theta).max() < 1e-6


def test_an_input_of_zero_is_a_pattern() -> None:
    """Nothing arrives whatever the weights, so nothing ever moves."""
    count = count_laws(Mlp([[[2.0]], [[1.0]]]), level="data", data=[[0.0]])
    assert (count.laws, count.status) == (2, "proved")
    assert count.region is not None
    assert not count.region.nudged


def test_a_zero_bias_alone_proves_no_gate() -> None:
    dag = Dag(["1", "a", "h", "y"], [3, 0, 1, 2], [0, 1, 2], [2, 3, 3], [0.0, 1.0, 1.0])
    assert dag.constant == 0
    assert np.isnan(proved_gates(dag)[2])


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
@pytest.mark.parametrize("apart", [1e-3, 1e-6, 1e-9, 1e-12])
def test_hyperplanes_that_almost_coincide_are_told_apart(apart: float, scale: float) -> None:
    mlp = Mlp([np.array([[1.0, 0.5], [1.0, 0.5 + apart]]) * scale, [[1.0, 2.0]]])
    count = count_laws(mlp, level="near")
    assert (count.laws, count.status) == (2, "proved")


@pytest.mark.parametrize("bias", [None, [0.3, 0.3]])
def test_hyperplanes_that_coincide_leave_the_count_undecided(bias: list[float] | None) -> None:
    count = count_laws(Mlp([[[1.0, 0.5], [1.0, 0.5]], [[1.0, 2.0]]], [bias, None]), level="near")
    assert count.status == "undecided"
    assert "h1.0 and h1.1" in count.reason


def test_signs_in_float_and_in_fractions_agree(dag: Dag) -> None:
    inputs = np.random.default_rng(1).normal(size=(20, len(dag.inputs)))
    rough = rough_signs(dag, inputs)
    exact = np.array([exact_signs(dag, point) for point in inputs])
    assert (rough[rough != 0] == exact[rough != 0]).all()
    assert np.array_equal(signs(dag, inputs), exact)


def test_neurons_that_read_signals_of_one_sign_have_one_gate() -> None:
    """After a ReLU all signals are ≥ 0: weights > 0 keep a neuron on wherever its gate matters, weights < 0 kill it."""
    dag = Mlp([[[1.0, 2.0], [-1.0, 0.5]], [[1.0, 2.0], [-1.0, -0.5], [1.0, -1.0]], [[1.0, 1.0, 1.0]]]).to_dag()
    assert proved_gates(dag)[dag.hidden[2:4]].tolist() == [1.0, 0.0]
    assert np.isnan(proved_gates(dag)[dag.hidden[4]])


@pytest.mark.parametrize("text", ["2-2-2-1 relu", "1-3-1 relu", "2-1-1-2 relu"])
def test_what_signs_prove_is_verified(text: str) -> None:
    """Neurons of one input that switch together are linear to each other; the verifier finds that by itself."""
    from lawful import verify
    from lawful.conservation.certificate import certificate

    for seed in range(6):
        count = count_laws(Architecture.parse(text).initialise(seed=seed), level="near")
        assert count.proved
        assert verify(certificate(count)).facts["laws"] == count.laws


def test_a_pair_that_does_not_switch_together_is_refused() -> None:
    from lawful import verify
    from lawful.conservation.certificate import certificate

    proof = certificate(count_laws(Mlp([[[1.0], [2.0], [-1.0]], [[1.0, 2.0, 3.0]]]), level="near"))
    pairs = [item for item in proof["known"] if item[0] == "pair"]
    assert len(pairs) == 1
    other = ["pair", pairs[0][1], next(n for n in (1, 2, 3) if n not in pairs[0][1:])]
    with pytest.raises(CertificateError, match="alike"):
        verify(proof | {"known": [item for item in proof["known"] if item[0] != "pair"] + [other]})


def test_a_pattern_that_alone_moves_weights_is_not_missed() -> None:
    """One of 330 patterns is in few sums of eight: fields drawn from all of them spanned 181 or 182 dimensions."""
    count = count_laws(Architecture.parse("3-6-7-10-9 relu").initialise(seed=0), level="near")
    assert count.dimensions == (189, 190, 190)
    assert len(count.region.patterns) == 189
