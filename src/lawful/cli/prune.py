"""`lawful singular` and `lawful prune`: where a network stands, and the smaller one that it is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lawful.cli.output import print_json, say_rounding, stored_json, will_write, write_certificate
from lawful.cli.progress import working
from lawful.cli.prune_channels import prune_by_channels
from lawful.cli.source import JsonOption, Named, takes_network
from lawful.errors import LawfulError

if TYPE_CHECKING:
    from lawful.network import Dag


def add_to(app: typer.Typer) -> None:
    """Register the verbs."""
    app.command()(singular)
    app.command()(prune)


@takes_network
def singular(
    named: Named,
    tolerance: Annotated[float, typer.Option(help="Weights up to this size count as zero (the paper: 0.001).")] = 0.0,
    exist: Annotated[bool, typer.Option("--exist", help="Decide whether H(c) has singular points at all.")] = False,
    certificate: Annotated[Path | None, typer.Option(help="Save the evidence of --exist for `lawful verify`.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Rank of the invariant set's Jacobian, cut-off neurons, and singular values (exit 3: --exist is undecided)."""
    from lawful.network.opening import open_free
    from lawful.report.singular import singular_text
    from lawful.singular.spectrum import LARGEST_SPECTRUM, singularity, spectrum

    if certificate is not None and not exist:
        raise LawfulError("--certificate saves the answer to --exist: give both")
    will_write(certificate)
    dag = open_free(named.network()).to_dag()
    found = singularity(dag, tolerance)
    values = spectrum(dag) if len(dag.hidden) <= LARGEST_SPECTRUM else None
    result: dict[str, Any] = {
        "rank": found.rank,
        "hidden": found.hidden,
        "singular": found.singular,
        "tolerance": tolerance,
        "cut_off": list(found.cut_off),
        "groups": [list(group) for group in found.groups],
        "rank_by_singular_values": None if values is None else values.rank,
        "singular_values": None if values is None else values.values,
        "null": None if values is None else values.null(),
        "gap": None if values is None else values.gap,
    }
    if exist:
        result["exist"] = _existence(dag, certificate)
    if as_json:
        print_json(result)
    else:
        typer.echo(singular_text(result))
    if exist and result["exist"]["answer"] == "undecided":
        raise typer.Exit(3)


def _existence(dag: Dag, certificate: Path | None) -> dict[str, Any]:
    from lawful.singular.certificate import certificate as evidence
    from lawful.singular.existence import exact_balance, singular_points

    found = singular_points(dag, exact_balance(dag))
    if certificate is not None and found.exist is not None:
        write_certificate(certificate, evidence(dag, found))
    answer = {True: "yes", False: "no", None: "undecided"}[found.exist]
    witness = None
    if found.witness is not None:
        witness = {"cut_off": list(found.witness.cut_off), "parameter": found.witness.parameter}
    return {"answer": answer, "reason": found.reason, "witness": witness}


@takes_network
def prune(
    named: Named,
    out: Annotated[
        Path | None, typer.Option(help="File for the smaller network; its ending chooses the format.")
    ] = None,
    tolerance: Annotated[
        str, typer.Option(help="Largest change of any output allowed on the box; 2% is relative to its range.")
    ] = "0",
    keep: Annotated[
        int | None, typer.Option(help="Leave so many hidden neurons, with the smallest bound found.", min=0)
    ] = None,
    curve: Annotated[bool, typer.Option("--curve", help="Bounds at sizes from all to one neuron a layer.")] = False,
    box: Annotated[
        str | None, typer.Option(help="Inputs: lo,hi; lo:hi,lo:hi,...; .npz or .vnnlib [default: data's, or -1,1].")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="Samples (.npz with x, .csv): their box, and the error on them.")
    ] = None,
    certificate: Annotated[
        Path | None, typer.Option(help="File for the proof, which `lawful verify` re-checks.")
    ] = None,
    certify: Annotated[bool, typer.Option("--verify", help="Replay the pruning in rational arithmetic.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Remove neurons: by default only what changes nothing for any input, with a certified bound otherwise."""
    from lawful.network.formats.box import read_box
    from lawful.network.formats.data import read_data
    from lawful.pruning.curve import size_curve
    from lawful.pruning.measure import measure
    from lawful.pruning.prune import prune as run
    from lawful.report.pruning import curve_json, curve_text, pruning_json, pruning_text

    will_write(out, certificate)
    approximate = curve or any(option is not None for option in (keep, box, data)) or tolerance != "0"
    if prune_by_channels(named, approximate, out, certificate, certify, as_json):
        return
    found = named.network()
    inputs = len(found.to_dag().inputs)
    number, relative = read_tolerance(tolerance)
    region = None if box is None else read_box(box, inputs)
    batch = None if data is None else read_data(data, inputs).x
    if curve:
        with working("bounding smaller and smaller networks"):
            points = size_curve(found, box=region, data=batch)
        if as_json:
            print_json(curve_json(points))
        else:
            typer.echo(curve_text(points))
        return
    options: dict[str, Any] = {"tolerance": number, "relative": relative, "keep": keep, "box": region, "data": batch}
    with working("looking for neurons to remove"):
        pruning = run(found, **options, replayable=certify or certificate is not None)
    if certify or certificate is not None:
        from lawful.pruning.certificate import certificate as proof
        from lawful.verify import verify

        made = proof(pruning)
        if certify:
            verify(made)
        if certificate is not None:
            write_certificate(certificate, made)
    stored = None
    if out is not None:
        from lawful.network.formats.files import write

        stored = write(pruning.network, out, like=found.reading)
    if as_json:
        measured = measure(pruning, batch, named.seed)
        print_json(pruning_json(pruning, measured, certify, out) | stored_json(stored))
    else:
        typer.echo(pruning_text(pruning, measure(pruning, batch, named.seed), out))
        say_rounding(stored)


def read_tolerance(text: str) -> tuple[float, bool]:
    """A number, or a percentage of each output's range.

    >>> read_tolerance("0.5"), read_tolerance("2%")
    ((0.5, False), (0.02, True))
    """
    relative = text.strip().endswith("%")
    try:
        number = float(text.strip().removesuffix("%"))
    except ValueError:
        raise LawfulError(f"--tolerance takes a number such as 0.1, or 2%, not {text[:40]!r}") from None
    return (number / 100 if relative else number), relative
