"""A diff of two checkpoints as JSON and as text."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill
from typing import Any

from lawful.api.checkpoints.diff import Diff
from lawful.outward import at_least
from lawful.report.checkpoints.lineage import lineage_json

WIDTH = 80


def to_json(diff: Diff) -> dict[str, Any]:
    """The documented keys of `lawful diff --json`."""
    names = [diff.dag.names[v] for v in diff.dag.hidden]
    return {
        "verdict": diff.verdict.verdict,
        "relation": diff.relation,
        "relation_word": diff.word,
        "reason": diff.reason,
        **lineage_json(diff.lineage),
        "drift": dict(zip(names, diff.drift.tolist(), strict=True)),
        "relative_drift": diff.relative_drift,
        "decay": diff.decay,
        "decay_residual": diff.decay_residual,
        "flipped": diff.flipped,
        "crossed": diff.crossed,
        "died": diff.died,
        "revived": diff.revived,
        "losses": diff.losses,
        "step": diff.step,
        "dimensions": [{"layer": layer, "before": a, "after": b} for layer, a, b in diff.dimensions],
    }


def diff_text(diff: Diff) -> str:
    """The same in words."""
    lines = [
        f"function   {diff.verdict.verdict} ({diff.verdict.method})",
        fill(f"relation   {diff.word}: {diff.reason}", WIDTH, subsequent_indent=" " * 11),
        f"laws       balances drifted by {100 * diff.relative_drift:.3g}% in all; gradient flow keeps them",
    ]
    if diff.decay_residual < 0.1 * diff.relative_drift:
        lines.append(f"           as weight decay does: all balances times {diff.decay:.4g}")
    if diff.step is not None:
        step = at_least(diff.step, 3)
        lines.append(f"           to first order gradient descent needs a step of at least {step}")
    if diff.losses is not None:
        lines.append(f"loss       {diff.losses[0]:.4g} -> {diff.losses[1]:.4g}")
    lines.append(
        f"signs      {len(diff.flipped)} weights changed sign, {len(diff.crossed)} of them locked for the flow"
    )
    dead = f"dead by intervals in B alone: {_listed(diff.died)}; in A alone: {_listed(diff.revived)}"
    lines.append(fill(f"neurons    {dead}", WIDTH, subsequent_indent=" " * 11))
    lines += [f"layer {n}    effective dimension {a:.3g} -> {b:.3g}" for n, a, b in diff.dimensions]
    return "\n".join(lines)


def _listed(names: Sequence[str], most: int = 5) -> str:
    return ", ".join(names[:most]) + (f", ... ({len(names)})" if len(names) > most else "") if names else "none"
