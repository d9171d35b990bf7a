"""Roundings between layers, as quantised ONNX files have them; stored integers are numbers before a program is read."""

from __future__ import annotations

from typing import Any

import numpy as np

from lawful.program.builder import Builder
from lawful.program.operators.choice import clamp
from lawful.program.program import Node
from lawful.program.table import Refused, onnx

# TensorProto.DataType: the least and the largest number of an integer type
RANGES = {
    2: (0, 255), 3: (-128, 127), 4: (0, 65535), 5: (-32768, 32767), 6: (-(2**31), 2**31 - 1), 21: (0, 15), 22: (-8, 7),
}  # fmt: skip
UINT8 = 2


def _along(b: Builder, x: Node, numbers: Node, axis: int, block: int) -> Node:
    """One number for everything, one for each index of an axis, or one for each block of an axis."""
    if block:
        whole = b.move(lambda t: np.repeat(t, block, axis), numbers)
        return b.slice(whole, axis, slice(0, x.shape[axis % x.rank]))
    if numbers.size == 1:
        return b.reshape(numbers, ())
    return b.reshape(numbers, [x.shape[axis % x.rank] if k == axis % x.rank else 1 for k in range(x.rank)])


@onnx("QuantizeLinear")
def _quantize(
    b: Builder,
    x: Node,
    scale: Node,
    zero: Node | None = None,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    precision: int = 0,
    saturate: int = 1,
    types: Any = (),
) -> Node:
    """round(x / scale) + zero, kept within the integers of its type."""
    kind = output_dtype or (types[2] if zero is not None else UINT8)
    if kind not in RANGES:
        raise Refused(f"QuantizeLinear to type {kind}")
    b.notes["rounds between layers, as quantised networks do"] += 1
    rounded = b.function("round", b.div(b.as_kind(x, "f"), _along(b, x, scale, axis, block_size)))
    if zero is not None:
        rounded = b.add(rounded, b.as_kind(_along(b, x, zero, axis, block_size), "f"))
    return clamp(b, rounded, *map(float, RANGES[kind]))


@onnx("DequantizeLinear")
def _dequantize(
    b: Builder,
    x: Node,
    scale: Node,
    zero: Node | None = None,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
) -> Node:
    """(x - zero) scale."""
    x = b.as_kind(x, "f")
    if zero is not None:
        x = b.sub(x, b.as_kind(_along(b, x, zero, axis, block_size), "f"))
    return b.mul(x, _along(b, x, scale, axis, block_size))


@onnx("DynamicQuantizeLinear")
def _dynamic_quantize(b: Builder, x: Node) -> list[Node]:
    """Eight bits for the range that the values happen to have, 0 among them."""
    b.notes["rounds between layers, as quantised networks do"] += 1
    axes = list(range(x.rank))
    low = b.minimum(b.reduce("amin", x, axes, False), 0.0)
    high = b.maximum(b.reduce("amax", x, axes, False), 0.0)
    scale = b.div(b.sub(high, low), 255.0)
    zero = clamp(b, b.function("round", b.div(b.neg(low), scale)), 0.0, 255.0)
    whole = clamp(b, b.add(b.function("round", b.div(x, scale)), zero), 0.0, 255.0)
    return [whole, scale, zero]
