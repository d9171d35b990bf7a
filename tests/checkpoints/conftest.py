"""Families of models, read once, and ways to disguise their checkpoints."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from checkpoints.models import FAMILIES, make
from torch import nn
from written_alike import written

from lawful.checkpoints import architecture as reading
from lawful.checkpoints.align import lazy_tensors
from lawful.checkpoints.architecture import CheckpointArchitecture
from lawful.checkpoints.compare.decide import CheckpointVerdict
from lawful.checkpoints.group.axis_actions import frames, move_tensors
from lawful.checkpoints.group.random_members import draw
from lawful.checkpoints.opening import ApartPair, open_both
from lawful.checkpoints.read_architecture import in_evaluation, read_architecture
from lawful.checkpoints.rewrite.folds import State, apply_folds
from lawful.checkpoints.verdict import ApartVerdict, decide, decide_apart

READERS = (
    "checkpoints.read_architecture",
    "api.checkpoints.sketches",
    "api.checkpoints.orbits",
)
KNOWN: dict[Hashable, CheckpointArchitecture] = {}


@pytest.fixture(scope="module", autouse=True)
def _modules_written_alike_are_read_once() -> Iterator[None]:
    """Reading (exporting, trying the group) is the larger part of most answers; `test_reading` and others do it again.

    Modules that are written alike but for their weights share one reading, as the checkpoints of an architecture do.
    """

    def read(module: nn.Module, input: Any = None, **options: Any) -> CheckpointArchitecture:
        own = written(module)
        if own is None or not isinstance(input, (str, tuple, list, type(None))):
            return read_architecture(module, input, **options)
        key = own, repr(input), repr(options), reading.MANY_NUMBERS, lazy_tensors.KEPT
        if key not in KNOWN:
            KNOWN[key] = read_architecture(module, input, **options)
        return replace(KNOWN[key], module=in_evaluation(module))

    with pytest.MonkeyPatch.context() as patch:
        for name in READERS:
            patch.setattr(f"lawful.{name}.read_architecture", read)
        yield


@cache
def architecture(family: str) -> CheckpointArchitecture:
    return read_architecture(make(family), FAMILIES[family][1])


def same_by_weights(first: Any, second: Any, *, seed: int = 0, **reading: Any) -> CheckpointVerdict | ApartVerdict:
    """The verdict on two sources as checkpoints, whatever they could be compared as besides."""
    pair = open_both(first, second, **reading)
    return decide_apart(pair, seed=seed)[1] if isinstance(pair, ApartPair) else decide(pair, seed=seed)[1]


def wide(state: State) -> State:
    return {name: tensor.double() if tensor.is_floating_point() else tensor for name, tensor in state.items()}


def narrow(state: State, kind: torch.dtype) -> State:
    return {name: tensor.to(kind) if tensor.is_floating_point() else tensor for name, tensor in state.items()}


def disguise(found: CheckpointArchitecture, state: State, seed: int) -> State:
    """A random member of the orbit in float64: permutations, signs, scales, rotations, phases, folds and shifts."""
    rng = np.random.default_rng(seed)
    hidden = apply_folds(wide(state), found.folds)
    hidden |= move_tensors(hidden, frames(found.group, draw(found.group, rng)), list(found.group.shapes))
    for laws in found.group.shifts:
        for name, piece in laws.pull(hidden, rng.normal(scale=0.3, size=len(laws.values(hidden)))):
            hidden[name] = hidden[name] + piece
    return {name: tensor.contiguous() for name, tensor in hidden.items()}
