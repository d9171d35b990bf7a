"""Certified ranges of neurons on a box, and how far a small error at a neuron can move an output.

Everything is computed in float64 and rounded outwards, so the bounds hold for the real-number network.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sparse
from numpy.typing import ArrayLike, NDArray

from lawful.errors import LawfulError
from lawful.network import Dag, Role

Floats = NDArray[np.float64]
EPSILON = np.finfo(np.float64).eps
SMALLEST = np.finfo(np.float64).smallest_subnormal
INFLATION = 1 + 1e-7  # sums and products of up to 5e7 non-negative numbers stay within this factor
Box = tuple[Floats, Floats]


def make_box(dag: Dag, box: tuple[ArrayLike, ArrayLike] | None) -> Box:
    """Lower and upper corner, one number for all inputs or one per input; no box is all of space."""
    low, high = (-np.inf, np.inf) if box is None else box
    try:
        corners = np.broadcast_to(np.asarray(low, float), len(dag.inputs)), np.broadcast_to(high, len(dag.inputs))
    except ValueError:
        raise LawfulError(f"a box has one number, or one for each of {len(dag.inputs)} inputs, per corner") from None
    result = corners[0].astype(np.float64), corners[1].astype(np.float64)
    if not (result[0] <= result[1]).all():
        raise LawfulError("a box needs its lower corner below its upper one, and no NaN")
    return result


def ranges(dag: Dag, box: Box) -> tuple[Floats, Floats, Floats, Floats]:
    """Bounds (low, high) on every pre-activation and (low, high) on every value, by interval arithmetic.

    >>> from lawful.network import Mlp
    >>> dag = Mlp([[[1.0, -1.0], [-2.0, 0.0]], [[1.0, 1.0]]]).to_dag()
    >>> _, high, *_ = ranges(dag, make_box(dag, (0.0, 1.0)))
    >>> bool(high[dag.index["h1.1"]] <= 0)
    True
    """
    count = len(dag.names)
    before_low, before_high, low, high = (np.zeros(count) for _ in range(4))
    low[dag.inputs], high[dag.inputs] = box
    before_low[dag.inputs], before_high[dag.inputs] = box
    if dag.constant is not None:
        before_low[dag.constant] = before_high[dag.constant] = low[dag.constant] = high[dag.constant] = 1.0
    order = np.argsort(dag.levels[dag.heads], kind="stable")
    ends = np.cumsum(np.bincount(dag.levels[dag.heads], minlength=len(dag.layers)))
    for level, nodes in enumerate(dag.layers[1:], 1):
        edges = order[ends[level - 1] : ends[level]]
        below, above = _sums(dag, edges, low, high)
        before_low[nodes], before_high[nodes] = below[nodes], above[nodes]
        low[nodes], high[nodes] = _activate(below[nodes], above[nodes], dag.slopes[nodes])
    return before_low, before_high, low, high


def _sums(dag: Dag, edges: NDArray[np.intp], low: Floats, high: Floats) -> tuple[Floats, Floats]:
    weight, heads, tails = dag.theta[edges], dag.heads[edges], dag.tails[edges]
    count = len(dag.names)
    found: list[Floats] = []
    for first, second, direction in ((low, high, -1.0), (high, low, 1.0)):
        end = np.where(weight > 0, first[tails], second[tails])
        with np.errstate(invalid="ignore"):
            terms = np.where((weight == 0) | (end == 0), 0.0, weight * end)
        tiny = (np.abs(terms) < 1e-290) & (weight != 0) & (end != 0)  # the product may have underflowed
        fan_in = np.bincount(heads, minlength=count)
        size: Floats = np.bincount(heads, np.abs(terms), minlength=count)
        error = (fan_in + 3) * EPSILON * size + np.bincount(heads, tiny * 4.0, minlength=count) * SMALLEST
        with np.errstate(invalid="ignore"):
            total: Floats = np.bincount(heads, terms, minlength=count) + direction * error
        total = np.where(np.isinf(size), direction * np.inf, total)
        found.append(np.where(error > 0, np.nextafter(total, direction * np.inf), total))
    return found[0], found[1]


def _activate(below: Floats, above: Floats, slope: Floats) -> tuple[Floats, Floats]:
    with np.errstate(invalid="ignore"):
        ends = [np.where(z > 0, z, np.where((slope == 0) | (z == 0), 0.0, slope * z)) for z in (below, above)]
    middle = np.where((below < 0) & (above > 0), 0.0, ends[0])
    low, high = np.minimum.reduce([*ends, middle]), np.maximum.reduce([*ends, middle])
    exact = (slope == 0) | (slope == 1)
    low = np.where(exact | (low >= 0), low, np.nextafter(low, -np.inf))
    high = np.where(exact | (slope >= 0), high, np.nextafter(high, np.inf))
    return low, high


def sensitivity(dag: Dag) -> Floats:
    """Bound on the change of each output (columns) per unit of error added to each node's *sum* (rows).

    `S_v = γ_v Σ_j |θ_vj| S_j`, with γ the Lipschitz constant of the activation; 1 at outputs themselves.
    """
    count = len(dag.names)
    lipschitz = np.where(dag.roles == Role.HIDDEN, np.maximum(1.0, np.abs(dag.slopes)), 1.0)
    result = np.zeros((count, len(dag.outputs)))
    result[dag.outputs, np.arange(len(dag.outputs))] = 1.0
    matrix = sparse.csr_array((np.abs(dag.theta), (dag.tails, dag.heads)), shape=(count, count))
    for nodes in reversed(dag.layers):
        inner = nodes[dag.roles[nodes] != Role.OUTPUT]
        result[inner] = lipschitz[inner, None] * (matrix[inner] @ result)
    return result * INFLATION


def defect_bound(after: Dag, defects: Floats) -> float:
    """How far two networks' outputs differ if, at the first one's values, the sums of `after` are off by `defects`."""
    if not defects.any():
        return 0.0
    with np.errstate(invalid="ignore", over="ignore"):
        moved = defects @ sensitivity(after) * INFLATION
    return float(np.where(np.isnan(moved), np.inf, moved).max(initial=0.0))
