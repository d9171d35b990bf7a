"""The evidence for a distance as one JSON object: networks, box, and where boxes were halved."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from lawful.bounds.layers import evaluate
from lawful.bounds.result import Distance
from lawful.errors import Unsupported
from lawful.network import Dag, Mlp
from lawful.network.digest import digest, with_layers
from lawful.types import Floats

ROOM = Fraction(1, 2**20)  # relative: the verifier rounds otherwise than the maker
ROUNDING = Fraction(1, 10**11)  # relative to the outputs


def certificate(found: Distance, first: Mlp | Dag, second: Mlp | Dag) -> dict[str, Any]:
    """What `lawful verify` needs to compute the bounds anew.

    With a question that was proved the statement is its answer; otherwise the bounds that were found.
    """
    upper: Fraction | None = None
    if found.status == "proved":
        upper = found.within
    elif found.status != "violated" and found.upper < math.inf:
        upper = Fraction(found.upper) * (1 + ROOM) + _rounding(found)
    lower = found.within if found.status == "violated" else found.lower * (1 - ROOM)
    if upper is None and not lower:
        raise Unsupported("nothing is known of this distance that a certificate could state")
    return {
        "kind": "distance",
        "version": 1,
        "about": [digest(network) for network in (first, second)],
        "networks": [with_layers(network) for network in (first, second)],
        "box": _sides(found.low, found.high),
        "outputs": [each.output for each in found.per_output],
        "norm": "inf" if found.norm == math.inf else str(int(found.norm)),
        "upper": None if upper is None else str(upper),
        "lower": {"input": found.input.tolist(), "above": str(lower)} if lower else None,
        "matching": [
            {"first": each.first.tolist(), "second": each.second.tolist(), "scale": each.scale.tolist()}
            for each in found.pair.matches
        ],
        "tree": [] if upper is None else list(found.tree),
        "spectral": None
        if upper is None or found.spectral is None
        else {"rows": found.spectral.rows.tolist(), "columns": found.spectral.columns.tolist()},
    }


def _rounding(found: Distance) -> Fraction:
    """Where the bound is all rounding errors the verifier's may be others: a share of the outputs' size."""
    if not found.upper:
        return Fraction(0)
    outputs = np.abs(evaluate(found.pair.first, found.input[None])).max(initial=0.0)
    return ROUNDING * Fraction(float(outputs)) if np.isfinite(outputs) else Fraction(0)


def _sides(low: Floats, high: Floats) -> list[list[str]]:
    return [[str(Fraction(float(end))) for end in side] for side in zip(low, high, strict=True)]
