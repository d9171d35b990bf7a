"""A proved count as a small JSON object that other code can re-check."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from lawful.errors import Unsupported
from lawful.laws.law import Law
from lawful.laws.law_count import LawCount
from lawful.network import Dag
from lawful.network.dynamics import HeavyBall, Metric


def certificate(count: LawCount) -> dict[str, Any]:
    """Everything needed to check a proved count again: network, prime, point, brackets and explicit laws.

    >>> from lawful.laws import count_laws
    >>> sorted(certificate(count_laws("2-2-2 relu")))[:6]
    ['brackets', 'digest', 'dimensions', 'flow', 'kind', 'known']
    """
    if not count.proved or count.dag is None or count.witness is None:
        raise Unsupported(f"only a proved count has a certificate; this one is {count.status}: {count.reason}")
    body: dict[str, Any] = {
        "kind": "laws",
        "statement": statement(count),
        "laws": count.laws,
        "parameters": count.parameters,
        "states": count.states,
        "dimensions": list(count.dimensions),
        "level": count.level,
        "loss": count.loss,
        "flow": _flow(count),
        "network": {"architecture": count.architecture} if count.architecture else _graph(count.dag),
        "prime": count.witness.prime,
        "seed": count.witness.seed,
        "point": count.witness.point.tolist(),
        "brackets": list(count.witness.rows),
        "known": [_named(law) for law in count.known],
    }
    if count.region is not None:
        gates = [None if np.isnan(gate) else gate for gate in count.region.fixed.tolist()]
        body |= {
            "weights": count.dag.theta.tolist(),
            "inputs": count.region.witnesses.tolist(),
            "fixed": gates,
        }
        if count.region.groups is not None:
            body["groups"] = count.region.groups.tolist()
    return body | {"digest": digest(body)}


def statement(count: LawCount) -> str:
    """What the certificate proves, in words."""
    name = count.architecture or f"a network with {count.parameters} parameters"
    where = {"phi": "", "near": " near these weights", "data": " near these weights, for these inputs"}[count.level]
    return f"{name} has exactly {count.laws} independent laws under {count.flow} flow{where} ({count.loss} loss)"


def digest(body: Mapping[str, Any]) -> str:
    """A checksum that notices slips of the pen; the proof does not rest on it."""
    text = json.dumps({key: value for key, value in body.items() if key != "digest"}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _named(law: Law) -> list[Any]:
    """The kind of a law and its neurons; for a combination, the laws that it adds up and their weights."""
    if law.kind != "combination":
        return [law.kind, *law.nodes]
    return [law.kind, [[str(next(iter(part.terms.values()))), part.kind, *part.nodes] for part in law.factors]]


def _flow(count: LawCount) -> dict[str, Any]:
    match count.flow:
        case HeavyBall(friction, autonomous):
            return {"name": "momentum", "friction": friction, "autonomous": autonomous}
        case Metric():
            return {"name": "metric", **count.flow.to_json()}
    return {"name": "gradient"}


def _graph(dag: Dag) -> dict[str, Any]:
    return {
        "names": list(dag.names),
        "roles": dag.roles.tolist(),
        "tails": dag.tails.tolist(),
        "heads": dag.heads.tolist(),
        "slopes": dag.slopes.tolist(),
    }
