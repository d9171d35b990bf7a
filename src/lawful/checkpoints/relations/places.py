"""Do units of B stand where the units of A stand that they are most like? Files as they are stored.

B is shuffled at random before it is aligned and that is undone afterwards, so that neither ties (dead units,
duplicates) nor the search favour any place: under the null each matching is uniform, whatever the search does.

The null fails where places mean something in both files: units that were sorted, or that share a constant tensor (a
frozen table, sinusoids). Such spaces are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import erfc, sqrt

import numpy as np
import torch
from scipy.stats import rankdata

from lawful.checkpoints.align.align import search
from lawful.checkpoints.align.lazy_tensors import MadeTensors
from lawful.checkpoints.align.unit_rows import unit_rows
from lawful.checkpoints.group.axis_actions import frames, move_tensors
from lawful.checkpoints.group.element import SpaceMove, UnitsMove, identity, then
from lawful.checkpoints.group.spaces import OrbitGroup, UnitSpace
from lawful.checkpoints.relations.null import paired_places_tail, places_tail
from lawful.types import Floats

Tensors = Mapping[str, torch.Tensor]
# A file whose units were sorted by something has a rank correlation of 1 with it. By chance one space in 10,000 is left
# out, which costs power alone.
SORTED = 1e-4
COLUMNS = 8  # of each tensor, by which units may have been sorted


@dataclass(frozen=True)
class PlacesTest:
    """How many units stand in place, of how many in how many spaces; spaces left out; and the bounds on chance."""

    in_place: int
    units: int
    spaces: int
    left_out: tuple[str, ...]
    p_value: float
    paired_p_value: float
    moves: Mapping[int, SpaceMove] = field(default_factory=dict, repr=False, compare=False)  # that bring B to A

    @property
    def share(self) -> float:
        """Of the units that were looked at."""
        return self.in_place / self.units if self.units else 0.0


def compare_places(group: OrbitGroup, one: Tensors, two: Tensors, *, seed: int = 0) -> PlacesTest:
    """Align a shuffled B to A, and count the units that come back to where they were."""
    rng = np.random.default_rng((20_261_118, seed))
    shuffles: dict[int, SpaceMove] = {}
    for number, space in enumerate(group.spaces):
        move = identity(space)
        if isinstance(space, UnitSpace) and isinstance(move, UnitsMove) and space.permutes:
            move = UnitsMove(rng.permutation(space.size), move.scales, move.signs)
        shuffles[number] = move
    acting = frames(group, shuffles)
    found = search(group, one, MadeTensors(two, lambda name: move_tensors(two, acting, [name])))
    in_place = units = spaces = 0
    left_out = []
    for number, space in enumerate(group.spaces):
        back, shuffle = found.moves[number], shuffles[number]
        if not (isinstance(space, UnitSpace) and isinstance(back, UnitsMove) and isinstance(shuffle, UnitsMove)):
            continue
        if not space.permutes or space.size < 2:
            continue
        if _is_pinned(space, one, two) or all(_is_sorted(space, tensors) for tensors in (one, two)):
            left_out.append(space.name)
            continue
        in_place += int((shuffle.order[back.order] == np.arange(space.size)).sum())
        units, spaces = units + space.size, spaces + 1
    tails = places_tail(in_place, spaces), paired_places_tail(in_place, spaces)
    moves = {number: then(shuffles[number], move) for number, move in found.moves.items()}
    return PlacesTest(in_place, units, spaces, tuple(left_out), *tails, moves)


def _is_pinned(space: UnitSpace, one: Tensors, two: Tensors) -> bool:
    """Whether a matrix that is the same in both files tells the units apart."""
    for rows in space.members:
        table = unit_rows(rows, one)
        same = table.shape[1] > 1 and torch.equal(one[rows.tensor], two[rows.tensor])
        if same and not torch.equal(table, table[:1].expand_as(table)):
            return True
    return False


def _is_sorted(space: UnitSpace, tensors: Tensors) -> bool:
    """Whether places go up or down with some number of the units."""
    keys: list[Floats] = []
    for rows in space.members:
        table = unit_rows(rows, tensors).double().numpy()
        sizes = np.linalg.norm(table, axis=1)
        keys += [sizes, *table[:, :COLUMNS].T, *(table[:, :COLUMNS] / np.where(sizes > 0, sizes, 1.0)[:, None]).T]
    keys = [key for key in keys if np.ptp(key) > 0]
    if not keys:
        return False
    ranks = np.array([rankdata(key) for key in keys])
    ranks -= ranks.mean(1, keepdims=True)
    places = np.arange(space.size) - (space.size - 1) / 2
    rho = ranks @ places / (np.linalg.norm(ranks, axis=1) * np.linalg.norm(places))
    largest = float(np.abs(rho).max()) * sqrt(space.size - 1)
    return bool(len(keys) * erfc(largest / sqrt(2)) <= SORTED) or bool(np.abs(rho).max() > 1 - 1e-9)
