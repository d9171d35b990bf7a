"""How two checkpoints of a module are related, and what was done to a relative.

Whether they are related is decided by `verdict.py`. Of relatives, near ones are *fine-tuned* (which of the two came
first, or a third before both, is not told). Of farther ones it is seen in what each holds of the other, `⟨A, B⟩/‖A‖²`:
training on adds to A what has little to do with A, so that a child holds all of A however far it went; of two that only
began together, each lacks what the other has learnt. Decay of weights shrinks all matrices of a child alike.

The share of units whose partner, found from one part of their weights alone (say, incoming ones), is also the partner
found from the other part alone is reported as an effect. It decides nothing: networks trained apart agree too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import sqrt
from statistics import median

import numpy as np
import torch

from lawful.checkpoints.align.assignment import assign
from lawful.checkpoints.align.lazy_tensors import folded_tensors, rounding_unit
from lawful.checkpoints.align.procrustes import Tensors
from lawful.checkpoints.compare.decide import CheckpointVerdict, same_checkpoints
from lawful.checkpoints.compare.distances import TensorDistance
from lawful.checkpoints.compare.entries import WeightComparison
from lawful.checkpoints.group.axis_actions import as_rows
from lawful.checkpoints.group.spaces import AxisRows, UnitSpace, unit_spaces
from lawful.checkpoints.opening import CheckpointPair
from lawful.checkpoints.relations.verdict import NEAR, Lineage, trace_lineage
from lawful.checkpoints.rewrite.folds import State
from lawful.network.reading import list_names
from lawful.result import Shown
from lawful.sentences.checkpoints import RELATION_WORDS, Relation

# What was done to a tensor of a checkpoint: a change of low rank, numbers set to zero, rounded, put on a grid.

TURNED = 1e-4  # of the largest singular value: less, after alignment, may come of that
# Times the length of a row and a column of independent roundings, which is about the largest singular value that they
# make (Bai and Yin 1988): a change below four times that is none.
ROUNDINGS = 4.0
ON_GRID = 1e-3  # of a step: multiples of one that are stored in float32 are off by 1e-5, other numbers by up to a half
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
    distance: TensorDistance, first: State, one: Tensors, second: State, aligned: Mapping[str, torch.Tensor]
) -> NearestTensors:
    """Whichever of the stored and the aligned tensors lie nearer."""
    name = distance.tensor
    if distance.fits or not one[name].is_floating_point():
        return NearestTensors(
            name, distance.relative, False, 0.0, (0.0, 0.0), True, 0.0, lambda: (first[name], second[name])
        )
    before, after = first[name].double(), second[name].double()
    size, off = float(before.norm()), float((after - before).norm())
    stored = off / size if size else float("inf") if off else 0.0
    as_stored = stored <= 1.05 * distance.relative
    if not as_stored:
        before, after = one[name].double(), aligned[name].double()
    return NearestTensors(
        name,
        min(stored, distance.relative),
        not torch.equal(before, after),
        float((before * after).sum()),
        (float(before.square().sum()), float(after.square().sum())),
        as_stored,
        0.0 if as_stored else distance.noise * float(before.norm()),
        lambda: (first[name].double(), second[name].double()) if as_stored else (one[name], aligned[name]),
    )


def change_of(seen: NearestTensors, stored: tuple[torch.Tensor, torch.Tensor]) -> TensorChange:
    """What was done to a tensor that is not the same; `stored` is how A and B hold it."""
    before, after = seen.both()
    unit = max(rounding_unit(tensor.dtype) for tensor in stored)
    rank = _low_rank(before.double(), after.double(), unit, seen.noise)
    zeroed, levels = _share_of_new_zeros(before, after), _levels(stored[1])
    return TensorChange(seen.tensor, seen.relative, rank, zeroed, levels, _narrower_type(*stored))


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


def _share_of_new_zeros(one: torch.Tensor, two: torch.Tensor) -> float:
    """The share of entries that became zero, if the others are close to what they were."""
    gone = (two == 0) & (one != 0)
    stays = ~gone
    apart = float((two - one)[stays].norm())
    share = float(gone.double().mean())
    return share if share and apart <= 0.05 * float(one[stays].norm()) else 0.0


def _narrower_type(before: torch.Tensor, after: torch.Tensor) -> str | None:
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


# The shares and cosines from here to `ELSEWHERE` choose words for relatives that the test of places has established
# already, or turn *stranger* into *undecided*: none of them makes a relation, so none has an error rate of its own.
WHOLE, MOST = 0.9, 0.8  # of the median matrix of A that a child of long training holds, and of nine in ten
LACKING, UNEVEN = 0.85, 0.3  # of the median matrix, at most, for siblings; and how much that has to vary over matrices
REPLACED = 0.2  # cosine of matrices below which one of them was replaced
# Median cosine of matrices as stored. For strangers it has mean 0 and standard deviation 1/√n, n numbers a matrix: 0.05
# is five of them for 10,000 numbers. It only turns *stranger* into *undecided*.
IN_PLACE = 0.05
BLURRED = 0.01  # of the largest change: less in a matrix is what alignment to others did, and then ranks are not told
NULLS = 4  # mismatched layers that are looked at for each space
ELSEWHERE = 0.5  # of the units of mismatched layers that agree: then layers may have changed places


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
class SharesHeld:
    """How much of A's matrices B holds, `⟨A, B⟩/‖A‖²`, and A of those of B: first decile, median, last decile."""

    of_first: tuple[float, float, float]
    of_second: tuple[float, float, float]


@dataclass(frozen=True)
class KeptBlock:
    """Block `of` of A became this block of B: 1 − the likeness of their sketches, and that of the second nearest."""

    block: int
    of: int
    distance: float
    second: float


@dataclass(frozen=True)
class KeptBlocks:
    """Which of the `count` blocks that A has in `container` B has, in its order."""

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
    held: SharesHeld | None = None
    kept: KeptBlocks | None = None  # where B has other blocks: all else is about A with these
    lineage: Lineage | None = None  # what the relation rests on, unless the functions are equal
    settings: tuple[str, ...] = ()  # of the two modules that differ

    @property
    def word(self) -> str:
        """The relation in the words of the field."""
        return RELATION_WORDS[self.relation]

    @property
    def share(self) -> float | None:
        """The median share of units that agree."""
        return median(agreement.share for agreement in self.agreements) if self.agreements else None

    @property
    def null(self) -> float | None:
        """The median of the same for mismatched layers."""
        nulls = [agreement.null for agreement in self.agreements if agreement.null is not None]
        return median(nulls) if nulls else None


def kinship(pair: CheckpointPair, *, seed: int = 0) -> Kinship:
    """Compare, align and tell apart."""
    first = pair.first.state
    verdict = same_checkpoints(pair.architecture, first, pair.second.state, seed=seed)
    comparison = verdict.comparison
    one = folded_tensors(first, pair.architecture.folds)
    agreements = _agreements(comparison, one)
    learnt = {name for name, tensor in pair.architecture.module.named_parameters() if tensor.ndim > 1}
    seen = [
        nearest_tensors(distance, first, one, pair.second.state, comparison.aligned)
        for distance in comparison.distances
    ]
    matrices = [tensors for tensors in seen if tensors.tensor in learnt]
    shares = _shares_held([tensors for tensors in matrices if tensors.relative])
    apart = median(tensors.relative for tensors in matrices or seen) if seen else float("inf")
    relation: Relation
    settings: tuple[str, ...] = ()
    if verdict.is_copy:
        relation, reason, lineage = "copy", verdict.reason, None
    elif pair.architecture.unsettled and all(distance.fits for distance in comparison.distances):
        # Weights say nothing about what settings do: the word is about the weights alone.
        settings = pair.architecture.unsettled
        relation, reason, lineage = "copy of weights", verdict.reason, None
    else:
        two = folded_tensors(pair.second.state, pair.architecture.folds)
        fitting = {distance.tensor for distance in comparison.distances if distance.fits}
        lineage = trace_lineage(pair.architecture.group, one, two, apart=apart, fitting=fitting, seed=seed)
        relation, reason = _relation(lineage, matrices or seen, shares)
        if relation == "stranger" and any((agreement.null or 0.0) >= ELSEWHERE for agreement in agreements):
            relation, reason = "undecided", f"{reason}; but layers agree with others that have another place"
        if relation == "stranger" and (cosine := _in_place(first, pair.second.state, learnt)) >= IN_PLACE:
            relation = "undecided"
            reason += (
                f"; but as they are stored their matrices have a cosine of {cosine:.2f}: they may have begun alike"
            )
    most = max((tensors.relative for tensors in seen), default=0.0)
    blurred = any(
        tensors.changed and not tensors.as_stored and tensors.relative < BLURRED * most for tensors in matrices
    )
    changes = []
    for tensors in seen:
        if tensors.changed:
            change = change_of(tensors, (first[tensors.tensor], pair.second.state[tensors.tensor]))
            changes.append(replace(change, rank=None) if blurred and not tensors.as_stored else change)
    ordered = tuple(sorted(changes, key=lambda change: -change.relative))
    return Kinship(relation, reason, verdict, agreements, ordered, shares, lineage=lineage, settings=settings)


def _relation(lineage: Lineage, distances: Sequence[NearestTensors], shares: SharesHeld | None) -> tuple[Relation, str]:
    """Which kind of relative B is, if it is one."""
    words = lineage.reason
    if not lineage.is_related:
        return lineage.relation, words
    replaced = [
        tensors.tensor
        for tensors in distances
        if tensors.product < REPLACED * sqrt(tensors.squares[0] * tensors.squares[1])
    ]
    words += f"; the median weight matrix is {lineage.apart:.2g} of its size apart"
    if lineage.apart < NEAR:
        words += f"; of A, {list_names(replaced, 4)} were replaced" if replaced else ""
        return "child", f"{words} (which of the two came first, or a third before both, is not told)"
    if shares is None:
        return "relative", words
    (low, middle, high), (_, other, _) = shares.of_first, shares.of_second
    words += f"; B holds {middle:.0%} of A's median matrix, A {other:.0%} of that of B"
    if middle >= WHOLE and low >= MOST and other < WHOLE:
        return "relative", f"{words}, as after long training from A, or from a start that A is close to"
    if middle < WHOLE <= other:
        return "relative", f"{words}, as if A was trained on from B, or B a mean of A and another"
    # Replaced layers make shares uneven as well: then nothing is said of what was shared.
    if max(middle, other) <= LACKING and high - low >= UNEVEN and not replaced:
        return "sibling", f"{words}: each lacks what the other has learnt since they began alike"
    return "relative", words


def _in_place(first: State, second: State, names: Iterable[str]) -> float:
    """The median cosine of matrices of A and B as they are stored, without means of rows and columns: zero for
    strangers, whatever both have learnt, and not for those that had one start, however little of it is left."""
    cosines = []
    for name in names:
        one, two = (state[name].double().flatten(1) for state in (first, second))
        if min(one.shape) > 1:
            one, two = (table - table.mean(0) - table.mean(1, keepdim=True) + table.mean() for table in (one, two))
            cosines.append(float(torch.nn.functional.cosine_similarity(one.flatten(), two.flatten(), 0)))
    return median(cosines) if len(cosines) >= 3 else 0.0


def _shares_held(matrices: Sequence[NearestTensors]) -> SharesHeld | None:
    """What each holds of the other, over the matrices that differ."""
    shares = [[tensors.product / square for square in tensors.squares] for tensors in matrices if all(tensors.squares)]
    if len(shares) < 3:
        return None
    ends = np.quantile(np.array(shares), (0.1, 0.5, 0.9), axis=0)
    of_first, of_second = ((float(low), float(middle), float(high)) for low, middle, high in ends.T)
    return SharesHeld(of_first, of_second)


# Agreement


def _agreements(comparison: WeightComparison, one: Tensors) -> tuple[Agreement, ...]:
    spaces = [space for space in unit_spaces(comparison.architecture.group.spaces) if space.permutes]
    split = [(space, parts) for space in spaces if space.size > 1 and (parts := _parts(space, one)) is not None]
    result = []
    for space, parts in split:
        agree = _count_agreeing(space, parts, one, comparison.aligned, space, parts)
        others = [(other, theirs) for other, theirs in split
                  if other is not space and _alike(space, parts, other, theirs, one)]  # fmt: skip
        null = [_count_agreeing(space, parts, one, comparison.aligned, *other) / space.size for other in others[:NULLS]]
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


def _count_agreeing(space: UnitSpace, parts: Parts, one: Tensors, two: Tensors, other: UnitSpace, theirs: Parts) -> int:
    """On how many units two matchings agree, each from half of the weights; rows count by their direction."""
    orders = []
    for half, half_b in zip(parts, theirs, strict=True):
        likeness = torch.zeros(space.size, other.size, dtype=torch.float64)
        for a, b in zip(half, half_b, strict=True):
            left, right = (_directions(rows, tensors) for rows, tensors in ((a, one), (b, two)))
            product = left @ right.T
            likeness += product.abs() if space.signed and a.odd else product
        orders.append(assign(-likeness))
    return int((orders[0] == orders[1]).sum())


def _directions(rows: AxisRows, tensors: Mapping[str, torch.Tensor]) -> torch.Tensor:
    table = as_rows(tensors[rows.tensor], rows.dims)[torch.as_tensor(rows.places)].reshape(len(rows.places), -1)
    return torch.nn.functional.normalize(table.double(), dim=1)
