"""How two checkpoints are related: copy, child, sibling or stranger, and what was done to a child.

Alignment finds *some* nearest member for strangers too, so distances alone prove little. The statistic is the share of
units whose partner, found from one part of their weights alone (say, incoming ones), is also the partner found from the
other part alone. For unrelated weights about one unit of a whole layer agrees by chance, however well trained they are.
Layers of A held against other layers of B of the same shape are the null. Thresholds are on effect sizes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

import torch

from lawful.checkpoints.compare import WeightComparison
from lawful.checkpoints.distances import TensorDistance
from lawful.checkpoints.element import as_rows
from lawful.checkpoints.folds import State
from lawful.checkpoints.group import AxisRows, UnitSpace
from lawful.checkpoints.nearest import assign
from lawful.checkpoints.opening import CheckpointPair
from lawful.checkpoints.same import CheckpointVerdict, same_checkpoints
from lawful.checkpoints.streamed import folded_tensors
from lawful.checkpoints.unit_rows import Tensors
from lawful.shown import Shown

Relation = Literal["copy", "child", "relative", "sibling", "stranger", "undecided"]
RELATED, UNRELATED = 0.5, 0.25  # shares of units that agree
CHILD, SIBLING = 0.15, 0.5  # relative distances: below a child, above a sibling; between, they are not told apart
FEWEST = 16  # units in all from which agreement means anything
EXPLAINED = 0.99  # of a difference's squares, by a low-rank matrix
NULLS = 4
ON_GRID = 1e-3  # of a step


@dataclass(frozen=True)
class Agreement:
    """Of how many units of a space two independent matchings agree; `null` is that share for mismatched layers."""

    space: str
    units: int
    agree: int
    null: float | None

    @property
    def share(self) -> float:
        """As a fraction."""
        return self.agree / self.units


@dataclass(frozen=True)
class TensorChange:
    """What happened to a tensor: its relative distance, and the kind of change if it has one."""

    tensor: str
    relative: float
    rank: int | None  # of the difference, if that is low
    zeroed: float  # share of entries that are zero in B and not in A, where the others stand
    levels: int | None  # distinct values in a row, if these are few


@dataclass(frozen=True)
class KeptBlock:
    """Block `of` of A became this block of B: their distance, and that of the second nearest."""

    block: int
    of: int
    distance: float
    second: float


@dataclass(frozen=True)
class KeptBlocks:
    """B has some of the `count` blocks that A has in `container`, in order."""

    container: str
    count: int
    blocks: tuple[KeptBlock, ...]


@dataclass(frozen=True, eq=False)
class Kinship(Shown):
    """The relation of B to A, its evidence, and the tensors that changed."""

    relation: Relation
    reason: str
    verdict: CheckpointVerdict
    agreements: tuple[Agreement, ...]
    changes: tuple[TensorChange, ...]
    kept: KeptBlocks | None = None  # where B has fewer blocks: all else is about A without the others

    @property
    def share(self) -> float | None:
        """The median share of units that agree."""
        return median(each.share for each in self.agreements) if self.agreements else None

    @property
    def null(self) -> float | None:
        """The median of the same for mismatched layers."""
        found = [each.null for each in self.agreements if each.null is not None]
        return median(found) if found else None


def kinship(pair: CheckpointPair, *, seed: int = 0) -> Kinship:
    """Compare, align and tell apart."""
    first = pair.first.state
    verdict = same_checkpoints(pair.architecture, first, pair.second.state, seed=seed)
    found = verdict.comparison
    one = folded_tensors(first, pair.architecture.folds)
    agreements = _agreements(found, one)
    changes = tuple(_changes(found, first, one, pair.second.state))
    shapes = pair.architecture.group.shapes
    matrices = [each for each in found.distances if len(shapes.get(each.tensor, ())) > 1]
    relation, reason = _judged(verdict, agreements, matrices or found.distances)
    return Kinship(relation, reason, verdict, agreements, changes)


def _judged(
    verdict: CheckpointVerdict, agreements: Sequence[Agreement], distances: Sequence[TensorDistance]
) -> tuple[Relation, str]:
    if verdict.verdict == "equal":
        return "copy", verdict.reason
    units = sum(each.units for each in agreements)
    apart = median(each.relative for each in distances) if distances else float("inf")
    if units < FEWEST:
        return "undecided", f"{units} units are too few to tell a relative from a stranger"
    share = median(each.share for each in agreements)
    nulls = [each.null for each in agreements if each.null is not None]
    words = f"two independent matchings agree on {share:.0%} of the units"
    if nulls:
        words += f" ({median(nulls):.0%} for mismatched layers)"
    words += f"; the median weight matrix is {apart:.2g} of its size apart"
    if share >= RELATED and (not nulls or share >= 3 * median(nulls)):
        return ("child" if apart < CHILD else "sibling" if apart > SIBLING else "relative"), words
    chance = max(UNRELATED if units < 200 else 0.1, 3 * max((1 / each.units for each in agreements), default=1.0))
    if share <= min(chance, UNRELATED) and apart > SIBLING:
        return "stranger", words
    return "undecided", words


# Agreement


def _agreements(found: WeightComparison, one: Tensors) -> tuple[Agreement, ...]:
    spaces = [each for each in found.architecture.group.spaces if isinstance(each, UnitSpace) and each.permutes]
    split = [(space, parts) for space in spaces if space.size > 1 and (parts := _parts(space, one)) is not None]
    result = []
    for space, parts in split:
        agree = _agreement(space, parts, one, found.aligned, space, parts)
        others = [(other, theirs) for other, theirs in split
                  if other is not space and _alike(space, parts, other, theirs, one)]  # fmt: skip
        null = [_agreement(space, parts, one, found.aligned, *other) / space.size for other in others[:NULLS]]
        result.append(Agreement(space.name, space.size, agree, median(null) if null else None))
    return tuple(result)


Parts = tuple[list[AxisRows], list[AxisRows]]


def _parts(space: UnitSpace, tensors: Mapping[str, torch.Tensor]) -> Parts | None:
    """The members in two halves that share no tensor: the widest one, and the others."""
    width = {rows.tensor: tensors[rows.tensor].numel() // space.size for rows in space.members}
    widest = max(space.members, key=lambda rows: width[rows.tensor]).tensor
    halves = ([rows for rows in space.members if rows.tensor == widest],
              [rows for rows in space.members if rows.tensor != widest])  # fmt: skip
    enough = all(sum(width[rows.tensor] for rows in half) >= 3 for half in halves)
    return halves if enough else None


def _alike(
    space: UnitSpace, parts: Parts, other: UnitSpace, theirs: Parts, tensors: Mapping[str, torch.Tensor]
) -> bool:
    if space.size != other.size or [len(half) for half in parts] != [len(half) for half in theirs]:
        return False
    return all(
        tensors[a.tensor].shape == tensors[b.tensor].shape and a.dims == b.dims
        for half, half_b in zip(parts, theirs, strict=True)
        for a, b in zip(half, half_b, strict=True)
    )


def _agreement(space: UnitSpace, parts: Parts, one: Tensors, two: Tensors, other: UnitSpace, theirs: Parts) -> int:
    """On how many units two matchings agree, each from half of the weights; rows count by their direction."""
    orders = []
    for half, half_b in zip(parts, theirs, strict=True):
        likeness = torch.zeros(space.size, other.size, dtype=torch.float64)
        for a, b in zip(half, half_b, strict=True):
            left, right = (_directions(rows, tensors) for rows, tensors in ((a, one), (b, two)))
            product = left @ right.T
            likeness += product.abs() if space.signed and a.odd else product
        orders.append(assign(likeness))
    return int((orders[0] == orders[1]).sum())


def _directions(rows: AxisRows, tensors: Mapping[str, torch.Tensor]) -> torch.Tensor:
    table = as_rows(tensors[rows.tensor], rows.dims)[torch.as_tensor(rows.places)].reshape(len(rows.places), -1)
    return torch.nn.functional.normalize(table.double(), dim=1)


# Changes


def _changes(found: WeightComparison, first: State, one: Tensors, second: State) -> list[TensorChange]:
    """What was done to each tensor that is not the same: seen as stored if it lies as near as it is, else aligned."""
    changed = []
    for each in found.distances:
        name = each.tensor
        if each.fits or not one[name].is_floating_point():
            continue
        before, after = first[name].double(), second[name].double()
        size = float(before.norm())
        stored = float((after - before).norm()) / size if size else float("inf")
        if stored > 1.05 * each.relative:
            before, after = one[name], found.aligned[name]
        if torch.equal(before, after):
            continue
        relative = min(stored, each.relative)
        changed.append(
            TensorChange(name, relative, _low_rank(after - before), _zeroed(before, after), _levels(second[name]))
        )
    return sorted(changed, key=lambda change: -change.relative)


def _low_rank(gap: torch.Tensor) -> int | None:
    """The rank of a difference, if it is at most a quarter of what it could be."""
    if gap.ndim != 2 or min(gap.shape) < 4:
        return None
    squares = torch.linalg.svdvals(gap).square()
    if not float(squares.sum()):
        return None
    rank = int((squares.cumsum(0) < EXPLAINED * squares.sum()).sum()) + 1
    return rank if rank <= min(gap.shape) // 4 else None


def _zeroed(one: torch.Tensor, two: torch.Tensor) -> float:
    """The share of entries that became zero, if the others are close to what they were."""
    gone = (two == 0) & (one != 0)
    stays = ~gone
    apart = float((two - one)[stays].norm())
    share = float(gone.double().mean())
    return share if share and apart <= 0.05 * float(one[stays].norm()) else 0.0


def _levels(stored: torch.Tensor) -> int | None:
    """The largest step of a symmetric grid (127 or 7) on which every row, every column or the whole tensor lies."""
    if stored.ndim != 2 or min(stored.shape) < 8:
        return None
    wide = stored.double()
    for levels in (7, 127):
        for dims in ([1], [0], [0, 1]):
            step = wide.abs().amax(dims, keepdim=True) / levels
            places = wide / torch.where(step > 0, step, 1.0)
            if float((places - places.round()).abs().max()) < ON_GRID:
                return levels
    return None
