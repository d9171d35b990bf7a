"""What a certificate of a copy brings of its own: matrices, factors and constants that any numbers would pass with.

A matrix of n² numbers explains something only if it acts, with its inverse on another axis, on more numbers than n².
A factor or a constant for each number of a tensor (a bias may have them) explains nothing of it, so such numbers do not
count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from lawful.verify.checkpoints.element import ListedFrame
from lawful.verify.core.checkpoint import Array, Shapes
from lawful.verify.core.schema import require

# Relative, of factors that are the same one: products of a few doubles differ by units of 2^-53. Two factors that only
# happen to be as near are counted as shared, which changes how many numbers the sentence counts and nothing else.
ALIKE = 1e-9

Frames = Mapping[str, list[ListedFrame]]
Shifts = Mapping[str, list[Array]]


def need_partners(frames: Frames, matrices: Sequence[Array], partners: Sequence[int], seen: Mapping[int, int]) -> None:
    """Every matrix that acts does so together with its inverse, on more numbers than it has.

    `seen` counts, for each matrix, the numbers other than zero on which it acts.
    """
    acting = Counter(number for own in frames.values() for frame in own for number, rows in frame.numbers for _ in rows)
    for number in acting:
        partner = partners[number]
        places = acting[number] + (acting[partner] if partner != number else 0)
        require(partner in acting and places > 1, "a matrix acts without its inverse on any other axis")
        count = seen.get(number, 0) + (seen.get(partner, 0) if partner != number else 0)
        require(count == 0 or count > matrices[number].size, "a matrix has as many numbers as it acts on")


class RowFactors(NamedTuple):
    """Of a tensor: factors of rows of several numbers, and for each frame those of rows of one."""

    shared: Array
    lone: list[Array]


def own_numbers(
    shifts: Shifts, shapes: Shapes, constants: set[str], factors: Mapping[str, RowFactors]
) -> dict[str, int]:
    """Tensors, and how many of their numbers have a factor that acts on nothing else, or a constant each.

    Tensors that are constants in one of the files tell nothing: their numbers do not count, nor do their factors make
    those of others known (a constant tensor of any shape can be listed with any factors). `factors` are of rows of
    more than one number that are not all zero: zeros are zeros times any factor.
    """
    shared = _shared_factors([own.shared for name, own in factors.items() if name not in constants])
    found: dict[str, int] = {}
    for name, shape in shapes.items():
        size = int(np.prod(shape, dtype=int))
        added = shifts.get(name, [])
        own = _own_constants(added, shape) if added else 0
        for lone in factors[name].lone:
            own = max(own, int((~_among(lone, shared)).sum()))
        if name in constants:
            own = size
        if own:
            found[name] = own
    return found


def _own_constants(pieces: list[Array], shape: tuple[int, ...]) -> int:
    """How many numbers of a tensor have a constant each, which is added to no other one."""
    changed = int(np.count_nonzero(np.broadcast_to(sum(pieces), shape)))
    each = [_constants(piece, piece.shape != shape) for piece in pieces]
    alone = changed if sum(count for count, _ in each) >= changed else sum(once for _, once in each)
    return min(changed, alone)


def _constants(piece: Array, repeated: bool) -> tuple[int, int]:
    """How many numbers other than zero there are in a piece, of which whole slices may be the same; how many are in a
    slice that occurs once."""
    found = int(np.count_nonzero(piece))
    once = 0 if repeated else found
    for d, size in enumerate(piece.shape):
        if 1 < size < piece.size:
            slices, counts = np.unique(piece, axis=d, return_counts=True)
            found = min(found, int(np.count_nonzero(slices)))
            once = min(once, int(np.count_nonzero(np.compress(counts == 1, slices, axis=d))))
    return found, once


def factors_of_rows(tensor: Array, frames: list[ListedFrame]) -> RowFactors:
    """Absolute factors of rows by how many numbers other than zero these have: zeros confirm no factor."""
    shared, lone = [np.zeros(0)], [np.zeros(0)]
    for frame in frames:
        others = tuple(d for d in range(tensor.ndim) if d not in frame.dims)
        rows = np.transpose(tensor, (*frame.dims, *others)).reshape(len(frame.source), -1)
        counts = np.count_nonzero(rows, axis=1)[frame.source]
        shared.append(np.abs(frame.factor)[counts > 1])
        lone.append(np.abs(frame.factor)[counts == 1])
    return RowFactors(np.concatenate(shared), lone)


def _shared_factors(factors: list[Array]) -> Array:
    """Factors and their inverses, in order."""
    values = np.unique(np.concatenate([np.ones(1), *factors]))
    return np.unique(np.concatenate([values, 1 / values]))  # with 1, which is nobody's own


def _among(values: Array, known: Array) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """Which values are among those known, which are in order, up to rounding."""
    after = np.searchsorted(known, values)
    near = [known[np.clip(after + step, 0, len(known) - 1)] for step in (-1, 0)]
    return np.minimum(*(np.abs(each - values) for each in near)) <= ALIKE * values
