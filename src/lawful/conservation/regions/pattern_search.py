"""Weights at which many activation patterns occur: neurons that bend where others are linear, one after the other.

At random weights deep neurons are often on for all inputs, or off. Here single neurons get new weights with which they
switch at an input of a fixed pool, and keep them if the gradients at the pool span more than before. All that is done
in float64: whether the weights serve is counted exactly afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg

from lawful.conservation.regions.patterns import distinct
from lawful.network import Dag, Role
from lawful.types import Floats, Indices

DRAWN, POOL = 8192, 1024  # inputs that are drawn, and those in use
EACH = 4  # inputs of one pattern that are looked at
MOST_ENDS = 12  # combinations of outputs
SPARE = 32  # random combinations of gradients beyond as many as parameters
SMALL = 1e-7  # singular values that count, relative to unit rows
STALE = 150  # steps without gain after which to give up
BITS = 2.0**12


def search_weights(dag: Dag, goal: int, seed: int, steps: int) -> Dag:
    """Weights of few binary digits whose gradients span `goal` dimensions, or as many as some steps reach.

    >>> from lawful.conservation import count_laws
    >>> from lawful.network import Architecture
    >>> usual = Architecture.parse("2-3-6-9-2 relu").initialise(seed=0).to_dag()
    >>> [count_laws(network, level="near").laws for network in (usual, search_weights(usual, 78, 0, 400))]
    [35, 18]
    """
    rng = np.random.default_rng((seed, 2))
    pool = _Pool(dag, rng)
    layers = [layer[(dag.roles[layer] == Role.HIDDEN) & (dag.slopes[layer] != 1.0)] for layer in dag.layers]
    layers = [layer for layer in layers if len(layer)]
    best, score, stale = dag.theta, pool.score(dag.theta), 0
    for _ in range(steps):
        if score[0] >= goal or stale > STALE:
            break
        theta = best.copy()
        for node in rng.choice(layers[rng.integers(len(layers))], size=rng.integers(1, 3)):
            edges = np.flatnonzero(dag.heads == node)
            theta[edges] = pool.switching(theta, edges, rng)
        again = pool.score(theta)
        stale = 0 if again[0] > score[0] else stale + 1
        if again >= score:
            best, score = theta, again
    return dag.with_theta(best)


@dataclass(frozen=True, eq=False)
class _Pool:
    """Random inputs, combinations of outputs, and of gradients where these are many."""

    dag: Dag
    inputs: Floats
    ends: Floats
    mixing: Floats
    order: Indices

    def __init__(self, dag: Dag, rng: np.random.Generator) -> None:
        object.__setattr__(self, "dag", dag)
        drawn = rng.normal(size=(len(dag.inputs), DRAWN))
        object.__setattr__(self, "inputs", drawn[:, _keep_active_inputs(dag, drawn)])
        outputs = len(dag.outputs)
        object.__setattr__(self, "ends", rng.normal(size=(min(outputs, MOST_ENDS), outputs)))
        shape = (dag.parameters + SPARE, POOL * len(self.ends))
        object.__setattr__(self, "mixing", rng.normal(size=shape) / np.sqrt(dag.parameters))
        nodes = np.concatenate(dag.layers)
        object.__setattr__(self, "order", nodes[dag.roles[nodes] == Role.HIDDEN])

    def signals(self, theta: Floats) -> tuple[Floats, Floats]:
        """What every node says to every input, and the gates of hidden nodes."""
        dag = self.dag
        up, gates = np.zeros((2, len(dag.names), POOL))
        up[dag.inputs] = self.inputs
        if dag.constant is not None:
            up[dag.constant] = 1.0
        for node in self.order:
            edges = dag.heads == node
            read = theta[edges] @ up[dag.tails[edges]]
            gates[node] = np.where(read > 0, 1.0, dag.slopes[node])
            up[node] = gates[node] * read
        return up, gates

    def switching(self, theta: Floats, edges: Indices, rng: np.random.Generator) -> Floats:
        """Random weights of a neuron, of length 1 and few digits, with which it switches at an input of the pool."""
        read = self.signals(theta)[0][self.dag.tails[edges], rng.integers(POOL)]
        weights = rng.normal(size=len(edges))
        if np.count_nonzero(read) > 1:  # of one signal nothing but the weight 0 makes 0, and that is a boundary
            weights -= (weights @ read) / (read @ read) * read
        whole = np.round(weights / float(np.linalg.norm(weights)) * BITS)
        return np.asarray(np.where(whole == 0, np.copysign(1.0, weights), whole) / BITS)

    def score(self, theta: Floats) -> tuple[int, float]:
        """How many dimensions the gradients at the pool span, and how clearly."""
        up, gates = self.signals(theta)
        where = distinct((gates[self.order] == 1.0).T)[1]
        sorted_by = np.argsort(where, kind="stable")
        place = np.arange(POOL) - np.searchsorted(where[sorted_by], where[sorted_by])
        chosen = sorted_by[place < EACH]
        up, gates = up[:, chosen], gates[:, chosen]
        rows = np.concatenate([self._slopes(theta, up, gates, end) for end in self.ends])
        sizes = np.linalg.norm(rows, axis=1)
        rows = rows[sizes > 0] / sizes[sizes > 0, None]
        rows = self.mixing[:, : len(rows)] @ rows if len(rows) > len(self.mixing) else rows
        values = scipy.linalg.svdvals(rows, check_finite=False) if len(rows) else np.zeros(0)
        return int((values > SMALL).sum()), float(np.log(np.maximum(values, SMALL)).sum())

    def _slopes(self, theta: Floats, up: Floats, gates: Floats, end: Floats) -> Floats:
        """The gradients of one combination of the outputs, a row for each input."""
        dag = self.dag
        down = np.zeros_like(up)
        down[dag.outputs] = end[:, None]
        for node in self.order[::-1]:
            edges = dag.tails == node
            down[node] = gates[node] * (theta[edges] @ down[dag.heads[edges]])
        return np.asarray((up[dag.tails] * down[dag.heads]).T)


def _keep_active_inputs(dag: Dag, drawn: Floats) -> Indices:
    """A quarter of the inputs in use are any, the others switch on most of the neurons that read inputs."""
    weights = np.zeros((len(dag.names), len(dag.inputs)))
    place = {int(node): number for number, node in enumerate(dag.inputs)}
    for tail, head, weight in zip(dag.tails.tolist(), dag.heads.tolist(), dag.theta.tolist(), strict=True):
        if tail in place:
            weights[head, place[tail]] = weight
    on = (weights[dag.hidden] @ drawn > 0).sum(axis=0)
    any_of_them, others = np.arange(POOL // 4), np.arange(POOL // 4, DRAWN)
    return np.append(any_of_them, others[np.argsort(-on[others], kind="stable")[: POOL - POOL // 4]])
