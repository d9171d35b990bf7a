"""The graph of an ONNX file as everybody reads it: local functions written out, integer weights as real numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lawful.errors import LawfulError
from lawful.formats.graphs import onnx_file
from lawful.formats.graphs.onnx_constants import computed


def load(path: Path) -> Any:
    """The model of a file."""
    model = onnx_file.parse(path)
    if model.functions:
        from onnx.inliner import inline_local_functions

        model = inline_local_functions(model)
    return _dequantised(model, path.parent)


def _dequantised(model: Any, folder: Path) -> Any:
    """The model with an initializer in place of each `DequantizeLinear` of constants: the very numbers it gives."""
    from onnx import numpy_helper

    graph = model.graph
    held = {proto.name: proto for proto in graph.initializer}
    stored = [node for node in graph.node if node.op_type == "DequantizeLinear" and held.keys() >= {*node.input} - {""}]
    for node in stored:
        try:
            operands = [onnx_file.array(held[name], folder) if name else None for name in node.input]
            (numbers,) = computed(node, operands, onnx_file.opset_of(model), folder)
        except LawfulError as error:
            raise type(error)(f"node {(node.name or node.output[0])[:80]!r} (DequantizeLinear): {error}") from None
        graph.initializer.append(numpy_helper.from_array(numbers, node.output[0]))
        graph.node.remove(node)
    if stored:
        read = {name for node in graph.node for name in node.input} | {entry.name for entry in graph.output}
        for name in {name for node in stored for name in node.input} - read - {""}:
            graph.initializer.remove(held[name])
    return model
