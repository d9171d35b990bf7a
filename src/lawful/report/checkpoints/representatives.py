"""Other members of a checkpoint's orbit as JSON and as text; computes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lawful.sentences import checkpoints as says

if TYPE_CHECKING:
    from lawful.checkpoints.representative.orbit_member import Representative

KINDS = {"exactly": "exactly", "weight by weight": "weights", "copy by weights": "sums"}


def representative_json(found: Representative, out: str | None = None) -> dict[str, Any]:
    """The keys of `lawful rebalance --objective --json`, and of `lawful canonical --json` for modules."""
    verdict = found.verdict
    return {
        "written": out,
        "objective": found.purpose,
        "verdict": verdict.verdict,
        "within": None if verdict.within is None else {"kind": KINDS[verdict.within], "value": verdict.epsilon},
        "norm": {"before": found.norms[0], "after": found.norms[1]},
        "rounding": [
            {"bits": each.bits, "weights_before": each.weights[0], "weights_after": each.weights[1],
             "outputs_before": each.outputs[0], "outputs_after": each.outputs[1]}
            for each in found.errors
        ],
        "measured_on": found.measured_on,
        "sweeps": found.sweeps,
        "notes": list(found.notes),
        "certified": verdict.certified,
    }  # fmt: skip


def representative_text(found: Representative, out: str | None = None) -> str:
    """What changed, what did not, and what it is worth in few bits."""
    verdict = found.verdict
    function = says.representative(verdict.verdict, verdict.within if verdict.is_copy else None, verdict.epsilon)
    lines = [f"norm of all weights: {found.norms[0]:.6g} before, {found.norms[1]:.6g} after", function]
    for each in found.errors:
        lines.append(
            f"int{each.bits}: weights off by {each.weights[0]:.2%} -> {each.weights[1]:.2%}, "
            f"outputs by {each.outputs[0]:.2%} -> {each.outputs[1]:.2%} ({found.measured_on})"
        )
    lines += [f"note: {words}" for words in found.notes[:6]]
    return "\n".join([*lines, *([f"{out}: written"] if out else [])])
