"""`lawful reproduce`: run the papers' claims and say what was measured."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lawful.cli.output import plain, print_json
from lawful.cli.source import JsonOption
from lawful.cli.sweep import SchedulerOption, WorkersOption, run_plan
from lawful.errors import LawfulError

if TYPE_CHECKING:
    from lawful.study.claim import Claim


def add_to(app: typer.Typer) -> None:
    """Register the verb."""
    app.command(no_args_is_help=True)(reproduce)


def reproduce(
    ids: Annotated[list[str] | None, typer.Argument(help="Claims to run, such as p0-rescaling.")] = None,
    list_them: Annotated[bool, typer.Option("--list", help="List all claims.")] = False,
    everything: Annotated[bool, typer.Option("--all", help="Run all claims as a sweep: parallel, resumable.")] = False,
    out: Annotated[Path | None, typer.Option(help="Folder for results and figures.")] = None,
    full: Annotated[bool, typer.Option("--full", help="The paper's own size, not one that runs in seconds.")] = False,
    markdown: Annotated[Path | None, typer.Option(help="With --all: write the summary table to this file.")] = None,
    scheduler: SchedulerOption = None,
    workers: WorkersOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run claims of the papers; exit 1 if one is refuted."""
    from lawful.study.claims import all_claims, find

    if list_them:
        _list(all_claims(), as_json)
        return
    if everything:
        results = _run_all(all_claims(), full, out, scheduler, workers)
    elif ids:
        chosen = [find(id) for id in ids]
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
        results = [_run(claim, full, out) for claim in chosen]
    else:
        raise LawfulError("name claims to run, or use --list or --all")
    if markdown is not None:
        markdown.write_text(_markdown(results), encoding="utf-8")
    if as_json:
        print_json({"claims": results})
    else:
        _print(results, short=everything)
    if any(result["verdict"] not in ("confirmed", "corrected") for result in results):
        raise typer.Exit(1)


def _run(claim: Claim, full: bool, out: Path | None) -> dict[str, Any]:
    from lawful.figure import save

    start = time.perf_counter()
    outcome = claim.run(full)
    result: dict[str, Any] = _described(claim) | {
        "verdict": claim.verdict(outcome).value,
        "measured": plain(outcome.measured),
        "full": full,
        "seconds": round(time.perf_counter() - start, 3),
    }
    if out is not None:
        if outcome.figure is not None:
            result["figure"] = save(outcome.figure, out / f"{claim.id}.svg").name
            result["caption"] = outcome.figure.caption
        (out / f"{claim.id}.json").write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return result


def _run_all(
    claims: Sequence[Claim], full: bool, out: Path | None, scheduler: str | None, workers: int | None
) -> list[dict[str, Any]]:
    """All claims as one sweep of the job `claim`; a claim that raised is reported as failed."""
    from lawful.study.sweep import Plan, Store

    if out is None:
        raise LawfulError("--all needs a folder for its results: --out DIR")
    figures = (out / "figures").resolve()
    figures.mkdir(parents=True, exist_ok=True)
    values: dict[str, list[str | bool]] = {
        "id": [claim.id for claim in claims],
        "full": [full],
        "figures": [str(figures)],
    }
    run_plan(Plan("claim", values, seconds=7200.0 if full else 600.0), out, scheduler=scheduler, workers=workers)
    by_id = {claim.id: claim for claim in claims}
    results = []
    for row in Store(out, write=False).rows():
        measured = {
            name.removeprefix("measured."): v for name, v in row.outputs.items() if name.startswith("measured.")
        }
        verdict = row.outputs.get("verdict", f"failed: {row.error}")
        found = {"verdict": verdict, "measured": measured, "full": full, "seconds": round(row.seconds, 3)}
        results.append(_described(by_id[str(row.inputs["id"])]) | found)
    return results


def _described(claim: Claim) -> dict[str, Any]:
    return {
        "id": claim.id,
        "paper": claim.paper,
        "reference": claim.reference,
        "statement": claim.statement,
        "erratum": None if claim.erratum is None else vars(claim.erratum),
    }


def _list(claims: Sequence[Claim], as_json: bool) -> None:
    if as_json:
        print_json({"claims": [_described(claim) for claim in claims]})
        return
    for claim in claims:
        typer.echo(f"{claim.id:28} {claim.reference:24} {claim.statement}")


def _print(results: Sequence[dict[str, Any]], short: bool) -> None:
    for result in results:
        typer.echo(f"{result['verdict']:10} {result['id']:28} {result['seconds']:8.2f} s  {result['reference']}")
        if not short:
            typer.echo(f"           {result['statement']}")
            for name, value in result["measured"].items():
                typer.echo(f"           {name} = {_short(value)}")
    if short:
        counts = {v: sum(r["verdict"] == v for r in results) for v in ("confirmed", "corrected", "refuted")}
        typer.echo(", ".join(f"{count} {verdict}" for verdict, count in counts.items()) + f" of {len(results)} claims")


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _markdown(results: Sequence[dict[str, Any]]) -> str:
    """The summary as a Markdown page."""
    lines = [
        "# Reproduction",
        "",
        "What each claim measured, made by `lawful reproduce --all --out DIR --markdown FILE`.",
        "",
        "| paper | claim | measured | verdict | seconds |",
        "|---|---|---|---|---|",
    ]
    for result in results:
        facts = [f"{name} = {_short(value)}" for name, value in result["measured"].items()]
        measured = "; ".join(facts)
        measured = measured if len(measured) <= 160 else measured[:157] + "..."
        safe = "".join(f"\\{c}" if c in "\\|*_<>$`[]" else c for c in measured)
        cells = (result["paper"], f"`{result['id']}`", safe, result["verdict"], f"{result['seconds']:.1f}")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"
