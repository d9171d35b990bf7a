"""`lawful verify`: re-check a saved certificate with code that did not make it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from lawful.cli.checkpoints import file_tensors
from lawful.cli.output import print_json
from lawful.cli.source import (
    ActivationOption,
    DropOption,
    InputOption,
    JsonOption,
    SeedOption,
    input_shape,
    open_network,
)
from lawful.errors import CertificateError, NotACertificate, Unsupported


def add_to(app: typer.Typer) -> None:
    """Register the verb."""
    app.command()(verify)


def verify(
    file: Annotated[Path, typer.Argument(help="A certificate that another verb saved.")],
    networks: Annotated[
        list[str] | None, typer.Argument(metavar="[NETWORK]...", help="Networks that it should be about.")
    ] = None,
    activation: ActivationOption = None,
    drop_useless: DropOption = False,
    input_size: InputOption = None,
    seed: SeedOption = 0,
    as_json: JsonOption = False,
) -> None:
    """Re-check a saved certificate with separate code: 0 verified, 1 rejected, 2 not a certificate."""
    from lawful.network.formats.reading import read_bytes
    from lawful.report.verify import rejected_json, rejected_text, verified_json, verified_text
    from lawful.verify import speaks_of_files
    from lawful.verify import verify as check
    from lawful.verify.schema import MOST_BYTES

    shape = input_shape(input_size)
    content = read_bytes(file, MOST_BYTES)
    given: list[Any] = (
        file_tensors(networks or [])
        if speaks_of_files(content)
        else [
            open_network(text, seed=seed, activation=activation, drop_useless=drop_useless, shape=shape)
            for text in networks or []
        ]
    )
    try:
        found = check(content, *given)
    except CertificateError as error:
        print_json(rejected_json(error)) if as_json else typer.echo(rejected_text(error))
        raise typer.Exit(1) from None
    except (NotACertificate, Unsupported) as error:
        raise type(error)(f"{file}: {error}") from None
    print_json(verified_json(found)) if as_json else typer.echo(verified_text(found, networks or []))
