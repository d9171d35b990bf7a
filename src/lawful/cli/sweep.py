"""`lawful sweep` and `lawful reproduce`: many calls of one function, and the claims of the papers."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lawful.cli.output import print_json, say, will_write, write_text
from lawful.cli.subcommand import JsonOption
from lawful.errors import LawfulError
from lawful.report.plain import plain

if TYPE_CHECKING:
    from lawful.api.sweeps import Plan, Progress
    from reproduction.run import ClaimRun

SchedulerOption = Annotated[
    str | None, typer.Option(help="Address of a running Dask scheduler; default: this machine.")
]
WorkersOption = Annotated[int | None, typer.Option(min=1, help="Local processes; default: one per core.")]


def sweep(
    what: Annotated[str, typer.Argument(metavar="FILE.toml|status|report", help="A sweep to run, or what to look at.")],
    folder: Annotated[Path | None, typer.Argument(help="With status and report: the sweep's folder.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the results; the same folder resumes.")] = None,
    scheduler: SchedulerOption = None,
    workers: WorkersOption = None,
    csv: Annotated[bool, typer.Option("--csv", help="Write results.csv beside results.parquet.")] = False,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Run failed calls again.")] = False,
    markdown: Annotated[
        Path | None, typer.Option(help="With report, of count_laws or training_laws: write a summary here.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Run a job over many inputs and keep every result at once; run it again to resume."""
    from lawful.api.sweeps import read_plan

    if what in ("status", "report"):
        if folder is None:
            raise LawfulError(f"lawful sweep {what} needs the sweep's folder")
        if what == "status":
            _status(folder, as_json)
        else:
            _report(folder, markdown, as_json)
        return
    if out is None:
        raise LawfulError("give a folder for the results: --out DIR")
    plan = read_plan(Path(what))
    done = run_plan(plan, out, scheduler=scheduler, workers=workers, csv=csv, retry_failed=retry_failed)
    _print_status(out, done, as_json)
    if done.failed:
        raise typer.Exit(1)


def run_plan(
    plan: Plan,
    out: Path,
    *,
    scheduler: str | None = None,
    workers: int | None = None,
    csv: bool = False,
    retry_failed: bool = False,
) -> Progress:
    """Run a plan with a progress bar on a terminal; Ctrl-C keeps what is finished."""
    from lawful.api.sweeps import run_sweep

    try:
        with _bar(len(plan)) as watch:
            return run_sweep(
                plan, out, scheduler=scheduler, workers=workers, csv=csv, retry_failed=retry_failed, watch=watch
            )
    except KeyboardInterrupt:
        typer.echo(f"stopped; finished calls are kept. Run the same command to go on: {out}", err=True)
        raise


@contextmanager
def _bar(total: int) -> Iterator[Callable[[Progress], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    if not sys.stderr.isatty():
        yield lambda progress: None
        return
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[words]}"), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=total, words="")

        def watch(progress: Any) -> None:
            speed = bar.tasks[0].finished_speed or bar.tasks[0].speed or 0.0
            words = f"{speed:.3g}/s, {progress.failed} failed"
            bar.update(task, completed=progress.finished, words=words)

        yield watch


def _status(folder: Path, as_json: bool) -> None:
    from lawful.api.sweeps import Store

    store = Store(folder, write=False)
    _print_status(folder, store.progress(), as_json)


def _print_status(folder: Path, done: Progress, as_json: bool) -> None:
    from lawful.api.sweeps import Store

    digest = Store(folder, write=False).digest()
    if as_json:
        numbers = {"planned": done.planned, "finished": done.finished, "failed": done.failed, "seconds": done.seconds}
        print_json(numbers | {"digest": digest, "results": str(folder / "results.parquet")})
        return
    typer.echo(f"{done.finished} of {done.planned} calls finished, {done.failed} failed, {done.seconds:.3g} s of work")
    typer.echo(f"digest {digest[:16]} (everything but durations)")
    if (folder / "results.parquet").exists():
        typer.echo(str(folder / "results.parquet"))


def _report(folder: Path, markdown: Path | None, as_json: bool) -> None:
    from lawful.api.sweeps import Store
    from lawful.report.training.sweep import write_page
    from reproduction.atlas import atlas, training_atlas

    will_write(markdown)
    store, page = Store(folder, write=False), folder / "report.html"
    seen = write_page(store.rows(), page)
    if markdown is not None:
        pages = {"count_laws": atlas, "training_laws": training_atlas}
        if seen.job not in pages:
            jobs = " or ".join(pages)
            raise LawfulError(f"--markdown summarises sweeps of {jobs}; this is one of {seen.job or 'nothing'}")
        write_text(markdown, pages[seen.job](store.rows(), store.progress().planned))
    if as_json:
        print_json({"report": str(page), "failed": seen.failed, "exceptions": seen.exceptions})
    else:
        if seen.exceptions:
            typer.echo(f"{seen.exceptions} exceptions: calls whose answer is not the predicted one")
        typer.echo(str(page))
    if seen.exceptions:
        raise typer.Exit(1)


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
        say(as_json, {"claims": [claim_json(claim) for claim in all_claims()]}, claims_text(all_claims()))
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
    say(as_json, {"claims": results}, runs_text(runs, short=everything))
    codes = {run.exit_code for run in runs}
    if codes - {0}:
        raise typer.Exit(min(codes - {0}))  # a definite no before an undecided one


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
