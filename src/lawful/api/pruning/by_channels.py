"""How a network is pruned: neuron by neuron as a graph, or channel by channel as a module or an ONNX file."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lawful.api.inputs import input_shape
from lawful.errors import Unsupported
from lawful.network import Mlp
from lawful.network.reading import Reading
from lawful.sources.modules.module_network import ModuleNetwork
from lawful.sources.opening import Source
from lawful.sources.provenance import Opened, read_as

if TYPE_CHECKING:
    import torch
    from torch import nn

    from lawful.pruning.channels import ChannelPruning
    from lawful.pruning.channels.onnx_file import OnnxPruning
    from lawful.symmetry.inputs import Input

TRANSFORMERS = {"LayerNormalization", "RMSNormalization", "Gelu", "Erf"}  # their files are read as modules


@dataclass(frozen=True, eq=False)
class ByChannels:
    """What is pruned channel by channel: an ONNX file with convolutions, or a module with examples of its inputs."""

    file: Any = None
    module: nn.Module | None = None
    examples: tuple[torch.Tensor | tuple[int, ...], ...] = ()
    reading: Reading | None = None
    seed: int = 0
    size: tuple[int, ...] | None = None

    def prune(self, *, fold: bool = False, certified: bool = False) -> ChannelPruning | OnnxPruning:
        """Remove its redundant channels; what is to be `certified` and too large for that is refused at once."""
        if self.module is None:
            from lawful.pruning.channels.onnx_file import prune_onnx

            return prune_onnx(self.file, fold=fold, seed=self.seed, size=self.size, certified=certified)
        from lawful.pruning.channels import prune_channels

        found = prune_channels(self.module, self.examples, fold=fold, seed=self.seed, certified=certified)
        return read_as(found, *(() if self.reading is None else (self.reading,)))


def by_channels(
    network: Source, opened: Callable[[], Opened], given: Input | None = None, seed: int = 0
) -> ByChannels | Opened:
    """How a network is pruned: channel by channel, or as what it opens to, neuron by neuron."""
    if (file := convolutional_file(network)) is not None:
        return ByChannels(file, seed=seed, size=_vector(given))
    try:
        found = opened()
        module = entangled_module(found)
    except Unsupported:  # no graph of scalar weights, and no module: its channels may be read all the same
        if (file := channel_file(network)) is None:
            raise
        return ByChannels(file, seed=seed, size=_vector(given))
    if module is None:
        return found
    stated = given if given is not None else getattr(found, "input_shape", None)
    return ByChannels(None, module, tuple(example_inputs(module, stated, seed)), found.reading, seed)


def _vector(given: Any) -> tuple[int, ...] | None:
    """The size of a single input, if one was given."""
    size: Any = input_shape(given) if isinstance(given, (str, tuple, list)) else None
    return size if size and all(isinstance(each, int) for each in size) else None


def example_inputs(module: nn.Module, given: Any, seed: int) -> list[torch.Tensor | tuple[int, ...]]:
    """Sizes with a batch, tensors as they are, and random token ids that every embedding has; masks of 0 and 1."""
    import torch
    from torch import nn

    from lawful.symmetry.inputs import examples

    generator = torch.Generator().manual_seed(seed)
    tables = [part.num_embeddings for part in module.modules() if isinstance(part, nn.Embedding)]
    found: list[torch.Tensor | tuple[int, ...]] = []
    for place, example in enumerate(examples(module, given)):
        if example.is_floating_point():
            found.append(example if isinstance(given, torch.Tensor) else tuple(example.shape))
        elif bool(example.any()):
            found.append(example)
        else:
            most = min(tables, default=2) if place == 0 else 2
            found.append(torch.randint(0, most, tuple(example.shape), generator=generator))
    return found


def convolutional_file(source: Source) -> Any:
    """The model of an ONNX file with convolutions, None for anything else: transformers with a first one, too."""
    if not isinstance(source, (str, Path)):
        return None
    path = Path(source)
    if path.suffix.lower() != ".onnx" or not path.is_file():
        return None
    from lawful.formats.graphs.onnx_file import parse
    from lawful.formats.io.reading import naming

    with naming(path):
        model = parse(path)
        kinds = {node.op_type for node in model.graph.node}
        if not any(kind.startswith(("Conv", "QLinear")) for kind in kinds) or kinds & TRANSFORMERS:
            return None
        if any(tensor.data_location for tensor in model.graph.initializer):
            raise Unsupported("its weights lie in another file: store them in one, which ONNX allows up to 2 GB")
    return model


def channel_file(source: Any) -> Any:
    """The model of an ONNX file with layers whose channels are read; None for anything else."""
    if not isinstance(source, (str, Path)) or Path(source).suffix.lower() != ".onnx" or not Path(source).is_file():
        return None
    from lawful.formats.graphs.onnx_file import parse
    from lawful.pruning.channels.onnx_file import has_channels

    model = parse(Path(source))
    stored = not any(tensor.data_location for tensor in model.graph.initializer)
    return model if stored and has_channels(model) else None


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
