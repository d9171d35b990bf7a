"""`lawful sweep`: many calls of one function; `status` and `report` look at a sweep's folder."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lawful.cli.output import print_json, will_write, write_text
from lawful.cli.source import JsonOption
from lawful.errors import LawfulError

if TYPE_CHECKING:
    from lawful.api.sweeps import Plan, Progress

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
