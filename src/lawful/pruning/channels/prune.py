"""Lossless pruning of any module: channels that nobody hears, that are constant, or that repeat another's.

A walk along the module's operations says for every channel whether it is *identically* constant, and which channels of
one activation are positive multiples of each other (`facts`). Readers absorb what leaves, each folded number rounded
to float64 as it comes and to the module's own type at the end. The smaller module must read as the program of what is
left, node by node, and its outputs are compared as well.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import torch
from flint import ctx
from torch import nn
from torch.nn.modules.conv import _ConvNd
from torch.nn.utils import remove_spectral_norm, remove_weight_norm
from torch.nn.utils.parametrize import is_parametrized, type_before_parametrizations
from torch.nn.utils.prune import BasePruningMethod
from torch.nn.utils.prune import remove as remove_mask
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

from lawful.errors import InvalidNetwork, Unsupported
from lawful.program.backends.torch_calls import ProgramModule
from lawful.program.frontends.export import copy_module, export_module, twin_of
from lawful.program.frontends.torch_export import read_exported
from lawful.program.program import Program
from lawful.pruning.channels.constants_and_multiples import BITS
from lawful.pruning.channels.cut import cut_program, same_program
from lawful.pruning.channels.fold_and_drop import Tidying, tidy, tidy_notes, tidying
from lawful.pruning.channels.model_files import fit_config, with_caches, without_caches
from lawful.pruning.channels.program import ChannelProgram, notes_of
from lawful.pruning.channels.reading.domain import ChannelReading, read_channels
from lawful.pruning.channels.shrink import FixedSizes, compare_outputs, differences, shrink, stated_sizes
from lawful.pruning.channels.state import read_arrays
from lawful.pruning.channels.weights import ChannelWeights, Move, RemovedChannel, refuse_large
from lawful.result import Shown
from lawful.sources.onnx.module import OnnxModule

DOUBLED = 100_000_000  # parameters up to which there is a copy in float64, of 0.8 GB


@dataclass(frozen=True, eq=False)
class ChannelPruning(Shown):
    """The smaller module, and the channels that went; `compared` is the largest difference of outputs seen, in float64.

    `rounded` is the same after the folded weights were rounded to the module's own types.

    `parameters_after` counts what is left. The module has the class, the names and the types that it had; where a class
    with attention cannot hold the new sizes it is a graph, which `notes` say. `gone` are the cells of `program` that
    left, and `moves` what rows and columns of layers took over: what a certificate lists. `examples` are the inputs
    that were named for it: tensors, or sizes with batch.
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
    moves: tuple[Move, ...] = ()
    gone: tuple[int, ...] = ()
    tidied: Tidying = field(default_factory=Tidying)
    examples: tuple[torch.Tensor | tuple[int, ...], ...] = field(default=(), repr=False)

    @property
    def channels_after(self) -> int:
        """Channels that are left."""
        return self.channels_before - len(self.removed)


def prune_channels(
    module: nn.Module,
    inputs: Sequence[torch.Tensor | tuple[int, ...]],
    *,
    fold: bool = False,
    seed: int = 0,
    certified: bool = False,
) -> ChannelPruning:
    """Remove the channels that are silent, constant or multiples of others; `inputs` are tensors or sizes with batch.

    Convolutions (grouped and depthwise ones too), Linear layers on any axis, batch normalisation in eval mode, residual
    sums, concatenations, pools and elementwise activations are followed; channels that anything else touches stay. With
    `fold`, normalisations go into the layers before them, and biases of keys, which no output sees, go. If it is to be
    `certified`, what is too large for a certificate is refused before the work.

    >>> _ = torch.manual_seed(0)
    >>> model = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 2, 1))
    >>> with torch.no_grad():
    ...     _ = model[1].weight[2].zero_()
    ...     _ = model[3].weight[:, 0].zero_()
    >>> found = prune_channels(model, [(2, 1, 8, 8)])
    >>> [(gone.layer, gone.channel, gone.kind) for gone in found.removed], found.module[3]
    ([('0', 0, 'silent'), ('0', 2, 'constant')], Conv2d(2, 2, kernel_size=(1, 1), stride=(1, 1)))
    """
    plain, notes = make_permanent(module)
    cached = without_caches(plain)
    # What is exact is read from the weights themselves; outputs are compared in float64 where a copy is no burden.
    large = sum(tensor.numel() for tensor in module.parameters()) > DOUBLED
    double = plain if large else twin_of(plain)
    examples = [_example(entry, seed + place) for place, entry in enumerate(inputs)]
    if large:
        kind = next(
            (parameter.dtype for parameter in plain.parameters() if parameter.is_floating_point()), torch.float32
        )
        examples = [example.to(kind) if example.is_floating_point() else example for example in examples]
    case = _Case(module, plain, double, read_program_of(double, examples), examples, notes, fold, certified)
    pruning = _first_that_fits(case)
    for part in (pruning.original, pruning.module):
        with_caches(part, cached)
    return pruning


@dataclass(frozen=True, eq=False)
class _Case:
    """A module, its copies (with plain weights, and in float64), and its program."""

    module: nn.Module
    plain: nn.Module
    double: nn.Module
    source: Program
    examples: Sequence[torch.Tensor]
    notes: tuple[str, ...]
    fold: bool
    certified: bool

    @property
    def kind(self) -> torch.dtype:
        """The type in which outputs are compared."""
        return next(
            (parameter.dtype for parameter in self.double.parameters() if parameter.is_floating_point()), torch.float64
        )


def read_program_of(module: nn.Module, examples: Sequence[torch.Tensor], held: Collection[str] = ()) -> Program:
    """The program of a module; masks that it holds have the sizes that they have in it, also where heads repeat.

    Buffers that are `held` are no constants: statistics of one channel that is left would be taken for a number.
    """
    masks = [name for name, buffer in module.named_buffers() if buffer.dtype == torch.bool or name in held]
    sizes = [tuple(example.shape) if example.is_floating_point() else example for example in examples]
    return read_exported(export_module(module, sizes), type(module).__name__, masks)


def _first_that_fits(case: _Case) -> ChannelPruning:
    """All that can leave; less, or the program instead of the class, where the class's own code fixes sizes."""
    reading = read_channels(case.source)
    attends = any(operation.attention is not None for operation in reading.program.operations)
    try:
        return _prune_reading(case, reading)
    except FixedSizes as refusal:
        fixed = refusal
    if attends:
        with suppress(FixedSizes):  # the number by which scores are divided may count inner channels
            return _prune_reading(case, read_channels(case.source, fixed=True))
        note = f"{fixed}: the result is its traced graph, for inputs of the size given"
        with suppress(FixedSizes):
            return _prune_reading(case, reading, note)
    return _prune_reading(case, read_channels(case.source, still=True))


def _prune_reading(case: _Case, reading: ChannelReading, as_program: str = "") -> ChannelPruning:
    program, double = reading.program, case.double
    program.closed = _find_closed_weights(double, program)
    arrays = read_arrays(case.source, program)
    if case.certified:
        refuse_large(program, arrays)
    state = ChannelWeights(program, arrays)
    with ctx.workprec(BITS):
        state.sweep_all()
    small: nn.Module
    tidied = None
    if as_program:
        small = ProgramModule(cut_program(reading, state), case.kind)
    else:
        small = _sharing(double)
        shrink(small, state)
        if isinstance(double, OnnxModule) and isinstance(small, OnnxModule):
            small.sizes = stated_sizes(double, state, case.examples)
        tidied = tidying(small, program) if case.fold else None
        if tidied is not None:
            tidy(small, tidied)
    load = fit_config(case.plain, small, state.grids.sizes(state.alive))
    difference = compare_outputs(double, small, case.examples)
    if not as_program and (state.removed or tidied is not None):
        _check_program(reading, state, small, case.examples, tidied)
    _restore_types(small, case.plain)
    typed = twin_of(small) if case.kind is torch.float64 else small
    rounded = max((gap for gap, _ in differences(double, typed, case.examples)), default=0.0)
    modes = {name: part.training for name, part in case.module.named_modules()}
    for name, part in small.named_modules():
        part.training = modes.get(name, False)
    all_notes = [*case.notes, *([as_program] if as_program else []), *notes_of(program)]
    all_notes += tidy_notes(program, tidied, can_fold=not isinstance(small, OnnxModule))
    if load is not None:
        all_notes.append(load)
    sizes = [sum(tensor.numel() for tensor in model.parameters()) for model in (double, small)]
    return ChannelPruning(
        case.plain, small, tuple(state.removed), state.channels, sizes[0], sizes[1], difference,
        rounded, tuple(all_notes), program, tuple(state.moves), state.gone, tidied or Tidying(),
    )  # fmt: skip


def _check_program(
    reading: ChannelReading,
    state: ChannelWeights,
    small: nn.Module,
    examples: Sequence[torch.Tensor],
    tidied: Tidying | None,
) -> None:
    """Refuse a smaller module that is not the program of what is left: its code may look at its widths."""
    try:
        same = same_program(
            cut_program(reading, state, tidied), read_program_of(small, examples, reading.source.buffers)
        )
    except Unsupported as refusal:
        raise FixedSizes(str(refusal)) from None
    if not same:
        raise FixedSizes(f"{type(small).__name__} computes something else than its graph shows once it is smaller")


def _sharing(module: nn.Module) -> nn.Module:
    """A copy whose tensors are others, in the same memory: those that are cut get memory of their own."""
    parameters = {
        id(parameter): nn.Parameter(parameter.detach(), parameter.requires_grad) for parameter in module.parameters()
    }
    return copy_module(module, parameters | {id(buffer): buffer.detach() for buffer in module.buffers()})


def _find_closed_weights(module: nn.Module, program: ChannelProgram) -> set[str]:
    """Weights of layers without a bias that cannot gain one: they are no Linear layer's or convolution's own."""
    names = {
        str(operation.tensors["weight"]) for operation in program.operations if operation.kind in ("layer", "depthwise")
    }
    layers = {
        f"{name}.weight" if name else "weight" for name, part in module.named_modules()
        if isinstance(part, (nn.Linear, _ConvNd))
    }  # fmt: skip
    return names - layers


def _restore_types(small: nn.Module, like: nn.Module) -> None:
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


def _example(entry: torch.Tensor | tuple[int, ...], seed: int) -> torch.Tensor:
    if isinstance(entry, torch.Tensor):
        return entry.double() if entry.is_floating_point() else entry
    return torch.randn(*entry, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@torch.no_grad()
def make_permanent(module: nn.Module) -> tuple[nn.Module, tuple[str, ...]]:
    """A copy, in eval mode, and what was made permanent in it; refused if hooks are left or a weight is not finite.

    Tensors are shared with the module where nothing has to be made permanent.

    >>> from torch.nn.utils.prune import l1_unstructured
    >>> plain, notes = make_permanent(nn.Sequential(l1_unstructured(nn.Linear(2, 2), "weight", amount=1)))
    >>> notes, int((plain[0].weight == 0).sum())
    (('0: the mask of its weight was made permanent',), 1)
    """
    for part in module.modules():  # a tensor with a history cannot be copied; both hooks compute it anew in each call
        for hook in part._forward_pre_hooks.values():
            name = _tensor_of(hook)
            if name in vars(part):
                vars(part)[name] = vars(part)[name].detach()
    altered = any(part._forward_pre_hooks or is_parametrized(part) for part in module.modules())
    plain = copy_module(module, shared=not altered).eval()
    notes: list[str] = []
    for name, part in list(plain.named_modules()):
        where = name or type(module).__name__
        for hook in list(part._forward_pre_hooks.values()):
            if isinstance(hook, BasePruningMethod):
                remove_mask(part, hook._tensor_name)  # type: ignore[no-untyped-call]
                notes.append(f"{where}: the mask of its {hook._tensor_name} was made permanent")
            elif isinstance(hook, WeightNorm):
                remove_weight_norm(part, hook.name)
                notes.append(f"{where}: weight normalisation of its {hook.name} was made permanent")
            elif isinstance(hook, SpectralNorm):
                remove_spectral_norm(part, hook.name)
                notes.append(f"{where}: spectral normalisation of its {hook.name} was made permanent")
        if "quantized" in type(part).__module__:
            raise Unsupported(f"{where} is quantised: its numbers are no real weights; prune before quantising")
        if is_parametrized(part):
            notes += [f"{where}: {note}" for note in _without_parametrisations(part)]
        if part._forward_hooks or part._forward_pre_hooks or "forward" in vars(part):
            raise Unsupported(f"{where} has forward hooks: what they change is not read; remove them first")
        for tensor in (*part.parameters(recurse=False), *part.buffers(recurse=False)):
            if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
                raise InvalidNetwork(f"a weight of {where} is not finite")
    return plain, tuple(notes)


def _tensor_of(hook: object) -> str:
    if isinstance(hook, BasePruningMethod):
        return str(hook._tensor_name)
    return str(hook.name) if isinstance(hook, (WeightNorm, SpectralNorm)) else ""


def _without_parametrisations(part: nn.Module) -> list[str]:
    """Give a copy its own class back. PyTorch's own way changes the class, which the original shares."""
    tensors = {str(name): getattr(part, str(name)).clone() for name in part.parametrizations}  # type: ignore[union-attr]
    part.__class__ = type_before_parametrizations(part)
    del part._modules["parametrizations"]
    for name, tensor in tensors.items():
        part.register_parameter(name, nn.Parameter(tensor))
    return [f"the parametrisation of its {name} was made permanent" for name in tensors]
