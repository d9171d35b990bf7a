"""What ONNX's operators do to pending tensors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lawful.errors import InvalidNetwork, Unsupported
from lawful.network import operations
from lawful.network.assemble import Assembly, Value, sizes
from lawful.network.formats import onnx_file
from lawful.network.operations import finite
from lawful.network.windows import Window, average
from lawful.types import Floats


@dataclass(frozen=True)
class Sizes:
    """Sizes of a tensor that the graph computes with, −1 for the batch: good for reshaping, and nothing else."""

    numbers: Floats


Operand = Value | Floats | Sizes | None  # None is an optional input left out


@dataclass(frozen=True)
class Reader:
    """What operators need besides their operands; `batch` is its size, if the file fixes it."""

    assembly: Assembly
    folder: Path
    batch: int | None


def _value(operand: Operand) -> Value:
    if not isinstance(operand, Value):
        raise Unsupported("its first operand must depend on the network's input")
    return operand


def _fixed(what: str, operand: Operand) -> Floats:
    if operand is None or isinstance(operand, (Value, Sizes)):
        raise Unsupported(f"its {what} must be a constant")
    return operand


def _numbers(operand: Operand) -> Floats:
    """Sizes, or a constant among them."""
    return operand.numbers if isinstance(operand, Sizes) else _fixed("operand", operand)


def _gemm(reader: Reader, options: dict[str, Any], first: Operand, second: Operand, third: Operand = None) -> Value:
    value, matrix = _value(first), _fixed("matrix", second)
    if options.get("transA", 0) or len(value.shape) != 1:
        raise Unsupported("its first operand must be a plain batch of vectors")
    weight = options.get("alpha", 1.0) * (matrix if options.get("transB", 0) else matrix.T)
    bias = None if third is None else options.get("beta", 1.0) * _rows(_fixed("bias", third), (len(weight),))
    return operations.linear(reader.assembly, value, weight, bias)


def _matmul(reader: Reader, options: dict[str, Any], first: Operand, second: Operand) -> Value:
    return operations.linear(reader.assembly, _value(first), _fixed("matrix", second).T, None)


def _rows(constant: Floats, shape: tuple[int, ...]) -> Floats:
    """A constant that is the same for every sample, in the shape of one."""
    try:
        return np.asarray(np.broadcast_to(constant, (1, *shape))[0])
    except ValueError:
        raise InvalidNetwork(f"a constant of {sizes(constant.shape)} does not fit {sizes(shape)}") from None


def _add(reader: Reader, options: dict[str, Any], first: Operand, second: Operand, sign: float = 1.0) -> Operand:
    if isinstance(first, Value) and isinstance(second, Value):
        return first + (second if sign == 1 else second.scaled(sign))
    if isinstance(first, Value):
        return first.shifted(sign * _rows(_fixed("second operand", second), first.shape))
    value = _value(second)
    return (value if sign == 1 else value.scaled(sign)).shifted(_rows(_fixed("first operand", first), value.shape))


def _subtract(reader: Reader, options: dict[str, Any], first: Operand, second: Operand) -> Operand:
    return _add(reader, options, first, second, -1.0)


def _sum(reader: Reader, options: dict[str, Any], first: Operand, *rest: Operand) -> Operand:
    for operand in rest:
        first = _add(reader, options, first, operand)
    return first


def _multiply(reader: Reader, options: dict[str, Any], first: Operand, second: Operand) -> Value:
    value, other = (first, second) if isinstance(first, Value) else (second, first)
    held = _value(value)
    return held.scaled(_rows(_fixed("factor", other), held.shape))


def _divide(reader: Reader, options: dict[str, Any], first: Operand, second: Operand) -> Value:
    value, divisor = _value(first), _fixed("divisor", second)
    with np.errstate(divide="ignore"):
        return value.scaled(finite("quotient", 1.0 / _rows(divisor, value.shape)))


def _prelu(reader: Reader, options: dict[str, Any], first: Operand, second: Operand) -> Value:
    value = _value(first)
    return reader.assembly.activate(value, _rows(_fixed("slope", second), value.shape))


def _flatten(reader: Reader, options: dict[str, Any], first: Operand) -> Value:
    value = _value(first)
    axis = options.get("axis", 1)
    if axis + (len(value.shape) + 1 if axis < 0 else 0) != 1:
        raise Unsupported(f"axis={axis}: only the batch may stay apart, axis=1")
    return value.reshape((value.size,))


def _reshape(reader: Reader, options: dict[str, Any], first: Operand, second: Operand) -> Value:
    value, target = _value(first), [int(size) for size in _numbers(second).ravel()]
    if not options.get("allowzero", 0):
        whole = (0, *value.shape)
        target = [whole[axis] if size == 0 else size for axis, size in enumerate(target)]
    free = (0, -1) if reader.batch is None else (0, -1, reader.batch)
    return operations.reshape(value, target, free)


def _shape(reader: Reader, options: dict[str, Any], first: Operand) -> Sizes:
    whole = np.array([operations.BATCH, *_value(first).shape], dtype=np.float64)
    return Sizes(whole[options.get("start", 0) : options.get("end")])


def _gather(reader: Reader, options: dict[str, Any], first: Operand, second: Operand) -> Sizes:
    if not isinstance(first, Sizes):
        raise Unsupported("only a size may be gathered, from a shape")
    return Sizes(np.asarray(np.take(first.numbers, _fixed("index", second).astype(np.intp))))


def _unsqueeze(reader: Reader, options: dict[str, Any], first: Operand, second: Operand = None) -> Operand:
    if not isinstance(first, Value):
        return Sizes(_numbers(first).reshape(1))
    axes = options["axes"] if second is None else _fixed("axes", second).astype(int).ravel().tolist()
    rank = len(first.shape) + 1 + len(axes)
    places = {axis % rank - 1 for axis in axes}
    if len(places) < len(axes) or min(places) < 0:
        raise Unsupported(f"new axes {axes} before the batch, or twice the same")
    old = iter(first.shape)
    return first.reshape(tuple(1 if axis in places else next(old) for axis in range(rank - 1)))


def _concat(reader: Reader, options: dict[str, Any], *parts: Operand) -> Sizes:
    if any(isinstance(part, Value) for part in parts):
        raise Unsupported("tensors are concatenated; only sizes may be")
    return Sizes(np.concatenate([_numbers(part).ravel() for part in parts]))


def _dropout(
    reader: Reader, options: dict[str, Any], first: Operand, ratio: Operand = None, training: Operand = None
) -> Operand:
    if training is not None and _fixed("training mode", training).any():
        raise Unsupported("it is in training mode")
    return first


def _batch_norm(
    reader: Reader,
    options: dict[str, Any],
    first: Operand,
    scale: Operand,
    offset: Operand,
    mean: Operand,
    var: Operand,
) -> Value:
    if options.get("training_mode", 0):
        raise Unsupported("it is in training mode")
    fixed = _fixed("mean", mean), _fixed("variance", var), _fixed("scale", scale), _fixed("bias", offset)
    return operations.normalise(_value(first), *fixed, options.get("epsilon", 1e-5))


def _window(options: dict[str, Any], kernel: tuple[int, ...], space: tuple[int, ...]) -> Window:
    axes = len(kernel)
    stride = tuple(options.get("strides", (1,) * axes))
    dilation = tuple(options.get("dilations", (1,) * axes))
    pads = tuple(options.get("pads", (0,) * (2 * axes)))
    auto = options.get("auto_pad", b"NOTSET").decode()
    if auto.startswith("SAME"):
        total = [
            max((-(-size // step) - 1) * step + wide * (side - 1) + 1 - size, 0)
            for size, step, wide, side in zip(space, stride, dilation, kernel, strict=True)
        ]
        low = tuple(t // 2 if auto == "SAME_UPPER" else t - t // 2 for t in total)
        pads = (*low, *(t - part for t, part in zip(total, low, strict=True)))
    elif auto == "VALID":
        pads = (0,) * (2 * axes)
    return Window(kernel, stride, pads[:axes], pads[axes:], dilation, bool(options.get("ceil_mode", 0)))


def _conv(reader: Reader, options: dict[str, Any], first: Operand, second: Operand, third: Operand = None) -> Value:
    value, weight = _value(first), _fixed("kernel", second)
    window = _window(options, weight.shape[2:], value.shape[1:])
    bias = None if third is None else _fixed("bias", third)
    return operations.convolve(reader.assembly, value, weight, bias, window, options.get("group", 1))


def _average_pool(reader: Reader, options: dict[str, Any], first: Operand) -> Value:
    value = _value(first)
    window = _window(options, tuple(options["kernel_shape"]), value.shape[1:])
    matrix, shape = average(value.shape, window, count_padding=bool(options.get("count_include_pad", 0)))
    return value.mapped(matrix, shape, weighted=False)


def _global_pool(reader: Reader, options: dict[str, Any], first: Operand) -> Value:
    value = _value(first)
    return operations.mean(value, range(2, len(value.shape) + 1), keep=True)


def _reduce_mean(reader: Reader, options: dict[str, Any], first: Operand, second: Operand = None) -> Value:
    value = _value(first)
    axes = options.get("axes", [] if second is None else _fixed("axes", second).astype(int).ravel().tolist())
    if not axes and options.get("noop_with_empty_axes", 0):
        return value
    return operations.mean(value, axes or range(len(value.shape) + 1), keep=bool(options.get("keepdims", 1)))


def _squeeze(reader: Reader, options: dict[str, Any], first: Operand, second: Operand = None) -> Operand:
    if not isinstance(first, Value):
        return Sizes(np.squeeze(_numbers(first)))
    stated = options.get("axes", None if second is None else _fixed("axes", second).astype(int).ravel().tolist())
    rank = len(first.shape) + 1
    axes = [axis % rank - 1 for axis in stated] if stated else [i for i, size in enumerate(first.shape) if size == 1]
    if any(axis < 0 or first.shape[axis] != 1 for axis in axes):
        raise InvalidNetwork(f"axes {stated} of {sizes(first.shape)} and a batch do not all have size 1")
    return first.reshape(tuple(size for axis, size in enumerate(first.shape) if axis not in axes))


def _transpose(reader: Reader, options: dict[str, Any], first: Operand) -> Operand:
    if isinstance(first, Value):
        return operations.permute(first, options["perm"])
    return np.transpose(_fixed("operand", first), options.get("perm"))


def _constant(reader: Reader, options: dict[str, Any]) -> Floats:
    if "value" in options:
        return finite("constant", onnx_file.tensor(options["value"], reader.folder))
    key = next(iter(options), "nothing")
    if key not in ("value_float", "value_floats", "value_int", "value_ints"):
        raise Unsupported(f"a constant given by {key}")
    return finite("constant", np.asarray(options[key], dtype=np.float64))


OPERATORS: dict[str, Callable[..., Operand]] = {
    "Gemm": _gemm,
    "MatMul": _matmul,
    "Add": _add,
    "Sub": _subtract,
    "Sum": _sum,
    "Mul": _multiply,
    "Div": _divide,
    "Neg": lambda reader, options, first: _value(first).scaled(-1.0),
    "Relu": lambda reader, options, first: reader.assembly.activate(_value(first), 0.0),
    "LeakyRelu": lambda reader, options, first: reader.assembly.activate(_value(first), options.get("alpha", 0.01)),
    "PRelu": _prelu,
    "Identity": lambda reader, options, first: first,
    "Dropout": _dropout,
    "Flatten": _flatten,
    "Reshape": _reshape,
    "Shape": _shape,
    "Gather": _gather,
    "Unsqueeze": _unsqueeze,
    "Concat": _concat,
    "Transpose": _transpose,
    "BatchNormalization": _batch_norm,
    "Conv": _conv,
    "AveragePool": _average_pool,
    "GlobalAveragePool": _global_pool,
    "ReduceMean": _reduce_mean,
    "Squeeze": _squeeze,
    "Constant": _constant,
}
SUPPORTED = ", ".join(OPERATORS).replace("Concat", "Concat (of sizes only)")
