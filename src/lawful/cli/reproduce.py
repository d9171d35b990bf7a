"""`lawful reproduce`: run the papers' claims and say what was measured."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lawful.cli.output import say, write_text
from lawful.cli.source import JsonOption
from lawful.cli.training.sweep import SchedulerOption, WorkersOption, run_plan
from lawful.errors import LawfulError
from lawful.report.plain import plain

if TYPE_CHECKING:
    from reproduction.run import ClaimRun


def reproduce(
    ids: Annotated[list[str] | None, typer.Argument(help="Claims to run, such as p0-rescaling.")] = None,
    list_them: Annotated[bool, typer.Option("--list", help="List all claims.")] = False,
    everything: Annotated[bool, typer.Option("--all", help="Run all claims as a sweep: parallel, resumable.")] = False,
    out: Annotated[Path | None, typer.Option(help="Folder for results and figures; long runs are resumed.")] = None,
    full: Annotated[bool, typer.Option("--full", help="The paper's own size, not one that runs in seconds.")] = False,
    markdown: Annotated[Path | None, typer.Option(help="With --all: write the summary table to this file.")] = None,
    scheduler: SchedulerOption = None,
    workers: WorkersOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run claims of the papers; exit 1 if one is refuted, else 3 if one is not observed or not reproduced."""
    from reproduction.claims import all_claims, find
    from reproduction.report import claim_json, claims_text, run_json, runs_markdown, runs_text
    from reproduction.run import run_all, run_claim

    if list_them:
        _say(as_json, {"claims": [claim_json(claim) for claim in all_claims()]}, claims_text(all_claims()))
        return
    if everything:
        if out is None:
            raise LawfulError("--all needs a folder for its results: --out DIR")
        runs = run_all(all_claims(), full, out, partial(run_plan, scheduler=scheduler, workers=workers))
        results = [run_json(run) for run in runs]
    elif ids:
        chosen = [find(id) for id in ids]
        runs = [run_claim(claim, full, None if out is None else out / "runs") for claim in chosen]
        results = [_save_result(run, out) for run in runs]
    else:
        raise LawfulError("name claims to run, or use --list or --all")
    if markdown is not None:
        write_text(markdown, runs_markdown(runs))
    _say(as_json, {"claims": results}, runs_text(runs, short=everything))
    codes = {run.exit_code for run in runs}
    if codes - {0}:
        raise typer.Exit(min(codes - {0}))  # a definite no before an undecided one


def _say(as_json: bool, result: dict[str, Any], text: str) -> None:
    say(as_json, result, text)


def _save_result(run: ClaimRun, out: Path | None) -> dict[str, Any]:
    """The result, kept with its figure in a folder if one was named."""
    from lawful.api.figure_file import save
    from lawful.formats.io.writing import make_folder
    from reproduction.report import run_json

    result = run_json(run)
    if out is not None:
        make_folder(out)
        if run.figure is not None:
            result["figure"] = save(run.figure, out / f"{run.claim.id}.svg").name
            result["caption"] = run.figure.caption
        text = json.dumps(plain(result), indent=1, ensure_ascii=False) + "\n"
        write_text(out / f"{run.claim.id}.json", text)
    return result
