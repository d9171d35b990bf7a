"""Rank, cut-off neurons, singular values, sub-networks and scores."""

from __future__ import annotations

import numpy as np
import pytest
from effort import trials
from hypothesis import given, settings
from hypothesis import strategies as st

from lawful.errors import LawfulError
from lawful.invariant_set.singular.spectrum import (
    largest_score,
    product_score,
    pruning_curve,
    singularity,
    spectrum,
    subnetwork,
)
from lawful.network import Architecture, Dag, Mlp, Role


def sparse_dag(seed: int) -> Dag:
    rng = np.random.default_rng(seed)
    widths = tuple(int(w) for w in rng.integers(1, 6, size=rng.integers(3, 6)))
    graph = Architecture(widths, bias=bool(seed % 2), skips=((1, len(widths) - 2),) if len(widths) > 3 else ()).to_dag()
    theta = rng.normal(size=graph.parameters) * (rng.random(graph.parameters) > rng.uniform(0.2, 0.95))
    return graph.with_theta(theta)


@settings(max_examples=trials(27, 80), deadline=None)
@given(st.integers(0, 10**6))
def test_theorem_2_against_the_dense_matrix(seed: int) -> None:
    """P0 Theorem 2: components, singular values and the rank of J agree."""
    dag = sparse_dag(seed)
    dense = 2 * dag.hidden_incidence.toarray() * dag.theta
    expected = np.linalg.matrix_rank(dense)
    assert singularity(dag).rank == expected
    assert spectrum(dag).rank == expected
    assert np.allclose(spectrum(dag).values, np.linalg.svd(dense, compute_uv=False)[: len(dag.hidden)], atol=1e-7)


@settings(max_examples=trials(17, 50), deadline=None)
@given(st.integers(0, 10**6))
def test_the_subnetwork_computes_the_same(seed: int) -> None:
    dag = sparse_dag(seed)
    small = subnetwork(dag)
    batch = np.random.default_rng(seed).normal(size=(20, len(dag.inputs)))
    assert np.allclose(small.evaluate(batch), dag.evaluate(batch), atol=1e-12)
    assert len(small.hidden) <= len(dag.hidden) - len(singularity(dag).cut_off)


def test_a_group_that_holds_together_counts_once() -> None:
    """P0 Figure 3a: a set of neurons joined to each other, but to no input or output."""
    mlp = Mlp([[[1.0], [0.0]], [[1.0, 0.0], [0.0, 2.0]], [[1.0, 0.0]]])
    found = singularity(mlp.to_dag())
    assert found.groups == (("h1.1", "h2.1"),)
    assert found.rank == 3
    assert found.singular


def test_tolerance_reads_small_weights_as_zero() -> None:
    mlp = Mlp([[[1.0], [1e-4]], [[1.0, -1e-4]]])
    assert singularity(mlp.to_dag()).rank == 2
    assert singularity(mlp.to_dag(), 1e-3).cut_off == ("h1.1",)
    assert spectrum(mlp.to_dag()).null() == 1
    with pytest.raises(LawfulError, match="tolerance"):
        singularity(mlp.to_dag(), -1.0)


def test_a_neuron_with_zero_inputs_only_is_not_cut_off() -> None:
    """It still speaks to the output: direction is ignored in Theorem 2."""
    assert singularity(Mlp([[[1.0], [0.0]], [[1.0, 1.0]]]).to_dag()).rank == 2


def test_spectrum_says_what_it_cannot_resolve() -> None:
    mlp = Mlp([[[1.0], [1e-12]], [[1.0, 0.0]]])
    found = spectrum(mlp.to_dag())
    assert found.rank == 1  # 2e-12 is below the resolution of a value whose square is an eigenvalue
    assert found.gap[1] <= found.resolution


def test_scores_are_what_29_and_30_say() -> None:
    dag = Architecture.parse("3-4-2 relu bias").initialise(seed=1).to_dag()
    for score, join in ((product_score, np.multiply), (largest_score, np.maximum)):
        expected = [
            join((dag.theta[dag.heads == node] ** 2).sum(), (dag.theta[dag.tails == node] ** 2).sum())
            for node in dag.hidden
        ]
        assert np.allclose(score(dag), expected)
    scales = np.array([0.5, 2.0, 3.0, 1.0])
    assert np.allclose(product_score(dag.rescaled(scales)), product_score(dag))
    assert not np.allclose(largest_score(dag.rescaled(scales)), largest_score(dag))


def test_pruning_curve_goes_by_score_and_ends_at_nothing() -> None:
    dag = Architecture.parse("3-6-1 relu").initialise(seed=2).to_dag()
    batch = np.random.default_rng(0).normal(size=(30, 3))
    curve = pruning_curve(dag, lambda network: float(np.abs(network.evaluate(batch)).max()))
    assert curve.order[0] == dag.names[dag.hidden[np.argmin(product_score(dag))]]
    assert sorted(curve.order) == sorted(dag.names[node] for node in dag.hidden)
    assert curve.measured[-1] == 0.0
    assert len(pruning_curve(dag, lambda _: 0.0, count=2).order) == 2


def test_a_network_without_hidden_neurons_is_regular() -> None:
    dag = Dag(("x", "y"), [Role.INPUT, Role.OUTPUT], [0], [1], [1.0])
    assert singularity(dag).rank == 0
    assert not singularity(dag).singular
    assert spectrum(dag).rank == 0
