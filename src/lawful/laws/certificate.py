"""A proved count as a small JSON object that `lawful verify` re-checks with other code."""

from __future__ import annotations

from typing import Any

import numpy as np

from lawful.errors import Unsupported
from lawful.laws.law import Law
from lawful.laws.law_count import LawCount
from lawful.network.digest import digest, written
from lawful.network.dynamics import HeavyBall, Metric


def certificate(count: LawCount) -> dict[str, Any]:
    """Everything needed to check a proved count again: network, prime, point, brackets and explicit laws.

    >>> from lawful.laws import count_laws
    >>> sorted(certificate(count_laws("2-2-2 relu")))[:6]
    ['about', 'brackets', 'dimensions', 'flow', 'kind', 'known']
    """
    if not count.proved or count.dag is None or count.witness is None:
        raise Unsupported(f"only a proved count has a certificate; this one is {count.status}: {count.reason}")
    if count.region is not None and count.region.nudged:
        raise Unsupported("the weights lie on a boundary between activation patterns: no certificate speaks of them")
    weights = count.region is not None  # at the φ level they do not matter
    body: dict[str, Any] = {
        "kind": "laws",
        "version": 1,
        "about": [digest(count.dag, weights=weights)],
        "laws": count.laws,
        "parameters": count.parameters,
        "states": count.states,
        "dimensions": list(count.dimensions),
        "level": count.level,
        "loss": count.loss,
        "flow": _flow(count),
        "network": written(count.dag, weights=weights),
        "prime": count.witness.prime,
        "seed": count.witness.seed,
        "point": count.witness.point.tolist(),
        "brackets": list(count.witness.rows),
        "known": [_named(law) for law in count.known],
    }
    if count.region is not None:
        gates = [None if np.isnan(gate) else gate for gate in count.region.fixed.tolist()]
        body |= {"inputs": count.region.witnesses.tolist(), "fixed": gates}
        if count.region.groups is not None:
            body["groups"] = count.region.groups.tolist()
    return body


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
