"""Certified ranges of neurons on a box, and how far a small error at a neuron can move an output.

Everything is computed in float64 and rounded outwards, so the bounds hold for the real-number network.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sparse
from numpy.typing import ArrayLike

from lawful.errors import LawfulError
from lawful.network import Dag, Role
from lawful.network.intervals import activation_range
from lawful.network.relaxation import preactivation_bounds, relaxed_bounds
from lawful.types import Floats

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


def boxes_near(samples: Floats, radius: float, box: Box | None = None) -> Box:
    """Corners of the boxes of all inputs within a radius of each sample, entry by entry, and within `box`.

    Rounded outwards, for what is stated is about the radius and not about its sums with samples in float64.

    >>> from fractions import Fraction
    >>> low, high = boxes_near(np.array([[0.5]]), 0.1)
    >>> Fraction(low.item()) <= Fraction(0.5) - Fraction(0.1), Fraction(high.item()) >= Fraction(0.5) + Fraction(0.1)
    (True, True)
    """
    low, high = samples - radius, samples + radius
    if radius > 0:
        low, high = np.nextafter(low, -np.inf), np.nextafter(high, np.inf)
    if box is not None:
        low, high = np.maximum(low, box[0]), np.minimum(high, box[1])
        if not bool((low <= high).all()):
            raise LawfulError("a sample lies outside of the box")
    return low, high


def box_of_samples(samples: Floats, radius: float | None = None) -> Box:
    """The smallest box of all samples, or of all inputs within a radius of one of them."""
    low, high = boxes_near(samples, radius or 0.0)
    return low.min(axis=0), high.max(axis=0)


class PruningRegion:
    """A box of inputs, and what sums can be on it: by intervals, or `relaxed` by lines as well."""

    def __init__(self, box: Box, *, relaxed: bool = False) -> None:
        self.box: Box = box
        self.relaxed: bool = relaxed
        self._last: tuple[Dag, tuple[Floats, Floats]] | None = None

    def sums(self, dag: Dag) -> tuple[Floats, Floats]:
        """Bounds (low, high) on every pre-activation.

        >>> from lawful.network import Mlp
        >>> dag = Mlp([[[1.0, -1.0], [-2.0, 0.0]], [[1.0, 1.0]]]).to_dag()
        >>> _, high = PruningRegion(make_box(dag, (0.0, 1.0))).sums(dag)
        >>> bool(high[dag.index["h1.1"]] <= 0)
        True
        """
        if self._last is None or self._last[0] is not dag:
            self._last = dag, relaxed_bounds(dag, self.box) if self.relaxed else preactivation_bounds(dag, *self.box)
        return self._last[1]


def ranges(dag: Dag, box: Box) -> tuple[Floats, Floats]:
    """Bounds (low, high) on the value of every node, by interval arithmetic."""
    return activation_range(*preactivation_bounds(dag, *box), dag.slopes)


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
