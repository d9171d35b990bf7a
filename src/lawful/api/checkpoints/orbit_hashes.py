"""`fingerprint` for modules: checkpoints with the same exact orbit hash are the same function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lawful.checkpoints.identity.orbit_hash import orbit_hash
from lawful.checkpoints.opening import Model, open_one
from lawful.checkpoints.read_architecture import read_architecture
from lawful.fibers.regions.count import FunctionGroups, NamedFingerprint
from lawful.sources.checkpoints.load import make_module
from lawful.symmetry.inputs import Input

REGIME = "exact orbit"


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
    found = []
    for number, (source, name) in enumerate(zip(sources, names, strict=True)):
        opened, module, size = open_one(source, model=shared, activation=activation, order=order)
        if architecture is None or module is not shared:
            own = read_architecture(module, input if input is not None else size, folding="statistics")
        else:
            own = architecture
        mark = orbit_hash(own, opened.state)
        groups.setdefault(mark.hash or f"none {number}", []).append(name)
        found.append(NamedFingerprint(name, mark.hash or "", REGIME, mark.hash is not None, mark.reason))
        tick()
    return FunctionGroups(tuple(found), tuple(map(tuple, groups.values())))
