"""A count of laws, as text for people."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

LEVELS = {
    "phi": "any weights, any data",
    "near": "near these weights, any data",
    "data": "near these weights, these inputs, any labels",
}
LOSSES = {"full": "any (full span: squared error, logistic, ...)", "cross-entropy": "cross-entropy"}


def text(result: Mapping[str, Any], summary: Sequence[str]) -> str:
    """The answer first, then the numbers behind it, then the laws."""
    count = result["laws"]
    noun = "law" if count == 1 else "laws"
    dimensions = " → ".join(str(size) for size in result["dimensions"])
    rows = [
        ("parameters", f"{result['parameters']:,}"),
        ("dimensions reached", dimensions),
        ("explicit laws", f"{result['known']:,} independent"),
        ("valid for", LEVELS[result["level"]]),
        ("loss", LOSSES[result["loss"]]),
        ("flow", result["flow"]),
        ("arithmetic", _arithmetic(result)),
        ("status", result["status"]),
    ]
    head = f"{count:,} independent conservation {noun}" if result["status"] != "undecided" else "undecided"
    lines = [head, "", *(f"  {name:20}{value}" for name, value in rows)]
    if summary:
        lines += ["", "Conserved:", *(f"  {line}" for line in summary)]
    lines += ["", *_closing(result)]
    return "\n".join(lines)


def _arithmetic(result: Mapping[str, Any]) -> str:
    if result["arithmetic"] == "exact":
        return "exact, modulo a prime"
    gap = result["gap"]
    return "float64" if gap is None else f"float64, smallest singular-value gap {gap:.2g}"


def _closing(result: Mapping[str, Any]) -> list[str]:
    match result["status"]:
        case "proved":
            words = "Proved: there are no others. Training reaches every direction that these laws leave free."
        case "numerical" if result["arithmetic"] == "exact":
            words = f"Not proved: {result['reason']}."
        case "numerical":
            words = f"Counted in floating point: {result['known']} of these laws are explicit, nothing is proved."
        case _:
            words = f"Undecided: {result['reason']}."
    return textwrap.wrap(words, 80)
