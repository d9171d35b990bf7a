"""Sentences about components against linear programs, on small graphs with small whole weights."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np
import torch
from falsification import Trial
from invariant_set.test_any_graph import least_square, some_multigraph
from scipy.optimize import linprog
from torch import nn

from lawful.errors import InvalidNetwork
from lawful.invariant_set import Components, components
from lawful.invariant_set.locks.components import OutputMeaning, locked_outputs
from lawful.network import Dag, Role
from lawful.report.page.charts import locks as locks_figure
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


def no_lock() -> Iterator[Trial]:
    for about, found, least in cases():
        said = locks_figure(found).caption.startswith(sentences.no_lock())
        yield Trial(about, said, bool((least < 1e-9).all()))


def never_below() -> Iterator[Trial]:
    """The bars of the figure are no higher than the least size that a linear program finds."""
    for about, found, least in cases():
        figure = locks_figure(found)
        said = figure.caption == sentences.never_below()
        bars = sorted(figure.panels[0].series[0].y) if said else [1.0]
        true = len(bars) == len(positive := np.sort(np.sqrt(least[least > 1e-9])))
        yield Trial(about, said, true and bool((bars <= positive * (1 + 1e-9)).all()))


@cache
def module_cases() -> list[tuple[str, Components, np.ndarray]]:
    """Multigraphs, as the entries of modules make them."""
    found = []
    for seed in range(24):
        graph = some_multigraph(seed)
        graph.module.w = nn.Parameter(torch.zeros(graph.parameters))  # entries are named by their parameter
        least = np.array([least_square(graph, edge) for edge in range(graph.parameters)])
        found.append((f"multigraph {seed}", components(graph), least))
    return found


def connected_entries() -> Iterator[Trial]:
    for about, found, least in module_cases():
        said = found_text(found).startswith(sentences.connected_entries(len(found.dag.hidden)))
        yield Trial(about, said, bool((least < 1e-9).all()))


def meanings() -> Iterator[tuple[str, Components, np.ndarray, OutputMeaning]]:
    for about, found, least in cases():
        for meaning in locked_outputs(found):
            yield about, found, least, meaning


def signs_kept() -> Iterator[Trial]:
    for about, found, least, meaning in meanings():
        into = (found.dag.heads == meaning.output) & (found.dag.roles[found.dag.tails] == Role.HIDDEN)
        locked = int((least[into] > 1e-9).sum())
        name = found.dag.names[meaning.output]
        for neurons in range(4):
            said = sentences.signs_kept(name, neurons) in found_text(found)
            yield Trial(f"{about} {name} {neurons}", said, neurons == locked)


def one_side() -> Iterator[Trial]:
    """The output is a sum of hidden values, none negative: its weights tell its side where all are locked."""
    for about, found, least, meaning in meanings():
        into = found.dag.heads == meaning.output
        weights = found.dag.theta[into]
        all_locked = bool((least[into] > 1e-9).all())
        name = found.dag.names[meaning.output]
        for side, holds in (("above", (weights > 0).all()), ("below", (weights < 0).all())):
            said = sentences.one_side(name, side) in found_text(found)
            yield Trial(f"{about} {name} {side}", said, all_locked and bool(holds))


def freed() -> Iterator[Trial]:
    """Rescale each neuron that has a factor by it, and solve the linear program again; half of it frees nothing."""
    for about, found, _, meaning in meanings():
        for neuron in meaning.locked:
            if neuron.factor is None or neuron.factor == 1.0:
                continue
            for share in (1.0, 0.5):
                factor = 1 + share * (neuron.factor * (1 + 1e-12) - 1)
                dag = found.dag
                scale = np.where(dag.heads == neuron.neuron, factor, 1.0)
                scale = np.where(dag.tails == neuron.neuron, scale / factor, scale)
                least = least_squares(dag.with_theta(dag.theta * scale))
                most = max(each.factor for each in meaning.locked if each.factor is not None)
                said = share == 1.0 and sentences.freed(most) in found_text(found)
                yield Trial(f"{about} {neuron.neuron} by {factor}", said, bool(least[neuron.lock.edge] < 1e-6))


FALSIFIERS = {
    "components.no_lock": no_lock,
    "components.never_below": never_below,
    "components.connected_entries": connected_entries,
    "components.signs_kept": signs_kept,
    "components.one_side": one_side,
    "components.freed": freed,
    "components.connected": connected,
    "components.disconnected": disconnected,
    "components.barrier": barrier,
}
