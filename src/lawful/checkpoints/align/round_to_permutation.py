"""Moves that are meant to be permutations and powers of two, cleaned of what rounding did to them."""

from __future__ import annotations

import numpy as np

from lawful.checkpoints.group.element import BlockMove, GroupsMove, HeadsMove, SpaceMove, UnitsMove
from lawful.types import Floats

SNAP, SNAP_UNITS = 1e-6, 8.0  # so near to a power of two, or to a permutation, a move is taken to be one


def snapped(move: SpaceMove, unit: float) -> SpaceMove:
    """A move that only permutes and multiplies by powers of two, if the whole of it is that near to one.

    Then it is held to that: numbers that are merely moved have to be equal. A space that is scaled or mixed in any of
    its units is left as it is. `unit` is the rounding of the stored numbers.
    """
    near = max(SNAP, SNAP_UNITS * unit)
    if isinstance(move, UnitsMove):
        return _snapped_units(move, near)
    if isinstance(move, GroupsMove):
        return GroupsMove(tuple(_snapped_units(slot, near) for slot in move.slots))
    if isinstance(move, BlockMove):
        clean = _permutation(move.matrix, near)
        return move if clean is None else BlockMove(clean)
    cleaned = [[_permutation(matrix, near) for matrix in head] for head in move.matrices]
    if any(matrix is None for head in cleaned for matrix in head):
        return HeadsMove(
            move.order, move.copies, tuple(tuple(_unturned(matrix, near) for matrix in head) for head in move.matrices)
        )
    return HeadsMove(move.order, move.copies, tuple(tuple(m for m in head if m is not None) for head in cleaned))


def _snapped_units(move: UnitsMove, near: float) -> UnitsMove:
    powers = np.exp2(np.round(np.log2(move.scales)))
    meant = bool((np.abs(move.scales / powers - 1) < near).all())
    return UnitsMove(move.order, powers, move.signs) if meant else move


def _unturned(matrix: Floats, near: float) -> Floats:
    """A matrix of rotary pairs without phases, if all of them are so small that they are rounding."""
    if (matrix != 0).sum(1).max() > 2:
        return matrix
    small = np.abs(matrix) < near * np.abs(matrix).max(1, keepdims=True)
    alone = (~small).sum(1) == 1
    return np.where(small, 0.0, matrix) if bool(alone.all()) else matrix


def _permutation(matrix: Floats, near: float) -> Floats | None:
    """The permutation with powers of two that a matrix is, if it is one."""
    largest = np.abs(matrix).argmax(1)
    rows = np.arange(len(matrix))
    values = matrix[rows, largest]
    if len(set(largest.tolist())) < len(matrix) or not (np.abs(values) > 0).all():
        return None
    powers = np.sign(values) * np.exp2(np.round(np.log2(np.abs(values))))
    clean = np.zeros_like(matrix)
    clean[rows, largest] = powers
    return clean if bool((np.abs(matrix - clean).max(1) < near * np.abs(powers)).all()) else None
