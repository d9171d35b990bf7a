"""`lawful prune` for modules and ONNX files whose weights are used at many places: channel by channel."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from lawful.cli.output import print_json, write_certificate
from lawful.cli.progress import working
from lawful.cli.source import Named
from lawful.errors import LawfulError

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

    from lawful.pruning.channels import ChannelPruning
    from lawful.pruning.onnx_channels import OnnxPruning


def prune_by_channels(
    named: Named,
    approximate: bool,
    out: Path | None,
    certificate: Path | None,
    certify: bool,
    as_json: bool,
    *,
    fold: bool = False,
) -> bool:
    """Prune what is no graph of scalar weights; False if the network is one."""
    from lawful.study.prune import convolutional_file, entangled_module

    model = convolutional_file(named.text)
    module = None if model is not None else entangled_module(named.anything())
    if model is None and module is None:
        return False
    if approximate:
        raise LawfulError("tolerances, boxes and data are for networks of Linear layers")
    if model is not None:
        file(model, named, out, certificate, certify, as_json, fold=fold)
    elif module is not None:
        prune_module(module, named, out, certificate, certify, as_json, fold=fold)
    return True


def file(
    model: Any,
    named: Named,
    out: Path | None,
    certificate: Path | None,
    certify: bool,
    as_json: bool,
    *,
    fold: bool = False,
) -> None:
    """Prune an ONNX file, and write the smaller one."""
    from lawful.network.formats.writing import write_bytes
    from lawful.pruning.onnx_channels import prune_onnx

    if out is not None and out.suffix.lower() != ".onnx":
        raise LawfulError(f"{out}: an ONNX file with convolutions is written as .onnx")
    with working("looking for channels to remove"):
        found = prune_onnx(model, fold=fold, seed=named.seed)
    states = {name: _tensors(each) for name, each in (("before", found.before), ("after", found.after))}
    prove(found, states["before"], states["after"], certificate, certify)
    if out is not None:
        write_bytes(out, found.model.SerializeToString())
    tell(found, out, certificate, certify, as_json)


def _tensors(arrays: Any) -> dict[str, Tensor]:
    import torch

    return {name: torch.as_tensor(array) for name, array in arrays.items()}


def prune_module(
    module: Module,
    named: Named,
    out: Path | None,
    certificate: Path | None,
    certify: bool,
    as_json: bool,
    *,
    fold: bool = False,
) -> None:
    """Prune a module channel by channel, and write its smaller state dict."""
    from lawful.network.formats.writing import write_bytes
    from lawful.network.modules.save import write_weights
    from lawful.pruning.channels import prune_channels
    from lawful.pruning.stored import graph_bytes
    from lawful.study.prune import example_input

    if ";" in (named.input_text or ""):
        raise LawfulError("channels of modules with several inputs are not pruned")
    example = example_input(module, named.input_text, named.seed)
    with working("looking for channels to remove"):
        found = prune_channels(module, [example], fold=fold, seed=named.seed)
    prove(found, found.original.state_dict(), found.module.state_dict(), certificate, certify)
    if out is not None and out.suffix.lower() in (".pt2", ".onnx"):
        kept = _same_nodes(Path(named.text), out, found.module, example)
        write_bytes(out, kept or graph_bytes(found.module, example, out.suffix.lower()))
    elif out is not None:
        write_weights(found.module.state_dict(), out, like=Path(named.text))
    tell(found, out, certificate, certify, as_json)


def _same_nodes(source: Path, out: Path, module: Module, example: Tensor | tuple[int, ...]) -> bytes | None:
    """An ONNX file with smaller initializers, where it came from one whose nodes still fit."""
    import torch

    from lawful.network.modules.onnx_network import resized

    if not (source.suffix.lower() == out.suffix.lower() == ".onnx" and source.is_file()):
        return None
    given = example if isinstance(example, torch.Tensor) else torch.zeros(example)
    generator = torch.Generator().manual_seed(0)
    if given.is_floating_point():
        given = torch.randn(given.shape, generator=generator)
    return resized(source, module, [given])


def prove(
    found: ChannelPruning | OnnxPruning, before: Any, after: Any, certificate: Path | None, certify: bool
) -> None:
    """Write the evidence, and re-check it."""
    if certificate is None and not certify:
        return
    from lawful.pruning.channel_certificate import written
    from lawful.verify import verify

    made = written(found.program, found.sweeps, before, after, found.tidied)
    if certify:
        verify(made)
    if certificate is not None:
        write_certificate(certificate, made)


def tell(
    found: ChannelPruning | OnnxPruning, out: Path | None, certificate: Path | None, certify: bool, as_json: bool
) -> None:
    """The answer."""
    from lawful.report.pruning import channels_json, channels_text

    if as_json:
        print_json(channels_json(found, out, certify))
    else:
        typer.echo(channels_text(found, out, certify or certificate is not None, certify))
