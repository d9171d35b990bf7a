"""A bound of the difference of two networks by singular values, at the last hidden layer.

Write `τ` for the slope with `φ(z) - φ(y) = τ (z - y)`: it lies between φ's two. If y and z have no different signs then
`φ(y) = τ y`; otherwise both are at most `|z - y|`, and `|φ(y) - τ y|` is at most `(1 - slope) |z - y|`. So an output of
`g - f` is, up to the latter, `Σ τ_j (V_j (z_j - y_j) + E_j y_j) + e`: bilinear in slopes and in what enters the layer.
With both written as middles plus radii times numbers in [-1, 1] it is `[1, s] B [1, t] + constant`, which for any
positive p and q is at most `|P^-1/2 B Q^-1/2| √(Σp Σq) + |constant|` by Cauchy's inequality: `Σ p_j s_j² <= Σp`.

Rounding: every number of B is off by at most `slack` times the same expression in absolute values, and by what `pair`
doubts of the weights; as s and t are at most 1, the sum of all these is added. The norm is bounded by `‖A‖² = ‖AᵀA‖`
several times and a Frobenius norm at last; a product of matrices of Frobenius norm at most 1 is off by at most
`(n + 1) 2^-53` in that norm.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from lawful.verify.bounds.network import Floats
from lawful.verify.bounds.pair import TINY, Shared
from lawful.verify.bounds.relaxation import UNIT, Ends

SQUARINGS = 10


class Weights(NamedTuple):
    """p and q of each output in question."""

    rows: Floats
    columns: Floats


class _Layer(NamedTuple):
    """Numbers that B is made of, or their absolute values."""

    V: Floats
    E: Floats
    W: Floats
    e: Floats
    b: Floats


def spectral_gaps(
    layers: Sequence[Shared], ends: Sequence[Ends], box: tuple[Floats, Floats], outputs: Sequence[int], given: Weights
) -> Floats:
    """Upper bounds of `|g - f|` on one box with this centre and radius, given the ends of its hidden layers."""
    with np.errstate(all="ignore"):
        found = [
            _gap(layers, ends, box, output, p, q)
            for output, p, q in zip(outputs, given.rows, given.columns, strict=True)
        ]
    return np.where(np.isfinite(found), found, np.inf)


def _gap(
    layers: Sequence[Shared], ends: Sequence[Ends], box: tuple[Floats, Floats], output: int, p: Floats, q: Floats
) -> float:
    below, last, here = layers[-2], layers[-1], ends[-1]
    middle, radius = _entering(layers, ends, box)
    slopes = below.slopes
    on = (here.y_low[0] >= 0) & (here.z_low[0] >= 0)
    off = (here.y_high[0] <= 0) & (here.z_high[0] <= 0)
    centre = np.where(on, 1.0, np.where(off, slopes, (1 + slopes) / 2))
    swing = np.where(on | off, 0.0, (1 - slopes) / 2)
    mixed = np.where(on | off, 0.0, (1 - slopes) * here.sizes[2][0])
    V, E, e = last.V[output], last.E[output], last.e[output]
    inner = _Layer(below.V, below.E, below.W, below.e, below.b)
    matrix, constant = _bilinear(V, E, e, inner, middle, radius, centre, swing)
    sizes = _Layer(*map(np.abs, inner))
    reach, total = _bilinear(abs(V), abs(E), abs(e), sizes, abs(middle) + radius, radius, centre, swing)
    slack = 4 * (sum(below.W.shape) + 16) * UNIT
    entering, count = np.abs(middle) + radius, below.W.shape[1]
    inner_lost = below.doubt @ entering[:count] + below.shift_doubt + TINY * (8 + entering.sum())
    outer_lost = last.doubt[output] @ here.sizes[0][0] + last.shift_doubt[output] + TINY * (8 + radius.sum())
    lost = slack * (reach.sum() + total) + (np.abs(E) @ mixed) * (1 + slack)
    lost += 2 * (np.abs(V) @ inner_lost + np.abs(E).sum() * TINY * (8 + entering.sum()) + outer_lost)
    norm = _norm(matrix / np.sqrt(p)[:, None] / np.sqrt(q))
    room = 1 + 4 * (len(p) + len(q)) * UNIT
    return float((norm * np.sqrt(p.sum() * q.sum()) + abs(constant)) * room + lost)


def _bilinear(
    V: Floats, E: Floats, e: float, inner: _Layer, at: Floats, radius: Floats, centre: Floats, swing: Floats
) -> tuple[Floats, float]:
    """B and the constant."""
    weights = np.hstack([V[:, None] * inner.E + E[:, None] * inner.W, V[:, None] * inner.V])
    shift = weights @ at + V * inner.e + E * inner.b
    matrix = np.zeros((1 + len(weights), 1 + weights.shape[1]))
    matrix[1:, 1:] = swing[:, None] * weights * radius
    matrix[1:, 0] = swing * shift
    matrix[0, 1:] = (centre @ weights) * radius
    return matrix, float(centre @ shift + e)


def _entering(layers: Sequence[Shared], ends: Sequence[Ends], box: tuple[Floats, Floats]) -> tuple[Floats, Floats]:
    """Middles and radii of what enters the last hidden layer: values of f, then differences."""
    if len(layers) == 2:
        nothing = np.zeros_like(box[0])
        return np.concatenate([box[0], nothing]), np.concatenate([box[1], nothing])
    h_low, h_high, _, _, D_low, D_high = (end[0] for end in ends[-2].activated(layers[-3].slopes))
    low, high = np.concatenate([h_low, D_low]), np.concatenate([h_high, D_high])
    middle = low / 2 + high / 2
    return middle, np.nextafter(np.maximum(high - middle, middle - low), np.inf)


def _norm(matrix: Floats) -> float:
    """At least the largest singular value."""
    room: float = 2 * (max(matrix.shape) + 8) * UNIT
    top = float(np.abs(matrix).max())
    if not 0 < top < math.inf:
        return top
    first = math.ldexp(1.0, math.frexp(top)[1])  # entries near 1: squares neither overflow nor vanish
    matrix, scales = matrix / first, []
    for _ in range(SQUARINGS):
        scales.append(math.ldexp(1.0, math.frexp(math.sqrt(np.sum(matrix * matrix)))[1]))
        matrix = (matrix / scales[-1]).T @ (matrix / scales[-1])
    found = math.sqrt(np.sum(matrix * matrix)) * (1 + room)
    for scale in reversed(scales):
        found = scale * math.sqrt(found + room) * (1 + 4 * UNIT)
    return first * found
