"""Claims and what they measured, as JSON, text and Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lawful.errors import Unsupported
from lawful.figure import Figure

if TYPE_CHECKING:
    from reproduction.claim import Claim
    from reproduction.run import ClaimRun, Reproduction


def claim_json(claim: Claim) -> dict[str, Any]:
    """What a claim states, what decides it and at what sizes it runs."""
    return {
        "id": claim.id,
        "paper": claim.paper,
        "reference": claim.reference,
        "statement": claim.statement,
        "criterion": claim.criterion,
        "experiment": claim.experiment,
        "size": vars(claim.size),
        "erratum": None if claim.erratum is None else vars(claim.erratum),
    }


def run_json(run: ClaimRun) -> dict[str, Any]:
    """What a claim states and what was measured."""
    return claim_json(run.claim) | {
        "verdict": run.verdict,
        "run_at": run.claim.size.run(run.full),
        "stand_in": run.stand_in,
        "measured": dict(run.measured),
        "full": run.full,
        "seconds": run.seconds,
    }


def reproduction_json(found: Reproduction) -> dict[str, Any]:
    """The documented keys of `lawful reproduce --json`."""
    return {"claims": [run_json(run) for run in found.runs]}


def reproduction_text(found: Reproduction) -> str:
    """All runs, a line each."""
    return runs_text(found.runs, short=True)


def run_text(run: ClaimRun) -> str:
    """One run with all its particulars."""
    return runs_text([run], short=False)


def run_figure(run: ClaimRun) -> Figure:
    """The figure that the claim measured."""
    if run.figure is None:
        raise Unsupported(f"the claim {run.claim.id} draws nothing")
    return run.figure


def claims_text(claims: Sequence[Claim]) -> str:
    """A line for each claim."""
    return "\n".join(f"{claim.id:28} {claim.reference:24} {claim.statement}" for claim in claims)


def runs_text(runs: Sequence[ClaimRun], short: bool) -> str:
    """Verdicts with their measurements, or, if short, with their counts alone."""
    from reproduction.claim import Verdict

    lines = []
    for run in runs:
        lines.append(f"{run.verdict:14} {run.claim.id:28} {run.seconds:8.2f} s  {run.claim.reference}")
        if not short:
            lines += [f"{'':15}{line}" for line in _particulars(run)]
            lines += [f"{'':15}{name} = {_short(value)}" for name, value in run.measured.items()]
    if short:
        counts = {verdict: sum(run.verdict == verdict for run in runs) for verdict in Verdict}
        lines.append(", ".join(f"{count} {verdict}" for verdict, count in counts.items()) + f" of {len(runs)} claims")
    return "\n".join(lines)


def _particulars(run: ClaimRun) -> list[str]:
    """What is claimed, at what size it ran, what decided, and the erratum if there is one."""
    from reproduction.claim import MEANING, Verdict

    claim, size = run.claim, run.claim.size
    lines = [claim.statement, f"run at: {size.run(run.full)} (the paper: {size.paper})"]
    lines.append(f"decided by {claim.criterion}")
    if run.verdict in (Verdict.NOT_OBSERVED, Verdict.NOT_REPRODUCED):
        lines.append(f"{run.verdict}: {MEANING[Verdict(run.verdict)]}")
    if run.stand_in is not None:
        lines.append(f"in place of the paper's: {run.stand_in}")
    if claim.erratum is not None:
        lines += [
            f"printed: {claim.erratum.printed}",
            f"correct: {claim.erratum.correct}",
            f"checked by {claim.erratum.checked}; in {claim.erratum.version}",
        ]
    return lines


def runs_markdown(runs: Sequence[ClaimRun]) -> str:
    """The summary as a Markdown page."""
    from reproduction.claim import EDITIONS, MEANING, Verdict

    lines = [
        "# Reproduction",
        "",
        "What each claim measured, made by `lawful reproduce --all --out DIR --markdown FILE`.",
        "`lawful reproduce ID` prints all its numbers, its criterion and its erratum; `--full` runs it in full.",
        "",
        *(f"- *{verdict}*: {meaning}." for verdict, meaning in MEANING.items()),
        "",
        "A failed experiment is *not observed*, never *refuted*. A criterion marked *ours* is not in the paper.",
        "",
        "Errata are about these texts:",
        "",
        *(f"- {paper}: {edition}." for paper, edition in EDITIONS.items()),
        "",
    ]
    counts = {verdict: sum(run.verdict == verdict for run in runs) for verdict in Verdict}
    lines += [", ".join(f"{count} {verdict}" for verdict, count in counts.items()) + f", of {len(runs)} claims.", ""]
    lines += [
        "| claim | run at | the paper | criterion | measured | verdict | seconds |",
        "|---|---|---|---|---|---|---|",
    ]
    for run in runs:
        measured = "; ".join(f"{name} = {_short(value)}" for name, value in run.measured.items())
        measured = measured if len(measured) <= 160 else measured[:157] + "..."
        ran = run.claim.size.run(run.full) + ("" if run.stand_in is None else f"; {run.stand_in}")
        whose = "ours" if run.claim.criterion.startswith("ours") else "the paper's"
        cells = (_escape(ran), _escape(run.claim.size.paper), whose, _escape(measured), run.verdict)
        lines.append(f"| `{run.claim.id}` | " + " | ".join(cells) + f" | {run.seconds:.1f} |")
    return "\n".join(lines) + "\n"


def _escape(text: str) -> str:
    return "".join(f"\\{c}" if c in "\\|*_<>$`[]" else c for c in text)


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
