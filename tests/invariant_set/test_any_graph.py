"""Locks of any graph, with circles and parallel edges: against one linear program for each edge."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sparse
from effort import trials
from scipy.optimize import linprog
from torch import nn

from lawful.invariant_set import Apart, Balance, EntryGraph, WeightPath, components, find_path
from lawful.invariant_set.balance import balance
from lawful.invariant_set.locks.components import both_sides, decide
from lawful.invariant_set.locks.cuts import CutSide, cut_sets
from lawful.invariant_set.paths import squares_without
from lawful.symmetry.scaling import ScalingGraph


def some_multigraph(seed: int) -> EntryGraph:
    """A random graph with circles, parallel edges, nodes without a way in or out; its weights are small integers."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 9))
    edges = int(rng.integers(count, 3 * count + 2))
    tails, heads = rng.integers(-1, count, edges), rng.integers(-1, count, edges)
    kept = tails != heads
    tails, heads = tails[kept], heads[kept]
    if rng.random() < 0.7:  # every node has a way in and out
        tails = np.concatenate([tails, np.full(count, -1), np.arange(count)[: count // 2]])
        heads = np.concatenate([heads, np.arange(count), np.full(count // 2, -1)])
    values = rng.integers(-3, 4, len(tails)).astype(float)
    names = tuple(f"n{i}" for i in range(count))
    powers = sparse.csr_array(np.concatenate([np.eye(count), -np.eye(count), np.zeros((1, count))]))
    labels = np.where(heads < 0, 2 * count, heads), np.where(tails < 0, 2 * count, tails + count)
    scaling = ScalingGraph(names, powers, {"w": labels}, {"w": values.shape}, {})
    return EntryGraph(nn.Identity(), scaling, (), {"w": values})


def least_square(graph: EntryGraph, edge: int) -> float:
    """`min x_e` over `{x ≥ 0 : B̃x = c}` by a linear program."""
    cost = np.zeros(graph.parameters)
    cost[edge] = 1.0
    found = linprog(cost, A_eq=graph.scaling.incidence, b_eq=balance(graph))
    assert found.success
    return float(found.fun)


@pytest.mark.parametrize("block", range(trials(2, 4)))
def test_least_squares_of_any_graph_agree_with_linear_programs(block: int) -> None:
    locked = beyond_single = 0
    for seed in range(50 * block, 50 * block + 50):
        graph = some_multigraph(seed)
        found = components(graph)
        barriers = {lock.edge: lock.minimum for lock in found.locked}
        for edge in range(graph.parameters):
            assert float(barriers.get(edge, 0)) == pytest.approx(least_square(graph, edge), abs=1e-7), (seed, edge)
        locked += len(barriers)
        beyond_single += sum(not _only(graph, edge) for edge in barriers)
        for lock in found.locked:  # the evidence: one edge leaves the set, and its balances add up to the bound
            inside = set(found.stable_set(lock))
            near, far = (graph.tails, graph.heads) if lock.side == "out" else (graph.heads, graph.tails)
            leaving = [e for e in range(graph.parameters) if near[e] in inside and far[e] not in inside]
            assert leaving == [lock.edge]
            total = sum(found.balance.fractions[node - 1] for node in inside)
            assert lock.minimum == (-total if lock.side == "out" else total)
    assert locked > 30
    assert beyond_single > 0  # locks that only circles make: the edge is not the only one of its node


def _only(graph: EntryGraph, edge: int) -> bool:
    leaving, entering = (graph.tails == graph.tails[edge]).sum(), (graph.heads == graph.heads[edge]).sum()
    return bool(
        (leaving == 1 and graph.tails[edge] > 0) or (entering == 1 and graph.heads[edge] < len(graph.names) - 1)
    )


@pytest.mark.parametrize("block", range(3))
def test_free_edges_can_be_zero_and_paths_flip_them(block: int) -> None:
    flipped = 0
    for seed in range(300 + 20 * block, 320 + 20 * block):
        graph = some_multigraph(seed)
        found = components(graph)
        locked = {lock.edge for lock in found.locked}
        free = [edge for edge in range(graph.parameters) if edge not in locked]
        for edge in free:
            closed = np.zeros(graph.parameters, dtype=bool)
            closed[edge] = True
            squares = squares_without(graph, found.balance.units, closed)
            assert squares is not None
            assert edge not in squares
            assert min(squares.values(), default=0) >= 0
        for edge in locked:
            closed = np.zeros(graph.parameters, dtype=bool)
            closed[edge] = True
            assert squares_without(graph, found.balance.units, closed) is None
        signs = np.ones(graph.parameters)
        signs[free] = -1.0
        there = graph.with_theta(graph.theta * signs)
        path = find_path(graph, there)
        assert isinstance(path, WeightPath)
        assert path.drift == 0
        np.testing.assert_allclose(path.at(1.0), there.theta, atol=1e-12)
        assert path.residual() < 1e-9
        flipped += len(free)
        if locked:
            signs[sorted(locked)[0]] = -1.0
            assert isinstance(find_path(graph, graph.with_theta(graph.theta * signs)), Apart)
    assert flipped > 100


def test_deciding_again_with_another_balance() -> None:
    graph = some_multigraph(3)
    sides = both_sides(graph)
    assert isinstance(sides[0], CutSide)
    doubled = Balance(tuple(2 * unit for unit in Balance.of(graph).units))
    before, after = components(graph), decide(sides, doubled)
    assert [2 * lock.minimum for lock in before.locked] == [lock.minimum for lock in after.locked]
    sets = cut_sets(sides[0], doubled.units)
    assert set(sets.value) == set(sides[0].behind)


def test_exact_balances_at_every_scale() -> None:
    """The vectorised sum of squares equals the sum of fractions."""
    for seed in range(5):
        graph = some_multigraph(seed)
        rng = np.random.default_rng(seed)
        values = rng.normal(size=graph.parameters) * 10.0 ** rng.integers(-200, 200, graph.parameters)
        graph = graph.with_theta(values)
        total = [Fraction(0)] * len(graph.names)
        for tail, head, value in zip(graph.tails, graph.heads, values, strict=True):
            total[head] += Fraction(value) ** 2
            total[tail] -= Fraction(value) ** 2
        assert Balance.of(graph).fractions == total[1:-1]
