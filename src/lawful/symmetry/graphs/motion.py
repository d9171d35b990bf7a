"""What is known of a tensor while a graph is read, and what a rule is given to work with."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from lawful.symmetry.gauges import Gauges
from lawful.symmetry.labels import align, compact, flat, narrowed, on, varying
from lawful.symmetry.shifts import LARGEST, Shift, Shifts

Shape = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class GraphMotion:
    """A tensor of the graph: how it moves under gauges and shifts.

    A parameter that was only regrouped is `raw`: `indices[k]` says which index along axis k of the parameter each of
    its entries has. `zero` tensors fit any gauge. `square_of` is set while x² may still become part of a norm.
    `steady` values depend on neither inputs nor parameters; small ones are `known`. A constant that is added to the
    value might as well have been added to the parameter `absorber`, which nothing else reads. A `centred` value sums to
    zero along its last dimension.
    """

    shape: Shape
    gauges: tuple[torch.Tensor, ...] = ()
    shifts: tuple[Shift, ...] = ()
    raw: str | None = None
    indices: tuple[torch.Tensor, ...] = ()
    zero: bool = False
    square_of: GraphMotion | None = None
    steady: bool = False
    known: torch.Tensor | None = None
    absorber: str | None = None
    centred: bool = False

    def reshaped(self, shape: Shape) -> GraphMotion:
        """The same entries in another shape."""
        return self._with(shape, lambda labels: labels.reshape(shape))

    def turned(self) -> GraphMotion:
        """The last two dimensions exchanged."""
        return self._with((*self.shape[:-2], self.shape[-1], self.shape[-2]), lambda labels: labels.transpose(-1, -2))

    def _with(self, shape: Shape, move: Callable[[torch.Tensor], torch.Tensor]) -> GraphMotion:
        return replace(
            self,
            shape=shape,
            centred=False,
            gauges=tuple(map(move, self.gauges)),
            shifts=tuple(shift.moved(move(shift.labels), move(shift.phases)) for shift in self.shifts),
            indices=tuple(map(move, self.indices)),
        )


@dataclass(frozen=True, eq=False)
class Step:
    """One call of the graph: its name, the shape of its result, and where demands are collected."""

    name: str
    shape: Shape
    shapes: tuple[Shape, ...]
    target: Callable[..., Any]
    gauges: Gauges
    shifts: Shifts
    parameters: dict[str, Shape]

    # What rules do again and again

    def pin(self, *values: Any, permutes: bool = False) -> None:
        """The operation sees every gauge and shift of these values: none is left."""
        for value in values:
            if isinstance(value, GraphMotion):
                for field in value.gauges:
                    self.gauges.pin(field, self.name, permutes=permutes)
                self.shifts.drop(self.settled(value).shifts)

    def settled(self, value: GraphMotion) -> GraphMotion:
        """A value whose shifts are all stated: a raw parameter may move each of its entries."""
        if value.raw is None:
            return value
        shape = self.parameters[value.raw]
        if torch.Size(shape).numel() > LARGEST:
            self.shifts.forbid(value.raw)
            return replace(value, raw=None, indices=())
        return replace(value, raw=None, indices=(), shifts=self.parameter_shifts(value, range(len(shape))))

    def parameter_shifts(self, value: GraphMotion, axes: Sequence[int], *, centred: bool = False) -> tuple[Shift, ...]:
        """Shifts of a raw parameter that are the same for all entries with equal indices along some of its axes.

        If what reads the other entries is `centred`, a shift of all of them alike is not seen.
        """
        name = str(value.raw)
        shape = self.parameters[name]
        found = self.shifts.parameter(name, shape, (centred, *axes), axes)
        if found is None:
            return ()
        if centred and len(found) == 1:
            found.append(self.shifts.common(found[0], axes, shape))
        place = torch.zeros((1,) * len(value.shape), dtype=torch.int64)
        for axis in axes:
            place = place * shape[axis] + narrowed(value.indices[axis])
        labels = compact(_line(found[0].labels, axes)[place]).expand(value.shape)
        self.shifts.read.append(flat(labels))
        return (Shift(labels, torch.zeros((), dtype=torch.int64).expand(value.shape)),)

    def spread(self, value: GraphMotion) -> GraphMotion:
        """A value broadcast to the shape of the result."""
        value = self.settled(value)
        shifts = (
            shift.moved(align(shift.labels, self.shape), align(shift.phases, self.shape)) for shift in value.shifts
        )
        return replace(
            value,
            shape=self.shape,
            centred=False,
            gauges=tuple(align(field, self.shape) for field in value.gauges),
            shifts=tuple(shifts),
        )

    def regrouped(self, value: GraphMotion, move: Callable[[torch.Tensor], torch.Tensor]) -> GraphMotion:
        """A value whose entries are moved, repeated or dropped: the same is done to its labels."""
        gauges = tuple(compact(move(field)) for field in value.gauges)
        for before, after in zip(value.gauges, gauges, strict=True):
            if after.numel() < before.numel() and varying(before):
                self.gauges.whole(after)
        return replace(
            value,
            shape=self.shape,
            centred=False,
            gauges=gauges,
            shifts=tuple(shift.moved(move(shift.labels), move(shift.phases)) for shift in value.shifts),
            indices=tuple(compact(move(index)) for index in value.indices),
        )

    def levelled(self, field: torch.Tensor, dims: Iterable[int]) -> torch.Tensor:
        """Demand that a field is one scale along dimensions; returned with size 1 there."""
        for d in dims:
            first = field.narrow(d, 0, 1)
            if d in varying(field):
                self.gauges.diagonal(field)
                self.gauges.same(field, first.expand(field.shape))
            field = first
        return field

    def alike(self, field: torch.Tensor, dim: int) -> torch.Tensor:
        """Demand that a field acts in the same way everywhere along a dimension; returned with size 1 there."""
        first = field.narrow(dim, 0, 1)
        if dim in varying(field):
            self.gauges.same(field, first.expand(field.shape), line=[d for d in varying(field) if d != dim])
        return first

    def plain(self, *shapes: Shape) -> GraphMotion | tuple[GraphMotion, ...]:
        """Results that no gauge or shift moves."""
        sizes = shapes or self.shapes
        return GraphMotion(sizes[0]) if len(sizes) == 1 else tuple(GraphMotion(size) for size in sizes)

    def fields(self, value: GraphMotion, dims: Iterable[int]) -> list[torch.Tensor]:
        """The gauge fields of a value that change along some of these dimensions."""
        wanted = set(dims)
        return [field for field in value.gauges if wanted & set(varying(field))]


def _line(labels: torch.Tensor, axes: Sequence[int]) -> torch.Tensor:
    """The labels of a direction as a line, in row-major order of the axes."""
    for d in reversed(range(labels.dim())):
        if d not in axes:
            labels = labels.select(d, 0)
    return labels.reshape(-1)


def index_fields(shape: Shape) -> tuple[torch.Tensor, ...]:
    """For each axis of a parameter, the index along it of every entry."""
    return tuple(on([axis], shape, torch.arange(size)) for axis, size in enumerate(shape))
