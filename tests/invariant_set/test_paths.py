"""Paths stay inside the invariant set and are continuous; different components are never joined."""

from __future__ import annotations

import numpy as np
import pytest
from effort import trials
from hypothesis import given, settings
from hypothesis import strategies as st

from lawful import Architecture, Dag, InvalidNetwork, LawfulError
from lawful.invariant_set import Apart, Unsettled, WeightPath, components, find_path, generic_point, sparse_point
from lawful.invariant_set.balance import balance
from lawful.invariant_set.rebalance import rebalance
from reproduction.claims.components_graphs import some_balance, some_graph


def two_points(seed: int) -> tuple[Dag, Dag]:
    graph = some_graph(seed)
    c = some_balance(graph, seed)
    start = generic_point(graph, c, seed=seed)
    return start, (sparse_point if seed % 2 else generic_point)(graph, c, seed=seed + 1)


@settings(max_examples=trials(27, 80), deadline=None)
@given(st.integers(0, 10**6))
def test_signs_of_locked_edges_decide_whether_a_path_exists(seed: int) -> None:
    start, stop = two_points(seed)
    locked = [lock.edge for lock in components(start, some_balance(start, seed)).locked]
    differing = [edge for edge in locked if np.sign(start.theta[edge]) != np.sign(stop.theta[edge])]
    found = find_path(start, stop, tolerance=1e-9)
    if differing:
        assert isinstance(found, Apart)
        assert list(found.edges) == differing
        assert str(len(differing)) in found.reason
        return
    assert isinstance(found, WeightPath)
    assert found.at(0.0) == pytest.approx(start.theta, abs=1e-12)
    assert found.at(1.0) == pytest.approx(stop.theta, abs=1e-12)
    assert found.drift <= 1e-9
    size = max(float(sizes.max()) ** 2 for sizes in found.sizes)
    assert found.residual(41) <= 1e-12 * max(size, 1) * len(start.names)
    for piece in range(1, found.pieces):  # both pieces agree where they meet
        flipped = found.signs[piece - 1] != found.signs[piece]
        assert flipped.any()
        assert (found.sizes[piece][flipped] == 0).all()


def test_a_path_is_continuous_to_the_eye() -> None:
    graph = Architecture.parse("3-6-5-2 relu bias").to_dag()
    c = np.random.default_rng(3).normal(size=11)
    path = find_path(generic_point(graph, c, seed=0), generic_point(graph, c, seed=1))
    assert isinstance(path, WeightPath)
    times = np.linspace(0, 1, 4001)
    points = np.stack([path.at(time) for time in times])
    assert np.abs(np.diff(points, axis=0)).max() < 0.1  # square roots start steeply: √(1/4000 · 40)
    assert path.pieces <= 4


def test_different_balances_are_apart_unless_rebalanced() -> None:
    first = Architecture.parse("3-6-5-2 relu bias").initialise(seed=0)
    last = Architecture.parse("3-6-5-2 relu bias").initialise(seed=1)
    apart = find_path(first, last)
    assert isinstance(apart, Apart)
    assert len(apart.nodes) == 11
    assert "balance" in apart.reason
    moved = rebalance(last, balance(first)).dag
    path = find_path(first, moved)
    assert isinstance(path, WeightPath)
    assert path.residual() < 1e-13


def test_locked_edges_have_names_in_every_answer() -> None:
    graph = Architecture.parse("1-2-1").to_dag()
    answer = find_path(graph.with_theta([0, 0, 1, 1]), graph.with_theta([0, 0, -1, 1]))
    assert answer.to_dict()["locked"] == [["h1.0", "y0"]]
    assert "h1.0" in str(answer)


def test_a_path_through_a_weight_that_is_zero_at_both_ends() -> None:
    """To flip x0 -> h0, the other input must carry its balance of 0.75 for a while."""
    graph = Architecture.parse("2-2-1").to_dag()
    path = find_path(graph.with_theta([1, 0, 1, 1, 0.5, 1]), graph.with_theta([-1, 0, 1, 1, 0.5, 1]))
    assert isinstance(path, WeightPath)
    assert path.drift == 0
    assert path.residual() < 1e-15
    assert path.at(0.5)[1] == pytest.approx(np.sqrt(0.75))


@settings(max_examples=trials(33, 100), deadline=None)
@given(st.integers(0, 10**6), st.integers(-500, 500))
def test_paths_between_sparse_whole_weights_are_exact_at_any_scale(seed: int, power: int) -> None:
    graph = some_graph(seed)
    rng = np.random.default_rng(seed)
    theta = rng.choice([-2.0, -1.0, 0.0, 0.0, 0.0, 1.0, 2.0], graph.parameters) * 2.0**power
    other = theta * rng.choice([-1, 1], graph.parameters)
    found = find_path(graph.with_theta(theta), graph.with_theta(other))
    locked = {lock.edge for lock in components(graph.with_theta(theta)).locked}
    blocking = tuple(edge for edge in np.flatnonzero(theta != other).tolist() if edge in locked)
    if blocking:
        assert isinstance(found, Apart)
        assert found.edges == blocking
        return
    assert isinstance(found, WeightPath)
    assert found.drift == 0
    scale = max(float(sizes.max(initial=0.0)) for sizes in found.sizes) or 1.0
    assert found.residual(21) <= 1e-14 * scale * scale * len(graph.names)
    assert (found.at(0.0) == theta).all()
    assert (found.at(1.0) == other).all()


def test_what_only_rounding_decides_is_undecided() -> None:
    """The balances of h0 differ by rounding around 0, where its outgoing weight is locked on one side only."""
    graph = Architecture.parse("2-2-1").to_dag()
    start = graph.with_theta([0.1, 0.3, 1, 1, np.sqrt(0.1), 1])
    stop = graph.with_theta([0.1, 0.3, 1, 1, -np.nextafter(np.sqrt(0.1), 0), 1])
    if not components(start).locked:
        start, stop = stop, start
    found = find_path(start, stop)
    assert isinstance(found, Unsettled)
    assert found.edges == (4,)
    assert "--tolerance" in found.reason
    loose = find_path(start, stop, tolerance=1e-12)
    assert isinstance(loose, WeightPath)
    assert 0 < loose.drift <= 1e-12


def test_misuse() -> None:
    first = Architecture.parse("2-3-1").initialise(seed=0)
    with pytest.raises(InvalidNetwork, match="one graph"):
        find_path(first, Architecture.parse("2-4-1").initialise(seed=0))
    path = find_path(first, first)
    assert isinstance(path, WeightPath)
    with pytest.raises(LawfulError, match="from 0 to 1"):
        path.at(1.5)
