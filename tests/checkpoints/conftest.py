"""Families of models, read once, and ways to disguise their checkpoints."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from checkpoints.models import FAMILIES, make

from lawful.checkpoints.architecture import CheckpointArchitecture, read_architecture
from lawful.checkpoints.element import draw, frames, moved
from lawful.checkpoints.folds import State, fold


@cache
def architecture(family: str) -> CheckpointArchitecture:
    return read_architecture(make(family), FAMILIES[family][1])


def wide(state: State) -> State:
    return {name: tensor.double() if tensor.is_floating_point() else tensor for name, tensor in state.items()}


def narrow(state: State, kind: torch.dtype) -> State:
    return {name: tensor.to(kind) if tensor.is_floating_point() else tensor for name, tensor in state.items()}


def disguise(found: CheckpointArchitecture, state: State, seed: int) -> State:
    """A random member of the orbit in float64: permutations, signs, scales, rotations, phases, folds and shifts."""
    rng = np.random.default_rng(seed)
    hidden = fold(wide(state), found.folds)
    hidden |= moved(hidden, frames(found.group, draw(found.group, rng)), list(found.group.shapes))
    for laws in found.group.shifts:
        for name, piece in laws.pull(hidden, rng.normal(scale=0.3, size=len(laws.values(hidden)))):
            hidden[name] = hidden[name] + piece
    return {name: tensor.contiguous() for name, tensor in hidden.items()}
