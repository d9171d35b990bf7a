"""Networks become ONNX graphs of Gemm, Relu, LeakyRelu and Add, in double precision or that of their source.

One that was read from an ONNX model is written as that model with new numbers: nodes, names, opset and ends stay.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lawful.errors import LawfulError, Unsupported
from lawful.network.dag import Dag
from lawful.network.mlp import Mlp
from lawful.network.reading import Reading
from lawful.network.validity import Role
from lawful.sources.onnx import reader
from lawful.types import Floats, Indices

MAX_BLOCKS = 20_000_000  # numbers in all dense blocks together
TYPES = {"float64": "DOUBLE", "float32": "FLOAT", "float16": "FLOAT16"}
OPSET, IR_VERSION = 17, 8  # old enough for every runtime in use
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
        and (kept := refilled(network, like)) is not None
    ):
        types = {each.name: each.dtype for each in like.layers}
        first = next(iter(types.values()), "float64")
        return kept[0], {name: types.get(name, first) for name in kept[1]}, kept[1]
    own = next((each.dtype for each in like.layers if each.dtype in TYPES), "float64") if like else "float64"
    kind = dtype or (own if like is not None and like.format == "onnx" else "float64")
    if kind not in TYPES:
        raise LawfulError(f"ONNX files are written in {', '.join(TYPES)}, not {kind[:20]!r}")
    ends = _ends(like)
    draft = Draft(network.to_dag(), kind, *ends)
    for number in range(1, len(draft.groups)):
        draft.add_group(number)
    return draft.finish(), dict.fromkeys(draft.exact, kind), draft.exact


def _ends(like: Reading | None) -> tuple[str, str]:
    """Names of input and output."""
    graph = None if like is None or like.template is None else like.template.graph
    if graph is None or len(graph.output) != 1:
        return "input", "output"
    held = {tensor.name for tensor in graph.initializer}
    return next(entry.name for entry in graph.input if entry.name not in held), str(graph.output[0].name)


class Draft:
    """Nodes and initializers of a graph that is being written."""

    def __init__(self, dag: Dag, dtype: str = "float64", first: str = "input", last: str = "output") -> None:
        self.dag, self.theta = dag, dag.theta
        self.dtype, self.first, self.last = dtype, first, last
        self.exact: dict[str, NDArray[Any]] = {}
        self.nodes: list[Any] = []
        self.initializers: list[Any] = []
        self.written = 0
        self.groups = _groups(dag)
        self.group, self.place = np.full((2, len(dag.names)), -1, dtype=np.intp)
        for number, nodes in enumerate(self.groups):
            self.group[nodes], self.place[nodes] = number, np.arange(len(nodes))
        into = self.group[dag.heads]
        ends = np.cumsum(np.bincount(into, minlength=len(self.groups)))
        self.entering = np.split(np.argsort(into, kind="stable"), ends[:-1])

    def add_group(self, number: int) -> None:
        """The sum of one Gemm per earlier group, then the activation."""
        nodes, enters, dag = self.groups[number], self.entering[number], self.dag
        last = number == len(self.groups) - 1
        slope = 1.0 if last else float(dag.slopes[nodes[0]])
        from_constant = dag.roles[dag.tails[enters]] == Role.CONSTANT
        bias = np.zeros(len(nodes))
        bias[self.place[dag.heads[enters[from_constant]]]] = self.theta[enters[from_constant]]
        edges = enters[~from_constant]
        sources = np.unique(self.group[dag.tails[edges]]).tolist() or [0]
        final = self.last if last else f"h{number}"
        before = final if slope == 1 else f"z{number}"
        parts = []
        for step, source in enumerate(sources):
            weight = np.zeros((len(nodes), len(self.groups[source])))
            block = edges[self.group[dag.tails[edges]] == source]
            weight[self.place[dag.heads[block]], self.place[dag.tails[block]]] = self.theta[block]
            parts.append(before if len(sources) == 1 else f"part{number}.{source}")
            self._gemm(parts[-1], source, weight, bias if step == 0 and from_constant.any() else None)
        total = parts[0]
        for step, part in enumerate(parts[1:], 2):
            joined = before if step == len(parts) else f"sum{number}.{step}"
            self._node("Add", [total, part], joined)
            total = joined
        if slope == 0:
            self._node("Relu", [before], final)
        elif slope != 1:
            self._activate(before, final, slope)

    def finish(self) -> bytes:
        """The file."""
        from onnx import TensorProto, helper

        ends = [
            helper.make_tensor_value_info(name, getattr(TensorProto, TYPES[self.dtype]), ["batch", len(nodes)])
            for name, nodes in ((self.first, self.dag.inputs), (self.last, self.dag.outputs))
        ]
        graph = helper.make_graph(self.nodes, "lawful", ends[:1], ends[1:], self.initializers)
        opset = helper.make_opsetid("", OPSET)
        model = helper.make_model(graph, opset_imports=[opset], ir_version=IR_VERSION, producer_name="lawful")
        return bytes(model.SerializeToString(deterministic=True))

    def _gemm(self, name: str, source: int, weight: Floats, bias: Floats | None) -> None:
        operands = [f"h{source}" if source else self.first, self._tensor(f"{name}.weight", weight)]
        if bias is not None:
            operands.append(self._tensor(f"{name}.bias", bias))
        self._node("Gemm", operands, name, transB=1)

    def _activate(self, before: str, final: str, slope: float) -> None:
        """LeakyRelu keeps its slope in single precision; PRelu keeps it as it is."""
        if float(np.float32(slope)) == slope:
            self._node("LeakyRelu", [before], final, alpha=slope)
        else:
            self._node("PRelu", [before, self._tensor(f"{final}.slope", np.array([slope]))], final)

    def _tensor(self, name: str, numbers: Floats) -> str:
        from onnx import numpy_helper

        self.written += numbers.size
        if self.written > MAX_BLOCKS:
            raise Unsupported(
                f"its dense blocks would hold more than {MAX_BLOCKS:,} numbers in ONNX: use .npz or .safetensors"
            )
        self.exact[name] = numbers
        self.initializers.append(numpy_helper.from_array(numbers.astype(np.dtype(self.dtype)), name))
        return name

    def _node(self, operator: str, operands: list[str], result: str, **options: Any) -> None:
        from onnx import helper

        self.nodes.append(helper.make_node(operator, operands, [result], name=f"{operator}:{result}", **options))


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


def refilled(network: Mlp, like: Reading) -> tuple[bytes, Tensors] | None:
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


def _add_initializer(model: Any, name: str, like: str) -> None:
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
        _agree(ours, theirs)
        for ours, theirs in zip((*network.weights, *network.biases), (*again.weights, *again.biases), strict=True)
    )


def _agree(ours: Floats | None, theirs: Floats | None) -> bool:
    """Equal to the precision of half floats; no bias is a bias of zeros."""
    if ours is None or theirs is None:
        rest = theirs if ours is None else ours
        return rest is None or not rest.any()
    return bool((np.abs(ours - theirs) <= 2.0**-10 * np.abs(ours) + 2.0**-24).all())
