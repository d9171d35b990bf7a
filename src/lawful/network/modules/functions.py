"""What PyTorch's layers and functions do to pending tensors, in the argument order of `torch.nn.functional`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from lawful.errors import Unsupported
from lawful.network import operations
from lawful.network.assemble import Assembly, Value, sizes
from lawful.network.operations import finite
from lawful.network.windows import Window, adaptive, average
from lawful.types import Floats

SUPPORTED = (
    "Linear, Conv1d, Conv2d, BatchNorm1d, BatchNorm2d, ReLU, LeakyReLU, PReLU, Identity, Dropout, Flatten, "
    "AvgPool1d, AvgPool2d, AdaptiveAvgPool1d, AdaptiveAvgPool2d, additions, scalings, reshapes that keep the batch"
)


@dataclass(frozen=True)
class OperationContext:
    """What functions need besides their arguments: where nodes are collected, and the batch's possible sizes."""

    assembly: Assembly
    batch: Sequence[int]


def numbers(name: str, tensor: Any) -> Floats:
    """A tensor's entries in float64."""
    if tensor.is_complex() or tensor.layout != torch.strided:
        raise Unsupported(f"tensor {name!r} is {tensor.dtype}, {tensor.layout}: dense real tensors are supported")
    return finite(name, tensor.detach().cpu().to(torch.float64).numpy())


def _optional(name: str, tensor: Any) -> Floats | None:
    return None if tensor is None else numbers(name, tensor)


def _each(value: Any, count: int) -> tuple[int, ...]:
    parts = tuple(value) if isinstance(value, (list, tuple)) else (value,)
    return tuple(int(part) for part in (parts * count if len(parts) == 1 else parts))


def _linear(run: OperationContext, value: Value, weight: Any, bias: Any = None) -> Value:
    return operations.linear(run.assembly, value, numbers("weight", weight), _optional("bias", bias))


def _addmm(run: OperationContext, bias: Any, value: Value, weight: Any) -> Value:
    return operations.linear(run.assembly, value, numbers("weight", weight).T, numbers("bias", bias))


def _matmul(run: OperationContext, value: Value, weight: Any) -> Value:
    return operations.linear(run.assembly, value, numbers("weight", weight).T, None)


def _relu(run: OperationContext, value: Value, inplace: bool = False) -> Value:
    return run.assembly.activate(value, 0.0)


def _leaky_relu(run: OperationContext, value: Value, negative_slope: float = 0.01, inplace: bool = False) -> Value:
    return run.assembly.activate(value, negative_slope)


def _prelu(run: OperationContext, value: Value, weight: Any) -> Value:
    slopes = numbers("weight", weight)
    return run.assembly.activate(value, slopes[0] if slopes.size == 1 else operations.per_channel(slopes, value.shape))


def _identity(run: OperationContext, value: Value) -> Value:
    return value


def _dropout(
    run: OperationContext, value: Value, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Value:
    if training and p:
        raise Unsupported("drops at random even in eval mode")
    return value


def _convolution(
    run: OperationContext,
    value: Value,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Value:
    kernel = tuple(weight.shape[2:])
    dilations = _each(dilation, len(kernel))
    if padding == "same":
        total = [d * (k - 1) for d, k in zip(dilations, kernel, strict=True)]
        before, after = tuple(t // 2 for t in total), tuple(t - t // 2 for t in total)
    else:
        before = after = _each(0 if padding == "valid" else padding, len(kernel))
    window = Window(kernel, _each(stride, len(kernel)), before, after, dilations)
    parts = numbers("weight", weight), _optional("bias", bias)
    return operations.convolve(run.assembly, value, *parts, window, groups)


def _batch_norm(
    run: OperationContext,
    value: Value,
    running_mean: Any,
    running_var: Any,
    weight: Any = None,
    bias: Any = None,
    training: bool = False,
    momentum: float | None = 0.1,
    eps: float = 1e-5,
) -> Value:
    if training or running_mean is None or running_var is None:
        raise Unsupported("normalises by the batch's own statistics even in eval mode")
    mean, variance = numbers("running_mean", running_mean), numbers("running_var", running_var)
    scale = np.ones_like(mean) if weight is None else numbers("weight", weight)
    offset = np.zeros_like(mean) if bias is None else numbers("bias", bias)
    return operations.normalise(value, mean, variance, scale, offset, eps)


def _aten_batch_norm(
    run: OperationContext, value: Value, weight: Any, bias: Any, mean: Any, var: Any, training: bool, *rest: Any
) -> Value:
    return _batch_norm(run, value, mean, var, weight, bias, training, rest[0], rest[1])


def _average_pool(
    run: OperationContext,
    value: Value,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Value:
    count = len(value.shape) - 1
    kernel = _each(kernel_size, count)
    step = kernel if stride is None or stride == [] else _each(stride, count)
    pad = _each(padding, count)
    window = Window(kernel, step, pad, pad, (1,) * count, ceil_mode)
    matrix, shape = average(value.shape, window, count_padding=count_include_pad, divisor=divisor_override)
    return value.mapped(matrix, shape, weighted=False)


def _adaptive_pool(run: OperationContext, value: Value, output_size: Any) -> Value:
    space = value.shape[1:]
    parts = output_size if isinstance(output_size, (list, tuple)) else [output_size] * len(space)
    wanted = tuple(size if part is None else int(part) for part, size in zip(parts, space, strict=True))
    matrix, shape = adaptive(value.shape, wanted)
    return value.mapped(matrix, shape, weighted=False)


def _flatten(run: OperationContext, value: Value, start_dim: int = 0, end_dim: int = -1) -> Value:
    rank = len(value.shape) + 1
    start, end = (axis + rank if axis < 0 else axis for axis in (start_dim, end_dim))
    if start < 1:
        raise Unsupported("flattens the batch too: use start_dim=1")
    return operations.flatten(value, start - 1, end - 1)


def _reshape(run: OperationContext, value: Value, *target: Any) -> Value:
    wanted = target[0] if len(target) == 1 and isinstance(target[0], (list, tuple)) else target
    return operations.reshape(value, wanted, run.batch)


def _permute(run: OperationContext, value: Value, *axes: Any) -> Value:
    return operations.permute(value, axes[0] if len(axes) == 1 and isinstance(axes[0], (list, tuple)) else axes)


def _mean(run: OperationContext, value: Value, dim: Any, keepdim: bool = False) -> Value:
    return operations.mean(value, dim if isinstance(dim, (list, tuple)) else [dim], keepdim)


def _constant(value: Value, other: Any) -> Floats:
    """A number or a tensor that is the same for every sample, in the value's shape."""
    fixed = (
        numbers("constant", other) if isinstance(other, torch.Tensor) else finite("constant", np.asarray(float(other)))
    )
    try:
        return np.asarray(np.broadcast_to(fixed, (1, *value.shape))[0])
    except ValueError:
        raise Unsupported(f"a constant of {sizes(fixed.shape)} does not fit {sizes(value.shape)}") from None


def _add(run: OperationContext, first: Any, second: Any, alpha: float = 1, *, sign: float = 1.0) -> Value:
    if isinstance(first, Value) and isinstance(second, Value):
        return first + (second if alpha * sign == 1 else second.scaled(alpha * sign))
    if isinstance(first, Value):
        return first.shifted(alpha * sign * _constant(first, second))
    value: Value = second.scaled(alpha * sign)
    return value.shifted(_constant(value, first))


def _subtract(run: OperationContext, first: Any, second: Any, alpha: float = 1) -> Value:
    return _add(run, first, second, alpha, sign=-1.0)


def _multiply(run: OperationContext, first: Any, second: Any) -> Value:
    if isinstance(first, Value) and isinstance(second, Value):
        raise Unsupported("two tensors that both depend on the input are multiplied")
    value, other = (first, second) if isinstance(first, Value) else (second, first)
    return value.scaled(_constant(value, other))


def _divide(run: OperationContext, first: Any, second: Any) -> Value:
    if not isinstance(first, Value) or isinstance(second, Value):
        raise Unsupported("divides by a tensor that depends on the input")
    divisor = _constant(first, second)
    return first.scaled(finite("quotient", 1.0 / np.where(divisor == 0, np.nan, divisor)))


def _size(run: OperationContext, value: Value, axis: int | None = None) -> Any:
    whole = (run.batch[0], *value.shape)
    return whole if axis is None else whole[axis]


def _attribute(run: OperationContext, value: Value, name: str) -> Any:
    if name != "shape":
        raise Unsupported(f"reads the attribute {name!r} of a tensor")
    return _size(run, value)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "linear": _linear,
    "addmm": _addmm,
    "matmul": _matmul,
    "mm": _matmul,
    "relu": _relu,
    "leaky_relu": _leaky_relu,
    "prelu": _prelu,
    "identity": _identity,
    "contiguous": _identity,
    "dropout": _dropout,
    "conv1d": _convolution,
    "conv2d": _convolution,
    "batch_norm": _batch_norm,
    "avg_pool1d": _average_pool,
    "avg_pool2d": _average_pool,
    "adaptive_avg_pool1d": _adaptive_pool,
    "adaptive_avg_pool2d": _adaptive_pool,
    "flatten": _flatten,
    "reshape": _reshape,
    "view": _reshape,
    "permute": _permute,
    "mean": _mean,
    "add": _add,
    "iadd": _add,
    "sub": _subtract,
    "mul": _multiply,
    "imul": _multiply,
    "div": _divide,
    "truediv": _divide,
    "neg": lambda run, value: value.scaled(-1.0),
    "size": _size,
    "getattr": _attribute,
}
ATEN_ORDER: dict[str, Callable[..., Any]] = {"batch_norm": _aten_batch_norm}


def _conv_layer(run: OperationContext, layer: Any, value: Value) -> Value:
    if layer.padding_mode != "zeros":
        raise Unsupported(f"padding_mode={layer.padding_mode!r}: zeros are supported")
    parts = layer.weight, layer.bias, layer.stride, layer.padding, layer.dilation, layer.groups
    return _convolution(run, value, *parts)


def _norm_layer(run: OperationContext, layer: Any, value: Value) -> Value:
    return _batch_norm(run, value, layer.running_mean, layer.running_var, layer.weight, layer.bias, eps=layer.eps)


def _pool_layer(run: OperationContext, layer: Any, value: Value) -> Value:
    parts = layer.kernel_size, layer.stride, layer.padding, layer.ceil_mode, layer.count_include_pad
    return _average_pool(run, value, *parts, getattr(layer, "divisor_override", None))


LAYERS: dict[type[nn.Module], Callable[..., Any]] = {
    nn.Linear: lambda run, layer, value: _linear(run, value, layer.weight, layer.bias),
    nn.ReLU: lambda run, layer, value: _relu(run, value),
    nn.LeakyReLU: lambda run, layer, value: _leaky_relu(run, value, layer.negative_slope),
    nn.PReLU: lambda run, layer, value: _prelu(run, value, layer.weight),
    **dict.fromkeys((nn.Identity, nn.Dropout, nn.Dropout1d, nn.Dropout2d), lambda run, layer, value: value),
    **dict.fromkeys((nn.Conv1d, nn.Conv2d), _conv_layer),
    **dict.fromkeys((nn.BatchNorm1d, nn.BatchNorm2d), _norm_layer),
    **dict.fromkeys((nn.AvgPool1d, nn.AvgPool2d), _pool_layer),
    **dict.fromkeys(
        (nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d),
        lambda run, layer, value: _adaptive_pool(run, value, layer.output_size),
    ),
    nn.Flatten: lambda run, layer, value: _flatten(run, value, layer.start_dim, layer.end_dim),
}
