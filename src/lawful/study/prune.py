"""Remove what changes nothing: neurons of networks of layers, channels of modules and of ONNX files."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lawful.errors import LawfulError, Unsupported
from lawful.network import Architecture, Mlp
from lawful.network.answers import Opened, read_as
from lawful.network.modules.network import ModuleNetwork
from lawful.network.opening import Model, Source, open, open_graph
from lawful.network.reading import Reading
from lawful.pruning.prune import Pruning
from lawful.pruning.prune import prune as prune_neurons
from lawful.study.two_networks import input_size

if TYPE_CHECKING:
    import torch
    from torch import nn

    from lawful.pruning.channels import ChannelPruning
    from lawful.pruning.onnx_channels import OnnxPruning
    from lawful.symmetry.inputs import Input


TRANSFORMERS = {"LayerNormalization", "RMSNormalization", "Gelu", "Erf"}  # their files are read as modules


def prune(
    network: Source,
    *,
    model: Model | Any = None,
    input: Input | None = None,
    activation: str | None = None,
    order: str | None = None,
    fold: bool = False,
    seed: int = 0,
    **options: Any,
) -> Pruning | ChannelPruning | OnnxPruning:
    """Remove what a rule proves redundant.

    Networks of layers lose neurons, with the options of `lawful.pruning.prune` (`tolerance`, `box`, `data`, `keep`).
    Modules whose weights are used at many places lose channels, heads and inner dimensions: nothing changes for any
    input. Their `input` is a size without the batch, `"8:int"` for token ids, or a tensor; with `fold`, normalisations
    go into the layers before them.

    >>> prune("3-4-2 relu").neurons_after
    4
    >>> from torch import nn
    >>> found = prune(nn.Sequential(nn.Conv1d(1, 3, 2), nn.ReLU(), nn.Conv1d(3, 1, 2)), input=(1, 6))
    >>> found.channels_before, found.channels_after
    (3, 3)
    """
    if (file := convolutional_file(network)) is not None:
        from lawful.pruning.onnx_channels import prune_onnx

        _refuse(options)
        return prune_onnx(file, fold=fold, seed=seed)
    found = open(network, model=model, activation=activation, order=order, input_shape=input_size(input))
    module = entangled_module(found)
    if module is None:
        if fold:
            raise LawfulError("folding is for modules and ONNX files that are pruned channel by channel")
        opened = open_graph(found, seed=seed) if isinstance(found, Architecture) else found
        return prune_neurons(opened, **options)
    from lawful.pruning.channels import prune_channels

    _refuse(options)
    given = input if input is not None else getattr(found, "input_shape", None)
    return read_as(prune_channels(module, [example_input(module, given, seed)], fold=fold, seed=seed), *_reading(found))


def example_input(module: nn.Module, given: Any, seed: int) -> torch.Tensor | tuple[int, ...]:
    """A size with a batch, or random token ids that every embedding has."""
    import torch
    from torch import nn

    from lawful.symmetry.inputs import examples

    if isinstance(given, torch.Tensor):
        return given
    if given is None:  # a first layer, or an ONNX file, may say what it takes
        guessed = examples(module, None)[0]
        given = tuple(guessed.shape[1:]) if guessed.is_floating_point() else _tokens(guessed)
    if (size := input_size(given)) is not None:
        return (2, *size)
    found = re.fullmatch(r"(\d{1,6}(?:,\d{1,6})*):int", given) if isinstance(given, str) else None
    if found is None:
        raise LawfulError("the size of the module's input is needed, without the batch: --input 3,32,32, or 8:int")
    tables = [part.num_embeddings for part in module.modules() if isinstance(part, nn.Embedding)]
    sizes = [int(each) for each in found[1].split(",")]
    return torch.randint(0, min(tables, default=2), (2, *sizes), generator=torch.Generator().manual_seed(seed))


def _tokens(example: torch.Tensor) -> str:
    return ",".join(map(str, example.shape[1:])) + ":int"


def _refuse(options: dict[str, Any]) -> None:
    if options:
        raise LawfulError(f"{', '.join(options)}: tolerances, boxes and data are for networks of Linear layers")


def _reading(found: Opened) -> tuple[Reading, ...]:
    return () if found.reading is None else (found.reading,)


def convolutional_file(source: Source) -> Any:
    """The model of an ONNX file with convolutions, None for anything else: transformers with a first one, too."""
    if not isinstance(source, (str, Path)):
        return None
    path = Path(source)
    if path.suffix.lower() != ".onnx" or not path.is_file():
        return None
    from lawful.network.formats.onnx_file import parse
    from lawful.network.formats.reading import naming

    with naming(path):
        model = parse(path)
        kinds = {node.op_type for node in model.graph.node}
        if not any(kind.startswith(("Conv", "QLinear")) for kind in kinds) or kinds & TRANSFORMERS:
            return None
        if any(tensor.data_location for tensor in model.graph.initializer):
            raise Unsupported("its weights lie in another file: store them in one, which ONNX allows up to 2 GB")
    return model


def entangled_module(found: Opened) -> nn.Module | None:
    """The module, where its graph would have other weights than it has; a file without a module is refused then."""
    if isinstance(found, ModuleNetwork):
        return found.module
    reading = found.reading
    if reading is None or not reading.entangled or _is_folded(found, reading):
        return None
    if reading.module is None:
        raise Unsupported(
            f"{reading.source}: {reading.entangled[0]}, so its unrolled graph would be larger than the file; "
            "prune the PyTorch module instead"
        )
    return reading.module  # type: ignore[no-any-return]


def _is_folded(found: Opened, reading: Reading) -> bool:
    """Whether layers alone are left of an ONNX file, with scalers folded in, that are no larger than the file was."""
    held = sum(math.prod(each.shape) for each in reading.layers)
    return isinstance(found, Mlp) and reading.module is None and found.parameters <= held
