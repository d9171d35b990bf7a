"""`lawful find` and `lawful merge`: relatives of a checkpoint among many, and the mean of two that were aligned."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lawful.cli.output import note_readings, print_json, will_write, write_text
from lawful.cli.source import (
    ActivationOption,
    HtmlOption,
    InputsOption,
    JsonOption,
    ModelOption,
    OrderOption,
    format_options,
)

IndexOption = Annotated[
    Path, typer.Option("--index", help="The index file that `lawful fingerprint DIR --index` made.")
]


def find(
    checkpoint: Annotated[str, typer.Argument(metavar="CHECKPOINT", help="A file or folder with weights.")],
    index: IndexOption,
    model: ModelOption = None,
    input_size: InputsOption = None,
    top: Annotated[int, typer.Option(help="How many to list.")] = 10,
    html: HtmlOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the checkpoints of an index that are most alike to one (exit 3: none has its architecture)."""
    from lawful.api.checkpoints.index import find as find_relatives
    from lawful.report.checkpoints.relatives import found_json, found_text, relatives_page

    will_write(html)
    found = find_relatives(checkpoint, index, model=model, input=input_size, top=top)
    result = found_json(found)
    if html is not None:
        sizes = None if input_size is None else ";".join(input_size)
        write_text(html, relatives_page(found, checkpoint, format_options({"model": model, "input": sizes})))
    if as_json:
        print_json(result)
    else:
        typer.echo(found_text(result))
    if not result["relatives"]:
        raise typer.Exit(3)


def make_index(
    places: list[str],
    index: Path,
    model: str | None,
    sizes: list[str] | None,
    as_json: bool,
    scheduler: str | None = None,
    workers: int | None = None,
) -> None:
    """`lawful fingerprint DIR --index FILE`."""
    from lawful.api.checkpoints.index import checkpoints_in, index_folder
    from lawful.cli.progress import counter
    from lawful.report.checkpoints.relatives import indexed_json, indexed_text

    with counter("checkpoints", len(checkpoints_in(places))) as tick:
        done = index_folder(
            places, index, model=model, input=sizes, scheduler=scheduler, workers=workers, progress=tick
        )
    result = indexed_json(done)
    if as_json:
        print_json(result)
    else:
        typer.echo(indexed_text(result))
    if done.failed and not done.added and not done.kept:
        raise typer.Exit(2)


def merge(
    first: Annotated[str, typer.Argument(metavar="A", help="A checkpoint.")],
    second: Annotated[str, typer.Argument(metavar="B", help="Another checkpoint of the same architecture.")],
    weight: Annotated[float, typer.Option(help="Share of B in the mean.")] = 0.5,
    out: Annotated[Path | None, typer.Option(help="Write the mean to this file.")] = None,
    data: Annotated[
        Path | None, typer.Option(help="Inputs and targets (.npz or .csv): the loss on the way from A to B.")
    ] = None,
    model: ModelOption = None,
    input_size: InputsOption = None,
    activation: ActivationOption = None,
    order: OrderOption = None,
    as_json: JsonOption = False,
) -> None:
    """Take the mean of two checkpoints after bringing B's units into A's order, scale and axes."""
    from lawful.api.checkpoints.merge import merge_on_data
    from lawful.api.two_networks import TwoNetworks
    from lawful.report.checkpoints.relatives import merged_json, merged_text
    from lawful.sources.checkpoints.save import write_weights

    will_write(out)
    pair, readings = TwoNetworks(first, second, model, None, input_size, activation, order).one_form()
    note_readings(readings)
    found = merge_on_data(pair, weight, data)
    if out is not None:
        write_weights(found.weights, out, like=Path(second))
    result = merged_json(found, None if out is None else str(out))
    if as_json:
        print_json(result)
    else:
        typer.echo(merged_text(result))
