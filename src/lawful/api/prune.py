"""Remove what changes nothing: neurons of networks of layers, channels of modules and of ONNX files."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from numpy.typing import ArrayLike

from lawful.api.inputs import input_size, refuse_unknown
from lawful.api.pruning.by_channels import ByChannels, by_channels
from lawful.api.pruning.job import prune_bounded, prune_to
from lawful.errors import LawfulError, Unsupported
from lawful.formats.queries.box import box_of
from lawful.formats.queries.data import Data, read_data
from lawful.network import Dag, Mlp
from lawful.network.assemble import as_mlp
from lawful.pruning.neurons.prune import Pruning
from lawful.pruning.neurons.prune import prune as prune_neurons
from lawful.pruning.removable.certificate import certificate
from lawful.pruning.removable.decide import SECONDS, NeuronDecision, beyond
from lawful.pruning.removable.smallest import Smallest, smallest_equivalent
from lawful.sources.opening import Model, Source, open, open_graph
from lawful.sources.provenance import Opened
from lawful.types import Floats

if TYPE_CHECKING:
    from lawful.pruning.channels import ChannelPruning
    from lawful.pruning.channels.onnx_file import OnnxPruning
    from lawful.pruning.job.bounded import BoundedPruning
    from lawful.pruning.job.job import PruningJob
    from lawful.pruning.job.score import Criterion
    from lawful.pruning.job.tuning import Tune
    from lawful.symmetry.inputs import Input


NEURONS_ONLY = "not with a tolerance on channels"
OF_BOUNDS = {"tolerance", "relative", "box", "data", "around", "tick"}  # options of both neurons and channels
TO_TARGET = ("blocks", "criterion", "data", "held_out", "mend", "multiple", "plan", "tick", "timed", "tune")
CHANNELS_ONLY = "folding is for modules and ONNX files that are pruned channel by channel"


class PruneOptions(TypedDict, total=False):
    """What may go beyond what changes nothing, and how long to look; `lawful prune --help` says when each applies."""

    data: str | Path | Data | ArrayLike | tuple[ArrayLike, ArrayLike] | None
    box: str | tuple[ArrayLike, ArrayLike] | None
    tolerance: float | Floats
    relative: bool  # a tolerance in parts of each output's range
    around: float | None
    tick: Callable[[str], None]
    # neurons of a network of layers
    keep: int | None
    skips: bool
    decide: float
    seconds: float
    replayable: bool
    # with a target
    held_out: str | Path | tuple[ArrayLike, ArrayLike] | None
    criterion: Criterion
    multiple: int
    mend: bool
    timed: bool
    blocks: bool
    tune: str | Tune | None
    plan: str | Path | None


def prune(
    network: Source,
    *,
    model: Model | Any = None,
    input: Input | None = None,
    activation: str | None = None,
    order: str | None = None,
    fold: bool = False,
    seed: int = 0,
    target: str | None = None,
    **given: Unpack[PruneOptions],
) -> Pruning | ChannelPruning | OnnxPruning | PruningJob | BoundedPruning:
    """Remove what a rule proves redundant; with a `target`, units are scored, cut and repaired down to a size.

    A `target` is `"params:0.5"`, `"flops:40%"`, `"latency:0.7"` or `"accuracy:99%"`, with `data` (a file, or a pair of
    samples and labels) and the options of `prune_to_target`: `held_out`, `criterion`, `multiple`, `tune`, `plan`.
    Networks of layers lose neurons, with the options `tolerance`, `box`, `data` and `keep`.
    Modules whose weights are used at many places lose channels, heads and inner dimensions: nothing changes for any
    input. With a `tolerance` and `data` (and `box` or `around`) they lose what moves outputs by less, certified or by
    statistics. Their `input` is a size without the batch, `"8:int"` for token ids, or a tensor; with `fold`,
    normalisations go into the layers before them.

    >>> prune("3-4-2 relu").neurons_after
    4
    >>> from torch import nn
    >>> found = prune(nn.Sequential(nn.Conv1d(1, 3, 2), nn.ReLU(), nn.Conv1d(3, 1, 2)), input=(1, 6))
    >>> found.channels_before, found.channels_after
    (3, 3)
    """

    def opened() -> Opened:
        return open(network, model=model, activation=activation, order=order, input_shape=input_size(input))

    options: dict[str, Any] = {**given}
    if target is not None:
        refuse_unknown("prune with a target", options, TO_TARGET)
        return prune_to(network, opened, target, options.pop("data", None), given=input, seed=seed, **options)
    parts = by_channels(network, opened, input, seed)
    if isinstance(parts, ByChannels):
        if not options:
            return parts.prune(fold=fold)
        if fold or not set(options) <= OF_BOUNDS:
            raise LawfulError(f"{', '.join(sorted(set(options) - OF_BOUNDS)) or 'fold'}: {NEURONS_ONLY}")
        return prune_bounded(
            network, opened, options.pop("tolerance", 0.0), options.pop("data", None), given=input, seed=seed, **options
        )
    if fold:
        raise LawfulError(CHANNELS_ONLY)
    refuse_unknown("prune", options, [*inspect.signature(prune_neurons).parameters][1:])
    graph = open_graph(parts, seed=seed)
    if isinstance(options.get("box"), str):
        options["box"] = box_of(options["box"], graph)
    if "data" in options:
        options["data"] = _rows(options["data"], len(graph.to_dag().inputs))
    return prune_neurons(graph, **{"decide": SECONDS} | options)


def _rows(data: Any, inputs: int) -> Any:
    """The samples alone, from a file, from `Data`, or from a pair with their labels."""
    if isinstance(data, (str, Path)):
        return read_data(Path(data), inputs).x
    return data.x if isinstance(data, Data) else data[0] if isinstance(data, tuple) else data


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
