"""The group that acts on the weights of an architecture without changing its function, as spaces to be aligned.

Everything comes from the symmetries that are read from the graph. Four kinds of spaces:

- `UnitSpace`: hidden units (neurons, channels, coordinates of a stream) that may change places, with scales and signs;
- `GroupedUnits`: units in groups (of a grouped convolution, of a GroupNorm) that may change places as wholes;
- `MatrixBlock`: a hidden space on which all of GL(m), O(m), O(m) fixing the vector 1, or a complex number for each
  rotary pair acts;
- `HeadSpace`: blocks that belong together, head by head, and whole heads that may change places. Rows of a head that
  no matrix moves (queries under a norm of their own, a table of biases) are blocks that stand *still* within it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from lawful.symmetry.laws.families import SpaceLaws
from lawful.types import Floats, Indices

Kind = Literal["GL", "O", "O fixing 1", "rotary", "still"]
AxisPlace = tuple[str, tuple[int, ...]]  # a tensor and the dimensions of one of its axes


@dataclass(frozen=True, eq=False)
class AxisRows:
    """Rows of a tensor along one of its axes: `places[i, c]` is the row of unit i in copy c.

    A scale t of a unit multiplies its rows by `t ** power`, a sign if they are `odd`; a matrix M of a block acts by M
    (power 1) or by its inverse transposed (power −1).
    """

    tensor: str
    dims: tuple[int, ...]
    places: Indices
    powers: tuple[float, ...]
    odd: bool = True

    @property
    def place(self) -> AxisPlace:
        """Which axis of which tensor."""
        return self.tensor, self.dims


@dataclass(frozen=True, eq=False)
class UnitSpace:
    """Hidden units: may they change places, how many scales has each, may these be negative."""

    name: str
    size: int
    members: tuple[AxisRows, ...]
    scales: int
    permutes: bool
    signed: bool

    def split(self, count: int) -> list[UnitSpace]:
        """As many spaces of as many units each."""
        parts = [np.split(rows.places, count) for rows in self.members]
        return [
            replace(self, size=self.size // count, members=tuple(
                replace(rows, places=places[k]) for rows, places in zip(self.members, parts, strict=True)))
            for k in range(count)
        ]  # fmt: skip


@dataclass(frozen=True, eq=False)
class GroupedUnits:
    """Groups of units that may change places as wholes, the same in every slot: what a group reads and what it writes.

    A slot holds the units of all groups, group after group, as many in each; those of one group may change places among
    themselves if the slot permutes. The permutations of a slot are a wreath product.
    """

    name: str
    slots: tuple[UnitSpace, ...]
    count: int
    permutes: bool

    def follows(self, rows: AxisRows) -> bool:
        """Whether other rows take whole groups of this tensor along: these then only move inside of each group.

        A weight (o, i/g) of a grouped convolution has its groups along o; they are not to be exchanged twice.
        """
        others = [member for member in members_of(self) if member.tensor == rows.tensor and member.dims != rows.dims]
        leading = min([rows, *others], key=lambda member: (len(member.dims), member.dims))
        return leading.dims != rows.dims and bool(set(leading.dims) & set(rows.dims))


@dataclass(frozen=True, eq=False)
class MatrixBlock:
    """A space of matrices. `pairs` are the coordinates that a rotary embedding turns together."""

    name: str
    size: int
    kind: Kind
    members: tuple[AxisRows, ...]
    pairs: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, eq=False)
class HeadSpace:
    """HeadSpace that may change places: `heads[h]` are the blocks of head h; slot by slot they have like members.

    With grouped queries, members with `copies` copies hold the query heads of the group: these may change places too.
    """

    name: str
    heads: tuple[tuple[MatrixBlock, ...], ...]
    copies: int
    permutes: bool


HiddenSpace = UnitSpace | GroupedUnits | MatrixBlock | HeadSpace


@dataclass(frozen=True, eq=False)
class OrbitGroup:
    """All spaces in the order of the graph, the shifts that no operation sees, and scales that were left out."""

    spaces: tuple[HiddenSpace, ...]
    shifts: tuple[SpaceLaws, ...]
    shapes: dict[str, tuple[int, ...]]
    left_out: int

    def with_groups_in_place(self) -> OrbitGroup:
        """The subgroup that leaves groups of units where they are: each of them is a space by itself."""
        spaces: list[HiddenSpace] = []
        for space in self.spaces:
            if isinstance(space, GroupedUnits):
                spaces += [group for slot in space.slots for group in slot.split(space.count)]
            else:
                spaces.append(space)
        return replace(self, spaces=tuple(spaces))


def members_of(space: HiddenSpace) -> tuple[AxisRows, ...]:
    """All rows that a space moves."""
    if isinstance(space, HeadSpace):
        return tuple(rows for head in space.heads for block in head for rows in block.members)
    if isinstance(space, GroupedUnits):
        return tuple(rows for slot in space.slots for rows in slot.members)
    return space.members


def unit_spaces(spaces: Iterable[HiddenSpace]) -> list[UnitSpace]:
    """The units of some spaces, those of groups too, as if nothing held the groups together."""
    slots_of_spaces = [space.slots if isinstance(space, GroupedUnits) else (space,) for space in spaces]
    return [space for several in slots_of_spaces for space in several if isinstance(space, UnitSpace)]


# Members of the group, one move for each space: compose them, undo them.


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
