"""`lawful leaky` and `lawful bottleneck`: Leaky ResNets (paper 3), and the blocks of any network read like theirs."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lawful.api.inputs import DrawOptions
from lawful.cli.output import bar, note_readings, print_json, say, will_write, write_certificate, write_text
from lawful.cli.subcommand import ApiCall, JsonOption, SeedOption, format_options, subcommand
from lawful.errors import LawfulError

if TYPE_CHECKING:
    from lawful.papers.leaky import BlockReadings, TeacherTask


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
    from lawful.api.leaky.runs import LeakyPlan, own_data, run_leaky
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
    from lawful.api.leaky.files import load_task, read_run
    from lawful.papers.leaky import energies, trace
    from lawful.report.training.leaky import bounded_figure, depth_figure, run_page

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


DataOption = Annotated[
    Path | None, typer.Option(help="Samples: .npz with x (and y for Leaky ResNets), or .csv; a run has its own.")
]


@subcommand(reads=DrawOptions)
def bottleneck(
    call: ApiCall,
    network: Annotated[
        str,
        typer.Argument(
            metavar="RUN|NETWORK", help="Folder or .npz of `lawful leaky`, any network, or a folder of checkpoints."
        ),
    ],
    data: DataOption = None,
    gamma: Annotated[
        float | None,
        typer.Option(help="γ / ‖K‖ of the stable energies: by default 1e-5, for networks of another kind 1e-3."),
    ] = None,
    ridge: Annotated[float | None, typer.Option(help="Weight decay the network was trained with.")] = None,
    blocks: Annotated[str | None, typer.Option(help="Names of the blocks of a module, separated by commas.")] = None,
    save: Annotated[Path | None, typer.Option(help="Write a certificate of the deepest network.")] = None,
    html: Annotated[
        Path | None, typer.Option(help="Write a page: energies over depth, heat maps over training.")
    ] = None,
    figure: Annotated[Path | None, typer.Option(help="Draw the energies (.svg, .png, .pdf).")] = None,
    as_json: JsonOption = False,
) -> None:
    """Energies and bottleneck rank of a run, or effective dimension and movement of any network's blocks."""
    named = call.named
    if gamma is not None and not (math.isfinite(gamma) and gamma > 0):
        raise LawfulError(f"--gamma must be a positive number, got {gamma}")
    will_write(save, figure, html)
    path = Path(network)
    if (path / "run.json").is_file() or _is_leaky(path):
        _leaky_energies(path, data, gamma, ridge, save, figure, html, as_json)
        return
    if data is None:
        raise LawfulError("a network needs samples to be read on: give --data FILE (.npz with x, or .csv)")
    if save or figure:
        raise LawfulError("--save and --figure need a run of `lawful leaky`")
    from lawful.api.training import bottleneck as of_network
    from lawful.report.training.leaky import blocks_json, blocks_text, history_json, history_text

    names = None if blocks is None else blocks.split(",")

    def read(text: str) -> BlockReadings:
        found = of_network(text, data, blocks=names, gamma=gamma, seed=named.seed, **named.read_options)
        note_readings(found.readings)
        return found

    asked, read_on = named.of(network).asked, format_options({"data": data, "blocks": blocks, "gamma": gamma})
    checkpoints = _checkpoints(path)
    if checkpoints:
        from lawful.papers.leaky.streams.history import history
        from lawful.report.training.leaky import history_page

        with bar("reading") as tell:
            found_all = []
            for number, (step, file) in enumerate(checkpoints, 1):
                found_all.append((step, read(str(file))))
                tell(file.name, number / len(checkpoints))
        over_training = history(found_all)
        if html is not None:
            write_text(html, history_page(over_training, network, asked, read_on))
        say(as_json, history_json(over_training), history_text(over_training))
        return
    found = read(network)
    if html is not None:
        from lawful.report.training.leaky import blocks_page

        write_text(html, blocks_page(found, network, asked, read_on))
    say(as_json, blocks_json(found), blocks_text(found))


def _checkpoints(folder: Path) -> list[tuple[int, Path]]:
    """The files of a folder of checkpoints by their step, the last number in a name; none if it is one model."""
    if not folder.is_dir() or (folder / "config.json").is_file():
        return []
    files = [
        path for path in sorted(folder.iterdir()) if path.suffix.lower() in (".pt", ".pth", ".safetensors", ".npz")
    ]
    numbered = [(re.findall(r"\d+", path.stem), path) for path in files]
    found = sorted((int(numbers[-1]), path) for numbers, path in numbered if numbers)
    if not found:
        raise LawfulError(f"{folder}: no checkpoints (.pt, .safetensors or .npz) with their step in the name")
    return found


def _leaky_energies(
    path: Path, data: Path | None, gamma: float | None, ridge: float | None, save: Path | None, figure: Path | None,
    html: Path | None, as_json: bool,
) -> None:  # fmt: skip
    from lawful.api.figure_file import save as draw
    from lawful.api.leaky.files import is_run, load_network, load_task, read_run
    from lawful.papers.leaky import energies, trace
    from lawful.papers.leaky.path import certificate
    from lawful.report.training.leaky import bounded_figure, depth_figure, is_trusted, run_json, run_text

    if is_run(path):
        own, networks = read_run(path)
        task, weight = load_task(path / "train.npz" if data is None else data), own if ridge is None else ridge
        found = [network for network, _ in networks]
    else:
        if data is None or ridge is None:
            raise LawfulError("a single Leaky ResNet needs --data with x and y, and the --ridge it was trained with")
        found, task, weight = [load_network(path)], load_task(data), ridge
    read = energies if gamma is None else partial(energies, gamma_ratio=gamma)
    readings = [read(trace(network, task, weight)) for network in found]
    if save is not None and is_trusted(readings[-1]):
        made = certificate(found[-1], task, weight, readings[-1])
        write_certificate(save, made)
    if figure is not None:
        draw(depth_figure(readings), figure)
    if html is not None:
        from lawful.report.training.leaky import run_page

        write_text(html, run_page(readings, depth_figure(readings), bounded_figure(readings), str(path)))
    say(as_json, run_json(readings), run_text(readings))
    if not is_trusted(readings[-1]):
        if save is not None:
            typer.echo(f"lawful: no rank to certify, so {save} was not written", err=True)
        raise typer.Exit(3)


def _is_leaky(path: Path) -> bool:
    if path.suffix.lower() != ".npz" or not path.is_file():
        return False
    from lawful.formats.tensors import npz as npz_format

    return {"weights", "steps", "effective_depth"} <= set(npz_format.load(path)[0])
