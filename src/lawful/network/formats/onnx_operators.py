"""What ONNX's operators do to pending tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from lawful.errors import Unsupported
from lawful.network import operations
from lawful.network.assemble import Value, sizes
from lawful.network.formats.onnx_operands import Operand, Options, Reader, alike, fixed, rows, value_of, whole_numbers
from lawful.network.formats.onnx_window import window_of
from lawful.network.operations import finite
from lawful.network.windows import Window, average

# Maps with weights


def _gemm(reader: Reader, options: Options, first: Operand, second: Operand, third: Operand = None) -> Value:
    value, matrix = value_of(first), fixed("matrix", second)
    if options.get("transA", 0):
        raise Unsupported("its first operand is transposed")
    weight = options.get("alpha", 1.0) * (matrix if options.get("transB", 0) else matrix.T)
    shape = (*value.shape[:-1], len(weight))
    bias = None if third is None else options.get("beta", 1.0) * rows(reader, fixed("bias", third), shape)
    if options.get("alpha", 1.0) != 1 or options.get("beta", 1.0) != 1:
        reader.entangled.append("Gemm scales its weights")
        reader.computed = True
    return operations.linear(reader.assembly, value, weight, bias)


def _matmul(reader: Reader, options: Options, first: Operand, second: Operand) -> Value:
    if isinstance(first, Value):
        matrix = fixed("matrix", second)
        if matrix.ndim != 2:
            raise Unsupported(f"multiplies by a tensor of {sizes(matrix.shape)}: a matrix is supported")
        return operations.linear(reader.assembly, first, matrix.T, None)
    value, matrix = value_of(second), fixed("matrix", first)
    if reader.batch and len(value.shape) < 2:
        raise Unsupported("multiplies the batch from the left")
    if len(value.shape) < 2:
        return operations.linear(reader.assembly, value, matrix, None)
    turned = reader.regroup([value], lambda labels: np.swapaxes(labels[0], -1, -2))
    found = operations.linear(reader.assembly, turned, matrix, None)
    result: Value = reader.regroup([found], lambda labels: np.swapaxes(labels[0], -1, -2))
    return result


def _inner(reader: Reader, value: Value) -> Value:
    """Channels and space of one sample."""
    if reader.batch:
        return value
    if not value.shape or value.shape[0] != 1:
        raise Unsupported(f"{sizes(value.shape)} is no single sample with channels")
    return value.reshape(value.shape[1:])


def _outer(reader: Reader, value: Value) -> Value:
    return value if reader.batch else value.reshape((1, *value.shape))


def _conv(reader: Reader, options: Options, first: Operand, second: Operand, third: Operand = None) -> Value:
    value, weight = _inner(reader, value_of(first)), fixed("kernel", second)
    window = window_of(options, weight.shape[2:], value.shape[1:])
    bias = None if third is None else fixed("bias", third)
    found = operations.convolve(reader.assembly, value, weight, bias, window, options.get("group", 1))
    return _outer(reader, found)


def _batch_norm(
    reader: Reader, options: Options, first: Operand, scale: Operand, offset: Operand, mean: Operand, var: Operand
) -> Value:
    if options.get("training_mode", 0):
        raise Unsupported("it is in training mode")
    held = fixed("mean", mean), fixed("variance", var), fixed("scale", scale), fixed("bias", offset)
    value, reader.computed = _inner(reader, value_of(first)), True
    return _outer(reader, operations.normalise(value, *held, options["epsilon"]))


def _scaler(reader: Reader, options: Options, first: Operand) -> Value:
    """scikit-learn's scaling, `(x − offset) · scale`."""
    value = value_of(first)
    offset, scale = (np.asarray(options.get(name, default)) for name, default in (("offset", 0.0), ("scale", 1.0)))
    return value.shifted(-rows(reader, offset, value.shape)).scaled(rows(reader, scale, value.shape))


def _linear_regressor(reader: Reader, options: Options, first: Operand) -> Value:
    """scikit-learn's linear models, whose weights are among their settings."""
    value, targets = value_of(first), int(options.get("targets", 1))
    if options.get("post_transform", b"NONE") != b"NONE":
        raise Unsupported("transforms its result")
    weight = np.asarray(options["coefficients"], dtype=np.float64).reshape(targets, -1)
    bias = np.asarray(options.get("intercepts", [0.0] * targets), dtype=np.float64)
    reader.entangled.append("LinearRegressor has its weights among its settings")
    return operations.linear(reader.assembly, value, weight, rows(reader, bias, (*value.shape[:-1], targets)))


# Sums and factors


def _add(reader: Reader, options: Options, first: Operand, second: Operand, sign: float = 1.0) -> Operand:
    if not isinstance(first, Value) and not isinstance(second, Value):
        raise Unsupported("adds two constants")
    one, two = alike(reader, first, second)
    if isinstance(first, Value) and isinstance(second, Value):
        reader.entangled.append("a sum of two branches has fixed weights")
        return one + (two if sign == 1 else two.scaled(sign))
    if isinstance(first, Value):
        return one.shifted((sign * two.bias).reshape(two.shape))
    return (two if sign == 1 else two.scaled(sign)).shifted(one.bias.reshape(one.shape))


def _subtract(reader: Reader, options: Options, first: Operand, second: Operand) -> Operand:
    reader.entangled.append("Sub has weights of another sign")
    return _add(reader, options, first, second, -1.0)


def _sum(reader: Reader, options: Options, first: Operand, *rest: Operand) -> Operand:
    for operand in rest:
        first = _add(reader, options, first, operand)
    return first


def _multiply(reader: Reader, options: Options, first: Operand, second: Operand) -> Value:
    if isinstance(first, Value) and isinstance(second, Value):
        raise Unsupported("multiplies two tensors that both depend on the input")
    one, two = alike(reader, first, second)
    value, other = (one, two) if isinstance(first, Value) else (two, one)
    return value.scaled(other.bias.reshape(other.shape))


def _divide(reader: Reader, options: Options, first: Operand, second: Operand) -> Value:
    value_of(first)
    fixed("divisor", second)
    value, divisor = alike(reader, first, second)
    with np.errstate(divide="ignore"):
        return value.scaled(finite("quotient", 1.0 / divisor.bias.reshape(divisor.shape)))


def _mean(reader: Reader, value: Value, axes: Sequence[int], keep: bool) -> Value:
    rank = len(value.shape) + bool(reader.batch)
    inner = [axis % rank - bool(reader.batch) for axis in axes]
    if min(inner, default=0) < 0:
        raise Unsupported(f"a mean over axes {list(axes)}, which are the batch's too")
    return operations.mean(value, [axis + 1 for axis in inner], keep)


def _axes(options: Options, operand: Operand) -> list[int]:
    return list(options["axes"]) if "axes" in options else [] if operand is None else whole_numbers("axes", operand)


def _reduce_mean(reader: Reader, options: Options, first: Operand, second: Operand = None) -> Value:
    value, axes = value_of(first), _axes(options, second)
    if not axes and options.get("noop_with_empty_axes", 0):
        return value
    every = range(len(value.shape) + bool(reader.batch))
    return _mean(reader, value, axes or every, bool(options.get("keepdims", 1)))


def _reduce_sum(reader: Reader, options: Options, first: Operand, second: Operand = None) -> Value:
    found = _reduce_mean(reader, options, first, second)
    return found.scaled(float(value_of(first).size // found.size))


# Kinks


def _prelu(reader: Reader, options: Options, first: Operand, second: Operand) -> Value:
    value = value_of(first)
    return reader.assembly.activate(value, rows(reader, fixed("slope", second), value.shape))


def _clip(reader: Reader, options: Options, first: Operand, low: Operand = None, high: Operand = None) -> Value:
    ends = [
        options.get(name) if operand is None else float(np.asarray(operand).ravel()[0])
        for name, operand in (("min", low), ("max", high))
    ]
    bounded = [None if end is None or abs(end) > 1e38 else end for end in ends]  # the type's own range is no bound
    return operations.clip(reader.assembly, value_of(first), *bounded)


def _hard_sigmoid(reader: Reader, options: Options, first: Operand) -> Value:
    held = value_of(first).scaled(options["alpha"]).shifted(options["beta"])
    return operations.clip(reader.assembly, held, 0.0, 1.0)


def _absolute(reader: Reader, options: Options, first: Operand) -> Value:
    held = reader.assembly.settle(value_of(first))
    return reader.assembly.activate(held, 0.0) + reader.assembly.activate(held.scaled(-1.0), 0.0)


def _maximum(reader: Reader, options: Options, first: Operand, *rest: Operand, sign: float = 1.0) -> Operand:
    for operand in rest:
        one, two = (each.scaled(sign) for each in alike(reader, first, operand))
        first = operations.maximum(reader.assembly, one, two).scaled(sign)
    return first


def _minimum(reader: Reader, options: Options, *operands: Operand) -> Operand:
    return _maximum(reader, options, *operands, sign=-1.0)


def _max_pool(reader: Reader, options: Options, first: Operand) -> Value:
    value = _inner(reader, value_of(first))
    window = window_of(options, tuple(options["kernel_shape"]), value.shape[1:])
    return _outer(reader, operations.max_pool(reader.assembly, value, window))


def _global_max(reader: Reader, options: Options, first: Operand) -> Value:
    value = _inner(reader, value_of(first))
    space = value.shape[1:]
    none = (0,) * len(space)
    window = Window(space, (1,) * len(space), none, none, (1,) * len(space))
    return _outer(reader, operations.max_pool(reader.assembly, value, window))


def _average_pool(reader: Reader, options: Options, first: Operand) -> Value:
    value = _inner(reader, value_of(first))
    window = window_of(options, tuple(options["kernel_shape"]), value.shape[1:])
    matrix, shape = average(value.shape, window, count_padding=bool(options.get("count_include_pad", 0)))
    return _outer(reader, value.mapped(matrix, shape, weighted=False))


def _global_average(reader: Reader, options: Options, first: Operand) -> Value:
    value = _inner(reader, value_of(first))
    return _outer(reader, operations.mean(value, range(2, len(value.shape) + 1), keep=True))


def _dropout(
    reader: Reader, options: Options, first: Operand, ratio: Operand = None, training: Operand = None
) -> Operand:
    if training is not None and np.any(training):  # type: ignore[arg-type]
        raise Unsupported("it is in training mode")
    return first


def _cast(reader: Reader, options: Options, first: Operand) -> Operand:
    from onnx import TensorProto

    floats = {
        TensorProto.FLOAT: "float32",
        TensorProto.DOUBLE: "float64",
        TensorProto.FLOAT16: "float16",
        TensorProto.BFLOAT16: "bfloat16",
    }
    if options["to"] not in floats:
        raise Unsupported("rounds to whole numbers")
    reader.assembly.casts.add(floats[options["to"]])
    return first


WEIGHED: dict[str, Callable[..., Operand]] = {"Gemm": _gemm, "MatMul": _matmul, "Add": _add}
PLAIN: dict[str, Callable[..., Operand]] = {
    "Relu": lambda reader, options, first: reader.assembly.activate(value_of(first), 0.0),
    "LeakyRelu": lambda reader, options, first: reader.assembly.activate(value_of(first), options["alpha"]),
    "PRelu": _prelu,
    "Identity": lambda reader, options, first: first,
    "Dropout": _dropout,
    "Cast": _cast,
}
OTHERS: dict[str, Callable[..., Operand]] = {
    "Sub": _subtract,
    "Sum": _sum,
    "Mul": _multiply,
    "Div": _divide,
    "Neg": lambda reader, options, first: value_of(first).scaled(-1.0),
    "Scaler": _scaler,
    "LinearRegressor": _linear_regressor,
    "Clip": _clip,
    "HardSigmoid": _hard_sigmoid,
    "Abs": _absolute,
    "Max": _maximum,
    "Min": _minimum,
    "BatchNormalization": _batch_norm,
    "Conv": _conv,
    "MaxPool": _max_pool,
    "GlobalMaxPool": _global_max,
    "AveragePool": _average_pool,
    "GlobalAveragePool": _global_average,
    "ReduceMean": _reduce_mean,
    "ReduceSum": _reduce_sum,
}
