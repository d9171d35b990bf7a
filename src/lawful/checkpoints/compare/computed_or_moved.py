"""Which tensors are compared up to rounding, because something was computed, and which have to be the same numbers."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch

from lawful.checkpoints.align.lazy_tensors import rounding_unit
from lawful.checkpoints.architecture import CheckpointArchitecture
from lawful.checkpoints.group.axis_actions import AxisFrame, move_tensors
from lawful.checkpoints.group.spaces import AxisPlace
from lawful.checkpoints.rewrite.folds import (
    CentreFold,
    Fold,
    GainFold,
    LinearReader,
    MoveFold,
    State,
    StatisticsFold,
    ValueFold,
)

MEANT_EQUAL = 4.0  # units of rounding within which gains are meant to be equal


def computed(
    architecture: CheckpointArchitecture,
    first: State,
    second: State,
    acting: Mapping[AxisPlace, AxisFrame],
    shifts: Mapping[str, list[torch.Tensor]],
) -> tuple[set[str], dict[str, AxisFrame]]:
    """Tensors for which something was computed that rounds: scales that are no powers of two, sums, shifts, and folds
    whose gains, offsets or statistics are not simply those of the other checkpoint, moved. Then those that simply are,
    and how they are moved.
    """
    found = set(shifts) | {name for (name, _), frame in acting.items() if not plain(frame)}
    carried: dict[str, AxisFrame] = {}
    for each in architecture.folds:
        held, touched, place = _parts(each)
        if _carried_over(each, held, place, first, second, acting):
            frame = acting.get(place)
            for name, odd in held:
                count = len(first[name])
                carried[name] = AxisFrame(np.arange(count), np.ones(count)) if frame is None else _lines(frame, odd)
        else:
            found |= {*(name for name, _ in held), *touched}
    return found, {name: frame for name, frame in carried.items() if name not in found}


def _lines(frame: AxisFrame, odd: bool) -> AxisFrame:
    """A frame that only permutes (and turns signs, if odd), without matrices."""
    places = torch.arange(1, len(frame.source) + 1, dtype=torch.float64)[:, None]
    after = frame.acts(places)[:, 0].numpy()
    return AxisFrame((np.abs(after) - 1).astype(np.intp), np.sign(after) if odd else np.ones(len(after)))


def _parts(each: Fold) -> tuple[list[tuple[str, bool]], list[str], AxisPlace]:
    """What a fold takes away (with a sign that follows that of the value, or not), what it changes, and its axis."""
    if isinstance(each, GainFold):
        held = [(name, odd) for name, odd in ((each.gain, False), (each.offset, True)) if name is not None]
        touched = [name for reader in each.readers for name in (reader.weight, reader.bias) if name is not None]
        return held, touched, (each.readers[0].weight, (each.readers[0].axis,))
    if isinstance(each, StatisticsFold):
        writer = each.writer
        touched = [] if writer is None else [name for name in (writer.weight, writer.bias) if name is not None]
        held = [(name, False) for name in (each.gain, each.offset, each.mean, each.variance)]
        return held, touched, (each.offset, (0,))
    if isinstance(each, ValueFold):
        return [(each.bias, True)], [str(each.reader.bias)], (each.bias, (0,))
    if isinstance(each, CentreFold):
        return [(each.amount, False)], [each.tensor], (each.amount, (0,))
    if isinstance(each, MoveFold):
        return [(each.source, True)], [each.target], (each.target, (0,))
    return [(each.tensor, True)], [], (each.tensor, (0,))


def _carried_over(
    each: Fold,
    held: list[tuple[str, bool]],
    place: AxisPlace,
    first: State,
    second: State,
    acting: Mapping[AxisPlace, AxisFrame],
) -> bool:
    """Whether gains, offsets and statistics of B, moved like the values they belong to, are those of A (or so near to
    them that they are meant to be: then they are held to that)."""
    frame = acting.get(place)
    if frame is not None and not (plain(frame) and is_unscaled(frame)):
        return False
    for name, odd in held:
        one, two = first[name].double(), second[name].double()[:, None]
        if frame is not None:
            two = frame.acts(two, seen=(lambda each: each) if odd else torch.abs)
        unit = max(rounding_unit(state[name].dtype) for state in (first, second))
        if float((one - two[:, 0]).abs().max()) > MEANT_EQUAL * unit * float(one.abs().max()):
            return False
    if isinstance(each, GainFold) and each.centred:
        return all(_same_means(reader, first, second, acting) for reader in each.readers)
    return True


def _same_means(reader: LinearReader, first: State, second: State, acting: Mapping[AxisPlace, AxisFrame]) -> bool:
    """Whether what a LayerNorm hides in the rows of a reader is the same in both."""
    name = reader.weight
    one = first[name].double()
    two = move_tensors({name: second[name].double()}, {p: f for p, f in acting.items() if p[0] == name}, [name])[name]
    gap = one.mean(reader.axis) - two.mean(reader.axis)
    unit = max(rounding_unit(state[name].dtype) for state in (first, second))
    return float(gap.abs().max()) <= max(1e-6, unit) * float(one.abs().max())


def is_unscaled(frame: AxisFrame) -> bool:
    """Whether a frame multiplies by nothing but 1 and −1."""
    factors = np.concatenate([frame.factor, *(matrix[matrix != 0] for _, matrix in frame.blocks)])
    return bool((np.abs(factors) == 1).all())


def plain(frame: AxisFrame) -> bool:
    """Whether a frame only moves numbers and multiplies them by powers of two."""
    factors = np.concatenate([frame.factor, *(matrix[matrix != 0] for _, matrix in frame.blocks)])
    single = all(((matrix != 0).sum(1) == 1).all() for _, matrix in frame.blocks)
    return single and bool((np.abs(np.frexp(factors)[0]) == 0.5).all())
