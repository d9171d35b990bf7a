"""What a member of the group does to tensors: for each axis of each an order, factors, and matrices that mix rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import torch

from lawful.checkpoints.group.spaces import (
    AxisPlace,
    AxisRows,
    BlockMove,
    GroupedUnits,
    GroupsMove,
    HeadsMove,
    HeadSpace,
    MatrixBlock,
    OrbitGroup,
    SpaceMove,
    UnitsMove,
    UnitSpace,
)
from lawful.errors import Unsupported
from lawful.types import Floats, Indices

Seen = Callable[[torch.Tensor], torch.Tensor]


def _as_it_is(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


@dataclass(eq=False)
class AxisFrame:
    """What a member of the group does to the rows of one axis: row i becomes row `source[i]` times `factor[i]`; then
    rows of each block are mixed by its matrix. A unit vector v in place of a matrix is the reflection `1 − 2 v vᵀ`."""

    source: Indices
    factor: Floats
    blocks: list[tuple[Indices, Floats]] = field(default_factory=list)  # rows (copies × size) and a matrix
    inverses: list[Floats] = field(default_factory=list)  # of the matrices

    def acts(
        self, tensor: torch.Tensor, dims: tuple[int, ...] = (0,), *, seen: Seen = _as_it_is, copied: bool = False
    ) -> torch.Tensor:
        """A tensor after it, along some dimensions; `seen`: with the absolute values (or anything else) of its numbers.

        `copied`: the tensor may be overwritten.
        """
        if len(dims) != 1:
            return in_shape(self.acts(as_rows(tensor, dims), seen=seen), dims, tensor.shape)
        (d,) = dims
        if not _in_order(self.source):
            tensor, copied = _taken(tensor, d, self.source), True
        if (self.factor != 1).any():
            factor = seen(_laid(self.factor, d, tensor))
            tensor, copied = tensor.mul_(factor) if copied else tensor * factor, True
        return _mix_rows(tensor, d, self.blocks, seen, copied)

    def undoes(self, tensor: torch.Tensor, dims: tuple[int, ...] = (0,), *, seen: Seen = _as_it_is) -> torch.Tensor:
        """The tensor before it."""
        if len(dims) != 1:
            return in_shape(self.undoes(as_rows(tensor, dims), seen=seen), dims, tensor.shape)
        (d,) = dims
        undoing = [(places, matrix) for (places, _), matrix in zip(self.blocks, self.inverses, strict=True)]
        tensor = _mix_rows(tensor, d, undoing[::-1], seen, False)
        if (self.factor != 1).any():
            tensor = tensor / seen(_laid(self.factor, d, tensor))
        return tensor if _in_order(self.source) else _taken(tensor, d, np.argsort(self.source))

    @property
    def scaling(self) -> AxisFrame:
        """The same without rotations, which keep lengths."""
        scaling = [
            (block, inverse)
            for block, inverse in zip(self.blocks, self.inverses, strict=True)
            if not np.array_equal(inverse, block[1].T)
        ]
        return AxisFrame(self.source, self.factor, [block for block, _ in scaling], [inverse for _, inverse in scaling])


def _in_order(places: Indices) -> bool:
    return bool((places == np.arange(len(places))).all())


def _taken(tensor: torch.Tensor, d: int, places: Indices) -> torch.Tensor:
    """Rows along a dimension: by NumPy where it has such numbers, in half the time that `index_select` takes."""
    if tensor.dtype not in (torch.float32, torch.float64):
        return tensor.index_select(d, torch.as_tensor(places))
    return torch.as_tensor(np.take(tensor.numpy(), places, axis=d))


def _laid(vector: Floats, d: int, like: torch.Tensor) -> torch.Tensor:
    return torch.as_tensor(vector, dtype=like.dtype).reshape([-1 if e == d else 1 for e in range(like.ndim)])


def _mix_rows(
    tensor: torch.Tensor, d: int, blocks: list[tuple[Indices, Floats]], seen: Seen, copied: bool
) -> torch.Tensor:
    """The rows of each block along a dimension, mixed by its matrix."""
    for places, matrix in blocks:
        mixing = seen(torch.as_tensor(matrix, dtype=tensor.dtype))
        for copy in places:
            if len(copy) == tensor.shape[d] and _in_order(copy):
                tensor, copied = _times(mixing, tensor, d), True
                continue
            tensor, copied = tensor if copied else tensor.clone(), True
            if _in_order(copy - copy[0]):
                piece = tensor.narrow(d, int(copy[0]), len(copy))
                piece.copy_(_times(mixing, piece, d))
            else:
                where = torch.as_tensor(copy)
                tensor.index_copy_(d, where, _times(mixing, tensor.index_select(d, where), d))
    return tensor


def _times(matrix: torch.Tensor, tensor: torch.Tensor, d: int) -> torch.Tensor:
    """A matrix (or a reflection) acting along one dimension."""
    if matrix.ndim == 1:
        rows = tensor.movedim(d, 0).reshape(len(matrix), -1)
        flipped = torch.addr(rows, matrix, matrix @ rows, alpha=-2)  # one new tensor, where 1 - 2uuᵀ would take three
        return flipped.reshape(tensor.movedim(d, 0).shape).movedim(0, d)
    if d == tensor.ndim - 1:
        return tensor @ matrix.T
    if d == 0:
        return (matrix @ tensor.reshape(len(tensor), -1)).reshape(tensor.shape)
    product: torch.Tensor = torch.tensordot(matrix, tensor, dims=([1], [d]))
    return product.movedim(0, d)


Frames = Mapping[AxisPlace, AxisFrame]


def frames(
    group: OrbitGroup, moves: Mapping[int, SpaceMove], names: Collection[str] | None = None
) -> dict[AxisPlace, AxisFrame]:
    """What moves of some spaces (by their number) do to every axis of every tensor (or of some), in order: rows that
    follow others (whole groups, which those exchange) come after them."""
    frames_by_axis: dict[AxisPlace, AxisFrame] = {}
    last: set[AxisPlace] = set()

    def is_wanted(rows: AxisRows) -> bool:
        return names is None or rows.tensor in names

    def at(rows: AxisRows) -> AxisFrame:
        shape = group.shapes[rows.tensor]
        count = int(np.prod([shape[d] for d in rows.dims], dtype=int))
        if rows.place not in frames_by_axis:
            frames_by_axis[rows.place] = AxisFrame(np.arange(count), np.ones(count))
        return frames_by_axis[rows.place]

    for number, move in moves.items():
        space = group.spaces[number]
        if isinstance(space, UnitSpace) and isinstance(move, UnitsMove):
            for rows in filter(is_wanted, space.members):
                frame = at(rows)
                frame.source[rows.places] = rows.places[move.order]
                frame.factor[rows.places] = _factor(space, rows, move)[:, None]
        elif isinstance(space, GroupedUnits) and isinstance(move, GroupsMove):
            for slot, units in zip(space.slots, move.slots, strict=True):
                for rows in filter(is_wanted, slot.members):
                    order = units.order
                    if space.follows(rows):
                        size = slot.size // space.count
                        order = np.arange(slot.size) // size * size + order % size
                        last.add(rows.place)
                    frame = at(rows)
                    frame.source[rows.places] = rows.places[order]
                    frame.factor[rows.places] = _factor(slot, rows, units)[:, None]
        elif isinstance(space, MatrixBlock) and isinstance(move, BlockMove):
            _mix(filter(is_wanted, space.members), space.kind, move.matrix, at)
        elif isinstance(space, HeadSpace) and isinstance(move, HeadsMove):
            for h, head in enumerate(space.heads):
                other = space.heads[int(move.order[h])]
                for block, twin, matrix in zip(head, other, move.matrices[h], strict=True):
                    for rows, before in zip(block.members, twin.members, strict=True):
                        if not is_wanted(rows):
                            continue
                        copies = move.copies[h] if rows.places.shape[1] == space.copies else slice(None)
                        at(rows).source[rows.places] = before.places[:, copies]
                    _mix(filter(is_wanted, block.members), block.kind, matrix, at)
    return (
        {place: frames_by_axis[place] for place in sorted(frames_by_axis, key=last.__contains__)}
        if last
        else frames_by_axis
    )


def _mix(members: Iterable[AxisRows], kind: str, matrix: Floats, at: Callable[[AxisRows], AxisFrame]) -> None:
    if np.array_equal(matrix, np.eye(len(matrix))):
        return
    dual: Floats = np.asarray(np.linalg.inv(matrix).T, dtype=np.float64) if kind in ("GL", "rotary") else matrix
    for rows in members:
        acting, other = (matrix, dual) if rows.powers[0] > 0 else (dual, matrix)
        at(rows).blocks.append((rows.places.T, acting))
        at(rows).inverses.append(other.T)


def _factor(space: UnitSpace, rows: AxisRows, move: UnitsMove) -> Floats:
    """By what the rows of each unit are multiplied; a negative scale acts where an odd power of it does."""
    factor = move.signs.copy() if rows.odd else np.ones(space.size)
    for scale, power in zip(move.scales.T, rows.powers, strict=True):
        if power:
            factor = factor * (scale if power == 1 else 1.0 / scale if power == -1 else scale**power)
    return factor


def move_tensors(
    tensors: Mapping[str, torch.Tensor],
    by: Frames,
    names: Collection[str] | None = None,
    *,
    back: bool = False,
    seen: Seen = _as_it_is,
) -> dict[str, torch.Tensor]:
    """Tensors (some of them) after a member of the group, or before it (`back`).

    `seen`: with the absolute values, or squares, of all numbers of the member.
    """
    places: dict[str, list[tuple[tuple[int, ...], AxisFrame]]] = defaultdict(list)
    for (owner, dims), frame in by.items():
        places[owner].append((dims, frame))
    moved = {}
    for name in names if names is not None else list(tensors):
        tensor, is_copy = tensors[name], False
        for dims, frame in reversed(places[name]) if back else places[name]:
            after = (
                frame.undoes(tensor, dims, seen=seen) if back else frame.acts(tensor, dims, seen=seen, copied=is_copy)
            )
            is_copy, tensor = is_copy or after is not tensor, after
        moved[name] = tensor
    return moved


def disjoint(by: Frames, shapes: Mapping[str, tuple[int, ...]]) -> dict[AxisPlace, AxisFrame]:
    """The same with frames of axes that share dimensions joined to one, so that no row is moved twice.

    A weight (o, i/g) of a grouped convolution has its outputs along o, and its inputs along o and i/g together.

    >>> rows = AxisFrame(np.array([1, 0]), np.array([2.0, 3.0]))
    >>> both = AxisFrame(np.array([1, 0, 2, 3]), np.ones(4))
    >>> found = disjoint({("w", (0,)): rows, ("w", (0, 1)): both}, {"w": (2, 2)})
    >>> [(place[1], frame.source.tolist(), frame.factor.tolist()) for place, frame in found.items()]
    [((0, 1), [3, 2, 0, 1], [2.0, 2.0, 3.0, 3.0])]
    """
    joined: dict[AxisPlace, AxisFrame] = {}
    for (name, dims), frame in by.items():
        combined, place = frame, (name, dims)
        for other in [
            other_place for other_place in joined if other_place[0] == name and set(other_place[1]) & set(dims)
        ]:
            before, union = joined.pop(other), tuple(sorted({*other[1], *place[1]}))
            first, second = (
                _spread(part, each_dims, union, shapes[name])
                for part, each_dims in ((before, other[1]), (combined, place[1]))
            )
            combined = AxisFrame(first.source[second.source], second.factor * first.factor[second.source])
            place = name, union
        joined[place] = combined
    return joined


def _spread(frame: AxisFrame, dims: tuple[int, ...], union: tuple[int, ...], shape: tuple[int, ...]) -> AxisFrame:
    """A frame along more dimensions."""
    if frame.blocks:
        raise Unsupported("matrices act along dimensions that another axis shares")
    numbers = torch.arange(int(np.prod([shape[d] for d in union], dtype=int))).reshape([shape[d] for d in union])
    inside = tuple(union.index(d) for d in dims)
    ones = torch.ones(numbers.shape, dtype=torch.float64)
    source = AxisFrame(frame.source, np.ones(len(frame.source))).acts(numbers, inside)
    factor = AxisFrame(np.arange(len(frame.source)), frame.factor).acts(ones, inside)
    return AxisFrame(source.reshape(-1).numpy(), factor.reshape(-1).numpy())


def as_rows(tensor: torch.Tensor, dims: tuple[int, ...]) -> torch.Tensor:
    """A tensor as rows along some of its dimensions."""
    count = int(np.prod([tensor.shape[d] for d in dims], dtype=int))
    return tensor.movedim(dims, tuple(range(len(dims)))).reshape(count, -1) if dims else tensor.reshape(1, -1)


def in_shape(rows: torch.Tensor, dims: tuple[int, ...], shape: torch.Size) -> torch.Tensor:
    """Rows put back into the shape of their tensor."""
    if not dims:
        return rows.reshape(shape)
    sizes = [shape[d] for d in dims] + [size for d, size in enumerate(shape) if d not in dims]
    return rows.reshape(sizes).movedim(tuple(range(len(dims))), dims)
