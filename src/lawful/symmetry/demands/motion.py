"""How a value moves under gauges and shifts, and what rules do to such motions again and again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from lawful.program.index_map import IndexMap
from lawful.symmetry.demands.gauges import Gauges
from lawful.symmetry.demands.labels import align, compact, flat, narrow, on, varying
from lawful.symmetry.demands.scores import Scores
from lawful.symmetry.demands.shifts import LARGEST, Shift, Shifts

Shape = tuple[int, ...]
Array = NDArray[np.generic]


@dataclass(frozen=True, eq=False)
class Motion:
    """A value of a program: how it moves under gauges and shifts.

    A parameter that was only regrouped is `raw`: `indices[k]` says which index along axis k of the parameter each of
    its entries has. `zero` values fit any gauge. `square_of` is set while x² may still become part of a norm. Values
    that depend on neither inputs nor parameters are `known` if they are small. A constant that is added to the value
    might as well have been added to the parameter `absorber`, which nothing else reads. A `centred` value sums to zero
    along its last axis. `scores` say which heads' queries and keys a value is made of. The rows of a table that data
    picked are `dealt` out: which of the table's rows each stands for. Independent `noise` treats all entries alike.
    """

    shape: Shape
    gauges: tuple[torch.Tensor, ...] = ()
    shifts: tuple[Shift, ...] = ()
    raw: str | None = None
    indices: tuple[torch.Tensor, ...] = ()
    zero: bool = False
    square_of: Motion | None = None
    known: Array | None = None
    absorber: str | None = None
    centred: bool = False
    scores: Scores | None = None
    dealt: torch.Tensor | None = None
    noise: bool = False

    @property
    def moves(self) -> bool:
        """Whether any gauge or shift may change it."""
        return bool(self.gauges or self.shifts or self.raw or self.square_of)

    def with_labels(self, shape: Shape, move: Callable[[torch.Tensor], torch.Tensor]) -> Motion:
        """The same entries elsewhere: their labels move with them."""
        return Motion(
            shape,
            tuple(map(move, self.gauges)),
            tuple(shift.move(move(shift.labels), move(shift.phases)) for shift in self.shifts),
            self.raw,
            tuple(map(move, self.indices)),
            self.zero,
        )


class Follower:
    """Where demands are collected while motions are followed."""

    def __init__(self, gauges: Gauges) -> None:
        self.gauges: Gauges = gauges
        self.shifts: Shifts = Shifts()
        self.shapes: dict[str, Shape] = {}

    def pin(self, operation: str, *values: Motion, permutes: bool = False) -> None:
        """The operation sees every gauge and shift of these values: none is left."""
        for value in values:
            for field in value.gauges:
                self.gauges.pin(field, operation, permutes=permutes)
            self.shifts.drop(self.settle(value).shifts)

    def settle(self, value: Motion) -> Motion:
        """A value whose shifts are all stated: a raw parameter may move each of its entries."""
        if value.raw is None:
            return value
        shape = self.shapes[value.raw]
        if torch.Size(shape).numel() > LARGEST:
            self.shifts.forbid(value.raw)
            return replace(value, raw=None, indices=())
        return replace(value, raw=None, indices=(), shifts=self.parameter_shifts(value, range(len(shape))))

    def parameter_shifts(self, value: Motion, axes: Sequence[int], *, centred: bool = False) -> tuple[Shift, ...]:
        """Shifts of a raw parameter that are the same for all entries with equal indices along some of its axes.

        If what reads the other entries is `centred`, a shift of all of them alike is not seen.
        """
        name = str(value.raw)
        shape = self.shapes[name]
        shifts = self.shifts.parameter(name, shape, (centred, *axes), axes)
        if shifts is None:
            return ()
        if centred and len(shifts) == 1:
            shifts.append(self.shifts.common(shifts[0], axes, shape))
        place = torch.zeros((1,) * len(value.shape), dtype=torch.int64)
        for axis in axes:
            place = place * shape[axis] + narrow(value.indices[axis])
        labels = compact(_line(shifts[0].labels, axes)[place]).expand(value.shape)
        self.shifts.read.append(flat(labels))
        return (Shift(labels, torch.zeros((), dtype=torch.int64).expand(value.shape)),)

    def spread(self, value: Motion, shape: Shape) -> Motion:
        """A value broadcast to a shape."""
        value = self.settle(value)
        spread = value.with_labels(shape, lambda labels: align(labels, shape))
        return replace(spread, absorber=value.absorber, known=value.known)

    def regroup(self, value: Motion, shape: Shape, move: Callable[[torch.Tensor], torch.Tensor]) -> Motion:
        """A value whose entries are moved, repeated or dropped: the same is done to its labels."""
        result = value.with_labels(shape, lambda labels: compact(move(labels)))
        for before, after in zip(value.gauges, result.gauges, strict=True):
            if after.numel() < before.numel() and varying(before):
                self.gauges.whole(after)
        return result

    def level(self, field: torch.Tensor, axes: Iterable[int]) -> torch.Tensor:
        """Demand that a field is one scale along axes; returned with size 1 there."""
        for axis in axes:
            first = field.narrow(axis, 0, 1)
            if axis in varying(field):
                self.gauges.diagonal(field)
                self.gauges.same(field, first.expand(field.shape))
            field = first
        return field

    def alike(self, field: torch.Tensor, axis: int) -> torch.Tensor:
        """Demand that a field acts in the same way everywhere along an axis; returned with size 1 there."""
        first = field.narrow(axis, 0, 1)
        if axis in varying(field):
            self.gauges.same(field, first.expand(field.shape), line=[d for d in varying(field) if d != axis])
        return first


def move_labels(labels: torch.Tensor, index: IndexMap) -> torch.Tensor:
    """Labels of the entries that an index map picks, without spelling out axes along which they do not change."""
    small = narrow(labels).contiguous()
    steps = [step if size > 1 else 0 for step, size in zip(small.stride(), small.shape, strict=True)]
    result = index.after(IndexMap.affine(labels.shape, steps))
    if result.strides is not None and min(result.strides, default=0) >= 0:
        return small.as_strided(result.shape, result.strides, small.storage_offset() + result.offset)
    return small.reshape(-1)[torch.from_numpy(np.ascontiguousarray(result.positions)).reshape(result.shape)]


def _line(labels: torch.Tensor, axes: Sequence[int]) -> torch.Tensor:
    """The labels of a direction as a line, in row-major order of the axes."""
    for d in reversed(range(labels.dim())):
        if d not in axes:
            labels = labels.select(d, 0)
    return labels.reshape(-1)


def index_fields(shape: Shape) -> tuple[torch.Tensor, ...]:
    """For each axis of a parameter, the index along it of every entry."""
    return tuple(on([axis], shape, torch.arange(size)) for axis, size in enumerate(shape))
