"""`lawful leaky` and `lawful bottleneck`: Leaky ResNets (paper 3), and the blocks of any network read like theirs."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from lawful.cli.output import bar, say, show, will_write, write_certificate, write_text
from lawful.cli.subcommand import ApiCall, JsonOption, format_options, subcommand
from lawful.errors import LawfulError


@subcommand()
def leaky(
    call: ApiCall,
    html: Annotated[Path | None, typer.Option(help="Write a page: estimates, energies and spectra over depth.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Train Leaky ResNets to geodesics (exit 3 if one of them stopped short of the tolerance)."""
    will_write(html)
    out, depths = call.options["out"], call.options["effective_depth"].split(",")
    try:
        with _bar(len(depths), call.options["tolerance"]) as watch:
            runs = call(watch=watch)
    except KeyboardInterrupt:
        typer.echo(f"stopped; what is finished is kept. Run the same command to go on: {out}", err=True)
        raise
    if html is not None:
        first = out if len(runs.starts) == 1 else out / f"seed-{call.options['seed']}"
        write_text(html, _run_page(first))
    show(runs, as_json)
    if not runs.converged:
        raise typer.Exit(3)


def _run_page(folder: Path) -> str:
    """The page of a run: what its networks say about the task (of the first seed, if there are several)."""
    from lawful.api.training.leaky_files import load_task, read_run
    from lawful.papers.leaky import energies, trace
    from lawful.report.training.leaky import bounded_figure, depth_figure, run_page

    ridge, networks = read_run(folder)
    task = load_task(folder / "train.npz")
    found = [energies(trace(network, task, ridge)) for network, _ in networks]
    return run_page(found, depth_figure(found), bounded_figure(found), str(folder))


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


@subcommand()
def bottleneck(
    call: ApiCall,
    network: Annotated[
        str,
        typer.Argument(
            metavar="RUN|NETWORK", help="Folder or .npz of `lawful leaky`, any network, or a folder of checkpoints."
        ),
    ],
    ridge: Annotated[float | None, typer.Option(help="Weight decay the network was trained with.")] = None,
    save: Annotated[Path | None, typer.Option(help="Write a certificate of the deepest network.")] = None,
    html: Annotated[
        Path | None, typer.Option(help="Write a page: energies over depth, heat maps over training.")
    ] = None,
    figure: Annotated[Path | None, typer.Option(help="Draw the energies (.svg, .png, .pdf).")] = None,
    as_json: JsonOption = False,
) -> None:
    """Energies and bottleneck rank of a run, or effective dimension and movement of any network's blocks."""
    data, gamma = call.options["data"], call.options["gamma"]
    if gamma is not None and not (math.isfinite(gamma) and gamma > 0):
        raise LawfulError(f"--gamma must be a positive number, got {gamma}")
    will_write(save, figure, html)
    path = Path(network)
    if (path / "run.json").is_file() or _is_leaky(path):
        _leaky_energies(path, data, gamma, ridge, save, figure, html, as_json)
        return
    if save or figure:
        raise LawfulError("--save and --figure need a run of `lawful leaky`")
    from lawful.report.training import leaky as report

    asked = call.named.of(network).asked
    read_on = format_options({name: call.options[name] for name in ("data", "blocks", "gamma")})
    checkpoints = _checkpoints(path)
    if not checkpoints:
        readings = call(network)
        if html is not None:
            write_text(html, report.blocks_page(readings, network, asked, read_on))
        show(readings, as_json)
        return
    from lawful.papers.leaky.streams.history import history

    by_step = []
    with bar("reading") as tell:
        for number, (step, file) in enumerate(checkpoints, 1):
            by_step.append((step, call(str(file))))
            tell(file.name, number / len(checkpoints))
    over_training = history(by_step)
    if html is not None:
        write_text(html, report.history_page(over_training, network, asked, read_on))
    say(as_json, report.history_json(over_training), report.history_text(over_training))


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
    from lawful.api.training.leaky_files import is_run, load_network, load_task, read_run
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
