"""The nearest balance without a locked edge, the rescaling that reaches it, and initial weights made with both."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import scipy.sparse as sparse
from numpy.typing import NDArray
from scipy.optimize import nnls
from scipy.sparse.csgraph import connected_components

from lawful.errors import LawfulError
from lawful.invariant_set.balance import Balance, balance, rounding
from lawful.invariant_set.locks.components import both_sides, decide
from lawful.invariant_set.module_graph import Balanced, balanced_graph, with_readings
from lawful.invariant_set.rebalance import Prescribed, Rebalanced, rebalance
from lawful.network import Architecture, Dag, initialise
from lawful.sources.opening import Source
from lawful.types import Floats

ROUNDS = 200


def unlock(network: Source, *, input: Any = None) -> Rebalanced:
    """Rescale a network, its function unchanged, to the nearest balance for which no edge is locked.

    Where that balance leaves no room (a neuron between one input and one output must have `c = 0` exactly), the
    rescaled weights meet it to their rounding, and a lock of that size can remain; elsewhere none does.

    >>> from lawful.invariant_set.locks.components import components
    >>> from lawful.network import Architecture
    >>> dag = Architecture.parse("2-2-1").to_dag().with_theta([1.0, 3.0, -2.0, 1.0, 4.0, 5.0])
    >>> done = unlock(dag)
    >>> components(dag).log2_components, components(done.dag).log2_components, done.locked
    (2, 0, 0)
    """
    graph = balanced_graph(network, input)
    dag = graph.to_dag()
    scale = 2.0 ** int(np.frexp(np.abs(dag.theta).max(initial=0.0))[1] - 1)
    unit = dag.with_theta(dag.theta / scale)
    done = rebalance(unit, nearest_unlocked(unit, balance(unit), 4 * float(rounding(unit))))
    with np.errstate(over="ignore"):
        done = replace(done, dag=dag.with_theta(done.dag.theta * scale), target=done.target * scale * scale)
    return with_readings(done, graph)


def nearest_unlocked(dag: Balanced, start: Floats, margin: float = 0.0) -> Floats:
    """The balance nearest to `start` (Euclidean) without a locked edge, moved inside that cone by about `margin`.

    Balances without locks form a convex cone, `±Σ_T c ≥ 0` for the stable sets T. The sets that matter are found as
    they are violated, and the projection on those found is a non-negative least-squares problem. A cone without
    inside is met to rounding.
    """
    start = np.asarray(start, dtype=np.float64)
    sides = both_sides(dag)
    rounded = 8 * float(np.finfo(np.float64).eps * np.abs(start).sum())  # what least squares leave
    rows: list[NDArray[np.intp]] = []
    signs: list[float] = []
    for side in sides:  # {v} is stable if v has a single edge, and that is usually all it takes
        wrong = np.flatnonzero(side.single & (side.sign * start < 0))
        rows += list(wrong[:, None])
        signs += [float(side.sign)] * len(wrong)
    for _ in range(ROUNDS):
        current = _project(start, rows, signs)
        decision = decide(sides, Balance.given(dag, current, tolerance=rounded))
        if decision.connected:
            break
        for lock in decision.locked:
            rows.append(np.searchsorted(dag.hidden, sorted(decision.stable_set(lock))))
            signs.append(1.0 if lock.side == "out" else -1.0)
    else:
        raise LawfulError(f"no balance without locked edges was found in {ROUNDS} rounds")
    current = np.where(np.abs(current) <= rounded, 0.0, current)  # a neuron that must have 0 gets 0
    inwards = np.sum([side.sign * side.bottleneck.astype(float) for side in sides], axis=0)
    for step in (0.0, 2 * (rounded + margin), 16 * (rounded + margin)):
        inside = Balance.given(dag, current + step * inwards)
        room = math.ceil(Fraction(margin) * inside.denominator)
        if all(value <= -room for sets in decide(sides, inside).stable.values() for value in sets.value.values()):
            return np.asarray(current + step * inwards)
    return current


def _project(start: Floats, rows: Sequence[NDArray[np.intp]], signs: Sequence[float]) -> Floats:
    """The point nearest to `start` with `sign · Σ_row c ≥ 0` for all rows, one block of overlapping rows at a time."""
    if not rows:
        return start
    lengths = [len(row) for row in rows]
    entries = np.repeat(signs, lengths)
    matrix = sparse.csr_array(
        (entries, np.concatenate(rows), np.concatenate([[0], np.cumsum(lengths)])), shape=(len(rows), len(start))
    )
    _, block = connected_components(abs(matrix) @ abs(matrix).T, directed=False)
    single = np.bincount(block)[block] == 1
    lift = np.where(single, np.maximum(0.0, -(matrix @ start)) / lengths, 0.0)
    projected: Floats = start + matrix.T @ lift
    order = np.flatnonzero(~single)[np.argsort(block[~single], kind="stable")]
    for numbers in np.split(order, np.flatnonzero(np.diff(block[order])) + 1) if len(order) else ():
        chosen = matrix[numbers]
        columns = np.unique(chosen.indices)
        normals = chosen[:, columns].toarray().T
        force, _ = nnls(normals, -start[columns])
        projected[columns] = start[columns] + normals @ force
    return projected


def draw(
    graph: Architecture | Dag, *, balance: Prescribed | float | None = None, scheme: str = "torch", seed: int = 0
) -> Dag:
    """Random initial weights with no locked edge, or with the balance asked for: a usual draw, then rescaled.

    >>> from lawful.invariant_set.locks.components import components
    >>> from lawful.network import Architecture
    >>> components(draw(Architecture.parse("2-8-8-1 relu bias"), seed=3)).connected
    True
    """
    dag = initialise(graph.to_dag(), scheme, seed)
    done = unlock(dag) if balance is None else rebalance(dag, balance)
    if not done.reached:
        names = ", ".join(dag.names[node] for node in done.unreachable[:5])
        raise LawfulError(f"{len(done.unreachable)} neurons got only zero weights on one side: {names}; try {scheme=}")
    return dag.with_theta(done.dag.theta)
