"""Linear relaxations: lines above and below an activation, and sums carried back along them to the inputs.

A neuron that bends on its range lies between two lines. A sum is replaced by the better line of each neuron it hears,
level by level, until it is a linear function of the inputs, whose largest value on a box is known. Interval arithmetic
(`preactivation_bounds`, which comes first and decides what bends) forgets that neurons share inputs; this does not.

Everything is float64 with the rounding added to the result. A slope may be any float: the shift is then what the ends
of the range need, rounded outwards, so the same lines can be had in rational arithmetic from the claimed ranges alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from lawful.errors import LawfulError
from lawful.network.dag import Dag
from lawful.network.intervals import EPSILON, activation_range, lower_sums
from lawful.network.validity import Role
from lawful.types import Floats, Indices, Mask


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
    box = np.asarray(ends, dtype=np.float64)
    if box.shape not in ((), (len(dag.inputs),)):
        raise LawfulError(f"a box for {len(dag.inputs)} inputs has as many ends, or one for all, not {box.shape}")
    return np.broadcast_to(box, len(dag.inputs))


TINY = 1e-300  # more than what all underflows of a layer can lose
UNDERFLOWS = 1e-290  # more than all underflows of a graph together
LARGEST = 40_000_000  # entries of the matrix of coefficients
Box = tuple[Floats, Floats]


class Lines(NamedTuple):
    """`low · z + low_shift ≤ φ(z) ≤ high · z + shift` on an interval."""

    low: Floats
    low_shift: Floats  # 0 if φ is convex, that is for slopes up to 1
    high: Floats
    shift: Floats
    flat: Floats  # another `low` of a convex φ
    scale: Floats  # of all the terms above and of φ(z)

    @property
    def parallel(self) -> Lines:
        """The line through 0, which may have any slope between those of φ, made parallel to the chord."""
        convex = self.low_shift == 0
        return self._replace(low=np.where(convex, self.high, self.low), high=np.where(convex, self.high, self.low))


def lines(low: Floats, high: Floats, slopes: Floats) -> Lines:
    """Lines around `max(z, 0) + slope · min(z, 0)` on `[low, high]`: a chord and, on its other side, a tangent at 0.

    Of the tangents it is the one that is nearer in the mean. φ is convex or concave, so the ends decide what is true.

    >>> found = lines(np.array([-1.0, 0.5, -2.0]), np.array([3.0, 2.0, -1.0]), np.zeros(1))
    >>> found.low, found.high, found.shift.round(9)
    (array([1., 1., 0.]), array([0.75, 1.  , 0.  ]), array([0.75, 0.  , 0.  ]))
    """
    with np.errstate(over="ignore", invalid="ignore"):
        bent = (low < 0) & (high > 0) & (slopes != 1)
        left, right = np.where(bent, low, -1.0), np.where(bent, high, 1.0)
        settled = np.where(low >= 0, 1.0, slopes)
        chord = np.clip((right - slopes * left) / (right - left), np.minimum(slopes, 1.0), np.maximum(slopes, 1.0))
        ends = (slopes - chord) * left, (1.0 - chord) * right
        rounding = 8 * EPSILON * (np.maximum(*map(np.abs, ends)) + np.abs(slopes * left)) + TINY
        above, below = np.maximum(*ends) + rounding, np.minimum(*ends) - rounding
        flat, chord = np.where(bent, slopes, settled), np.where(bent, chord, settled)
        tangent = np.where(bent & (right > -left), 1.0, flat)
        convex = slopes <= 1
        lower, upper = np.where(convex, tangent, chord), np.where(convex, chord, tangent)
        low_shift, shift = np.where(bent & ~convex, below, 0.0), np.where(bent & convex, above, 0.0)
        steepest = np.maximum(np.maximum(np.abs(tangent), np.abs(chord)), np.abs(flat))
        scale = steepest * np.maximum(np.abs(low), np.abs(high)) + np.abs(shift) + np.abs(low_shift)
        return Lines(lower, low_shift, upper, shift, flat, scale)


def relaxed_bounds(dag: Dag, box: Box) -> tuple[Floats, Floats]:
    """Bounds on every pre-activation for every input in a box, never wider than interval arithmetic's.

    >>> from lawful.network import Mlp
    >>> dag = Mlp([[[1.0], [1.0]], [[1.0, -1.0]], [[1.0]]]).to_dag()  # h2.0 hears relu(x) − relu(x)
    >>> low, high = relaxed_bounds(dag, (np.array([-1.0]), np.array([1.0])))
    >>> float(preactivation_bounds(dag, -1.0, 1.0)[1][3]), round(float(high[3]), 6)
    (1.0, 0.5)
    """
    low, high = preactivation_bounds(dag, *box)
    inputs = np.isfinite(box[0]).all() and np.isfinite(box[1]).all()
    if not inputs or len(dag.names) > LARGEST:
        return low, high
    steps = _Steps(dag)
    for level, step in enumerate(steps.levels[1:], 1):
        bent = (dag.roles[step.nodes] == Role.HIDDEN) & (dag.slopes[step.nodes] != 1)
        open_ones = step.nodes[bent & (low[step.nodes] < 0) & (high[step.nodes] > 0)]
        for chunk in np.array_split(open_ones, max(1, -(-2 * len(open_ones) * len(dag.names) // LARGEST))):
            if len(chunk):
                _tighten(dag, steps, level, chunk, box, low, high)
    return low, high


@dataclass(frozen=True, eq=False)
class _Step:
    nodes: Indices
    tails: Indices
    matrix: Floats  # a row per node, a column per tail


class _Steps:
    """The levels of a graph as dense blocks."""

    def __init__(self, dag: Dag) -> None:
        self.levels = []
        for level in dag.schedule.levels:
            tails, column = np.unique(dag.tails[level.edges], return_inverse=True)
            row = np.repeat(np.arange(len(level.nodes)), np.diff(level.indptr))
            matrix = np.zeros((len(level.nodes), len(tails)))
            matrix[row, column] = dag.theta[level.edges]
            self.levels.append(_Step(level.nodes, tails, matrix))


def _tighten(dag: Dag, steps: _Steps, level: int, nodes: Indices, box: Box, low: Floats, high: Floats) -> None:
    """Replace the bounds of some nodes of a level by better ones, in place."""
    step = steps.levels[level]
    rows = step.matrix[np.searchsorted(step.nodes, nodes)] if _in_order(step.nodes) else _rows(step, nodes)
    start = np.zeros((2 * len(nodes), len(dag.names)))
    start[: len(nodes), step.tails] = rows
    start[len(nodes) :, step.tails] = -rows
    for parallel in (False, True):
        bends = lines(low, high, dag.slopes)
        with_lines = bends.parallel if parallel else bends
        above = _largest(dag, steps.levels[:level], start.copy(), with_lines, box, low, high)
        upper, lower = above[: len(nodes)], -above[len(nodes) :]
        with np.errstate(invalid="ignore"):
            high[nodes] = np.where(upper < high[nodes], upper, high[nodes])
            low[nodes] = np.where(lower > low[nodes], lower, low[nodes])


def _in_order(nodes: Indices) -> bool:
    return bool((np.diff(nodes) > 0).all())


def _rows(step: _Step, nodes: Indices) -> Floats:
    place = {int(node): number for number, node in enumerate(step.nodes)}
    return step.matrix[[place[int(node)] for node in nodes]]


def _largest(
    dag: Dag, levels: list[_Step], rows: Floats, with_lines: Lines, box: Box, low: Floats, high: Floats
) -> Floats:
    """Upper bounds of linear functions of node values (one a row), in terms of the levels below."""
    size = np.maximum(np.abs(low), np.abs(high))  # of sums, and of values
    value = size * np.where(dag.roles == Role.HIDDEN, np.maximum(1.0, np.abs(dag.slopes)), 1.0)
    with np.errstate(over="ignore", invalid="ignore"):
        total, error = np.zeros(len(rows)), np.full(len(rows), UNDERFLOWS)
        for step in reversed(levels):
            hidden: Mask = dag.roles[step.nodes] == Role.HIDDEN
            part = rows[:, step.nodes] * hidden
            rows[:, step.nodes] = 0.0
            if not part.any():
                continue
            up, down = np.maximum(part, 0.0), np.minimum(part, 0.0)
            r, q, s, t = (array[step.nodes] for array in with_lines[:4])
            through = up * s + down * r
            total += up @ t + down @ q
            rows[:, step.tails] += through @ step.matrix
            terms = len(step.nodes) + len(step.tails) + 8
            seen = np.maximum(np.abs(s), np.abs(r)) * size[step.nodes] + np.abs(t) + np.abs(q)
            error += terms * EPSILON * (np.abs(part) @ seen)
            error += terms * EPSILON * (np.abs(through) @ (np.abs(step.matrix) @ value[step.tails]))
            error += terms * EPSILON * (np.abs(rows[:, step.tails]) @ value[step.tails] + np.abs(total))
        entering = rows[:, dag.inputs]
        ends = np.maximum(np.abs(box[0]), np.abs(box[1]))
        total += np.maximum(entering, 0.0) @ box[1] + np.minimum(entering, 0.0) @ box[0]
        error += (len(ends) + 8) * EPSILON * (np.abs(entering) @ ends + np.abs(total))
        if dag.constant is not None:
            total += rows[:, dag.constant]
            error += 8 * EPSILON * (np.abs(total) + np.abs(rows[:, dag.constant]))
        bounds = total + 2 * error
        return np.asarray(np.where(np.isnan(bounds), np.inf, bounds))
