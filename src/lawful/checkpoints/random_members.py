"""Random members of a checkpoint's orbit: to try what was read of its group, and to disguise."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch

from lawful.checkpoints.align import plus, pulled
from lawful.checkpoints.element import draw, frames, moved
from lawful.checkpoints.group import OrbitGroup
from lawful.checkpoints.streamed import MadeTensors


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
    turned = MadeTensors(folded, lambda name: moved(folded, acting, [name]))
    return plus(turned, random_shifts(group, rng) if shifted else {})


def random_shifts(group: OrbitGroup, rng: np.random.Generator) -> dict[str, list[torch.Tensor]]:
    """Random steps along directions that no operation sees."""
    found: dict[str, list[torch.Tensor]] = {}
    shapes = {name: torch.Size(shape) for name, shape in group.shapes.items()}
    for laws in group.shifts:
        zeros = {name: torch.zeros((), dtype=torch.float64).expand(shapes[name]) for name in laws.parameters}
        steps = rng.normal(scale=0.3, size=len(laws.values(zeros)))
        for name, piece in pulled(laws, steps, shapes):
            found.setdefault(name, []).append(piece)
    return found
