"""Networks become ONNX graphs of Gemm, Relu, LeakyRelu and Add, in double precision or that of their source."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lawful.errors import LawfulError, Unsupported
from lawful.network.dag import Dag
from lawful.network.mlp import Mlp
from lawful.network.reading import Reading
from lawful.network.validity import Role
from lawful.sources.onnx.template import refilled
from lawful.types import Floats, Indices

MAX_BLOCKS = 20_000_000  # numbers in all dense blocks together
TYPES = {"float64": "DOUBLE", "float32": "FLOAT", "float16": "FLOAT16"}
OPSET, IR_VERSION = 17, 8  # old enough for every runtime in use


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
