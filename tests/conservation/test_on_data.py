"""Laws at the level of the data, and near weights where all patterns are known: named, proved, re-checked."""

import json
from fractions import Fraction

import numpy as np
import pytest
import torch
from effort import trials
from hypothesis import given, settings
from hypothesis import strategies as st

import lawful
from lawful.conservation import HeavyBall, Metric, count_laws
from lawful.conservation.certificate import certificate
from lawful.conservation.regions.on_a_line import line_patterns
from lawful.errors import CertificateError
from lawful.network import Architecture, Mlp

WORDS = ("relu", "relu bias", "linear", "leaky_relu(0.5) bias")


def _case(seed: int) -> tuple[Mlp, np.ndarray]:
    rng = np.random.default_rng(seed)
    widths = rng.integers(1, 5, size=int(rng.integers(3, 5))).tolist()
    text = "-".join(map(str, widths)) + " " + WORDS[seed % len(WORDS)]
    network = Architecture.parse(text).initialise(seed=seed)
    return network, np.round(rng.normal(size=(int(rng.integers(1, 6)), widths[0])) * 64) / 64


def _json(count):
    return json.loads(json.dumps(certificate(count)))


@settings(max_examples=trials(13, 40))
@given(st.integers(0, 10_000), st.sampled_from(["full", "cross-entropy"]))
def test_explicit_laws_on_data_never_exceed_the_count_and_proofs_verify(seed, loss):
    network, data = _case(seed)
    count = count_laws(network, level="data", data=data, loss=loss)
    assert count.independent <= count.laws
    if count.proved:
        assert lawful.verify(_json(count)).facts["laws"] == count.laws


@pytest.mark.parametrize("level", ["data", "near"])
def test_almost_all_random_counts_are_proved(level):
    """Sums that no sample moves, gates that do not matter, all patterns of a line: 45% of these were proved without."""
    cases = [_case(seed) for seed in range(100)]
    counts = [count_laws(net, level=level, data=data if level == "data" else None) for net, data in cases]
    assert sum(count.proved for count in counts) >= 96


def test_one_sample_moves_the_first_layer_along_itself():
    """∇_W f = δ xᵀ: of the weights into a neuron only the direction of x moves."""
    count = count_laws(Mlp([[[1.0, 0.5, 0.25]], [[1.0], [2.0]]]), level="data", data=[[2.0, 3.0, 5.0]])
    sums = [law for law in count.known if law.kind == "still"]
    assert (count.laws, count.status, len(sums)) == (3, "proved", 2)
    for law in sums:
        assert sum(law.terms.get((edge,), 0) * x for edge, x in enumerate((2, 3, 5))) == 0


def test_sums_survive_training_of_the_module():
    """Gradient descent, any step: linear laws are kept exactly up to rounding."""
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU(), torch.nn.Linear(3, 2)).double()
    data = np.array([[1.0, 2.0, -1.0, 0.5], [0.5, -1.0, 2.0, 1.0]])
    count = count_laws(module, level="data", data=data)
    sums = [law for law in count.known if law.kind == "still"]
    theta = lambda: lawful.open(module).to_dag().theta  # noqa: E731
    before = [law.value(theta()) for law in sums]
    optimiser = torch.optim.SGD(module.parameters(), lr=1e-3)
    inputs, targets = torch.tensor(data), torch.randn(2, 2, dtype=torch.float64)
    start = theta()
    for _ in range(50):
        optimiser.zero_grad()
        torch.nn.functional.mse_loss(module(inputs), targets).backward()
        optimiser.step()
    assert sums
    assert np.abs(theta() - start).max() > 1e-3
    assert np.allclose([law.value(theta()) for law in sums], before, atol=1e-12)


def test_a_gate_between_two_silent_neurons_matters():
    """Two neurons in a row that are both off: neither alone would change anything if it opened, both together would."""
    chain = Mlp([[[1.0], [-1.0]], [[1.0, 0.5], [-1.0, 0.25]], [[1.0, 1.0]]])
    count = count_laws(chain, level="data", data=[[1.0], [-1.0]])
    assert count.independent <= count.laws
    assert lawful.verify(_json(count)).facts["laws"] == count.laws


def test_diagonal_metrics_keep_the_bound_of_one_field():
    network = Architecture.parse("4-3-2-1 linear").initialise(seed=3)
    speeds = np.arange(1, network.parameters + 1) / 4
    count = count_laws(network, level="data", data=[[1.0, 2.0, 3.0, 4.0]], flow=Metric(speeds))
    assert (count.laws, count.status) == (network.parameters - 1, "proved")
    assert lawful.verify(_json(count)).facts["laws"] == count.laws


# Momentum


@pytest.mark.parametrize("friction", [0.0, 0.5])
@pytest.mark.parametrize("autonomous", [False, True])
@pytest.mark.parametrize("text", ["3-4-2 relu", "2-2-2 linear"])
def test_momentum_keeps_impulse_and_resting_place_of_forceless_sums(text, friction, autonomous):
    """Cross-entropy never pushes the sum of a neuron's outgoing weights: two laws each, proved and re-checked."""
    count = count_laws(text, loss="cross-entropy", flow=HeavyBall(friction, autonomous))
    assert (count.laws, count.status) == ({"3-4-2 relu": 8, "2-2-2 linear": 5}[text] - autonomous, "proved")
    assert lawful.verify(_json(count)).facts["laws"] == count.laws


def test_a_heavy_ball_integrated_by_hand_keeps_them():
    """θ'' = −γθ' − ∇E for the cross-entropy of 2-3-2 ReLU, by Runge-Kutta with autograd's gradients."""
    network, friction = Architecture.parse("2-3-2 relu").initialise(seed=1), 0.5
    kept = count_laws("2-3-2 relu", loss="cross-entropy", flow=HeavyBall(friction)).known
    size = network.parameters
    x, labels = torch.randn(5, 2, dtype=torch.float64), torch.tensor([0, 1, 1, 0, 1])

    def motion(state):
        theta = torch.tensor(state[:size], requires_grad=True)
        first, second = theta[:6].reshape(3, 2), theta[6:].reshape(2, 3)
        loss = torch.nn.functional.cross_entropy(torch.relu(x @ first.T) @ second.T, labels)
        (gradient,) = torch.autograd.grad(loss, theta)
        return np.concatenate([state[size:], -friction * state[size:] - gradient.numpy()])

    order = np.concatenate([np.asarray(w).ravel() for w in network.weights])
    dag = network.to_dag()
    place = [int(np.flatnonzero(dag.theta == value)[0]) for value in order]  # where the graph keeps each entry
    state, step = np.concatenate([order, np.random.default_rng(0).normal(size=size)]), 0.01

    def values(at):
        there = np.empty(2 * size)
        there[place], there[size + np.array(place)] = at[:size], at[size:]
        return {kind: [law.value(there) for law in kept if law.kind == kind] for kind in ("impulse", "rest")}

    before = values(state)
    for _ in range(100):
        one = motion(state)
        two = motion(state + step / 2 * one)
        three = motion(state + step / 2 * two)
        state = state + step / 6 * (one + 2 * two + 2 * three + motion(state + step * three))
    after = values(state)
    assert len(before["rest"]) == 3
    assert np.allclose(after["rest"], before["rest"], atol=1e-9)
    assert np.allclose(np.exp(friction * 1.0) * np.array(after["impulse"]), before["impulse"], atol=1e-9)


def test_a_numerical_count_is_too_large_with_a_stated_probability() -> None:
    """Several random primes, as many as it takes: the bound of one run is about 1e-3 here."""
    network = Architecture.parse("2-3-1-4 relu bias").initialise(seed=0)
    data = np.random.default_rng(1).normal(size=(2, 2))
    counts = [count_laws(network, level="data", data=data, prime=10_007, seed=seed) for seed in range(4)]
    assert {count.status for count in counts} == {"numerical"}
    assert all(0 < count.error <= 1e-30 for count in counts)
    assert {count.laws for count in counts} == {count_laws(network, level="data", data=data).laws}


def test_on_a_boundary_only_laws_of_all_sides_are_stated() -> None:
    """At zero weights both samples may be on: one sum is conserved whichever are, two only where one sample is off."""
    zero = Architecture.parse("2-1-2 relu bias").initialise(seed=0).to_dag()
    zero = zero.with_theta(np.zeros(zero.parameters))
    for seed in range(4):
        count = count_laws(zero, level="data", data=[[1.0, 2.0], [0.5, -1.0]], seed=seed)
        assert (count.laws, count.independent, count.status) == (2, 2, "proved")


# All patterns of a line


def _sampled_patterns(network: Mlp, seed: int) -> set[tuple[bool, ...]]:
    """Brute force: the gates at many inputs of all sizes."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(20_000, network.widths[0])) * 10.0 ** rng.uniform(-3, 3, size=(20_000, 1))
    found, signal = [], x.T
    for weight, bias in zip(network.weights[:-1], network.biases[:-1], strict=True):
        before = weight @ signal + (0.0 if bias is None else bias[:, None])
        found.append(before > 0)
        signal = np.maximum(before, 0.0)
    return {tuple(column) for column in np.concatenate(found).T}


@pytest.mark.parametrize("text", ["1-4-3-2 relu bias", "1-3-3-2 relu", "2-3-4-1 relu", "1-5-5-5-1 relu bias"])
@pytest.mark.parametrize("seed", range(4))
def test_every_pattern_that_sampling_sees_is_on_the_line(text, seed):
    network = Architecture.parse(text).initialise(seed=seed)
    patterns, inputs = line_patterns(network.to_dag())
    known = {tuple(row) for row in (patterns > 0).tolist()}
    active = _live(network, inputs)
    assert _effective(network, _sampled_patterns(network, seed)) <= _effective(network, known)
    assert active == known or _effective(network, active) == _effective(network, known)


def _live(network: Mlp, inputs: np.ndarray) -> set[tuple[bool, ...]]:
    found, signal = [], inputs.T
    for weight, bias in zip(network.weights[:-1], network.biases[:-1], strict=True):
        before = weight @ signal + (0.0 if bias is None else bias[:, None])
        found.append(before > 0)
        signal = np.maximum(before, 0.0)
    return {tuple(column) for column in np.concatenate(found).T}


def _effective(network: Mlp, patterns: set[tuple[bool, ...]]) -> set[tuple[bool, ...]]:
    """Patterns with the gates of neurons that hear nothing (all below off, no bias) shut."""
    found = set()
    for pattern in patterns:
        shown, start, below = [], 0, True
        for width, bias in zip(network.widths[1:-1], network.biases[:-1], strict=True):
            part = [bool(gate) and (below or bias is not None) for gate in pattern[start : start + width]]
            shown += part
            start, below = start + width, any(part)
        found.add(tuple(shown))
    return found


def test_weights_where_two_switches_meet_are_no_line():
    """Biases of 0: all neurons switch at 0, and other biases nearby would part them."""
    assert line_patterns(Mlp([[[1.0], [2.0]], [[1.0, 1.0]]], [[0.0, 0.0], [0.0]]).to_dag()) is None
    assert line_patterns(Mlp([[[0.0], [2.0]], [[1.0, 1.0]]], [[1.0, 0.5], [0.0]]).to_dag()) is None  # from infinity


# Forgers


def _near_certificate() -> dict:
    return _json(count_laws(Architecture.parse("1-3-2-4 relu").initialise(seed=1), level="near"))


def test_a_pattern_less_is_rejected():
    body = _near_certificate()
    assert body["every"] is True
    body["inputs"] = body["inputs"][:-1]
    with pytest.raises(CertificateError, match="all patterns"):
        lawful.verify(body)


def test_every_is_for_lines_only():
    body = _json(count_laws(Architecture.parse("3-3-2 relu").initialise(seed=1), level="near"))
    with pytest.raises(CertificateError, match="one input"):
        lawful.verify(body | {"every": True})


def test_a_sum_that_a_sample_moves_is_rejected():
    body = _json(count_laws(Mlp([[[1.0, 0.5, 0.25]], [[1.0], [2.0]]]), level="data", data=[[2.0, 3.0, 5.0]]))
    law = next(item for item in body["known"] if item[0] == "still")
    law[2][0][1] = str(Fraction(law[2][0][1]) + 1)
    with pytest.raises(CertificateError, match="a sample moves"):
        lawful.verify(body)


def test_sums_need_data():
    body = _near_certificate()
    with pytest.raises(CertificateError):
        lawful.verify(body | {"known": [*body["known"], ["still", 1, [[0, "1"]]]]})
    with pytest.raises(CertificateError):
        lawful.verify(body | {"known": [*body["known"], ["part", None, 6, [1, 2, 3]]]})


def test_a_part_with_a_second_sample_is_rejected():
    network = Architecture.parse("3-3-1 relu bias").initialise(seed=0)
    one = count_laws(network, level="data", data=[[1.0, 2.0, 3.0]])
    body = _json(one)
    if not any(item[0] == "part" for item in body["known"]):
        pytest.fail("one sample and one output pass one number on")
    two = _json(count_laws(network, level="data", data=[[1.0, 2.0, 3.0], [1.0, 2.0, 3.5]]))
    part = next(item for item in body["known"] if item[0] == "part")
    with pytest.raises(CertificateError):
        lawful.verify(two | {"known": [*two["known"], part]})
