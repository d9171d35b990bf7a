"""Nodes of the search: boxes with phases, what is known of every neuron there, and multipliers to start from."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from lawful.types import Floats, Indices, Mask


@dataclass
class SearchNodes:
    """Arrays with a row for each node."""

    low: Floats  # the box
    high: Floats
    least: Floats  # of every neuron's sum
    most: Floats
    phase: NDArray[np.int8]  # +1: this neuron's sum is at least 0, -1: at most 0, 0: not split
    slope: Floats  # multipliers: lower slopes of loose neurons,
    push: Floats  # of the phases,
    weight: Floats  # and of the conditions of the case
    case: Indices

    def __len__(self) -> int:
        return len(self.low)

    def take(self, which: Indices | Mask) -> SearchNodes:
        """Some of them, as copies."""
        return SearchNodes(**{field.name: getattr(self, field.name)[which] for field in fields(self)})

    def child(self, index: Indices, neuron: bool, side: int) -> SearchNodes:
        """One child of each: a phase of a neuron, or a half of an input's side."""
        at = np.arange(len(index))
        if neuron:
            phase, least, most = self.phase.copy(), self.least.copy(), self.most.copy()
            phase[at, index] = 1 if side else -1
            end, cut = (least, np.maximum) if side else (most, np.minimum)
            end[at, index] = cut(end[at, index], 0.0)
            return replace(self, phase=phase, least=least, most=most)
        name = "low" if side else "high"
        ends = getattr(self, name).copy()
        ends[at, index] = middles(self, index)
        return replace(self, **{name: ends, "least": self.least.copy(), "most": self.most.copy()})


def middles(nodes: SearchNodes, index: Indices) -> Floats:
    """Where an input's side is halved."""
    at = np.arange(len(index))
    return np.asarray(nodes.low[at, index] / 2 + nodes.high[at, index] / 2)


def join(parts: list[SearchNodes]) -> SearchNodes:
    """All of them."""
    names = [field.name for field in fields(SearchNodes)]
    return SearchNodes(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in names})
