"""What every neuron can see when the input ranges over a box: sound intervals, and the neurons they settle."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from lawful.errors import LawfulError
from lawful.network.dag import Dag
from lawful.network.intervals import activation_range, lower_sums
from lawful.network.validity import Role
from lawful.types import Floats, Mask


@dataclass(frozen=True, eq=False)
class Classification:
    """Intervals of the pre-activations of all nodes, and masks (over all nodes) of the hidden nodes they settle."""

    lower: Floats
    upper: Floats
    dead: Mask  # always 0: a ReLU with z ≤ 0, or z = 0
    always_linear: Mask  # an activation that acts as one linear map: z ≥ 0, or z ≤ 0 and not ReLU, or linear anyway


def classify(dag: Dag, low: ArrayLike | None = None, high: ArrayLike | None = None) -> Classification:
    """The neurons that are dead, or linear, for every input with `low ≤ x ≤ high`; by default for every input.

    >>> from lawful.network.mlp import Mlp
    >>> weights = [[[1.0], [-1.0]], [[-1.0, -2.0], [1.0, 1.0]], [[1.0, 1.0]]]
    >>> found = classify(Mlp(weights, [None, [-1.0, 1.0], None]).to_dag())
    >>> found.dead.nonzero()[0].tolist(), found.always_linear.nonzero()[0].tolist()
    ([3], [4])
    """
    lower, upper = preactivation_bounds(dag, low, high)
    hidden = dag.roles == Role.HIDDEN
    dead = hidden & (upper <= 0) & ((dag.slopes == 0) | (lower >= 0))
    linear = hidden & ~dead & ((lower >= 0) | (upper <= 0) | (dag.slopes == 1))
    return Classification(lower, upper, dead, linear)


def preactivation_bounds(
    dag: Dag, low: ArrayLike | None = None, high: ArrayLike | None = None
) -> tuple[Floats, Floats]:
    """Intervals that contain `z_v` of every node v for every input in a box (an input's own value counts as its z).

    `Σ θ⁺ l + θ⁻ u ≤ z ≤ Σ θ⁺ u + θ⁻ l`, level by level, with `0 · ∞ = 0`, and rounded outwards: the true sums, not only
    the computed ones, lie inside.
    """
    lowest, highest = _box(dag, -np.inf if low is None else low), _box(dag, np.inf if high is None else high)
    if not (lowest <= highest).all():
        raise LawfulError("an input box needs low ≤ high for every input")
    lower, upper = np.zeros((2, len(dag.names)))  # an output that hears nothing is 0; every other node is set below
    if dag.constant is not None:
        lower[dag.constant] = upper[dag.constant] = 1.0
    lower[dag.inputs], upper[dag.inputs] = lowest, highest
    below, above = lower.copy(), upper.copy()  # of the nodes' values, after their activations
    for level in dag.schedule.levels:
        theta, tails, nodes = dag.theta[level.edges], dag.tails[level.edges], level.nodes
        rising = theta >= 0
        starts = level.indptr[:-1]
        lower[nodes] = lower_sums(theta, np.where(rising, below[tails], above[tails]), starts)
        upper[nodes] = -lower_sums(-theta, np.where(rising, above[tails], below[tails]), starts)
        below[nodes], above[nodes] = activation_range(lower[nodes], upper[nodes], dag.slopes[nodes])
    return lower, upper


def _box(dag: Dag, ends: ArrayLike) -> Floats:
    given = np.asarray(ends, dtype=np.float64)
    if given.shape not in ((), (len(dag.inputs),)):
        raise LawfulError(f"a box for {len(dag.inputs)} inputs has as many ends, or one for all, not {given.shape}")
    return np.broadcast_to(given, len(dag.inputs))
