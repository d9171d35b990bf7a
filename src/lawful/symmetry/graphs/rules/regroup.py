"""Operations that move, repeat or drop entries are run on the labels themselves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from lawful.symmetry.graphs.motion import GraphMotion, Step
from lawful.symmetry.labels import compact, varying
from lawful.symmetry.shifts import Shift


def reshape(step: Step, self: GraphMotion, *rest: Any, **options: Any) -> GraphMotion:
    """View, flatten, unflatten, squeeze: only the shape of the result matters."""
    return step.regrouped(self, lambda labels: labels.reshape(step.shape))


def expand(step: Step, self: GraphMotion, *rest: Any, **options: Any) -> GraphMotion:
    """Repeated without copying."""
    return step.regrouped(self, lambda labels: labels.expand(step.shape))


def move(step: Step, self: GraphMotion, *rest: Any, **options: Any) -> GraphMotion:
    """Permute, transpose, slice, select, flip, roll, repeat: the call itself, on labels."""
    return step.regrouped(self, lambda labels: step.target(labels, *rest, **options))


def divide(step: Step, self: GraphMotion, *rest: Any, **options: Any) -> tuple[GraphMotion, ...]:
    """Split, chunk, unbind: one value for each piece."""

    def piece(number: int) -> Callable[[torch.Tensor], torch.Tensor]:
        return lambda labels: step.target(labels, *rest, **options)[number]

    return tuple(replace(step, shape=shape).regrouped(self, piece(number)) for number, shape in enumerate(step.shapes))


def cat(step: Step, tensors: Sequence[GraphMotion], dim: int = 0) -> GraphMotion:
    """ParameterSide by side: fields are joined, with standing entries where a piece has none."""
    dim %= len(step.shape)
    pieces = [step.settled(piece) for piece in tensors if piece.shape != (0,)]
    if all(piece.zero for piece in pieces):
        return GraphMotion(step.shape, zero=True)
    if all(len(piece.gauges) <= 1 for piece in pieces):
        lines = [piece.gauges[0] if piece.gauges else _nothing(piece) for piece in pieces]
        gauges = [_joined(lines, dim)] if any(piece.gauges for piece in pieces) else []
    else:
        gauges = [
            _joined([field if place == number else _nothing(piece) for place, piece in enumerate(pieces)], dim)
            for number, owner in enumerate(pieces)
            for field in owner.gauges
        ]
    shifts = []
    for number, owner in enumerate(pieces):
        for shift in step.shifts.alive(owner.shifts):
            empty = [_nothing(piece) for piece in pieces]
            labels = _joined([*empty[:number], shift.labels, *empty[number + 1 :]], dim)
            phases = _joined([*empty[:number], shift.phases, *empty[number + 1 :]], dim)
            shifts.append(Shift(labels, phases, shift.factor, shift.masked))
    return GraphMotion(step.shape, tuple(gauges), step.shifts.plus(shifts, ()))


def stack(step: Step, tensors: Sequence[GraphMotion], dim: int = 0) -> GraphMotion:
    """ParameterSide by side along a new dimension."""
    dim %= len(step.shape)
    wide = [
        replace(step, shape=(*piece.shape[:dim], 1, *piece.shape[dim:])).regrouped(
            step.settled(piece), lambda labels: labels.unsqueeze(dim)
        )
        for piece in tensors
    ]
    return cat(step, wide, dim)


def _nothing(piece: GraphMotion) -> torch.Tensor:
    return torch.zeros((), dtype=torch.int64).expand(piece.shape)


def _joined(lines: Sequence[torch.Tensor], dim: int) -> torch.Tensor:
    """Labels side by side, without copying along dimensions where none of them changes."""
    kept = {d for line in lines for d in varying(line)} | {dim}
    shape = list(lines[0].shape)
    shape[dim] = sum(line.shape[dim] for line in lines)
    small = []
    for line in lines:
        for d in range(line.dim()):
            if d not in kept:
                line = line.narrow(d, 0, 1)
        small.append(line)
    return compact(torch.cat(small, dim).expand(shape))


def index(step: Step, self: GraphMotion, indices: Sequence[GraphMotion | None]) -> GraphMotion:
    """Entries picked by index tensors: moved like the labels if the indices are fixed.

    If they depend on data, what acts alike on all that is picked from passes, where one dimension is picked from.
    """
    known = [None if place is None else place.known for place in indices]
    if any(place is not None and fixed is None for place, fixed in zip(indices, known, strict=True)):
        given = [(dim, place) for dim, place in enumerate(indices) if place is not None]
        return _picked(step, self, *given[0]) if len(given) == 1 else _seen(step, self)
    return step.regrouped(self, lambda labels: step.target(labels, known))


def index_select(step: Step, self: GraphMotion, dim: int, index: GraphMotion) -> GraphMotion:
    """Slices picked by an index tensor."""
    if index.known is None:
        return _picked(step, self, dim % len(self.shape), index)
    return step.regrouped(self, lambda labels: step.target(labels, dim, index.known))


def _seen(step: Step, value: GraphMotion) -> GraphMotion:
    step.pin(value)
    return GraphMotion(step.shape)


def _picked(step: Step, value: GraphMotion, dim: int, places: GraphMotion) -> GraphMotion:
    """Slices along one dimension, nobody knows which: gauges pass that act on all of them alike."""
    if value.raw is not None:
        return _seen(step, value)
    step.pin(places)
    x = step.settled(value)
    step.shifts.drop(x.shifts)
    size = (*x.shape[:dim], *(1 for _ in places.shape), *x.shape[dim + 1 :])
    gauges = tuple(step.alike(field, dim).reshape(size).expand(step.shape) for field in x.gauges)
    return GraphMotion(step.shape, gauges)


def getitem(step: Step, parts: Any, place: int) -> Any:
    """One of several results."""
    return parts[place]


def zeros(step: Step, *rest: Any, **options: Any) -> GraphMotion:
    """Zeros fit any gauge."""
    return GraphMotion(step.shape, zero=True, steady=True)
