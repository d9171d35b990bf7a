"""`lawful prune` for modules and ONNX files whose weights are used at many places: channel by channel."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from lawful.cli.output import print_json, write_certificate, write_text
from lawful.cli.progress import working
from lawful.cli.source import Named
from lawful.errors import LawfulError

if TYPE_CHECKING:
    from lawful.api.pruning.by_channels import ByChannels
    from lawful.pruning.channels import ChannelPruning
    from lawful.pruning.files.onnx_channels import OnnxPruning


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
        _write(found, parts, Path(named.text), out)
    if certificate is not None or certify:
        _prove(found, certificate, certify)
    facts = channels_json(found, out, certify)
    words = channels_text(found, out, certify or certificate is not None, certify)
    if html is not None:
        from lawful.report.structure.pruning import pruning_page

        write_text(html, pruning_page(facts, words, named.asked, named.text, {}))
    if as_json:
        print_json(facts)
    else:
        typer.echo(words)


def _prove(found: ChannelPruning | OnnxPruning, path: Path | None, certify: bool) -> None:
    """Write the evidence, and re-check it."""
    from lawful.pruning.channels.certificate import certificate
    from lawful.verify import verify

    made = certificate(found)
    if certify:
        verify(made, *_both(found))
    if path is not None:
        write_certificate(path, made)


def _both(found: ChannelPruning | OnnxPruning) -> tuple[object, object]:
    """Where the verifier finds tensors that the evidence holds by their digests: the weights before and after."""
    from lawful.pruning.channels import ChannelPruning
    from lawful.verify.core.tensors import GivenTensors

    if isinstance(found, ChannelPruning):
        return found.original, found.module
    return GivenTensors(found.before), GivenTensors(found.after)


def _write(found: ChannelPruning | OnnxPruning, parts: ByChannels, source: Path, out: Path) -> None:
    """The smaller file: ONNX as ONNX, a module as its weights or its graph."""
    from lawful.formats.io.writing import write_bytes
    from lawful.pruning.channels import ChannelPruning
    from lawful.pruning.files.exported_module import graph_bytes, same_nodes
    from lawful.sources.checkpoints.save import write_weights

    kind = out.suffix.lower()
    if not isinstance(found, ChannelPruning):
        write_bytes(out, found.model.SerializeToString())
    elif kind in (".pt2", ".onnx"):
        kept = same_nodes(source, found.module, parts.examples) if kind == source.suffix.lower() == ".onnx" else None
        write_bytes(out, kept or graph_bytes(found.module, parts.examples, kind))
    else:
        write_weights(found.module.state_dict(), out, like=source)
