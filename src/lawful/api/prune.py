"""Remove what changes nothing: neurons of networks of layers, channels of modules and of ONNX files."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, Unpack

from lawful.api.inputs import (
    Box,
    DrawOptions,
    Help,
    Samples,
    UnknownOption,
    asks_for_ids,
    input_shape,
    open_options,
    refuse_unknown,
    takes,
)
from lawful.errors import LawfulError, Unsupported
from lawful.result import with_evidence

if TYPE_CHECKING:
    import torch
    from torch import nn

    from lawful.network import Dag, Mlp
    from lawful.network.reading import Reading
    from lawful.pruning.channels import ChannelPruning
    from lawful.pruning.channels.onnx_file import OnnxPruning
    from lawful.pruning.job.bounded import BoundedPruning
    from lawful.pruning.job.case import JobSamples
    from lawful.pruning.job.job import PruningJob
    from lawful.pruning.job.network import Subject
    from lawful.pruning.job.score import Criterion
    from lawful.pruning.job.tuning import Tune
    from lawful.pruning.neurons.prune import Pruning
    from lawful.pruning.removable.smallest import Smallest
    from lawful.sources.opening import Source
    from lawful.sources.provenance import Opened
    from lawful.symmetry.inputs import Input
    from lawful.types import Floats

    Tolerance = float | str | Floats
else:  # what a command line can give: it reads these annotations, and loads no NumPy for that
    Criterion = Tune = Tolerance = str

SECONDS = 5.0  # to decide which neurons are needed: `pruning.removable.decide` gives itself as many
TO_TARGET = ("blocks", "criterion", "data", "even", "held_out", "mend", "multiple", "plan", "tick", "timed", "tune")
CHANNELS_ONLY = "folding is for modules and ONNX files that are pruned channel by channel"
WITH_TARGET = "--criterion, --multiple, --even, --no-blocks, --held-out, --tune and --plan go with --target"
WITHOUT_TOLERANCE = "--curve, --keep, --fold and --html: not with a tolerance on channels"
NOTHING_EXACT = "--tune changes every weight: there is nothing exact left to certify"


@takes(DrawOptions)
def prune(
    network: Source,
    *,
    tolerance: Annotated[
        Tolerance, Help("Largest change of any output allowed on the box; 2% is relative to its range.")
    ] = 0,
    relative: bool = False,
    keep: Annotated[
        int | str | None,
        Help("Leave so many hidden neurons, with the smallest bound found; or accuracy:99% with --data."),
    ] = None,
    box: Annotated[
        Box | None, Help("Inputs: lo,hi; lo:hi,lo:hi,...; .npz or .vnnlib [default: data's, or -1,1].")
    ] = None,
    data: Annotated[Samples | None, Help("Samples (.npz with x, .csv): their box, and the error on them.")] = None,
    around: Annotated[
        float | None, Help("The bound holds within this distance of each sample, not on all of the box.")
    ] = None,
    skips: Annotated[bool, Help("Let edges pass layers: more neurons can go, and the result is a graph.")] = False,
    fold: Annotated[bool, Help("Modules: fold normalisations into layers, drop biases without effect.")] = False,
    decide: Annotated[
        float, Help("Seconds to decide exactly which neurons are needed (small networks; 0: do not).", least=0)
    ] = SECONDS,
    seconds: Annotated[float, Help("Seconds after which the search takes what it has.")] = 60.0,
    replayable: bool = False,
    target: Annotated[
        str | None, Help("Prune and repair to a size, with --data: params:0.5, flops:40% or latency:0.7.")
    ] = None,
    criterion: Annotated[Criterion, Help("With --target: score units as replaced, magnitude or taylor.")] = "replaced",
    multiple: Annotated[int, Help("With --target: numbers of channels are multiples of this.", least=1)] = 1,
    even: Annotated[bool, Help("With --target: layers that are alike have one size, as a config.json says.")] = False,
    blocks: Annotated[bool, Help("With --target: whole residual blocks may leave.")] = True,
    held_out: Annotated[
        Samples | None, Help("With --target: samples that only measure [default: a fifth of --data].")
    ] = None,
    tune: Annotated[
        str | Tune | None,
        Help(
            "With --target: train by distil (or distil:EPOCHS), module:function(small, original, x, y), "
            "or a command with {small}, {data} and {out}."
        ),
    ] = None,
    plan: Annotated[
        str | Path | None,
        Help("With --target: file that keeps the order of removal, and is read if it is there."),
    ] = None,
    mend: bool = True,
    timed: bool = True,
    certified: bool = False,
    stored_in: Path | None = None,
    tick: Callable[[str], None] = lambda words: None,
    **reading: Unpack[DrawOptions],
) -> Pruning | ChannelPruning | OnnxPruning | PruningJob | BoundedPruning:
    """Remove what a rule proves redundant; with a `target`, units are scored, cut and repaired down to a size.

    A `target` is `"params:0.5"`, `"flops:40%"`, `"latency:0.7"` or `"accuracy:99%"`, with `data` (a file, or a pair of
    samples and labels) and the options of `prune_to_target`: `held_out`, `criterion`, `multiple`, `tune`, `plan`.
    Networks of layers lose neurons, with the options `tolerance`, `box`, `data` and `keep`.
    Modules whose weights are used at many places lose channels, heads and inner dimensions: nothing changes for any
    input. With a `tolerance` and `data` (and `box` or `around`) they lose what moves outputs by less, certified or by
    statistics. Their `input` is a size without the batch, `"8:int"` for token ids, or a tensor; with `fold`,
    normalisations go into the layers before them. What is `certified` loses no more than evidence can follow, and the
    evidence is about the numbers that the file `stored_in` would hold.

    >>> prune("3-4-2 relu").neurons_after
    4
    >>> from torch import nn
    >>> found = prune(nn.Sequential(nn.Conv1d(1, 3, 2), nn.ReLU(), nn.Conv1d(3, 1, 2)), input=(1, 6))
    >>> found.channels_before, found.channels_after
    (3, 3)
    """
    input, seed = reading.get("input"), reading.get("seed", 0)

    @functools.cache  # who asks how it is pruned and who prunes it open it once
    def opened() -> Opened:
        from lawful.sources.opening import open

        return open(network, **{option: value for option, value in open_options(reading).items() if option != "seed"})

    bounded: dict[str, Any] = {
        **read_tolerance(tolerance, relative), "box": box, "data": data, "around": around,
    }  # fmt: skip
    of_neurons: dict[str, Any] = {
        "keep": keep, "skips": skips, "decide": decide, "seconds": seconds, "replayable": replayable,
    }  # fmt: skip
    to_target: dict[str, Any] = {
        "criterion": criterion, "multiple": multiple, "even": even, "blocks": blocks, "held_out": held_out,
        "tune": tune, "plan": plan, "mend": mend, "timed": timed,
    }  # fmt: skip
    if isinstance(keep, str) and ":" in keep and target is None:
        target, of_neurons["keep"] = keep, None
    if target is not None:
        others = {name: value for name, value in bounded.items() if name != "data"} | of_neurons | {"fold": fold}
        refuse_unknown("prune with a target", _chosen(others), TO_TARGET)
        if certified and tune is not None:
            raise LawfulError(NOTHING_EXACT)
        return prune_to(network, opened, target, data, given=input, seed=seed, tick=tick, **to_target)
    if _chosen(to_target):
        raise LawfulError(WITH_TARGET)
    of_neurons["keep"] = read_count(of_neurons["keep"])
    parts = by_channels(network, opened, input, seed)
    if not isinstance(parts, ByChannels):
        if fold:
            raise LawfulError(CHANNELS_ONLY)
        return _prune_neurons(parts, {**bounded, **of_neurons, "tick": tick}, seed, certified, stored_in)
    approximate = bool(_chosen(bounded))
    if approximate and (keep is not None or fold):
        raise LawfulError(WITHOUT_TOLERANCE)
    if unused := _chosen({name: of_neurons[name] for name in ("keep", "skips", "replayable")}):
        raise UnknownOption(f"{', '.join(unused)}: not for a network that is pruned channel by channel")
    if approximate:
        return prune_bounded(network, opened, given=input, seed=seed, tick=tick, **bounded)
    return _prune_channels(parts, fold, certified, stored_in)


def _chosen(options: Mapping[str, Any]) -> list[str]:
    """The options that are not as `prune` has them by itself."""
    parameters = inspect.signature(prune).parameters
    defaults = {name: parameters[name].default for name in options}
    # An array equals no number as a whole: one tolerance for each output is always chosen.
    plain = (bool, int, float, str)
    return [name for name, value in options.items()
            if value is not defaults[name] and not (isinstance(value, plain) and value == defaults[name])]  # fmt: skip


def _prune_channels(
    parts: ByChannels, fold: bool, certified: bool, stored_in: Path | None
) -> ChannelPruning | OnnxPruning:
    """Channels that nothing needs, and the evidence for it."""
    from lawful.pruning.channels.certificate import certificate

    if parts.module is None and stored_in is not None and stored_in.suffix.lower() != ".onnx":
        raise LawfulError(f"{stored_in}: an ONNX file with convolutions is written as .onnx")
    pruning = parts.prune(fold=fold, certified=certified)
    return with_evidence(pruning, lambda: certificate(pruning))


def _prune_neurons(
    network: Opened, options: dict[str, Any], seed: int, certified: bool, stored_in: Path | None
) -> Pruning:
    """Neurons of a graph; if `certified`, with the evidence about the numbers that are stored."""
    from lawful.formats.queries.box import box_of
    from lawful.pruning.neurons.certificate import prune_with_certificate
    from lawful.pruning.neurons.prune import prune as prune_neurons
    from lawful.sources.files import stored_type
    from lawful.sources.opening import open_graph
    from lawful.sources.provenance import with_provenance

    graph = open_graph(network, seed=seed)
    if isinstance(options["box"], str):
        options["box"] = box_of(options["box"], graph)
    options["data"] = sample_rows(options["data"], graph)
    if not certified:
        pruning = prune_neurons(graph, **options)
        return with_evidence(pruning, lambda: _replay(pruning))
    options.pop("replayable")  # evidence of a bound follows more than a replay does
    dtype = None if stored_in is None else stored_type(graph, stored_in, graph.reading)
    pruning, proof = prune_with_certificate(graph, dtype=dtype, **options)
    return with_evidence(with_provenance(pruning, graph), lambda: proof)


def _replay(pruning: Pruning) -> dict[str, Any]:
    """The evidence for a pruning that changes nothing: all of its steps can be replayed."""
    from lawful.pruning.neurons.certificate import certificate

    if pruning.box is not None:
        raise Unsupported("a bound on a box is certified while it is looked for: prune with certified=True")
    return certificate(pruning)


def sample_rows(data: Any, network: Mlp | Dag) -> Any:
    """The samples alone, from a file, from `Data`, or from a pair with their labels."""
    from lawful.formats.queries.data import Data, read_data

    if isinstance(data, (str, Path)):
        return read_data(Path(data), len(network.to_dag().inputs)).x
    return data.x if isinstance(data, Data) else data[0] if isinstance(data, tuple) else data


def read_count(keep: int | str | None) -> int | None:
    """How many neurons to leave.

    >>> read_count("12"), read_count(3)
    (12, 3)
    """
    if not isinstance(keep, str):
        return keep
    if not keep.isdecimal() or len(keep) > 9:
        raise LawfulError(f"--keep takes a number of neurons, or accuracy:99%, not {keep[:40]!r}")
    return int(keep)


def read_tolerance(tolerance: Tolerance, relative: bool = False) -> dict[str, Any]:
    """A number, or a percentage of each output's range.

    >>> read_tolerance("0.5"), read_tolerance("2%")
    ({'tolerance': 0.5, 'relative': False}, {'tolerance': 0.02, 'relative': True})
    """
    if not isinstance(tolerance, str):
        return {"tolerance": tolerance, "relative": relative}
    is_share = tolerance.strip().endswith("%")
    try:
        number = float(tolerance.strip().removesuffix("%"))
    except ValueError:
        raise LawfulError(f"--tolerance takes a number such as 0.1, or 2%, not {tolerance[:40]!r}") from None
    return {"tolerance": number / 100 if is_share else number, "relative": relative or is_share}


def depth_of(network: Mlp | Dag) -> int | None:
    """How many hidden layers, None for a graph with skips."""
    from lawful.network import Mlp
    from lawful.network.assemble import as_mlp

    layered = network if isinstance(network, Mlp) else as_mlp(network)
    return None if layered is None else len(layered.weights) - 1


def smallest_of(network: Mlp | Dag, pruning: Pruning) -> Smallest | None:
    """How many hidden neurons the function needs in a network of the same depth; None for a graph with skips.

    A lossless pruning bounds it from above: rounding of its weights does not matter, real numbers would do.
    """
    from lawful.network import Mlp
    from lawful.network.assemble import as_mlp
    from lawful.pruning.removable.decide import beyond
    from lawful.pruning.removable.smallest import smallest_equivalent

    layered = network if isinstance(network, Mlp) else as_mlp(network)
    if layered is None or beyond(layered) is not None:
        return None
    lossless = pruning.box is None and pruning.bound == 0
    return smallest_equivalent(layered, pruning.neurons_after if lossless else None)


def needed_certificate(pruning: Pruning) -> dict[str, Any]:
    """The evidence that neurons which are left are needed, about the pruned network as it is in float64."""
    from lawful.pruning.removable.certificate import certificate
    from lawful.pruning.removable.decide import NeuronDecision

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
        from lawful.sources.provenance import read_as

        found = prune_channels(self.module, self.examples, fold=fold, seed=self.seed, certified=certified)
        found = replace(found, examples=self.examples)
        return read_as(found, *(() if self.reading is None else (self.reading,)))


def by_channels(
    network: Source, opened: Callable[[], Opened], given: Input | None = None, seed: int = 0
) -> ByChannels | Opened:
    """How a network is pruned: channel by channel, or as what it opens to, neuron by neuron."""
    if (file := convolutional_file(network)) is not None:
        return ByChannels(file, seed=seed, size=_one_size(given))
    try:
        found = opened()
        module = entangled_module(found)
    except Unsupported:  # no graph of scalar weights, and no module: its channels may be read all the same
        if (file := channel_file(network)) is None:
            raise
        return ByChannels(file, seed=seed, size=_one_size(given))
    if module is None:
        return found
    stated = given if given is not None else getattr(found, "input_shape", None)
    return ByChannels(None, module, tuple(example_inputs(module, stated, seed)), found.reading, seed)


def _one_size(given: Input | None) -> tuple[int, ...] | None:
    """The size of a single input of numbers or ids, if one was given."""
    size: Any = None if given is None else input_shape(given)
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
    from lawful.formats.graphs.onnx_file import complete, parse
    from lawful.formats.io.reading import naming

    with naming(path):
        model = parse(path)
        kinds = {node.op_type for node in model.graph.node}
        if not any(kind.startswith(("Conv", "QLinear")) for kind in kinds) or kinds & TRANSFORMERS:
            return None
        return complete(model, path.parent)


def channel_file(source: Any) -> Any:
    """The model of an ONNX file with layers whose channels are read; None for anything else."""
    if not isinstance(source, (str, Path)) or Path(source).suffix.lower() != ".onnx" or not Path(source).is_file():
        return None
    from lawful.formats.graphs.onnx_file import complete, parse
    from lawful.pruning.channels.onnx_file import has_channels

    model = parse(Path(source))
    return complete(model, Path(source).parent) if has_channels(model) else None


def entangled_module(found: Opened) -> nn.Module | None:
    """The module, where its graph would have other weights than it has; a file without a module is refused then."""
    from lawful.sources.modules.module_network import ModuleNetwork

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
    from lawful.network import Mlp

    held = sum(math.prod(each.shape) for each in reading.layers)
    return isinstance(found, Mlp) and reading.module is None and found.parameters <= held


Pruned = TypeVar("Pruned", bound="PruningJob | BoundedPruning")
UNUSED = "y is not used, and no accuracy is measured: labels are one whole number for each sample"


def prune_to(
    network: Source,
    opened: Callable[[], Opened],
    target: str,
    data: Any,
    *,
    given: Any = None,
    held_out: Any = None,
    tune: str | Tune | None = None,
    plan: str | Path | None = None,
    multiple: int = 1,
    even: bool = False,
    **options: Any,
) -> PruningJob:
    """Run a pruning job; `data` is a file or `(x, labels)`, `tune` a function or what `--tune` takes."""
    from lawful.pruning.channels.certificate import certificate
    from lawful.pruning.job.job import prune_to_target
    from lawful.pruning.job.sizes import read_target
    from lawful.pruning.job.tuning import read_tune

    wanted = replace(read_target(target), multiple=multiple, even=even)
    subject, size, layered = _subject(network, opened, given)
    samples, unused = _samples(data, size, "a target")
    outside = None
    if held_out is not None:
        outside, also = _samples(held_out, tuple(samples.x.shape[1:]), "a target")
        unused = unused or also
    function = read_tune(tune) if isinstance(tune, str) else tune
    found = prune_to_target(
        subject, samples, wanted, held_out=outside, tune=function,
        plan=None if plan is None else Path(plan), **options,
    )  # fmt: skip
    found = replace(found, notes=(*unused, *found.notes))
    if layered and found.module is not None:
        from lawful.sources.modules.convert import from_module

        found = replace(found, network=from_module(found.module))
    return with_evidence(_read(found, opened, subject), lambda: certificate(found.pruned))


def prune_bounded(
    network: Source,
    opened: Callable[[], Opened],
    tolerance: float,
    data: Any = None,
    *,
    given: Any = None,
    box: Any = None,
    **options: Any,
) -> BoundedPruning:
    """Remove channels within a tolerance: on a box, `around` samples, or by statistics of samples."""
    import numpy as np

    from lawful.formats.queries.box import box_of
    from lawful.network import Mlp
    from lawful.pruning.job.bounded import certificate, prune_within
    from lawful.pruning.job.network import ModuleSubject

    subject, size, _ = _subject(network, opened, given)
    if not isinstance(subject, ModuleSubject):
        raise Unsupported(
            "tolerances are for modules and networks of layers: an ONNX file takes a --target with --data"
        )
    samples, unused = _samples(data, size, "a tolerance for the channels of a module")
    if isinstance(box, str):
        box = box_of(box, Mlp([np.zeros((1, samples.x[0].size))]))
    found = prune_within(subject, samples, tolerance, box=box, **options)
    found = replace(found, notes=(*unused, *found.notes))
    return with_evidence(_read(found, opened, subject), lambda: certificate(found))


def _read(result: Pruned, opened: Callable[[], Opened], subject: Subject) -> Pruned:
    """The result with how its network was read; an ONNX file whose channels are read is opened as nothing else."""
    from lawful.pruning.job.network import OnnxSubject
    from lawful.sources.provenance import with_provenance

    return result if isinstance(subject, OnnxSubject) else with_provenance(result, opened())


def _subject(network: Source, opened: Callable[[], Opened], given: Any) -> tuple[Subject, tuple[int, ...] | None, bool]:
    """What is pruned, the size of its samples if that is stated, and whether it is a network of layers."""
    from lawful.network import Mlp
    from lawful.pruning.job.network import ModuleSubject, OnnxSubject
    from lawful.sources.modules.convert import to_module
    from lawful.sources.modules.module_network import ModuleNetwork

    file = convolutional_file(network)
    if file is None:
        file = channel_file(network)
    if file is not None:
        return OnnxSubject(file), _one_size(given), False
    found = opened()
    if isinstance(found, Mlp) and entangled_module(found) is None:
        held = None if found.reading is None else found.reading.module
        if held is not None:
            return ModuleSubject.of(held), _one_size(given), False
        return ModuleSubject.of(to_module(found)), (found.widths[0],), True
    module = found.module if isinstance(found, ModuleNetwork) else entangled_module(found)
    if module is None and found.reading is not None:
        module = found.reading.module
    if module is None:
        raise Unsupported("a graph of single neurons is pruned by --tolerance or --keep; a target is for layers")
    size = _one_size(given) or getattr(found, "input_shape", None)
    return ModuleSubject.of(module, asks_for_ids(given)), size, False


def _samples(data: Any, size: tuple[int, ...] | None, what: str) -> tuple[JobSamples, tuple[str, ...]]:
    """Samples in the size that the network takes, as stated or as they came; and what of them is not used."""
    import numpy as np

    from lawful.formats.queries.data import Data, read_data
    from lawful.pruning.job.case import JobSamples

    if data is None:
        raise LawfulError(f"{what} needs --data: samples of what the network is for (.npz with x and perhaps y, .csv)")
    if isinstance(data, (str, Path)):
        read = read_data(Path(data))
    else:
        x, y = data if isinstance(data, tuple) else (data, None)
        rows = np.asarray(x, dtype=np.float64)
        if rows.ndim < 2 or not len(rows) or not np.isfinite(rows).all():
            raise LawfulError("data are finite numbers, a row for each sample")
        labels = None if y is None else np.asarray(y, dtype=np.float64)
        if labels is not None and len(labels) != len(rows):
            raise LawfulError(f"{len(rows)} samples, but {len(labels)} labels")
        read = Data(rows.reshape(len(rows), -1), labels, sample=rows.shape[1:] if rows.ndim > 2 else None)
    unused = read.y is not None and read.classes is None
    return JobSamples(read.reshape(size), read.classes), (UNUSED,) if unused else ()
