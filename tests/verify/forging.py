"""Tools of forgers: certificates as a reader gets them, changed, and signed again with true digests."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from lawful import CertificateError, NotACertificate, Unsupported
from lawful.verify.bounds.packed import read_packed
from lawful.verify.core.dag import read_dag, read_mlp, read_network
from lawful.verify.core.tensors import read_tensor, weights_digest
from lawful.verify.invariant_set.balances import read_graph

REFUSED = (CertificateError, NotACertificate, Unsupported)
Proof = dict[str, Any]


def saved(proof: Proof, **changes: Any) -> Proof:
    """What a reader of the file gets, with changes at its top."""
    return dict(json.loads(json.dumps(proof))) | changes


def result_of(proof: Proof) -> Any:
    """The network that a pruning ends with."""
    return proof["stages"][-1]["after"] if proof["stages"] else proof["original"]


def signed(proof: Proof) -> Proof:
    """The digests of the networks that the certificate now holds, so that only mathematics can reject it."""
    try:
        match proof["kind"]:
            case "same" | "distance":
                about = [read_network(network).digest() for network in proof["networks"]]
            case "pruning":
                about = [read_dag(network).digest() for network in (proof["original"], result_of(proof))]
            case "path":
                about = [read_graph(proof[key]).digest() for key in ("start", "stop")]
            case "rebalance":
                about = [read_dag(proof[key]).digest() for key in ("before", "after")]
            case "flow":
                ends = [proof["network"] | {"weights": proof["theta"][place]} for place in (0, -1)]
                about = [read_dag(network).digest() for network in ends]
            case "channel-pruning":
                kept = {k: v for k, v in proof["others"].items() if k not in proof.get("lost", [])}
                about = [
                    weights_digest({k: v.get("line") or read_tensor(v).line for k, v in proof[key].items()} | others)
                    for key, others in (("before", proof["others"]), ("after", kept))
                ]
            case "specification":
                about = [read_packed(proof["network"]).digest]
            case "monotone":
                network = proof["network"]
                about = [read_network(network).digest()]
            case "identifiable" | "regions" | "removable":
                about = [read_mlp(proof["network"]).digest()]
            case _ if "network" in proof:
                about = [read_graph(proof["network"]).digest()]
            case _:
                return proof
    except (*REFUSED, LookupError, TypeError, ValueError, AttributeError):
        return proof
    return proof | {"about": about}


def changed(*where: str | int, to: Callable[[Any], Any]) -> Callable[[Proof], None]:
    """A forger who changes one place."""

    def change(proof: Proof) -> None:
        inner: Any = proof
        for key in where[:-1]:
            inner = inner[key]
        inner[where[-1]] = to(inner[where[-1]])

    return change
