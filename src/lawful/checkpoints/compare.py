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

from lawful.checkpoints.align import Alignment, plus, search, shift_parts
from lawful.checkpoints.architecture import CheckpointArchitecture
from lawful.checkpoints.element import AxisFrame, BlockMove, SpaceMove, UnitsMove, frames, identity, moved
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
from lawful.checkpoints.group import AxisPlace, MatrixBlock, OrbitGroup
from lawful.checkpoints.snap import snapped
from lawful.checkpoints.streamed import (
    FoldCluster,
    MadeTensors,
    fold_clusters,
    folded_tensors,
    rounding_unit,
    stored_size,
    working_types,
)
from lawful.errors import InvalidNetwork
from lawful.symmetry.families import SpaceLaws

MEANT_EQUAL = 4.0  # units of rounding within which gains are meant to be equal
NOISES = 4.0  # and a whole tensor: times what random rounding of the stored numbers does to it
OWN = 2.5  # units of an entry's own size that it may be off, in either checkpoint's own order and axes
WORKED = 2.0**-44  # at best: aligning rounds too
SPREAD, GAUGE = 6.0, 4.0  # besides: units of the root of its squared terms, if those are rounded; and for the alignment


@dataclass(frozen=True)
class TensorDistance:
    """How far a tensor of B is from that of A after alignment.

    `relative` is `‖B − A‖/‖A‖` (relative to all terms if A's numbers are zero), `noise` what random rounding of the
    stored numbers would make of it; `entry` is the largest difference of an entry relative to the sum of its terms.
    `excess` is the largest difference of an entry, in the order and axes of A or in those of B, relative to what
    rounding of single numbers does there. `exact`: no entry differs; `moved_only`: nothing was computed, so it should
    be exact.
    """

    tensor: str
    relative: float
    noise: float
    entry: float
    unit: float
    exact: bool
    moved_only: bool
    excess: float = 0.0

    @property
    def fits(self) -> bool:
        """Whether rounding explains what is left."""
        if self.exact or self.moved_only:
            return self.exact
        return self.excess <= 1.0 and self.relative <= NOISES * self.noise


@dataclass(frozen=True, eq=False)
class WeightComparison:
    """Everything that alignment found: the group element as frames, the shifts, and the distances that are left."""

    architecture: CheckpointArchitecture
    alignment: Alignment
    frames: Mapping[AxisPlace, AxisFrame]
    shifts: Mapping[str, list[torch.Tensor]]
    distances: tuple[TensorDistance, ...]
    aligned: Mapping[str, torch.Tensor]  # folded, made when asked for
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
    kinds = working_types(first, second)
    if all(_stored_alike(first[name], second[name]) for name in first):
        unmoved = Alignment({number: identity(space) for number, space in enumerate(group.spaces)}, 0)
        return _judged(architecture, unmoved, first, second, kinds)
    unit = max((rounding_unit(state[name].dtype) for state in (first, second) for name in group.shapes), default=0.0)
    one, two = (folded_tensors(state, folds, kinds) for state in (first, second))
    found = search(group, one, two, unit=unit)
    moves = {number: snapped(move, unit) for number, move in found.moves.items()}
    return _judged(architecture, Alignment(moves, found.passes), first, second, kinds)


def compare_moved(
    architecture: CheckpointArchitecture, moves: Mapping[int, SpaceMove], first: State, second: State
) -> WeightComparison:
    """Compare after moves that are known."""
    return _judged(architecture, Alignment(dict(moves), 0), first, second, working_types(first, second))


def _judged(
    architecture: CheckpointArchitecture,
    alignment: Alignment,
    first: State,
    second: State,
    kinds: Mapping[str, torch.dtype],
) -> WeightComparison:
    """Compare after one alignment, one cluster of tensors after the other."""
    group, folds = architecture.group, architecture.folds
    acting = frames(group, alignment.moves)
    one, two = (folded_tensors(state, folds, kinds) for state in (first, second))
    turned = MadeTensors(second, lambda name: moved(two, acting, [name]))
    units = {
        name: (max(rounding_unit(first[name].dtype), WORKED), max(rounding_unit(second[name].dtype), WORKED))
        for name, tensor in first.items()
        if tensor.is_floating_point()
    }
    shifts = _shifts(group.shifts, one, turned, units)
    aligned = plus(turned, shifts)
    worked, carried = computed(architecture, first, second, acting, shifts)
    clusters = fold_clusters(first, folds)
    sizes = [folded_tensors(state, folds, kinds, absolute=True) for state in (first, second)]
    distances = []
    for cluster in dict.fromkeys(clusters.values()):
        rounded: list[State] | None = None
        by: dict[AxisPlace, AxisFrame]
        for name in cluster.names:
            if name not in units:
                same = torch.equal(first[name], second[name])
                if not same and not name.endswith("num_batches_tracked"):
                    distances.append(TensorDistance(name, inf, 0.0, inf, 0.0, exact=False, moved_only=True))
            elif name in carried:
                by = {(name, (0,)): carried[name]}
                distances.append(_moved_distance(name, first[name], second[name], by, max(units[name])))
            elif name not in worked:
                distances.append(_moved_distance(name, first[name], second[name], acting, max(units[name])))
            else:
                if rounded is None:
                    rounded = [_noise(cluster, state, kinds, 1 + place) for place, state in enumerate((first, second))]
                by = {place: frame for place, frame in acting.items() if place[0] == name}
                held = sizes[0][name], sizes[1][name]
                off = _Difference(one[name], aligned[name], held, by, shifts.get(name, []), units[name])
                noise = float(rounded[0][name].norm()) + float(
                    moved(rounded[1], {place: frame.scaling for place, frame in by.items()}, [name])[name].norm()
                )
                distances.append(off.distance(name, noise))
    order = {name: place for place, name in enumerate(first)}
    distances.sort(key=lambda each: order[each.tensor])
    acting |= {(name, (0,)): frame for name, frame in carried.items()}
    return WeightComparison(
        architecture, alignment, acting, shifts, tuple(distances), aligned, _conditioning(group, alignment.moves)
    )


def _shifts(
    laws: tuple[SpaceLaws, ...],
    one: Mapping[str, torch.Tensor],
    turned: Mapping[str, torch.Tensor],
    units: Mapping[str, tuple[float, float]],
) -> dict[str, list[torch.Tensor]]:
    """What has to be added to B along directions that no operation sees."""
    touched = list(dict.fromkeys(name for each in laws for name in each.parameters))
    apart = MadeTensors(touched, lambda name: {name: one[name] - turned[name]})
    shifts = {}
    for name, pieces in shift_parts(apart, laws).items():
        largest = float(torch.maximum(one[name].abs().max(), turned[name].abs().max()))
        least = max(units[name]) * largest
        if kept := [piece for piece in pieces if float(piece.abs().max()) > least]:  # the others are rounding
            shifts[name] = kept
    return shifts


class _Difference:
    """A tensor of A and that of B, aligned: how far apart, and how far rounding may take them."""

    def __init__(
        self,
        one: torch.Tensor,
        two: torch.Tensor,
        sizes: tuple[torch.Tensor, torch.Tensor],
        by: Mapping[AxisPlace, AxisFrame],
        added: list[torch.Tensor],
        units: tuple[float, float],
    ) -> None:
        self.length = float(one.norm())
        self.gap = two - one
        self.sizes, self.by, self.added, self.units = sizes, by, added, units

    def distance(self, name: str, noise: float) -> TensorDistance:
        """All that is known of it."""
        terms = self._terms(name)
        off, length = float(self.gap.norm()), self.length or float(terms.norm())
        relative = off / length if length else inf if off else 0.0
        entry = _largest(self.gap, terms)
        excess = max(self._excess_in_a(name), self._excess_in_b(name)) if off else 0.0
        exact = not bool(self.gap.any())
        shares = noise / length if length else 0.0
        return TensorDistance(name, relative, shares, entry, max(self.units), exact, moved_only=False, excess=excess)

    def _terms(self, name: str) -> torch.Tensor:
        """The sums of the absolute values of all terms."""
        found = torch.maximum(moved({name: self.sizes[1]}, self.by, seen=torch.abs)[name], self.sizes[0])
        for piece in self.added:
            found = found + piece.abs().to(found.dtype)
        return found

    def _excess_in_a(self, name: str) -> float:
        """In A's order and axes: A's numbers are rounded one by one, those of B are mixed."""
        mixed = moved({name: self.sizes[1].square()}, self.by, seen=torch.square)[name].sqrt_()
        for piece in self.added:
            mixed = mixed + piece.abs().to(mixed.dtype) + _mean_size(mixed, piece)
        allowed = mixed.mul_(SPREAD * self.units[1] + GAUGE * max(self.units))
        return _largest(self.gap, allowed.add_(self.sizes[0], alpha=OWN * self.units[0]))

    def _excess_in_b(self, name: str) -> float:
        """In B's: the other way round."""
        mixed = moved({name: self.sizes[0].square()}, self.by, back=True, seen=torch.square)[name].sqrt_()
        for piece in self.added:
            size = (piece.abs().to(self.gap.dtype) + _mean_size(self.sizes[0], piece)).expand(self.gap.shape)
            mixed = mixed + moved({name: size}, self.by, back=True, seen=torch.abs)[name]
        allowed = mixed.mul_(SPREAD * self.units[0] + GAUGE * max(self.units))
        gap = moved({name: self.gap}, self.by, back=True)[name]
        return _largest(gap, allowed.add_(self.sizes[1], alpha=OWN * self.units[1]))


def _mean_size(sizes: torch.Tensor, piece: torch.Tensor) -> torch.Tensor:
    """Root mean square where something constant was added: it was found as a mean of these."""
    dims = [d for d, size in enumerate(piece.shape) if size == 1 and sizes.shape[d] > 1]
    return sizes.square().mean(dims, keepdim=True).sqrt() if dims else sizes


def _largest(gap: torch.Tensor, size: torch.Tensor) -> float:
    """The largest share; a difference where nothing is is beyond all bounds."""
    gap = gap.abs()
    shares = torch.where(gap > 0, gap / size.clamp_min(torch.finfo(size.dtype).tiny), 0.0)
    return float(shares.max()) if shares.numel() else 0.0


def check_numbers(state: Mapping[str, torch.Tensor], which: str) -> None:
    """Refuse NaN and infinities, by name."""
    for name, tensor in state.items():
        if not tensor.is_floating_point() or bool(torch.isfinite(tensor.sum(dtype=torch.float64))):
            continue  # a sum of narrower numbers cannot overflow
        if not bool(torch.isfinite(tensor).all()):
            raise InvalidNetwork(f"{which}: {name} holds NaN or infinite numbers")


def _stored_alike(one: torch.Tensor, two: torch.Tensor) -> bool:
    """Whether tensors hold the same numbers, once both are stored in the fewer bits of the two."""
    if not one.is_floating_point() or not two.is_floating_point():
        return True
    kind = max((one.dtype, two.dtype), key=rounding_unit)
    return torch.equal(one.to(kind), two.to(kind))


def _noise(cluster: FoldCluster, state: State, kinds: Mapping[str, torch.dtype], seed: int) -> State:
    """What random rounding of the stored numbers does to the folded tensors of a cluster."""
    generator = torch.Generator().manual_seed(seed)
    wide, jiggled = {}, {}
    for name in cluster.names:
        wide[name] = jiggled[name] = state[name]
        if name in kinds:
            wide[name] = state[name].to(kinds[name])
            shares = torch.rand(wide[name].shape, generator=generator, dtype=kinds[name]).mul_(2).sub_(1)
            unit = max(rounding_unit(state[name].dtype), WORKED)
            jiggled[name] = shares.mul_(stored_size(state[name], wide[name])).mul_(unit).add_(wide[name])
    before, after = (fold(each, cluster.folds) for each in (wide, jiggled))
    return {name: after[name] - before[name] for name in after if name in kinds}


def _moved_distance(
    name: str, first: torch.Tensor, second: torch.Tensor, acting: Mapping[AxisPlace, AxisFrame], unit: float
) -> TensorDistance:
    """For a tensor whose numbers are only moved: as they are stored, or stored in the fewer bits of the other file."""
    by = {place: frame for place, frame in acting.items() if place[0] == name}
    alike = first.dtype == second.dtype and all(_unscaled(frame) for frame in by.values())
    if alike and torch.equal(first, moved({name: second}, by, [name])[name]):
        return TensorDistance(name, 0.0, 0.0, 0.0, unit, exact=True, moved_only=True)
    one = first.double()
    two = moved({name: second.double()}, by, [name])[name]
    gap = (one - two).abs()
    length, off = float(one.norm()), float(gap.norm())
    entry = _largest(gap, torch.maximum(one.abs(), two.abs()))
    exact = not bool(gap.any())
    found = TensorDistance(name, off / length if length else inf if off else 0.0, 0.0, entry, unit, exact, True)
    if first.dtype != second.dtype:
        kind = max((first.dtype, second.dtype), key=rounding_unit)
        return replace(found, exact=torch.equal(one.to(kind), two.to(kind)))
    return found


def _conditioning(group: OrbitGroup, moves: Mapping[int, SpaceMove]) -> float:
    worst = 1.0
    for number, move in moves.items():
        space = group.spaces[number]
        if isinstance(move, UnitsMove):
            worst = max(worst, *(float(max(s.max(), 1 / s.min())) for s in move.scales.T), 1.0)
        elif not (isinstance(space, MatrixBlock) and space.kind in ("O", "O fixing 1")):
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
