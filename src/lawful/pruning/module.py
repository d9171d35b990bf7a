"""Lossless pruning of a PyTorch chain of Linear and Conv layers: channels go, layers shrink, the function stays.

A channel is a neuron whose weight lies at many places. The rules are those of `pruning`, on whole channels: nobody
hears it; its filter is zero, so it is constant; its filter and bias are a positive multiple of another's. Weights that
absorb a channel are summed exactly and rounded to float64, and at the end to the type that the layer stores.

Only PyTorch's own layers are read, by their exact type and without hooks: what a subclass or a hook computes is not
known here. Masks and parametrised weights are made permanent in the copy that is pruned, and named in `notes`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import torch
from torch import nn

from lawful.errors import Unsupported
from lawful.network.modules.layers import CONVOLUTIONS, KINKED, LAYERS, POOLS, UNITWISE
from lawful.pruning.permanent import permanent
from lawful.types import Floats

CHAINED = (*LAYERS, *UNITWISE, *POOLS, nn.Flatten)
COMPARED = 1e4  # relative differences, in units of the type's precision, that rounding can explain


@dataclass(frozen=True, eq=False)
class PruningStep:
    """Channels leave one layer of the chain; `weight` and `bias` are those of the next layer before it forgets them.

    `evidence` maps each channel, as numbered before the step, to what justifies it: "silent", `("constant", value)` or
    `("duplicate", leader, factor)`. A channel that is `muted` stays, the only one of its layer, and is not heard.
    """

    layer: int
    evidence: Mapping[int, tuple[Any, ...]]
    muted: int | None
    weight: Floats
    bias: Floats


@dataclass(frozen=True)
class ModulePruning:
    """The smaller module, the channels that went (layer's number, channel, why), and the steps that removed them.

    `lawful verify` replays the steps from the original in rational arithmetic.
    """

    original: nn.Sequential
    module: nn.Sequential
    removed: tuple[tuple[int, int, str], ...]
    channels_before: int
    channels_after: int
    steps: tuple[PruningStep, ...]
    notes: tuple[str, ...] = ()


def prune_module(module: nn.Module) -> ModulePruning:
    """Remove every hidden channel that a rule proves redundant; refuses what is not a plain chain.

    Where the size of its input is known (a first Linear layer) the outputs of both are compared as well.

    >>> model = nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(3 * 4, 2))
    >>> with torch.no_grad():
    ...     _ = model[0].weight[1].zero_()
    >>> prune_module(model).module[0]
    Conv2d(1, 2, kernel_size=(3, 3), stride=(1, 1))
    """
    plain, notes = permanent(module)
    parts = list(_flat(plain))
    _refuse_other_axes(parts)
    original = nn.Sequential(*parts)
    layers = [number for number, part in enumerate(parts) if isinstance(part, LAYERS)]
    weights = [_blocks(parts[number]) for number in layers]
    biases = [_bias(parts[number]) for number in layers]
    weights = [_by_unit(weight, below) for weight, below in zip(weights, [None, *weights[:-1]], strict=True)]
    units = [np.arange(len(weight)) for weight in weights]
    before = sum(len(weight) for weight in weights[:-1])
    removed: list[tuple[int, int, str]] = []
    steps: list[PruningStep] = []
    found = True
    while found:
        found = False
        for place in range(len(layers) - 1):
            between = parts[layers[place] + 1 : layers[place + 1] + 1]
            try:
                gone = _redundant(weights, biases, place, between)
            except OverflowError:
                raise Unsupported("a folded weight would not fit into a float: rescale the module first") from None
            muted = None
            if len(gone) == len(weights[place]):  # a layer keeps one channel, now unheard
                muted = list(gone)[-1]
                weights[place + 1][:, muted] = 0.0
            leaving = [channel for channel in gone if channel != muted]
            if leaving:
                found = True
                steps.append(
                    PruningStep(layers[place], gone, muted, weights[place + 1].copy(), biases[place + 1].copy())
                )
                removed += [(layers[place], int(units[place][channel]), str(gone[channel][0])) for channel in leaving]
                keep = np.setdiff1d(np.arange(len(weights[place])), leaving)
                weights[place], biases[place], units[place] = (
                    weights[place][keep],
                    biases[place][keep],
                    units[place][keep],
                )
                weights[place + 1] = weights[place + 1][:, keep]
    smaller = list(parts)
    for number, weight, bias in zip(layers, weights, biases, strict=True):
        smaller[number] = _shrunk(parts[number], weight, bias)
    after = sum(len(weight) for weight in weights[:-1])
    small = nn.Sequential(*smaller)
    _compare(module, small)
    return ModulePruning(original, small, tuple(removed), before, after, tuple(steps), notes)


@torch.no_grad()
def _compare(module: nn.Module, small: nn.Sequential) -> None:
    """Refuse a result that computes something else on random inputs: a way of changing a module that is not read."""
    first = next((part for part in small if isinstance(part, LAYERS)), None)
    if not all(bool(torch.isfinite(tensor).all()) for tensor in small.parameters()):
        raise Unsupported("a folded weight does not fit into the layer's type: convert the module to float64 first")
    if not isinstance(first, nn.Linear):
        return
    training = {part: part.training for part in module.modules()}
    batch = torch.randn(8, first.in_features, generator=torch.Generator().manual_seed(0)).to(first.weight)
    try:
        expected = module.eval()(batch).double()
    finally:
        for part, mode in training.items():
            part.training = mode
    found = small.eval()(batch).double()
    small.train(module.training)
    scale = float(expected.abs().max()) + float(found.abs().max())
    worst = float((found - expected).abs().max())
    if found.shape != expected.shape or not worst <= COMPARED * torch.finfo(first.weight.dtype).eps * max(
        scale, 1e-300
    ):
        raise Unsupported(f"{type(module).__name__} computes something else than its layers in a row")


def _refuse_other_axes(parts: Sequence[nn.Module]) -> None:
    """Channels must stay channels: a Linear layer behind a convolution needs a Flatten, pools need space."""
    flat = spatial = False
    axes = {int(type(part).__name__[-2]) for part in parts if isinstance(part, (*CONVOLUTIONS, *POOLS))}
    if len(axes) > 1:  # a batch of images is one volume to a layer of one dimension more
        raise Unsupported("convolutions and pools of different dimensions in one chain mix its channels")
    for part in parts:
        if isinstance(part, nn.Flatten):
            if (part.start_dim, part.end_dim) != (1, -1):
                raise Unsupported("a Flatten of some axes only: prune `from_module(module)` instead")
            flat, spatial = True, False
        elif isinstance(part, nn.Linear):
            if spatial:
                raise Unsupported("a Linear layer on the last axis of a convolution: put a Flatten before it")
            flat = True
        elif isinstance(part, (*CONVOLUTIONS, *POOLS)):
            if flat:
                raise Unsupported(f"{type(part).__name__} behind a Linear or Flatten layer mixes its channels")
            spatial = True


def _flat(module: nn.Module) -> Iterator[nn.Module]:
    """The layers of a chain in order."""
    kind = type(module)
    if kind is nn.Sequential:
        for child in module.children():
            yield from _flat(child)
        return
    if kind not in CHAINED:
        own = issubclass(kind, (nn.Sequential, *CHAINED))
        why = "has code of its own" if own else "is unknown here"
        raise Unsupported(f"{kind.__name__} in a chain {why}: prune_channels(module, inputs) reads any module")
    if isinstance(module, CONVOLUTIONS) and module.groups != 1:
        raise Unsupported("grouped convolutions in a chain: prune_channels(module, inputs) reads any module")
    yield module


def _blocks(part: Any) -> Floats:
    """Weights as (outputs, inputs, places)."""
    weight = part.weight.detach().double().numpy()
    return np.array(weight.reshape(*weight.shape[:2], -1))


def _bias(part: Any) -> Floats:
    bias = part.bias
    return np.zeros(len(_blocks(part))) if bias is None else bias.detach().double().numpy().copy()


def _by_unit(weight: Floats, below: Floats | None) -> Floats:
    """A Linear layer behind a Flatten hears each channel at several places."""
    if below is None or weight.shape[1] == len(below):
        return weight
    return weight.reshape(len(weight), len(below), -1)


def _redundant(
    weights: list[Floats], biases: list[Floats], place: int, between: Sequence[nn.Module]
) -> dict[int, tuple[Any, ...]]:
    """Channels to remove from one layer; what they said has been added to the next layer's weights and biases."""
    weight, bias, after = weights[place], biases[place], weights[place + 1]
    if len(weight) == 1:
        return {}
    gone: dict[int, tuple[Any, ...]] = {
        channel: ("silent",) for channel in range(len(weight)) if not after[:, channel].any()
    }
    left = [channel for channel in range(len(weight)) if after[:, channel].any()]
    sums: dict[tuple[int, ...], Fraction] = {}
    shifts: dict[int, Fraction] = {}
    leaders: dict[bytes, list[int]] = {}
    for channel in left:
        row = np.append(weight[channel].ravel(), bias[channel])
        if not weight[channel].any():
            value = _through(Fraction(bias[channel]), between)
            if value == 0 or _keeps_constants(between):
                gone[channel] = ("constant", value)
                for output in range(len(after)):
                    total = sum((Fraction(w) for w in after[output, channel]), Fraction(0)) * value
                    shifts[output] = shifts.get(output, Fraction(biases[place + 1][output])) + total
            continue
        key = (row / np.abs(row).max() + 0.0).tobytes()  # equal real ratios round to equal floats; -0.0 is 0.0
        for leader in leaders.setdefault(key, []):
            factor = _ratio(row, np.append(weight[leader].ravel(), bias[leader]))
            if factor is not None:
                gone[channel] = ("duplicate", leader, factor)
                for output, tap in np.ndindex(len(after), after.shape[2]):
                    spot, said = (output, leader, tap), Fraction(after[output, channel, tap])
                    sums[spot] = sums.get(spot, Fraction(after[spot])) + factor * said
                break
        else:
            leaders[key].append(channel)
    for place_of, total in sums.items():
        after[place_of] = float(total)
    for output, total in shifts.items():
        biases[place + 1][output] = float(total)
    return gone


def _ratio(row: Floats, leader: Floats) -> Fraction | None:
    pairs = [(Fraction(a), Fraction(b)) for a, b in zip(row, leader, strict=True) if a or b]
    factor = pairs[0][0] / pairs[0][1] if pairs[0][1] else Fraction(0)
    return factor if factor > 0 and all(a == factor * b for a, b in pairs) else None


def _through(value: Fraction, between: Sequence[nn.Module]) -> Fraction:
    """What becomes of a constant on the way to the next layer."""
    for part in between:
        if isinstance(part, KINKED) and value < 0:
            value *= Fraction(part.negative_slope if isinstance(part, nn.LeakyReLU) else 0.0)
    return value


def _keeps_constants(between: Sequence[nn.Module]) -> bool:
    """Whether a constant channel stays constant up to and into the next layer: zero padding would break its border."""
    for part in between:
        padding = getattr(part, "padding", 0)
        nothing = padding == "valid" or (not isinstance(padding, str) and not np.any(padding))
        padded = not nothing and getattr(part, "padding_mode", "zeros") == "zeros"
        divided = getattr(part, "divisor_override", None) is not None
        if padded or divided or (isinstance(part, POOLS) and part.ceil_mode):
            return False
    return True


def _shrunk(part: Any, weight: Floats, bias: Floats) -> nn.Module:
    """A layer of the same kind with fewer channels; it gains a bias if one was folded into it."""
    linear = isinstance(part, nn.Linear)
    shape = (len(weight), weight.shape[1] * weight.shape[2]) if linear else (*weight.shape[:2], *part.kernel_size)
    has_bias = part.bias is not None or bool(bias.any())
    return _layer(type(part), part, torch.as_tensor(weight.reshape(shape)), torch.as_tensor(bias) if has_bias else None)


@torch.no_grad()
def _layer(kind: Any, like: Any, weight: torch.Tensor, bias: torch.Tensor | None) -> nn.Module:
    """A new layer with these numbers, all else as in another one."""
    known = next(iter(like.parameters()))
    options = {"bias": bias is not None, "dtype": known.dtype, "device": known.device}
    if kind is nn.Linear:
        new = nn.Linear(weight.shape[1], weight.shape[0], **options)
    else:
        settings = like.kernel_size, like.stride, like.padding, like.dilation, like.groups
        inputs = weight.shape[1] * like.groups
        new = kind(inputs, weight.shape[0], *settings, padding_mode=like.padding_mode, **options)
    new.weight.copy_(weight)
    if bias is not None:
        new.bias.copy_(bias)
    return new.train(like.training)
