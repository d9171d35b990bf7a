"""The evidence for a specification as one JSON object: the network, every box with what is forbidden, the proofs."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lawful.bounds.split.question import ForbiddenHalfSpace, ForbiddenRegion
from lawful.bounds.split.tree import SplitTree
from lawful.network import Dag, Mlp, Role
from lawful.network.digest import digest


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
        "proofs": None if proofs is None else [None if each is None else _proof(each) for each in proofs],
    }


def packed_network(network: Mlp | Dag) -> dict[str, Any]:
    """Layers, or a graph by its edges, as packed numbers: these are read a hundred times as fast as decimals."""
    if isinstance(network, Dag):
        return {
            "nodes": len(network.roles),
            "edges": len(network.tails),
            "roles": _packed(network.roles, "u1"),
            "ends": _packed(np.stack([network.tails, network.heads]), "<i4"),
            "slopes": _packed(network.slopes[network.roles == Role.HIDDEN], "<f8"),
            "weights": _packed(network.theta, "<f8"),
        }
    return {
        "layers": [
            {
                "shape": list(weight.shape),
                "weights": _packed(weight, "<f8"),
                "bias": None if bias is None else _packed(bias, "<f8"),
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
        "slopes": _packed(proof.slopes, "u1"),
        "pushes": _packed(proof.pushes, "<f4"),
        "weights": _packed(proof.weights, "<f4"),
        "rounds": proof.rounds,
        "tuned": [
            {"layer": each.layer, "neurons": each.neurons.tolist(), "slopes": _packed(each.slopes, "u1")}
            for each in proof.tuned
        ],
    }


def _packed(table: NDArray[Any], kind: str) -> str:
    return base64.b64encode(zlib.compress(table.astype(kind).tobytes())).decode("ascii")
