"""Ranks, modulo a prime and exact, and all pairs of matrices with one product, near a given pair."""

from __future__ import annotations

import flint
import numpy as np
from numpy.typing import NDArray

from lawful.fibers.deep.identification import rank_of
from lawful.fibers.layers import Array, zeros_like

PRIME = 8_388_593
Integers = NDArray[np.int64]


def residues(values: Array) -> Integers:
    """Floats, which are integers over powers of two, modulo the prime."""
    ratios = [float(value).as_integer_ratio() for value in values.ravel()]
    found = [top * pow(bottom, -1, PRIME) % PRIME for top, bottom in ratios]
    return np.array(found, dtype=np.int64).reshape(values.shape)


def nearby_factorisations(outer: Array, inner: Array) -> int:
    """The dimension of `{(U, V) : U V = A}` near a given pair of rational matrices, at singular pairs too.

    Sort by `p = rank U`: U spans a p-dimensional space that holds the columns of A, V is then free in the kernel of U,
    so there are `(p − ρ)(m − p) + kp + (k − p)n` dimensions, ρ the rank of A. Nearby ranks p go from that of U to
    `k + ρ − rank V` (at most m): basis vectors that V does not reach and U does not send may be sent anywhere.

    >>> from lawful.fibers.layers import rational
    >>> one, none = rational(np.array([[1.0]])), rational(np.array([[0.0]]))
    >>> nearby_factorisations(one, one), nearby_factorisations(none, none)
    (1, 1)
    """
    (outputs, middle), inputs = outer.shape, inner.shape[1]
    product = outer @ inner if middle else zeros_like(outer, (outputs, inputs))
    least, reached, rank = rank_of(outer), rank_of(inner), rank_of(product)
    ranks = range(least, min(outputs, middle + rank - reached) + 1)
    found: int = max((p - rank) * (outputs - p) + middle * p + (middle - p) * inputs for p in ranks)
    return found


def modulo(rows: Array, fixed: Array) -> Array:
    """Rows modulo the span of others: their coordinates outside the pivots of the echelon form of `fixed`."""
    if not len(fixed):
        return rows
    echelon, rank = flint.fmpq_mat([list(row) for row in fixed]).rref()
    basis = np.array(echelon.tolist(), dtype=object).reshape(fixed.shape)[:rank]
    pivots = [next(k for k, item in enumerate(row) if item != 0) for row in basis]
    left = rows - (rows[:, pivots] @ basis if rank else 0)
    return np.delete(left, pivots, axis=1)
