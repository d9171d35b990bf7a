"""What the relation of two checkpoints rests on, as JSON; computes nothing and needs no PyTorch."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Any

from lawful.report.plain import pick

if TYPE_CHECKING:
    from lawful.checkpoints.relations.verdict import Lineage


def lineage_json(found: Lineage | None) -> dict[str, Any]:
    """The keys `p_value`, `effect`, `alike` and `lineage` of `lawful diff --json`."""
    if found is None:
        return {"p_value": None, "effect": None, "alike": None, "lineage": None}
    places = found.places
    return {
        **pick(found, "p_value effect alike=is_alike"),
        "lineage": {
            **pick(found, "found level"),
            "places": {
                **pick(places, "in_place units spaces left_out p_value paired_p_value"),
            },
            "held_out": [
                {"tensor": tensor.tensor, "units": tensor.units, "cosine": tensor.cosine, "bulk": tensor.bulk,
                 "deviation": tensor.deviation} for tensor in found.held_out
            ],
            "shared": list(found.shared),
            "apart": found.apart if isfinite(found.apart) else None,
        },
    }  # fmt: skip
