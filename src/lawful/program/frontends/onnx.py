"""ONNX files: the same table; what follows from sizes and constants alone is folded, known conditions are taken.

A file does not say which of its numbers are trained. That is decided by use, never by value (a fresh scale of ones is
trained, a mask of random numbers is not): a constant of reals is a *parameter* if an entry of the table says that
calls of its kind train the input where it is used (a kernel, a matrix, a scale, a table of embeddings), perhaps behind
calls that only move or cast it. Operands of sums and products may be either: they are trained if they have several
entries, all finite, or one entry along an axis that is added to the result of a call with weights, a bias of width 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lawful.errors import LawfulError
from lawful.extras import needed
from lawful.program.builder import Builder
from lawful.program.operators.factory import ONNX_KINDS
from lawful.program.passes.patterns import recognise
from lawful.program.program import Node, Program
from lawful.program.table import ONNX, Entry, Refused

DOMAINS = ("", "ai.onnx")
TRAINED = ("perhaps", "bias", "statistic", "weight")  # the later one decides where a constant is used twice


def read_onnx(
    model: Any, sizes: Mapping[str, Sequence[int]] | None = None, values: Mapping[str, Any] | None = None
) -> Program:
    """The program of an ONNX file (or `ModelProto`).

    `sizes` are those of inputs whose sizes the file leaves open; `values` make an input a constant (a sampling rate, a
    length), so that what depends on it alone is known.
    """
    onnx = needed("onnx")
    if isinstance(model, (str, Path)):
        source, model = Path(model).name, onnx.load(str(model))
    else:
        source = model.graph.name
    opset = next((each.version for each in model.opset_import if each.domain in DOMAINS), 1)
    walk = _Walk(Builder(source), opset, onnx)
    scope: dict[str, Any] = {"": None}
    walk.trained = _uses(model.graph, onnx)
    held = {tensor.name for tensor in model.graph.initializer}
    for entry in model.graph.input:
        if entry.name not in held:
            scope[entry.name] = walk.input(entry, dict(sizes or {}), dict(values or {}))
    walk.graph(model.graph, scope)
    outputs = [scope.get(each.name) for each in model.graph.output]
    return recognise(walk.b.finish(each for each in outputs if isinstance(each, Node)))


class _Walk:
    """Nodes of a file, one after the other."""

    def __init__(self, builder: Builder, opset: int, onnx: Any) -> None:
        self.b, self.opset, self.onnx = builder, opset, onnx
        self.trained: dict[str, str] = {}

    def input(self, entry: Any, sizes: dict[str, Sequence[int]], values: dict[str, Any]) -> Any:
        """An input of the graph."""
        name, kind = entry.name, ONNX_KINDS.get(entry.type.tensor_type.elem_type)
        if name in values:
            return self.b.constant(np.asarray(values[name]))
        if kind is None:
            raise Refused(f"the input {name} holds no numbers that are read")
        if name in sizes:
            shape = tuple(int(n) for n in sizes[name])
        else:
            shape = tuple(
                each.dim_value if each.HasField("dim_value") else -1 for each in entry.type.tensor_type.shape.dim
            )
            if any(n < 0 for n in shape):
                raise LawfulError(f"the size of the input {name} is open in the file: give it")
        return self.b.input(name, shape, kind)

    def graph(self, graph: Any, scope: dict[str, Any]) -> None:
        """All nodes of a graph, into a scope of values by name."""
        for tensor in graph.initializer:
            scope[tensor.name] = self.tensor(tensor.name, tensor)
        for node in graph.node:
            for name, value in zip(node.output, self.node(node, scope), strict=False):
                scope[name] = value

    def tensor(self, name: str, tensor: Any) -> Node:
        """A tensor of the file, by its use: a parameter, a statistic or a constant."""
        array = self.onnx.numpy_helper.to_array(tensor)
        if array.dtype.kind not in "biuf" and tensor.data_type != 16:
            raise Refused(f"{name} holds no numbers that are read")
        if tensor.data_type == 16:
            array = array.astype(np.float32)
        use = self.trained.get(name) if array.dtype.kind == "f" else None
        if use == "statistic":
            return self.b.buffer(name, array)
        likely = bool(np.isfinite(array).all()) and (array.size > 1 or (use == "bias" and array.ndim > 0))
        if use == "weight" or (use is not None and likely):
            return self.b.parameter(name, array)
        return self.b.constant(array)

    def node(self, node: Any, scope: dict[str, Any]) -> Sequence[Any]:
        """The results of a node."""
        self.b.step += 1
        attributes = {each.name: _plain(self.onnx.helper.get_attribute_value(each)) for each in node.attribute}
        if node.op_type == "Constant":
            return [self._constant(node.output[0], attributes)]
        if node.op_type == "If":
            return self._branch(scope[node.input[0]], attributes, scope)
        operands = [scope[name] for name in node.input]
        while operands and operands[-1] is None:
            operands.pop()
        entry = ONNX.get(node.op_type) if node.domain in DOMAINS else None
        try:
            if entry is None:
                raise Refused("no entry")
            results = entry.build(self.b, *operands, **self._arguments(entry, node, attributes))
        except Refused as reason:
            return self._opaque(node, operands, str(reason))
        return results if isinstance(results, (list, tuple)) else [results]

    def _constant(self, name: str, attributes: dict[str, Any]) -> Node:
        (key, value), *_ = attributes.items()
        return self.tensor(name, value) if key == "value" else self.b.constant(np.asarray(value))

    def _branch(self, condition: Node, attributes: dict[str, Any], scope: dict[str, Any]) -> list[Any]:
        """The branch that is taken, if the sizes of the inputs decide it."""
        known = self.b.value(condition)
        if known is None:
            raise Refused("If with a condition that is data")
        branch = attributes["then_branch" if bool(known.ravel()[0]) else "else_branch"]
        inner = dict(scope)
        self.graph(branch, inner)
        return [inner[each.name] for each in branch.output]

    def _arguments(self, entry: Entry, node: Any, attributes: dict[str, Any]) -> dict[str, Any]:
        """The attributes that an entry knows; others must have their default."""
        known = entry.parameters
        arguments = {"opset": self.opset} if "opset" in known else {}
        if "outputs" in known:
            arguments["outputs"] = len(node.output)
        for name, value in attributes.items():
            if name in known:
                arguments[name] = self._array(value)
            elif value != self._default(node, name):
                raise Refused(f"its attribute {name}={value}")
        return arguments

    def _array(self, value: Any) -> Any:
        return self.onnx.numpy_helper.to_array(value) if type(value).__name__ == "TensorProto" else value

    def _default(self, node: Any, name: str) -> Any:
        try:
            schema = self.onnx.defs.get_schema(node.op_type, self.opset, "")
        except self.onnx.defs.SchemaError:
            return None
        attribute = schema.attributes.get(name)
        value = attribute.default_value if attribute is not None else None
        return None if value is None or not value.type else _plain(self.onnx.helper.get_attribute_value(value))

    def _opaque(self, node: Any, operands: Sequence[Node | None], reason: str) -> list[Any]:
        """A call that only ONNX's own reference can run; its sizes must follow from those of its operands."""
        given = [each for each in operands if each is not None]
        name = node.op_type
        if any(isinstance(each, list) for each in given):
            raise Refused(f"{name}: {reason}")
        if any(each.kind == "c" for each in given) or any(attribute.type in (5, 10) for attribute in node.attribute):
            raise Refused(f"{name}: {reason}")  # a graph inside the node reads values of its own
        run = _Reference(self.onnx, node, operands, self.opset)
        results = iter(enumerate(run.results(f"{name}: {reason}")))
        nodes: list[Node | None] = []
        for used in node.output:
            if not used:
                nodes.append(None)
                continue
            k, (shape, kind) = next(results)
            call = lambda *x, k=k: run(x)[k]  # noqa: E731
            nodes.append(self.b.opaque(name, given, call, shape, kind, f"{name} {k} {run.text} ({reason})"))
        return nodes


class _Reference:
    """One node as a model of its own, run by ONNX's reference evaluator."""

    def __init__(self, onnx: Any, node: Any, operands: Sequence[Node | None], opset: int) -> None:
        self.onnx = onnx
        types = {"f": 1, "i": 7, "b": 9}
        self.inputs = [f"i{k}" for k, each in enumerate(operands) if each is not None]
        self.types = [
            {1: np.float32, 7: np.int64, 9: np.bool_}[types[each.kind]] for each in operands if each is not None
        ]
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        del copy.input[:]
        copy.input.extend("" if each is None else f"i{k}" for k, each in enumerate(operands))
        self.outputs = [name for name in node.output if name]
        infos = [
            onnx.helper.make_tensor_value_info(f"i{k}", types[each.kind], each.shape)
            for k, each in enumerate(operands)
            if each is not None
        ]
        ends = [onnx.helper.make_empty_tensor_value_info(name) for name in self.outputs]
        graph = onnx.helper.make_graph([copy], "call", infos, ends)
        version = onnx.helper.make_opsetid(node.domain, opset if node.domain in DOMAINS else 1)
        self.model = onnx.helper.make_model(graph, opset_imports=[version])
        self.text = str(sorted((a.name, str(onnx.helper.get_attribute_value(a))) for a in node.attribute))

    def results(self, refusal: str) -> list[tuple[tuple[int, ...], Any]]:
        """Size and kind of every result, by ONNX's own inference."""
        try:
            inferred = self.onnx.shape_inference.infer_shapes(self.model, strict_mode=True)
        except Exception:  # its errors are those of C++
            raise Refused(refusal) from None
        found = []
        for each in inferred.graph.output:
            tensor = each.type.tensor_type
            known = tensor.HasField("shape") and all(d.HasField("dim_value") for d in tensor.shape.dim)
            if not known or tensor.elem_type not in ONNX_KINDS:
                raise Refused(refusal)
            found.append((tuple(d.dim_value for d in tensor.shape.dim), ONNX_KINDS[tensor.elem_type]))
        return found

    def __call__(self, operands: Sequence[Any]) -> list[Any]:
        """The values of the results."""
        import torch

        reference = needed("onnx.reference").ReferenceEvaluator(self.model)
        feeds: dict[str, Any] = {
            name: np.asarray(x).astype(kind) for name, x, kind in zip(self.inputs, operands, self.types, strict=True)
        }
        return [torch.from_numpy(np.array(each)) for each in reference.run(None, feeds)]


def _uses(graph: Any, onnx: Any) -> dict[str, str]:
    """What constants of reals are, by the calls that read them."""
    uses: dict[str, str] = {}
    nodes = [(node, ONNX[node.op_type]) for node in _all_nodes(graph, onnx) if node.op_type in ONNX]
    made_of_weights = {name for node, entry in nodes if entry.weights for name in node.output}

    def note(name: str, use: str) -> None:
        if name and (name not in uses or TRAINED.index(use) > TRAINED.index(uses[name])):
            uses[name] = use

    for node, entry in reversed(nodes):  # what carries a weight comes before the call that uses it
        for k, name in enumerate(node.input):
            if k in entry.weights:
                note(name, "weight")
            elif k in entry.statistics:
                note(name, "statistic")
            elif k in entry.perhaps:
                note(name, "bias" if entry.adds and made_of_weights & set(node.input) else "perhaps")
            if k < entry.carries and node.output[0] in uses:
                note(name, uses[node.output[0]])
    return uses


def _all_nodes(graph: Any, onnx: Any) -> Any:
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from _all_nodes(attribute.g, onnx)
        yield node


def _plain(value: Any) -> Any:
    """Text instead of bytes, lists instead of what protobuf calls them."""
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    return value
