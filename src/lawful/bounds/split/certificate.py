"""The evidence for a specification as one JSON object: the network, every box with what is forbidden, the proofs."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from lawful.bounds.split.question import ForbiddenHalfSpace, ForbiddenRegion
from lawful.bounds.split.tree import SplitTree
from lawful.network import Dag, Mlp
from lawful.network.digest import digest, written
from lawful.types import Floats


def certificate_of_specification(
    network: Mlp | Dag, regions: Sequence[ForbiddenRegion], *, point: Floats | None, proofs: Sequence[SplitTree] | None
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
        "input": None if point is None else point.tolist(),
        "proofs": None if proofs is None else [_proof(each) for each in proofs],
    }


def packed_network(network: Mlp | Dag) -> dict[str, Any]:
    """Layers as packed doubles, which are read a hundred times as fast as decimals; a graph that has none by edges."""
    if isinstance(network, Dag):
        return written(network)
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
