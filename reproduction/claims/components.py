"""Claims about the invariant set: balance, orbits, non-emptiness, deletable edges (P0 Sections 2 to 3.2)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lawful.invariant_set import components, flow_residual, generic_point, sparse_point
from lawful.invariant_set.balance import balance
from lawful.invariant_set.rebalance import rebalance
from reproduction.claim import Outcome, Size, claim
from reproduction.claims.components_graphs import layered_graph, least_square, some_balance, some_graph
from reproduction.claims.extremes import largest, smallest
from reproduction.claims.network import example_dags


@claim(
    "p0-network-flow",
    "Proposition 1",
    "B-tilde (theta * gradient) = 0 for every loss that depends on theta through the output only",
    size=Size("8 random DAGs, four losses", "60 random DAGs, four losses", "every DAG and loss"),
)
def network_flow(full: bool) -> Outcome:
    """Gradients by automatic differentiation for four losses; a penalty on the weights must break the identity."""
    import torch

    losses: dict[str, Callable[[Any, Any], Any]] = {
        "squared": lambda y, t: ((y - t) ** 2).mean(),
        "logistic": lambda y, t: torch.nn.functional.softplus(-y * t.sign()).mean(),
        "cross_entropy": lambda y, t: torch.nn.functional.cross_entropy(y, t.argmax(1)),
        "quartic": lambda y, t: ((y - t) ** 4).sum(),
    }
    worst = dict.fromkeys(losses, 0.0)
    broken = np.inf
    rng = np.random.default_rng(0)
    for dag in example_dags(60 if full else 8, seed=3):
        batch, targets = (torch.tensor(rng.normal(size=(32, width))) for width in (len(dag.inputs), len(dag.outputs)))
        theta = torch.tensor(dag.theta.copy(), requires_grad=True)
        for name, loss in losses.items():
            (slope,) = torch.autograd.grad(loss(dag.evaluate(batch, theta), targets), theta)
            size = largest(float(np.abs(dag.theta * slope.numpy()).max()), 1e-12)
            worst[name] = largest(worst[name], float(np.abs(flow_residual(dag, slope.numpy())).max()) / size)
        broken = smallest(broken, float(np.abs(flow_residual(dag, dag.theta)).max()))
    holds = largest(worst.values()) < 1e-10 and broken > 1e-3
    return Outcome(holds, {"relative_residual": worst, "residual_of_a_weight_penalty": broken})


@claim(
    "p0-orbit-once",
    "Section 2",
    "no two parameters of one H(c) are rescalings of each other, and every orbit meets every H(c)",
    size=Size("25 random graphs", "200 random graphs", "every DAG, weights without zeros"),
)
def orbit_once(full: bool) -> Outcome:
    """Rebalance random points of one orbit to one c: the target is reached, always at the same parameter."""
    rng = np.random.default_rng(0)
    residual = spread = function = 0.0
    moved = np.inf
    for seed in range(200 if full else 25):
        graph = some_graph(seed)
        c = rng.normal(size=len(graph.hidden))
        dag = graph.with_theta(rng.normal(size=graph.parameters))
        other = dag.rescaled(np.exp(rng.normal(size=len(graph.hidden))))
        first, second = rebalance(dag, c), rebalance(other, c)
        size = float(np.abs(first.dag.theta).max())
        reached = [np.abs(balance(each.dag) - c).max() for each in (first, second)]
        residual = largest(residual, float(largest(reached)) / size**2)
        spread = largest(spread, float(np.abs(first.dag.theta - second.dag.theta).max()) / size)
        moved = smallest(moved, float(np.abs(balance(other) - balance(dag)).max()))
        batch = rng.normal(size=(16, len(graph.inputs)))
        before = dag.evaluate(batch)
        change = np.abs(first.dag.evaluate(batch) - before).max() / largest(float(np.abs(before).max()), 1e-9)
        function = largest(function, float(change))
    measured = {
        "residual": residual,
        "distance_of_the_two_points_found": spread,
        "function_change": function,
        "least_change_of_balance_by_rescaling": moved,
    }
    return Outcome(residual < 1e-10 and spread < 1e-7 and function < 1e-8 and moved > 1e-6, measured)


@claim(
    "p0-nonempty",
    "Propositions 3 and 9",
    "H(c) is not empty, for every c: a point is constructed",
    size=Size("41 graphs, up to 30,000 edges", "301 graphs, up to a million edges", "every DAG"),
)
def nonempty(full: bool) -> Outcome:
    """Sparse and generic points for random balances, on small graphs and on a large one."""
    rng = np.random.default_rng(0)
    graphs = [some_graph(seed) for seed in range(300 if full else 40)]
    graphs.append(layered_graph(20, 15_000 if full else 500, 1_000_000 if full else 30_000))
    residual, fullest, zeros = 0.0, 0.0, 0
    for graph in graphs:
        c = rng.normal(size=len(graph.hidden)) * 10.0 ** rng.integers(-3, 4)
        for point in (sparse := sparse_point(graph, c), generic := generic_point(graph, c)):
            size = largest(float((point.theta**2).max()), 1e-300)
            residual = largest(residual, float(np.abs(balance(point) - c).max()) / size)
        fullest = largest(fullest, float(np.count_nonzero(sparse.theta) / len(graph.hidden)))
        zeros += int((generic.theta == 0).sum())
    measured = {
        "graphs": len(graphs),
        "edges_of_the_largest": graphs[-1].parameters,
        "relative_residual": residual,
        "nonzero_weights_per_neuron_at_most": fullest,
        "zero_weights_of_generic_points": zeros,
    }
    return Outcome(residual < 1e-12 and fullest <= 2 and zeros == 0, measured)


@claim(
    "p0-edge-criterion",
    "Propositions 4 and 10",
    "H(c) is connected exactly when every single edge can be deleted and H(c) stays non-empty",
    size=Size("40 random graphs", "400 random graphs", "every DAG"),
)
def edge_criterion(full: bool) -> Outcome:
    """One linear program per edge against the stable sets of Theorem 1, barriers included."""
    mismatches = edges = locked = disagreements = 0
    for seed in range(400 if full else 40):
        graph = some_graph(seed)
        c = some_balance(graph, seed)
        found = components(graph, c)
        least = [least_square(graph, c, edge) for edge in range(graph.parameters)]
        mismatches += sum(abs(least[edge] - found.minima.get(edge, 0)) > 1e-7 for edge in range(graph.parameters))
        disagreements += found.connected != all(value < 1e-7 for value in least)
        edges += graph.parameters
        locked += len(found.locked)
    measured = {"edges": edges, "locked": locked, "wrong_barriers": mismatches, "wrong_verdicts": disagreements}
    return Outcome(mismatches == disagreements == 0 and locked > 0, measured)


CLAIMS = (network_flow, orbit_once, nonempty, edge_criterion)
