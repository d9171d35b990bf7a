"""Random members of a checkpoint's orbit: to try what was read of its group, and to disguise."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch

from lawful.checkpoints.align.align import plus, sum_directions
from lawful.checkpoints.align.lazy_tensors import MadeTensors
from lawful.checkpoints.group.axis_actions import frames, move_tensors
from lawful.checkpoints.group.spaces import (
    BlockMove,
    GroupedUnits,
    GroupsMove,
    HeadsMove,
    HiddenSpace,
    MatrixBlock,
    OrbitGroup,
    SpaceMove,
    UnitsMove,
    UnitSpace,
    turning,
)
from lawful.types import Floats, Indices

# Of the logarithm of a random scale: within 1.8 of 1 for 19 in 20, so that a disguise costs float32 no more than a bit.
SPREAD = 0.3
MIRRORED = 512  # from this size on a reflection stands for all rotations, if that is asked for: QR takes cubic time


def random_member(
    group: OrbitGroup,
    folded: Mapping[str, torch.Tensor],
    seed: int,
    *,
    shifted: bool = True,
    trial: int | None = None,
    mirrored: bool = False,
) -> Mapping[str, torch.Tensor]:
    """Folded tensors after a random member of the group (that of a trial; large rotations may be reflections), and
    random shifts."""
    rng = np.random.default_rng(seed)
    acting = frames(group, draw(group, rng, trial=trial, mirrored=mirrored))
    turned = MadeTensors(folded, lambda name: move_tensors(folded, acting, [name]))
    return plus(turned, random_shifts(group, rng) if shifted else {})


def random_shifts(group: OrbitGroup, rng: np.random.Generator) -> dict[str, list[torch.Tensor]]:
    """Random steps along directions that no operation sees."""
    steps_by_name: dict[str, list[torch.Tensor]] = {}
    shapes = {name: torch.Size(shape) for name, shape in group.shapes.items()}
    for laws in group.shifts:
        zeros = {name: torch.zeros((), dtype=torch.float64).expand(shapes[name]) for name in laws.parameters}
        steps = rng.normal(scale=0.3, size=len(laws.values(zeros)))
        for name, piece in sum_directions(laws, steps, shapes):
            steps_by_name.setdefault(name, []).append(piece)
    return steps_by_name


def draw(
    group: OrbitGroup, rng: np.random.Generator, *, trial: int | None = None, mirrored: bool = False
) -> dict[int, SpaceMove]:
    """A random member of the group, well conditioned.

    With `trial` 0 and 1: two members that together try all of it. Where units change places, the first turns all of
    them around one cycle and the second exchanges two neighbours there, and these two generate every permutation. Each
    sign is turned by one of them, an odd number of signs by the first.

    `mirrored`: of large rotations only a reflection, which acts in no time. Reflections generate all of O(m), so what
    a reflection in a random direction leaves alone is left alone by every rotation.
    """
    return {number: _draw_move(space, rng, trial, mirrored) for number, space in enumerate(group.spaces)}


def _draw_move(space: HiddenSpace, rng: np.random.Generator, trial: int | None, mirrored: bool) -> SpaceMove:
    if isinstance(space, UnitSpace):
        return _draw_units(space, _order(space.size, rng, trial) if space.permutes else None, rng, trial)
    if isinstance(space, GroupedUnits):
        groups = _order(space.count, rng, trial) if space.permutes else np.arange(space.count)
        return GroupsMove(tuple(_draw_units(s, _in_groups(s, groups, rng, trial), rng, trial) for s in space.slots))
    if isinstance(space, MatrixBlock):
        if mirrored and space.size >= MIRRORED and space.kind in ("O", "O fixing 1"):
            return BlockMove(_mirror(space, rng))
        return BlockMove(_matrix(space, rng))
    count = len(space.heads)
    order = _order(count, rng, trial) if space.permutes else np.arange(count)
    copies = np.stack(
        [_order(space.copies, rng, trial) if space.permutes else np.arange(space.copies) for _ in range(count)]
    )
    matrices = tuple(tuple(_matrix(block, rng) for block in head) for head in space.heads)
    return HeadsMove(order, copies, matrices)


def _draw_units(space: UnitSpace, order: Indices | None, rng: np.random.Generator, trial: int | None) -> UnitsMove:
    signs = _signs(space.size, rng, trial) if space.signed else np.ones(space.size)
    scales = np.exp(rng.normal(scale=SPREAD, size=(space.size, space.scales)))
    return UnitsMove(np.arange(space.size) if order is None else order, scales, signs)


def _in_groups(slot: UnitSpace, groups: Indices, rng: np.random.Generator, trial: int | None) -> Indices:
    """An order of units whose groups are in a given order."""
    size = slot.size // len(groups)
    inner = [_order(size, rng, trial) if slot.permutes else np.arange(size) for _ in groups]
    return np.concatenate([group * size + order for group, order in zip(groups, inner, strict=True)])


def _order(count: int, rng: np.random.Generator, trial: int | None) -> Indices:
    line = rng.permutation(count)
    if trial is None:
        return line
    order = np.arange(count)
    if trial == 0:
        order[line] = np.roll(line, 1)
    else:
        order[line[:2]] = line[:2][::-1]
    return order


def _signs(count: int, rng: np.random.Generator, trial: int | None) -> Floats:
    signs = rng.choice([-1.0, 1.0], count)
    if trial is None:
        return signs
    if (signs < 0).sum() % 2 == 0:
        signs[0] = -signs[0]
    return signs if trial == 0 else -signs


def _matrix(block: MatrixBlock, rng: np.random.Generator) -> Floats:
    size = block.size
    if block.kind == "rotary":
        phases = rng.uniform(0, 2 * np.pi, len(block.pairs))
        return turning(block, np.exp(rng.normal(scale=SPREAD, size=len(block.pairs))) * np.exp(1j * phases))
    if block.kind == "still":
        return np.eye(size)
    turn = np.linalg.qr(rng.normal(size=(size, size)))[0]
    if block.kind == "GL":
        other = np.linalg.qr(rng.normal(size=(size, size)))[0]
        return np.asarray(turn * np.exp(rng.normal(scale=SPREAD, size=size)) @ other)
    if block.kind == "O":
        return np.asarray(turn)
    basis = np.linalg.qr(np.column_stack([np.ones(size), rng.normal(size=(size, size - 1))]))[0]
    inner = np.eye(size)
    inner[1:, 1:] = np.linalg.qr(rng.normal(size=(size - 1, size - 1)))[0]
    return np.asarray(basis @ inner @ basis.T)


def _mirror(block: MatrixBlock, rng: np.random.Generator) -> Floats:
    """A random unit vector, orthogonal to 1 if that is to stay."""
    vector = rng.normal(size=block.size)
    if block.kind == "O fixing 1":
        vector -= vector.mean()
    return np.asarray(vector / np.linalg.norm(vector))
