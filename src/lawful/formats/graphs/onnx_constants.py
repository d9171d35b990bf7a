"""What an ONNX graph computes before it sees an input: sizes, axes, weights made of others."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lawful.errors import Unsupported
from lawful.formats.graphs import onnx_file

Constant = NDArray[Any]
ELEMENTWISE = (
    "Add", "Sub", "Mul", "Div", "Mod", "Pow", "Min", "Max", "Equal", "Less", "Greater", "And", "Or", "Where",
)  # fmt: skip
COMPUTED = (
    *ELEMENTWISE, "Neg", "Abs", "Sqrt", "Reciprocal", "Exp", "Log", "Floor", "Ceil", "Not", "Cast", "Identity", "Shape",
    "Size", "Concat", "Gather", "Slice", "Squeeze", "Unsqueeze", "Reshape", "Transpose", "Flatten", "ReduceProd",
    "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ConstantOfShape", "Expand", "Tile", "Range",
    "GatherElements", "CumSum", "IsNaN", "GreaterOrEqual", "LessOrEqual", "DequantizeLinear",
)  # fmt: skip
MAX_COMPUTED = 10_000_000


def computed(node: Any, operands: list[Any], opset: int, folder: Path) -> list[Constant]:
    """Numbers that do not depend on the input, by ONNX's own reference implementation."""
    if node.op_type == "Constant":
        return [_constant(node, folder)]
    from onnx import helper
    from onnx.reference import ReferenceEvaluator

    if node.op_type not in COMPUTED:
        raise Unsupported("is not supported without an input")
    _check_growth(node.op_type, operands)
    given = {name: operand for name, operand in zip(node.input, operands, strict=True) if name}
    ends = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in given.items()
    ]
    outputs = [helper.make_empty_tensor_value_info(name) for name in node.output if name]
    graph = helper.make_graph([node], "constants", ends, outputs)
    version = max(opset, 19) if node.op_type == "DequantizeLinear" else opset  # the oldest that the reference has
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)])
    try:
        found = ReferenceEvaluator(model).run(None, given)
    except Exception as error:  # the reference implementation raises whatever it meets
        raise Unsupported(f"cannot be computed ({str(error).splitlines()[0][:120]})") from None
    return [np.asarray(each) for each in found]


def _check_growth(name: str, operands: list[Any]) -> None:
    """A few bytes must not become gigabytes."""
    arrays = [np.asarray(operand) for operand in operands if operand is not None]
    if name in ("ConstantOfShape", "Expand", "Reshape", "Tile"):
        wanted = math.prod(max(int(size), 1) for size in arrays[-1].ravel())
        size = wanted if name == "ConstantOfShape" else wanted * arrays[0].size
    elif name == "Range":
        start, stop, step = (float(array.ravel()[0]) for array in arrays)
        size = int(abs(stop - start) / max(abs(step), 1e-9))
    elif name == "Gather":
        size = arrays[0].size * arrays[1].size
    else:
        size = sum(array.size for array in arrays)
        if name in ELEMENTWISE:
            size = max(size, math.prod(np.broadcast_shapes(*(array.shape for array in arrays))))
    if size > MAX_COMPUTED:
        raise Unsupported(f"computes {size:,} constants, more than {MAX_COMPUTED:,}")


def _constant(node: Any, folder: Path) -> Constant:
    from onnx.helper import get_attribute_value

    options = {entry.name: get_attribute_value(entry) for entry in node.attribute}
    if "value" in options:
        return onnx_file.array(options["value"], folder)
    key = next(iter(options), "nothing")
    if key not in ("value_float", "value_floats", "value_int", "value_ints"):
        raise Unsupported(f"a constant given by {key}")
    return np.asarray(options[key], dtype=np.float32 if "float" in key else np.int64)
