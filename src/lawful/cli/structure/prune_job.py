"""`lawful prune --target`: a job from end to end, and the smaller network as a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from lawful.cli.output import print_json, will_write, write_certificate
from lawful.cli.progress import told
from lawful.cli.source import Named
from lawful.errors import LawfulError

if TYPE_CHECKING:
    from lawful.pruning.job.bounded import BoundedPruning
    from lawful.pruning.job.job import PruningJob


def run_job(
    named: Named,
    target: str,
    data: Path | None,
    held_out: Path | None,
    out: Path | None,
    certificate: Path | None,
    certify: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Prune to a size, write the smaller network, and report."""
    from lawful.api.pruning.job import prune_to
    from lawful.report.structure.pruning_job import job_json, job_text

    if data is None:
        raise LawfulError(f"{target}: give --data, samples of what the network is for (.npz with x and y, or .csv)")
    if options["tune"] is not None and (certificate is not None or certify):
        raise LawfulError("--tune changes every weight: there is nothing exact left to certify")
    will_write(out, certificate, options["plan"])
    with told("pruning") as tick:
        found = prune_to(
            named.text, named.anything, target, data,
            given=named.input_text, held_out=held_out, seed=named.seed, tick=tick, **options,
        )  # fmt: skip
    if out is not None:  # first: no refusal of the evidence may cost the work that is done
        _write(found, Path(named.text), out)
    verified = False
    if certificate is not None or certify:
        from lawful.pruning.channels.certificate import certificate as evidence
        from lawful.verify import verify

        made = evidence(found.pruned)
        if certify:
            verify(made)
            verified = True
        if certificate is not None:
            write_certificate(certificate, made)
    if as_json:
        print_json(job_json(found, out, verified))
    else:
        typer.echo(job_text(found, out, verified))


def run_bounded(
    named: Named,
    tolerance: float,
    relative: bool,
    data: Path | None,
    box: str | None,
    around: float | None,
    out: Path | None,
    certificate: Path | None,
    certify: bool,
    as_json: bool,
) -> None:
    """Prune channels within a tolerance, write the smaller module, and report."""
    from lawful.api.pruning.job import prune_bounded
    from lawful.pruning.job.bounded import certificate as evidence
    from lawful.report.structure.pruning_job import bounded_json, bounded_text
    from lawful.verify import verify

    if data is None:
        raise LawfulError("a tolerance on channels needs --data: weights are repaired on samples")
    will_write(out, certificate)
    with told("pruning") as tick:
        found = prune_bounded(
            named.text, named.anything, tolerance, data,
            given=named.input_text, box=box, around=around, relative=relative, seed=named.seed, tick=tick,
        )  # fmt: skip
    if out is not None:
        _write(found, Path(named.text), out)
    if certificate is not None or certify:
        made = evidence(found)
        if certify:
            verify(made)
        if certificate is not None:
            write_certificate(certificate, made)
    if as_json:
        print_json(bounded_json(found, out, certify))
    else:
        typer.echo(bounded_text(found, out, certify))


def _write(found: PruningJob | BoundedPruning, source: Path, out: Path) -> None:
    """ONNX as ONNX, a network of layers in any format, a module as its weights or its graph."""
    from lawful.formats.io.writing import write_bytes
    from lawful.pruning.files.exported_module import graph_bytes, same_nodes
    from lawful.pruning.files.onnx_channels import OnnxPruning
    from lawful.pruning.job.job import PruningJob
    from lawful.sources.checkpoints.save import write_weights

    kind = out.suffix.lower()
    if isinstance(found.pruned, OnnxPruning):
        if kind != ".onnx":
            raise LawfulError(f"{out}: an ONNX file is written as .onnx")
        write_bytes(out, found.pruned.model.SerializeToString())
    elif isinstance(found, PruningJob) and found.network is not None and kind not in (".pt2", ".onnx"):
        from lawful.sources.files import write

        write(found.network, out)
    elif found.module is not None and kind in (".pt2", ".onnx"):
        kept = same_nodes(source, found.module, [found.example]) if kind == source.suffix.lower() == ".onnx" else None
        write_bytes(out, kept or graph_bytes(found.module, [found.example], kind, any_batch=True))
    elif found.module is not None:
        write_weights(found.module.state_dict(), out, like=source)
