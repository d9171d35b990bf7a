"""Two checkpoints after alignment, entry by entry: equal exactly, equal up to the rounding of their numbers, or not.

What is compared is `g · fold(B) + shift` with `fold(A)`. An entry may differ by ε times the sum of the absolute values
of the terms that made it, and only where something was computed: an entry that is merely moved (or multiplied by a
power of two) has to be the same number.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf

import numpy as np
import torch

from lawful.checkpoints.align import Alignment, search, shift_parts
from lawful.checkpoints.architecture import CheckpointArchitecture
from lawful.checkpoints.element import AxisFrame, BlockMove, HeadsMove, SpaceMove, UnitsMove, frames, identity, moved
from lawful.checkpoints.folds import (
    CentreFold,
    Fold,
    GainFold,
    LinearReader,
    MoveFold,
    State,
    StatisticsFold,
    ValueFold,
    fold,
)
from lawful.checkpoints.group import AxisPlace
from lawful.errors import InvalidNetwork
from lawful.types import Floats

LARGE = (
    200_000_000  # parameters from which the search runs in single precision (too coarse to call float32 copies equal)
)
SNAP, SNAP_UNITS = 1e-6, 8.0  # so near to a power of two, or to a permutation, a move is taken to be one
ROUNDINGS = 16.0  # units of rounding that an entry may be off, relative to the sum of its terms
MEANT_EQUAL = 4.0  # units of rounding within which gains are meant to be equal
NOISES = 4.0  # and a whole tensor: times what random rounding of the stored numbers does to it


@dataclass(frozen=True)
class TensorDistance:
    """How far a tensor of B is from that of A after alignment.

    `relative` is `‖B − A‖/‖A‖`, `noise` what random rounding of the stored numbers would make of it; `entry` is the
    largest difference of an entry relative to the sum of its terms. `exact`: no entry differs; `moved_only`: nothing
    was computed, so it should be exact.
    """

    tensor: str
    relative: float
    noise: float
    entry: float
    unit: float
    exact: bool
    moved_only: bool

    @property
    def fits(self) -> bool:
        """Whether rounding explains what is left."""
        if self.exact or self.moved_only:
            return self.exact
        return self.entry <= ROUNDINGS * self.unit and self.relative <= NOISES * self.noise


@dataclass(frozen=True, eq=False)
class WeightComparison:
    """Everything that alignment found: the group element as frames, the shifts, and the distances that are left."""

    architecture: CheckpointArchitecture
    alignment: Alignment
    frames: Mapping[AxisPlace, AxisFrame]
    shifts: Mapping[str, list[torch.Tensor]]
    distances: tuple[TensorDistance, ...]
    aligned: State  # folded, in float64
    conditioning: float

    @property
    def fits(self) -> bool:
        """Whether B is A up to the rounding of stored numbers."""
        return all(each.fits for each in self.distances)


def compare(architecture: CheckpointArchitecture, first: State, second: State) -> WeightComparison:
    """Align the tensors of B to those of A and compare them."""
    check_numbers(first, "the first checkpoint")
    check_numbers(second, "the second checkpoint")
    group, folds = architecture.group, architecture.folds
    names = list(group.shapes)
    one, two = (fold(_wide(state), folds) for state in (first, second))
    if all(_stored_alike(first[name], second[name]) for name in first):
        unmoved = Alignment({number: identity(space) for number, space in enumerate(group.spaces)}, 0)
        return _judged(architecture, unmoved, (first, second), (one, two), torch.float32)
    large = sum(one[name].numel() for name in names) > LARGE
    kind = torch.float32 if large else torch.float64
    found = search(group, {name: one[name].to(kind) for name in names}, {name: two[name].to(kind) for name in names})
    unit = max(rounding_unit(state[name].dtype) for state in (first, second) for name in names)
    near = max(SNAP, SNAP_UNITS * unit)
    moves = {number: _snapped(move, near) for number, move in found.moves.items()}
    return _judged(architecture, Alignment(moves, found.passes), (first, second), (one, two), kind)


def compare_moved(
    architecture: CheckpointArchitecture, moves: Mapping[int, SpaceMove], first: State, second: State
) -> WeightComparison:
    """Compare after moves that are known."""
    folded = tuple(fold(_wide(state), architecture.folds) for state in (first, second))
    alignment = Alignment(dict(moves), 0)
    return _judged(architecture, alignment, (first, second), (folded[0], folded[1]), torch.float64)


def _judged(
    architecture: CheckpointArchitecture,
    alignment: Alignment,
    given: tuple[State, State],
    folded: tuple[State, State],
    kind: torch.dtype,
) -> WeightComparison:
    """Compare after one alignment."""
    (first, second), (one, two) = given, folded
    group, folds = architecture.group, architecture.folds
    names = list(group.shapes)
    acting = frames(group, alignment.moves)
    aligned = two | moved(two, acting, names)
    shifts: dict[str, list[torch.Tensor]] = {}
    if group.shifts:
        touched = {name for laws in group.shifts for name in laws.parameters}
        parts = shift_parts({name: one[name] - aligned[name] for name in touched}, group.shifts)
        for name, pieces in parts.items():
            largest = float(torch.maximum(one[name].abs().max(), aligned[name].abs().max()))
            unit = max(rounding_unit(state[name].dtype) for state in given)
            kept = [piece for piece in pieces if float(piece.abs().max()) > unit * largest]  # the others are rounding
            if kept:
                shifts[name] = kept
                for piece in kept:
                    aligned[name] = aligned[name] + piece
    sizes = [fold({n: t.to(kind) if t.is_floating_point() else t for n, t in s.items()}, folds, absolute=True)
             for s in (first, second)]  # fmt: skip
    noises = [_noise(architecture, state, 1 + number) for number, state in enumerate(given)]
    worked, carried = computed(architecture, first, second, acting, shifts)
    distances = []
    for name in one:
        if not one[name].is_floating_point():
            same = torch.equal(one[name], two[name])
            if not same and not name.endswith("num_batches_tracked"):
                distances.append(TensorDistance(name, inf, 0.0, inf, 0.0, exact=False, moved_only=True))
            continue
        unit = max(rounding_unit(state[name].dtype) for state in (first, second))
        if name in carried:
            distances.append(_moved_distance(name, first[name], second[name], {(name, (0,)): carried[name]}, unit))
            continue
        if name not in worked:
            distances.append(_moved_distance(name, first[name], second[name], acting, unit))
            continue
        size = moved(sizes[1], acting, [name], absolute=True)[name] if name in group.shapes else sizes[1][name]
        size = torch.maximum(size.double(), sizes[0][name].double())
        for piece in shifts.get(name, ()):
            size = size + piece.abs()
        noise = float(noises[0][name].norm()) + float(moved(noises[1], acting, [name])[name].norm())
        distances.append(_distance(name, one[name], aligned[name], size, unit, noise))
    acting |= {(name, (0,)): frame for name, frame in carried.items()}
    return WeightComparison(
        architecture, alignment, acting, shifts, tuple(distances), aligned, _conditioning(alignment.moves)
    )


def check_numbers(state: Mapping[str, torch.Tensor], which: str) -> None:
    """Refuse NaN and infinities, by name."""
    for name, tensor in state.items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise InvalidNetwork(f"{which}: {name} holds NaN or infinite numbers")


def rounding_unit(kind: torch.dtype) -> float:
    """Half the distance of 1 to the next number."""
    return float(torch.finfo(kind).eps) / 2


def _stored_alike(one: torch.Tensor, two: torch.Tensor) -> bool:
    """Whether tensors hold the same numbers, once both are stored in the fewer bits of the two."""
    if not one.is_floating_point() or not two.is_floating_point():
        return True
    kind = max((one.dtype, two.dtype), key=rounding_unit)
    return torch.equal(one.to(kind), two.to(kind))


def _wide(state: State) -> State:
    return {name: tensor.double() if tensor.is_floating_point() else tensor for name, tensor in state.items()}


def _distance(
    name: str,
    one: torch.Tensor,
    two: torch.Tensor,
    size: torch.Tensor,
    unit: float,
    noise: float = 0.0,
    moved_only: bool = False,
) -> TensorDistance:
    gap = (one - two).abs()
    length, off = float(one.norm()), float(gap.norm())
    relative = off / length if length else inf if off else 0.0
    noise = noise / length if length else 0.0
    shares = torch.where(gap > 0, gap / size.clamp_min(1e-300), torch.zeros_like(gap))
    entry = float(shares.max()) if shares.numel() else 0.0
    return TensorDistance(name, relative, noise, entry, unit, exact=not bool(gap.any()), moved_only=moved_only)


def _noise(architecture: CheckpointArchitecture, state: State, seed: int) -> State:
    """What random rounding of the stored numbers does to the folded tensors."""
    generator = torch.Generator().manual_seed(seed)
    jiggled, wide = {}, _wide(state)
    for name, tensor in wide.items():
        if tensor.is_floating_point():
            shares = torch.rand(tensor.shape, generator=generator, dtype=torch.float64) * 2 - 1
            tensor = tensor * (1 + rounding_unit(state[name].dtype) * shares)
        jiggled[name] = tensor
    before, after = (fold(each, architecture.folds) for each in (wide, jiggled))
    return {name: after[name] - before[name] for name in after if after[name].is_floating_point()}


def _moved_distance(
    name: str, first: torch.Tensor, second: torch.Tensor, acting: Mapping[AxisPlace, AxisFrame], unit: float
) -> TensorDistance:
    """For a tensor whose numbers are only moved: as they are stored, or stored in the fewer bits of the other file."""
    one = first.double()
    two = moved({name: second.double()}, {p: f for p, f in acting.items() if p[0] == name}, [name])[name]
    found = _distance(name, one, two, torch.maximum(one.abs(), two.abs()), unit, moved_only=True)
    if first.dtype != second.dtype:
        kind = max((first.dtype, second.dtype), key=rounding_unit)
        return replace(found, exact=torch.equal(one.to(kind), two.to(kind)))
    return found


def _snapped(move: SpaceMove, near: float) -> SpaceMove:
    """A move that only permutes and multiplies by powers of two, if the whole of it is that near to one.

    Then it is held to that: numbers that are merely moved have to be equal. A space that is scaled or mixed in any of
    its units is left as it is.
    """
    if isinstance(move, UnitsMove):
        powers = np.exp2(np.round(np.log2(move.scales)))
        meant = bool((np.abs(move.scales / powers - 1) < near).all())
        return UnitsMove(move.order, powers, move.signs) if meant else move
    if isinstance(move, BlockMove):
        clean = _permutation(move.matrix, near)
        return move if clean is None else BlockMove(clean)
    cleaned = [[_permutation(matrix, near) for matrix in head] for head in move.matrices]
    if any(matrix is None for head in cleaned for matrix in head):
        return HeadsMove(
            move.order, move.copies, tuple(tuple(_unturned(matrix, near) for matrix in head) for head in move.matrices)
        )
    return HeadsMove(move.order, move.copies, tuple(tuple(m for m in head if m is not None) for head in cleaned))


def _unturned(matrix: Floats, near: float) -> Floats:
    """A matrix of rotary pairs without phases that are rounding; any other matrix as it is."""
    if (matrix != 0).sum(1).max() > 2:
        return matrix
    return np.where(np.abs(matrix) < near * np.abs(matrix).max(1, keepdims=True), 0.0, matrix)


def _permutation(matrix: Floats, near: float) -> Floats | None:
    """The permutation with powers of two that a matrix is, if it is one."""
    largest = np.abs(matrix).argmax(1)
    rows = np.arange(len(matrix))
    values = matrix[rows, largest]
    if len(set(largest.tolist())) < len(matrix) or not (np.abs(values) > 0).all():
        return None
    powers = np.sign(values) * np.exp2(np.round(np.log2(np.abs(values))))
    clean = np.zeros_like(matrix)
    clean[rows, largest] = powers
    return clean if bool((np.abs(matrix - clean).max(1) < near * np.abs(powers)).all()) else None


def _conditioning(moves: Mapping[int, SpaceMove]) -> float:
    worst = 1.0
    for move in moves.values():
        if isinstance(move, UnitsMove):
            worst = max(worst, *(float(max(s.max(), 1 / s.min())) for s in move.scales.T), 1.0)
        else:
            given = [move.matrix] if isinstance(move, BlockMove) else [m for head in move.matrices for m in head]
            worst = max(worst, *(float(np.linalg.cond(matrix)) for matrix in given))
    return worst


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
    if frame is not None and not (plain(frame) and _unscaled(frame)):
        return False
    for name, odd in held:
        one, two = first[name].double(), second[name].double()[:, None]
        if frame is not None:
            two = frame.acts(two, absolute=not odd)
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
    two = moved({name: second[name].double()}, {p: f for p, f in acting.items() if p[0] == name}, [name])[name]
    gap = one.mean(reader.axis) - two.mean(reader.axis)
    unit = max(rounding_unit(state[name].dtype) for state in (first, second))
    return float(gap.abs().max()) <= max(1e-6, unit) * float(one.abs().max())


def _unscaled(frame: AxisFrame) -> bool:
    factors = np.concatenate([frame.factor, *(matrix[matrix != 0] for _, matrix in frame.blocks)])
    return bool((np.abs(factors) == 1).all())


def plain(frame: AxisFrame) -> bool:
    """Whether a frame only moves numbers and multiplies them by powers of two."""
    factors = np.concatenate([frame.factor, *(matrix[matrix != 0] for _, matrix in frame.blocks)])
    single = all(((matrix != 0).sum(1) == 1).all() for _, matrix in frame.blocks)
    return single and bool((np.abs(np.frexp(factors)[0]) == 0.5).all())
