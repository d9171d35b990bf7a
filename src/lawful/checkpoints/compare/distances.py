"""How far a tensor of B is from that of A after alignment, and how far rounding of stored numbers may take it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import inf

import numpy as np
import torch

from lawful.checkpoints.align.lazy_tensors import FoldCluster, rounding_unit, stored_size
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
    apply_folds,
)

# Which tensors are compared up to rounding, because something was computed, and which have to be the same numbers.

MEANT_EQUAL = 4.0  # units of rounding within which gains are meant to be equal: then they are held to that, exactly


def find_computed(
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
    worked = set(shifts) | {name for (name, _), frame in acting.items() if not plain(frame)}
    carried: dict[str, AxisFrame] = {}
    for step in architecture.folds:
        removed, touched, place = _parts(step)
        if _carried_over(step, removed, place, first, second, acting):
            frame = acting.get(place)
            for name, odd in removed:
                count = len(first[name])
                carried[name] = AxisFrame(np.arange(count), np.ones(count)) if frame is None else _lines(frame, odd)
        else:
            worked |= {*(name for name, _ in removed), *touched}
    return worked, {name: frame for name, frame in carried.items() if name not in worked}


def _lines(frame: AxisFrame, odd: bool) -> AxisFrame:
    """A frame that only permutes (and turns signs, if odd), without matrices."""
    places = torch.arange(1, len(frame.source) + 1, dtype=torch.float64)[:, None]
    after = frame.acts(places)[:, 0].numpy()
    return AxisFrame((np.abs(after) - 1).astype(np.intp), np.sign(after) if odd else np.ones(len(after)))


def _parts(step: Fold) -> tuple[list[tuple[str, bool]], list[str], AxisPlace]:
    """What a fold takes away (with a sign that follows that of the value, or not), what it changes, and its axis."""
    if isinstance(step, GainFold):
        removed = [(name, odd) for name, odd in ((step.gain, False), (step.offset, True)) if name is not None]
        touched = [name for reader in step.readers for name in (reader.weight, reader.bias) if name is not None]
        return removed, touched, (step.readers[0].weight, (step.readers[0].axis,))
    if isinstance(step, StatisticsFold):
        writer = step.writer
        touched = [] if writer is None else [name for name in (writer.weight, writer.bias) if name is not None]
        removed = [(name, False) for name in (step.gain, step.offset, step.mean, step.variance)]
        return removed, touched, (step.offset, (0,))
    if isinstance(step, ValueFold):
        return [(step.bias, True)], [str(step.reader.bias)], (step.bias, (0,))
    if isinstance(step, CentreFold):
        return [(step.amount, False)], [step.tensor], (step.amount, (0,))
    if isinstance(step, MoveFold):
        return [(step.source, True)], [step.target], (step.target, (0,))
    return [(step.tensor, True)], [], (step.tensor, (0,))


def _carried_over(
    step: Fold,
    removed: list[tuple[str, bool]],
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
    for name, odd in removed:
        one, two = first[name].double(), second[name].double()[:, None]
        if frame is not None:
            two = frame.acts(two, seen=(lambda factors: factors) if odd else torch.abs)
        unit = max(rounding_unit(state[name].dtype) for state in (first, second))
        if float((one - two[:, 0]).abs().max()) > MEANT_EQUAL * unit * float(one.abs().max()):
            return False
    if isinstance(step, GainFold) and step.centred:
        return all(_same_means(reader, first, second, acting) for reader in step.readers)
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


# How far a whole tensor may be off: times what random rounding of the stored numbers does to it. Alignment fits its
# matrices to rounded numbers, which adds an error of the same size: two at most from both files, doubled.
NOISES = 4.0
# Units of an entry's own size that it may be off, in either checkpoint's own order and axes: half a unit was rounded
# away in each file, and scales are found to one unit from a row of rounded numbers.
OWN = 2.5
WORKED = 2.0**-44  # the least unit of rounding that is assumed: a sum of 512 products in float64 loses it
SLAB = 2**22  # numbers of a large tensor that are looked at together
# Besides, where terms are added up: units of the root of their squares. Independent roundings add up as a random walk,
# which passes six standard deviations once in 5e8 entries; the matrices of the alignment are off by as many units.
SPREAD, GAUGE = 6.0, 4.0


@dataclass(frozen=True)
class TensorDistance:
    """How far a tensor of B is from that of A after alignment.

    `relative` is `‖B − A‖/‖A‖` (if A's numbers are zero, relative to all tensors of the layer that `beside` names),
    `noise` what random rounding of the stored numbers would make of it; `entry` is the largest difference of an entry
    relative to the sum of its terms. `excess` is the largest difference of an entry, in the order and axes of A or in
    those of B, relative to what rounding of single numbers does there. `exact`: no entry differs; `moved_only`: nothing
    was computed, so it should be exact.
    """

    tensor: str
    relative: float
    noise: float
    entry: float
    unit: float
    exact: bool
    moved_only: bool
    excess: float = 0.0
    beside: str | None = None
    off: float = 0.0  # ‖B − A‖
    size: float = 0.0  # ‖A‖, 0 if it is no more than rounding

    @property
    def fits(self) -> bool:
        """Whether rounding explains what is left."""
        if self.exact or self.moved_only:
            return self.exact
        return self.excess <= 1.0 and self.relative <= NOISES * self.noise


class AlignedDifference:
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
        self.one, self.two, self.sizes, self.by, self.added, self.units = one, two, sizes, by, added, units

    def distance(self, name: str, noise: float) -> TensorDistance:
        """All that is known of it."""
        measured = [_measure_slab(name, slab, self.by, self.units) for slab in self._slabs()]
        off, length_of_a, whole = (sum(slab[k] ** 2 for slab in measured) ** 0.5 for k in range(3))
        entry, excess = (max(slab[k] for slab in measured) for k in (3, 4))
        length = length_of_a or whole
        relative = off / length if length else inf if off else 0.0
        shares = noise / length if length else 0.0
        size = length_of_a if length_of_a > 4 * max(self.units) * whole else 0.0
        unit = max(self.units)
        return TensorDistance(name, relative, shares, entry, unit, not off, False, excess, off=off, size=size)

    def _slabs(self) -> Iterator[_Slab]:
        """Parts of a large tensor along a dimension that nothing acts on."""
        still = set(range(self.one.ndim)) - {d for _, dims in self.by for d in dims}
        count = -(-self.one.numel() // SLAB)
        if self.added or not still or count < 2:
            yield _Slab(self.one, self.two - self.one, self.sizes, self.added)
            return
        dim = max(still, key=lambda d: self.one.shape[d])
        parts = (tensor.tensor_split(count, dim) for tensor in (self.one, self.two, *self.sizes))
        for one, two, first, second in zip(*parts, strict=True):
            yield _Slab(one, two - one, (first, second), [])


@dataclass(frozen=True, eq=False)
class _Slab:
    """Part of a tensor of A, what that of B is beyond it, the sums of the sizes of the terms of both, and what was
    added."""

    one: torch.Tensor
    gap: torch.Tensor
    sizes: tuple[torch.Tensor, torch.Tensor]
    added: list[torch.Tensor]


def _measure_slab(
    name: str, slab: _Slab, by: Mapping[AxisPlace, AxisFrame], units: tuple[float, float]
) -> tuple[float, float, float, float, float]:
    """Lengths of difference, A and terms; the largest entry beside its terms, and beside what rounding may do."""
    terms = _terms(name, slab, by)
    lengths = _length(slab.gap), _length(slab.one), _length(terms)
    if not bool(slab.gap.any()):
        return *lengths, 0.0, 0.0
    entry = _largest(slab.gap, terms)
    del terms
    return *lengths, entry, max(_excess_in_a(name, slab, by, units), _excess_in_b(name, slab, by, units))


def _length(tensor: torch.Tensor) -> float:
    """The norm; not zero where squares of small numbers vanish."""
    if not tensor.numel():
        return 0.0
    norm = torch.linalg.vector_norm
    return max(float(norm(tensor, dtype=torch.float64)), float(norm(tensor, inf)))


def _terms(name: str, slab: _Slab, by: Mapping[AxisPlace, AxisFrame]) -> torch.Tensor:
    """The sums of the absolute values of all terms."""
    sums = torch.maximum(move_tensors({name: slab.sizes[1]}, by, seen=torch.abs)[name], slab.sizes[0])
    for piece in slab.added:
        sums = sums + piece.abs().to(sums.dtype)
    return sums


def _excess_in_a(name: str, slab: _Slab, by: Mapping[AxisPlace, AxisFrame], units: tuple[float, float]) -> float:
    """In A's order and axes: A's numbers are rounded one by one, those of B are mixed."""
    mixed = move_tensors({name: slab.sizes[1].square()}, by, seen=torch.square)[name].sqrt_()
    for piece in slab.added:
        mixed = mixed + piece.abs().to(mixed.dtype) + _mean_size(mixed, piece)
    allowed = mixed.mul_(SPREAD * units[1] + GAUGE * max(units))
    return _largest(slab.gap, allowed.add_(slab.sizes[0], alpha=OWN * units[0]))


def _excess_in_b(name: str, slab: _Slab, by: Mapping[AxisPlace, AxisFrame], units: tuple[float, float]) -> float:
    """In B's: the other way round."""
    mixed = move_tensors({name: slab.sizes[0].square()}, by, back=True, seen=torch.square)[name].sqrt_()
    for piece in slab.added:
        size = (piece.abs().to(slab.gap.dtype) + _mean_size(slab.sizes[0], piece)).expand(slab.gap.shape)
        mixed = mixed + move_tensors({name: size}, by, back=True, seen=torch.abs)[name]
    allowed = mixed.mul_(SPREAD * units[0] + GAUGE * max(units))
    gap = move_tensors({name: slab.gap}, by, back=True)[name]
    return _largest(gap, allowed.add_(slab.sizes[1], alpha=OWN * units[1]))


def _mean_size(sizes: torch.Tensor, piece: torch.Tensor) -> torch.Tensor:
    """Root mean square where something constant was added: it was found as a mean of these."""
    dims = [d for d, size in enumerate(piece.shape) if size == 1 and sizes.shape[d] > 1]
    return sizes.square().mean(dims, keepdim=True).sqrt() if dims else sizes


def _largest(gap: torch.Tensor, size: torch.Tensor) -> float:
    """The largest share; a difference where nothing is is beyond all bounds."""
    shares = gap.abs().div_(size.clamp_min(torch.finfo(size.dtype).tiny))
    return float(shares.max()) if shares.numel() else 0.0


def rounding_noise(
    cluster: FoldCluster,
    state: State,
    kinds: Mapping[str, torch.dtype],
    by: Mapping[AxisPlace, AxisFrame],
    seed: int,
) -> dict[str, float]:
    """How far random rounding of the stored numbers takes the folded tensors of a cluster, once they are moved."""
    generator = torch.Generator().manual_seed(seed)
    jiggled, wide = {}, {}
    for name in cluster.names:
        wide[name] = jiggled[name] = state[name]
        if name in kinds:
            wide[name] = state[name].to(kinds[name])
            shares = torch.rand(wide[name].shape, generator=generator, dtype=kinds[name]).mul_(2).sub_(1)
            unit = max(rounding_unit(state[name].dtype), WORKED)
            jiggled[name] = shares.mul_(stored_size(state[name], wide[name])).mul_(unit).add_(wide[name])
    if cluster.folds:
        jiggled, wide = apply_folds(jiggled, cluster.folds), apply_folds(wide, cluster.folds)
    scaling = {place: frame.scaling for place, frame in by.items() if place[0] in jiggled}
    noise = {}
    for name in list(jiggled):
        if name in kinds:
            apart = {name: jiggled.pop(name).sub_(wide.pop(name))}
            noise[name] = float(move_tensors(apart, scaling, [name])[name].norm())
    return noise


def beside_others(distances: list[TensorDistance], sizes: Mapping[str, float]) -> list[TensorDistance]:
    """Where A has nothing but zeros, a distance is relative to all tensors of that layer (or of the layers around it).

    `sizes` are the lengths of all tensors of A.
    """
    relative_distances = []
    for distance in distances:
        where, around = distance.tensor, 0.0
        while not distance.size and distance.off and where and not around:
            where = where.rpartition(".")[0]
            within = f"{where}." if where else ""
            around = sum(size**2 for name, size in sizes.items() if name.startswith(within)) ** 0.5
        if around:
            relative = distance.off / around
            noise = distance.noise * relative / distance.relative if distance.relative < inf else distance.noise
            distance = replace(distance, relative=relative, noise=noise, beside=where or "all tensors")
        relative_distances.append(distance)
    return relative_distances


def moved_distance(
    name: str, first: torch.Tensor, second: torch.Tensor, acting: Mapping[AxisPlace, AxisFrame], unit: float
) -> TensorDistance:
    """For a tensor whose numbers are only moved: as they are stored, or stored in the fewer bits of the other file."""
    by = {place: frame for place, frame in acting.items() if place[0] == name}
    alike = first.dtype == second.dtype and all(is_unscaled(frame) for frame in by.values())
    if alike and torch.equal(first, move_tensors({name: second}, by, [name])[name]):
        return TensorDistance(name, 0.0, 0.0, 0.0, unit, exact=True, moved_only=True)
    one = first.double()
    two = move_tensors({name: second.double()}, by, [name])[name]
    gap = (one - two).abs()
    length, off = float(one.norm()), float(gap.norm())
    entry = _largest(gap, torch.maximum(one.abs(), two.abs()))
    exact = not bool(gap.any())
    distance = TensorDistance(name, off / length if length else inf if off else 0.0, 0.0, entry, unit, exact, True,
                           off=off, size=length)  # fmt: skip
    if first.dtype != second.dtype:
        kind = max((first.dtype, second.dtype), key=rounding_unit)
        return replace(distance, exact=torch.equal(one.to(kind), two.to(kind)))
    return distance
