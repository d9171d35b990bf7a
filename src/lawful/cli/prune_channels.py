"""`lawful prune` for modules and ONNX files whose weights are used at many places: channel by channel."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from lawful.cli.output import print_json, write_certificate
from lawful.cli.progress import working
from lawful.cli.source import Named
from lawful.errors import LawfulError, Unsupported

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

    from lawful.network.reading import Reading
    from lawful.pruning.channels import ChannelPruning
    from lawful.pruning.onnx_channels import OnnxPruning


def prune_by_channels(
    named: Named, approximate: bool, out: Path | None, certificate: Path | None, certify: bool, as_json: bool
) -> bool:
    """Prune what is no graph of scalar weights; False if the network is one."""
    model = convolutional_file(named.text)
    module = None if model is not None else entangled_module(named)
    if model is None and module is None:
        return False
    if approximate:
        raise LawfulError("tolerances, boxes and data are for networks of Linear layers")
    if model is not None:
        file(model, named, out, certificate, certify, as_json)
    elif module is not None:
        prune_module(module, named, out, certificate, certify, as_json)
    return True


def convolutional_file(text: str) -> Any:
    """The model of an ONNX file with convolutions, None for anything else."""
    path = Path(text)
    if path.suffix.lower() != ".onnx" or not path.is_file():
        return None
    from lawful.network.formats.onnx_file import parse
    from lawful.network.formats.reading import naming

    with naming(path):
        model = parse(path)
        kinds = {node.op_type for node in model.graph.node}
        if not any(kind.startswith(("Conv", "QLinear")) for kind in kinds):
            return None
        if any(tensor.data_location for tensor in model.graph.initializer):
            raise Unsupported("its weights lie in another file: store them in one, which ONNX allows up to 2 GB")
    return model


def entangled_module(named: Named) -> Module | None:
    """The module, where its graph would have other weights than it has; a file without a module is refused then."""
    from lawful.network.modules.network import ModuleNetwork

    found = named.anything()
    if isinstance(found, ModuleNetwork):
        return found.module
    reading = found.reading
    if reading is None or not reading.entangled or _is_folded(found, reading):
        return None
    if reading.module is None:
        raise Unsupported(
            f"{named.text}: {reading.entangled[0]}, so its unrolled graph would be larger than the file; "
            "prune the PyTorch module instead"
        )
    return reading.module  # type: ignore[no-any-return]


def _is_folded(found: Any, reading: Reading) -> bool:
    """Whether layers alone are left of an ONNX file, with scalers folded in, that are no larger than the file was."""
    from lawful.network import Mlp

    held = sum(math.prod(each.shape) for each in reading.layers)
    return isinstance(found, Mlp) and reading.module is None and found.parameters <= held


def file(model: Any, named: Named, out: Path | None, certificate: Path | None, certify: bool, as_json: bool) -> None:
    """Prune an ONNX file, and write the smaller one."""
    from lawful.network.formats.writing import write_bytes
    from lawful.pruning.onnx_channels import prune_onnx

    if out is not None and out.suffix.lower() != ".onnx":
        raise LawfulError(f"{out}: an ONNX file with convolutions is written as .onnx")
    with working("looking for channels to remove"):
        found = prune_onnx(model, seed=named.seed)
    states = {name: _tensors(each) for name, each in (("before", found.before), ("after", found.after))}
    prove(found, states["before"], states["after"], certificate, certify)
    if out is not None:
        write_bytes(out, found.model.SerializeToString())
    tell(found, out, certificate, certify, as_json)


def _tensors(arrays: Any) -> dict[str, Tensor]:
    import torch

    return {name: torch.as_tensor(array) for name, array in arrays.items()}


def prune_module(
    module: Module, named: Named, out: Path | None, certificate: Path | None, certify: bool, as_json: bool
) -> None:
    """Prune a module channel by channel, and write its smaller state dict."""
    from lawful.network.formats.writing import write_bytes
    from lawful.network.modules.save import write_weights
    from lawful.pruning.channels import prune_channels
    from lawful.pruning.stored import graph_bytes

    if named.input_text is None and not getattr(module, "input_sizes", ()):
        raise LawfulError("the size of the module's input is needed, without the batch: --input 3,32,32")
    example = _input(module, named)
    with working("looking for channels to remove"):
        found = prune_channels(module, [example], seed=named.seed)
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


def _input(module: Module, named: Named) -> Tensor | tuple[int, ...]:
    """A size, or random token ids that every embedding has."""
    import torch
    from torch import nn

    from lawful.symmetry.inputs import examples

    if named.shape is not None:
        return (2, *named.shape)
    if named.input_text is None:
        return examples(module, None)[0]
    sizes = [int(size) for size in str(named.input_text).removesuffix(":int").split(",")]
    tables = [part.num_embeddings for part in module.modules() if isinstance(part, nn.Embedding)]
    generator = torch.Generator().manual_seed(named.seed)
    return torch.randint(0, min(tables, default=2), (2, *sizes), generator=generator)


def prove(
    found: ChannelPruning | OnnxPruning, before: Any, after: Any, certificate: Path | None, certify: bool
) -> None:
    """Write the evidence, and re-check it."""
    if certificate is None and not certify:
        return
    from lawful.pruning.channel_certificate import written
    from lawful.verify import verify

    made = written(found.program, found.sweeps, before, after)
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
