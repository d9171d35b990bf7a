"""How much a neuron matters by its weights alone, and what happens when neurons go one by one (P0 A.8.1)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from lawful.errors import LawfulError
from lawful.invariant_set.module_graph import Balanced
from lawful.network import Dag
from lawful.types import Floats

Score = Callable[[Dag, Floats], Floats]


def product_score(dag: Balanced, theta: Floats | None = None) -> Floats:
    """`s_k = (Σ_i θ_ik²)(Σ_j θ_kj²)` of every hidden neuron (P0 (29)); rescaling a neuron does not change it.

    >>> from lawful.network import Mlp
    >>> product_score(Mlp([[[3.0, 4.0]], [[2.0]]]).to_dag())
    array([100.])
    """
    entering, leaving = _norms(dag, theta)
    return entering * leaving


def largest_score(dag: Balanced, theta: Floats | None = None) -> Floats:
    """`s'_k = max(Σ_i θ_ik², Σ_j θ_kj²)` of every hidden neuron (P0 (30)).

    >>> from lawful.network import Mlp
    >>> largest_score(Mlp([[[3.0, 4.0]], [[2.0]]]).to_dag())
    array([25.])
    """
    return np.maximum(*_norms(dag, theta))


SCORES: dict[str, Score] = {"product": product_score, "largest": largest_score}


def _norms(dag: Balanced, theta: Floats | None) -> tuple[Floats, Floats]:
    squares = (dag.theta if theta is None else theta) ** 2
    count = len(dag.names)
    entering = np.bincount(dag.heads, squares, minlength=count).astype(np.float64)
    leaving = np.bincount(dag.tails, squares, minlength=count).astype(np.float64)
    return entering[dag.hidden], leaving[dag.hidden]


@dataclass(frozen=True)
class PruningCurve:
    """Neurons in the order in which they went, and a measure of the network after each (first: before any)."""

    order: tuple[str, ...]
    measured: Floats


def pruning_curve(
    dag: Dag, measure: Callable[[Dag], float], score: Score = product_score, count: int | None = None
) -> PruningCurve:
    """Cut the neuron of least score, score the others anew, and so on (`count` times); `measure` is a test loss, say.

    A neuron is cut by zeroing its weights and nothing is folded, as in the paper.

    >>> from lawful.network import Mlp
    >>> dag = Mlp([[[3.0], [0.0]], [[2.0, 1.0]]]).to_dag()
    >>> curve = pruning_curve(dag, lambda network: float(network.evaluate([[1.0]])[0, 0]))
    >>> curve.order, curve.measured
    (('h1.1', 'h1.0'), array([6., 6., 0.]))
    """
    theta = dag.theta.copy()
    left = np.ones(len(dag.hidden), dtype=bool)
    order, measured = [], [measure(dag)]
    for _ in range(len(dag.hidden) if count is None else min(count, len(dag.hidden))):
        scores = np.where(left, score(dag, theta), np.inf)
        if np.isnan(scores).any():
            raise LawfulError("a score is not a number")
        least = int(np.argmin(scores))
        left[least] = False
        node = dag.hidden[least]
        order.append(dag.names[node])
        theta[(dag.heads == node) | (dag.tails == node)] = 0.0
        measured.append(measure(dag.with_theta(theta)))
    return PruningCurve(tuple(order), np.array(measured))
