"""ONNX graphs become networks, operator by operator."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lawful.errors import InvalidNetwork, LawfulError, Unsupported
from lawful.network import onnx_file, operations
from lawful.network.assemble import Assembly, Value, sizes
from lawful.network.dag import Dag
from lawful.network.limits import check_entries
from lawful.network.mlp import Mlp
from lawful.network.operations import finite
from lawful.network.windows import Window, average

Floats = NDArray[np.float64]
Operand = Value | Floats | None  # None is an optional input left out


def load(path: Path, *, input_shape: tuple[int, ...] | None = None, drop_useless: bool = False) -> Mlp | Dag:
    """The network of an ONNX file; its first dimension is the batch."""
    graph = onnx_file.parse(path).graph
    check_entries(len(graph.node))
    if graph.sparse_initializer:
        raise Unsupported("sparse initializers are not supported")
    known: dict[str, Operand] = {
        proto.name: finite(proto.name, onnx_file.tensor(proto, path.parent)) for proto in graph.initializer
    }
    inputs = [entry for entry in graph.input if entry.name not in known]
    if len(inputs) != 1 or len(graph.output) != 1:
        raise Unsupported(f"{len(inputs)} inputs and {len(graph.output)} outputs: one of each is supported")
    batch, shape = _input_shape(inputs[0], input_shape)
    reader = Reader(Assembly(shape), path.parent, batch)
    known[inputs[0].name] = reader.assembly.input()
    for node in graph.node:
        _run(reader, node, known)
    result = known.get(graph.output[0].name)
    if not isinstance(result, Value):
        raise InvalidNetwork(f"its output {graph.output[0].name[:80]!r} does not come from its input")
    return reader.assembly.finish(result, drop_useless=drop_useless)


class Reader:
    """What operators need besides their operands."""

    def __init__(self, assembly: Assembly, folder: Path, batch: int | None) -> None:
        self.assembly, self.folder, self.batch = assembly, folder, batch


def _input_shape(entry: Any, given: tuple[int, ...] | None) -> tuple[int | None, tuple[int, ...]]:
    """The batch size, if fixed, and the other sizes, of which those left open must be given."""
    kind = entry.type.tensor_type
    if not kind.HasField("shape"):
        if given is None:
            raise Unsupported("its input size is unknown: give it without the batch, like --input 3,8,8")
        return None, given
    stated = [dim.dim_value if dim.HasField("dim_value") else None for dim in kind.shape.dim]
    if len(stated) < 2:
        raise Unsupported(f"its input has {len(stated)} dimensions: the batch and at least one more are needed")
    batch, inner = stated[0], stated[1:]
    if given is not None:
        if len(given) != len(inner) or any(size not in (None, want) for size, want in zip(inner, given, strict=True)):
            words = "×".join("?" if size is None else str(size) for size in inner)
            raise InvalidNetwork(f"its input is {words}, not {sizes(given)}")
        return batch, given
    if any(size is None or size < 1 for size in inner):
        raise Unsupported("its input size is left open: give it without the batch, like --input 3,8,8")
    return batch, tuple(size for size in inner if size is not None)


def _run(reader: Reader, node: Any, known: dict[str, Operand]) -> None:
    place = f"node {(node.name or (node.output[0] if node.output else ''))[:80]!r} ({node.op_type[:40]})"
    if node.domain not in ("", "ai.onnx") or node.op_type not in OPERATORS:
        raise Unsupported(f"{place} is not supported; supported are {', '.join(OPERATORS)}")
    operands: list[Operand] = []
    for name in node.input:
        if name and name not in known:
            raise InvalidNetwork(f"{place} reads {name[:80]!r} before it is computed: a cycle, or a missing node")
        operands.append(known[name] if name else None)
    if node.output and node.output[0] in known:
        raise InvalidNetwork(f"{place} computes {node.output[0][:80]!r}, which exists already")
    try:
        from onnx.helper import get_attribute_value

        options = {entry.name: get_attribute_value(entry) for entry in node.attribute}
        known[node.output[0]] = OPERATORS[node.op_type](reader, options, *operands)
    except LawfulError as error:
        raise type(error)(f"{place}: {error}") from None
    except (TypeError, ValueError, IndexError, KeyError, AttributeError) as error:
        raise Unsupported(f"{place} is used in an unsupported way ({str(error)[:120]})") from None


def _value(operand: Operand) -> Value:
    if not isinstance(operand, Value):
        raise Unsupported("its first operand must depend on the network's input")
    return operand


def _fixed(what: str, operand: Operand) -> Floats:
    if isinstance(operand, Value) or operand is None:
        raise Unsupported(f"its {what} must be a constant")
    return operand


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
    value, target = _value(first), [int(size) for size in _fixed("shape", second).ravel()]
    if not options.get("allowzero", 0):
        whole = (0, *value.shape)
        target = [whole[axis] if size == 0 else size for axis, size in enumerate(target)]
    free = (0, -1) if reader.batch is None else (0, -1, reader.batch)
    return operations.reshape(value, target, free)


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
    "Transpose": _transpose,
    "BatchNormalization": _batch_norm,
    "Conv": _conv,
    "AveragePool": _average_pool,
    "GlobalAveragePool": _global_pool,
    "Constant": _constant,
}
