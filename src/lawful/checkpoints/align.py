"""The member of B's orbit that is nearest to A, found space by space.

A space can be solved when the other axes of its tensors are aligned already. Inputs, outputs and tokens never move, so
one begins there and goes on from space to space; then every space is solved again with all that it touches, until
nothing changes places any more.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch

from lawful.checkpoints.element import HeadsMove, SpaceMove, UnitsMove, frames, identity, moved, then
from lawful.checkpoints.group import AxisPlace, AxisRows, OrbitGroup, members_of
from lawful.checkpoints.match import nearest
from lawful.symmetry.families import SpaceLaws
from lawful.types import Floats

PASSES = 8


@dataclass(frozen=True, eq=False)
class Alignment:
    """Moves of all spaces, by number, and after how many passes they stood still (None if they never did)."""

    moves: Mapping[int, SpaceMove]
    passes: int | None


def search(group: OrbitGroup, a: Mapping[str, torch.Tensor], b: Mapping[str, torch.Tensor]) -> Alignment:
    """Align folded tensors; those of `a` are not changed."""
    fixed = shiftless(a, group.shifts)
    current = dict(shiftless(b, group.shifts))
    touching: dict[AxisPlace, set[int]] = defaultdict(set)
    axes: dict[str, set[AxisPlace]] = defaultdict(set)
    for number, space in enumerate(group.spaces):
        for rows in members_of(space):
            touching[rows.place].add(number)
            axes[rows.tensor].add(rows.place)
    total: dict[int, SpaceMove] = {number: identity(space) for number, space in enumerate(group.spaces)}
    waiting = set(total)

    def usable(rows: AxisRows) -> bool:
        return not any(touching[place] & waiting for place in axes[rows.tensor] if place != rows.place)

    def step(number: int) -> SpaceMove:
        move = nearest(group.spaces[number], fixed, current, usable)
        names = list(dict.fromkeys(rows.tensor for rows in members_of(group.spaces[number])))
        current.update(moved(current, frames(group, {number: move}), names))
        total[number] = then(total[number], move)
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
    for count in range(1, PASSES + 1):
        rearranged = [number for number in total if _rearranges(step(number))]
        if not rearranged:
            return Alignment(total, count)
    return Alignment(total, None)


def _rearranges(move: SpaceMove) -> bool:
    """Whether anything changes places, or turns by more than rounding explains."""
    if isinstance(move, UnitsMove):
        return not np.array_equal(move.order, np.arange(len(move.order))) or bool((move.signs < 0).any())
    if isinstance(move, HeadsMove):
        still = np.array_equal(move.order, np.arange(len(move.order)))
        return not still or any(not np.array_equal(row, np.arange(len(row))) for row in move.copies)
    return bool(np.abs(move.matrix - np.eye(len(move.matrix))).max() > 1e-4)


def shiftless(tensors: Mapping[str, torch.Tensor], shifts: tuple[SpaceLaws, ...]) -> dict[str, torch.Tensor]:
    """Tensors without what they have along directions that no operation sees."""
    if not shifts:
        return dict(tensors)
    found = dict(tensors)
    for name, pieces in shift_parts(tensors, shifts).items():
        for piece in pieces:
            found[name] = found[name] - piece.to(found[name].dtype)
    return found


def shift_parts(tensors: Mapping[str, torch.Tensor], shifts: tuple[SpaceLaws, ...]) -> dict[str, list[torch.Tensor]]:
    """The orthogonal projection of tensors on the directions of shifts.

    A tensor may have several parts, each of size 1 along the dimensions where it does not change.
    """
    found: dict[str, list[torch.Tensor]] = {}
    waiting = list(shifts)
    while waiting:  # shifts that share tensors are solved together
        together, names = [waiting.pop(0)], set[str]()
        while not names >= {name for laws in together for name in laws.parameters}:
            names |= {name for laws in together for name in laws.parameters}
            together += [laws for laws in waiting if names & set(laws.parameters)]
            waiting = [laws for laws in waiting if not names & set(laws.parameters)]
        found |= _projected(tensors, tuple(together))
    return found


def _projected(tensors: Mapping[str, torch.Tensor], shifts: tuple[SpaceLaws, ...]) -> dict[str, list[torch.Tensor]]:
    """Conjugate gradients for `D Dᵀ t = D θ`, with the rows of D the directions."""
    names = sorted({name for laws in shifts for name in laws.parameters})
    theta = {name: tensors[name].double() for name in names}

    def values(state: Mapping[str, torch.Tensor]) -> Floats:
        return np.concatenate([laws.values(state) for laws in shifts])

    def pieces(weights: Floats) -> Iterator[tuple[str, torch.Tensor]]:
        start = 0
        for laws, count in zip(shifts, counts, strict=True):
            yield from laws.pull(theta, weights[start : start + count])
            start += count

    def pulled(weights: Floats) -> dict[str, torch.Tensor]:
        found = {name: torch.zeros_like(theta[name]) for name in names}
        for name, piece in pieces(weights):
            found[name] += piece
        return found

    counts = [len(laws.values(theta)) for laws in shifts]
    target = values(theta)
    solution = np.zeros_like(target)
    residual, direction = target.copy(), target.copy()
    size = float(residual @ residual)
    stop = 1e-26 * size
    for _ in range(60):
        if size <= stop:
            break
        image = values(pulled(direction))
        step = size / float(direction @ image)
        solution += step * direction
        residual -= step * image
        before, size = size, float(residual @ residual)
        direction = residual + size / before * direction
    parts: dict[str, list[torch.Tensor]] = defaultdict(list)
    for name, piece in pieces(solution):
        parts[name] += _lines(piece)
    return dict(parts)


def _lines(piece: torch.Tensor) -> list[torch.Tensor]:
    """A tensor as a sum of tensors that change along one dimension each, if it is one."""
    dims = [d for d in range(piece.ndim) if not torch.equal(piece, piece.narrow(d, 0, 1).expand(piece.shape))]
    small = piece
    for d in range(piece.ndim):
        if d not in dims:
            small = small.narrow(d, 0, 1)
    if len(dims) <= 1:
        return [small.contiguous()]
    found, rest = [], small
    for d in dims:
        others = [other for other in dims if other != d]
        line = rest.mean(others, keepdim=True)
        found.append(line.contiguous())
        rest = rest - line
    exact = float(rest.abs().max()) <= 1e-13 * float(small.abs().max())
    return found if exact else [small.contiguous()]
