"""A bound of the difference of two networks by singular values, for wide layers on large boxes.

At the last hidden layer `φ(z) − φ(y) = τ (z − y)` with a slope τ between φ's two, and `φ(y)` is `τ y` unless y and z
have different signs, when both are small. So an output of `g − f` is bilinear: slopes times what enters the layer, all
of them in boxes, `[1, s]ᵀ B [1, t]` with entries of s and t in [−1, 1]. For positive weights p and q that is at most
`‖P^-½ B Q^-½‖ √(Σp Σq)` (the dual of the semidefinite relaxation, within 1.79 of the best: Grothendieck). Linear
relaxations sum the sizes of all entries instead, which for n neurons is larger by about √n.
"""

from __future__ import annotations

import math
import time
from typing import NamedTuple

import numpy as np

from lawful.bounds.box_bounds import apply_activation, bound_with_hidden
from lawful.bounds.pair import NetworkPair
from lawful.bounds.planes import ULP, Bounds, largest
from lawful.network.relaxation import TINY
from lawful.types import Floats, Indices

STEPS = 120  # of the search for weights
SQUARINGS = 10  # ‖A‖ is at most the 2^10-th root of the Frobenius norm of a power
MOST_ENTRIES = 2_000_000  # of all bilinear forms
HOPELESS = 3.0  # times the other bound, at first: better weights do not gain more


class SpectralBound(NamedTuple):
    """An upper bound of `|g − f|` per output, and the weights p and q that show it, a row for each output."""

    gaps: Floats
    rows: Floats
    columns: Floats


class _Bilinear(NamedTuple):
    """`[1, s]ᵀ B [1, t] + constant ± error` for every output."""

    matrix: Floats
    constant: Floats
    error: Floats


def spectral_bound(
    pair: NetworkPair, box: tuple[Floats, Floats], outputs: Indices, gaps: Floats, deadline: float
) -> SpectralBound | None:
    """The bound on one box for some outputs; None where there is no hope to beat `gaps`."""
    below = pair.layers[-2] if len(pair.layers) > 1 else None
    if below is None or len(outputs) * len(below.W) * 2 * below.W.shape[1] > MOST_ENTRIES:
        return None
    with np.errstate(all="ignore"):
        _, known = bound_with_hidden(pair, box[0][None], box[1][None])
        form = _bilinear(pair, [Bounds(*(end[0] for end in ends)) for ends in known], box, outputs)
        if not (np.isfinite(form.matrix).all() and np.isfinite(form.error).all()):
            return None
        p, q = _start(form.matrix)
        values = _values(form, p, q)
        if not (values < HOPELESS * np.maximum(gaps, TINY)).any():
            return None
        best = [p, q, values]
        for step in range(STEPS):
            if time.monotonic() > deadline:
                break
            p, q = _improve(form.matrix, p, q, 8 / (1 + step / 30))
            values = _values(form, p, q)
            better = values < best[2]
            best = [
                np.where(better[:, None], p, best[0]),
                np.where(better[:, None], q, best[1]),
                np.fmin(values, best[2]),
            ]
        p, q = best[0], best[1]
        norms = np.array([norm_above(one) for one in form.matrix / np.sqrt(p)[:, :, None] / np.sqrt(q)[:, None]])
        size = norms * np.sqrt(p.sum(axis=1) * q.sum(axis=1)) + np.abs(form.constant)
        room = 8 * (p.shape[1] + q.shape[1]) * ULP
        upper = size * (1 + room) + form.error + TINY
    return SpectralBound(np.where(np.isfinite(upper), upper, np.inf), p, q)


def norm_above(matrix: Floats) -> float:
    """At least the largest singular value: `‖A‖² = ‖AᵀA‖`, again and again, each product's rounding added.

    >>> 2.0 <= norm_above(np.diag([2.0, 1.0])) < 2.01
    True
    """
    room: float = 4 * (max(matrix.shape) + 8) * ULP
    largest_entry = float(np.abs(matrix).max(initial=0.0))
    if not 0 < largest_entry < math.inf:
        return largest_entry
    scales = [math.ldexp(1.0, math.frexp(largest_entry)[1])]
    matrix = matrix / scales[0]  # now squares neither overflow nor vanish
    for _ in range(SQUARINGS):
        scales.append(math.ldexp(1.0, math.frexp(math.sqrt((matrix**2).sum()))[1]))
        matrix = matrix / scales[-1]
        matrix = matrix.T @ matrix
    value = math.sqrt((matrix**2).sum()) * (1 + room)
    for scale in reversed(scales[1:]):  # every matrix that was squared had a Frobenius norm of at most 1
        value = scale * math.sqrt(value + room) * (1 + 4 * ULP)
    return scales[0] * value


def _bilinear(pair: NetworkPair, known: list[Bounds], box: tuple[Floats, Floats], outputs: Indices) -> _Bilinear:
    last, below = pair.layers[-1], pair.layers[-2]
    V, E, e, doubt, shift_doubt = (part[outputs] for part in (last.V, last.E, last.e, last.doubt, last.shift_doubt))
    h_low, h_high, D_low, D_high = _entering(pair, known, box)
    low, high = np.concatenate([h_low, D_low]), np.concatenate([h_high, D_high])
    middle = low / 2 + high / 2
    radius = np.maximum(high - middle, middle - low) * (1 + 2 * ULP)
    ends = known[-1]
    slopes = below.slopes
    on, off = (ends.y_low >= 0) & (ends.z_low >= 0), (ends.y_high <= 0) & (ends.z_high <= 0)
    centre = np.where(on, 1.0, np.where(off, slopes, (1 + slopes) / 2))
    swing = np.where(on | off, 0.0, (1 - slopes) / 2)
    sizes = [largest(ends[at], ends[at + 1]) for at in (0, 4)]
    mixed = np.where(on | off, 0.0, (1 - slopes) * np.minimum(*sizes))

    def parts(V: Floats, E: Floats, inner: tuple[Floats, ...], outer: Floats, at: Floats) -> tuple[Floats, Floats]:
        V2, E2, W2, e2, b2 = inner
        weights = np.concatenate([V[:, :, None] * E2 + E[:, :, None] * W2, V[:, :, None] * V2], axis=2)
        shift = weights @ at + V * e2 + E * b2
        matrix = np.zeros((len(V), 1 + weights.shape[1], 1 + weights.shape[2]))
        matrix[:, 1:, 1:] = swing[:, None] * weights * radius
        matrix[:, 1:, 0] = swing * shift
        matrix[:, 0, 1:] = np.einsum("j,kji->ki", centre, weights) * radius
        return matrix, (centre * shift).sum(axis=1) + outer

    inner = below.V, below.E, below.W, below.e, below.b
    matrix, constant = parts(V, E, inner, e, middle)
    sizes_of = tuple(map(np.abs, inner))
    reach, total = parts(np.abs(V), np.abs(E), sizes_of, np.abs(e), np.abs(middle) + radius)
    slack = 8 * (sum(below.W.shape) + 16) * ULP
    error = slack * (reach.sum(axis=(1, 2)) + total) + np.abs(E) @ mixed * (1 + slack)
    entering = largest(h_low, h_high)
    error += np.abs(V) @ (below.doubt @ entering + below.shift_doubt) * (1 + slack)
    error += (doubt @ sizes[0] + shift_doubt) * (1 + slack)
    return _Bilinear(matrix, constant, error + TINY * (1 + radius.sum()))


def _entering(pair: NetworkPair, known: list[Bounds], box: tuple[Floats, Floats]) -> tuple[Floats, ...]:
    """Intervals of what enters the last hidden layer: values of f, and differences."""
    if len(pair.layers) == 2:
        nothing = np.zeros_like(box[0])
        return *box, nothing, nothing
    h_low, h_high, _, _, D_low, D_high = apply_activation(known[-2], pair.layers[-3].slopes)
    return h_low, h_high, D_low, D_high


def _start(matrix: Floats) -> tuple[Floats, Floats]:
    sizes = np.abs(matrix)
    p, q = sizes.sum(axis=2), sizes.sum(axis=1)
    return _reweigh(p, 0.0), _reweigh(q, 0.0)


def _values(form: _Bilinear, p: Floats, q: Floats) -> Floats:
    """The bounds, not yet rounded safely."""
    norms = np.linalg.norm(form.matrix / np.sqrt(p)[:, :, None] / np.sqrt(q)[:, None], ord=2, axis=(1, 2))
    return np.asarray(norms * np.sqrt(p.sum(axis=1) * q.sum(axis=1)) + np.abs(form.constant) + form.error)


def _improve(matrix: Floats, p: Floats, q: Floats, step: float) -> tuple[Floats, Floats]:
    """A step along the gradient of the logarithm of the bound, smoothed over the largest singular values."""
    left, values, right = np.linalg.svd(matrix / np.sqrt(p)[:, :, None] / np.sqrt(q)[:, None], full_matrices=False)
    share = (values / np.maximum(values[:, :1], TINY)) ** 30
    share /= np.maximum(share.sum(axis=1, keepdims=True), TINY)
    rows = np.einsum("kji,ki->kj", left**2, share) - p / p.sum(axis=1, keepdims=True)
    columns = np.einsum("kij,ki->kj", right**2, share) - q / q.sum(axis=1, keepdims=True)
    return _reweigh(p, step * rows / 2), _reweigh(q, step * columns / 2)


def _reweigh(weights: Floats, by: Floats | float) -> Floats:
    """The weights times the exponentials, at most 1 and not too small."""
    moved = np.log(weights / np.maximum(weights.max(axis=1, keepdims=True), TINY)) + by
    moved = np.where(np.isfinite(moved), moved, -40.0)
    return np.asarray(np.exp(np.maximum(moved - moved.max(axis=1, keepdims=True), -40.0)))
