"""A group element in numbers that are exact: what leaves a function alone must do so without rounding.

An alignment is found in floating point: its rotations are orthogonal up to rounding, and a factor and its inverse are
two floats. For a proof the element beside it is listed: a factor as a quotient of two floats, the inverse of a matrix
as that of the matrix listed, and a rotation by its Cayley transform, Q = (1 - S)(1 + S)⁻¹ with a skew S of floats.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from lawful.checkpoints.group.axis_actions import AxisFrame, frames
from lawful.checkpoints.group.spaces import (
    AxisPlace,
    AxisRows,
    BlockMove,
    GroupedUnits,
    GroupsMove,
    HeadsMove,
    HeadSpace,
    MatrixBlock,
    OrbitGroup,
    SpaceMove,
    UnitsMove,
    UnitSpace,
    turning,
)
from lawful.types import Floats, Indices


@dataclass(frozen=True, eq=False)
class Cayley:
    """Rows `order` of (1 - S)(1 + S)⁻¹, times signs."""

    skew: Floats
    order: Indices
    signs: Floats

    @property
    def matrix(self) -> Floats:
        """The rotation in floating point."""
        one = np.eye(len(self.skew))
        turned = np.linalg.solve((one + self.skew).T, (one - self.skew).T).T
        return np.asarray(self.signs[:, None] * turned[self.order], dtype=np.float64)


@dataclass(eq=False)
class ExactElement:
    """Frames, the divisors of their factors, and by their bytes the rotations among their matrices, and those matrices
    that are given. The inverse of a given one is rounded: of the two, only the given one has an exact structure."""

    frames: dict[AxisPlace, AxisFrame]
    divisors: dict[AxisPlace, Floats]
    rotations: dict[bytes, Cayley] = field(default_factory=dict)
    primary: frozenset[bytes] = frozenset()


def make_exact(
    group: OrbitGroup, moves: Mapping[int, SpaceMove], acting: Mapping[AxisPlace, AxisFrame]
) -> ExactElement | None:
    """The element beside one that was found; None where a factor is a product that floats do not hold."""
    rotations: dict[bytes, Cayley] = {}
    exact: dict[int, SpaceMove] = {}
    for number, move in moves.items():
        space = group.spaces[number]
        exact[number] = _exact_move(space, move, rotations)
    exact_frames, before = frames(group, exact), frames(group, moves)
    factors = _factors(group, moves)
    if factors is None:
        return None
    divisors: dict[AxisPlace, Floats] = {}
    result: dict[AxisPlace, AxisFrame] = {}
    for place, frame in acting.items():
        if place in exact_frames and _alike(frame, before[place]):
            top, below = factors.get(place, (exact_frames[place].factor, np.ones(len(frame.factor))))
            result[place] = replace(exact_frames[place], factor=top)
            divisors[place] = below
        else:
            result[place], divisors[place] = frame, np.ones(len(frame.factor))
    matrices = [matrix for move in (*exact.values(), *moves.values()) for matrix in _matrices_of(move)]
    return ExactElement(result, divisors, rotations, frozenset(matrix.tobytes() for matrix in matrices))


def _alike(one: AxisFrame, two: AxisFrame) -> bool:
    return np.array_equal(one.source, two.source) and np.array_equal(one.factor, two.factor)


def _exact_move(space: object, move: SpaceMove, rotations: dict[bytes, Cayley]) -> SpaceMove:
    if isinstance(space, MatrixBlock) and isinstance(move, BlockMove):
        return BlockMove(_exact_matrix(space, move.matrix, rotations))
    if isinstance(space, HeadSpace) and isinstance(move, HeadsMove):
        matrices = tuple(
            tuple(_exact_matrix(block, matrix, rotations) for block, matrix in zip(head, matrices_of_head, strict=True))
            for head, matrices_of_head in zip(space.heads, move.matrices, strict=True)
        )
        return replace(move, matrices=matrices)
    return move


def _matrices_of(move: SpaceMove) -> list[Floats]:
    if isinstance(move, BlockMove):
        return [move.matrix]
    return [matrix for head in move.matrices for matrix in head] if isinstance(move, HeadsMove) else []


def _exact_matrix(block: MatrixBlock, matrix: Floats, rotations: dict[bytes, Cayley]) -> Floats:
    if np.array_equal(matrix, np.eye(len(matrix))):
        return matrix
    if block.kind == "rotary":
        return turning(block, np.array([matrix[a, a] + 1j * matrix[b, a] for a, b in block.pairs]))
    if block.kind in ("O", "O fixing 1"):
        rotation = fit_rotation(matrix, fixes_one=block.kind == "O fixing 1")
        rotations[rotation.matrix.tobytes()] = rotation
        return rotation.matrix
    return matrix


def fit_rotation(matrix: Floats, *, fixes_one: bool) -> Cayley:
    """The Cayley transform of a matrix that is orthogonal up to rounding.

    A rotation with an eigenvalue -1 has none. Signs of rows are chosen by elimination so that every pivot is at least
    1; where the vector 1 has to stay, signs may not change, and two rows are exchanged if that makes the determinant 1.
    The skew matrix then has rows that add up to exactly 0: entries are multiples of one power of two, and the last is
    what is left.
    """
    size = len(matrix)
    order, signs = np.arange(size), np.ones(size)
    if fixes_one:
        if np.linalg.det(matrix) < 0 and size > 1:
            order[:2] = 1, 0
    else:
        left = matrix.copy()
        for k in range(size):
            signs[k] = 1.0 if left[k, k] >= 0 else -1.0
            pivot = left[k, k] + signs[k]
            left[k + 1 :, k:] -= np.outer(left[k + 1 :, k] / pivot, left[k, k:])
    turned = (signs[:, None] * matrix)[order]  # both undo themselves
    one = np.eye(size)
    skew = np.linalg.solve(one + turned, one - turned)
    skew = (skew - skew.T) / 2
    if fixes_one:
        unit = 2.0 ** (np.ceil(np.log2(max(float(np.abs(skew).max()), 1e-300))) - 51)  # so integers are below 2^52
        whole = np.triu(np.round(skew / unit), 1).astype(np.int64)
        whole -= whole.T
        whole[:-1, -1] = -whole[:-1, :-1].sum(1)
        whole[-1, :-1] = -whole[:-1, -1]
        skew = whole * unit
    return Cayley(np.asarray(skew), order, signs)


def _factors(group: OrbitGroup, moves: Mapping[int, SpaceMove]) -> dict[AxisPlace, tuple[Floats, Floats]] | None:
    """Factors of rows as quotients; None where one is a product that is rounded."""
    quotients: dict[AxisPlace, tuple[Floats, Floats]] = {}
    for number, move in moves.items():
        space = group.spaces[number]
        pairs: list[tuple[UnitSpace, UnitsMove]] = []
        if isinstance(space, UnitSpace) and isinstance(move, UnitsMove):
            pairs = [(space, move)]
        elif isinstance(space, GroupedUnits) and isinstance(move, GroupsMove):
            pairs = list(zip(space.slots, move.slots, strict=True))
        for units, units_move in pairs:
            for rows in units.members:
                quotient = _factor_as_quotient(rows, units_move)
                if quotient is None:
                    return None
                shape = group.shapes[rows.tensor]
                count = int(np.prod([shape[d] for d in rows.dims], dtype=int))
                top, below = quotients.setdefault(rows.place, (np.ones(count), np.ones(count)))
                top[rows.places], below[rows.places] = quotient[0][:, None], quotient[1][:, None]
    return quotients


def _factor_as_quotient(rows: AxisRows, move: UnitsMove) -> tuple[Floats, Floats] | None:
    top = move.signs.copy() if rows.odd else np.ones(len(move.signs))
    below = np.ones(len(move.signs))
    acting = [(scale, power) for scale, power in zip(move.scales.T, rows.powers, strict=True) if power]
    simple = len(acting) <= 1 and all(power in (1, -1) for _, power in acting)
    plain = all(bool((np.frexp(np.abs(scale))[0] == 0.5).all()) and power == int(power) for scale, power in acting)
    if not simple and not plain:
        return None
    for scale, power in acting:
        if power > 0:
            top = top * scale ** int(power)
        else:
            below = below * scale ** int(-power)
    return top, below
