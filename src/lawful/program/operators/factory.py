"""Leaves and calls that the table does not know; tensors of sizes and numbers alone, which are constants."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lawful.program.builder import Builder, Operand
from lawful.program.operators.movement import integers
from lawful.program.program import Node
from lawful.program.table import ATEN_FACTORIES, OperatorFamily, Refused, ValueKind, aten, define, onnx

ATEN_FACTORIES.update(
    """
    arange full zeros ones scalar_tensor eye linspace logspace tril_indices triu_indices full_like zeros_like
    ones_like new_zeros new_ones new_full hann_window hamming_window blackman_window bartlett_window
    kaiser_window
    """.split()  # noqa: SIM905
)
# `empty` and its kin hold what happened to be in memory: no entry, so whoever reads their entries finds them opaque.

# TensorProto.DataType, by kind; types that no kind holds (strings, four and eight bit floats) are missing
ONNX_KINDS: dict[int, ValueKind] = {
    1: "f", 10: "f", 11: "f", 16: "f", 2: "i", 3: "i", 4: "i", 5: "i", 6: "i", 7: "i", 12: "i", 13: "i", 9: "b",
}  # fmt: skip
ONNX_ROUNDS = {1: "float32", 10: "float16", 16: "bfloat16"}
ONNX_NARROW = {2: "uint8", 3: "int8", 4: "uint16", 5: "int16"}


@aten("fill")
def fill(b: Builder, x: Node, value: Operand) -> Node:
    """A number everywhere."""
    return b.as_kind(b.expand(b.reshape(b.operand(value, x), ()), x.shape), x.kind)


@onnx("Shape", sizes_alone=True)
def _shape(b: Builder, x: Node, start: int = 0, end: int | None = None) -> Node:
    return b.constant(np.array(x.shape[start:end], dtype=np.int64))


@onnx("Size", sizes_alone=True)
def _size(b: Builder, x: Node) -> Node:
    return b.constant(x.size)


@onnx("ConstantOfShape")
def _constant_of_shape(b: Builder, shape: Node, value: Any = None) -> Node:
    number = np.zeros(1) if value is None else np.asarray(value).reshape(-1)
    sizes = integers(b, shape, "the sizes of ConstantOfShape")
    b.bound_shape(sizes)
    b.check_size(math.prod(sizes))
    return b.constant(np.full(sizes, number[0]))


@onnx("Range")
def _range(b: Builder, start: Node, limit: Node, delta: Node) -> Node:
    low, high, step = (b.numbers(operand, "the ends of Range")[0] for operand in (start, limit, delta))
    count = max(int(np.ceil((high - low) / step)), 0)
    b.bound_shape((count,))
    b.check_size(count)
    return b.constant(low + np.arange(count) * step, start.kind)


@onnx("EyeLike")
def _eye_like(b: Builder, x: Node, dtype: int | None = None, k: int = 0) -> Node:
    kind = x.kind if dtype is None else ONNX_KINDS.get(dtype)
    if kind is None:
        raise Refused(f"EyeLike of type {dtype}")
    return b.constant(np.eye(x.shape[0], x.shape[1], k), kind)


@onnx("Cast", carries=1)
def _cast(b: Builder, x: Node, to: int, saturate: int = 1, round_mode: str = "up") -> Node:
    """Precision is a note; integers of eight and sixteen bits wrap around, which no kind does."""
    if to not in ONNX_KINDS:
        raise Refused(f"Cast to type {to}")
    if x.kind == "f" and to in ONNX_ROUNDS:
        b.notes[f"rounds to {ONNX_ROUNDS[to]}"] += 1
    if x.kind != "b" and to in ONNX_NARROW:
        b.notes[f"{ONNX_NARROW[to]} does not wrap around"] += 1
    return b.as_kind(x, ONNX_KINDS[to])


@onnx("CastLike")
def _cast_like(b: Builder, x: Node, like: Node, saturate: int = 1, round_mode: str = "up") -> Node:
    return b.as_kind(x, like.kind)


def _given(arrays: Any, attributes: Any) -> Any:
    raise NotImplementedError("a domain says what its inputs, parameters and buffers are")


define("input", OperatorFamily.LEAF, "given when the program runs", _given, attributes=("name",))
define("parameter", OperatorFamily.LEAF, "held, and changed by training", _given, attributes=("name",))
define("buffer", OperatorFamily.LEAF, "held, and not changed by gradients", _given, attributes=("name",))
define("constant", OperatorFamily.LEAF, "always the same", lambda arrays, a: a["value"], attributes=("value",))
define(
    "opaque",
    OperatorFamily.OPAQUE,
    "a call that the table does not know; it can only be run",
    lambda arrays, a, *operands: a["call"](*operands),
    shape=lambda a, *shapes: a["shape"],
    attributes=("name", "detail", "number", "call", "shape"),
)
