"""A count of laws, as text for people."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lawful.laws.factorisation import NetworkReduction

LEVELS = {
    "phi": "any weights, any data",
    "near": "near these weights, any data",
    "data": "near these weights, these inputs, any labels",
}
MODES = {
    "eval": "eval: batch norms use their stored statistics (--mode train: the batch's own)",
    "train": "train: batch norms use the statistics of the batch",
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
    if result.get("mode") is not None:
        rows.insert(6, ("mode", MODES[result["mode"]]))
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


def reduction_json(found: NetworkReduction) -> dict[str, Any]:
    """The documented keys of `lawful laws --reduction --json`."""
    return {
        "involutive": found.involutive,
        "dimension": found.dimension,
        "with_brackets": found.with_brackets,
        "coordinates": list(found.names),
        "theta": found.theta,
        "z": found.z,
        "metric": found.metric,
        "rank": found.rank,
        "closed_form": found.closed_form is not None,
        "closed_form_error": found.error,
        "reason": found.reason,
    }


def reduction_text(found: NetworkReduction) -> str:
    """Whether z = φ(θ) moves by itself, and what its metric looks like at the start."""
    lines = ["Riemannian reduction of z = φ(θ):"]
    if not found.involutive:
        return "\n".join([*lines, *_wrapped(f"None: {found.reason}.")])
    lines += _wrapped(f"z' = −M(z, θ_init)∇f(z): V has dimension {found.dimension} and is closed under brackets.")
    if found.metric is None:
        return "\n".join([*lines, *_wrapped(f"M is not computed: {found.reason}.")])
    lines += _wrapped(
        f"M at these weights: {len(found.metric)}×{len(found.metric)}, rank {found.rank}, "
        f"nonzero eigenvalues from {found.eigenvalues[-1]:.4g} to {found.eigenvalues[0]:.4g}."
    )
    if found.closed_form is None:
        return "\n".join([*lines, *_wrapped("No closed form is known for this network; M = ∂φ ∂φᵀ.")])
    form = "M[G] = ZZᵀG/‖v‖² + GZᵀZ/‖u‖² for each neuron's Z = uvᵀ, from Z and (‖u‖² − ‖v‖²)/2 alone"
    return "\n".join([*lines, *_wrapped(f"Closed form: {form}; off by {found.error:.1g}.")])


def _wrapped(words: str) -> list[str]:
    return textwrap.wrap(words, 80, initial_indent="  ", subsequent_indent="  ")
