"""Random graphs with many bottlenecks, and an oracle for them: one linear program per edge (P0 Proposition 4)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

from lawful.network import Dag, Role, useful_dag


def dense_graph(rng: np.random.Generator) -> Dag:
    """Every pair of nodes joined with one probability: skips, several inputs and outputs, inputs joined to outputs."""
    inputs, hidden, outputs = (int(n) for n in rng.integers((1, 2, 1), (4, 12, 4)))
    roles = [Role.INPUT] * inputs + [Role.HIDDEN] * hidden + [Role.OUTPUT] * outputs
    chance = rng.uniform(0.1, 0.6)
    pairs = [
        (tail, head)
        for tail in range(inputs + hidden)
        for head in range(max(tail + 1, inputs), len(roles))
        if rng.random() < chance
    ]
    tails, heads = zip(*pairs, strict=True) if pairs else ((), ())
    return useful_dag([f"n{i}" for i in range(len(roles))], roles, tails, heads)


def chained_graph(rng: np.random.Generator, hidden: int | None = None, reach: int = 6) -> Dag:
    """Few edges to near nodes: bottlenecks inside the reach of bottlenecks, and edges between two of them."""
    inputs, outputs = (int(n) for n in rng.integers(1, 3, size=2))
    hidden = int(rng.integers(5, 30)) if hidden is None else hidden
    count = inputs + hidden + outputs
    roles = [Role.INPUT] * inputs + [Role.HIDDEN] * hidden + [Role.OUTPUT] * outputs
    pairs = set()
    for tail in range(inputs + hidden):
        near = np.arange(max(tail + 1, inputs), min(count, max(tail + 1, inputs) + reach))
        chosen = rng.choice(near, size=min(len(near), int(rng.choice([1, 1, 2, 2, 3]))), replace=False)
        pairs |= {(tail, int(head)) for head in chosen}
    tails, heads = zip(*sorted(pairs), strict=True)
    return useful_dag([f"n{i}" for i in range(count)], roles, tails, heads)


def biased_graph(rng: np.random.Generator) -> Dag:
    """A chained graph with biases at some hidden nodes: they count as incoming edges."""
    dag = chained_graph(rng)
    heads = [node for node in dag.hidden.tolist() if rng.random() < 0.4]
    return Dag(
        [*dag.names, "bias"],
        [*dag.roles.tolist(), Role.CONSTANT],
        np.concatenate([dag.tails, np.full(len(heads), len(dag.names), dtype=np.intp)]),
        np.concatenate([dag.heads, np.array(heads, dtype=np.intp)]),
    )


def some_graph(seed: int) -> Dag:
    """One of the three kinds, with at least one hidden node."""
    rng = np.random.default_rng(seed)
    while True:
        dag = (dense_graph, chained_graph, biased_graph)[seed % 3](rng)
        if len(dag.hidden):
            return dag


def some_balance(dag: Dag, seed: int) -> list[int]:
    """Small whole numbers, zeros included, so that sums over stable sets often vanish exactly."""
    return [int(unit) for unit in np.random.default_rng((seed, 1)).integers(-4, 5, len(dag.hidden))]


def least_square(dag: Dag, balance: list[int] | NDArray[np.float64], edge: int) -> float:
    """`min x_e` over `x ≥ 0, B̃x = c`, by linear programming."""
    cost = np.zeros(dag.parameters)
    cost[edge] = 1.0
    found = linprog(cost, A_eq=dag.hidden_incidence, b_eq=balance, method="highs")
    return float(found.fun)


def layered_graph(layers: int, width: int, edges: int, seed: int = 0) -> Dag:
    """Random edges between neighbouring layers, one in ten skipping one: thousands of bottlenecks when sparse."""
    rng = np.random.default_rng(seed)
    count = layers * width
    roles = np.repeat([Role.INPUT, Role.HIDDEN, Role.OUTPUT], [width, count - 2 * width, width])
    inner = np.arange(width, count - width)
    start = inner - inner % width
    layer = rng.integers(0, layers - 1, max(edges - 2 * len(inner), 0))
    above = np.minimum(layer + 1 + (rng.random(len(layer)) < 0.1), layers - 1)
    tails = (layer * width + rng.integers(0, width, len(layer)), start - width + _any(rng, width, inner), inner)
    heads = (above * width + rng.integers(0, width, len(layer)), inner, start + width + _any(rng, width, inner))
    keys = np.unique(np.concatenate(tails) * count + np.concatenate(heads))
    return useful_dag([f"n{i}" for i in range(count)], roles, keys // count, keys % count)


def _any(rng: np.random.Generator, width: int, like: NDArray[np.intp]) -> NDArray[np.int64]:
    return rng.integers(0, width, len(like))
