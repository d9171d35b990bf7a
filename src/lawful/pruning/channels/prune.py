"""Lossless pruning of any module: channels that nobody hears, that are constant, or that repeat another's.

A walk along the module's operations says for every channel whether it is *identically* constant, and which channels of
one activation are positive multiples of each other (`facts`). Readers absorb what leaves, each folded number rounded
to float64 as it comes and to the module's own type at the end. The smaller module must have the same graph, and its
outputs are compared as well.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np
import torch
from flint import ctx
from torch import nn
from torch.nn.modules.conv import _ConvNd

from lawful.errors import Unsupported
from lawful.network.modules.export import ExportedModule, export_module
from lawful.network.modules.onnx_module import OnnxModule
from lawful.program.frontends.torch_export import read_exported
from lawful.program.program import Program
from lawful.pruning.attention_calls import attention_calls
from lawful.pruning.channel_weights import ChannelWeights, Reason, RemovedChannel
from lawful.pruning.channels.domain import read_channels
from lawful.pruning.channels.program import ChannelProgram, notes_of
from lawful.pruning.constants import BITS
from lawful.pruning.joined import read_module
from lawful.pruning.loading import how_to_load, with_caches, without_caches
from lawful.pruning.onnx_sizes import stated_sizes
from lawful.pruning.permanent import permanent
from lawful.pruning.retrace import traced_module
from lawful.pruning.shrink import compared, differences, same_calls, shrink
from lawful.pruning.tidy import Tidying, tidy, tidy_notes, tidying
from lawful.pruning.traced import traced_channels
from lawful.shown import Shown
from lawful.types import Floats

FIXING = (
    "flatten",
    "view",
    "reshape",
    "chunk",
    "split",
    "split_with_sizes",
    "slice",
    "expand",
    "permute",
    "transpose",
)  # fmt: skip  (may have sizes of their own, or lead to calls that have)


@dataclass(frozen=True, eq=False)
class ChannelPruning(Shown):
    """The smaller module, and the channels that went; `compared` is the largest difference of outputs seen, in float64.

    `rounded` is the same after the folded weights were rounded to the module's own types.

    `parameters_after` counts what is left. The module has the class, the names and the types that it had; where a class
    with attention cannot hold the new sizes it is a graph, which `notes` say. `sweeps` are the cells of `program` that
    left together, each with its reason: what a certificate replays.
    """

    original: nn.Module
    module: nn.Module
    removed: tuple[RemovedChannel, ...]
    channels_before: int
    parameters_before: int
    parameters_after: int
    compared: float
    rounded: float
    notes: tuple[str, ...] = ()
    program: ChannelProgram = field(default_factory=ChannelProgram)
    sweeps: tuple[Mapping[int, Reason], ...] = ()
    tidied: Tidying = field(default_factory=Tidying)

    @property
    def channels_after(self) -> int:
        """Channels that are left."""
        return self.channels_before - len(self.removed)


def prune_channels(
    module: nn.Module, inputs: Sequence[torch.Tensor | tuple[int, ...]], *, fold: bool = False, seed: int = 0
) -> ChannelPruning:
    """Remove the channels that are silent, constant or multiples of others; `inputs` are tensors or sizes with batch.

    Convolutions (grouped and depthwise ones too), Linear layers on any axis, batch normalisation in eval mode, residual
    sums, concatenations, pools and elementwise activations are followed; channels that anything else touches stay. With
    `fold`, normalisations go into the layers before them, and biases of keys, which no output sees, go.

    >>> _ = torch.manual_seed(0)
    >>> model = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 2, 1))
    >>> with torch.no_grad():
    ...     _ = model[1].weight[2].zero_()
    ...     _ = model[3].weight[:, 0].zero_()
    >>> found = prune_channels(model, [(2, 1, 8, 8)])
    >>> [(gone.layer, gone.channel, gone.kind) for gone in found.removed], found.module[3]
    ([('0', 0, 'silent'), ('0', 2, 'constant')], Conv2d(2, 2, kernel_size=(1, 1), stride=(1, 1)))
    """
    plain, notes = permanent(module)
    cached = without_caches(plain)
    double = copy.deepcopy(plain).double()
    examples = [_example(entry, seed + place) for place, entry in enumerate(inputs)]
    sizes = [tuple(each.shape) if each.is_floating_point() else each for each in examples]
    read = read_module(double, sizes)
    program = read_exported(export_module(double, sizes), type(module).__name__)
    found = None
    for fixed in (False, True):  # the number by which scores are divided may depend on how many inner channels are left
        with suppress(Unsupported):
            found = _pruned(module, plain, double, read, examples, notes, (), fold=fold, fixed=fixed, source=program)
            break
    if found is None:  # the module's own code fixes what it measures
        try:
            found = _pruned(module, plain, double, read, examples, notes, (), fold=fold)
        except Unsupported as refusal:
            found = _otherwise(module, plain, double, read, examples, notes, str(refusal), fold)
    for each in (found.original, found.module):
        with_caches(each, cached)
    return found


def _otherwise(
    module: nn.Module,
    plain: nn.Module,
    double: nn.Module,
    read: ExportedModule,
    examples: Sequence[torch.Tensor],
    notes: tuple[str, ...],
    refusal: str,
    fold: bool,
) -> ChannelPruning:
    """Where a class cannot hold its new sizes: heads leave its traced graph, or what feeds a fixed size stays."""
    attends = list(attention_calls(read))
    if any(each.between for each in attends):
        with suppress(Unsupported):
            return _pruned(module, plain, double, read, examples, notes, (), fold=fold, fixed=True)
    if attends:
        with suppress(Unsupported):
            said = f"{refusal}: the result is its traced graph, for inputs of the size given"
            return _pruned(module, plain, double, read, examples, (*notes, said), (), traced=True)
    return _pruned(module, plain, double, read, examples, notes, FIXING, fold=fold)


def _pruned(
    module: nn.Module,
    plain: nn.Module,
    double: nn.Module,
    read: ExportedModule,
    examples: Sequence[torch.Tensor],
    notes: tuple[str, ...],
    stay: Sequence[str],
    *,
    traced: bool = False,
    fold: bool = False,
    fixed: bool = False,
    source: Program | None = None,
) -> ChannelPruning:
    program = traced_channels(read, stay, fixed=fixed) if source is None else read_channels(source, fixed=fixed).program
    program.closed = _closed(double, program)
    arrays = {
        name: np.swapaxes(array, 0, 1) if name in program.transposed else array
        for name, array in arrays_of(read).items()
    }
    state = ChannelWeights(program, arrays)
    with ctx.workprec(BITS):
        state.sweep_all()
    if traced:
        small: nn.Module = traced_module(read, state)
    else:
        small = copy.deepcopy(double)
        shrink(small, state)
        if source is None and isinstance(double, OnnxModule) and isinstance(small, OnnxModule):
            small.sizes = stated_sizes(double, read, state, examples)
    tidied = tidying(small, program) if fold and not traced else None
    if tidied is not None:
        tidy(small, tidied)
    difference = compared(double, small, examples)
    if state.removed or tidied is not None:
        same_calls(read, small, examples, without=_calls_of(read, tidied) if tidied else ())
    _typed(small, plain)
    rounded = max((gap for gap, _ in differences(double, copy.deepcopy(small).double(), examples)), default=0.0)
    modes = {name: part.training for name, part in module.named_modules()}
    for name, part in small.named_modules():
        part.training = modes.get(name, False)
    said = [*notes, *notes_of(state.program), *tidy_notes(program, tidied, can_fold=not isinstance(small, OnnxModule))]
    if (load := how_to_load(plain, small, state.grids.sizes(state.alive))) is not None:
        said.append(load)
    sizes = [sum(tensor.numel() for tensor in each.parameters()) for each in (double, small)]
    return ChannelPruning(
        plain, small, tuple(state.removed), state.channels, sizes[0], sizes[1], difference,
        rounded, tuple(said), state.program, tuple(state.sweeps), tidied or Tidying(),
    )  # fmt: skip


def _calls_of(read: ExportedModule, tidied: Tidying) -> set[str]:
    """The calls of normalisations that went."""
    means = {norm.tensors["mean"] for _, norm in tidied.folded}
    return {
        call.name for call in read.calls
        if any(read.names.get(part.name) in means for part in call.all_input_nodes)
    }  # fmt: skip


def _closed(module: nn.Module, program: ChannelProgram) -> set[str]:
    """Weights of layers without a bias that cannot gain one: they are no Linear layer's or convolution's own."""
    names = {str(each.tensors["weight"]) for each in program.operations if each.kind in ("layer", "depthwise")}
    layers = {
        f"{name}.weight" if name else "weight" for name, part in module.named_modules()
        if isinstance(part, (nn.Linear, _ConvNd))
    }  # fmt: skip
    return names - layers


def _typed(small: nn.Module, like: nn.Module) -> None:
    """Give every tensor the type that it had; biases that are new have the type of their weights."""
    types = {name: part.dtype for name, part in (*like.named_parameters(), *like.named_buffers())}
    first = next((kind for kind in types.values() if kind.is_floating_point), torch.float32)
    for name, tensor in (*small.named_parameters(), *small.named_buffers()):
        owner = name.rpartition(".")[0]
        kind = types.get(name, types.get(f"{owner}.weight", first))
        if tensor.is_floating_point() and kind.is_floating_point:
            tensor.data = tensor.data.to(kind)
            if not bool(torch.isfinite(tensor).all()):
                raise Unsupported(f"a folded weight of {name} does not fit into {kind}: convert the module first")


def arrays_of(read: ExportedModule) -> dict[str, Floats]:
    """The tensors of a module by their names."""
    return {name: read.tensors[place].detach().cpu().numpy().copy() for place, name in read.names.items()}


def _example(entry: torch.Tensor | tuple[int, ...], seed: int) -> torch.Tensor:
    if isinstance(entry, torch.Tensor):
        return entry.double() if entry.is_floating_point() else entry
    return torch.randn(*entry, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
