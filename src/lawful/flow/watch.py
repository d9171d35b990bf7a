"""The structural laws of a training model, watched: all of them, or a sketch; their start survives a restart."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from lawful.errors import LawfulError
from lawful.flow.training_slope import slopes_in_training
from lawful.symmetry import symmetries
from lawful.symmetry.check import CHECKED_SIZE, LOOSE, LOOSE_FLOOR, space_error
from lawful.symmetry.families import SpaceLaws
from lawful.types import Floats

MOST = 200_000  # laws that are watched without being asked for
KINDS = {"GL": "matrix", "scales": "scales", "shifts": "shifts"}


class LawWatch:
    """Drift of the laws since the start, in float64; `sketch` bounds how many laws are looked at.

    A sketch is made of whole spaces, drawn at random but the same for the same model; models with more than 200,000
    laws are sketched unless asked otherwise. `relative` divides each drift by the size of the law's terms at the start
    (laws that start at zero are left out): for gradient flow it stays at rounding, for steps of size h it grows like h.

    >>> import torch
    >>> model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    >>> watch = LawWatch(model, (torch.ones(4, 2),))
    >>> watch.measure(model)["laws"], watch.measure(model)["drift"]
    (3, 0.0)
    """

    def __init__(
        self,
        model: nn.Module,
        inputs: Sequence[Any],
        keywords: Mapping[str, Any] | None = None,
        sketch: int | None = None,
    ) -> None:
        found = symmetries(model, list(inputs), keywords=_own(model, keywords or {}), check=False)
        self.found, self.total = found, len(found.laws)
        chosen = [(space.group, space.laws) for space in found.spaces if space.laws is not None and space.count]
        if sketch is None and self.total > MOST:
            sketch = MOST
        order = np.random.default_rng(0).permutation(len(chosen)).tolist()
        kept, count = [], 0
        for place in order if sketch is not None else range(len(chosen)):
            if sketch is None or not count or count + chosen[place][1].count <= sketch:
                kept.append(chosen[place])
                count += chosen[place][1].count
        self.families: list[tuple[str, SpaceLaws]] = kept
        self.count = count
        self.start = self._values(model)
        theta = {name: tensor.detach() for name, tensor in model.named_parameters()}
        self._sizes = [laws.size_along(theta, theta) for _, laws in kept]

    def hold_against_training(self, model: nn.Module, inputs: Sequence[Any], keywords: Mapping[str, Any]) -> int:
        """Watch only what a gradient keeps, on inputs that the model trains on; returns how many laws it does not."""
        if sum(tensor.numel() for tensor in model.parameters()) > CHECKED_SIZE:
            return 0
        spaces = {id(space.laws): space for space in self.found.spaces}
        kept = [True] * len(self.families)
        for theta, slope in slopes_in_training(model, inputs, keywords):
            for place, (_, laws) in enumerate(self.families):
                kept[place] &= space_error(spaces[id(laws)], theta, slope, LOOSE_FLOOR)[0] <= LOOSE
        before = self.count
        self.families = [each for each, keeps in zip(self.families, kept, strict=True) if keeps]
        self.start = [each for each, keeps in zip(self.start, kept, strict=True) if keeps]
        self._sizes = [each for each, keeps in zip(self._sizes, kept, strict=True) if keeps]
        self.count = sum(laws.count for _, laws in self.families)
        return before - self.count

    def _values(self, model: nn.Module) -> list[Floats]:
        theta = {name: tensor.detach() for name, tensor in model.named_parameters()}
        return [laws.values(theta) for _, laws in self.families]

    def measure(self, model: nn.Module) -> dict[str, Any]:
        """How far the laws have drifted: largest absolute and relative drift, and the largest by kind of group."""
        theta = {name: tensor.detach() for name, tensor in model.named_parameters()}
        kinds: dict[str, float] = {}
        drift, relative = 0.0, 0.0
        for (group, laws), start, size in zip(self.families, self.start, self._sizes, strict=True):
            moved = np.abs(laws.values(theta) - start)
            kind = next(word for key, word in KINDS.items() if group.startswith(key))
            kinds[kind] = max(kinds.get(kind, 0.0), float(moved.max(initial=0.0)))
            drift = max(drift, float(moved.max(initial=0.0)))
            seen = size > 0  # a law whose terms all started at zero has no size to compare with
            relative = max(relative, float((moved[seen] / size[seen]).max(initial=0.0)))
        return {"laws": self.count, "of": self.total, "drift": drift, "relative": relative, "by_group": kinds}

    def save(self, path: Path) -> None:
        """Keep the values at the start, and the sizes of their terms, beside the records."""
        np.save(path, np.stack([np.concatenate([np.zeros(0), *each]) for each in (self.start, self._sizes)]))

    def resume(self, path: Path) -> None:
        """Take the values at the start of an earlier run of the same model."""
        values = np.load(path, allow_pickle=False)
        sizes = [len(part) for part in self.start]
        if values.shape != (2, sum(sizes)):
            raise LawfulError(f"{path}: {values.shape[-1]} laws were watched before, and {sum(sizes)} now")
        if sizes:
            self.start, self._sizes = ([np.asarray(part) for part in np.split(row, np.cumsum(sizes)[:-1])]
                                       for row in values)  # fmt: skip


def _own(model: nn.Module, keywords: Mapping[str, Any]) -> dict[str, Any]:
    """The keywords that make up the input: labels that may be left out belong to the loss, caches to no training."""
    accepted = inspect.signature(model.forward).parameters
    asked = "labels" in accepted and accepted["labels"].default is inspect.Parameter.empty
    found = {name: value for name, value in keywords.items() if (name != "labels" or asked) and value is not None}
    return found | ({"use_cache": False} if "use_cache" in accepted else {})


def digest(model: nn.Module) -> str:
    """A short name for the parameters of a model: their names and sizes."""
    text = ";".join(f"{name}{tuple(tensor.shape)}" for name, tensor in model.named_parameters())
    return hashlib.sha256(text.encode()).hexdigest()[:16]
