"""Separation with certificates, verifiers that can fail, and networks of zero loss."""

from __future__ import annotations

import copy
from fractions import Fraction

import numpy as np
import pytest
import sklearn.datasets
import sklearn.svm
from effort import trials
from hypothesis import given, settings
from hypothesis import strategies as st

from lawful.errors import CertificateError, LawfulError, NotACertificate
from lawful.papers.truncation.clusters import Clusters, synthetic
from lawful.papers.truncation.construction import NotSeparable, ZeroLoss, zero_loss_network
from lawful.papers.truncation.separability import certificate
from lawful.papers.truncation.separation import (
    CommonPoint,
    Frame,
    Hyperplane,
    ObtusePair,
    OrderUndecided,
    cone_map,
    separate,
    separate_aligned,
    separate_all,
)
from lawful.verify import verify
from reproduction.claims.truncation_times import turning_share


@settings(max_examples=trials(13, 40), deadline=None)
@given(st.integers(1, 6), st.integers(1, 12), st.integers(1, 12), st.floats(0, 3), st.integers(0, 9999))
def test_every_answer_verifies(size: int, few: int, many: int, gap: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    cluster, others = rng.normal(size=(few, size)), rng.normal(size=(many, size)) + gap
    data = Clusters(np.vstack([cluster, others]), [0] * few + [1] * many)
    answers = [separate(data.cluster(k), data.others(k)) for k in (0, 1)]
    assert type(answers[0]) is type(answers[1])
    verify(certificate(data, answers))
    verify(certificate(data, [separate_aligned(data.cluster(k), data.others(k)) for k in (0, 1)]))


def test_in_one_dimension_separation_is_order() -> None:
    for left, right, expected in (([0, 1], [2, 3], True), ([0, 2], [1, 3], False), ([5], [1, 2], True)):
        answer = separate(np.array(left, float)[:, None], np.array(right, float)[:, None])
        assert isinstance(answer, Hyperplane) is expected


@settings(max_examples=trials(13, 40), deadline=None)
@given(st.lists(st.floats(0, 2 * np.pi), min_size=1, max_size=6))
def test_in_the_plane_a_right_angle_decides(angles: list[float]) -> None:
    others = np.c_[np.cos(angles), np.sin(angles)]
    widest = min((others[i] @ others[j] for i in range(len(others)) for j in range(len(others))), default=1.0)
    answer = separate_aligned(np.zeros((1, 2)), others)
    if widest > 1e-3:
        assert isinstance(answer, Frame)
    elif widest < -1e-3:
        assert isinstance(answer, ObtusePair)


def test_beyond_the_plane_no_obtuse_angle_need_not_mean_yes() -> None:
    """Doubly nonnegative but not completely positive: five vectors at a pentagon's angles (cos 36° inner products)."""
    turn = np.arange(5) * 4 * np.pi / 5
    rays = np.c_[np.cos(turn), np.sin(turn), np.full(5, np.sqrt(np.cos(np.pi / 5)) + 1e-9)]
    assert (rays @ rays.T).min() > 0
    assert isinstance(separate_aligned(np.zeros((1, 3)), rays), OrderUndecided)


def test_cone_map_collapses_one_side_and_fixes_the_other() -> None:
    data = synthetic(5, 20, 0.3)
    for number in range(5):
        inside, outside = data.cluster(number), data.others(number)
        plane = separate(inside, outside)
        assert isinstance(plane, Hyperplane)
        apex = inside.mean(axis=0)
        apex = apex + ((plane.low + plane.high) / 2 - plane.normal @ apex) * plane.normal
        map_ = cone_map(plane, apex, inside, outside)
        np.testing.assert_allclose(map_(inside), np.tile(apex, (20, 1)), atol=1e-12)
        np.testing.assert_array_equal(map_(outside), outside)


@pytest.mark.parametrize(("size", "spread"), [(2, 0.2), (4, 0.3), (9, 0.3)])
def test_zero_loss_network(size: int, spread: float) -> None:
    data = synthetic(size, 15, spread)
    labels = np.random.default_rng(0).normal(size=(size, 3))
    built = zero_loss_network(data, labels)
    assert isinstance(built, ZeroLoss)
    assert built.network.widths == (*[size] * (size + 1), 3)
    output = built.network.evaluate(data.points)
    np.testing.assert_allclose(output, labels[data.labels], atol=1e-10)
    assert built.loss < 1e-20
    hidden = built.network.activations(data.points)
    for layer, number in enumerate(built.order, 1):  # collapsed exactly: every coordinate is zero
        assert not hidden[layer][data.labels == number].any()


@pytest.mark.parametrize("scale", [[1.0, 1.0, 1.0], [1e9, 1.0, 1e-9], [1e-300, 1e60, 1.0]])
@pytest.mark.parametrize("shift", [0.0, 1e6])
def test_no_scale_changes_what_is_built(scale: list[float], shift: float) -> None:
    data = synthetic(3, 10, 0.3)
    moved = Clusters((data.points + shift) * scale, data.labels)
    built = zero_loss_network(moved)
    assert isinstance(built, ZeroLoss)
    assert built.loss < 1e-20
    assert built.condition == pytest.approx(zero_loss_network(data).condition, rel=0.9)  # type: ignore[union-attr]


@pytest.mark.parametrize("name", ["wine", "breast_cancer"])
def test_zero_loss_survives_single_precision(name: str) -> None:
    """Loss in float32, data and all; 3e-4 and 8e2 without levelled columns and an output that ignores rounding."""
    built = zero_loss_network(Clusters(*getattr(sklearn.datasets, f"load_{name}")(return_X_y=True)))
    assert isinstance(built, ZeroLoss)
    assert built.loss_single < 1e-10  # in the worst order of summation
    constant = zero_loss_network(Clusters(np.c_[synthetic(3, 5, 0.2).points, np.full(15, 1e12)], [0, 1, 2] * 5))
    assert not isinstance(constant, ZeroLoss) or constant.loss < 1e-20


def test_the_widest_gap_is_the_support_vector_machine_s() -> None:
    """An independent solver of the same problem: a linear SVM without slack."""
    data = synthetic(4, 20, 0.4, seed=3)
    inside, outside = data.cluster(0), data.others(0)
    found = separate(inside, outside)
    assert isinstance(found, Hyperplane)
    labels = np.r_[np.zeros(len(inside)), np.ones(len(outside))]
    scale = np.ptp(np.vstack([inside, outside]), axis=0)  # margins are measured with columns of like size
    machine = sklearn.svm.SVC(kernel="linear", C=1e9).fit(np.vstack([inside, outside]) / scale, labels)
    direction = machine.coef_[0] / scale
    gap = (outside @ direction).min() - (inside @ direction).max()
    ours = (found.high - found.low) / np.linalg.norm(found.normal * scale)
    assert ours == pytest.approx(gap / np.linalg.norm(machine.coef_[0]), rel=0.05)


def test_only_sequentially_separable() -> None:
    data = Clusters([[-5.0, 1.0], [5.0, 1.0], [-2.0, 0.0], [0.0, -1.0]], [0, 0, 1, 2])
    assert [type(answer) for answer in separate_all(data)] == [Hyperplane, CommonPoint, Hyperplane]
    built = zero_loss_network(data)
    assert isinstance(built, ZeroLoss)
    assert built.loss < 1e-20
    assert built.order[0] != 1


def test_a_point_in_the_way_is_put_elsewhere() -> None:
    data = Clusters([[-5.0, 1.0], [5.0, 1.0], [0.0, 0.0], [-5.0, -1.0], [5.0, -1.0]], [0, 0, 1, 2, 2])
    assert isinstance(zero_loss_network(data, tries=1), OrderUndecided)  # both bars collapse above and below the point
    built = zero_loss_network(data)
    assert isinstance(built, ZeroLoss)
    assert built.loss < 1e-18


def test_no_cluster_can_be_parted() -> None:
    square = Clusters([[0.0, 0.0], [1.0, 1.0], [0.0, 1.0], [1.0, 0.0]], [0, 0, 1, 1])
    answer = zero_loss_network(square)
    assert isinstance(answer, NotSeparable)
    for common in answer.reasons:
        np.testing.assert_allclose(common.point, [0.5, 0.5], atol=1e-9)


def test_too_many_clusters_and_bad_labels() -> None:
    """One affine map can send three points of the plane to free labels; for seven a hidden layer comes before it."""
    data = Clusters(np.random.default_rng(0).normal(size=(7, 2)), range(7))
    built = zero_loss_network(data)
    assert isinstance(built, ZeroLoss)
    assert built.widened
    assert built.network.widths == (2,) * 8 + (6, 7)
    assert built.loss < 1e-18
    with pytest.raises(LawfulError, match="2 clusters need a finite label vector each"):
        zero_loss_network(Clusters([[0.0, 0.0], [1.0, 1.0]], [0, 1]), [[1.0]])


def test_one_cluster_and_one_point_clusters() -> None:
    alone = zero_loss_network(Clusters([[0.0, 0.0], [1.0, 2.0]], [0, 0]), [[7.0]])
    assert isinstance(alone, ZeroLoss)
    assert alone.loss < 1e-20
    points = zero_loss_network(Clusters([[0.0, 0.0], [1.0, 2.0], [3.0, 0.0]], [0, 1, 2]))
    assert isinstance(points, ZeroLoss)
    assert points.loss < 1e-20


def answers() -> list[dict[str, object]]:
    apart = Clusters([[0.0, 0.0], [0.2, 0.1], [3.0, 2.0], [2.0, 3.0]], [0, 0, 1, 1])
    mixed = Clusters([[0.0, 0.0], [1.0, 1.0], [0.0, 1.0], [1.0, 0.0]], [0, 0, 1, 1])
    aligned = [[separate_aligned(data.cluster(k), data.others(k)) for k in (0, 1)] for data in (apart, mixed)]
    return [
        certificate(apart, separate_all(apart)),
        certificate(mixed, separate_all(mixed)),
        certificate(apart, aligned[0]),
        certificate(mixed, aligned[1]),
    ]


def test_the_verifier_accepts_and_rejects() -> None:
    for good in answers():
        verify(good)
    breaks = [("normal", lambda v: [str(-Fraction(x)) for x in v]), ("outside", lambda v: ["1", "0"]),
              ("rotation", lambda v: [v[0], v[0]]), ("outside", lambda v: [v[0], v[0]])]  # fmt: skip
    for good, (key, change) in zip(answers(), breaks, strict=True):
        bad = copy.deepcopy(good)
        answer = bad["answers"][0]  # type: ignore[index]
        answer[key] = change(answer[key])
        if answer["answer"] == "obtuse pair":
            answer["inside"] = [answer["inside"][0]] * 2
        with pytest.raises(CertificateError):
            verify(bad)
    with pytest.raises(CertificateError, match="one for each cluster"):
        verify(answers()[0] | {"answers": []})
    for wrong in ({}, answers()[0] | {"answers": [{"answer": "magic"}] * 2}, answers()[0] | {"points": [[0.0]]}):
        with pytest.raises(NotACertificate):
            verify(wrong)


@pytest.mark.parametrize(
    ("cluster", "others"),
    [
        ([[0.30, 1.7e12], [0.29, 1.7e12 + 5]], [[0.71, 1.7e12 + 1], [0.72, 1.7e12 + 2]]),  # a column of time stamps
        ([[0.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [1.0, 1.0], [1e10, 0.5]]),
        ([[0.0, 0.0], [0.0, 1.0]], [[1e-10, 0.5], [1.0, 0.2]]),
        ([[0.0], [1.0]], [[1.0 + 2**-52], [2.0]]),
    ],
)
def test_thin_gaps_are_gaps(cluster: list[list[float]], others: list[list[float]]) -> None:
    near, far = np.array(cluster), np.array(others)
    for first, second in ((near, far), (far, near)):
        found = separate(first, second)
        assert isinstance(found, Hyperplane)
        ends = [[sum(Fraction(v) * w for v, w in zip(row, found.exact, strict=True)) for row in side.tolist()]
                for side in (first, second)]  # fmt: skip
        assert max(ends[0]) < min(ends[1])


@given(st.integers(1, 4), st.integers(0, 9999), st.lists(st.integers(-40, 40), min_size=4, max_size=4))
def test_rescaled_columns_change_nothing(size: int, seed: int, powers: list[int]) -> None:
    """Small integers, so that hulls often touch exactly; columns are rescaled by powers of two."""
    rng = np.random.default_rng(seed)
    cluster, others = (rng.integers(-2, 3, size=(int(rng.integers(1, 5)), size)).astype(float) for _ in "ab")
    scale = 2.0 ** np.array(powers[:size])
    answers = [separate(cluster, others), separate(cluster * scale, others * scale)]
    assert type(answers[0]) is type(answers[1])
    for answer, factor in zip(answers, (np.ones(size), scale), strict=True):
        if isinstance(answer, CommonPoint):
            assert sum(answer.inside) == sum(answer.outside) == 1
            assert min(*answer.inside, *answer.outside) >= 0
            sides = ((answer.inside, cluster * factor), (answer.outside, others * factor))
            points = [[sum(w * Fraction(v) for w, v in zip(weights, column, strict=True)) for column in rows.T.tolist()]
                      for weights, rows in sides]  # fmt: skip
            assert points[0] == points[1]


@pytest.mark.parametrize("ulps", [-2, 1])
@pytest.mark.parametrize("corners", [1, 3])
def test_faces_an_ulp_apart_need_no_exact_simplex(monkeypatch: pytest.MonkeyPatch, corners: int, ulps: int) -> None:
    """In 40 dimensions its pivots would take minutes; a close look at where floats see the hulls touch is enough."""
    monkeypatch.setattr("lawful.exact.feasibility._Simplex.run", lambda *_: pytest.fail("pivots"))
    rng = np.random.default_rng(corners)
    sides = [rng.integers(-(2**20), 2**20, size=(45, 40)) / 2.0**20 for _ in range(2)]
    for side, sign in zip(sides, (-1, 1), strict=True):
        side[:, 0] = sign * (np.abs(side[:, 0]) + 1)
        side[:corners] -= side[:corners].mean(axis=0) if corners > 1 else side[0]
        side[:corners, 0] = 0.0
    sides[1][:corners, 0] = ulps * 2.0**-60
    cluster, others = (side + np.eye(40)[0] * 2.0**-8 for side in sides)
    answer = separate(cluster, others)
    assert not isinstance(answer, OrderUndecided)
    if corners == 1:
        assert isinstance(answer, Hyperplane if ulps > 0 else CommonPoint)
    data = Clusters(np.vstack([cluster, others]), [0] * 45 + [1] * 45)
    verify(certificate(data, [answer, separate(others, cluster)]))


def test_touching_hulls_are_a_definite_no() -> None:
    assert isinstance(separate(np.array([[0.1, 0.2]]), np.array([[0.1, 0.2], [1.0, 1.0]])), CommonPoint)
    square = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    assert isinstance(separate(np.array([[1.0, 0.5], [2.0, 0.5]]), square), CommonPoint)


def test_clusters_that_block_each_other_are_named() -> None:
    """Two crossing bars block each other for good; a third cluster, far away, does not help."""
    data = Clusters([[-1, 0], [1, 0], [0, -1], [0, 1], [9, 9]], ["a", "a", "b", "b", "c"])
    found = zero_loss_network(data)
    assert isinstance(found, NotSeparable)
    assert [data.names[number] for number in found.clusters] == ["a", "b"]


def test_a_bound_that_needs_its_hypothesis() -> None:
    """(4.25) holds under (4.16) with a factor 2 to spare, and fails without it."""
    rng = np.random.default_rng(1)
    assert max(turning_share(rng) for _ in range(300)) <= 0.5
    assert max(turning_share(rng, obey=False) for _ in range(300)) > 1
