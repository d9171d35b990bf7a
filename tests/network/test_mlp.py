"""Perceptrons and architectures: exact round trips, PyTorch's own answer, refusals that name the layer."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lawful import Architecture, Dag, InvalidNetwork, LawfulError, Mlp, Unsupported
from lawful.network import initialise, parse_activation
from lawful.network.architecture import SCHEMES

activations = st.one_of(st.sampled_from([0.0, 1.0]), st.floats(1e-6, 0.999))


@st.composite
def architectures(draw: st.DrawFn) -> Architecture:
    widths = tuple(draw(st.lists(st.integers(1, 6), min_size=2, max_size=5)))
    pairs = [(i, j) for i in range(len(widths)) for j in range(i + 1, len(widths) - 1)]
    skips = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=2)) if pairs else []
    return Architecture(widths, draw(activations), draw(st.booleans()), tuple(skips))


@given(architectures())
def test_architectures_print_and_parse_themselves(architecture: Architecture) -> None:
    assert Architecture.parse(str(architecture)) == architecture
    assert architecture.to_dag().parameters == architecture.parameters


@given(architectures(), st.integers(0, 99))
def test_mlp_to_dag_and_back_is_exact(architecture: Architecture, seed: int) -> None:
    network = architecture.initialise("uniform", seed)
    if architecture.skips:
        assert isinstance(network, Dag)
        return
    assert isinstance(network, Mlp)
    back = Mlp.from_dag(network.to_dag())
    assert back.slopes == network.slopes
    assert (back.theta == network.theta).all()
    assert (network.to_dag().theta == network.theta).all()
    assert all((a is None) == (b is None) for a, b in zip(back.biases, network.biases, strict=True))
    assert (network.with_theta(network.theta).theta == network.theta).all()


def test_mlp_is_what_pytorch_computes() -> None:
    rng = np.random.default_rng(0)
    layers = [torch.nn.Linear(5, 7), torch.nn.Linear(7, 4, bias=False), torch.nn.Linear(4, 3)]
    module = torch.nn.Sequential(layers[0], torch.nn.ReLU(), layers[1], torch.nn.LeakyReLU(0.2), layers[2]).double()
    mlp = Mlp(
        [layer.weight.detach().numpy() for layer in layers],
        [None if layer.bias is None else layer.bias.detach().numpy() for layer in layers],
        [0.0, 0.2],
    )
    batch = rng.normal(size=(50, 5))
    with torch.no_grad():
        expected = module(torch.tensor(batch)).numpy()
    np.testing.assert_allclose(mlp.evaluate(batch), expected, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(mlp.evaluate(torch.tensor(batch)).numpy(), expected, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(mlp.to_dag().evaluate(batch), expected, rtol=1e-12, atol=1e-14)


def test_a_skip_feeds_the_layer_after_its_end() -> None:
    dag = Architecture.parse("2-3-3-1 relu skip(1,2)").to_dag()
    edges = {dag.edge_name(edge) for edge in range(dag.parameters)}
    assert ("h1.0", "y0") in edges
    assert dag.parameters == 2 * 3 + 3 * 3 + 3 * 1 + 3 * 1
    with pytest.raises(Unsupported, match="skips a layer"):
        Mlp.from_dag(initialise(dag))


def test_a_layered_graph_with_missing_edges_becomes_zeros() -> None:
    whole = Architecture.parse("3-3-2 relu bias").initialise(seed=3)
    sparse = whole.to_dag().without_edges([0, 4])
    mlp = Mlp.from_dag(sparse)
    batch = np.random.default_rng(0).normal(size=(9, 3))
    assert mlp.weights[0][0, 0] == 0.0
    assert (mlp.evaluate(batch) != whole.evaluate(batch)).any()
    np.testing.assert_allclose(mlp.evaluate(batch), sparse.evaluate(batch), rtol=1e-13)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not an architecture"),
        ("3", "at least an input and an output"),
        ("3-0-2 relu", "width 0"),
        ("3-4-2 tanh", "unknown word 'tanh'"),
        ("3-4-2 relu linear", "two activations"),
        ("3-4-2 relu skip(1,2)", "at most 1"),
        ("3-4-4-2 relu skip(2,1)", "skip"),
        ("3-4-4-2 relu skip(1,2) skip(1,2)", "twice"),
        ("3-4-2 leaky_relu(x)", "unknown word"),
        ("3-4-2 leaky_relu(inf)", "unknown word"),
        ("99999-99999-1 relu", "more than"),
        ("3--2 relu", "not an architecture"),
    ],
)
def test_bad_architectures_are_refused(text: str, words: str) -> None:
    with pytest.raises(InvalidNetwork, match=words):
        Architecture.parse(text)


@pytest.mark.parametrize(
    ("weights", "biases", "words"),
    [
        ([], None, "at least one weight matrix"),
        ([np.ones((2, 3)), np.ones((1, 3))], None, "layer 2: takes 3 inputs, but layer 1 has 2"),
        ([np.ones((2, 3))], [np.ones(3)], r"layer 1: bias has shape \(3,\), expected \(2,\)"),
        ([np.ones(3)], None, "layer 1: a weight matrix has shape"),
        ([np.array([[1.0, np.nan]])], None, r"layer 1: weight\[0, 1\] is not finite"),
        ([np.ones((2, 2))], [np.array([0.0, np.inf])], r"layer 1: bias\[1\] is not finite"),
        ([np.ones((2, 2))], [None, None], "1 weight matrices but 2 biases"),
    ],
)
def test_bad_matrices_are_refused_by_layer(weights: list[np.ndarray], biases: object, words: str) -> None:
    with pytest.raises(InvalidNetwork, match=words):
        Mlp(weights, biases)  # type: ignore[arg-type]


def test_wrong_batches_and_vectors_are_refused() -> None:
    mlp = Mlp([np.ones((2, 3))])
    with pytest.raises(LawfulError, match=r"\(samples, 3\)"):
        mlp.evaluate(np.ones((5, 2)))
    with pytest.raises(LawfulError, match="6 parameters, not 5"):
        mlp.with_theta(np.ones(5))


@pytest.mark.parametrize("scheme", sorted(SCHEMES))
def test_initialisation_has_the_scale_of_its_scheme(scheme: str) -> None:
    """PyTorch: U(±1/√fan_in), variance 1/(3 fan_in); He: 2/fan_in; Xavier: 2/(fan_in + fan_out); uniform: 1/3."""
    mlp = Architecture.parse("100-300-50 relu bias").initialise(scheme, seed=5)
    assert isinstance(mlp, Mlp)
    expected = {"torch": 1 / 300, "he": 2 / 100, "xavier": 2 / 400, "uniform": 1 / 3}[scheme]
    assert mlp.weights[0].var() == pytest.approx(expected, rel=0.05)
    assert mlp.biases[0] is not None
    assert (mlp.biases[0] == 0).all() == (scheme in ("he", "xavier"))


def test_the_same_seed_gives_the_same_bytes_and_another_does_not() -> None:
    architecture = Architecture.parse("5-6-2 relu bias")
    first, again, other = (architecture.initialise(seed=seed).to_dag().theta for seed in (4, 4, 5))
    assert first.tobytes() == again.tobytes() != other.tobytes()
    with pytest.raises(LawfulError, match="choose from"):
        architecture.initialise("nonsense")


def test_torch_default_is_torch_default() -> None:
    """The bound of nn.Linear's own draw."""
    layer = torch.nn.Linear(50, 400)
    assert layer.weight.abs().max() <= 1 / np.sqrt(50)
    mine = Architecture.parse("50-400 linear bias").initialise(seed=0).to_dag()
    assert np.abs(mine.theta).max() <= 1 / np.sqrt(50)
    assert np.abs(mine.theta).max() > 0.99 / np.sqrt(50)


def test_activation_names() -> None:
    assert parse_activation("leaky_relu") == 0.01
    with pytest.raises(InvalidNetwork, match="homogeneous"):
        parse_activation("gelu")


def test_overflow_is_the_same_as_mlp_and_as_graph() -> None:
    mlp = Mlp([[[1e308, 1e308], [1.0, 0.0]], [[1.0, 1.0]]])
    with np.errstate(over="ignore"):
        assert mlp.evaluate([[-10.0, -10.0]]) == mlp.to_dag().evaluate([[-10.0, -10.0]]) == 0.0
