"""Networks become ONNX graphs of layers, in double precision or that of their source.

One that was read from an ONNX model is written as that model with new numbers: nodes, names, opset and ends stay.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, partial, reduce
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lawful.errors import LawfulError, Unsupported
from lawful.network.dag import Dag
from lawful.network.mlp import Mlp
from lawful.network.reading import Reading
from lawful.network.validity import Role
from lawful.program.backends.onnx_file import TYPES, write_any_batch
from lawful.program.builder import Builder
from lawful.program.frontends.layers import activate
from lawful.program.program import Node, Program
from lawful.sources.onnx import reader
from lawful.types import Floats, Indices

MAX_BLOCKS = 20_000_000  # numbers in all dense blocks together
Tensors = dict[str, NDArray[Any]]


def dump(
    network: Mlp | Dag, like: Reading | None = None, dtype: str | None = None
) -> tuple[bytes, dict[str, str], dict[str, NDArray[Any]]]:
    """The bytes of an ONNX file, and each tensor's type and numbers.

    A network read from an ONNX file keeps that file's nodes, names, opset and types where they still fit; else, like
    any other, it becomes a fresh graph with the names of its input and output. A graph's sparse weights become dense
    blocks between its levels.
    """
    if (
        isinstance(network, Mlp)
        and like is not None
        and dtype is None
        and (refilled_model := _refill_source(network, like)) is not None
    ):
        types = {layer.name: layer.dtype for layer in like.layers}
        first = next(iter(types.values()), "float64")
        return refilled_model[0], {name: types.get(name, first) for name in refilled_model[1]}, refilled_model[1]
    kind = "float64"
    if like is not None and like.format == "onnx":
        kind = next((layer.dtype for layer in like.layers if layer.dtype in TYPES), kind)
    kind = dtype or kind
    if kind not in TYPES:
        raise LawfulError(f"ONNX files are written in {', '.join(TYPES)}, not {kind[:20]!r}")
    first, last = _ends(like)
    read = cache(partial(_read_groups, network.to_dag(), first, last))
    model = write_any_batch(read, kind, last)
    if model is None:
        raise Unsupported("its layers depend on the number of samples")
    exact = dict(read(2).tensors)
    return bytes(model.SerializeToString(deterministic=True)), dict.fromkeys(exact, kind), exact


def _ends(like: Reading | None) -> tuple[str, str]:
    """Names of input and output."""
    graph = None if like is None or like.template is None else like.template.graph
    if graph is None or len(graph.output) != 1:
        return "input", "output"
    stored = {tensor.name for tensor in graph.initializer}
    return next(entry.name for entry in graph.input if entry.name not in stored), str(graph.output[0].name)


def _read_groups(dag: Dag, first: str, last: str, batch: int) -> Program:
    """The program of a graph: each group is the sum of one layer per earlier group, then the activation.

    The edges between two groups are a dense block, so that runtimes compute layers and not scalars.
    """
    groups = _groups(dag)
    group, place = np.full((2, len(dag.names)), -1, dtype=np.intp)
    for number, nodes in enumerate(groups):
        group[nodes], place[nodes] = number, np.arange(len(nodes))
    into = group[dag.heads]
    ends = np.cumsum(np.bincount(into, minlength=len(groups)))
    entering = np.split(np.argsort(into, kind="stable"), ends[:-1])
    b, written = Builder(repr(dag)), 0
    values = [b.input(first, (batch, len(dag.inputs)))]
    for number, nodes in list(enumerate(groups))[1:]:
        enters, is_last = entering[number], number == len(groups) - 1
        from_constant = dag.roles[dag.tails[enters]] == Role.CONSTANT
        bias = np.zeros(len(nodes))
        bias[place[dag.heads[enters[from_constant]]]] = dag.theta[enters[from_constant]]
        edges = enters[~from_constant]
        sources = np.unique(group[dag.tails[edges]]).tolist() or [0]
        stem = last if is_last else f"h{number}"
        parts: list[Node] = []
        for source in sources:
            weight = np.zeros((len(nodes), len(groups[source])))
            written += weight.size
            if written > MAX_BLOCKS:
                raise Unsupported(
                    f"its dense blocks would hold more than {MAX_BLOCKS:,} numbers in ONNX: use .npz or .safetensors"
                )
            block = edges[group[dag.tails[edges]] == source]
            weight[place[dag.heads[block]], place[dag.tails[block]]] = dag.theta[block]
            name = stem if len(sources) == 1 else f"{stem}.{source}"
            shift = b.parameter(f"{stem}.bias", bias) if not parts and from_constant.any() else None
            parts.append(b.linear(values[source], b.parameter(f"{name}.weight", weight), shift))
        values.append(activate(b, reduce(b.add, parts), 1.0 if is_last else float(dag.slopes[nodes[0]])))
    return b.finish(values[-1:])


def _groups(dag: Dag) -> list[Indices]:
    """Inputs, hidden nodes by level and slope, outputs: no edge stays inside a group or goes back."""
    keys = np.stack([dag.levels[dag.hidden].astype(np.float64), dag.slopes[dag.hidden]])
    _, which = np.unique(keys, axis=1, return_inverse=True)
    hidden = [dag.hidden[which.ravel() == number] for number in range(which.max(initial=-1) + 1)]
    return [dag.inputs, *hidden, dag.outputs]


@dataclass(frozen=True)
class WeighedLayer:
    """The initializers of one layer: a matrix, `turned` if its rows are the inputs, and a bias."""

    weight: str
    turned: bool
    bias: str | None
    gemm: Any  # the node that a bias can join, or None


def _refill_source(network: Mlp, like: Reading) -> tuple[bytes, Tensors] | None:
    """The model with the network's weights, and the weights by name; None where its shape says something else.

    The bytes are read back and compared, so a model that would compute anything else is never written.
    """
    if like.template is None or like.entangled:
        return None
    layers = list(_weighed_layers(like.template))
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
            _add_initializer(model, name, layer.weight)
            exact[name] = bias
    if not _fill(model, exact):
        return None
    del model.graph.value_info[:]  # sizes between the layers may have changed, and say nothing else
    return (bytes(model.SerializeToString(deterministic=True)), exact) if _agrees(model, network) else None


def _weighed_layers(model: Any) -> Iterator[WeighedLayer]:
    """The layers of a chain of Gemm, or MatMul and Add, in order."""
    stored = {tensor.name: tensor for tensor in model.graph.initializer}
    adds = {
        operand: next((name for name in node.input if name in stored), None)
        for node in model.graph.node
        if node.op_type == "Add"
        for operand in node.input
        if operand not in stored
    }
    for node in model.graph.node:
        options = {entry.name: entry for entry in node.attribute}
        if node.op_type == "Gemm" and node.input[1] in stored:
            bias = node.input[2] if len(node.input) > 2 and node.input[2] else adds.get(node.output[0])
            turned = "transB" not in options or not options["transB"].i
            yield WeighedLayer(node.input[1], turned, bias, node if len(node.input) == 2 else None)
        elif node.op_type == "MatMul" and node.input[1] in stored:
            yield WeighedLayer(node.input[1], True, adds.get(node.output[0]), None)


def _add_initializer(model: Any, name: str, like: str) -> None:
    beside = next(tensor for tensor in model.graph.initializer if tensor.name == like)
    model.graph.initializer.add(name=name, data_type=beside.data_type)


def _fill(model: Any, exact: Tensors) -> bool:
    """Put the numbers into the initializers, in their own types; whether each has one, and one that keeps reals."""
    from onnx import helper, numpy_helper

    stored = {tensor.name: tensor for tensor in model.graph.initializer}
    for name, numbers in exact.items():
        tensor = stored.get(name)
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
        _agree(ours, theirs)
        for ours, theirs in zip((*network.weights, *network.biases), (*again.weights, *again.biases), strict=True)
    )


def _agree(ours: Floats | None, theirs: Floats | None) -> bool:
    """Equal to the precision of half floats; no bias is a bias of zeros."""
    if ours is None or theirs is None:
        rest = theirs if ours is None else ours
        return rest is None or not rest.any()
    return bool((np.abs(ours - theirs) <= 2.0**-10 * np.abs(ours) + 2.0**-24).all())
