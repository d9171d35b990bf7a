"""`lawful distance` and `lawful check`: what holds for every input of a box."""

from __future__ import annotations

import math
import time as clock
from pathlib import Path
from typing import Annotated

import typer

from lawful.cli.evidence import save_evidence
from lawful.cli.output import show, will_write, write_certificate
from lawful.cli.progress import bar
from lawful.cli.source import CertificateOption, JsonOption
from lawful.cli.subcommand import ApiCall, subcommand


@subcommand()
def distance(
    call: ApiCall,
    first: Annotated[str, typer.Argument(metavar="A", help="File, module:factory, or architecture.")],
    second: Annotated[str, typer.Argument(metavar="B", help="The network to compare it with.")],
    certificate: CertificateOption = None,
    as_json: JsonOption = False,
) -> None:
    """Bound the largest difference of two networks on a box. Exit 0 proved, 1 violated, 3 neither."""
    from lawful.formats.queries.joint_specification import equivalence

    will_write(certificate)
    question, understood, seconds = call.options["within"], None, call.options["seconds"]
    box = call.options["box"] or ""
    if question is None and box.lower().endswith(".vnnlib") and (asked := equivalence(Path(box))) is not None:
        question = asked.within
        understood = (
            f"understood: is every output's |g - f| at most {float(asked.within):g}? Literally the file describes "
            f"{asked.literally}"
        )
    started = clock.monotonic()
    with bar("distance") as tell:
        answer = call(
            first,
            second,
            within=question,
            tick=lambda low, high: tell(
                f"{low:.4g} to {high:.4g}", min(1, (clock.monotonic() - started) / max(seconds, 1))
            ),
        )
    if certificate is not None:
        write_certificate(certificate, answer.certificate())
    if understood is not None and not as_json:
        typer.echo(understood)
    show(answer, as_json, {"understood": understood})
    decided = {"proved": 0, "violated": 1, "undecided": 3}.get(answer.status, 0 if answer.upper < math.inf else 3)
    raise typer.Exit(130 if answer.interrupted else decided)


@subcommand()
def check(
    call: ApiCall,
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NETWORK]... [FILE.vnnlib]",
            help="Inputs and outputs that must not occur; before it the other networks that it declares.",
        ),
    ] = None,
    certificate: CertificateOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check a VNN-LIB specification of networks, or that one is monotone on a box. Exit 0, 1 (violated) or 3."""
    result = call.options["result"]
    will_write(certificate, result)
    others, specification = (files[:-1], files[-1]) if files else ([], None)
    answer = call(specification=specification, others=others)
    if certificate is not None and answer.status == "undecided":
        typer.echo("nothing was decided: no certificate was written", err=True)
    else:
        save_evidence(certificate, answer.certificate)
    show(answer, as_json)
    raise typer.Exit(130 if answer.interrupted else {"holds": 0, "violated": 1, "undecided": 3}[answer.status])
