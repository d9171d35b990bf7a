"""Propositions 4.1 and 4.2, the standard cost, neural collapse, whole runs."""

from __future__ import annotations

import numpy as np
import pytest

from lawful.errors import LawfulError
from lawful.papers.truncation.census import collapse
from lawful.papers.truncation.clusters import Clusters, synthetic
from lawful.papers.truncation.flow.motion import run_flow, starting_maps
from lawful.papers.truncation.flow.predictions import (
    Equilibrium,
    clustered_weight,
    collapsed_flow,
    confirm,
    equilibrium,
    hypotheses,
    predictions,
)
from reproduction.claims.truncation import rotations


def test_equilibria() -> None:
    inside = np.array([[1.0, 1.0], [2.0, 0.5]])
    one, zero = np.eye(2), np.zeros(2)
    assert equilibrium(inside, np.ones(2), zero, one) is Equilibrium.REST
    assert equilibrium(-inside, np.ones(2), zero, one) is Equilibrium.TURNED
    assert equilibrium(-inside, zero, zero, one) is Equilibrium.REST
    assert equilibrium(np.vstack([inside, -inside]), zero, zero, one) is Equilibrium.MOVING


@pytest.mark.parametrize("seed", range(3))
def test_proposition_4_2_predicts_the_collapse(seed: int) -> None:
    rng = np.random.default_rng(seed)
    turn = rotations(rng, 1, 3)[0]
    body = -rng.uniform(1.2, 1.8, size=(150, 3))
    body[:2] = -rng.uniform(0.25, 0.3, size=(2, 3))
    shift = 0.32 * rng.uniform(0.9, 1.1, size=3) @ turn
    found = hypotheses(body @ turn, np.zeros(3), shift, turn)
    assert found.holds
    seen = confirm(body @ turn, np.zeros(3), shift, turn, found.bound)
    assert 0 < seen.time <= found.bound
    assert seen.turned_after < 1e-12
    assert seen.rate_after == pytest.approx(1.0, abs=1e-8)


def test_proposition_4_2_says_which_hypothesis_fails() -> None:
    rng = np.random.default_rng(0)
    ahead = hypotheses(np.vstack([-np.ones((9, 2)), [[0.5, 0.5]]]), np.zeros(2), np.full(2, 0.1), np.eye(2))
    assert not ahead.holds
    assert "not truncated even at the target" in str(ahead.reason)
    arrived = hypotheses(np.array([[-1.0, -1.0], [1.0, 1.0]]), np.zeros(2), np.zeros(2), np.eye(2))
    assert not arrived.holds
    wide = hypotheses(-rng.uniform(0.1, 1, size=(20, 2)), np.zeros(2), np.full(2, 9.0), np.eye(2))
    assert not wide.holds
    assert wide.bound == np.inf


@pytest.mark.parametrize("swapped", [False, True])
def test_collapsed_data(swapped: bool) -> None:
    rng = np.random.default_rng(0)
    big, small, labels = 2 * np.eye(4), 0.2 * rng.normal(size=(4, 4)), rng.normal(size=(4, 4))
    pair = (small, big) if swapped else (big, small)
    run = collapsed_flow(*pair, labels, np.linspace(0, 6, 30))  # type: ignore[call-arg]
    assert run.drift < 1e-9
    assert run.gap > 1
    assert run.excess <= 1 + 1e-9
    assert run.bound[-1] < 1e-5 * run.bound[0]
    np.testing.assert_allclose(run.weights[-1] @ run.shifts[-1], -labels, atol=1e-6)


def test_without_a_definite_integral_there_is_no_gap() -> None:
    run = collapsed_flow(np.diag([2.0, 0.1]), np.diag([0.1, 2.0]), np.eye(2), [0.0, 1.0])
    assert run.gap == 0.0


def test_standard_cost_bad_shapes() -> None:
    with pytest.raises(LawfulError, match="do not fit together"):
        collapsed_flow(np.eye(2), np.eye(3), np.eye(2), [0.0, 1.0])
    with pytest.raises(LawfulError, match="do not fit together"):
        clustered_weight(np.eye(2), np.eye(3), np.eye(2), 1.0)
    with pytest.raises(LawfulError, match="XXᵀ is singular"):
        clustered_weight(np.ones((3, 2)), np.ones((3, 1)), [[0.0, 0.0]], 1.0)


def test_three_kinds_of_nc1_differ() -> None:
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(4), 50)
    points = 3 * np.eye(4)[labels] + rng.normal(size=(200, 4)) * [1.0, 0.1, 1.0, 0.1]
    found = collapse(points, labels)
    means = np.array([points[labels == k].mean(axis=0) for k in range(4)])
    spread = points - means[labels]
    centred = means - means.mean(axis=0)
    assert found.nc1_quotient == pytest.approx((spread**2).sum() / 200 / ((centred**2).sum() / 4))
    pairs = [
        ((spread[labels == i] ** 2).sum() / 50 + (spread[labels == j] ** 2).sum() / 50)
        / (2 * ((means[i] - means[j]) ** 2).sum())
        for i in range(4)
        for j in range(i)
    ]
    assert found.nc1_cdnv == pytest.approx(np.mean(pairs))
    within, between = spread.T @ spread / 200, centred.T @ centred / 4
    assert found.nc1_pinv == pytest.approx(np.trace(within @ np.linalg.pinv(between)) / 4)
    assert len({round(value, 3) for value in (found.nc1_pinv, found.nc1_quotient, found.nc1_cdnv)}) == 3


def test_collapse_needs_two_classes() -> None:
    with pytest.raises(LawfulError, match="at least two"):
        collapse(np.zeros((3, 2)), [0, 0, 0])


@pytest.mark.parametrize(("size", "count", "spread"), [(2, 12, 0.3), (4, 10, 0.1)])
def test_separated_clusters_collapse_to_their_targets(size: int, count: int, spread: float) -> None:
    run = run_flow(synthetic(size, count, spread), until=14.0, frames=8)
    assert all(time is not None for time in run.collapsed)
    assert all(run.separated)
    assert run.costs[-1] < 1e-8
    last = run.collapse(7)
    assert last.nc1_quotient < 1e-12
    assert last.nc4 == 1.0
    np.testing.assert_allclose(run.images(7), run.start.targets[run.data.labels], atol=1e-3)
    shares = [run.truncated(index).min() for index in range(8)]
    assert shares == sorted(shares)


def test_predictions_along_a_run_come_true() -> None:
    run = run_flow(synthetic(3, 12, 0.1), until=6.0, frames=41)
    found = predictions(run)
    assert sum(each is not None and each.hypotheses.holds for each in found) >= 2
    for each, time in zip(found, run.collapsed, strict=True):
        assert time is not None
        assert each is not None
        assert not each.hypotheses.holds or each.time < time <= each.bound


def test_clusters_must_be_as_many_as_coordinates() -> None:
    with pytest.raises(LawfulError, match="2 clusters in R\\^3: fewer clusters than coordinates"):
        run_flow(Clusters(np.arange(9.0).reshape(3, 3), [0, 1, 1]))
    with pytest.raises(LawfulError, match="3 clusters in R\\^2: more clusters"):
        run_flow(Clusters(np.arange(6.0).reshape(3, 2), [0, 1, 2]))
    with pytest.raises(LawfulError, match="one cluster"):
        starting_maps(Clusters([[0.0], [1.0]], [0, 0]))


def test_one_point_clusters_flow() -> None:
    run = run_flow(Clusters([[0.0, 0.0], [1.0, 1.0]], [0, 1]), until=20.0, frames=3)
    assert run.costs[-1] < 1e-12


def test_projection_keeps_distances_within_its_subspace() -> None:
    rng = np.random.default_rng(0)
    flat = rng.normal(size=(40, 3)) @ rng.normal(size=(3, 8))
    data = Clusters(flat, np.arange(40) % 3).projected(3)
    before = ((flat[:, None] - flat) ** 2).sum(axis=-1)
    after = ((data.points[:, None] - data.points) ** 2).sum(axis=-1)
    np.testing.assert_allclose(before, after, atol=1e-9)
    with pytest.raises(LawfulError, match="cannot project"):
        data.projected(9)
