"""Remove what changes nothing: neurons of networks of layers, channels of modules and of ONNX files."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lawful.api.inputs import input_shape, input_size
from lawful.errors import LawfulError, Unsupported
from lawful.network import Architecture, Dag, Mlp
from lawful.network.assemble import as_mlp
from lawful.network.reading import Reading
from lawful.pruning.neurons.prune import Pruning
from lawful.pruning.neurons.prune import prune as prune_neurons
from lawful.pruning.removable.certificate import certificate
from lawful.pruning.removable.decide import SECONDS, NeuronDecision, beyond
from lawful.pruning.removable.smallest import Smallest, smallest_equivalent
from lawful.sources.modules.module_network import ModuleNetwork
from lawful.sources.opening import Model, Source, open, open_graph
from lawful.sources.provenance import Opened, read_as

if TYPE_CHECKING:
    import torch
    from torch import nn

    from lawful.pruning.channels import ChannelPruning
    from lawful.pruning.files.onnx_channels import OnnxPruning
    from lawful.symmetry.inputs import Input


NEURONS_ONLY = "tolerances, boxes and data are for networks of Linear layers"
CHANNELS_ONLY = "folding is for modules and ONNX files that are pruned channel by channel"
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

    Networks of layers lose neurons, with the options `tolerance`, `box`, `data` and `keep`.
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
    parts = by_channels(
        network,
        lambda: open(network, model=model, activation=activation, order=order, input_shape=input_size(input)),
        input,
        seed,
    )
    if isinstance(parts, ByChannels):
        if options:
            raise LawfulError(f"{', '.join(options)}: {NEURONS_ONLY}")
        return parts.prune(fold=fold)
    if fold:
        raise LawfulError(CHANNELS_ONLY)
    graph = open_graph(parts, seed=seed) if isinstance(parts, Architecture) else parts
    return prune_neurons(graph, **{"decide": SECONDS} | options)


def depth_of(network: Mlp | Dag) -> int | None:
    """How many hidden layers, None for a graph with skips."""
    layered = network if isinstance(network, Mlp) else as_mlp(network)
    return None if layered is None else len(layered.weights) - 1


def smallest_of(network: Mlp | Dag, pruning: Pruning) -> Smallest | None:
    """How many hidden neurons the function needs in a network of the same depth; None for a graph with skips.

    A lossless pruning bounds it from above: rounding of its weights does not matter, real numbers would do.
    """
    layered = network if isinstance(network, Mlp) else as_mlp(network)
    if layered is None or beyond(layered) is not None:
        return None
    lossless = pruning.box is None and pruning.bound == 0
    return smallest_equivalent(layered, pruning.neurons_after if lossless else None)


def needed_certificate(pruning: Pruning) -> dict[str, Any]:
    """The evidence that neurons which are left are needed, about the pruned network as it is in float64."""
    found = pruning.decided
    if found is None:
        raise Unsupported("which neurons are needed is decided for layered networks, without a box or a tolerance")
    decisions = [
        NeuronDecision(layer, number, found.needed[name])
        for layer, names in enumerate(found.layers, 1)
        for number, name in enumerate(names)
        if name in found.needed
    ]
    return certificate(found.network, decisions)


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
            from lawful.pruning.files.onnx_channels import prune_onnx

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
    from lawful.pruning.files.onnx_channels import has_channels

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
