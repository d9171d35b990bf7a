"""`lawful convert`: the same function in another file format."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from lawful.cli.output import print_json
from lawful.cli.source import JsonOption, Named, takes_network


def add_to(app: typer.Typer) -> None:
    """Register the subcommand."""
    app.command()(convert)


@takes_network
def convert(
    named: Named,
    out: Annotated[Path, typer.Argument(help="File to write; its ending chooses the format.")],
    dtype: Annotated[
        str | None, typer.Option(help="float64, float32, float16 or bfloat16 [default: as in the source].")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Write a network in another format; the function stays the same.

    Any module becomes an ONNX file; the other formats hold graphs of scalar weights.
    """
    from lawful.api.networks import choose_form, write_opened
    from lawful.network import Architecture

    opened = named.anything()
    found = named.network() if isinstance(opened, Architecture) else choose_form(opened, out, named.input_text)
    written = write_opened(found, out, dtype, named.input_text)
    if as_json:
        stored = {key: value for key, value in asdict(written).items() if key != "note" or value}
        print_json({"written": str(out), "parameters": found.parameters, "stored": stored})
    else:
        typer.echo(f"{written}: {found}, {found.parameters:,} parameters")
