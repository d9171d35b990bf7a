"""Which dimension of a stream holds its neurons: what reads the stream and what writes to it tell."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor, fx

from lawful.network.modules.export import ExportedModule, operator_name

CHANNELS_LAST = frozenset({"linear", "addmm", "mm", "matmul"})
CHANNELS_SECOND = frozenset({
    "conv1d", "conv2d", "conv3d", "convolution", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d",
})  # fmt: skip
MIXING = (
    CHANNELS_LAST | CHANNELS_SECOND | {"bmm", "baddbmm", "einsum", "fft_fft2", "fft_fftn", "fft_rfft2", "fft_irfft2"}
)
NORMS = frozenset({"layer_norm", "rms_norm", "batch_norm", "group_norm", "instance_norm", "native_layer_norm"})
SCALES = frozenset({"mul", "addcmul"})
NORM, SCALE, LAYER = range(3)  # how good a witness is: an MLP over tokens is a layer too
FAR = 8  # calls away from the stream
Vote = tuple[int, int]  # rank of the witness, dimension


def neurons(nodes: tuple[fx.Node, ...], exported: ExportedModule) -> list[Vote]:
    """What the calls near these values (of one shape) say, each with its rank: the smallest is the best.

    A normalisation works over neurons, a gain has one number for each, and a layer mixes them. Elementwise calls and
    permutations are followed; a call that reshapes hides what is behind it.
    """
    votes: list[Vote] = []
    for node in nodes:
        axes = tuple(range(len(_shape(node))))
        votes += [*_onwards(node, axes, exported, FAR), *_back(node, axes, exported, FAR)]
    return votes


def _onwards(node: fx.Node, axes: tuple[int, ...], exported: ExportedModule, far: int) -> Iterator[Vote]:
    """From a value to its readers; `axes` says which dimension of the stream each dimension of the value is."""
    for reader in node.users:
        place = _witness(reader, node, exported)
        if place is not None:
            yield place[0], axes[place[1] % len(axes)]
        elif far and (moved := _permuted(reader, axes)) is not None:
            yield from _onwards(reader, moved, exported, far - 1)


def _back(node: fx.Node, axes: tuple[int, ...], exported: ExportedModule, far: int) -> Iterator[Vote]:
    """From a value to what computed it."""
    place = _witness(node, None, exported)
    if place is not None:
        yield place[0], axes[place[1] % len(axes)]
        return
    moved = _permuted(node, tuple(range(len(axes))))
    if not far or moved is None:
        return
    source = next((each for each in node.all_input_nodes if len(_shape(each)) == len(axes)), None)
    if source is not None:
        order = [0] * len(axes)
        for here, before in enumerate(moved):
            order[before] = axes[here]
        yield from _back(source, tuple(order), exported, far - 1)


def _witness(call: fx.Node, stream: fx.Node | None, exported: ExportedModule) -> Vote | None:
    """What a call says about the dimension of neurons in the value it reads (in its own, if none is given)."""
    name, arguments = operator_name(call.target), _plain(call.args)
    if call.op != "call_function" or (stream is not None and arguments[:1] != (stream,) and name not in SCALES):
        return None
    if name in NORMS:
        several = name in ("layer_norm", "rms_norm", "native_layer_norm") and len(arguments[1]) != 1
        return None if several else (NORM, -1 if "layer" in name or "rms" in name else 1)
    if name in CHANNELS_LAST:
        return LAYER, -1
    if name in CHANNELS_SECOND:
        return LAYER, 1
    if name in SCALES:
        return _gain(call, exported)
    if name == "mean" and stream is not None and operator_name(getattr(call.args[0], "target", "")) in ("pow", "mul"):
        axes = arguments[1] if len(arguments) > 1 else []
        if len(axes) == 1 and len(_shape(call)) == len(_shape(stream)):  # a mean of squares: a norm written out
            return NORM, axes[0]
    return None


def _gain(call: fx.Node, exported: ExportedModule) -> Vote | None:
    """A parameter with one number for each entry of a single dimension."""
    dimensions = len(_shape(call))
    for each in call.all_input_nodes:
        if each.name in exported.trained:
            sizes = (1,) * (dimensions - len(_shape(each))) + _shape(each)
            long = [place for place, size in enumerate(sizes) if size > 1]
            if len(long) == 1:
                return SCALE, long[0] - dimensions
    return None


def _permuted(call: fx.Node, axes: tuple[int, ...]) -> tuple[int, ...] | None:
    """The axes after an elementwise call or a permutation; None after anything else."""
    name, arguments, count = operator_name(call.target), _plain(call.args), len(axes)
    if call.op != "call_function" or len(_shape(call)) != count:
        return None
    if name == "permute":
        return tuple(axes[axis % count] for axis in arguments[1])
    if name == "transpose":
        order = list(axes)
        one, two = (axis % count for axis in arguments[1:3])
        order[one], order[two] = order[two], order[one]
        return tuple(order)
    shapes = [_shape(each) for each in call.all_input_nodes if len(_shape(each)) == count]
    return axes if name not in ("view", "reshape", "_unsafe_view", "cat") and _shape(call) in shapes else None


def _shape(node: Any) -> tuple[int, ...]:
    value = node.meta.get("val")
    return tuple(value.shape) if isinstance(value, Tensor) else ()


def _plain(arguments: Any) -> Any:
    """The arguments of a call, untyped."""
    return arguments
