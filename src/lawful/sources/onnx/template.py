"""New numbers in the ONNX model that a network was read from: its nodes, names, opset, inputs and tails stay."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lawful.errors import LawfulError
from lawful.network.mlp import Mlp
from lawful.network.reading import Reading
from lawful.sources.onnx import reader
from lawful.types import Floats

Tensors = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class WeighedLayer:
    """The initializers of one layer: a matrix, `turned` if its rows are the inputs, and a bias."""

    weight: str
    turned: bool
    bias: str | None
    gemm: Any  # the node that a bias can join, or None


def refilled(network: Mlp, like: Reading) -> tuple[bytes, Tensors] | None:
    """The model with the network's weights, and the weights by name; None where its shape says something else.

    The bytes are read back and compared, so a model that would compute anything else is never written.
    """
    if like.template is None or like.entangled:
        return None
    layers = list(_layers(like.template))
    if len(layers) != len(network.weights):
        return None
    model = type(like.template)()
    model.CopyFrom(like.template)
    exact: Tensors = {}
    nodes = {node.output[0]: node for node in model.graph.node}
    for layer, weight, bias in zip(layers, network.weights, network.biases, strict=True):
        exact[layer.weight] = weight.T if layer.turned else weight
        if layer.bias is not None:
            exact[layer.bias] = np.zeros(len(weight)) if bias is None else bias
        elif bias is not None:
            if layer.gemm is None:
                return None
            name = f"{layer.weight}.bias"
            nodes[layer.gemm.output[0]].input.append(name)
            _add(model, name, layer.weight)
            exact[name] = bias
    if not _fill(model, exact):
        return None
    del model.graph.value_info[:]  # sizes between the layers may have changed, and say nothing else
    return (bytes(model.SerializeToString(deterministic=True)), exact) if _agrees(model, network) else None


def _layers(model: Any) -> Iterator[WeighedLayer]:
    """The layers of a chain of Gemm, or MatMul and Add, in order."""
    held = {tensor.name: tensor for tensor in model.graph.initializer}
    adds = {
        operand: next((name for name in node.input if name in held), None)
        for node in model.graph.node
        if node.op_type == "Add"
        for operand in node.input
        if operand not in held
    }
    for node in model.graph.node:
        options = {entry.name: entry for entry in node.attribute}
        if node.op_type == "Gemm" and node.input[1] in held:
            bias = node.input[2] if len(node.input) > 2 and node.input[2] else adds.get(node.output[0])
            turned = "transB" not in options or not options["transB"].i
            yield WeighedLayer(node.input[1], turned, bias, node if len(node.input) == 2 else None)
        elif node.op_type == "MatMul" and node.input[1] in held:
            yield WeighedLayer(node.input[1], True, adds.get(node.output[0]), None)


def _add(model: Any, name: str, like: str) -> None:
    beside = next(tensor for tensor in model.graph.initializer if tensor.name == like)
    model.graph.initializer.add(name=name, data_type=beside.data_type)


def _fill(model: Any, exact: Tensors) -> bool:
    """Put the numbers into the initializers, in their own types; whether each has one, and one that keeps reals."""
    from onnx import helper, numpy_helper

    found = {tensor.name: tensor for tensor in model.graph.initializer}
    for name, numbers in exact.items():
        tensor = found.get(name)
        kind = None if tensor is None else helper.tensor_dtype_to_np_dtype(tensor.data_type)
        if tensor is None or kind is None or kind.kind != "f":
            return False
        shape = (1,) * (len(tensor.dims) - numbers.ndim) + numbers.shape
        with np.errstate(over="ignore"):
            tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(numbers.reshape(shape).astype(kind)), name))
    return True


def _agrees(model: Any, network: Mlp) -> bool:
    try:
        again = reader.network_of(model, Path(), drop_useless=True)
    except LawfulError:
        return False
    if not isinstance(again, Mlp) or again.widths != network.widths or again.slopes != network.slopes:
        return False
    return all(
        _close(ours, theirs)
        for ours, theirs in zip((*network.weights, *network.biases), (*again.weights, *again.biases), strict=True)
    )


def _close(ours: Floats | None, theirs: Floats | None) -> bool:
    """Equal to the precision of half floats; no bias is a bias of zeros."""
    if ours is None or theirs is None:
        rest = theirs if ours is None else ours
        return rest is None or not rest.any()
    return bool((np.abs(ours - theirs) <= 2.0**-10 * np.abs(ours) + 2.0**-24).all())
