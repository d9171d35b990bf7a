"""Members of the group, one move for each space: compose them, undo them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lawful.checkpoints.group.spaces import GroupedUnits, HiddenSpace, MatrixBlock, UnitSpace
from lawful.types import Floats, Indices


@dataclass(frozen=True, eq=False)
class UnitsMove:
    """Unit i of the result is unit `order[i]`, times its signs and scales."""

    order: Indices
    scales: Floats  # units × scales
    signs: Floats


@dataclass(frozen=True, eq=False)
class GroupsMove:
    """A move of the units of each slot that keeps groups together, and exchanges them in all slots alike."""

    slots: tuple[UnitsMove, ...]


@dataclass(frozen=True, eq=False)
class HeadsMove:
    """Head h of the result is head `order[h]`, its query head c is copy `copies[h, c]`; then a matrix for each slot."""

    order: Indices
    copies: Indices
    matrices: tuple[tuple[Floats, ...], ...]


@dataclass(frozen=True, eq=False)
class BlockMove:
    """A matrix."""

    matrix: Floats


SpaceMove = UnitsMove | GroupsMove | HeadsMove | BlockMove


def identity(space: HiddenSpace) -> SpaceMove:
    """The move that changes nothing."""
    if isinstance(space, UnitSpace):
        return _identity_units(space)
    if isinstance(space, GroupedUnits):
        return GroupsMove(tuple(_identity_units(slot) for slot in space.slots))
    if isinstance(space, MatrixBlock):
        return BlockMove(np.eye(space.size))
    count = len(space.heads)
    matrices = tuple(tuple(np.eye(block.size) for block in head) for head in space.heads)
    return HeadsMove(np.arange(count), np.tile(np.arange(space.copies), (count, 1)), matrices)


def _identity_units(space: UnitSpace) -> UnitsMove:
    return UnitsMove(np.arange(space.size), np.ones((space.size, space.scales)), np.ones(space.size))


def then(first: SpaceMove, second: SpaceMove) -> SpaceMove:
    """The move that does the first, then the second."""
    if isinstance(first, UnitsMove) and isinstance(second, UnitsMove):
        return _units_then(first, second)
    if isinstance(first, GroupsMove) and isinstance(second, GroupsMove):
        return GroupsMove(tuple(_units_then(one, two) for one, two in zip(first.slots, second.slots, strict=True)))
    if isinstance(first, HeadsMove) and isinstance(second, HeadsMove):
        order = second.order
        copies = np.stack([first.copies[order[h]][second.copies[h]] for h in range(len(order))])
        matrices = tuple(
            tuple(after @ before for after, before in zip(head_matrices, first.matrices[order[h]], strict=True))
            for h, head_matrices in enumerate(second.matrices)
        )
        return HeadsMove(first.order[order], copies, matrices)
    if isinstance(first, BlockMove) and isinstance(second, BlockMove):
        return BlockMove(second.matrix @ first.matrix)
    raise TypeError(f"a {type(second).__name__} cannot follow a {type(first).__name__}")


def _units_then(first: UnitsMove, second: UnitsMove) -> UnitsMove:
    order = second.order
    return UnitsMove(first.order[order], second.scales * first.scales[order], second.signs * first.signs[order])


def inverse(move: SpaceMove) -> SpaceMove:
    """The move that undoes another."""
    if isinstance(move, BlockMove):
        return BlockMove(np.asarray(np.linalg.inv(move.matrix), dtype=np.float64))
    if isinstance(move, UnitsMove):
        return _units_back(move)
    if isinstance(move, GroupsMove):
        return GroupsMove(tuple(_units_back(slot) for slot in move.slots))
    back = np.argsort(move.order)
    copies = np.argsort(move.copies[back], axis=1)
    matrices = tuple(tuple(np.linalg.inv(matrix) for matrix in move.matrices[h]) for h in back)
    return HeadsMove(back, copies, matrices)


def _units_back(move: UnitsMove) -> UnitsMove:
    back = np.argsort(move.order)
    return UnitsMove(back, 1 / move.scales[back], move.signs[back])


def turning(block: MatrixBlock, numbers: Floats) -> Floats:
    """The matrix that multiplies each rotary pair by a complex number."""
    matrix = np.zeros((block.size, block.size))
    for (a, b), number in zip(block.pairs, numbers, strict=True):
        matrix[a, a] = matrix[b, b] = number.real
        matrix[b, a], matrix[a, b] = number.imag, -number.imag
    return matrix
