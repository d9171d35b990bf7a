"""The member of B's orbit that is nearest to A, found space by space.

Idea: a space can be solved (assignment for units, Procrustes for matrices) when the other axes of its tensors are
aligned already. Inputs, outputs and tokens never move, so one begins there and goes on from space to space; then every
space is solved again with all that it touches, until nothing changes places any more. This is the weight matching of
Ainsworth et al. (2023), for scales, signs, matrices and heads as well.

Invariant: whatever the search does, its result is a member of B's orbit, so that a poor alignment costs an *undecided*
and never a false *equal*. Cost: for each pass and space of n units with c columns n²c products, and an assignment of
n³ for those units alone that are not each other's nearest.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch

from lawful.checkpoints.align.assignment import nearest
from lawful.checkpoints.align.lazy_tensors import MadeTensors
from lawful.checkpoints.group.axis_actions import frames, move_tensors
from lawful.checkpoints.group.spaces import (
    AxisPlace,
    AxisRows,
    GroupsMove,
    HeadsMove,
    OrbitGroup,
    SpaceMove,
    UnitsMove,
    identity,
    members_of,
    then,
)
from lawful.symmetry.laws.families import ColumnLaws, SpaceLaws, SumLaws
from lawful.types import Floats

PASSES = 8  # over all spaces, at most: a copy needs two, one that finds it and one in which nothing changes places
TURNED = 1e-6  # an entry of a rotation, from which it is one


@dataclass(frozen=True, eq=False)
class Alignment:
    """Moves of all spaces, by number, and after how many passes they stood still (None if they never did)."""

    moves: Mapping[int, SpaceMove]
    passes: int | None


def search(
    group: OrbitGroup, a: Mapping[str, torch.Tensor], b: Mapping[str, torch.Tensor], *, unit: float = 0.0
) -> Alignment:
    """Align folded tensors; those of `a` are not changed. `unit` is the rounding of the numbers that are given."""
    fixed, loose = shiftless(a, group.shifts), shiftless(b, group.shifts)
    touching: dict[AxisPlace, set[int]] = defaultdict(set)
    axes: dict[str, set[AxisPlace]] = defaultdict(set)
    for number, space in enumerate(group.spaces):
        for rows in members_of(space):
            touching[rows.place].add(number)
            axes[rows.tensor].add(rows.place)
    total: dict[int, SpaceMove] = {number: identity(space) for number, space in enumerate(group.spaces)}
    waiting = set(total)

    def make(name: str) -> dict[str, torch.Tensor]:
        moves = {number: total[number] for place in axes[name] for number in sorted(touching[place])}
        return move_tensors(loose, frames(group, moves, {name}), [name])

    current = MadeTensors(group.shapes, make)

    def usable(rows: AxisRows, solving: int | None = None) -> bool:
        return not any(touching[place] & waiting - {solving} for place in axes[rows.tensor] if place != rows.place)

    def step(number: int) -> SpaceMove:
        space = group.spaces[number]
        move = nearest(space, fixed, current, usable, inside=lambda rows: usable(rows, number), near=not waiting)
        total[number] = then(total[number], move)
        current.forget({rows.tensor for rows in members_of(group.spaces[number])})
        return move

    def evidence(number: int) -> float:
        columns = {True: 0, False: 0}
        for rows in members_of(group.spaces[number]):
            count = int(np.prod(group.shapes[rows.tensor], dtype=int))
            columns[usable(rows)] += count // max(len(rows.places) * rows.places.shape[1], 1) * rows.places.shape[1]
        return columns[True] / (columns[True] + columns[False])

    while waiting:
        number = max(sorted(waiting), key=evidence)
        step(number)
        waiting.discard(number)
    still = max(TURNED, unit / 8)
    for count in range(1, PASSES + 1):
        rearranged = [number for number in total if _rearranges(step(number), still)]
        if not rearranged:
            return Alignment(total, count)
    return Alignment(total, None)


def _rearranges(move: SpaceMove, still: float) -> bool:
    """Whether anything changes places, or turns by more than rounding explains."""
    if isinstance(move, UnitsMove):
        return not np.array_equal(move.order, np.arange(len(move.order))) or bool((move.signs < 0).any())
    if isinstance(move, GroupsMove):
        return any(_rearranges(slot, still) for slot in move.slots)
    if isinstance(move, HeadsMove):
        orders = [move.order, *move.copies]
        return any(not np.array_equal(order, np.arange(len(order))) for order in orders)
    return bool(np.abs(move.matrix - np.eye(len(move.matrix))).max() > still)


def shiftless(tensors: Mapping[str, torch.Tensor], shifts: tuple[SpaceLaws, ...]) -> Mapping[str, torch.Tensor]:
    """Tensors without what they have along directions that no operation sees, which is found where it is asked for."""
    joined = {
        name: together for together in _sets_sharing_tensors(shifts) for laws in together for name in laws.parameters
    }
    parts: dict[str, list[torch.Tensor]] = {}

    def make(name: str) -> dict[str, torch.Tensor]:
        if name in joined and name not in parts:
            parts.update(_project(tensors, joined[name]))
        return {name: _sum(tensors[name], [-piece for piece in parts.get(name, ())])}

    return MadeTensors(tensors, make) if joined else tensors


def shiftless_alone(tensor: torch.Tensor, name: str, shifts: tuple[SpaceLaws, ...]) -> torch.Tensor:
    """One tensor without all that shifts may do to it, whatever they do to others meanwhile."""
    parts_of_laws = [
        _only(laws, name) for laws in shifts if name in laws.parameters and isinstance(laws, (SumLaws, ColumnLaws))
    ]
    distinct = {(type(laws), laws.weights.indices.tobytes(), laws.weights.data.tobytes(),
            *((axis.dims, picked.tobytes()) for axis, picked in zip(laws.axes, laws.picked, strict=True))): laws
           for laws in parts_of_laws}  # fmt: skip
    return (
        _sum(tensor, [-piece for piece in _project({name: tensor}, tuple(distinct.values()))[name]])
        if distinct
        else tensor
    )


def _only(laws: SumLaws | ColumnLaws, name: str) -> SumLaws | ColumnLaws:
    """What laws say of one tensor."""
    chosen = [number for number, axis in enumerate(laws.axes) if axis.parameter == name]
    columns = np.split(np.arange(laws.weights.shape[1]), np.cumsum([len(axis_rows) for axis_rows in laws.picked])[:-1])
    return replace(laws, axes=tuple(laws.axes[number] for number in chosen),
                   picked=tuple(laws.picked[number] for number in chosen),
                   weights=laws.weights[:, np.concatenate([columns[number] for number in chosen])])  # fmt: skip


def plus(tensors: Mapping[str, torch.Tensor], pieces: Mapping[str, list[torch.Tensor]]) -> Mapping[str, torch.Tensor]:
    """Tensors with something added to some of them."""
    if not pieces:
        return tensors

    return MadeTensors(tensors, lambda name: {name: _sum(tensors[name], pieces.get(name, ()))})


def _sum(tensor: torch.Tensor, pieces: Iterable[torch.Tensor]) -> torch.Tensor:
    for piece in pieces:
        tensor = tensor + piece.to(tensor.dtype)
    return tensor


def shift_parts(tensors: Mapping[str, torch.Tensor], shifts: tuple[SpaceLaws, ...]) -> dict[str, list[torch.Tensor]]:
    """The orthogonal projection of tensors on the directions of shifts.

    A tensor may have several parts, each of size 1 along the dimensions where it does not change.
    """
    projection: dict[str, list[torch.Tensor]] = {}
    for together in _sets_sharing_tensors(shifts):
        projection |= _project(tensors, together)
    return projection


def _sets_sharing_tensors(shifts: tuple[SpaceLaws, ...]) -> Iterator[tuple[SpaceLaws, ...]]:
    """Shifts that share tensors, which are solved together."""
    waiting = list(shifts)
    while waiting:
        together, names = [waiting.pop(0)], set[str]()
        while not names >= {name for laws in together for name in laws.parameters}:
            names |= {name for laws in together for name in laws.parameters}
            together += [laws for laws in waiting if names & set(laws.parameters)]
            waiting = [laws for laws in waiting if not names & set(laws.parameters)]
        yield tuple(together)


def _project(tensors: Mapping[str, torch.Tensor], shifts: tuple[SpaceLaws, ...]) -> dict[str, list[torch.Tensor]]:
    """Conjugate gradients for `D Dᵀ t = D θ`, with the rows of D the directions."""
    shapes = {name: tensors[name].shape for laws in shifts for name in laws.parameters}
    target = np.concatenate([laws.values(tensors) for laws in shifts])
    counts = [len(laws.values({name: torch.zeros(()).expand(shapes[name]) for name in laws.parameters}))
              for laws in shifts]  # fmt: skip

    def pieces(weights: Floats) -> dict[str, list[torch.Tensor]]:
        summands: dict[str, list[torch.Tensor]] = defaultdict(list)
        for laws, part in zip(shifts, np.split(weights, np.cumsum(counts)[:-1]), strict=True):
            for name, piece in sum_directions(laws, part, shapes):
                summands[name].append(piece)
        return summands

    def values(weights: Floats) -> Floats:
        steps = {name: sum(parts[1:], parts[0]).expand(shapes[name]) for name, parts in pieces(weights).items()}
        return np.concatenate([laws.values(steps) for laws in shifts])

    solution = np.zeros_like(target)
    residual, direction = target.copy(), target.copy()
    size = float(residual @ residual)
    stop = 1e-26 * size
    for _ in range(60):
        if size <= stop:
            break
        image = values(direction)
        step = size / float(direction @ image)
        solution += step * direction
        residual -= step * image
        before, size = size, float(residual @ residual)
        direction = residual + size / before * direction
    return {name: [line for piece in parts for line in _lines(piece)] for name, parts in pieces(solution).items()}


def sum_directions(
    laws: SpaceLaws, weights: Floats, shapes: Mapping[str, torch.Size]
) -> Iterator[tuple[str, torch.Tensor]]:
    """What the directions with these weights add up to, of size 1 along dimensions where it does not change."""
    if isinstance(laws, SumLaws):
        shares = laws.weights.T @ weights
        start = 0
        for axis, picked in zip(laws.axes, laws.picked, strict=True):
            shape = shapes[axis.parameter]
            thin = torch.Size([size if d in axis.dims else 1 for d, size in enumerate(shape)])
            rows = torch.zeros(thin.numel(), 1, dtype=torch.float64)
            rows[torch.as_tensor(picked), 0] = torch.as_tensor(shares[start : start + len(picked)])
            start += len(picked)
            yield axis.parameter, axis.back(rows, thin)
    elif isinstance(laws, ColumnLaws) and _all_rows_alike(laws, shapes):
        axis = laws.axes[0]
        thin = torch.Size([1 if d in axis.dims else size for d, size in enumerate(shapes[axis.parameter])])
        line = torch.as_tensor(weights)
        if laws.contrast:
            line = torch.cat([-line.sum(0, keepdim=True), line])
        yield axis.parameter, axis.back(line[None], thin)
    else:
        yield from laws.pull({name: torch.zeros((), dtype=torch.float64).expand(shapes[name])
                              for name in laws.parameters}, weights)  # fmt: skip


def _all_rows_alike(laws: ColumnLaws, shapes: Mapping[str, torch.Size]) -> bool:
    """Whether all rows of one parameter move by the same vector."""
    axis = laws.axes[0]
    count = int(np.prod([shapes[axis.parameter][d] for d in axis.dims], dtype=int))
    alone = len(laws.axes) == 1 and laws.weights.shape == (1, count) and laws.weights.nnz == count
    return alone and bool((laws.weights.data == 1).all())


def _lines(piece: torch.Tensor) -> list[torch.Tensor]:
    """A tensor as a sum of tensors that change along one dimension each, if it is one."""
    dims = [d for d in range(piece.ndim) if not torch.equal(piece, piece.narrow(d, 0, 1).expand(piece.shape))]
    small = piece
    for d in range(piece.ndim):
        if d not in dims:
            small = small.narrow(d, 0, 1)
    if len(dims) <= 1:
        return [small.contiguous()]
    lines, rest = [], small
    for d in dims:
        others = [other for other in dims if other != d]
        line = rest.mean(others, keepdim=True)
        lines.append(line.contiguous())
        rest = rest - line
    exact = float(rest.abs().max()) <= 1e-13 * float(small.abs().max())
    return lines if exact else [small.contiguous()]
