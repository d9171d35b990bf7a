"""`lawful bottleneck`: energies of Leaky ResNets, dimensions and movement of any network's blocks."""

from __future__ import annotations

import math
import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lawful.cli.output import note_reading, print_json, will_write, write_certificate, write_text
from lawful.cli.progress import bar
from lawful.cli.source import (
    ActivationOption,
    DropOption,
    InputOption,
    JsonOption,
    ModelOption,
    OrderOption,
    SeedOption,
    input_shape,
)
from lawful.errors import LawfulError

if TYPE_CHECKING:
    import torch

    from lawful.papers.leaky import BlockReadings

DataOption = Annotated[
    Path | None, typer.Option(help="Samples: .npz with x (and y for Leaky ResNets), or .csv; a run has its own.")
]


def add_to(app: typer.Typer) -> None:
    """Register the subcommand."""
    app.command()(bottleneck)


def bottleneck(
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
    model: ModelOption = None,
    save: Annotated[Path | None, typer.Option(help="Write a certificate of the deepest network.")] = None,
    html: Annotated[
        Path | None, typer.Option(help="Write a page: energies over depth, heat maps over training.")
    ] = None,
    figure: Annotated[Path | None, typer.Option(help="Draw the energies (.svg, .png, .pdf).")] = None,
    activation: ActivationOption = None,
    order: OrderOption = None,
    drop_useless: DropOption = False,
    input_size: InputOption = None,
    seed: SeedOption = 0,
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
    from lawful.report.training.leaky import blocks_json, blocks_text, history_json, history_text

    read = partial(
        _read_network, activation=activation, drop_useless=drop_useless, size=input_size, seed=seed, model=model,
        order=order, data=data, blocks=blocks, gamma=gamma,
    )  # fmt: skip
    checkpoints = _checkpoints(path)
    if checkpoints:
        from lawful.papers.leaky.streams.history import history
        from lawful.report.training.leaky_page import history_page

        with bar("reading") as tell:
            found_all = []
            for number, (step, file) in enumerate(checkpoints, 1):
                found_all.append((step, read(str(file))))
                tell(file.name, number / len(checkpoints))
        over_training = history(found_all)
        if html is not None:
            write_text(html, history_page(over_training, network))
        print_json(history_json(over_training)) if as_json else typer.echo(history_text(over_training))
        return
    found = read(network)
    if html is not None:
        from lawful.report.training.leaky_page import blocks_page

        write_text(html, blocks_page(found, network))
    print_json(blocks_json(found)) if as_json else typer.echo(blocks_text(found))


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
        from lawful.report.training.leaky_page import run_page

        write_text(html, run_page(readings, depth_figure(readings), bounded_figure(readings), str(path)))
    if as_json:
        print_json(run_json(readings))
    else:
        typer.echo(run_text(readings))
    if not trusted(readings[-1]):
        if save is not None:
            typer.echo(f"lawful: no rank to certify, so {save} was not written", err=True)
        raise typer.Exit(3)


def _is_leaky(path: Path) -> bool:
    if path.suffix.lower() != ".npz" or not path.is_file():
        return False
    from lawful.formats.tensors import npz as npz_format

    return {"weights", "steps", "effective_depth"} <= set(npz_format.load(path)[0])


def _read_network(
    text: str, *, activation: str | None, drop_useless: bool, size: str | None, seed: int, model: str | None,
    order: str | None, data: Path, blocks: str | None, gamma: float | None,
) -> BlockReadings:  # fmt: skip
    from lawful.cli.source import is_module, open_network
    from lawful.network.architecture import is_homogeneous
    from lawful.sources.modules.convert import to_module
    from lawful.sources.opening import open_module

    shape = input_shape(size)
    bent = activation is not None and not is_homogeneous(activation)
    if is_module(text) or model is not None or Path(text).is_dir() or bent:
        found = open_module(text, model=model, activation=activation, order=order, input_shape=shape)
        note_reading(found.reading)
        return _read(found.module, data, shape or found.input_shape, blocks, gamma)
    reading: dict[str, Any] = {"activation": activation, "drop_useless": drop_useless, "shape": shape, "order": order}
    return _read(to_module(open_network(text, seed=seed, **reading)), data, None, blocks, gamma)


def _read(
    module: torch.nn.Module, data: Path, shape: tuple[int, ...] | None, blocks: str | None, gamma: float | None
) -> BlockReadings:
    from lawful.formats.queries.data import read_data
    from lawful.papers.leaky.streams.instruments import GAMMA, read_blocks
    from lawful.papers.leaky.streams.stream import as_inputs

    found = read_data(data)
    if shape is not None and math.prod(shape) != found.x.shape[1]:
        raise LawfulError(f"--input {shape} does not fit the {found.x.shape[1]} columns of {data}")
    inputs = as_inputs(module, found.sized(shape), f"{data}: ", " (see --input)")
    names = None if blocks is None else tuple(blocks.split(","))
    try:
        return read_blocks(module, inputs, blocks=names, gamma_ratio=GAMMA if gamma is None else gamma)
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        raise LawfulError(f"the network does not run on these samples: {str(error)[:150]} (see --input)") from None
