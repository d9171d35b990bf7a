"""`lawful singular` and `lawful prune`: where a network stands, and the smaller one that it is."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lawful.cli.components import check_untied
from lawful.cli.output import print_json, will_write, write_json
from lawful.cli.source import JsonOption, Named, takes_network
from lawful.errors import LawfulError

if TYPE_CHECKING:
    from lawful.network import Dag

SAMPLES = 1000


def add_to(app: typer.Typer) -> None:
    """Register the verbs."""
    app.command()(singular)
    app.command()(prune)


@takes_network
def singular(
    named: Named,
    tolerance: Annotated[float, typer.Option(help="Weights up to this size count as zero (the paper: 0.001).")] = 0.0,
    exist: Annotated[bool, typer.Option("--exist", help="Decide whether H(c) has singular points at all.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Rank of the invariant set's Jacobian, cut-off neurons, and singular values (exit 3: --exist is undecided)."""
    from lawful.report.singular import singular_text
    from lawful.singular.spectrum import LARGEST_SPECTRUM, singularity, spectrum

    dag = named.network().to_dag()
    check_untied(named.text, named.shape, dag)
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
        result["exist"] = _existence(dag)
    if as_json:
        print_json(result)
    else:
        typer.echo(singular_text(result))
    if exist and result["exist"]["answer"] == "undecided":
        raise typer.Exit(3)


def _existence(dag: Dag) -> dict[str, Any]:
    from lawful.singular.existence import exact_balance, singular_points

    found = singular_points(dag, exact_balance(dag))
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
        float, typer.Option(help="Largest change of any output that is allowed, on the box (default box: -1,1).")
    ] = 0.0,
    box: Annotated[
        str | None, typer.Option(help="Region of inputs lo,hi; or a .npz file with arrays low and high.")
    ] = None,
    certificate: Annotated[
        Path | None, typer.Option(help="File for the proof, which `lawful verify` re-checks.")
    ] = None,
    certify: Annotated[bool, typer.Option("--verify", help="Replay the pruning in rational arithmetic.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Remove neurons: by default only what changes nothing for any input, with a certified bound otherwise."""
    from lawful.pruning.prune import prune as run
    from lawful.report.singular import pruning_text
    from lawful.singular.spectrum import singularity

    will_write(out, certificate)
    found = named.network()
    pruning = run(found, tolerance=tolerance, box=read_box(box, len(found.to_dag().inputs)))
    if certify or certificate is not None:
        from lawful.pruning.certificate import certificate as proof
        from lawful.verify import verify

        made = proof(pruning)
        if certify:
            verify(made)
        if certificate is not None:
            write_json(certificate, made)
    if out is not None:
        from lawful.network.formats.files import write

        write(pruning.network, out)
    result: dict[str, Any] = {
        "neurons_before": pruning.neurons_before,
        "neurons_after": pruning.neurons_after,
        "parameters_before": found.parameters,
        "parameters_after": pruning.network.parameters,
        "max_output_change_bound": pruning.bound,
        "rounding_bound": pruning.rounding,
        "measured_change": pruning.measured(SAMPLES, named.seed),
        "samples": SAMPLES,
        "rank": singularity(found.to_dag()).rank,
        "box": pruning.box,
        "verified": certify,
        "steps": [
            {"kind": step.kind, "removed": list(step.removed), "bound": step.bound, "rounding": step.rounding}
            for step in pruning.stages
        ],
        "written": None if out is None else str(out),
    }
    if as_json:
        print_json(result)
    else:
        typer.echo(pruning_text(result))


def read_box(text: str | None, inputs: int) -> tuple[Any, Any] | None:
    """`lo,hi` as two numbers, or two arrays from a .npz file."""
    if text is None:
        return None
    if text.endswith(".npz"):
        from lawful.network.formats.box import read_box as read_corners

        return read_corners(text, inputs)
    if not re.fullmatch(r"\s*[-+.\deE]+\s*,\s*[-+.\deE]+\s*", text):
        raise LawfulError(f"--box takes lo,hi (as in --box=-1,1) or a .npz file, not {text[:40]!r}")
    try:
        low, high = (float(part) for part in text.split(","))
    except ValueError:
        raise LawfulError(f"--box takes two numbers lo,hi, not {text[:40]!r}") from None
    return low, high
