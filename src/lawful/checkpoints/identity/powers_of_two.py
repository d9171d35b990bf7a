"""Scales of units that are powers of two, taken out of the numbers of a checkpoint exactly."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import torch
from numpy.typing import NDArray

from lawful.checkpoints.group.axis_actions import as_rows
from lawful.checkpoints.group.spaces import AxisPlace, AxisRows, OrbitGroup, UnitSpace, members_of
from lawful.types import Floats


def take_out_scales(group: OrbitGroup, wide: dict[str, Floats]) -> None:
    """Multiply by powers of two until the largest weight into each unit is between 1/2 and 1.

    Space after space, from what is fixed: a tensor counts if its other axes are settled. A unit that shows nothing
    there is scaled by whatever it has when all others are done.
    """
    touching: dict[AxisPlace, set[int]] = defaultdict(set)
    for number, space in enumerate(group.spaces):
        if isinstance(space, UnitSpace) and space.scales:
            for rows in space.members:
                if any(rows.powers):
                    touching[rows.place].add(number)
    waiting = {number for numbers in touching.values() for number in numbers}
    moving = {rows.tensor for space in group.spaces if not isinstance(space, UnitSpace) for rows in members_of(space)}

    def usable(rows: AxisRows) -> bool:
        others = [place for place in touching if place[0] == rows.tensor and place != rows.place]
        return rows.tensor not in moving and not any(touching[place] & waiting for place in others)

    while waiting:
        number = max(sorted(waiting), key=lambda n: sum(
            usable(rows) for rows in group.spaces[n].members if any(rows.powers)))  # type: ignore[union-attr]  # fmt: skip
        space = group.spaces[number]
        if isinstance(space, UnitSpace):
            settled = np.zeros((space.size, space.scales), dtype=bool)
            for wanted in (usable, lambda rows: rows.tensor not in moving):
                _scale(space, wide, [rows for rows in space.members if wanted(rows)], settled)
        waiting.discard(number)


def _scale(space: UnitSpace, wide: dict[str, Floats], members: list[AxisRows], settled: NDArray[np.bool_]) -> None:
    for scale in range(space.scales):
        for rows in members:
            power = rows.powers[scale]
            if not power or settled[:, scale].all():
                continue
            flat = as_rows(torch.from_numpy(wide[rows.tensor]), rows.dims).abs().amax(1).numpy()
            largest = flat[rows.places].max(1)
            now = (largest > 0) & ~settled[:, scale]
            exponent = np.frexp(np.where(now, largest, 0.5))[1]
            steps = np.where(now, -np.floor_divide(exponent, power), 0.0)
            settled[:, scale] |= now
            for other in space.members:
                if other.powers[scale]:
                    _multiply(wide, other, np.ldexp(1.0, (steps * other.powers[scale]).astype(int)))


def _multiply(wide: dict[str, Floats], rows: AxisRows, factors: Floats) -> None:
    """In place: the numbers are a copy of the checkpoint's."""
    array = wide[rows.tensor]
    line = np.ones([array.shape[d] for d in rows.dims]).reshape(-1)
    line[rows.places] = factors[:, None]
    laid = line.reshape([array.shape[d] for d in rows.dims]).transpose(np.argsort(rows.dims))
    array *= laid.reshape([size if d in rows.dims else 1 for d, size in enumerate(array.shape)])
