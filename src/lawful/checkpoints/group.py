"""The group that acts on the weights of an architecture without changing its function, as spaces to be aligned.

Everything comes from the symmetries that are read from the graph. Three kinds of spaces:

- `UnitSpace`: hidden units (neurons, channels, coordinates of a stream) that may change places, with scales and signs;
- `MatrixBlock`: a hidden space on which all of GL(m), O(m), O(m) fixing the vector 1, or a complex number for each
  rotary pair acts;
- `HeadSpace`: blocks that belong together, head by head, and whole heads that may change places. Rows of a head that
  no matrix moves (queries under a norm of their own, a table of biases) are blocks that stand *still* within it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lawful.symmetry.families import SpaceLaws
from lawful.types import Indices

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


HiddenSpace = UnitSpace | MatrixBlock | HeadSpace


@dataclass(frozen=True, eq=False)
class OrbitGroup:
    """All spaces in the order of the graph, the shifts that no operation sees, and scales that were left out."""

    spaces: tuple[HiddenSpace, ...]
    shifts: tuple[SpaceLaws, ...]
    shapes: dict[str, tuple[int, ...]]
    left_out: int


def members_of(space: HiddenSpace) -> tuple[AxisRows, ...]:
    """All rows that a space moves."""
    if isinstance(space, HeadSpace):
        return tuple(rows for head in space.heads for block in head for rows in block.members)
    return space.members
