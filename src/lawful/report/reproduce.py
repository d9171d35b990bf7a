"""Claims and what they measured, as JSON, text and Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lawful.study.claim import Claim
    from lawful.study.reproduce import ClaimRun, Reproduction


def claim_json(claim: Claim) -> dict[str, Any]:
    """What a claim states."""
    return {
        "id": claim.id,
        "paper": claim.paper,
        "reference": claim.reference,
        "statement": claim.statement,
        "erratum": None if claim.erratum is None else vars(claim.erratum),
    }


def run_json(run: ClaimRun) -> dict[str, Any]:
    """What a claim states and what was measured."""
    found = {"verdict": run.verdict, "measured": dict(run.measured), "full": run.full, "seconds": run.seconds}
    return claim_json(run.claim) | found


def reproduction_json(found: Reproduction) -> dict[str, Any]:
    """The documented keys of `lawful reproduce --json`."""
    return {"claims": [run_json(run) for run in found.runs]}


def claims_text(claims: Sequence[Claim]) -> str:
    """A line for each claim."""
    return "\n".join(f"{claim.id:28} {claim.reference:24} {claim.statement}" for claim in claims)


def runs_text(runs: Sequence[ClaimRun], short: bool) -> str:
    """Verdicts with their measurements, or, if short, with their counts alone."""
    lines = []
    for run in runs:
        lines.append(f"{run.verdict:10} {run.claim.id:28} {run.seconds:8.2f} s  {run.claim.reference}")
        if not short:
            lines.append(f"           {run.claim.statement}")
            lines += [f"           {name} = {_short(value)}" for name, value in run.measured.items()]
    if short:
        counts = {v: sum(run.verdict == v for run in runs) for v in ("confirmed", "corrected", "refuted")}
        lines.append(", ".join(f"{count} {verdict}" for verdict, count in counts.items()) + f" of {len(runs)} claims")
    return "\n".join(lines)


def runs_markdown(runs: Sequence[ClaimRun]) -> str:
    """The summary as a Markdown page."""
    lines = [
        "# Reproduction",
        "",
        "What each claim measured, made by `lawful reproduce --all --out DIR --markdown FILE`.",
        "",
        "| paper | claim | measured | verdict | seconds |",
        "|---|---|---|---|---|",
    ]
    for run in runs:
        measured = "; ".join(f"{name} = {_short(value)}" for name, value in run.measured.items())
        measured = measured if len(measured) <= 160 else measured[:157] + "..."
        safe = "".join(f"\\{c}" if c in "\\|*_<>$`[]" else c for c in measured)
        cells = (run.claim.paper, f"`{run.claim.id}`", safe, run.verdict, f"{run.seconds:.1f}")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
