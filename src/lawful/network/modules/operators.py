"""What ATen's operators do to pending tensors; `SUPPORTED` is the one list of what a module may consist of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from lawful.errors import Unsupported
from lawful.network import operations
from lawful.network.assemble import Value, fixed_value
from lawful.network.modules.operands import BATCH, Call, as_numbers, numbers, optional, per_axis, same_for_all
from lawful.network.modules.regrouping import concatenate, padded, regroup, regrouped
from lawful.network.operations import finite
from lawful.network.windows import Window, adaptive, average
from lawful.types import Floats

# Maps with weights


def _linear(call: Call, value: Value, weight: Any, bias: Any = None) -> Value:
    if isinstance(weight, Value) or not isinstance(value, Value):
        raise Unsupported("its weight depends on the input")
    return operations.linear(call.assembly, value, numbers("weight", weight), optional("bias", bias))


def _addmm(call: Call, bias: Any, value: Value, weight: Any, *, beta: float = 1, alpha: float = 1) -> Value:
    if isinstance(weight, Value) or isinstance(bias, Value):
        raise Unsupported("its weight or bias depends on the input")
    scaled = alpha * numbers("weight", weight).T
    return operations.linear(call.assembly, value, scaled, beta * numbers("bias", bias))


def _matmul(call: Call, value: Value, weight: Any) -> Value:
    if isinstance(weight, Value) or not isinstance(value, Value) or weight.ndim != 2:
        raise Unsupported("multiplies by a matrix that depends on the input, or by a stack of matrices")
    return operations.linear(call.assembly, value, numbers("weight", weight).T, None)


def _convolution(
    call: Call,
    value: Value,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Value:
    kernel = tuple(weight.shape[2:])
    dilations = per_axis(dilation, len(kernel))
    if padding == "same":
        total = [d * (k - 1) for d, k in zip(dilations, kernel, strict=True)]
        before, after = tuple(t // 2 for t in total), tuple(t - t // 2 for t in total)
    else:
        before = after = per_axis(0 if padding == "valid" else padding, len(kernel))
    window = Window(kernel, per_axis(stride, len(kernel)), before, after, dilations)
    parts = numbers("weight", weight), optional("bias", bias)
    return operations.convolve(call.assembly, value, *parts, window, groups)


def _batch_norm(
    call: Call, value: Value, weight: Any, bias: Any, mean: Any, variance: Any, training: bool, *rest: Any
) -> Value:
    if training or mean is None or variance is None:
        raise Unsupported("normalises by the batch's own statistics even in eval mode")
    average_, spread = numbers("running_mean", mean), numbers("running_var", variance)
    scale = np.ones_like(average_) if weight is None else numbers("weight", weight)
    offset = np.zeros_like(average_) if bias is None else numbers("bias", bias)
    return operations.normalise(value, average_, spread, scale, offset, rest[1])


def _plain_batch_norm(call: Call, value: Value, *parts: Any) -> tuple[Value]:
    weight, bias, mean, variance, momentum, epsilon = parts
    return (_batch_norm(call, value, weight, bias, mean, variance, False, momentum, epsilon),)


# Kinks


def _prelu(call: Call, value: Value, weight: Any) -> Value:
    slopes = numbers("weight", weight)
    each = slopes.ravel()[0] if slopes.size == 1 else operations.per_channel(slopes.ravel(), value.shape)
    return call.assembly.activate(value, each)


def _clamp(call: Call, value: Value, low: Any = None, high: Any = None) -> Value:
    ends = [None if end is None else _constant(value, end) for end in (low, high)]
    return operations.clip(call.assembly, value, *ends)


def _hard_sigmoid(call: Call, value: Value) -> Value:
    return operations.clip(call.assembly, value.shifted(3.0), 0.0, 6.0).scaled(1 / 6)


def _maximum(call: Call, first: Any, second: Any, *, sign: float = 1.0) -> Value:
    one, two = (_spread(call, part).scaled(sign) for part in (first, second))
    return operations.maximum(call.assembly, one, two).scaled(sign)


def _absolute(call: Call, value: Value) -> Value:
    held = call.assembly.settle(value)
    return call.assembly.activate(held, 0.0) + call.assembly.activate(held.scaled(-1.0), 0.0)


def _max_pool(
    call: Call, value: Value, kernel: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil: bool = False
) -> Value:
    count = len(value.shape) - 1
    size = per_axis(kernel, count)
    pad = per_axis(padding, count)
    window = Window(size, per_axis(stride, count) if stride else size, pad, pad, per_axis(dilation, count), ceil)
    return operations.max_pool(call.assembly, value, window)


# Averages and sums


def _average_pool(
    call: Call,
    value: Value,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Value:
    count = len(value.shape) - 1
    kernel = per_axis(kernel_size, count)
    pad = per_axis(padding, count)
    window = Window(kernel, per_axis(stride, count) if stride else kernel, pad, pad, (1,) * count, ceil_mode)
    matrix, shape = average(value.shape, window, count_padding=count_include_pad, divisor=divisor_override)
    return value.mapped(matrix, shape, weighted=False)


def _adaptive_pool(call: Call, value: Value, output_size: Any) -> Value:
    matrix, shape = adaptive(value.shape, call.shape[1:])
    return value.mapped(matrix, shape, weighted=False)


def _mean(call: Call, value: Value, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Value:
    if dim is None:
        raise Unsupported("a mean over the batch too")
    return operations.mean(value, dim if isinstance(dim, (list, tuple)) else [dim], keepdim)


def _sum(call: Call, value: Value, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Value:
    found = _mean(call, value, dim, keepdim)
    return found.scaled(float(value.size // found.size))


# Arithmetic with numbers


def _constant(value: Value, other: Any) -> Floats:
    """A number or a tensor that is the same for every sample, in the value's shape."""
    return same_for_all(as_numbers(other), value.shape)


def _spread(call: Call, part: Any) -> Value:
    """An operand in the shape of the result."""
    if not isinstance(part, Value):
        return fixed_value(same_for_all(as_numbers(part), call.shape))
    if part.shape == call.shape:
        return part
    found: Value = regrouped([part], lambda labels: labels[0].broadcast_to((BATCH, *call.shape)))
    return found


def _add(call: Call, first: Any, second: Any, *, alpha: float = 1, sign: float = 1.0) -> Value:
    if isinstance(first, Value) and isinstance(second, Value):
        return _spread(call, first) + _spread(call, second).scaled(alpha * sign)
    if isinstance(first, Value):
        held = _spread(call, first)
        return held.shifted(alpha * sign * _constant(held, second))
    held = _spread(call, second).scaled(alpha * sign)
    return held.shifted(_constant(held, first))


def _multiply(call: Call, first: Any, second: Any) -> Value:
    if isinstance(first, Value) and isinstance(second, Value):
        raise Unsupported("multiplies two tensors that both depend on the input")
    value, other = (first, second) if isinstance(first, Value) else (second, first)
    held = _spread(call, value)
    return held.scaled(_constant(held, other))


def _divide(call: Call, first: Any, second: Any) -> Value:
    if not isinstance(first, Value) or isinstance(second, Value):
        raise Unsupported("divides by a tensor that depends on the input")
    held = _spread(call, first)
    divisor = _constant(held, second)
    return held.scaled(finite("quotient", 1.0 / np.where(divisor == 0, np.nan, divisor)))


def _dropout(call: Call, value: Value, p: float = 0.5, training: bool = True) -> Value:
    if training and p:
        raise Unsupported("drops at random even in eval mode")
    return value


def _cast(call: Call, value: Value, *arguments: Any, **options: Any) -> Value:
    kinds = [each for each in (*arguments, *options.values()) if isinstance(each, torch.dtype)]
    if any(not kind.is_floating_point for kind in kinds):
        raise Unsupported(f"rounds to {kinds[0]}")
    call.assembly.casts.update(str(kind).removeprefix("torch.") for kind in kinds)
    return value


PLAIN: dict[str, Callable[..., Any]] = {  # trained one weight an edge: what stands between Linear layers
    "relu": lambda call, value: call.assembly.activate(value, 0.0),
    "leaky_relu": lambda call, value, slope=0.01: call.assembly.activate(value, slope),
    "prelu": _prelu,
    "_prelu_kernel": _prelu,
    "dropout": _dropout,
    "feature_dropout": _dropout,
    **dict.fromkeys(("alias", "clone", "contiguous", "detach", "lift_fresh_copy"), lambda call, value, **_: value),
    **dict.fromkeys(("to", "_to_copy"), _cast),
    **dict.fromkeys(
        ("view", "_unsafe_view", "reshape", "flatten", "unflatten", "squeeze", "unsqueeze", "permute", "transpose",
         "numpy_T", "t", "movedim", "flip", "roll", "pixel_shuffle", "pixel_unshuffle", "channel_shuffle"),
        regroup,
    ),
}  # fmt: skip
WEIGHED: dict[str, Callable[..., Any]] = {"linear": _linear, "addmm": _addmm, "matmul": _matmul, "mm": _matmul}
OTHERS: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(("conv1d", "conv2d", "conv3d"), _convolution),
    "batch_norm": _batch_norm,
    "_native_batch_norm_legit_no_training": _plain_batch_norm,
    "relu6": lambda call, value: operations.clip(call.assembly, value, 0.0, 6.0),
    "hardtanh": lambda call, value, low=-1.0, high=1.0: operations.clip(call.assembly, value, low, high),
    "clamp": _clamp,
    "clip": _clamp,
    "clamp_min": _clamp,
    "clamp_max": lambda call, value, high: _clamp(call, value, None, high),
    "hardsigmoid": _hard_sigmoid,
    "abs": _absolute,
    "maximum": _maximum,
    "minimum": lambda call, first, second: _maximum(call, first, second, sign=-1.0),
    **dict.fromkeys(("max_pool1d", "max_pool2d", "max_pool3d"), _max_pool),
    "max_pool2d_with_indices": lambda call, *arguments: (_max_pool(call, *arguments),),
    **dict.fromkeys(("avg_pool1d", "avg_pool2d", "avg_pool3d"), _average_pool),
    **dict.fromkeys(("adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d"), _adaptive_pool),
    "mean": _mean,
    "sum": _sum,
    "add": _add,
    "sub": lambda call, first, second, **options: _add(call, first, second, sign=-1.0, **options),
    "rsub": lambda call, first, second, **options: _add(call, second, first, sign=-1.0, **options),
    "mul": _multiply,
    "div": _divide,
    "neg": lambda call, value: value.scaled(-1.0),
    "cat": concatenate,
    "zeros_like": lambda call, value, **_: fixed_value(np.zeros(call.shape)),
    "ones_like": lambda call, value, **_: fixed_value(np.ones(call.shape)),
    **dict.fromkeys(("full_like", "fill"), lambda call, value, number, **_: _spread(call, number)),
    "constant_pad_nd": lambda call, value, pad, fill=0.0: padded(call, value, pad, "constant", fill),
    "pad": padded,
    **dict.fromkeys(
        ("select", "slice", "narrow", "index_select", "index", "expand", "repeat", "chunk", "split", "tensor_split",
         "split_with_sizes", "unbind", "stack", "unfold", "gather", "select_scatter", "slice_scatter", "expand_as"),
        regroup,
    ),
}  # fmt: skip
OPERATORS = {**PLAIN, **WEIGHED, **OTHERS}
TAILS = ("softmax", "_softmax", "log_softmax", "_log_softmax", "sigmoid", "log_sigmoid", "argmax")
SUPPORTED = (
    "Linear, Conv1d to Conv3d, BatchNorm in eval mode, ReLU, LeakyReLU, PReLU, ReLU6, Hardtanh, clamps, Hardsigmoid, "
    "maxima, max and average pooling, Flatten, reshapes, slices, concatenations, sums, scalings by constants"
)
