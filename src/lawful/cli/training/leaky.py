"""`lawful leaky`: train Leaky ResNets to geodesics."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lawful.cli.output import print_json, will_write, write_text
from lawful.cli.source import (
    JsonOption,
    SeedOption,
)
from lawful.errors import LawfulError

if TYPE_CHECKING:
    from lawful.papers.leaky import TeacherTask


def leaky(
    effective_depth: Annotated[str, typer.Option(help="Effective depths, such as 3,5,7,11.")],
    out: Annotated[Path, typer.Option(help="Folder for the run; the same command resumes it.")],
    teacher: Annotated[str | None, typer.Option(help="Sizes of the random teacher: 20-5-20 has rank 5.")] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="Instead of a teacher, your own x and y (.npz or .csv); columns are brought to variance 1."),
    ] = None,
    classes: Annotated[bool, typer.Option("--classes", help="y are labels: one target per class.")] = False,
    depth: Annotated[int, typer.Option(help="Number of layers.")] = 50,
    width: Annotated[int, typer.Option(help="Neurons per layer.")] = 200,
    samples: Annotated[int, typer.Option(help="Training samples.")] = 1000,
    steps: Annotated[str, typer.Option(help="Layer steps: equidistant, irregular or adaptive.")] = "adaptive",
    a: Annotated[float, typer.Option(help="How irregular, between 0 and 1.")] = 0.9,
    ridge: Annotated[
        float | None,
        typer.Option(help="Weight decay; 0.002 times the number of outputs unless given."),
    ] = None,
    softness: Annotated[float, typer.Option(help="Half-width of the rounded corner of ReLU; 0 for ReLU.")] = 0.01,
    method: Annotated[str, typer.Option(help="solver, or paper for Adam and SGD.")] = "solver",
    tolerance: Annotated[float, typer.Option(help="Stationarity at which a path counts as a geodesic.")] = 1e-3,
    evaluations: Annotated[int, typer.Option(help="Most gradient evaluations per effective depth.")] = 5000,
    grids: Annotated[int, typer.Option(help="Start with depth / 2^(grids-1) layers, and double them.")] = 1,
    seeds: Annotated[int, typer.Option(help="Random starts; each has its folder, and their spread is shown.")] = 1,
    maps: Annotated[str, typer.Option(help="Linear maps in and out: fixed, or learned with a penalty.")] = "fixed",
    penalty: Annotated[
        float | None, typer.Option(help="Weight decay of learned maps; that of the weights unless given.")
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Write a page: estimates, energies and spectra over depth.")] = None,
    seed: SeedOption = 0,
    as_json: JsonOption = False,
) -> None:
    """Train Leaky ResNets to geodesics (exit 3 if one of them stopped short of the tolerance)."""
    depths = _depths(effective_depth)
    from lawful.api.leaky.plan import LeakyPlan, own_data
    from lawful.api.leaky.runs import run_leaky
    from lawful.papers.leaky.model import parse_teacher
    from lawful.report.training.leaky import spread_json, spread_text, summary_text

    if (teacher is None) == (data is None):
        raise LawfulError("give either --teacher 20-5-20 or --data FILE with x and y")
    if not 1 <= seeds <= 100:
        raise LawfulError(f"--seeds takes 1 to 100, not {seeds}")
    will_write(html)
    digest, task = ("", None) if data is None else own_data(_own_task(data, classes))
    outputs = parse_teacher(teacher)[-1] if teacher is not None else len(task.targets[0]) if task is not None else 1
    weight = 0.002 * outputs if ridge is None else ridge
    plans = [
        LeakyPlan(teacher or "", samples if task is None else len(task), depth, width, steps, a, weight, softness,
                  method, tolerance, evaluations, seed + number, digest, grids, maps,
                  weight if penalty is None and maps == "learned" else penalty or 0.0)
        for number in range(seeds)
    ]  # fmt: skip
    folders = [out] if seeds == 1 else [out / f"seed-{plan.seed}" for plan in plans]
    every = []
    try:
        with _bar(len(depths), tolerance) as watch:
            for plan, folder in zip(plans, folders, strict=True):
                every.append(run_leaky(plan, depths, folder, watch, task))
    except KeyboardInterrupt:
        typer.echo(f"stopped; what is finished is kept. Run the same command to go on: {out}", err=True)
        raise
    if html is not None:
        write_text(html, _run_page(folders[0]))
    summaries = [summary for found in every for summary in found]
    whole = all(summary["converged"] for summary in summaries)
    if as_json:
        words = {"out": str(out), "networks": summaries, "converged": whole}
        print_json(words if seeds == 1 else words | {"spread": spread_json(every)})
    elif seeds == 1:
        typer.echo(summary_text(summaries, str(out)))
    else:
        typer.echo(spread_text(every, str(out)))
    if not whole:
        raise typer.Exit(3)


def _run_page(folder: Path) -> str:
    """The page of a run: what its networks say about the task (of the first seed, if there are several)."""
    from lawful.api.leaky.figure import bounded_figure, depth_figure
    from lawful.api.leaky.files import load_task, read_run
    from lawful.papers.leaky import energies, trace
    from lawful.report.training.leaky import run_page

    ridge, networks = read_run(folder)
    task = load_task(folder / "train.npz")
    found = [energies(trace(network, task, ridge)) for network, _ in networks]
    return run_page(found, depth_figure(found), bounded_figure(found), str(folder))


def _own_task(data: Path, classes: bool) -> TeacherTask:
    import numpy as np

    from lawful.api.leaky.files import load_task
    from lawful.formats.queries.data import read_data
    from lawful.papers.leaky.model import TeacherTask

    if not classes:
        return load_task(data)
    found = read_data(data)
    if found.classes is None:
        raise LawfulError(f"{data}: --classes needs labels: `y` with one whole number per sample")
    names, numbers = np.unique(found.classes, return_inverse=True)
    if len(names) < 2:
        raise LawfulError(f"{data}: one class only: there is nothing to tell apart")
    return TeacherTask(found.x, np.eye(len(names))[numbers])


def _depths(text: str) -> tuple[float, ...]:
    try:
        found = tuple(float(part) for part in text.split(","))
    except ValueError:
        found = ()
    if not found or not all(math.isfinite(depth) and depth > 0 for depth in found):
        raise LawfulError(f"--effective-depth takes positive numbers like 3,5,7,11, not {text[:40]!r}")
    return found


@contextmanager
def _bar(count: int, tolerance: float) -> Iterator[Callable[[float, Any], None] | None]:
    """A bar per effective depth: how far the logarithm of the stationarity has come."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[words]}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        tasks: dict[float, Any] = {}
        worst: dict[float, float] = {}

        def watch(depth: float, progress: Any) -> None:
            if depth not in tasks:
                tasks[depth] = bar.add_task(f"depth {depth:g} ({len(tasks) + 1}/{count})", total=1.0, words="")
                worst[depth] = max(progress.stationarity, 10 * tolerance)
            gone = math.log(worst[depth] / max(progress.stationarity, tolerance)) / math.log(worst[depth] / tolerance)
            words = f"stationarity {progress.stationarity:.1e}, {progress.evaluations:,} evaluations"
            bar.update(tasks[depth], completed=max(0.0, gone), words=words)

        yield watch
