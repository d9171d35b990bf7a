"""How far a tensor of B is from that of A after alignment, and how far rounding of stored numbers may take it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf

import torch

from lawful.checkpoints.carried import unscaled
from lawful.checkpoints.element import AxisFrame, moved
from lawful.checkpoints.folds import State, fold
from lawful.checkpoints.group import AxisPlace
from lawful.checkpoints.streamed import FoldCluster, rounding_unit, stored_size

NOISES = 4.0  # how far a whole tensor may be off: times what random rounding of the stored numbers does to it
OWN = 2.5  # units of an entry's own size that it may be off, in either checkpoint's own order and axes
WORKED = 2.0**-44  # at best: aligning rounds too
SPREAD, GAUGE = 6.0, 4.0  # besides: units of the root of its squared terms, if those are rounded; and for the alignment


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
        size = self.length if self.length > 4 * max(self.units) * float(terms.norm()) else 0.0
        return TensorDistance(name, relative, shares, entry, max(self.units), exact, False, excess, off=off, size=size)

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


def rounding_noise(cluster: FoldCluster, state: State, kinds: Mapping[str, torch.dtype], seed: int) -> State:
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
    if not cluster.folds:
        return {name: jiggled[name].sub_(wide[name]) for name in jiggled if name in kinds}
    before, after = (fold(each, cluster.folds) for each in (wide, jiggled))
    return {name: after[name] - before[name] for name in after if name in kinds}


def beside_others(distances: list[TensorDistance], sizes: Mapping[str, float]) -> list[TensorDistance]:
    """Where A has nothing but zeros, a distance is relative to all tensors of that layer (or of the layers around it).

    `sizes` are the lengths of all tensors of A.
    """
    found = []
    for each in distances:
        where, around = each.tensor, 0.0
        while not each.size and each.off and where and not around:
            where = where.rpartition(".")[0]
            within = f"{where}." if where else ""
            around = sum(size**2 for name, size in sizes.items() if name.startswith(within)) ** 0.5
        if around:
            relative = each.off / around
            noise = each.noise * relative / each.relative if each.relative < inf else each.noise
            each = replace(each, relative=relative, noise=noise, beside=where or "all tensors")
        found.append(each)
    return found


def moved_distance(
    name: str, first: torch.Tensor, second: torch.Tensor, acting: Mapping[AxisPlace, AxisFrame], unit: float
) -> TensorDistance:
    """For a tensor whose numbers are only moved: as they are stored, or stored in the fewer bits of the other file."""
    by = {place: frame for place, frame in acting.items() if place[0] == name}
    alike = first.dtype == second.dtype and all(unscaled(frame) for frame in by.values())
    if alike and torch.equal(first, moved({name: second}, by, [name])[name]):
        return TensorDistance(name, 0.0, 0.0, 0.0, unit, exact=True, moved_only=True)
    one = first.double()
    two = moved({name: second.double()}, by, [name])[name]
    gap = (one - two).abs()
    length, off = float(one.norm()), float(gap.norm())
    entry = _largest(gap, torch.maximum(one.abs(), two.abs()))
    exact = not bool(gap.any())
    found = TensorDistance(name, off / length if length else inf if off else 0.0, 0.0, entry, unit, exact, True,
                           off=off, size=length)  # fmt: skip
    if first.dtype != second.dtype:
        kind = max((first.dtype, second.dtype), key=rounding_unit)
        return replace(found, exact=torch.equal(one.to(kind), two.to(kind)))
    return found
