"""How alike the blocks of two checkpoints are, whatever their order and disguise.

Blocks write to and read from spaces that tensors outside of them share (the residual stream). Aligned by those tensors
alone, such a space has names, and what a block's hidden units and heads do to it has a sketch that does not see their
order, scales and bases: see `sketch.py`. Each block of A and of B is read once, and the sketches are compared.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from lawful.checkpoints.align.align import search, shiftless
from lawful.checkpoints.align.lazy_tensors import folded_tensors
from lawful.checkpoints.architecture import CheckpointArchitecture
from lawful.checkpoints.group.axis_actions import frames, moved
from lawful.checkpoints.group.element import SpaceMove
from lawful.checkpoints.group.spaces import (
    AxisRows,
    GroupedUnits,
    HeadSpace,
    HiddenSpace,
    MatrixBlock,
    OrbitGroup,
    UnitSpace,
    members_of,
)
from lawful.checkpoints.identity.sketch import NUMBERS, likeness, named_numbers
from lawful.checkpoints.rewrite.folds import State
from lawful.types import Floats

BLOCK = re.compile(r"(.*?)\.(\d+)\.(.*)")
Inner = Mapping[str, tuple[tuple[str, AxisRows], ...]]


@dataclass(frozen=True, eq=False)
class BlockSketches:
    """What is needed to sketch the blocks of a container: its spaces, some of them shared with the rest."""

    architecture: CheckpointArchitecture
    container: str

    def within(self, tensor: str) -> bool:
        """Whether a tensor belongs to a block."""
        parts = BLOCK.fullmatch(tensor)
        return parts is not None and parts[1] == self.container

    def outer_moves(self, first: State, second: State) -> dict[int, SpaceMove]:
        """B's spaces outside of blocks, aligned to A's by the tensors outside of blocks."""
        group, folds = self.architecture.group, self.architecture.folds
        outside = {number: kept for number, space in enumerate(group.spaces) if (kept := self._outside(space))}
        shapes = {name: shape for name, shape in group.shapes.items() if not self.within(name)}
        shifts = tuple(laws for laws in group.shifts if not any(map(self.within, laws.parameters)))
        alone = OrbitGroup(tuple(outside.values()), shifts, shapes, 0)
        found = search(alone, *(folded_tensors(state, folds) for state in (first, second)))
        return {number: found.moves[place] for place, number in enumerate(outside)}

    def _outside(self, space: HiddenSpace) -> HiddenSpace | None:
        members = tuple(rows for rows in members_of(space) if not self.within(rows.tensor))
        whole = isinstance(space, (HeadSpace, GroupedUnits))
        if not members or (whole and len(members) < len(members_of(space))):
            return None
        return replace(space, members=members) if isinstance(space, (UnitSpace, MatrixBlock)) else space

    def inner(self, moves: Mapping[int, SpaceMove]) -> Inner:
        """Tensors of blocks with one axis in the spaces of that block, and nothing else that may move."""
        found: dict[str, list[tuple[str, AxisRows]]] = {}
        places: dict[str, set[tuple[int, ...]]] = {}
        for number, space in enumerate(self.architecture.group.spaces):
            if number in moves:
                continue
            for block in _blocks(space):
                for rows in block.members:
                    found.setdefault(rows.tensor, []).extend(_parts(block, rows))
                    places.setdefault(rows.tensor, set()).add(rows.dims)
        shapes = self.architecture.group.shapes
        return {name: tuple(parts) for name, parts in found.items() if self.within(name) and len(places[name]) == 1
                and len(shapes[name]) > len(parts[0][1].dims)}  # fmt: skip

    def sketches(self, state: State, moves: Mapping[int, SpaceMove], inner: Inner, count: int) -> Floats:
        """For each of the blocks the sketches of its tensors, a row each."""
        group = self.architecture.group
        folded = shiftless(folded_tensors(state, self.architecture.folds), group.shifts)
        acting = frames(group, dict(moves)) if moves else {}
        kinds = sorted({BLOCK.fullmatch(name)[3] for name in inner})  # type: ignore[index]
        found = np.zeros((count, len(kinds), NUMBERS))
        for block in range(count):
            for number, kind in enumerate(kinds):
                name = f"{self.container}.{block}.{kind}"
                if name in inner:
                    tensor = moved(folded, {place: acting[place] for place in acting if place[0] == name}, [name])[name]
                    found[block, number] = sum(named_numbers(tensor.double(), *part, number) for part in inner[name])
        sizes = np.linalg.norm(found, axis=2, keepdims=True)
        return np.asarray(found / np.where(sizes > 0, sizes, 1.0))


def block_likeness(
    architecture: CheckpointArchitecture, container: str, firsts: Sequence[State], second: State, count: int
) -> Floats:
    """How alike each of the `count` blocks of B is to every block of A.

    A may have more blocks than the architecture: `firsts` are its checkpoints of that architecture, each with the next
    ones of its blocks.
    """
    blocks = BlockSketches(architecture, container)
    moves = blocks.outer_moves(firsts[0], second)
    inner = blocks.inner(moves)
    mine = blocks.sketches(second, moves, inner, count)
    theirs = np.concatenate([blocks.sketches(state, {}, inner, count) for state in firsts])
    mean = theirs.mean(0)
    return np.array([likeness(each, theirs, mean) for each in mine])


def _blocks(space: HiddenSpace) -> Sequence[UnitSpace | MatrixBlock]:
    if isinstance(space, HeadSpace):
        return [block for head in space.heads for block in head]
    return space.slots if isinstance(space, GroupedUnits) else [space]


def _parts(block: UnitSpace | MatrixBlock, rows: AxisRows) -> list[tuple[str, AxisRows]]:
    """What the sketch of some rows is the sum of: units, bases of each copy, pairs of rotary coordinates."""
    if isinstance(block, UnitSpace):
        return [("units", rows)]
    if block.kind == "rotary":
        return [("turned", replace(rows, places=copy[list(pair)][:, None]))
                for copy in rows.places.T for pair in block.pairs]  # fmt: skip
    return [(block.kind, replace(rows, places=copy[:, None])) for copy in rows.places.T]


def numbered(state: Mapping[str, torch.Tensor]) -> dict[str, set[int]]:
    """The containers of blocks, with the numbers that these have."""
    found: dict[str, set[int]] = {}
    for name in state:
        if (parts := BLOCK.fullmatch(name)) is not None:
            found.setdefault(parts[1], set()).add(int(parts[2]))
    return found
