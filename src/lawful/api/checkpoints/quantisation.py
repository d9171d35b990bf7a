"""Where one of two checkpoints is quantised: which tensors, by which scheme, and how far each is from the other's."""

from __future__ import annotations

import os
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

import torch

from lawful.checkpoints.opening import CheckpointPair, OpenCheckpoint
from lawful.errors import LawfulError
from lawful.outward import at_most
from lawful.sources.checkpoints.load import is_factory
from lawful.sources.checkpoints.schemes import schemes_of


@dataclass(frozen=True)
class SchemeDistance:
    """The tensors that one scheme stores: the furthest that any of their entries is from the other checkpoint's, in
    distances of neighbouring values at that entry, and relative to the largest entry of its tensor."""

    scheme: str
    tensors: int
    steps: float
    relative: float


def quantisation_words(pair: CheckpointPair, first: Any, second: Any) -> str:
    """What is known of quantised weights, as a clause; empty if there are none.

    Tensors are compared in place: a scheme that was applied to these very weights left each where it was.
    """
    words = []
    for which, other, source, ours, theirs in (
        ("B", "A", second, pair.second, pair.first),
        ("A", "B", first, pair.first, pair.second),
    ):
        for distance in distances_by_scheme(source, ours, theirs):
            far = "an unbounded number of" if distance.steps == inf else at_most(distance.steps)
            words.append(
                f"{which} stores {distance.tensors} tensor{'s' * (distance.tensors != 1)} by {distance.scheme}, "
                f"each entry within {far} steps of {other}'s (a step is the distance of neighbouring values there), "
                f"at most {at_most(distance.relative)} of the largest entry of its tensor"
            )
    return "; ".join(words)


def distances_by_scheme(source: Any, own: OpenCheckpoint, other: OpenCheckpoint) -> list[SchemeDistance]:
    """How far the quantised tensors of a source are from those of another checkpoint."""
    if not isinstance(source, (str, os.PathLike)) or is_factory(os.fspath(source)) or not Path(source).exists():
        return []
    homes = {key: name for name, key in own.keys.items()}
    distances: dict[str, list[tuple[float, float]]] = {}
    try:
        for key, stored in schemes_of(Path(source)):
            name = homes.get(key)
            if name is not None and name in other.state and other.state[name].shape == own.state[name].shape:
                apart = _distance(own.state[name], other.state[name], stored.step())
                distances.setdefault(stored.scheme, []).append(apart)
    except LawfulError:  # a form of its own: nothing is said
        return []
    return [
        SchemeDistance(scheme, len(pairs), max(a for a, _ in pairs), max(b for _, b in pairs))
        for scheme, pairs in distances.items()
    ]


def _distance(one: torch.Tensor, two: torch.Tensor, step: torch.Tensor) -> tuple[float, float]:
    gap, size = (one.double() - two.double()).abs(), float(two.double().abs().max()) if two.numel() else 0.0
    wide = step.double()
    steps = torch.where(wide > 0, gap / wide.clamp(min=1e-300), torch.where(gap > 0, inf, 0.0))
    if not one.numel():
        return 0.0, 0.0
    return float(steps.max()), float(gap.max()) / size if size else (inf if float(gap.max()) else 0.0)
