"""What is known of fibers beyond one hidden layer: bounds of their dimension, never more than proved."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fibers.exact_jacobian import jacobian_rank

from lawful import Architecture, Mlp, write
from lawful.fibers import Domain, Stack
from lawful.fibers.deep.identifiability import identifiable
from lawful.fibers.deep.identification import nearby_factorisations
from lawful.fibers.layers import rational
from lawful.fibers.same import same
from lawful.fibers.shallow.fiber import assigned_fiber
from lawful.fibers.summary import PartialFiber, describe_fiber, freedoms

PLANTED = ["dead", "multiple", "ignored", "constant", "linear", "cancelling", "hidden", "mixed"]


def planted(kind: str, seed: int = 0) -> Mlp:
    """A 2-4-4-2 network with few digits, and one freedom in a known place."""
    rng = np.random.default_rng([seed, len(kind)])
    weights = [np.round(8 * rng.normal(size=(m, n))) / 8 + 1 / 16 for n, m in pairwise((2, 4, 4, 2))]
    biases = [np.round(8 * rng.normal(size=m)) / 8 + 1 / 32 for m in (4, 4, 2)]
    slopes = [0.0, 0.0]
    if kind == "dead":
        weights[1][1], biases[1][1] = -np.abs(weights[1][1]), -1.0
    if kind == "multiple":
        weights[0][2], biases[0][2] = 2 * weights[0][0], 2 * biases[0][0]
    if kind == "ignored":
        weights[1][:, 3] = 0
    if kind == "constant":
        weights[0][1] = 0
    if kind == "linear":
        weights[1][0], biases[1][0] = np.abs(weights[1][0]), 1.0
    if kind == "cancelling":
        weights[0][1], biases[0][1], weights[1][:, 1] = -weights[0][0], -biases[0][0], -weights[1][:, 0]
    if kind == "hidden":
        weights[1], biases[1] = -np.abs(weights[1]), -np.abs(biases[1])
        weights[1][:, 2] *= -1
    if kind == "mixed":
        slopes[0] = 1.0
    return Mlp(weights, biases, slopes)


@pytest.mark.parametrize("kind", PLANTED)
@pytest.mark.parametrize("seed", [0, 1])
def test_no_freedom_is_counted_that_the_derivatives_forbid(kind: str, seed: int) -> None:
    """The fiber lies in a manifold whose dimension is the corank of the derivatives, in rationals."""
    mlp = planted(kind, seed)
    moved = freedoms(Stack.of(mlp))
    corank = mlp.parameters - 8 - jacobian_rank(mlp)
    assert 0 < moved.dimension <= corank
    summary = describe_fiber(mlp).summary
    assert summary.at_least == moved.dimension
    assert summary.at_most == corank
    words = {"multiple": "multiples", "ignored": "reaches no output", "mixed": "mixed", "cancelling": "cancel"}
    assert any(words.get(kind, kind) in each.what for each in moved.found)


@pytest.mark.parametrize("kind", PLANTED)
def test_a_freedom_moves_the_weights_and_keeps_the_function(kind: str) -> None:
    mlp = planted(kind)
    for member in describe_fiber(mlp).sample(2, seed=3):
        assert same(mlp, member, seconds=5.0).verdict != "different"
        if member.widths == mlp.widths:
            assert not np.allclose(member.theta, mlp.theta)


@pytest.mark.parametrize("widths", [(2, 3, 3, 1), (2, 3, 3, 2, 2), (3, 4, 2, 2)])
@pytest.mark.parametrize("slope", [0.0, 0.25])
def test_bounds_meet_where_only_rescalings_are_left(widths: tuple[int, ...], slope: float) -> None:
    rng = np.random.default_rng(5)
    weights = [np.round(8 * rng.normal(size=(m, n))) / 8 + 1 / 16 for n, m in pairwise(widths)]
    mlp = Mlp(weights, [np.round(8 * rng.normal(size=m)) / 8 for m in widths[1:]], slope)
    summary = describe_fiber(mlp).summary
    corank = mlp.parameters - sum(widths[1:-1]) - jacobian_rank(mlp)
    assert summary.at_most == corank
    if corank == 0:
        assert (summary.dimension, set(summary.layers)) == (0, {"locally fixed"})
    if slope:
        assert corank == 0


def test_constants_beside_groups_that_cancel_do_not_turn() -> None:
    """On all of space the input weights of a constant neuron stay zero: one freedom for it, one for the group."""
    rows, bias = [[1.0, 2.0], [-1.0, -2.0], [0.0, 0.0], [1.0, 0.0]], [1.0, -1.0, 1.0, 0.0]
    assert assigned_fiber(Mlp([rows, [[1.0, -1.0, 1.0, 2.0]]], [bias, [0.0]])).dimension == 2


def test_linear_neurons_on_the_edge_of_the_orthant() -> None:
    """`u1 v12 + u2 v22 = 0` with u > 0 and v >= 0 leaves v12 = v22 = 0: 3 dimensions, not the theorem's 4."""
    edge = Mlp([[[1.0, 0.0], [2.0, 0.0]], [[1.0, 1.0]]], [[1.0, 1.0], [0.0]])
    summary = describe_fiber(edge, "orthant").summary
    assert summary.dimension is None
    assert assigned_fiber(edge, Domain.orthant(2)).at_least <= 3 <= assigned_fiber(edge, Domain.orthant(2)).at_most


def test_orientations_that_change_together_are_no_generic_fiber() -> None:
    mlp = Mlp([[[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]], [[1.0, 1.0, 1.0]]], [[0.3, 0.2, -0.7], [0.0]])
    assert describe_fiber(mlp).summary.kind == "one hidden layer, not generic"


def test_dependent_first_weights_are_no_bottleneck() -> None:
    mlp = Architecture.parse("3-3-4-2 relu bias").initialise(seed=1)
    weights = [np.round(64 * weight) / 64 for weight in mlp.weights]
    weights[0][2] = weights[0][0] + weights[0][1]
    summary = describe_fiber(Mlp(weights, mlp.biases)).summary
    assert summary.kind == "layers 3-3-4-2"
    assert summary.at_most is None or summary.at_most >= summary.at_least == 0


@pytest.mark.parametrize("sizes", [(1, 1, 1), (2, 2, 3), (3, 2, 2), (1, 3, 2), (2, 3, 3)])
def test_pairs_of_matrices_with_one_product(sizes: tuple[int, int, int]) -> None:
    """Smooth pairs: the corank of `dU V + U dV`; singular ones have at most as many dimensions."""
    outputs, middle, inputs = sizes
    rng = np.random.default_rng(sum(sizes))
    for empty in (False, True):
        outer, inner = rng.integers(-3, 4, size=(outputs, middle)), rng.integers(-3, 4, size=(middle, inputs))
        if empty:
            outer[:, 0] = inner[0] = 0
        left = np.kron(np.eye(outputs), inner.T)
        both = np.concatenate([left, np.kron(outer, np.eye(inputs))], axis=1)
        corank = both.shape[1] - np.linalg.matrix_rank(both)
        found = nearby_factorisations(rational(outer.astype(float)), rational(inner.astype(float)))
        assert found <= corank
        if not empty:
            assert found == corank


def test_skips_are_not_taken_for_linear_neurons(lawful: Callable[..., Any]) -> None:
    """Values that pass a layer go through neurons that the network does not have: nothing is said of those."""
    graph = Architecture.parse("2-2-2-2-1 relu bias skip(1,3)").initialise(seed=0)
    found = identifiable(graph)
    assert found.identifiable is None
    assert not any("linear" in reason for reason in found.reasons)
    result = json.loads(lawful("fiber", "2-3-3-1 relu bias skip(0,2)", "--json").stdout)
    assert (result["kind"], result["at_least"], result["layers"]) == ("graph with skips", 0, [])


def test_wide_and_deep_networks_get_an_answer(lawful: Callable[..., Any]) -> None:
    result = json.loads(lawful("fiber", "4" + "-256" * 10 + "-2 relu bias", "--json").stdout)
    assert (result["at_least"], result["at_most"], result["dimension"]) == (0, None, None)
    assert result["log10_orders"] == pytest.approx(10 * np.log10(np.arange(1.0, 257.0)).sum())


def test_from_the_command_line(lawful: Callable[..., Any], tmp_path: Path) -> None:
    result = json.loads(lawful("fiber", "4-8-8-2 relu bias", "--json").stdout)
    assert (result["dimension"], result["layers"]) == (0, ["locally fixed", "locally fixed"])
    write(planted("dead"), tmp_path / "dead.json")
    said = lawful("fiber", tmp_path / "dead.json", "--sample", 1, "--out", tmp_path / "out").stdout
    assert "Layer 2: neuron 1 is dead (6 more)" in said
    lawful("same", tmp_path / "dead.json", tmp_path / "out" / "sample-0.safetensors")


def test_samples_of_degenerate_weights_are_exactly_the_function() -> None:
    """A sum that vanishes exactly: no scale and no shift may round it."""
    for first in ([[0.0]], [[-2.0]]):
        mlp = Mlp([first, [[1.0], [1.0]], [[-2.0, 1.0]]], [[1.0], [-1.0, 0.0], [0.0]])
        for member in PartialFiber(mlp).sample(1), PartialFiber(mlp).sample(2):
            assert same(mlp, member, exact=True).verdict == "equal"


@pytest.mark.parametrize("slopes", [(0.25, 0.0), (0.5, 0.0)])
def test_layers_of_which_nothing_is_left(slopes: tuple[float, float]) -> None:
    """A constant network: all its neurons are redundant, and a layer without inputs has no roles to count."""
    summary = describe_fiber(Mlp([[[0.0], [-1.0]], [[1.0, 0.0]], [[0.0]]], [[1.0, 0.0], [0.0], [1.0]], slopes)).summary
    assert summary.at_least is not None
    assert summary.dimension is None or summary.dimension >= summary.at_least
