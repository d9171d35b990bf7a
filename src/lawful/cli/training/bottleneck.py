"""`lawful bottleneck`: energies of Leaky ResNets, dimensions and movement of any network's blocks."""

from __future__ import annotations

import math
import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lawful.cli.output import note_readings, say, will_write, write_certificate, write_text
from lawful.cli.progress import bar
from lawful.cli.source import JsonOption, Named, format_options, reads
from lawful.errors import LawfulError

if TYPE_CHECKING:
    from lawful.papers.leaky import BlockReadings

DataOption = Annotated[
    Path | None, typer.Option(help="Samples: .npz with x (and y for Leaky ResNets), or .csv; a run has its own.")
]


@reads()
def bottleneck(
    named: Named,
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
    from lawful.api.leaky.figure import bounded_figure, depth_figure
    from lawful.api.leaky.files import is_run, load_network, load_task, read_run
    from lawful.papers.leaky import energies, trace
    from lawful.papers.leaky.path import certificate
    from lawful.report.training.leaky import run_json, run_text, trusted

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
    if save is not None and trusted(readings[-1]):
        made = certificate(found[-1], task, weight, readings[-1])
        write_certificate(save, made)
    if figure is not None:
        draw(depth_figure(readings), figure)
    if html is not None:
        from lawful.report.training.leaky import run_page

        write_text(html, run_page(readings, depth_figure(readings), bounded_figure(readings), str(path)))
    say(as_json, run_json(readings), run_text(readings))
    if not trusted(readings[-1]):
        if save is not None:
            typer.echo(f"lawful: no rank to certify, so {save} was not written", err=True)
        raise typer.Exit(3)


def _is_leaky(path: Path) -> bool:
    if path.suffix.lower() != ".npz" or not path.is_file():
        return False
    from lawful.formats.tensors import npz as npz_format

    return {"weights", "steps", "effective_depth"} <= set(npz_format.load(path)[0])
