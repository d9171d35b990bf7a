"""`lawful verify`: re-check a saved certificate with code that did not make it."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Annotated, Any

import typer

from lawful.cli.output import print_json
from lawful.cli.source import JsonOption
from lawful.errors import CertificateError, LawfulError

# The `kind` of a certificate and the function that re-checks it: takes the parsed JSON object, raises CertificateError.
VERIFIERS: dict[str, str] = {
    "components": "lawful.components.verify:verify",
    "flow": "lawful.flow.certificate:verify",
    "geodesic": "lawful.leaky.verify:verify",
    "laws": "lawful.laws.verify:verify",
    "module-pruning": "lawful.pruning.module_verify:verify",
    "pruning": "lawful.pruning.certificate:verify_certificate",
    "same": "lawful.fibers.verify:verify",
    "truncation-separation": "lawful.truncation.verify:verify_separation",
}


def add_to(app: typer.Typer) -> None:
    """Register the verb."""
    app.command()(verify)


def verify(
    file: Annotated[Path, typer.Argument(help="A certificate that another verb saved.")], as_json: JsonOption = False
) -> None:
    """Re-check a saved certificate with separate code (exit 1 if it does not prove what it states)."""
    certificate = read_certificate(file)
    where, name = VERIFIERS[certificate["kind"]].split(":")
    try:
        getattr(importlib.import_module(where), name)(certificate)
    except CertificateError as error:
        if as_json:
            print_json({"valid": False, "kind": certificate["kind"], "reason": str(error)})
        else:
            typer.echo(f"REJECTED: {error}")
        raise typer.Exit(1) from None
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise CertificateError(f"{file}: not a certificate of its kind ({error})") from None
    if as_json:
        print_json({"valid": True, "kind": certificate["kind"], "reason": None})
    else:
        typer.echo(f"verified: {certificate.get('statement', certificate['kind'])}")


def read_certificate(file: Path) -> dict[str, Any]:
    """Parse a certificate file, or say why it is not one."""
    from lawful.network.formats.reading import read_json

    try:
        certificate = read_json(file)
    except LawfulError as error:
        raise CertificateError(f"{error} (not a certificate)") from None
    if not isinstance(certificate, dict) or str(certificate.get("kind")) not in VERIFIERS:
        raise CertificateError(f"{file}: not a certificate (known kinds: {', '.join(VERIFIERS) or 'none'})")
    return certificate
