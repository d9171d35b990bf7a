"""ONNX's layers said in PyTorch: maps with weights, normalisations, pools."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from lawful.errors import Unsupported
from lawful.network.formats.onnx_window import window_of
from lawful.network.modules.onnx_values import Call, Operand, Options, like, padded, tensor

# Maps with weights


def _gemm(options: Options, first: Operand, second: Operand, third: Operand = None) -> torch.Tensor:
    one, two = tensor(first), tensor(second)
    one = one.t() if options.get("transA", 0) else one
    alpha, beta = options.get("alpha", 1.0), options.get("beta", 1.0)
    weight = two if options.get("transB", 0) else two.t()
    if alpha == 1 and beta == 1 and isinstance(third, torch.Tensor) and third.shape == weight.shape[:1]:
        return functional.linear(one, weight, third)
    found: torch.Tensor = functional.linear(one, weight)
    found = found if alpha == 1 else alpha * found
    if third is not None:
        bias = like(third, found)
        found = found + (bias if beta == 1 else beta * bias)
    return found


def _matmul(options: Options, first: Operand, second: Operand) -> torch.Tensor:
    one, two = tensor(first), tensor(second)
    kind = torch.promote_types(one.dtype, two.dtype)
    return torch.matmul(one.to(kind), two.to(kind))


def _conv(options: Options, first: Operand, second: Operand, third: Operand = None) -> torch.Tensor:
    value, weight = tensor(first), tensor(second)
    window = window_of(options, tuple(weight.shape[2:]), tuple(value.shape[2:]))
    run: Any = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}[value.ndim - 2]
    bias = None if third is None else tensor(third)
    if window.before == window.after:
        return run(value, weight, bias, window.stride, window.before, window.dilation, options.get("group", 1))  # type: ignore[no-any-return]
    value = padded(value, window.before, window.after, 0.0)
    return run(value, weight, bias, window.stride, 0, window.dilation, options.get("group", 1))  # type: ignore[no-any-return]


def _conv_transpose(options: Options, first: Operand, second: Operand, third: Operand = None) -> torch.Tensor:
    value, weight = tensor(first), tensor(second)
    if "output_shape" in options or options.get("auto_pad", b"NOTSET") != b"NOTSET":
        raise Unsupported("works its padding out")
    window = window_of(options, tuple(weight.shape[2:]), tuple(value.shape[2:]))
    if window.before != window.after:
        raise Unsupported("has different padding at both ends")
    run: Any = {1: functional.conv_transpose1d, 2: functional.conv_transpose2d, 3: functional.conv_transpose3d}[
        value.ndim - 2
    ]
    extra = tuple(options.get("output_padding", (0,) * len(window.kernel)))
    bias = None if third is None else tensor(third)
    return run(value, weight, bias, window.stride, window.before, extra, options.get("group", 1), window.dilation)  # type: ignore[no-any-return]


# Normalisations


def _batch_norm(options: Options, first: Operand, *held: Operand) -> torch.Tensor:
    if options.get("training_mode", 0):
        raise Unsupported("it is in training mode")
    scale, offset, mean, variance = (tensor(each) for each in held)
    return functional.batch_norm(tensor(first), mean, variance, scale, offset, False, 0.0, options["epsilon"])


def _layer_norm(options: Options, first: Operand, scale: Operand, offset: Operand = None) -> torch.Tensor:
    value, gain = tensor(first), tensor(scale)
    shape = tuple(value.shape[options.get("axis", -1) % value.ndim :])
    if tuple(gain.shape) != shape:
        raise Unsupported("its gain has another shape than what it normalises")
    return functional.layer_norm(value, shape, gain, None if offset is None else tensor(offset), options["epsilon"])


def _rms_norm(options: Options, first: Operand, scale: Operand) -> torch.Tensor:
    value, gain = tensor(first), tensor(scale)
    shape = tuple(value.shape[options.get("axis", -1) % value.ndim :])
    return functional.rms_norm(value, shape, gain, options["epsilon"])


def _instance_norm(options: Options, first: Operand, scale: Operand, offset: Operand) -> torch.Tensor:
    return functional.instance_norm(
        tensor(first), None, None, tensor(scale), tensor(offset), True, 0.0, options["epsilon"]
    )


# Pools


def _max_pool(options: Options, first: Operand) -> torch.Tensor:
    value = tensor(first)
    window = window_of(options, tuple(options["kernel_shape"]), tuple(value.shape[2:]))
    after = _after(window, tuple(value.shape[2:]))
    run: Any = {1: functional.max_pool1d, 2: functional.max_pool2d, 3: functional.max_pool3d}[value.ndim - 2]
    if window.before == after and all(2 * pad <= side for pad, side in zip(after, window.kernel, strict=True)):
        return run(value, window.kernel, window.stride, after, window.dilation)  # type: ignore[no-any-return]
    value = padded(value, window.before, after, -math.inf)
    return run(value, window.kernel, window.stride, 0, window.dilation)  # type: ignore[no-any-return]


def _after(window: Any, space: tuple[int, ...]) -> tuple[int, ...]:
    """Padding at the far end that makes every window whole, where sizes are rounded up."""
    if not window.ceil:
        return window.after  # type: ignore[no-any-return]
    each = zip(window.output(space), window.stride, window.dilation, window.kernel, space, window.before, strict=True)
    return tuple((n - 1) * step + wide * (side - 1) + 1 - size - pad for n, step, wide, side, size, pad in each)


def _average_pool(options: Options, first: Operand) -> torch.Tensor:
    value = tensor(first)
    window = window_of(options, tuple(options["kernel_shape"]), tuple(value.shape[2:]))
    if window.ceil or any(each != 1 for each in window.dilation):
        raise Unsupported("averages with rounded sizes or holes")
    run: Any = {1: functional.avg_pool1d, 2: functional.avg_pool2d, 3: functional.avg_pool3d}[value.ndim - 2]
    found = run(padded(value, window.before, window.after, 0.0), window.kernel, window.stride)
    if options.get("count_include_pad", 0) or not any((*window.before, *window.after)):
        return found  # type: ignore[no-any-return]
    ones = padded(torch.ones((1, 1, *value.shape[2:]), dtype=value.dtype), window.before, window.after, 0.0)
    return found / run(ones, window.kernel, window.stride)  # type: ignore[no-any-return]


def _everywhere(run: Callable[[torch.Tensor, list[int], bool], torch.Tensor]) -> Call:
    return lambda options, first: run(tensor(first), list(range(2, tensor(first).ndim)), True)


LAYERS: dict[str, Call] = {
    "Gemm": _gemm,
    "MatMul": _matmul,
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "BatchNormalization": _batch_norm,
    "LayerNormalization": _layer_norm,
    "RMSNormalization": _rms_norm,
    "InstanceNormalization": _instance_norm,
    "MaxPool": _max_pool,
    "AveragePool": _average_pool,
    "GlobalAveragePool": _everywhere(torch.mean),
    "GlobalMaxPool": _everywhere(torch.amax),
}
