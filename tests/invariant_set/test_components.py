"""Locked edges, barriers and components, against linear programs, brute force and the papers' examples."""

from __future__ import annotations

import importlib
import math
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from effort import trials
from hypothesis import given, settings
from hypothesis import strategies as st

from lawful import Architecture, Dag, LawfulError
from lawful.invariant_set import (
    Balance,
    components,
    flow_residual,
    flow_without,
    free_flows,
    generic_point,
    locked_outputs,
    sparse_point,
)
from lawful.invariant_set.balance import balance, maximum_closure, maximum_flow
from lawful.invariant_set.certificate import certificate
from lawful.invariant_set.locks.bottlenecks import Side, stable_sets
from lawful.network import Role
from lawful.verify import verify
from reproduction.claims.components_graphs import chained_graph, layered_graph, least_square, some_balance, some_graph

seeds = st.integers(0, 10**6)


def toy(theta_e: float) -> Dag:
    """P0 Figure 2d with `c = (θ_e² − 6, 1, 3)`."""
    names = ("a", "b", "2", "3", "4", "5")
    roles = [Role.INPUT, Role.INPUT, Role.HIDDEN, Role.HIDDEN, Role.HIDDEN, Role.OUTPUT]
    root = math.sqrt(3)
    return Dag(names, roles, [0, 2, 2, 1, 3, 4], [2, 3, 4, 3, 4, 5], [theta_e, root, root, 0.5, 1.5, 1.5])


# The oracle


@pytest.mark.parametrize("block", range(trials(2, 6)))
def test_least_squares_agree_with_a_linear_program_per_edge(block: int) -> None:
    """P0 Proposition 4 on 50 graphs (150 in full): every bottleneck edge, and some that are none."""
    locked = 0
    for seed in range(25 * block, 25 * block + 25):
        dag = some_graph(seed)
        c = some_balance(dag, seed)
        found = components(dag, c)
        for edge in range(dag.parameters):
            if edge in found.minima or edge % 8 == 0:
                assert found.minima.get(edge, 0) == pytest.approx(least_square(dag, c, edge), abs=1e-7), (seed, edge)
        assert found.log2_components == sum(value > 0 for value in found.minima.values())
        locked += found.log2_components
    assert locked > 30


def ladder(rng: np.random.Generator, rungs: int) -> Dag:
    """A chain of bottlenecks, and neurons that enter it low down *and* at its top: branches that do not shrink."""
    tails, heads = list(range(rungs + 1)), list(range(1, rungs + 2))
    roles = [Role.INPUT] + [Role.HIDDEN] * rungs + [Role.OUTPUT]
    for number in range(rungs + 2, 2 * rungs):
        low, high = sorted(rng.choice(np.arange(1, rungs + 1), size=2, replace=False).tolist())
        roles.append(Role.HIDDEN)
        tails += [0, number, number]
        heads += [number, low, high]
    return Dag([f"n{i}" for i in range(len(roles))], roles, tails, heads)


@pytest.mark.parametrize("seed", range(trials(4, 12)))
def test_ladders_need_cuts_and_agree_with_linear_programs(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    dag = ladder(np.random.default_rng(seed), 10)
    c = some_balance(dag, seed)
    cuts = []
    module = importlib.import_module("lawful.invariant_set.locks.bottlenecks")
    monkeypatch.setattr(module, "maximum_closure", lambda *given: cuts.append(1) or maximum_closure(*given))
    found = components(dag, c)
    assert cuts
    assert found.minima == {edge: pytest.approx(least_square(dag, c, edge), abs=1e-7) for edge in found.minima}
    verify(certificate(found))


@settings(max_examples=trials(20, 60), deadline=None)
@given(seeds)
def test_theorem_1_by_enumeration_of_stable_sets(seed: int) -> None:
    """Every subset of the hidden nodes, its stability read off the definition, on graphs of at most nine nodes."""
    rng = np.random.default_rng(seed)
    dag = chained_graph(rng, hidden=int(rng.integers(1, 9)))
    if not len(dag.hidden):
        return
    c = dict(zip(dag.hidden.tolist(), some_balance(dag, seed), strict=True))
    found = components(dag, list(c.values()))
    least: dict[int, int] = {}
    for near, far, sign in ((dag.tails, dag.heads, -1), (dag.heads, dag.tails, 1)):
        for size in range(1, len(c) + 1):
            for chosen in combinations(c, size):
                crossing = [e for e in range(dag.parameters) if near[e] in chosen and far[e] not in chosen]
                if len(crossing) == 1:
                    least[crossing[0]] = max(least.get(crossing[0], 0), sign * sum(c[node] for node in chosen))
    assert {edge: value for edge, value in found.minima.items() if value} == {e: v for e, v in least.items() if v > 0}


@pytest.mark.parametrize("seed", range(trials(13, 40)))
def test_every_lock_has_a_stable_set_and_every_free_edge_a_flow(seed: int) -> None:
    dag = some_graph(seed)
    c = some_balance(dag, seed)
    found = components(dag, c)
    number = {node: place for place, node in enumerate(dag.hidden.tolist())}
    for lock in found.locked:
        nodes = found.stable_set(lock)
        near, far, sign = (dag.tails, dag.heads, -1) if lock.side == "out" else (dag.heads, dag.tails, 1)
        assert [e for e in range(dag.parameters) if near[e] in nodes and far[e] not in nodes] == [lock.edge]
        assert sign * sum(c[number[node]] for node in nodes) == lock.minimum > 0
    free = [edge for edge in range(dag.parameters) if edge not in {lock.edge for lock in found.locked}]
    freed: set[int] = set()
    for flow in free_flows(found, free):
        squares = np.zeros(dag.parameters, dtype=np.int64)
        squares[list(flow.squares)] = list(flow.squares.values())
        assert (squares >= 0).all()
        assert (squares[list(flow.frees)] == 0).all()
        assert (dag.hidden_incidence @ squares == c).all()
        freed |= set(flow.frees)
    assert freed == set(free)


def test_few_flows_prove_thousands_of_edges_free() -> None:
    dag = layered_graph(12, 300, 9000)
    found = components(dag, some_balance(dag, 0))
    assert len(found.locked) > 500 < len(found.free_bottlenecks)
    assert len(list(free_flows(found))) < 12


def test_a_locked_edge_has_no_flow() -> None:
    with pytest.raises(LawfulError, match="4 -> 5 is locked"):
        flow_without(components(toy(1.0)), 5)


# The papers' examples


@pytest.mark.parametrize(("theta_e", "locked"), [(1.0, 1), (1.41, 1), (1.42, 0), (math.sqrt(3), 0)])
def test_the_toy_dag_locks_below_the_square_root_of_two(theta_e: float, locked: int) -> None:
    """P0 Section 3.2; the sum over T is θ_e² − 2, not the printed θ_e² − 4."""
    dag = toy(theta_e)
    assert balance(dag) == pytest.approx([theta_e**2 - 6, 1, 3])
    found = components(dag)
    assert found.log2_components == locked
    for lock in found.locked:
        assert dag.edge_name(lock.edge) == ("4", "5")
        assert {dag.names[node] for node in found.stable_set(lock)} == {"2", "3", "4"}
        assert lock.barrier == pytest.approx(math.sqrt(2 - theta_e**2))
        assert lock.sign == 1


def test_corollary_1_no_bottleneck_is_connected() -> None:
    graph = Architecture.parse("3-4-4-2").to_dag()
    for seed in range(5):
        assert components(graph, np.random.default_rng(seed).normal(size=8)).connected


@pytest.mark.parametrize("text", ["2-3-3-1", "1-3-3-2", "1-4-1", "1-3-2-3-1", "3-5-4-1 bias"])
def test_corollary_2_signs_at_bottlenecks_decide(text: str) -> None:
    graph = Architecture.parse(text).to_dag()
    out, into = Side(graph, "out"), Side(graph, "in")
    for seed in range(20):
        c = np.random.default_rng(seed).integers(-1, 4, len(graph.hidden)) * np.random.default_rng(seed).choice([-1, 1])
        assert components(graph, c).connected == bool(
            (c[out.bottleneck] >= 0).all() and (c[into.bottleneck] <= 0).all()
        )


class General(Side):
    """A side on which no bottleneck is known to be alone, so that the general algorithm decides them all."""

    @property
    def alone(self) -> np.ndarray:  # type: ignore[override, type-arg]
        return np.zeros(self.root, dtype=bool)


@pytest.mark.parametrize("seed", range(trials(10, 30)))
def test_the_fast_path_of_the_corollaries_agrees_with_the_general_algorithm(seed: int) -> None:
    graph = some_graph(seed) if seed % 2 else Architecture.parse(("2-4-3-1", "1-4-1", "1-3-3-2")[seed % 3]).to_dag()
    c = some_balance(graph, seed)
    for name in ("out", "in"):
        fast, general = (stable_sets(kind(graph, name), c) for kind in (Side, General))
        for node in np.flatnonzero(fast.side.bottleneck).tolist():
            assert fast.value[node] == general.value[node]
            assert sorted(fast.members(node)) == sorted(general.members(node))


def test_a_chain_of_a_thousand_bottlenecks() -> None:
    """`x_k − x_{k+1} = c_k`: the least squares follow from partial sums."""
    count = 1000
    graph = Architecture((1,) * (count + 2)).to_dag()
    c = np.random.default_rng(0).integers(-3, 4, count)
    change = np.concatenate([[0], -np.cumsum(c)])
    least = change - change.min()
    assert components(graph, c.tolist()).minima == dict(enumerate(least.tolist()))


def test_biases_count_as_incoming_edges() -> None:
    """With a bias the only input weight of a neuron is no longer its only incoming edge."""
    assert components(Architecture.parse("1-2-2").to_dag(), [1, 1]).log2_components == 2
    assert components(Architecture.parse("1-2-2 bias").to_dag(), [1, 1]).connected


def test_an_edge_between_two_bottlenecks_takes_the_larger_barrier() -> None:
    chain = Architecture.parse("1-1-1-1").to_dag()
    found = components(chain, [-9, 4])  # x1 − x2 = −9, x2 − x3 = 4
    assert found.minima == {0: 0, 1: 9, 2: 5}
    assert components(chain, [-1, 4]).minima[1] == 4


def test_one_neuron_and_no_neuron() -> None:
    assert components(Architecture.parse("1-1-1").to_dag(), [0]).connected
    assert components(Architecture.parse("2-3").to_dag(), []).connected


# Exactness


def test_long_capacities_are_exact() -> None:
    """Weights that differ in the last of 400 bits: the maximum flow sees the difference."""
    big = 2**400
    assert maximum_closure([big + 1, -big], [(0, 1)]) == (1, [0, 1])
    assert maximum_closure([big, -big - 1], [(0, 1)]) == (0, [])
    flow, cut = maximum_flow(4, [0, 0, 1, 1, 2], [1, 2, 2, 3, 3], [big, 3 * big + 7, big, 5, 2 * big], 0, 3)
    assert flow[0] + flow[1] == 2 * big + 5
    assert cut == {0, 1, 2}


@settings(max_examples=trials(33, 100), deadline=None)
@given(seeds, st.sampled_from([3, 60, 90, 300]))
def test_maximum_closure_against_enumeration(seed: int, bits: int) -> None:
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 8))
    weights = [int(rng.integers(-8, 9)) * 2**bits + int(rng.integers(-8, 9)) for _ in range(count)]
    arcs = [(i, j) for i in range(count) for j in range(i + 1, count) if rng.random() < 0.4]
    best = max(
        sum(weights[i] for i in range(count) if chosen >> i & 1)
        for chosen in range(2**count)
        if all(not chosen >> i & 1 or chosen >> j & 1 for i, j in arcs)
    )
    value, chosen = maximum_closure(weights, arcs)
    assert value == best == sum(weights[i] for i in chosen)
    assert all(i not in chosen or j in chosen for i, j in arcs)


def test_floats_are_rationals_and_only_a_stated_tolerance_leaves_edges_open() -> None:
    """√2² exceeds 2 by 4e-16 as a rational number, 0.1 + 0.2 exceeds 0.3 by 2.8e-17."""
    dag = Architecture.parse("2-2-1").to_dag()
    x = dag.with_theta([math.sqrt(0.1), math.sqrt(0.2), 1.0, 1.0, math.sqrt(0.1 + 0.2 + 2e-16), 0.5])
    exact = components(x)
    squares = [Fraction(weight) ** 2 for weight in x.theta]
    assert exact.balance.tolerance == 0
    assert exact.balance.fractions == [squares[0] + squares[1] - squares[4], squares[2] + squares[3] - squares[5]]
    assert [lock.minimum for lock in exact.locked] == [-exact.balance.fractions[0]]
    loose = components(x, tolerance=1e-12)
    assert not loose.locked
    assert loose.marginal == (4,)


@pytest.mark.parametrize("choices", [(-1, 0, 1), (-2, -1, 1, 2)])
def test_whole_weights_keep_their_locks(choices: tuple[int, ...]) -> None:
    """Against the least square of every bottleneck edge in a linear program."""
    locks = 0
    for seed in range(12):
        graph = some_graph(seed)
        dag = graph.with_theta(np.random.default_rng(seed).choice(choices, graph.parameters))
        found = components(dag)
        c = [int(value) for value in balance(dag)]
        locks += found.log2_components
        for lock in found.locked:
            assert least_square(dag, c, lock.edge) == pytest.approx(float(lock.minimum))
        for edge in found.free_bottlenecks:
            assert least_square(dag, c, edge) < 1e-7
    assert locks > 5


def test_one_neuron_without_input_is_locked() -> None:
    dag = Architecture.parse("1-2-1").to_dag().with_theta([0.0, 1.0, -1.0, 1.0])
    (lock,) = components(dag).locked
    assert (dag.edge_name(lock.edge), lock.sign, lock.minimum) == (("h1.0", "y0"), -1, 1)


def test_fractions_and_text_are_taken_exactly() -> None:
    graph = Architecture.parse("1-2-1").to_dag()
    assert components(graph, {"h1.0": "1/3", "h1.1": Fraction(-1, 7)}).minima == {0: 7, 3: 3, 1: 0, 2: 0}


@settings(max_examples=trials(17, 50), deadline=None)
@given(seeds, st.integers(-1000, 1000))
def test_scale_changes_nothing(seed: int, power: int) -> None:
    """Weights times a power of two, down to the smallest float and up to the largest."""
    dag = some_graph(seed % 300)
    rng = np.random.default_rng(seed)
    theta = rng.integers(-9, 10, dag.parameters).astype(float)
    here, there = components(dag.with_theta(theta)), components(dag.with_theta(theta * 2.0**power))
    assert [lock.edge for lock in here.locked] == [lock.edge for lock in there.locked]
    assert [lock.barrier * 2.0**power for lock in here.locked] == [lock.barrier for lock in there.locked]
    assert here.free_bottlenecks == there.free_bottlenecks


@pytest.mark.parametrize("size", [1e-165, 1e200])
def test_barriers_whose_squares_no_float_holds(size: float) -> None:
    dag = Architecture.parse("2-2-1").to_dag().with_theta([size, size, 0, 0, 2 * size, size])
    found = components(dag)
    assert [lock.barrier for lock in found.locked] == pytest.approx([math.sqrt(2) * size, size])
    assert locked_outputs(found)[0].locked[0].factor == pytest.approx(2**0.25)
    verify(certificate(found))


# Points and identities


@settings(max_examples=trials(20, 60), deadline=None)
@given(seeds)
def test_every_balance_has_a_sparse_and_a_generic_point(seed: int) -> None:
    """P0 Proposition 3."""
    dag = some_graph(seed)
    c = np.random.default_rng(seed).normal(size=len(dag.hidden)) * 10.0 ** np.random.default_rng(seed).integers(-3, 4)
    sparse, generic = sparse_point(dag, c), generic_point(dag, c)
    for point in (sparse, generic):
        assert balance(point) == pytest.approx(c, rel=1e-12, abs=1e-12 * max(1.0, float((point.theta**2).max())))
    assert np.count_nonzero(sparse.theta) <= 2 * len(dag.hidden)
    assert (generic.theta != 0).all()


def test_gradient_times_weight_is_a_flow(dag: Dag) -> None:
    """P0 Proposition 1, with a loss that mixes outputs; a regulariser on the weights breaks it."""
    import torch

    theta = torch.tensor(dag.theta.copy(), requires_grad=True)
    batch = torch.tensor(np.random.default_rng(0).normal(size=(16, len(dag.inputs))))
    loss = (dag.evaluate(batch, theta).exp() + dag.evaluate(batch, theta).sum(1, keepdim=True) ** 2).mean()
    (gradient,) = torch.autograd.grad(loss, theta)
    size = float(np.abs(dag.theta * gradient.numpy()).max())
    assert np.abs(flow_residual(dag, gradient.numpy())).max(initial=0) <= 1e-12 * max(size, 1)
    if len(dag.hidden) and np.abs(balance(dag)).max() > 1e-3:
        assert np.abs(flow_residual(dag, gradient.numpy() + dag.theta)).max() > 1e-4


# Misuse


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([1.0], "one number per hidden node, 2 here, not 1"),
        ([1.0, float("nan")], "h1.1 is 'nan', not a finite number"),
        (np.array([np.inf, 1.0]), "h1.0 is not finite"),
        ({"h1.0": 1, "x0": 2, "h1.1": 1}, "not hidden nodes of this network: x0"),
        ({"h1.0": 1}, "lacks nodes: h1.1"),
        ({"h1.0": 1, "h1.1": "many"}, "h1.1 is 'many'"),
        ({"h1.0": 1, "h1.1": None}, "h1.1 is 'None'"),
        ({"h1.0": 1, "h1.1": True}, "h1.1 is 'True'"),
    ],
)
def test_bad_balances_are_refused_in_one_line(values: object, words: str) -> None:
    with pytest.raises(LawfulError, match=words):
        Balance.given(Architecture.parse("1-2-1").to_dag(), values)  # type: ignore[arg-type]


def test_bad_tolerances_are_refused_and_huge_weights_are_not() -> None:
    dag = Architecture.parse("1-1-1").to_dag().with_theta([1e200, 1.0])
    assert components(dag).log2_components == 1
    for tolerance in (-1.0, math.nan, math.inf):
        with pytest.raises(LawfulError, match="tolerance"):
            components(dag, [1], tolerance=tolerance)
    with pytest.raises(LawfulError, match="no weights"):
        components(Architecture.parse("1-1-1").to_dag())
