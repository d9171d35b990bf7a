"""Where the entries of a movement come from: positions in its flat source, as strides while that is possible.

A movement (reshape, transpose, slice, expand, flip, window, padding, concatenation ...) computes nothing: entry `i` of
its result is entry `map[i]` of its sources, laid end to end. So all movements are one operator, and two in a row are
one: the composition of their maps.

Most maps are affine in the index, `offset + Σ stride_k i_k`, and take no memory for a matrix of any size. The others
are arrays of positions, eight bytes an entry. A map that can be affine always is: that makes equal maps equal.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Shape = tuple[int, ...]


class IndexMap:
    """Position in the flat source of every entry of the result.

    >>> turned = IndexMap.affine((3, 2), (1, 3))  # a 2 × 3 matrix, transposed
    >>> turned.positions.tolist()
    [[0, 3], [1, 4], [2, 5]]
    >>> turned.after(IndexMap.affine((2, 3), (1, 2))) == IndexMap.contiguous((3, 2))  # transposed twice
    True
    """

    __slots__ = ("__dict__", "_positions", "offset", "shape", "strides")

    def __init__(
        self, shape: Shape, strides: Shape | None, offset: int = 0, positions: NDArray[np.int64] | None = None
    ) -> None:
        """Use `affine`, `contiguous` or `of`: they bring a map to its one form."""
        self.shape: Shape = shape
        self.strides: Shape | None = strides
        self.offset: int = offset
        self._positions: NDArray[np.int64] | None = positions

    @classmethod
    def affine(cls, shape: Sequence[int], strides: Sequence[int], offset: int = 0) -> IndexMap:
        """`offset + Σ stride_k i_k`; the stride of an axis that has one index (or none) is 0."""
        sizes = tuple(int(size) for size in shape)
        # One form for each map: steps that are never taken are 0, and an empty map starts at 0.
        if 0 in sizes:
            return cls(sizes, (0,) * len(sizes), 0)
        steps = tuple(int(step) if size > 1 else 0 for size, step in zip(sizes, strides, strict=True))
        return cls(sizes, steps, int(offset))

    @classmethod
    def contiguous(cls, shape: Sequence[int]) -> IndexMap:
        """The first entries of the source in their order."""
        return cls.affine(shape, row_major(shape))

    @classmethod
    def of(cls, positions: NDArray[np.int64]) -> IndexMap:
        """The map with these positions, affine if it can be."""
        positions = positions.astype(np.int64, copy=False)  # no ascontiguousarray: it makes a scalar an array of one
        if positions.size == 0:
            return cls.affine(positions.shape, (0,) * positions.ndim)
        origin = (0,) * positions.ndim
        first = int(positions[origin])
        steps = [
            int(positions[(*origin[:axis], 1, *origin[axis + 1 :])]) - first if size > 1 else 0
            for axis, size in enumerate(positions.shape)
        ]
        guess = cls.affine(positions.shape, steps, first)
        last = first + sum(step * (size - 1) for step, size in zip(steps, positions.shape, strict=True))
        ends_there = int(positions[tuple(size - 1 for size in positions.shape)]) == last  # cheap: most others fail here
        if ends_there and np.array_equal(guess.positions, positions):
            return guess
        return cls(positions.shape, None, 0, positions)

    @property
    def size(self) -> int:
        """How many entries the result has."""
        return math.prod(self.shape)

    @property
    def positions(self) -> NDArray[np.int64]:
        """All positions, spelled out."""
        if self._positions is not None:
            return self._positions
        total = np.full(self.shape, self.offset, dtype=np.int64)
        for axis, (size, step) in enumerate(zip(self.shape, self.strides or (), strict=True)):
            if step:
                total += (step * np.arange(size)).reshape(-1, *(1,) * (len(self.shape) - axis - 1))
        return total

    @property
    def first(self) -> int:
        """The position of the first entry; 0 if there is none."""
        return self.offset if self.strides is not None or not self.size else int(self.positions.flat[0])

    @property
    def keeps_order(self) -> bool:
        """Whether the result is the first entries of the source in their order.

        It is a *reshape* only if it has all of them: whoever asks must compare sizes too (`stack([h, h])[0]` is a
        prefix of its sources).
        """
        return self.strides is not None and self.offset == 0 and self == IndexMap.contiguous(self.shape)

    def after(self, inner: IndexMap) -> IndexMap:
        """The map that this one and `inner` make together, if this one moves what `inner` has made."""
        # A reshape keeps a table of positions as it is; `of` looks again, since they may be strides in the new shape.
        if self.keeps_order and self.size == inner.size and inner.strides is None:
            return IndexMap.of(inner.positions.reshape(self.shape))
        affine = _compose_affine(self, inner)
        return IndexMap.of(inner.positions.ravel()[self.positions]) if affine is None else affine

    def reshape(self, shape: Sequence[int]) -> IndexMap:
        """The same entries in another shape."""
        return IndexMap.contiguous(shape).after(self)

    def permutation_of(self, source: Shape) -> tuple[int, ...] | None:
        """The order of axes, if the map does nothing but permute those of one source of this shape."""
        if self.strides is None or self.offset or sorted(source) != sorted(self.shape):
            return None
        steps = row_major(source)
        free = list(range(len(source)))
        order = []
        for size, step in zip(self.shape, self.strides, strict=True):
            # Strides tell axes of equal size apart; axes of size 1 have none here, and are taken in their order.
            axis = next((k for k in free if source[k] == size and (size == 1 or steps[k] == step)), None)
            if axis is None:
                return None
            free.remove(axis)
            order.append(axis)
        return tuple(order)

    def repeated_axes(self) -> list[int]:
        """The axes along which all entries are the same one."""
        if self.strides is not None:
            return [k for k, (n, step) in enumerate(zip(self.shape, self.strides, strict=True)) if n > 1 and step == 0]
        at = self.positions
        return [k for k, n in enumerate(self.shape) if n > 1 and bool((at == at.take([0], k)).all())]

    def first_along(self, axes: Sequence[int]) -> IndexMap:
        """The first index along some axes, which keep size 1."""
        if not axes:
            return self
        if self.strides is not None:
            return IndexMap.affine([1 if k in axes else n for k, n in enumerate(self.shape)], self.strides, self.offset)
        at = self.positions
        for axis in axes:
            at = at.take([0], axis)
        return IndexMap.of(at)

    @cached_property
    def key(self) -> str:
        """The map as text, for printing and for equality: a hash where it is a table."""
        if self.strides is not None:
            return f"{self.offset}+{list(self.strides)}" if self.offset or not self.is_row_major else "reshape"
        # The whole hash: nodes of equal keys are merged, and a part of it could be made to collide.
        data = np.ascontiguousarray(self.positions).tobytes()
        return hashlib.sha256(data).hexdigest()

    @property
    def is_row_major(self) -> bool:
        """Whether the strides are those of a new array of this shape."""
        return self.strides == IndexMap.contiguous(self.shape).strides

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, IndexMap) or self.shape != other.shape:
            return False
        if self.strides is not None or other.strides is not None:
            return self.strides == other.strides and self.offset == other.offset
        return bool(np.array_equal(self.positions, other.positions))

    def __hash__(self) -> int:
        return hash((self.shape, self.key))

    def __repr__(self) -> str:
        return f"IndexMap({self.shape}, {self.key})"


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of a new array: the last axis moves fastest.

    >>> row_major((2, 3, 4))
    (12, 4, 1)
    """
    steps = [1]
    for size in reversed(list(shape)[1:]):
        steps.append(steps[-1] * int(size))
    return tuple(reversed(steps)) if shape else ()


def _compose_affine(outer: IndexMap, inner: IndexMap) -> IndexMap | None:
    """`inner` after which `outer` moves, as strides; None where the composition may not be affine.

    The position `p` that `outer` asks for is a flat one in inner's result: its digits in the mixed radix of inner's
    shape are inner's indices, and inner is linear in those. So the digits of outer's strides add up index by index as
    long as no digit ever carries over, which the extreme values of each digit tell.
    """
    if outer.strides is None or inner.strides is None or inner.size == 0 or outer.size == 0:
        return None
    radix, steps = _merge_axes(inner.shape, inner.strides)
    start = _digits(outer.offset, radix)
    moves = [_digits(step, radix) for step in outer.strides]
    low, high = list(start), list(start)
    for size, digits in zip(outer.shape, moves, strict=True):
        for k, digit in enumerate(digits):
            reach = (size - 1) * digit
            low[k] += min(reach, 0)
            high[k] += max(reach, 0)
    # Digits move on their own, so the ends of each are reached: outside its base, one carries into the next.
    if any(least < 0 or most >= base for least, most, base in zip(low, high, radix, strict=True)):
        return None
    strides = [sum(d * step for d, step in zip(digits, steps, strict=True)) for digits in moves]
    offset = inner.offset + sum(d * step for d, step in zip(start, steps, strict=True))
    return IndexMap.affine(outer.shape, strides, offset)


def _merge_axes(shape: Shape, strides: Shape) -> tuple[list[int], list[int]]:
    """The same affine map with as few axes as possible: `(2, 3)` with strides `(3, 1)` is `(6,)` with stride 1."""
    sizes: list[int] = []
    steps: list[int] = []
    for size, step in zip(shape, strides, strict=True):
        if size == 1:
            continue
        if steps and steps[-1] == size * step:
            sizes[-1], steps[-1] = sizes[-1] * size, step
        else:
            sizes.append(size)
            steps.append(step)
    return sizes or [1], steps or [0]


def _digits(number: int, radix: Sequence[int]) -> list[int]:
    """The digits of a number in a mixed radix, all with its sign; the first digit takes what is left."""
    digits = []
    left = abs(number)
    for base in reversed(list(radix)[1:]):
        left, digit = divmod(left, base)
        digits.append(digit)
    return [digit if number >= 0 else -digit for digit in (left, *reversed(digits))]
