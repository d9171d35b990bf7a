"""The graph: structure against brute force, evaluation against a plain loop, refusals by name."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
import torch
from effort import trials
from hypothesis import given, settings
from hypothesis import strategies as st

from lawful import Dag, InvalidNetwork, LawfulError, Unsupported
from lawful.network import Role, useful_dag


def plain_evaluate(dag: Dag, sample: np.ndarray) -> np.ndarray:
    """Node by node in topological order, one sample: the definition."""
    graph = nx.DiGraph()
    graph.add_nodes_from(range(len(dag.names)))
    graph.add_weighted_edges_from(zip(dag.tails, dag.heads, dag.theta, strict=True))
    value = dict(zip(dag.inputs, sample, strict=True))
    for node in nx.topological_sort(graph):
        if dag.roles[node] == Role.CONSTANT:
            value[node] = 1.0
        elif dag.roles[node] != Role.INPUT:
            z = sum(value[tail] * data["weight"] for tail, _, data in graph.in_edges(node, data=True))
            value[node] = z if z > 0 else dag.slopes[node] * z
    return np.array([value[node] for node in dag.outputs])


def test_evaluation_is_the_definition(dag: Dag) -> None:
    batch = np.random.default_rng(0).normal(size=(6, len(dag.inputs)))
    expected = np.array([plain_evaluate(dag, sample) for sample in batch])
    np.testing.assert_allclose(dag.evaluate(batch), expected, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(dag.evaluate(torch.tensor(batch)).numpy(), expected, rtol=1e-12, atol=1e-14)


def test_torch_gradient_is_the_finite_difference(dag: Dag) -> None:
    batch = torch.tensor(np.random.default_rng(0).normal(size=(4, len(dag.inputs))))
    theta = torch.tensor(dag.theta, requires_grad=True)
    dag.evaluate(batch, theta).square().sum().backward()
    step = 1e-6
    for edge in range(0, dag.parameters, 3):
        moved = [dag.theta.copy(), dag.theta.copy()]
        moved[0][edge] += step
        moved[1][edge] -= step
        high, low = ((dag.evaluate(batch.numpy(), w) ** 2).sum() for w in moved)
        assert theta.grad is not None
        assert theta.grad[edge] == pytest.approx((high - low) / (2 * step), rel=1e-5, abs=1e-6)


def test_levels_and_relatives_agree_with_networkx(dag: Dag) -> None:
    graph = nx.DiGraph(zip(dag.tails.tolist(), dag.heads.tolist(), strict=True))
    graph.add_nodes_from(range(len(dag.names)))
    for level, nodes in enumerate(nx.topological_generations(graph)):
        assert set(nodes) == set(dag.layers[level].tolist())
    for node in range(len(dag.names)):
        assert set(np.flatnonzero(dag.descendants(node))) == nx.descendants(graph, node)
        assert set(np.flatnonzero(dag.ancestors(node))) == nx.ancestors(graph, node)


def test_degrees_are_the_rows_of_the_incidence_matrix(dag: Dag) -> None:
    dense = dag.incidence.toarray()
    assert ((dense > 0).sum(axis=1) == dag.in_degree).all()
    assert ((dense < 0).sum(axis=1) == dag.out_degree).all()
    assert (dense[dag.hidden] == dag.hidden_incidence.toarray()).all()


def test_rescaling_keeps_the_function(dag: Dag) -> None:
    """P0 Section 2."""
    rng = np.random.default_rng(1)
    batch = rng.normal(size=(20, len(dag.inputs)))
    twin = dag.rescaled(np.exp(rng.normal(size=len(dag.hidden))))
    np.testing.assert_allclose(twin.evaluate(batch), dag.evaluate(batch), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("factor", [0.0, -1.0, np.nan, np.inf])
def test_rescaling_refuses_what_is_not_a_symmetry(toy: Dag, factor: float) -> None:
    with pytest.raises(LawfulError, match="positive and finite"):
        toy.rescaled([1.0, factor, 1.0])


def test_removing_zero_edges_keeps_the_function(dag: Dag) -> None:
    zeros = np.arange(dag.parameters) % 4 == 0
    silent = dag.with_theta(np.where(zeros, 0.0, dag.theta))
    batch = np.random.default_rng(2).normal(size=(10, len(dag.inputs)))
    smaller = silent.without_edges(zeros, drop_useless=True)
    assert smaller.parameters <= (~zeros).sum()
    np.testing.assert_allclose(smaller.evaluate(batch), silent.evaluate(batch), rtol=1e-12, atol=1e-13)


def test_removing_a_neuron_removes_its_edges(toy: Dag) -> None:
    smaller = toy.without_nodes([toy.index["3"]])
    assert smaller.names == ("a", "b", "2", "4", "5")
    assert [smaller.edge_name(e) for e in range(smaller.parameters)] == [("a", "2"), ("2", "4"), ("4", "5")]
    with pytest.raises(LawfulError, match="only hidden"):
        toy.without_nodes([toy.index["a"]])
    with pytest.raises(InvalidNetwork, match="2, 3"):
        toy.without_nodes([toy.index["4"]])


def test_merging_duplicates_keeps_the_function() -> None:
    """h and k see the same ray: k = 2h. They share the head y, only k feeds z."""
    names, roles = ("x", "h", "k", "y", "z"), [Role.INPUT, Role.HIDDEN, Role.HIDDEN, Role.OUTPUT, Role.OUTPUT]
    dag = Dag(names, roles, [0, 0, 1, 2, 2], [1, 2, 3, 3, 4], [1.5, 3.0, 1.0, -4.0, 5.0])
    batch = np.linspace(-2, 2, 9)[:, None]
    merged = dag.merged(keep=1, drop=2, scale=2.0)
    assert merged.names == ("x", "h", "y", "z")
    np.testing.assert_allclose(merged.evaluate(batch), dag.evaluate(batch), rtol=1e-15)
    with pytest.raises(LawfulError, match="two different hidden"):
        dag.merged(0, 1)


def dag_of(edges: list[tuple[str, str]], inputs: str = "ab", outputs: str = "y", weights: object = None) -> Dag:
    names = sorted({name for edge in edges for name in edge})
    roles = [Role.INPUT if n in inputs else Role.OUTPUT if n in outputs else Role.HIDDEN for n in names]
    at = names.index
    return Dag(names, roles, [at(t) for t, _ in edges], [at(h) for _, h in edges], weights)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("edges", "words"),
    [
        ([("a", "h"), ("h", "k"), ("k", "h"), ("k", "y")], "cycle: (h -> k -> h|k -> h -> k)"),
        ([("a", "h"), ("h", "y"), ("h", "b")], "h -> b enters an input"),
        ([("a", "h"), ("h", "y"), ("y", "h")], "y -> h leaves an output"),
        ([("a", "h"), ("h", "y"), ("a", "k")], "no path from input to output: k"),
        ([("a", "h"), ("h", "y"), ("a", "h")], "a -> h appears twice"),
        ([("a", "b")], "at least one input and one output"),
    ],
)
def test_what_is_not_a_network_is_refused_by_name(edges: list[tuple[str, str]], words: str) -> None:
    with pytest.raises(InvalidNetwork, match=words):
        dag_of(edges)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_weights_that_are_no_numbers_are_located(bad: float) -> None:
    with pytest.raises(InvalidNetwork, match="first on edge h -> y"):
        dag_of([("a", "h"), ("h", "y")], weights=[1.0, bad])
    with pytest.raises(InvalidNetwork, match="first on edge h -> y"):
        dag_of([("a", "h"), ("h", "y")]).with_theta([1.0, bad])


def test_wrong_shapes_are_refused(toy: Dag) -> None:
    with pytest.raises(InvalidNetwork, match="6 edges but 5 weights"):
        toy.with_theta(np.ones(5))
    with pytest.raises(LawfulError, match=r"\(samples, 2\)"):
        toy.evaluate(np.ones((4, 3)))
    with pytest.raises(Unsupported, match="no weights"):
        _ = dag_of([("a", "h"), ("h", "y")]).theta


def test_a_network_cannot_be_changed_in_place(toy: Dag) -> None:
    with pytest.raises(ValueError, match="read-only"):
        toy.theta[0] = 1.0


@settings(max_examples=trials(20, 60), deadline=None)
@given(st.integers(0, 10_000))
def test_dropping_useless_nodes_keeps_the_function(seed: int) -> None:
    """A random graph with loose ends equals its useful part."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(4, 12))
    roles = np.full(count, Role.HIDDEN)
    roles[0], roles[-1] = Role.INPUT, Role.OUTPUT
    pairs = [(i, j) for i in range(count - 1) for j in range(i + 1, count) if rng.random() < 0.4]
    tails, heads = np.array(pairs or [(0, count - 1)]).T
    weights = rng.normal(size=len(tails))
    dag = useful_dag([f"v{i}" for i in range(count)], roles, tails, heads, weights)
    value = np.zeros(count)
    value[0] = rng.normal()
    for node in range(1, count):
        z = (value[tails] * weights)[heads == node].sum()
        value[node] = z if node == count - 1 else max(z, 0.0)
    assert dag.evaluate([[value[0]]])[0, 0] == pytest.approx(value[-1], rel=1e-12, abs=1e-13)


def test_a_long_chain_and_a_wide_layer() -> None:
    chain = Dag(map(str, range(20_000)), [0, *[1] * 19_998, 2], range(19_999), range(1, 20_000), np.ones(19_999))
    assert chain.evaluate([[2.5]])[0, 0] == 2.5
    assert chain.levels[-1] == 19_999
