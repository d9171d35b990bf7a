"""Modules by their symmetries: hashes that equal functions share, and members of an orbit that are worth something."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from lawful.checkpoints.identity.orbit_hash import orbit_hash
from lawful.checkpoints.opening import Model, OpenCheckpoint, open_one
from lawful.checkpoints.read_architecture import read_architecture
from lawful.checkpoints.representative import Purpose, Representative, represent
from lawful.errors import LawfulError
from lawful.fibers.regions.count import FunctionGroups, NamedFingerprint
from lawful.formats.queries.data import read_data
from lawful.sources.checkpoints.load import make_module
from lawful.symmetry.inputs import Input, examples

REGIME = "exact orbit"
PURPOSES: tuple[Purpose, ...] = ("norm", "range", "canonical")


def orbit_fingerprints(
    sources: Sequence[Any],
    names: Sequence[str],
    *,
    model: Model | None = None,
    input: Input | Sequence[Input] | None = None,
    activation: str | None = None,
    order: str | None = None,
    tick: Callable[[], None] = lambda: None,
) -> FunctionGroups:
    """Hash checkpoints of modules, and group those with equal hashes.

    >>> from torch import nn
    >>> one = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1))
    >>> two = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1))
    >>> orbit_fingerprints([one, two, one], ["a", "b", "c"], input=(2,)).groups
    (('a', 'c'), ('b',))
    """
    shared = None if model is None else make_module(model)
    architecture = None if shared is None else read_architecture(shared, input, folding="statistics")
    groups: dict[str, list[str]] = {}
    fingerprints = []
    for number, (source, name) in enumerate(zip(sources, names, strict=True)):
        opened, module, size = open_one(source, model=shared, activation=activation, order=order)
        if architecture is None or module is not shared:
            reading = read_architecture(module, input if input is not None else size, folding="statistics")
        else:
            reading = architecture
        mark = orbit_hash(reading, opened.state)
        groups.setdefault(mark.hash or f"none {number}", []).append(name)
        fingerprints.append(NamedFingerprint(name, mark.hash or "", REGIME, mark.hash is not None, mark.reason))
        tick()
    return FunctionGroups(tuple(fingerprints), tuple(map(tuple, groups.values())))


def representative(
    source: Any,
    purpose: str,
    *,
    data: str | Path | torch.Tensor | None = None,
    model: Model | None = None,
    input: Input | Sequence[Input] | None = None,
    activation: str | None = None,
    order: str | Sequence[str] | None = None,
    seed: int = 0,
) -> Representative:
    """The member of a checkpoint's orbit for a purpose: `norm`, `range` or `canonical`.

    >>> layers = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    >>> with torch.no_grad():
    ...     _ = layers[0].weight.mul_(100), layers[0].bias.mul_(100)
    >>> found = representative(layers, "norm", input=(3,))
    >>> found.verdict.verdict, found.norms[1] < found.norms[0] / 5
    ('equal', True)
    """
    if purpose not in PURPOSES:
        raise LawfulError(f"an objective is norm or range, not {purpose[:40]!r}")
    opened, module, size = open_one(source, model=model, activation=activation, order=order)
    input = input if input is not None else size
    return represent_opened(opened, module, purpose, input, data, seed)


def represent_opened(
    opened: OpenCheckpoint, module: nn.Module, purpose: Purpose, input: Any, data: Any, seed: int
) -> Representative:
    """The same for what is open already."""
    inputs = None if data is None else [_inputs(module, input, data)]
    return represent(opened, module, purpose, input=input, inputs=inputs, seed=seed)


def _inputs(module: nn.Module, input: Any, data: str | Path | torch.Tensor) -> torch.Tensor:
    if isinstance(data, torch.Tensor):
        return data
    tensors = examples(module, input)
    if len(tensors) != 1:
        raise LawfulError("outputs on data are compared for modules with one input")
    shape = tuple(tensors[0].shape[1:])
    rows = read_data(Path(data)).x
    if int(np.prod(shape, dtype=int)) != rows.shape[1]:
        raise LawfulError(f"{data}: {rows.shape[1]} numbers per sample do not fill an input of size {shape}")
    kind = torch.float64 if tensors[0].is_floating_point() else tensors[0].dtype
    return torch.as_tensor(rows).to(kind).reshape(-1, *shape)
