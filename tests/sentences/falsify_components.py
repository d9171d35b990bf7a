"""Sentences about components against linear programs, on small graphs with small whole weights."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np
from falsification import Trial
from scipy.optimize import linprog

from lawful.errors import InvalidNetwork
from lawful.invariant_set import Components, components
from lawful.network import Dag, Role
from lawful.report.structure.components import found_text
from lawful.sentences import components as sentences

GRAPHS = 60


def least_squares(dag: Dag) -> np.ndarray:
    """For every edge the least square over all x ≥ 0 with the balance of the weights, Bx = c (P0)."""
    hidden = dag.hidden.tolist()
    table = np.array([(dag.heads == node).astype(float) - (dag.tails == node) for node in hidden]).reshape(
        -1, dag.parameters
    )
    balance = table @ dag.theta**2
    found = []
    for edge in range(dag.parameters):
        result = linprog(np.eye(dag.parameters)[edge], A_eq=table, b_eq=balance, bounds=(0, None), method="highs")
        assert result.status == 0
        found.append(result.fun)
    return np.array(found)


@cache
def cases() -> list[tuple[str, Components, np.ndarray]]:
    """Random graphs of up to three hidden nodes, integer weights, zeros and ties among them."""
    rng = np.random.default_rng(0)
    found = []
    while len(found) < GRAPHS:
        inputs, hidden, outputs = rng.integers(1, 3), rng.integers(1, 4), rng.integers(1, 3)
        count = int(inputs + hidden + outputs)
        roles = [Role.INPUT] * int(inputs) + [Role.HIDDEN] * int(hidden) + [Role.OUTPUT] * int(outputs)
        pairs = [
            (a, b)
            for a in range(count)
            for b in range(a + 1, count)
            if roles[a] != Role.OUTPUT and roles[b] != Role.INPUT and rng.random() < 0.55
        ]
        inner = [node for node in range(count) if roles[node] == Role.HIDDEN]
        if any(all(b != node for _, b in pairs) or all(a != node for a, _ in pairs) for node in inner):
            continue
        weights = rng.integers(-3, 4, size=len(pairs)).astype(float)
        names = [f"n{node}" for node in range(count)]
        try:
            dag = Dag(names, roles, [a for a, _ in pairs], [b for _, b in pairs], weights=weights)
        except InvalidNetwork:  # a node on no path
            continue
        found.append((f"{pairs} {weights.tolist()}", components(dag), least_squares(dag)))
    return found


def connected() -> Iterator[Trial]:
    for about, found, least in cases():
        said = found_text(found).startswith("connected")
        assert not said or sentences.connected(len(found.free_bottlenecks)) in found_text(found)
        yield Trial(about, said, bool((least < 1e-9).all()))


def disconnected() -> Iterator[Trial]:
    for about, found, least in cases():
        locked = int((least > 1e-9).sum())
        said = found_text(found).startswith("disconnected")
        assert not said or found_text(found).startswith(sentences.disconnected(found.log2_components))
        yield Trial(about, said, locked > 0 and (not said or found.log2_components == locked))


def barrier() -> Iterator[Trial]:
    """The number in the text is no larger than the root of the least square, and is so to its last digit."""
    for about, found, least in cases():
        for lock in found.locked:
            words = sentences.barrier(lock.minimum)
            root = float(np.sqrt(least[lock.edge]))
            assert words in found_text(found)
            yield Trial(
                f"{about} edge {lock.edge}: {words}", True, root * (1 - 2e-5) <= float(words) <= root * (1 + 1e-12)
            )
        for edge in np.flatnonzero((least < 1e-9) & (found.dag.theta != 0))[:1]:
            yield Trial(f"{about} edge {edge} free", any(lock.edge == edge for lock in found.locked), False)


FALSIFIERS = {
    "components.connected": connected,
    "components.disconnected": disconnected,
    "components.barrier": barrier,
}
