"""What the relation of two checkpoints rests on, as JSON; computes nothing and needs no PyTorch."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lawful.checkpoints.relations.verdict import Lineage


def lineage_json(found: Lineage | None) -> dict[str, Any]:
    """The keys `p_value`, `effect`, `alike` and `lineage` of `lawful diff --json`."""
    if found is None:
        return {"p_value": None, "effect": None, "alike": None, "lineage": None}
    places = found.places
    return {
        "p_value": found.p_value,
        "effect": found.effect,
        "alike": found.is_alike,
        "lineage": {
            "found": found.found,
            "level": found.level,
            "places": {
                "in_place": places.in_place,
                "units": places.units,
                "spaces": places.spaces,
                "left_out": list(places.left_out),
                "p_value": places.p_value,
                "paired_p_value": places.paired_p_value,
            },
            "held_out": [
                {"tensor": tensor.tensor, "units": tensor.units, "cosine": tensor.cosine, "bulk": tensor.bulk,
                 "deviation": tensor.deviation} for tensor in found.held_out
            ],
            "shared": list(found.shared),
            "apart": found.apart if isfinite(found.apart) else None,
        },
    }  # fmt: skip
