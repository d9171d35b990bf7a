"""`lawful distance`: how far apart two networks are on a box."""

from __future__ import annotations

import math
import time as clock
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from lawful.cli.evidence import save_evidence
from lawful.cli.output import note_assumed, note_exact, print_json, will_write, write_certificate
from lawful.cli.progress import bar
from lawful.cli.source import (
    BOX_HELP,
    ActivationOption,
    InputOption,
    JsonOption,
    ModelOption,
    Named,
    OrderOption,
    SeedOption,
    input_shape,
    open_network,
    takes_network,
)
from lawful.errors import LawfulError

if TYPE_CHECKING:
    from lawful.bounds.property import PropertyCheck
    from lawful.fibers.monotone import MonotoneCheck

NORMS = {"inf": math.inf, "1": 1.0, "2": 2.0}
EXITS = {"proved": 0, "violated": 1, "undecided": 3}


def distance(
    first: Annotated[str, typer.Argument(metavar="A", help="File, module:factory, or architecture.")],
    second: Annotated[str, typer.Argument(metavar="B", help="The network to compare it with.")],
    box: Annotated[str | None, typer.Option("--box", help=f"Where: {BOX_HELP} [default: -1,1]")] = None,
    within: Annotated[str | None, typer.Option(help="Ask only whether the distance is at most this.")] = None,
    time: Annotated[float, typer.Option("--seconds", help="Seconds before the search gives up.")] = 60.0,
    norm: Annotated[str, typer.Option(help="Of the outputs' differences: inf, 1 or 2.")] = "inf",
    output: Annotated[int | None, typer.Option(help="Look at this output only, counted from 0.")] = None,
    scheduler: Annotated[str | None, typer.Option(help="Address of a Dask scheduler that bounds the boxes.")] = None,
    certificate: Annotated[Path | None, typer.Option(help="Save the evidence for `lawful verify`.")] = None,
    activation: ActivationOption = None,
    model: ModelOption = None,
    order: OrderOption = None,
    input_size: InputOption = None,
    seed: SeedOption = 0,
    as_json: JsonOption = False,
) -> None:
    """Bound the largest difference of two networks on a box. Exit 0 proved, 1 violated, 3 neither."""
    from lawful.api.inputs import BOX, BOX_ASSUMED
    from lawful.bounds.distance import distance as measure
    from lawful.formats.queries.box import box_of
    from lawful.network.reading import Reading
    from lawful.report.structure.distance import distance_json, distance_text

    if norm not in NORMS:
        raise LawfulError(f"--norm is inf, 1 or 2, not {norm[:20]!r}")
    will_write(certificate)
    question = None if within is None else _fraction(within)
    understood: str | None = None
    asked, box = box, BOX if box is None else box
    if question is None and box.lower().endswith(".vnnlib"):
        question, understood = _asked(Path(box))
    shape = input_shape(input_size)
    networks = [
        open_network(text, seed=seed, activation=activation, drop_useless=True, shape=shape, model=model, order=order)
        for text in (first, second)
    ]
    corners = box_of(box, networks[0])
    if asked is None:
        note_assumed(Reading("", ()), [BOX_ASSUMED])
    started = clock.monotonic()
    with bar("distance") as tell:
        found = measure(
            networks[0],
            networks[1],
            corners,
            within=question,
            norm=NORMS[norm],
            output=output,
            seconds=time,
            scheduler=scheduler,
            seed=seed,
            tick=lambda low, high: tell(
                f"{low:.4g} to {high:.4g}", min(1, (clock.monotonic() - started) / max(time, 1))
            ),
        )
    if certificate is not None:
        from lawful.bounds.certificate import certificate as evidence

        write_certificate(certificate, evidence(found, *networks))
    note_exact()
    if as_json:
        print_json({**distance_json(found), "understood": understood})
    else:
        typer.echo(distance_text(found) if understood is None else f"{understood}\n{distance_text(found)}")
    known = found.upper < math.inf
    raise typer.Exit(130 if found.interrupted else EXITS.get(found.status, 0 if known else 3))


@takes_network
def check(
    named: Named,
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NETWORK]... [FILE.vnnlib]",
            help="Inputs and outputs that must not occur; before it the other networks that it declares.",
        ),
    ] = None,
    monotone: Annotated[
        str | None, typer.Option(help="Inputs such as +0,-2: no output falls as 0 grows, or rises as 2 grows.")
    ] = None,
    box: Annotated[str | None, typer.Option("--box", help="Where it must be monotone, as for `distance`.")] = None,
    output: Annotated[int | None, typer.Option(help="With --monotone: this output only, counted from 0.")] = None,
    time: Annotated[float, typer.Option("--seconds", help="Seconds before the search gives up.")] = 60.0,
    threads: Annotated[int | None, typer.Option(help="Cores to use; all of them if not given.")] = None,
    scheduler: Annotated[str | None, typer.Option(help="Address of a Dask scheduler that bounds the boxes.")] = None,
    certificate: Annotated[Path | None, typer.Option(help="Save the evidence for `lawful verify`.")] = None,
    result: Annotated[
        Path | None, typer.Option(help="Write sat with the input, unsat or timeout, as VNN-COMP wants it.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Check a VNN-LIB specification of networks, or that one is monotone on a box. Exit 0, 1 (violated) or 3."""
    from lawful.api.inputs import BOX, BOX_ASSUMED
    from lawful.api.verification.checks import certificate_of_check, check_growth, need_one_question
    from lawful.api.verification.several import check_file, split_name
    from lawful.formats.io.writing import write_text
    from lawful.network.reading import Reading
    from lawful.report.structure.distance import (
        competition_text,
        monotone_json,
        monotone_text,
        property_json,
        property_text,
    )  # fmt: skip

    if not 0 < time < math.inf:
        raise LawfulError(f"--seconds takes a positive number of seconds, not {time:g}")
    if threads is not None and threads < 1:
        raise LawfulError(f"--threads takes a number of at least 1, not {threads}")
    will_write(certificate, result)
    others, file = (files[:-1], files[-1]) if files else ([], None)
    need_one_question(file, monotone, box, output)
    if file is None:
        if result is not None:
            raise LawfulError("--result is the competition's format for a specification, not for --monotone")
        network = replace(named, drop_useless=True).network()
        if box is None:
            note_assumed(Reading("", ()), [BOX_ASSUMED])
        grown = check_growth(
            network, str(monotone), BOX if box is None else box,
            output=output, seconds=time, scheduler=scheduler, seed=named.seed,
        )  # fmt: skip
        shown = monotone_json(grown) if as_json else monotone_text(grown)
        _finish(grown, shown, certificate, lambda: certificate_of_check(grown, network))
    answer = check_file(
        Path(file), [split_name(str(each)) for each in (named.text, *others)],
        lambda text: replace(named, text=text, drop_useless=True).network(),
        seconds=time, threads=threads, scheduler=scheduler, seed=named.seed,
    )  # fmt: skip
    if result is not None:
        write_text(result, competition_text(answer.found, answer.question))
    shown = property_json(answer.found) if as_json else property_text(answer.found)
    _finish(answer.found, shown, certificate, answer.certificate)


def _finish(
    found: PropertyCheck | MonotoneCheck,
    shown: str | dict[str, Any],
    certificate: Path | None,
    make: Callable[[], dict[str, Any]],
) -> NoReturn:
    """Save the evidence, print, and exit."""
    if certificate is not None and found.status == "undecided":
        typer.echo("nothing was decided: no certificate was written", err=True)
    elif certificate is not None:
        save_evidence(certificate, make)
    note_exact()
    typer.echo(shown) if isinstance(shown, str) else print_json(shown)
    raise typer.Exit(130 if found.interrupted else {"holds": 0, "violated": 1, "undecided": 3}[found.status])


def _asked(file: Path) -> tuple[Fraction | None, str | None]:
    """The question of a specification about two networks, and how it was understood."""
    from lawful.formats.queries.vnnlib_outputs import equivalence

    found = equivalence(file)
    if found is None:
        return None, None
    words = f"understood: is every output's |g - f| at most {float(found.within):g}? Literally the file describes "
    return found.within, words + found.literally


def _fraction(text: str) -> Fraction:
    try:
        found = Fraction(text)
        float(found)  # which doubles can hold
        return found
    except (ValueError, ZeroDivisionError, OverflowError):
        raise LawfulError(f"--within takes a number such as 0.05 or 1/20, not {text[:40]!r}") from None
