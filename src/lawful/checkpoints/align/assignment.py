"""One space at a time: the move that brings its rows in B nearest to those in A, while everything else stands."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment

from lawful.checkpoints.align.lazy_tensors import MadeTensors
from lawful.checkpoints.align.procrustes import (
    SURE,
    TINY,
    Tensors,
    columns_of,
    nearest_heads,
    nearest_matrix,
    row_lengths,
)
from lawful.checkpoints.group.axis_actions import frames, move_tensors
from lawful.checkpoints.group.spaces import (
    AxisRows,
    BlockMove,
    GroupedUnits,
    GroupsMove,
    HeadSpace,
    HiddenSpace,
    OrbitGroup,
    SpaceMove,
    UnitsMove,
    UnitSpace,
    members_of,
)
from lawful.types import Floats, Indices, Mask

# Linear assignment takes cubic time: beyond this size mutual nearest neighbours are taken out first, round by round.
MOST_ASSIGNED = 2048
# Of 1024 units or more those are matched first that 256 columns of each tensor tell apart: copies all are, and the full
# product of two tables is never made for them.
MANY_UNITS, FEW = 1024, 256
# A unit is told apart if its partner is at most half as far as any other (4 times in squares). The distance seen in
# few columns varies by about 1/√256 of itself, so that such a gap is no accident of the columns that were picked.
CLEAR = 4.0


Usable = Callable[[AxisRows], bool]  # whether the other axes of their tensor are aligned


def nearest(
    space: HiddenSpace, a: Tensors, b: Tensors, usable: Usable, *, inside: Usable, near: bool = False
) -> SpaceMove:
    """The move of one space, found from those of its members that are usable (`inside`: but for other axes of the space
    itself); `near` if B was aligned once already."""
    if isinstance(space, UnitSpace):
        return _units(space, a, b, usable)
    if isinstance(space, GroupedUnits):
        return _groups(space, a, b, usable, inside)
    if isinstance(space, HeadSpace):
        return nearest_heads(space, a, b)
    return BlockMove(nearest_matrix(space, a, b, [rows for rows in space.members if usable(rows)], near=near))


Classes = dict[tuple[tuple[float, ...], bool], list[AxisRows]]  # rows by what scales and signs do to them


def _classes(space: UnitSpace, usable: Usable) -> Classes:
    classes: Classes = defaultdict(list)
    for rows in space.members:
        if usable(rows):
            classes[rows.powers, rows.odd].append(rows)
    return classes


def _units(space: UnitSpace, a: Tensors, b: Tensors, usable: Usable) -> UnitsMove:
    """Of many units those that a few columns tell apart are matched by these, the others by all columns."""
    classes = _classes(space, usable)
    order, signs = np.arange(space.size), np.ones(space.size)
    rest = free = np.arange(space.size)
    if space.permutes and space.size >= MANY_UNITS:
        few = [_feature(powers, odd, members, a, b, most=FEW) for (powers, odd), members in classes.items()]
        order, signs = _match_clear_units(space, few)
        rest, free = np.flatnonzero(order < 0), np.setdiff1d(np.arange(space.size), order[order >= 0])
    if len(rest) and (space.permutes or space.signed):
        every = [_feature(powers, odd, members, a, b, rest, free) for (powers, odd), members in classes.items()]
        odd_part, cost = _costs(space, every)
        if space.permutes:
            order[rest] = free[assign(cost)]
        signs[rest] = _signs(space, odd_part, np.searchsorted(free, order[rest]))
    return UnitsMove(order, _scales(space, _kinds(classes, a, b, order)), signs)


def _groups(space: GroupedUnits, a: Tensors, b: Tensors, usable: Usable, inside: Usable) -> GroupsMove:
    """First the order of groups, by what is left between two of them once their units are matched; then the units of
    each slot, those of which most is usable first: what others share with them is usable then."""
    groups, counted = np.arange(space.count), [slot for slot in space.slots if slot.size <= MOST_ASSIGNED]
    if space.permutes:
        total = sum(_between(space.count, slot, a, b, usable) for slot in counted or space.slots)
        groups = linear_sum_assignment(total)[1].astype(np.intp)
    sizes = [slot.size // space.count for slot in space.slots]
    orders = [(groups[:, None] * size + np.arange(size)).reshape(-1) for size in sizes]
    moves = [UnitsMove(order, np.ones((slot.size, slot.scales)), np.ones(slot.size))
             for slot, order in zip(space.slots, orders, strict=True)]  # fmt: skip
    alone = OrbitGroup((space,), (), {rows.tensor: tuple(b[rows.tensor].shape) for rows in members_of(space)}, 0)
    solved: set[int] = set()

    def usable_now(rows: AxisRows) -> bool:
        open_rows = (other for number, slot in enumerate(space.slots) if number not in solved for other in slot.members)
        shared = any(other.tensor == rows.tensor and other.place != rows.place for other in open_rows)
        return usable(rows) or (not shared and inside(rows))

    def share(number: int) -> float:
        members = space.slots[number].members
        sizes = [float(np.prod(alone.shapes[rows.tensor], dtype=float)) for rows in members]
        return sum(size for size, rows in zip(sizes, members, strict=True) if usable_now(rows)) / sum(sizes)

    while len(solved) < len(space.slots):
        number = max((candidate for candidate in range(len(space.slots)) if candidate not in solved), key=share)
        acting = frames(alone, {0: GroupsMove(tuple(moves))})
        ordered = MadeTensors(alone.shapes, lambda name, by=acting: move_tensors(b, by, [name]))  # type: ignore[misc]
        parts = [_units(part, a, ordered, usable_now) for part in space.slots[number].split(space.count)]
        places = np.concatenate([group * sizes[number] + part.order for group, part in enumerate(parts)])
        scales, signs = (np.concatenate(pieces) for pieces in zip(*((p.scales, p.signs) for p in parts), strict=True))
        moves[number] = UnitsMove(orders[number][places], scales, signs)
        solved.add(number)
    return GroupsMove(tuple(moves))


def _between(count: int, slot: UnitSpace, a: Tensors, b: Tensors, usable: Usable) -> Floats:
    """For each group of A and each of B what is left between their units."""
    kinds = _classes(slot, usable).items()
    cost = _costs(slot, [_feature(*kind, members, a, b) for kind, members in kinds])[1].numpy()
    tables = cost.reshape(count, slot.size // count, count, -1).swapaxes(1, 2)
    if not slot.permutes or slot.size == count:
        return np.asarray(np.trace(tables, axis1=2, axis2=3))
    left = [[table[linear_sum_assignment(table)].sum() for table in row] for row in tables]
    return np.array(left)


def _kinds(classes: Classes, a: Tensors, b: Tensors, order: Indices) -> list[tuple[tuple[float, ...], RowLengths]]:
    """The lengths of rows on which scales act."""
    return [(powers, _lengths(members, a, b, order)) for (powers, _), members in classes.items() if any(powers)]


def _match_clear_units(space: UnitSpace, features: list[RowProducts]) -> tuple[Indices, Floats]:
    """For each unit of A the one of B (−1 if in doubt) and its sign: the nearest, seen from both, at most half as far
    as any other."""
    odd_part, cost = _costs(space, features)
    (near, partner), (back, owner) = (cost.clamp_min_(0.0).topk(2, dim, largest=False) for dim in (1, 0))
    forth = partner[:, 0]
    sure = owner[0][forth] == torch.arange(space.size)
    sure &= (CLEAR * near[:, 0] < near[:, 1]) & (CLEAR * back[0] < back[1])[forth]
    order = torch.where(sure, forth, -1).numpy()
    return order, _signs(space, odd_part, np.maximum(order, 0))


def _signs(space: UnitSpace, odd_part: torch.Tensor, order: Indices) -> Floats:
    """Negative where rows that a sign turns point the other way."""
    picked = odd_part[torch.arange(len(order)), torch.as_tensor(order)].numpy()
    return np.where((picked < 0) & space.signed, -1.0, 1.0)


@dataclass(frozen=True, eq=False)
class RowProducts:
    """Inner products of rows of one kind: those of units of A with those of B, and the length of each row."""

    powers: tuple[float, ...]
    odd: bool
    product: torch.Tensor
    lengths: tuple[Floats, Floats]


def _feature(
    powers: tuple[float, ...],
    odd: bool,
    members: Sequence[AxisRows],
    a: Tensors,
    b: Tensors,
    first: Indices | None = None,
    second: Indices | None = None,
    *,
    most: int | None = None,
) -> RowProducts:
    """Added up tensor by tensor, for some units of A and of B, from at most so many columns of each tensor.

    Rows are divided by their largest entry first: scales may be of any size.
    """
    total = len(members[0].places)
    picked = [
        None if indices is None or len(indices) == total else torch.as_tensor(indices) for indices in (first, second)
    ]
    counts = [total if indices is None else len(indices) for indices in picked]
    product = torch.zeros(*counts, dtype=torch.float32 if most is not None else torch.float64)
    lengths = np.zeros(counts[0]), np.zeros(counts[1])
    for left, right in columns_of(members, a, b):
        if most is not None and (step := left.shape[1] // most) > 1:
            left, right = left[:, ::step].contiguous(), right[:, ::step].contiguous()
        left, right = (
            rows if indices is None else rows[indices] for rows, indices in zip((left, right), picked, strict=True)
        )
        sizes = [row.double() for row in (left.abs().amax(1), right.abs().amax(1))]
        safe = [torch.where(size > 0, size, 1.0) for size in sizes]
        scaled = not all(_of_one_size(size, left.dtype) for size in safe)
        if scaled:
            left, right = (rows / size.to(rows.dtype)[:, None] for rows, size in zip((left, right), safe, strict=True))
        else:
            safe = [torch.ones_like(size) for size in safe]
        piece = left @ right.T
        if scaled or product.dtype == torch.float64:
            piece = piece.double().mul_(safe[0][:, None]).mul_(safe[1][None])
        product = piece + product if scaled else product.add_(piece)
        for length, part, size in zip(lengths, (left, right), safe, strict=True):
            squares = part.square().sum(1, dtype=torch.float64)
            length[:] = np.hypot(length, (size * squares.sqrt()).numpy())
    return RowProducts(powers, odd, product, lengths)


@dataclass(frozen=True, eq=False)
class RowLengths:
    """Of each unit of A and of its partner in B the length of their rows, and the cosine between them."""

    one: Floats
    two: Floats
    cosine: Floats


def _lengths(members: Sequence[AxisRows], a: Tensors, b: Tensors, order: Indices) -> RowLengths:
    """Over all tensors; units of B in the order of those of A."""
    one, two = np.zeros(len(order)), np.zeros(len(order))
    parts = []
    for left, right in columns_of(members, a, b):
        right = right[torch.as_tensor(order)]
        sizes = row_lengths(left), row_lengths(right)
        one, two = np.hypot(one, sizes[0]), np.hypot(two, sizes[1])
        units = [rows / torch.as_tensor(np.where(size > 0, size, 1.0), dtype=rows.dtype)[:, None]
                 for rows, size in zip((left, right), sizes, strict=True)]  # fmt: skip
        parts.append((*sizes, (units[0] * units[1]).sum(1, dtype=torch.float64).numpy()))
    safe = [np.where(length > 0, length, 1.0) for length in (one, two)]
    cosine = sum((left / safe[0] * (right / safe[1]) * along for left, right, along in parts), np.zeros(len(order)))
    return RowLengths(one, two, np.clip(cosine, -1.0, 1.0))


def _of_one_size(sizes: torch.Tensor, kind: torch.dtype) -> bool:
    """Whether products of such numbers neither overflow nor vanish."""
    most = 1e15 if kind == torch.float32 else 1e120
    return bool((sizes < most).all() and (sizes > 1 / most).all())


def _costs(space: UnitSpace, features: list[RowProducts]) -> tuple[torch.Tensor, torch.Tensor]:
    """Inner products of those rows of A and B that a sign turns; and squares of distances, each with the better sign.

    Where a scale acts, rows count by their direction alone. The products are used up.
    """
    single = features and all(kind_products.product.dtype == torch.float32 for kind_products in features)
    kind = torch.float32 if single else torch.float64
    odd = torch.zeros(features[0].product.shape if features else (space.size, space.size), dtype=kind)
    even = None
    squares = torch.zeros(odd.shape[0], 1, dtype=kind), torch.zeros(1, odd.shape[1], dtype=kind)
    whole = sum(float(np.square(kind_products.lengths[0]).sum()) for kind_products in features) or 1.0
    while features:
        feature = features.pop(0)
        one, two = (torch.as_tensor(length, dtype=kind) for length in feature.lengths)
        product = feature.product.to(kind)
        if any(feature.powers):
            product.div_(torch.where(one > 0, one, 1.0)[:, None]).div_(torch.where(two > 0, two, 1.0)[None])
            one, two = (one > 0).to(kind), (two > 0).to(kind)
        else:
            size_of_a = float(np.square(feature.lengths[0]).sum()) or 1.0
            weight = space.size / size_of_a if space.scales else 1.0 / whole
            product.mul_(weight)
            one, two = one * weight**0.5, two * weight**0.5
        if feature.odd:
            odd += product
        else:
            even = product if even is None else even.add_(product)
        squares[0].add_(one.square()[:, None])
        squares[1].add_(two.square()[None])
    likeness = odd.abs() if space.signed else odd.clone()
    if even is not None:
        likeness += even
    return odd, likeness.mul_(-2.0).add_(squares[0]).add_(squares[1])


def assign(costs: torch.Tensor) -> Indices:
    """For each unit of A the one of B, at these costs: mutual nearest neighbours first, linear assignment for the
    others."""
    cost = costs.numpy()
    count = len(cost)
    forth, back = cost.argmin(1), cost.argmin(0)
    every = np.arange(count)
    mutual: Mask = back[forth] == every
    order = np.full(count, -1, dtype=np.intp)
    order[mutual] = forth[mutual]
    rest = np.flatnonzero(~mutual)
    free = np.setdiff1d(every, forth[mutual])
    while len(rest) > MOST_ASSIGNED:  # linear assignment takes cubic time
        part = cost[np.ix_(rest, free)]
        forth, back = part.argmin(1), part.argmin(0)
        mutual = back[forth] == np.arange(len(rest))
        order[rest[mutual]] = free[forth[mutual]]
        rest, free = rest[~mutual], np.setdiff1d(free, free[forth[mutual]])
        if mutual.sum() < len(mutual) // 64:  # hardly any, as among twins
            break
    if len(rest):
        rows, columns = linear_sum_assignment(cost[np.ix_(rest, free)])
        order[rest[rows]] = free[columns]
    return order


def _scales(space: UnitSpace, kinds: Sequence[tuple[tuple[float, ...], RowLengths]]) -> Floats:
    """Least squares for the logarithms: `log |A_i| − log |B_i| = Σ power · log t`, over the kinds of rows.

    Rows that point where A's do weigh more: of a child some are A's own, and these tell the scale.
    """
    if not space.scales or not kinds:
        return np.ones((space.size, space.scales))
    design = np.array([powers for powers, _ in kinds])
    ratios, weights = np.zeros((len(kinds), space.size)), np.zeros((len(kinds), space.size))
    for number, (_, lengths) in enumerate(kinds):
        good = (lengths.one > 0) & (lengths.two > 0)
        ratios[number, good] = np.log(lengths.one[good]) - np.log(lengths.two[good])
        weights[number, good] = 1 / np.sqrt(1 - lengths.cosine[good] ** 2 + SURE**2)
    weights /= np.maximum(weights.max(0), TINY)
    solving = np.linalg.pinv(weights.T[:, :, None] * design)
    return np.asarray(np.exp(np.einsum("usk,ku->us", solving, weights * ratios)))
