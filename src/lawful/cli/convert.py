"""`lawful convert`: the same function in another file format."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lawful.cli.output import print_json
from lawful.cli.source import (
    ActivationOption,
    DropOption,
    InputOption,
    JsonOption,
    NetworkArgument,
    SeedOption,
    input_shape,
    open_network,
)


def add_to(app: typer.Typer) -> None:
    """Register the verb."""
    app.command()(convert)


def convert(
    network: NetworkArgument,
    out: Annotated[Path, typer.Argument(help="File to write; its ending chooses the format.")],
    activation: ActivationOption = None,
    drop_useless: DropOption = False,
    input_size: InputOption = None,
    seed: SeedOption = 0,
    as_json: JsonOption = False,
) -> None:
    """Write a network in another format; the function stays the same."""
    from lawful.network.files import write

    found = open_network(
        network, seed=seed, activation=activation, drop_useless=drop_useless, shape=input_shape(input_size)
    )
    write(found, out)
    if as_json:
        print_json({"written": str(out), "parameters": found.parameters})
    else:
        typer.echo(f"{out}: {found}, {found.parameters:,} parameters")
