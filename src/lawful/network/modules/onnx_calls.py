"""What ONNX's operators compute, said in PyTorch: entry by entry, reductions, and the table of all of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from lawful.errors import Unsupported
from lawful.network.modules.onnx_layers import LAYERS
from lawful.network.modules.onnx_moves import MOVES
from lawful.network.modules.onnx_values import Call, Operand, Options, axes_of, like, number, tensor


def _pair(run: Callable[[Any, Any], torch.Tensor]) -> Call:
    """An operator of two values, entry by entry."""

    def call(options: Options, first: Operand, second: Operand) -> torch.Tensor:
        own = first if isinstance(first, torch.Tensor) else tensor(second)
        one, two = like(first, own), like(second, own)
        return run(one, two)

    return call


def _many(run: Callable[[Any, Any], torch.Tensor]) -> Call:
    """An operator of any number of values."""

    def call(options: Options, *operands: Operand) -> torch.Tensor:
        first = tensor(operands[0])
        own = next((each for each in operands if isinstance(each, torch.Tensor)), first)
        found = first.to(own.dtype)
        for each in operands[1:]:
            found = run(found, tensor(each).to(own.dtype))
        return found

    return call


def _one(run: Callable[[torch.Tensor], torch.Tensor]) -> Call:
    return lambda options, first: run(tensor(first))


# Reductions


def _reduce(run: Callable[[torch.Tensor, list[int], bool], torch.Tensor]) -> Call:
    def call(options: Options, first: Operand, second: Operand = None) -> torch.Tensor:
        value, axes = tensor(first), axes_of(options, second)
        if not axes and options.get("noop_with_empty_axes", 0):
            return value
        return run(value, axes or list(range(value.ndim)), bool(options.get("keepdims", 1)))

    return call


def _product(value: torch.Tensor, axes: list[int], keep: bool) -> torch.Tensor:
    for axis in sorted((each % value.ndim for each in axes), reverse=True):
        value = value.prod(axis, keep)
    return value


def _softmax(run: Callable[[torch.Tensor, int], torch.Tensor]) -> Call:
    def call(options: Options, first: Operand, opset: int = 13) -> torch.Tensor:
        value = tensor(first)
        if opset >= 13:
            return run(value, options.get("axis", -1))
        axis = options.get("axis", 1) % value.ndim
        if axis == value.ndim - 1:
            return run(value, -1)
        flat = value.reshape(math.prod(value.shape[:axis]), -1)  # older versions see a matrix
        return run(flat, -1).reshape(value.shape)

    return call


# Kinks and bends


def _clip(options: Options, first: Operand, low: Operand = None, high: Operand = None) -> torch.Tensor:
    ends = [
        options.get(name) if operand is None else number(operand) for name, operand in (("min", low), ("max", high))
    ]
    bounds = [None if end is None or abs(end) > 1e38 else end for end in ends]  # the type's own range is no bound
    return tensor(first) if bounds == [None, None] else torch.clamp(tensor(first), *bounds)


def _prelu(options: Options, first: Operand, second: Operand) -> torch.Tensor:
    value, slope = tensor(first), tensor(second)
    if slope.numel() == 1:
        return functional.prelu(value, slope.reshape(1))
    if value.ndim > 1 and slope.ndim and slope.shape[-value.ndim + 1 :].numel() == slope.numel() == value.shape[1]:
        return functional.prelu(value, slope.reshape(-1))
    return torch.where(value > 0, value, slope * value)


def _where(options: Options, condition: Operand, first: Operand, second: Operand) -> torch.Tensor:
    own = next(each for each in (first, second, condition) if isinstance(each, torch.Tensor))
    return torch.where(tensor(condition), like(first, own), like(second, own))


def _gelu(options: Options, first: Operand) -> torch.Tensor:
    return functional.gelu(tensor(first), approximate=options.get("approximate", b"none").decode())


def _selu(options: Options, first: Operand) -> torch.Tensor:
    return functional.elu(tensor(first), options["alpha"]) * float(options["gamma"])


def _hard_sigmoid(options: Options, first: Operand) -> torch.Tensor:
    return torch.clamp(options["alpha"] * tensor(first) + options["beta"], 0.0, 1.0)


def _dropout(options: Options, first: Operand, ratio: Operand = None, training: Operand = None) -> Operand:
    if training is not None and np.any(training):
        raise Unsupported("it is in training mode")
    return first


def _scaler(options: Options, first: Operand) -> torch.Tensor:
    value = tensor(first)
    offset, scale = (
        np.asarray(options.get(name, end), dtype=np.float64) for name, end in (("offset", 0), ("scale", 1))
    )
    found: torch.Tensor = (value - like(offset, value)) * like(scale, value)
    return found


def _normalizer(options: Options, first: Operand) -> torch.Tensor:
    """scikit-learn's rows of length one; rows of zeros stay."""
    value = tensor(first)
    order = {b"MAX": torch.inf, b"L1": 1.0, b"L2": 2.0}[options.get("norm", b"MAX")]
    length = torch.linalg.vector_norm(value, order, -1, True)
    return value / torch.where(length == 0, 1.0, length)


def _arg(run: Callable[..., torch.Tensor]) -> Call:
    return lambda options, first: run(tensor(first), options.get("axis", 0), bool(options.get("keepdims", 1)))


CALLS: dict[str, Call] = {
    **LAYERS,
    **MOVES,
    "Add": _pair(lambda x, y: x + y),
    "Sub": _pair(lambda x, y: x - y),
    "Mul": _pair(lambda x, y: x * y),
    "Div": _pair(lambda x, y: x / y),
    "Pow": _pair(lambda x, y: x**y),
    "Equal": _pair(lambda x, y: x == y),
    "Less": _pair(lambda x, y: x < y),
    "LessOrEqual": _pair(lambda x, y: x <= y),
    "Greater": _pair(lambda x, y: x > y),
    "GreaterOrEqual": _pair(lambda x, y: x >= y),
    "And": _pair(lambda x, y: x & y),
    "Or": _pair(lambda x, y: x | y),
    "Not": _one(torch.logical_not),
    "IsNaN": _one(torch.isnan),
    "Sum": _many(torch.add),
    "Max": _many(torch.maximum),
    "Min": _many(torch.minimum),
    "Where": _where,
    "ReduceMean": _reduce(torch.mean),
    "ReduceSum": _reduce(torch.sum),
    "ReduceMax": _reduce(torch.amax),
    "ReduceMin": _reduce(torch.amin),
    "ReduceL2": _reduce(lambda value, axes, keep: value.square().sum(axes, keep).sqrt()),
    "ReduceSumSquare": _reduce(lambda value, axes, keep: value.square().sum(axes, keep)),
    "ReduceProd": _reduce(_product),
    "ReduceLogSumExp": _reduce(torch.logsumexp),
    "ArgMax": _arg(torch.argmax),
    "ArgMin": _arg(torch.argmin),
    "Softmax": _softmax(torch.softmax),
    "LogSoftmax": _softmax(torch.log_softmax),
    "Relu": _one(torch.relu),
    "LeakyRelu": lambda options, first: functional.leaky_relu(tensor(first), options["alpha"]),
    "PRelu": _prelu,
    "Clip": _clip,
    "Abs": _one(torch.abs),
    "Neg": _one(torch.neg),
    "Sqrt": _one(torch.sqrt),
    "Reciprocal": _one(torch.reciprocal),
    "Exp": _one(torch.exp),
    "Log": _one(torch.log),
    "Sin": _one(torch.sin),
    "Cos": _one(torch.cos),
    "Erf": _one(torch.erf),
    "Tanh": _one(torch.tanh),
    "Sigmoid": _one(torch.sigmoid),
    "Gelu": _gelu,
    "Softplus": _one(functional.softplus),
    "Softsign": _one(functional.softsign),
    "Elu": lambda options, first: functional.elu(tensor(first), options["alpha"]),
    "Celu": lambda options, first: functional.celu(tensor(first), options["alpha"]),
    "Selu": _selu,
    "Mish": _one(functional.mish),
    "HardSigmoid": _hard_sigmoid,
    "HardSwish": _one(functional.hardswish),
    "ThresholdedRelu": lambda options, first: functional.threshold(tensor(first), options["alpha"], 0.0),
    "Dropout": _dropout,
    "Identity": lambda options, first: first,
    "Scaler": _scaler,
    "Normalizer": _normalizer,
}
