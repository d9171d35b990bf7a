"""The nearest balance without a locked edge, the rescaling that reaches it, and initial weights made with both."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.sparse as sparse
from numpy.typing import NDArray
from scipy.optimize import nnls
from scipy.sparse.csgraph import connected_components

from lawful.components.balance import Balance, balance, round_off
from lawful.components.locks import both_sides, decide
from lawful.components.rebalance import Prescribed, Rebalanced, rebalance
from lawful.errors import LawfulError
from lawful.network import Architecture, Dag, Mlp, initialise
from lawful.types import Floats

ROUNDS = 200


def unlock(network: Mlp | Dag) -> Rebalanced:
    """Rescale a network, its function unchanged, to the nearest balance for which no edge is locked.

    >>> from lawful.components.locks import components
    >>> from lawful.network import Architecture
    >>> dag = Architecture.parse("1-2-1").to_dag().with_theta([1.0, 3.0, -2.0, 1.0])
    >>> done = unlock(dag)
    >>> done.target, components(dag).log2_components, components(done.dag).log2_components
    (array([0., 0.]), 2, 0)
    """
    dag = network.to_dag()
    return rebalance(dag, nearest_unlocked(dag, balance(dag), round_off(dag)))


def nearest_unlocked(dag: Dag, start: Floats, tolerance: float = 0.0) -> Floats:
    """The balance nearest to `start` (Euclidean) without a locked edge, up to a total `tolerance`.

    Balances without locks form a convex cone, `±Σ_T c ≥ 0` for the stable sets T. The sets that matter are found as
    they are violated, and the projection on those found is a non-negative least-squares problem.
    """
    start = np.asarray(start, dtype=np.float64)
    sides = both_sides(dag)
    rounding = 8 * float(np.finfo(np.float64).eps * np.abs(start).sum())  # what least squares leave
    rows: list[NDArray[np.intp]] = []
    signs: list[float] = []
    for side in sides:  # {v} is stable for every bottleneck v, and usually all it takes
        wrong = np.flatnonzero(side.bottleneck & (side.sign * start < 0))
        rows += list(wrong[:, None])
        signs += [float(side.sign)] * len(wrong)
    for _ in range(ROUNDS):
        current = _project(start, rows, signs)
        found = decide(sides, Balance.given(dag, current, tolerance=max(tolerance, rounding)))
        if found.connected:
            return current
        for lock in found.locked:
            rows.append(np.searchsorted(dag.hidden, sorted(found.stable_set(lock))))
            signs.append(1.0 if lock.side == "out" else -1.0)
    raise LawfulError(f"no balance without locked edges was found in {ROUNDS} rounds")


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

    >>> from lawful.components.locks import components
    >>> from lawful.network import Architecture
    >>> components(draw(Architecture.parse("2-8-8-1 relu bias"), seed=3)).connected
    True
    """
    dag = initialise(graph.to_dag(), scheme, seed)
    done = unlock(dag) if balance is None else rebalance(dag, balance)
    if not done.reached:
        names = ", ".join(dag.names[node] for node in done.unreachable[:5])
        raise LawfulError(f"{len(done.unreachable)} neurons got only zero weights on one side: {names}; try {scheme=}")
    return done.dag
