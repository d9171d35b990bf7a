"""Networks as chains of truncations, and what they truncate."""

from __future__ import annotations

import numpy as np
import pytest
from effort import trials
from hypothesis import given, settings
from hypothesis import strategies as st

from lawful.errors import LawfulError, Unsupported
from lawful.network import Architecture, Mlp
from lawful.papers.truncation.census import census
from lawful.papers.truncation.clusters import Clusters, synthetic
from lawful.papers.truncation.cumulative import Chain, TruncationMap
from reproduction.claims.truncation import rotations


def network(widths: list[int], seed: int, slope: float = 0.0) -> Mlp:
    rng = np.random.default_rng(seed)
    shapes = list(zip(widths[1:], widths, strict=False))
    return Mlp(
        [rng.normal(size=shape) + 2 * np.eye(*shape) for shape in shapes],
        [rng.normal(size=s[0]) for s in shapes],
        slope,
    )


@settings(max_examples=trials(10, 30), deadline=None)
@given(st.lists(st.integers(1, 6), min_size=2, max_size=5), st.integers(1, 4), st.integers(0, 999), st.booleans())
def test_the_network_is_its_chain(hidden: list[int], outputs: int, seed: int, leaky: bool) -> None:
    mlp = network([*sorted(hidden, reverse=True), outputs], seed, 0.1 if leaky else 0.0)
    points = np.random.default_rng(seed).normal(size=(30, mlp.widths[0]))
    chain = Chain.of(mlp)
    condition = max((map_.condition for map_ in chain.maps), default=1.0)
    expected = mlp.evaluate(points)
    np.testing.assert_allclose(chain(points), expected, atol=1e-12 * condition * np.abs(expected).max())
    np.testing.assert_allclose(
        chain.to_mlp().evaluate(points), expected, atol=1e-11 * condition**2 * np.abs(expected).max()
    )


def test_hidden_layers_too_with_the_bias_that_2_17_omits() -> None:
    mlp = network([4, 4, 4, 2], 0)
    points = np.random.default_rng(1).normal(size=(20, 4))
    chain = Chain.of(mlp)
    for map_, image, layer in zip(chain.maps, chain.images(points)[1:], mlp.activations(points)[1:], strict=False):
        np.testing.assert_allclose(map_.preactivations(image), layer, atol=1e-10)
        np.testing.assert_allclose(map_.shift, np.linalg.solve(map_.weight, map_.bias), atol=1e-10)
        assert np.abs(image @ map_.weight.T - layer).max() > 1e-2


def test_fewer_neurons_than_inputs_keep_the_identity_and_collapse_to_a_subspace() -> None:
    rng = np.random.default_rng(0)
    map_ = TruncationMap(rng.normal(size=(2, 4)), rng.normal(size=2))
    points = rng.normal(size=(500, 4)) * 3
    a = map_.preactivations(points)
    images = map_(points)
    np.testing.assert_allclose(map_.preactivations(images), np.maximum(a, 0), atol=1e-12)
    free = (a > 0).all(axis=1)
    assert free.any()
    np.testing.assert_array_equal(images[free], points[free])
    gone = images[(a <= 0).all(axis=1)]
    assert np.linalg.matrix_rank(gone - gone[0]) == 2  # an affine plane, not a point


def test_alignment() -> None:
    rng = np.random.default_rng(0)
    turn = rotations(rng, 1, 4)[0]
    straight = TruncationMap(np.diag([1.0, 2.0, 0.5, 3.0]) @ turn, np.ones(4))
    assert straight.misalignment < 1e-14
    size, rotation = straight.polar
    np.testing.assert_allclose(rotation, turn, atol=1e-12)
    np.testing.assert_allclose(size @ rotation, straight.weight, atol=1e-12)
    points = rng.normal(size=(50, 4))
    np.testing.assert_allclose(straight.aligned(points), straight(points), atol=1e-12)
    crooked = TruncationMap(rng.normal(size=(4, 4)), np.ones(4))
    assert crooked.misalignment > 0.1


def test_singular_layers_are_named_with_their_condition() -> None:
    bad = Mlp([np.eye(2), [[1.0, 2.0], [2.0, 4.0]], np.eye(2)])
    with pytest.raises(LawfulError, match=r"layer 2: the weights are singular \(condition number"):
        Chain.of(bad)


def test_growing_layers_are_unsupported() -> None:
    with pytest.raises(Unsupported, match="layer 2 has 5 neurons after 3"):
        Chain.of(Architecture.parse("4-3-5-2 bias").initialise())  # type: ignore[arg-type]


def test_census_counts_signs_of_the_network_itself() -> None:
    data = synthetic(4, 25, 1.0)
    mlp = network([4, 4, 3, 2], 3)
    found = census(mlp, data)
    assert found.residual < 1e-10
    values = data.points
    for number, layer in enumerate(found.layers):
        z = values @ mlp.weights[number].T + mlp.biases[number]
        for label in range(4):
            off = z[data.labels == label] <= 0
            assert layer.untruncated[label] == sum(not any(row) for row in off.tolist())
            assert layer.full[label] == sum(all(row) for row in off.tolist())
            assert layer.untruncated[label] + layer.partial[label] + layer.full[label] == 25
            assert layer.coordinates[label].tolist() == off.sum(axis=0).tolist()
        values = np.maximum(z, 0)


@pytest.mark.parametrize("sizes", [[4, 9, 3, 2], [4, 4, 6, 2], [4, 4, 4, 2]])
def test_census_of_widening_and_singular_layers(sizes: list[int]) -> None:
    """Counts are the network's own; where nothing is lost the chain gives back the network, elsewhere it says so."""
    data, mlp = synthetic(4, 25, 1.0), network(sizes, 3)
    if sizes == [4, 4, 4, 2]:
        mlp = Mlp([np.diag([1.0, 1.0, 1.0, 0.0]), *mlp.weights[1:]], mlp.biases)  # no rank 4
    found = census(mlp, data)
    values = data.points
    for layer, weight, bias in zip(found.layers, mlp.weights, mlp.biases, strict=False):
        values = values @ weight.T + bias
        assert layer.coordinates.sum() == (values <= 0).sum()
        values = np.maximum(values, 0)
    assert max(layer.lost for layer in found.layers) > 1e-4
    assert found.residual > 1e-4 or sizes[-2] < 4  # a narrow last layer can be reached from somewhere else
    assert all(np.isfinite(image).all() for image in found.images)
    assert max(layer.lost for layer in census(network([4, 4, 3, 2], 3), data).layers) < 1e-20


def test_census_needs_matching_columns() -> None:
    with pytest.raises(LawfulError, match="takes 4 numbers, but the data have 2 columns"):
        census(network([4, 4, 2], 0), Clusters([[0.0, 1.0]], [0]))


@pytest.mark.parametrize(
    ("points", "labels", "words"),
    [
        ([[1.0, np.nan]], [0], "row 0, column 1 is nan"),
        ([[1.0, 2.0]], [0, 1], "1 points need as many labels, not 2"),
        ([1.0, 2.0], [0, 1], "a row per point"),
        (np.zeros((0, 2)), [], "a row per point"),
    ],
)
def test_bad_data(points: object, labels: list[int], words: str) -> None:
    with pytest.raises(LawfulError, match=words):
        Clusters(points, labels)  # type: ignore[arg-type]
