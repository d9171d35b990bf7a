"""The evidence of a search: a tree of splits for every case, with multipliers at its leaves, and its JSON."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lawful.bounds.split.layers import MergedLayers
from lawful.formats.queries.specification import ForbiddenHalfSpace, ForbiddenRegion
from lawful.network import Dag, Mlp, Role
from lawful.network.digest import digest
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
        for row, leaf_multipliers in enumerate(duals):
            slopes[row, layers.places], pushes[row, layers.places], weights[row] = leaf_multipliers
        return SplitTree(tuple(splits), tuple(middles), slopes, pushes, weights, rounds, tuple(tuned))


def widen(layers: MergedLayers, layer: int, neuron: NDArray[np.intp], slopes: list[Floats]) -> Tuned:
    """Slopes of a layer's bounds, as those of the network that was given."""
    starts = np.cumsum([0, *layers.given])
    where = layers.places[layers.cuts[layer] + neuron]
    layer_as_given = int(np.searchsorted(starts, where[0], side="right")) - 1
    wide = np.zeros((2 * len(neuron), int(starts[layer_as_given])), np.uint8)
    flat = np.concatenate(slopes, axis=1)
    wide[:, layers.places[: layers.cuts[layer]]] = (flat * 128).astype(np.uint8)
    return Tuned(layer_as_given, where - starts[layer_as_given], wide)


def certificate_of_specification(
    network: Mlp | Dag,
    regions: Sequence[ForbiddenRegion],
    *,
    point: Sequence[Fraction] | None,
    proofs: Sequence[SplitTree | None] | None,
) -> dict[str, Any]:
    """What `lawful verify` needs to see that nothing forbidden occurs, or that it does at a point."""
    return {
        "kind": "specification",
        "version": 2,
        "about": [digest(network)],
        "network": packed_network(network),
        "regions": [
            {
                "box": [[str(low), str(high)] for low, high in zip(region.low, region.high, strict=True)],
                "forbidden": [[_condition(space) for space in case] for case in region.forbidden],
            }
            for region in regions
        ],
        "input": None if point is None else [_number(value) for value in point],
        "proofs": None if proofs is None else [None if proof is None else _proof(proof) for proof in proofs],
    }


def packed_network(network: Mlp | Dag) -> dict[str, Any]:
    """Layers, or a graph by its edges, as packed numbers: these are read a hundred times as fast as decimals."""
    if isinstance(network, Dag):
        return {
            "nodes": len(network.roles),
            "edges": len(network.tails),
            "roles": _pack(network.roles, "u1"),
            "ends": _pack(np.stack([network.tails, network.heads]), "<i4"),
            "slopes": _pack(network.slopes[network.roles == Role.HIDDEN], "<f8"),
            "weights": _pack(network.theta, "<f8"),
        }
    return {
        "layers": [
            {
                "shape": list(weight.shape),
                "weights": _pack(weight, "<f8"),
                "bias": None if bias is None else _pack(bias, "<f8"),
            }
            for weight, bias in zip(network.weights, network.biases, strict=True)
        ],
        "slopes": list(network.slopes),
    }


def _number(value: Fraction) -> float | str:
    """A double as a number, any other rational as text."""
    return near if Fraction(near := float(value)) == value else str(value)


def _condition(space: ForbiddenHalfSpace) -> dict[str, Any]:
    return {
        "outputs": [[at, str(a)] for at, a in enumerate(space.outputs) if a],
        "inputs": [[at, str(a)] for at, a in enumerate(space.inputs) if a],
        "bound": str(space.bound),
        "strict": space.strict,
    }


def _proof(proof: SplitTree) -> dict[str, Any]:
    return {
        "splits": list(proof.splits),
        "middles": list(proof.middles),
        "slopes": _pack(proof.slopes, "u1"),
        "pushes": _pack(proof.pushes, "<f4"),
        "weights": _pack(proof.weights, "<f4"),
        "rounds": proof.rounds,
        "tuned": [
            {"layer": tuning.layer, "neurons": tuning.neurons.tolist(), "slopes": _pack(tuning.slopes, "u1")}
            for tuning in proof.tuned
        ],
    }


def _pack(table: NDArray[Any], kind: str) -> str:
    return base64.b64encode(zlib.compress(table.astype(kind).tobytes())).decode("ascii")
