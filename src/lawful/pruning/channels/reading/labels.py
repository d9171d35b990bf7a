"""Movements of labelled values: where channels lie afterwards, and whether positions moved alike in all of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lawful.program.index_map import IndexMap, Shape, row_major
from lawful.types import Indices

LARGEST = 200_000  # channels into which positions are spelled out: beyond, the lists in Python take too long


@dataclass(frozen=True, eq=False)
class Moved:
    """Labels of the result, by how much each channel was widened, and where something else than channels is."""

    labels: Indices
    width: int = 1
    outside: NDArray[np.bool_] | None = None


def follow(index: IndexMap, sources: Sequence[tuple[Shape, Indices | None]]) -> Moved | None:
    """Labels after a movement; sources have sizes and labels, None for constants. None: channels move apart.

    Positions must move alike in all channels. Where positions become channels, every channel is widened to them.

    >>> turned = IndexMap.affine((2, 4, 3), (12, 1, 4))  # (2, 3, 4) with its last axes exchanged
    >>> follow(turned, [((2, 3, 4), np.arange(3).reshape(1, 3, 1))]).labels.tolist()
    [[[0, 1, 2]]]
    """
    if len(sources) == 1 and index.strides is not None and sources[0][1] is not None:
        quick = _affine(index, sources[0][0], sources[0][1])
        if quick is not None:
            return quick
    # Of several sources, positions are compared by number: no claim ever connects channels of different activations.
    sizes = {tuple(n for n in _positions(shape, labels) if n > 1) for shape, labels in sources if labels is not None}
    if len(sizes) != 1 or not index.size:
        return None
    places = (*sizes.pop(), 1)
    at = index.positions
    code = np.concatenate([_codes(shape, labels) for shape, labels in sources])[at]
    place = np.concatenate([_places(shape, labels) for shape, labels in sources])[at]
    found = _uniform(code, place)
    if found is not None or bool((code < 0).any()):
        return found
    parts = np.unravel_index(place, places)
    varying = [axis for axis in range(code.ndim) if bool((code != code.take([0], axis)).any())]
    merged = [k for k, part in enumerate(parts) if any((part != part.take([0], axis)).any() for axis in varying)]
    width = math.prod(places[k] for k in merged)
    if width * (int(code.max()) + 1) > LARGEST:
        return None
    inside = np.ravel_multi_index([parts[k] for k in merged], [places[k] for k in merged])
    kept = [k for k in range(len(places)) if k not in merged]
    rest = np.ravel_multi_index([parts[k] for k in kept], [places[k] for k in kept]) if kept else np.zeros_like(place)
    found = _uniform(code * width + inside, rest)
    return None if found is None else Moved(found.labels, width)


def _uniform(code: Indices, place: Indices) -> Moved | None:
    """Labels that vary along some axes alone, along which positions do not."""
    outside = code < 0
    filled = bool(outside.any())
    if bool(outside.all()):
        return None
    start = np.unravel_index(int(np.argmax(~outside)), code.shape)
    varying = []
    for axis, size in enumerate(code.shape):
        if size > 1:
            line = code[tuple(slice(None) if k == axis else at for k, at in enumerate(start))]
            whole = not filled and bool((code != code.take([0], axis)).any())
            if whole or bool((line[line >= 0] != code[start]).any()):
                varying.append(axis)
    first = tuple(slice(at, at + 1) if k not in varying else slice(None) for k, at in enumerate(start))
    along = tuple(slice(at, at + 1) if k in varying else slice(None) for k, at in enumerate(start))
    labels = code[first]
    same = bool(((code == labels) | outside).all()) and bool(((place == place[along]) | outside).all())
    if not same or bool((outside != outside[along]).any()):
        return None
    return Moved(np.array(labels), 1, outside[along] if filled else None)


def _affine(index: IndexMap, shape: Shape, labels: Indices) -> Moved | None:
    """The same without arrays of positions, where every axis of the result runs along axes of the source."""
    if 0 in shape:
        return None  # of no entries, steps are 0
    steps = row_major(shape)
    strides = index.strides or ()
    start, left = [], index.offset
    for step in steps:
        start.append(left // step)
        left -= start[-1] * step
    moves: list[list[int]] = []
    for size, stride in zip(index.shape, strides, strict=True):
        digits, rest = [0] * len(shape), stride if size > 1 else 0
        if rest < 0:
            return None
        for k, step in enumerate(steps):
            if shape[k] > 1:
                digits[k], rest = divmod(rest, step)
        if rest:
            return None
        moves.append(digits)
    last = [at + sum((n - 1) * d[k] for n, d in zip(index.shape, moves, strict=True)) for k, at in enumerate(start)]
    if any(end >= size for end, size in zip(last, shape, strict=True)):
        return None  # an index would carry over into the next axis
    mine = [k for k, size in enumerate(labels.shape) if size > 1]
    varying = [axis for axis, digits in enumerate(moves) if any(digits[k] for k in mine)]
    if any(moves[axis][k] for axis in varying for k in range(len(shape)) if k not in mine):
        return None
    where = []
    for k in range(len(shape)):
        at = np.full((1,) * len(index.shape), start[k] if k in mine else 0)
        for axis in varying if k in mine else ():
            line = (moves[axis][k] * np.arange(index.shape[axis])).reshape(
                [-1 if each == axis else 1 for each in range(len(index.shape))]
            )
            at = at + line
        where.append(at)
    found = labels[tuple(np.broadcast_arrays(*where))] if where else labels.reshape((1,) * len(index.shape))
    for axis in varying:  # an axis along which labels happen to repeat is one of positions
        if bool((found == found.take([0], axis)).all()):
            return None
    return Moved(np.asarray(found))


def collapse(labels: Indices, width: int) -> Indices | None:
    """Labels of channels again, where those that were widened lie apart from their places.

    >>> collapse(np.arange(6).reshape(1, 2, 3), 3).tolist()
    [[[0], [1]]]
    """
    channel, place = labels // width, labels % width
    varying = [
        {axis for axis in range(labels.ndim) if bool((each != each.take([0], axis)).any())} for each in (channel, place)
    ]
    if varying[0] & varying[1]:
        return None
    return np.asarray(channel[tuple(slice(None) if axis in varying[0] else slice(0, 1) for axis in range(labels.ndim))])


def _positions(shape: Shape, labels: Indices) -> Shape:
    return tuple(1 if labels.shape[axis] > 1 else size for axis, size in enumerate(shape))


def _codes(shape: Shape, labels: Indices | None) -> Indices:
    if labels is None:
        return np.full(math.prod(shape), -1)
    return np.broadcast_to(labels, shape).ravel()


def _places(shape: Shape, labels: Indices | None) -> Indices:
    if labels is None:
        return np.zeros(math.prod(shape), dtype=np.int64)
    sizes = _positions(shape, labels)
    return np.broadcast_to(np.arange(math.prod(sizes)).reshape(sizes), shape).ravel()
