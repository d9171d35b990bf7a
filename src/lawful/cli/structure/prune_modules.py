"""`lawful prune` beyond single neurons: channels, a target, a tolerance; and the smaller network as a file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from lawful.cli.output import print_json, will_write, write_certificate, write_text
from lawful.cli.progress import told, working
from lawful.cli.source import Named
from lawful.errors import LawfulError

if TYPE_CHECKING:
    from lawful.api.pruning.by_channels import ByChannels
    from lawful.pruning.channels import ChannelPruning
    from lawful.pruning.channels.onnx_file import OnnxPruning


def prune_by_channels(
    parts: ByChannels,
    named: Named,
    out: Path | None,
    certificate: Path | None,
    certify: bool,
    as_json: bool,
    *,
    fold: bool = False,
    html: Path | None = None,
) -> None:
    """Prune a module or an ONNX file, and write the smaller one."""
    from lawful.report.structure.pruning import channels_json, channels_text

    if parts.module is None and out is not None and out.suffix.lower() != ".onnx":
        raise LawfulError(f"{out}: an ONNX file with convolutions is written as .onnx")
    with working("looking for channels to remove"):
        found = parts.prune(fold=fold, certified=certificate is not None or certify)
    if out is not None:  # first: no refusal of the evidence may cost the work that is done
        found = _write(found, Path(named.text), out, parts.examples)
    if certificate is not None or certify:
        from lawful.pruning.channels.certificate import certificate as evidence

        _prove(evidence(found), certificate, certify, *_both(found))
    facts = channels_json(found, out, certify)
    words = channels_text(found, out, certify or certificate is not None, certify)
    if html is not None:
        from lawful.report.structure.pruning import pruning_page

        write_text(html, pruning_page(facts, words, named.asked, named.text, {}))
    if as_json:
        print_json(facts)
    else:
        typer.echo(words)


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
        found = _write(found, Path(named.text), out, [found.example])
    if certificate is not None or certify:
        from lawful.pruning.channels.certificate import certificate as evidence

        _prove(evidence(found.pruned), certificate, certify)
    if as_json:
        print_json(job_json(found, out, certify))
    else:
        typer.echo(job_text(found, out, certify))


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

    if data is None:
        raise LawfulError("a tolerance on channels needs --data: weights are repaired on samples")
    will_write(out, certificate)
    with told("pruning") as tick:
        found = prune_bounded(
            named.text, named.anything, tolerance, data,
            given=named.input_text, box=box, around=around, relative=relative, seed=named.seed, tick=tick,
        )  # fmt: skip
    if out is not None:
        found = _write(found, Path(named.text), out, [found.example])
    if certificate is not None or certify:
        _prove(evidence(found), certificate, certify)
    if as_json:
        print_json(bounded_json(found, out, certify))
    else:
        typer.echo(bounded_text(found, out, certify))


def _prove(evidence: dict[str, Any], path: Path | None, certify: bool, *networks: object) -> None:
    """Re-check evidence if asked, and write it."""
    from lawful.verify import verify

    if certify:
        verify(evidence, *networks)
    if path is not None:
        write_certificate(path, evidence)


def _both(found: ChannelPruning | OnnxPruning) -> tuple[object, object]:
    """Where the verifier finds tensors that the evidence holds by their digests: the weights before and after."""
    from lawful.pruning.channels import ChannelPruning
    from lawful.verify.core.tensors import GivenTensors

    if isinstance(found, ChannelPruning):
        return found.original, found.module
    return GivenTensors(found.before), GivenTensors(found.after)


def _write(found: Any, source: Path, out: Path, examples: Sequence[Any]) -> Any:
    """ONNX as ONNX, a network of layers in any format, a module as its weights or its graph.

    Returns the pruning (by channels, to a target or within a tolerance) with notes on the files that were written.
    """
    from lawful.formats.io.writing import write_bytes
    from lawful.pruning.channels.model_files import graph_bytes, same_nodes
    from lawful.pruning.channels.onnx_file import OnnxPruning
    from lawful.sources.checkpoints.save import write_weights
    from lawful.sources.files import write

    kind, module = out.suffix.lower(), getattr(found, "module", None)
    pruned: Any = getattr(found, "pruned", found)
    layered = getattr(found, "network", None)
    if isinstance(pruned, OnnxPruning):
        if kind != ".onnx":
            raise LawfulError(f"{out}: an ONNX file is written as .onnx")
        write_bytes(out, pruned.model.SerializeToString())
    elif layered is not None and kind not in (".pt2", ".onnx"):
        write(layered, out)
    elif module is not None and kind in (".pt2", ".onnx"):
        # samples of a job are as many as one likes; a module that is pruned exactly has the inputs that were named
        kept = same_nodes(source, module, examples) if kind == source.suffix.lower() == ".onnx" else None
        write_bytes(out, kept or graph_bytes(module, examples, kind, any_batch=pruned is not found))
    elif module is not None:
        before, after = getattr(found, "parameters", (pruned.parameters_before, pruned.parameters_after))
        if before == after:
            write_weights(module.state_dict(), out, like=source)
        else:
            changed, said = _changed_config(module, source, out, examples)
            write_weights(module.state_dict(), out, like=source, changed=changed, whole=True)
            return replace(found, notes=(*found.notes, *said))
    return found


def _changed_config(
    module: Any, source: Path, out: Path, examples: Sequence[Any]
) -> tuple[dict[str, bytes | None], tuple[str, ...]]:
    """The `config.json` of a new folder, and in words: with the smaller module's sizes, or none where none fits."""
    from lawful.formats.io.reading import read_json
    from lawful.pruning.channels.model_files import updated_settings
    from lawful.sources.checkpoints.save import PICKLED

    old = (source if source.is_dir() else source.parent) / "config.json"
    if out.suffix.lower() in (".safetensors", *PICKLED) or not source.exists() or not old.is_file():
        return {}, ()
    settings = read_json(old)
    new = updated_settings(module, settings, examples)
    if new is None:
        why = f"none was found with which {type(module).__name__} computes the same"
        return {"config.json": None}, (f"{out} has no config.json, so from_pretrained does not load it: {why}",)
    entries = {entry: value for entry, value in new.items() if entry not in settings or settings[entry] != value}
    if not entries:
        return {}, ()
    stated = ", ".join(f"{entry}={value}" for entry, value in entries.items())
    content = (json.dumps(new, indent=2) + "\n").encode()
    return {"config.json": content}, (
        f"config.json of {out} has the new sizes, and from_pretrained loads it: {stated}",
    )
