"""One space at a time: the move that brings its rows in B nearest to those in A, while everything else stands."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment

from lawful.checkpoints.element import BlockMove, SpaceMove, UnitsMove
from lawful.checkpoints.group import AxisRows, HeadSpace, HiddenSpace, UnitSpace
from lawful.checkpoints.nearest_blocks import nearest_heads, nearest_matrix
from lawful.checkpoints.unit_rows import Tensors, columns_of
from lawful.types import Floats, Indices, Mask

MOST_ASSIGNED = 2048


def nearest(space: HiddenSpace, a: Tensors, b: Tensors, usable: Callable[[AxisRows], bool]) -> SpaceMove:
    """The move of one space, found from those of its members that are usable."""
    if isinstance(space, UnitSpace):
        return _units(space, a, b, usable)
    if isinstance(space, HeadSpace):
        return nearest_heads(space, a, b)
    return BlockMove(nearest_matrix(space, a, b, [rows for rows in space.members if usable(rows)]))


def _units(space: UnitSpace, a: Tensors, b: Tensors, usable: Callable[[AxisRows], bool]) -> UnitsMove:
    classes: dict[tuple[tuple[float, ...], bool], list[AxisRows]] = defaultdict(list)
    for rows in space.members:
        if usable(rows):
            classes[rows.powers, rows.odd].append(rows)
    features = [_feature(powers, odd, members, a, b) for (powers, odd), members in classes.items()]
    odd_part, even_part, squares = _similarity(space, features)
    likeness = (odd_part.abs() if space.signed else odd_part).add_(even_part)
    order = assign(likeness, squares) if space.permutes else np.arange(space.size)
    signs = np.ones(space.size)
    if space.signed:
        picked = odd_part[torch.arange(space.size), torch.as_tensor(order)].numpy()
        signs = np.where(picked < 0, -1.0, 1.0)
    return UnitsMove(order, _scales(space, features, order), signs)


@dataclass(frozen=True, eq=False)
class RowProducts:
    """Inner products of all rows of one kind: those of each unit of A with each of B, and the length of each row."""

    powers: tuple[float, ...]
    odd: bool
    product: torch.Tensor
    lengths: tuple[Floats, Floats]


def _feature(powers: tuple[float, ...], odd: bool, members: Sequence[AxisRows], a: Tensors, b: Tensors) -> RowProducts:
    """Added up tensor by tensor. Rows are divided by their largest entry first: scales may be of any size."""
    count = len(members[0].places)
    product = torch.zeros(count, count, dtype=torch.float64)
    lengths = np.zeros(count), np.zeros(count)
    for left, right in columns_of(members, a, b):
        sizes = [row.double() for row in (left.abs().amax(1), right.abs().amax(1))]
        safe = [torch.where(size > 0, size, 1.0) for size in sizes]
        if not all(_of_one_size(size, left.dtype) for size in safe):
            left, right = (rows / size.to(rows.dtype)[:, None] for rows, size in zip((left, right), safe, strict=True))
        else:
            safe = [torch.ones_like(size) for size in safe]
        product += (left @ right.T).double().mul_(safe[0][:, None]).mul_(safe[1][None])
        for total, part, size in zip(lengths, (left, right), safe, strict=True):
            squares = part.square().sum(1, dtype=torch.float64)
            total[:] = np.hypot(total, (size * squares.sqrt()).numpy())
    return RowProducts(powers, odd, product, lengths)


def _of_one_size(sizes: torch.Tensor, kind: torch.dtype) -> bool:
    """Whether products of such numbers neither overflow nor vanish."""
    most = 1e15 if kind == torch.float32 else 1e120
    return bool((sizes < most).all() and (sizes > 1 / most).all())


def _similarity(space: UnitSpace, features: Sequence[RowProducts]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Inner products of rows of A and B, those that a sign turns apart; and the sums of squares to hold against them.

    Where a scale acts, rows count by their direction alone.
    """
    size = space.size
    odd = torch.zeros(size, size, dtype=torch.float64)
    even, squares = odd.clone(), odd.clone()
    whole = sum(float(np.square(each.lengths[0]).sum()) for each in features) or 1.0
    for each in features:
        lengths = each.lengths
        product = each.product
        if any(each.powers):
            safe = [torch.as_tensor(np.where(length > 0, length, 1.0)) for length in lengths]
            product = product / safe[0][:, None] / safe[1][None]
            lengths = (lengths[0] > 0).astype(float), (lengths[1] > 0).astype(float)
        else:
            own = float(np.square(lengths[0]).sum()) or 1.0
            weight = size / own if space.scales else 1.0 / whole
            product = product * weight
            lengths = lengths[0] * weight**0.5, lengths[1] * weight**0.5
        if each.odd:
            odd += product
        else:
            even += product
        squares += torch.as_tensor(np.square(lengths[0])[:, None] + np.square(lengths[1])[None])
    return odd, even, squares


def assign(likeness: torch.Tensor, squares: torch.Tensor | None = None) -> Indices:
    """For each unit of A the one of B: mutual nearest neighbours first, linear assignment for the others."""
    cost = (-2.0 * likeness if squares is None else squares - 2.0 * likeness).numpy()
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


def _scales(space: UnitSpace, features: Sequence[RowProducts], order: Indices) -> Floats:
    """Least squares for the logarithms: `log |A_i| − log |B_i| = Σ power · log t`, over the kinds of rows."""
    found = np.ones((space.size, space.scales))
    kinds = [each for each in features if any(each.powers)]
    if not space.scales or not kinds:
        return found
    design = np.array([each.powers for each in kinds])
    ratios = np.full((len(kinds), space.size), np.nan)
    for number, each in enumerate(kinds):
        lengths = each.lengths[0], each.lengths[1][order]
        good = (lengths[0] > 0) & (lengths[1] > 0)
        ratios[number, good] = np.log(lengths[0][good]) - np.log(lengths[1][good])
    known = np.isfinite(ratios)
    for pattern in np.unique(known, axis=1).T:
        here = np.flatnonzero((known == pattern[:, None]).all(0))
        if pattern.any():
            found[here] = np.exp(np.linalg.pinv(design[pattern]) @ ratios[np.ix_(pattern, here)]).T
    return found
