"""The evidence of a search: a tree of splits for every case, with multipliers at its leaves."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lawful.bounds.split.layers import MergedLayers
from lawful.types import Floats

Bytes = NDArray[np.uint8]
Singles = NDArray[np.float32]
TreePath = tuple[int, ...]  # the case, then sides


class LeafMultipliers(NamedTuple):
    """Of a leaf: slopes in 128ths, pushes of phases, weights of conditions."""

    slope: Bytes
    push: Singles
    weight: Singles


class Tuned(NamedTuple):
    """Neurons of a layer of the network as given, and the slopes below (128ths) that bound them on the whole box."""

    layer: int
    neurons: NDArray[np.intp]
    slopes: Bytes  # a row for each neuron from below, then one for each from above


class SplitTree(NamedTuple):
    """In preorder, case after case: 0 a leaf with multipliers, 1 an empty leaf, `2 + j` the phases of neuron j
    (at most 0 first), `-1 - j` the halves of input j, at the next of `middles`. Neurons are counted as given."""

    splits: tuple[int, ...]
    middles: tuple[float, ...]
    slopes: Bytes
    pushes: Singles
    weights: Singles
    rounds: int  # of cutting and bounding at every node; 0: the whole box's bounds are kept
    tuned: tuple[Tuned, ...]


class Growing:
    """A tree that grows while the search runs."""

    def __init__(self) -> None:
        """Empty."""
        self.splits: dict[TreePath, tuple[int, float]] = {}
        self.leaves: dict[TreePath, LeafMultipliers | None] = {}

    def written(self, layers: MergedLayers, cases: int, rounds: int, tuned: list[Tuned], longest: int) -> SplitTree:
        """The whole tree, its neurons as those of the network that was given."""
        splits: list[int] = []
        middles: list[float] = []
        duals: list[LeafMultipliers] = []
        waiting: list[TreePath] = [(case,) for case in reversed(range(cases))]
        while waiting:
            path = waiting.pop()
            if path in self.splits:
                code, middle = self.splits[path]
                splits.append(2 + int(layers.places[code - 2]) if code >= 2 else code)
                middles += [middle] * (code < 0)
                waiting += [(*path, 1), (*path, 0)]
            elif (leaf := self.leaves[path]) is None:
                splits.append(1)
            else:
                splits.append(0)
                duals.append(leaf)
        total = sum(layers.given)
        slopes = np.zeros((len(duals), total), np.uint8)
        pushes = np.zeros((len(duals), total), np.float32)
        weights = np.zeros((len(duals), longest), np.float32)
        for row, each in enumerate(duals):
            slopes[row, layers.places], pushes[row, layers.places], weights[row] = each
        return SplitTree(tuple(splits), tuple(middles), slopes, pushes, weights, rounds, tuple(tuned))


def widen(layers: MergedLayers, layer: int, neuron: NDArray[np.intp], slopes: list[Floats]) -> Tuned:
    """Slopes of a layer's bounds, as those of the network that was given."""
    starts = np.cumsum([0, *layers.given])
    where = layers.places[layers.cuts[layer] + neuron]
    given = int(np.searchsorted(starts, where[0], side="right")) - 1
    wide = np.zeros((2 * len(neuron), int(starts[given])), np.uint8)
    flat = np.concatenate(slopes, axis=1)
    wide[:, layers.places[: layers.cuts[layer]]] = (flat * 128).astype(np.uint8)
    return Tuned(given, where - starts[given], wide)
