"""What was done to a tensor of a checkpoint: a change of low rank, numbers set to zero, rounded, put on a grid."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from lawful.checkpoints.align.lazy_tensors import rounding_unit
from lawful.checkpoints.align.unit_rows import Tensors
from lawful.checkpoints.compare.distances import TensorDistance
from lawful.checkpoints.rewrite.folds import State

TURNED = 1e-4  # of the largest singular value: less, after alignment, may come of that
ROUNDINGS = 4.0  # times what rounding of stored numbers does to a singular value: less is none
ON_GRID = 1e-3  # of a step
GROUPED = 16  # values that 4 bits have


@dataclass(frozen=True)
class TensorChange:
    """What happened to a tensor: its relative distance, and the kind of change if it has one."""

    tensor: str
    relative: float
    rank: int | None  # of the difference up to rounding of the stored numbers, if that is low
    zeroed: float  # share of entries that are zero in B and not in A, where the others stand
    levels: int | None  # of a grid on which all entries lie, if these are few
    rounded: str | None = None  # to a narrower type of numbers


@dataclass(frozen=True, eq=False)
class NearestTensors:
    """A tensor of A and that of B, as stored if these lie as near to each other as they ever do, else aligned."""

    tensor: str
    relative: float
    changed: bool
    product: float  # ⟨A, B⟩
    squares: tuple[float, float]
    as_stored: bool
    noise: float  # what random rounding of the stored numbers makes of ‖B − A‖
    both: Callable[[], tuple[torch.Tensor, torch.Tensor]]


def nearest_tensors(
    each: TensorDistance, first: State, one: Tensors, second: State, aligned: Mapping[str, torch.Tensor]
) -> NearestTensors:
    """Whichever of the stored and the aligned tensors lie nearer."""
    name = each.tensor
    if each.fits or not one[name].is_floating_point():
        return NearestTensors(
            name, each.relative, False, 0.0, (0.0, 0.0), True, 0.0, lambda: (first[name], second[name])
        )
    before, after = first[name].double(), second[name].double()
    size, off = float(before.norm()), float((after - before).norm())
    stored = off / size if size else float("inf") if off else 0.0
    as_stored = stored <= 1.05 * each.relative
    if not as_stored:
        before, after = one[name].double(), aligned[name].double()
    return NearestTensors(
        name,
        min(stored, each.relative),
        not torch.equal(before, after),
        float((before * after).sum()),
        (float(before.square().sum()), float(after.square().sum())),
        as_stored,
        0.0 if as_stored else each.noise * float(before.norm()),
        lambda: (first[name].double(), second[name].double()) if as_stored else (one[name], aligned[name]),
    )


def change_of(seen: NearestTensors, stored: tuple[torch.Tensor, torch.Tensor]) -> TensorChange:
    """What was done to a tensor that is not the same; `stored` is how A and B hold it."""
    before, after = seen.both()
    unit = max(rounding_unit(each.dtype) for each in stored)
    rank = _low_rank(before.double(), after.double(), unit, seen.noise)
    zeroed, levels = _zeroed(before, after), _levels(stored[1])
    return TensorChange(seen.tensor, seen.relative, rank, zeroed, levels, _rounded(*stored))


def _low_rank(before: torch.Tensor, after: torch.Tensor, unit: float, noise: float) -> int | None:
    """The rank of a difference up to rounding, if it is at most a quarter of what it could be.

    Independent errors of numbers make a matrix about as large as its longest row and column; `noise` is the length of
    those that come besides.
    """
    if before.ndim != 2 or min(before.shape) < 4:
        return None
    sizes = (before.abs() + after.abs()).square()
    rounding = unit * sum(float(sizes.sum(d).max()) ** 0.5 for d in (0, 1))
    rounding += noise * sum(size**-0.5 for size in before.shape)
    values = torch.linalg.svdvals(after - before)
    least = max(ROUNDINGS * rounding, TURNED * float(values[0]) if noise else 0.0)
    rank = int((values > least).sum())
    return rank if 0 < rank <= min(before.shape) // 4 else None


def _zeroed(one: torch.Tensor, two: torch.Tensor) -> float:
    """The share of entries that became zero, if the others are close to what they were."""
    gone = (two == 0) & (one != 0)
    stays = ~gone
    apart = float((two - one)[stays].norm())
    share = float(gone.double().mean())
    return share if share and apart <= 0.05 * float(one[stays].norm()) else 0.0


def _rounded(before: torch.Tensor, after: torch.Tensor) -> str | None:
    """The narrower type of numbers to which all entries were rounded."""
    for name, kind in (("bfloat16", torch.bfloat16), ("float16", torch.float16)):
        if torch.equal(before.to(kind).double(), after.double()):
            return name
    return None


def _levels(stored: torch.Tensor) -> int | None:
    """The largest step of a symmetric grid (7 or 127) on which every row, every column or the whole tensor lies; or 16
    if no group of 128, 64 or 32 consecutive numbers has more values than that."""
    if stored.ndim != 2 or min(stored.shape) < 8:
        return None
    wide = stored.double()
    for levels in (7, 127):
        for dims in ([1], [0], [0, 1]):
            step = wide.abs().amax(dims, keepdim=True) / levels
            places = wide / torch.where(step > 0, step, 1.0)
            if float((places - places.round()).abs().max()) < ON_GRID:
                return levels
    for size in (128, 64, 32):
        if stored.shape[1] % size == 0:
            groups = wide.reshape(-1, size).sort(dim=1).values
            values = 1 + (groups[:, 1:] != groups[:, :-1]).sum(1)
            if int(values.max()) <= GROUPED and int((groups != 0).sum(1).max()) > GROUPED:
                return GROUPED
    return None
