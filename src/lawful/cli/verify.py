"""`lawful verify`: re-check a saved certificate with code that did not make it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lawful.cli.output import print_json
from lawful.cli.source import ActivationOption, DropOption, InputOption, JsonOption, input_shape, open_source
from lawful.errors import CertificateError, NotACertificate


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
    as_json: JsonOption = False,
) -> None:
    """Re-check a saved certificate with separate code: 0 verified, 1 rejected, 2 not a certificate."""
    from lawful.report.verify import rejected_json, rejected_text, verified_json, verified_text
    from lawful.verify import verify as check

    shape = input_shape(input_size)
    given = [
        open_source(text, activation=activation, drop_useless=drop_useless, shape=shape) for text in networks or []
    ]
    try:
        found = check(read(file), *given)
    except CertificateError as error:
        print_json(rejected_json(error)) if as_json else typer.echo(rejected_text(error))
        raise typer.Exit(1) from None
    except NotACertificate as error:
        raise NotACertificate(f"{file}: {error}") from None
    print_json(verified_json(found)) if as_json else typer.echo(verified_text(found, networks or []))


def read(file: Path) -> bytes:
    """The bytes of a certificate, if it is a file of bearable size."""
    from lawful.verify.schema import MOST_BYTES

    if not file.is_file():
        raise NotACertificate(f"{file}: not a file")
    with file.open("rb") as stream:
        return stream.read(MOST_BYTES + 1)
