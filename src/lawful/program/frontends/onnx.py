"""ONNX files: the same table; what follows from sizes and constants alone is folded, known conditions are taken.

What is trained is decided by use (`onnx_weights`). A program has one size: `sizes` fill what the file leaves open, and
`tensors` may be weights of other sizes than the file's, where channels have left.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lawful.errors import InvalidNetwork, LawfulError
from lawful.extras import needed
from lawful.program.builder import Builder
from lawful.program.frontends.onnx_weights import DOMAINS, OnnxWeights, entry_of, inner_graphs, read_weights
from lawful.program.operators.factory import ONNX_KINDS
from lawful.program.passes.patterns import recognise
from lawful.program.program import Node, Program
from lawful.program.table import MAX_NUMBERS, Entry, Refused, TooLarge, TooShort

# A call that is run although nobody understands it must give the same twice.
RANDOM = (
    "Bernoulli",
    "Dropout",
    "Multinomial",
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
)
MOST_STEPS = 256  # of a loop that is written out, as of a recurrence,
MOST_CALLS = 100_000  # and of nodes that are read with all loops written out: a body in a body has 256 times 256 steps


def read_onnx(
    model: Any,
    sizes: Mapping[str, Sequence[int]] | None = None,
    values: Mapping[str, Any] | None = None,
    **settings: Any,
) -> Program:
    """The program of an ONNX file (or `ModelProto`).

    `sizes` are those of inputs whose sizes the file leaves open; `values` make an input a constant (a sampling rate, a
    length), so that what depends on it alone is known. `settings` are fields of `OnnxSettings`.
    """
    chosen = OnnxSettings(**settings)
    walk, results = _walk(model, sizes, values, chosen)
    program = walk.b.finish(results)
    return recognise(program, chosen.exact)


def read_statements(
    model: Any,
    sizes: Mapping[str, Sequence[int]] | None = None,
    values: Mapping[str, Any] | None = None,
    **settings: Any,
) -> tuple[Program, list[SizeStatement]]:
    """What the nodes of a file state of sizes, and a program in which the values that they speak of are outputs."""
    walk, _ = _walk(model, sizes, values, OnnxSettings(**settings))
    nodes = [node for statement in walk.statements for node in (statement.source, *statement.results)]
    return walk.b.finish(nodes), walk.statements


@dataclass(frozen=True)
class OnnxSettings:
    """How a file is read.

    `outputs` are names, all outputs unless they are given. `tensors` are leaves instead of the file's own under these
    names, and may have other sizes: then `stated` are the sizes that nodes state, by their first outputs. `samples`
    (a, b) reads sizes that are written for a samples for b. `load` gives the numbers of a tensor. Without `opaque`, a
    call that the table does not know is refused. `most` is how many constants a call may make of a few. `exact` is for
    exact arithmetic, in which no constant is rounded.
    """

    outputs: Sequence[str] | None = None
    weights: OnnxWeights | None = None
    tensors: Mapping[str, Any] = field(default_factory=dict)
    stated: Mapping[str, Sequence[int]] = field(default_factory=dict)
    samples: tuple[int, int] | None = None
    load: Callable[[Any], Any] | None = None
    opaque: bool = True
    most: float = math.inf
    exact: bool = False


@dataclass(frozen=True, eq=False)
class SizeStatement:
    """Sizes that a node states: of its result, or of its parts along an axis.

    `written` are the numbers in the file, None for one that is worked out from the sizes of inputs; None if all are.
    """

    name: str
    source: Node
    results: tuple[Node, ...]
    written: tuple[int | None, ...] | None
    axis: int | None


def _walk(
    model: Any, sizes: Mapping[str, Sequence[int]] | None, values: Mapping[str, Any] | None, settings: OnnxSettings
) -> tuple[_Walk, list[Node]]:
    onnx = needed("onnx")
    if isinstance(model, (str, Path)):
        source, model = Path(model).name, onnx.load(str(model))
    else:
        source = model.graph.name
    opset = next((version.version for version in model.opset_import if version.domain in DOMAINS[:2]), 1)
    walk = _Walk(Builder(source, exact=settings.exact), opset, onnx, settings, model)
    walk.b.most, walk.b.largest = settings.most, MAX_NUMBERS
    scope: dict[str, Any] = {"": None}
    initializers = {tensor.name for tensor in model.graph.initializer}
    for entry in model.graph.input:
        if entry.name not in initializers:
            scope[entry.name] = walk.input(entry, dict(sizes or {}), dict(values or {}))
    wanted = [output.name for output in model.graph.output] if settings.outputs is None else list(settings.outputs)
    walk.graph(model.graph, scope, set(wanted))
    missing = next((name for name in wanted if name not in scope), None)
    if missing is not None:  # a second result of a node, which its entry does not give
        raise Refused(f"the output {missing[:80]!r} is not computed by {_made_by(model.graph, missing)}")
    results = [scope[name] for name in wanted]
    return walk, [result for result in results if isinstance(result, Node)]


def real_outputs(graph: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The outputs that are real numbers (those that go into a dictionary, too), and what is left out of the others."""
    makers = {name: node for node in graph.node for name in node.output}
    outputs: list[str] = []
    left: list[str] = []
    for entry in graph.output:
        maker = makers.get(entry.name)
        kind = entry.type.tensor_type.elem_type
        if maker is not None and maker.op_type == "ZipMap":
            outputs.append(maker.input[0])
            left.append(f"the names of classes in output {entry.name[:80]!r} (ZipMap)")
        elif entry.type.WhichOneof("value") in (None, "tensor_type") and (not kind or ONNX_KINDS.get(kind) == "f"):
            outputs.append(entry.name)
        else:
            left.append(f"output {entry.name[:80]!r} (labels)")
    if not outputs:
        raise Refused("none of its outputs is a tensor of real numbers")
    return tuple(outputs), tuple(left)


def whole_inputs(graph: Any) -> set[str]:
    """The inputs that hold whole numbers: by their type, or since nothing reads them but casts to such a type."""
    inputs = set()
    for entry in graph.input:
        readers = [node for node in graph.node if entry.name in node.input]
        targets = [
            attribute.i
            for node in readers
            if node.op_type == "Cast"
            for attribute in node.attribute
            if attribute.name == "to"
        ]
        casts = bool(readers) and len(targets) == len(readers) and all(ONNX_KINDS.get(to) == "i" for to in targets)
        if casts or entry.type.tensor_type.elem_type in (6, 7):  # int32 and int64: the others are pictures
            inputs.add(entry.name)
    return inputs


class _Walk:
    """Nodes of a file, one after the other."""

    def __init__(self, builder: Builder, opset: int, onnx: Any, settings: OnnxSettings, model: Any) -> None:
        self.b, self.opset, self.onnx, self.model = builder, opset, onnx, model
        self.declared: dict[str, int] | None = None  # types of values, once a call needs them
        self.settings = settings
        self.load = settings.load or onnx.numpy_helper.to_array
        self.weights = settings.weights or read_weights(model.graph, self.load)
        self.owners: dict[str, Any] = {}  # the tensor that has a name: graphs inside nodes may use one twice
        self.makers: dict[str, Any] = {}
        self.sized: set[str] = set()  # what follows from the sizes of values
        self.statements: list[SizeStatement] = []

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
            shape = tuple(axis.dim_value if axis.dim_value > 0 else -1 for axis in entry.type.tensor_type.shape.dim)
            if any(n < 0 for n in shape):
                raise LawfulError(f"the size of the input {name} is open in the file: give it")
        try:
            return self.b.input(name, shape, kind)
        except TooLarge as error:
            raise InvalidNetwork(f"its input {name[:80]!r} {error}") from None

    def graph(self, graph: Any, scope: dict[str, Any], wanted: set[str]) -> None:
        """The nodes of a graph on which something wanted depends, into a scope of values by name."""
        used, nodes = set(wanted), []
        # From the outputs back: what no wanted value reads need not be supported.
        for node in reversed(graph.node):
            if used & set(node.output):
                used |= _reads(node)
                nodes.append(node)
        for tensor in graph.initializer:
            if tensor.name in used:
                try:
                    scope[tensor.name] = self.tensor(tensor.name, tensor)
                except TooLarge as error:
                    raise InvalidNetwork(f"its tensor {tensor.name[:80]!r} {error}") from None
        for node in reversed(nodes):
            results = self._call_entry(node, scope)
            for name, value in zip(node.output, results, strict=False):
                scope[name], self.makers[name] = value, node
            entry = entry_of(node)
            if (entry is not None and entry.sizes_alone) or self.sized & set(node.input):
                self.sized |= set(node.output)
            if entry is not None and entry.states:
                self.state(entry, node, scope)

    def state(self, entry: Entry, node: Any, scope: dict[str, Any]) -> None:
        """Note what a node states of sizes."""
        source, results = scope[node.input[0]], tuple(scope[name] for name in node.output if name)
        attributes = {attribute.name: self.onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}
        written = self._written(node.input[1], scope) if len(node.input) > 1 else attributes.get(entry.states)
        axis = None if entry.states_result else int(attributes.get("axis", 0)) % source.rank
        if all(isinstance(result, Node) for result in results):
            whole = None if written is None else tuple(written)
            self.statements.append(SizeStatement(node.output[0], source, results, whole, axis))

    def _written(self, name: str, scope: dict[str, Any]) -> list[int | None] | None:
        value = self.b.value(scope[name])
        if name not in self.sized:
            return None if value is None else [int(n) for n in value.ravel()]
        maker = self.makers.get(name)
        entry = None if maker is None else entry_of(maker)
        if maker is None or entry is None or not entry.joins:
            return None
        parts = [self._written(part, scope) if part not in self.sized else [None] for part in maker.input]
        return [size for part in parts for size in part or ()]

    def tensor(self, name: str, tensor: Any) -> Node:
        """A tensor of the file, by its use: a parameter, a statistic or a constant."""
        trained = name in self.weights.trained
        first = self.owners.setdefault(name, tensor)
        if trained or name in self.weights.kept:
            if first is not tensor and first.SerializeToString() != tensor.SerializeToString():
                raise Refused(f"two tensors have the name {name[:80]!r}, in graphs inside nodes")
            replacement = self.settings.tensors.get(name)
            array = self._array_of(name, tensor) if replacement is None else replacement
            return self.b.parameter(name, array) if trained else self.b.buffer(name, array)
        return self.b.constant(self._array_of(name, tensor))

    def _array_of(self, name: str, tensor: Any) -> Any:
        if name not in (*self.weights.trained, *self.weights.kept):
            self.b.bound_shape(tensor.dims)
        array = self.load(tensor)
        # bfloat16, which NumPy does not have: float32 holds it exactly.
        if tensor.data_type == 16:
            return array.astype(np.float32)
        if array.dtype.kind in "OUS":
            return _codes(array)
        if array.dtype.kind not in "biuf":
            raise Refused(f"{name} holds {array.dtype}, no numbers that are read")
        return array

    def _call_entry(self, node: Any, scope: dict[str, Any]) -> Sequence[Any]:
        """The results of a node; whatever is wrong with it is said with its name."""
        place = self.b.place = place_of(node)
        missing = next((name for name in node.input if name not in scope), None)
        if missing is not None:
            raise InvalidNetwork(f"{place} reads {missing[:80]!r} before it is computed: a cycle, or a missing node")
        try:
            return self.node(node, scope)
        # Before LawfulError, of which it is a kind: the size that a file claims is to be named.
        except TooLarge as error:
            raise InvalidNetwork(f"the result of {place} {error}") from None
        except LawfulError as error:
            message = str(error)
            raise type(error)(message if message.startswith("node ") else f"{place}: {message}") from None
        # A file may call an entry with any operands and attributes: errors of Python are the file's, no defect of ours.
        except (TypeError, ValueError, IndexError, KeyError, AttributeError, ArithmeticError) as error:
            reason = (str(error).strip().splitlines() or [""])[0][:120]
            raise Refused(f"{place} is used in an unsupported way ({reason})") from None

    def node(self, node: Any, scope: dict[str, Any]) -> Sequence[Any]:
        """The results of a node."""
        self.b.step += 1
        if self.b.step > MOST_CALLS:
            raise InvalidNetwork(f"more than {MOST_CALLS:,} calls once its loops and branches are written out")
        attributes = {
            attribute.name: _plain(self.onnx.helper.get_attribute_value(attribute)) for attribute in node.attribute
        }
        if node.op_type == "Constant":
            return [self._constant(node.output[0], attributes)]
        if node.op_type == "If":
            return self._branch(scope[node.input[0]], attributes, scope)
        if node.op_type == "Loop":
            return self._loop(node, attributes["body"], scope)
        if node.op_type == "Scan":
            return self._scan(node, attributes, scope)
        operands = [scope[name] for name in node.input]
        # Optional operands that are left out at the end are absent, not None: entries have defaults for them.
        while operands and operands[-1] is None:
            operands.pop()
        entry = entry_of(node)
        try:
            if entry is None:
                raise Refused(_explain_unknown(node))
            if entry.states:
                operands, attributes = self._restate(entry, node, operands, attributes)
            results = entry.build(self.b, *operands, **self._arguments(entry, node, attributes))
        # Never opaque: the first is refused before memory is asked for, the second says to try a larger input.
        except (TooLarge, TooShort):
            raise
        except Refused as reason:
            return self._opaque(node, operands, str(reason), known=entry is not None)
        return results if isinstance(results, (list, tuple)) else [results]

    def _restate(
        self, entry: Entry, node: Any, operands: list[Any], attributes: dict[str, Any]
    ) -> tuple[list[Any], dict[str, Any]]:
        """Sizes that a node states: others where they are given, and those of as many samples as there are."""
        new = self.settings.stated.get(node.output[0])
        if new is None and self.settings.samples is not None and entry.states_result and len(operands) > 1:
            value = self.b.value(operands[1])
            written, there = self.settings.samples
            # A 0 in it copies a size of the operand, and then says itself what it means.
            if value is not None and value.size and value.ravel()[0] == written != there and 0 not in value:
                new = [there, *value.ravel()[1:].tolist()]
        if new is None:
            return operands, attributes
        gone = (entry.states, "allowzero", "num_outputs")
        left = {name: value for name, value in attributes.items() if name not in gone}
        return [operands[0], self.b.constant(np.array(new, dtype=np.int64))], left

    def _constant(self, name: str, attributes: dict[str, Any]) -> Node:
        (key, value), *_ = attributes.items()
        return self.tensor(name, value) if key == "value" else self.b.constant(np.asarray(value))

    def _branch(self, condition: Node, attributes: dict[str, Any], scope: dict[str, Any]) -> list[Any]:
        """The branch that is taken, if sizes decide it; else both, and a choice between results of one size."""
        known = self.b.value(condition)
        if known is not None:
            return self._inner(attributes["then_branch" if bool(known.ravel()[0]) else "else_branch"], scope)
        pairs = list(zip(*(self._inner(attributes[f"{name}_branch"], scope) for name in ("then", "else")), strict=True))
        if any(not isinstance(result, Node) for pair in pairs for result in pair) or any(
            (one.shape, one.kind) != (other.shape, other.kind) for one, other in pairs
        ):
            raise Refused("If with a condition that is data, between results of different sizes")
        return [self.b.where(self.b.reshape(condition, ()), one, other) for one, other in pairs]

    def _inner(self, graph: Any, scope: dict[str, Any], given: Sequence[Any] = ()) -> list[Any]:
        """The results of a graph inside a node, which reads the values outside and what it is given."""
        inner = {**scope, **dict(zip((formal.name for formal in graph.input), given, strict=False))}
        self.graph(graph, inner, {result.name for result in graph.output})
        return [inner[result.name] for result in graph.output]

    def _loop(self, node: Any, body: Any, scope: dict[str, Any]) -> list[Any]:
        """A loop written out; when it ends must follow from sizes and constants."""
        times, condition, *state = (scope[name] for name in node.input)
        most = None if times is None else int(self.b.numbers(times, "how often Loop runs")[0])
        rows: list[list[Any]] = []
        for step in range(MOST_STEPS + 1):
            goes_on = condition is None or self.b.value(condition)
            if goes_on is None:
                raise Refused("Loop with a condition that is data")
            # ONNX tests before each step, the first one too; scanned results come after the state.
            if not goes_on or step == most:
                return [*state, *(self._stack(column, 0) for column in zip(*rows, strict=True))]
            condition, *results = self._inner(body, scope, [self.b.constant(np.int64(step)), condition, *state])
            state, row = results[: len(state)], results[len(state) :]
            rows.append(row)
        raise Refused(f"Loop of more than {MOST_STEPS} steps")

    def _scan(self, node: Any, attributes: dict[str, Any], scope: dict[str, Any]) -> list[Any]:
        """A body for each entry along an axis, written out."""
        operands, count = [scope[name] for name in node.input], attributes["num_scan_inputs"]
        state, sources = operands[: len(operands) - count], operands[len(operands) - count :]
        axes = attributes.get("scan_input_axes") or [0] * count
        turned = attributes.get("scan_input_directions") or [0] * count
        steps = sources[0].shape[axes[0]]
        if self.opset < 9 or steps > MOST_STEPS:
            raise Refused(f"Scan of {steps} steps (at most {MOST_STEPS}), or of an old version")
        rows: list[list[Any]] = []
        for step in range(steps):
            parts = [
                self._entry(source, axis, steps - 1 - step if back else step)
                for source, axis, back in zip(sources, axes, turned, strict=True)
            ]
            results = self._inner(attributes["body"], scope, [*state, *parts])
            state, row = results[: len(state)], results[len(state) :]
            rows.append(row)
        columns = list(zip(*rows, strict=True))
        if not columns:
            raise Refused("Scan of no steps")
        ends = attributes.get("scan_output_axes") or [0] * len(columns)
        back = attributes.get("scan_output_directions") or [0] * len(columns)
        return [
            *state,
            *(self._stack(c[::-1] if r else c, axis) for c, axis, r in zip(columns, ends, back, strict=True)),
        ]

    def _entry(self, x: Node, axis: int, position: int) -> Node:
        part = self.b.slice(x, axis, slice(position, position + 1))
        return self.b.reshape(part, [n for k, n in enumerate(x.shape) if k != axis % x.rank])

    def _stack(self, parts: Sequence[Node], axis: int) -> Node:
        return self.b.move(lambda *arrays: np.stack(arrays, axis), *parts)

    def _arguments(self, entry: Entry, node: Any, attributes: dict[str, Any]) -> dict[str, Any]:
        """The attributes that an entry knows; others must have their default."""
        known = entry.parameters
        arguments: dict[str, Any] = {"opset": self.opset} if "opset" in known else {}
        if "outputs" in known:
            arguments["outputs"] = len(node.output)
        if "types" in known:
            arguments["types"] = [self._type(name) for name in node.input]
        for name, value in attributes.items():
            if name in known:
                arguments[name] = self._array(value)
            elif value != self._default(node, name):
                raise Refused(f"its attribute {name}={value}")
        for name in known.keys() - arguments.keys():  # left out and written down, a number is the same float32
            default = self._default(node, name)
            if isinstance(default, float):
                arguments[name] = default
        return arguments

    def _array(self, value: Any) -> Any:
        return self.onnx.numpy_helper.to_array(value) if type(value).__name__ == "TensorProto" else value

    def _default(self, node: Any, name: str) -> Any:
        try:
            domain = "" if node.domain in DOMAINS[:2] else node.domain
            schema = self.onnx.defs.get_schema(node.op_type, self.opset, domain)
        except self.onnx.defs.SchemaError:
            return None
        attribute = schema.attributes.get(name)
        value = attribute.default_value if attribute is not None else None
        return None if value is None or not value.type else _plain(self.onnx.helper.get_attribute_value(value))

    def _opaque(self, node: Any, operands: Sequence[Node | None], reason: str, known: bool) -> list[Any]:
        """A call that only ONNX's own reference can run; its sizes must follow from those of its operands."""
        present = [operand for operand in operands if operand is not None]
        name = node.op_type
        if name in RANDOM or any(isinstance(operand, list) or operand.kind == "c" for operand in present):
            raise Refused(reason)
        if inner_graphs(node) or any(attribute.graphs for attribute in node.attribute):
            raise Refused(reason)  # a graph inside the node reads values of its own
        run = _Reference(self.onnx, node, operands, self.opset, self._types(node, operands, reason))
        if present and all(operand.op == "constant" for operand in present):
            return self._fold_constants(run, present, reason)
        if not self.settings.opaque:
            raise Refused(reason)
        results = iter(enumerate(run.results(reason)))
        reason = reason if known else "no entry"
        nodes: list[Node | None] = []
        for used in node.output:
            if not used:
                nodes.append(None)
                continue
            k, (shape, kind) = next(results)
            call = _Result(run, k)
            nodes.append(self.b.opaque(name, present, call, shape, kind, f"{name} {k} {run.text} ({reason})"))
        return nodes

    def _type(self, name: str) -> int:
        """The type that the file gives a value, or 0; of tensors it is written down, else it is inferred."""
        if name in self.owners:
            return int(self.owners[name].data_type)
        if self.declared is None:
            try:
                inferred = self.onnx.shape_inference.infer_shapes(self.model)
            except Exception:  # its errors are those of C++, and of models beyond 2 GB
                inferred = self.model
            graph = inferred.graph
            self.declared = {info.name: info.type.tensor_type.elem_type for info in (*graph.input, *graph.value_info)}
            self.declared |= {initializer.name: initializer.data_type for initializer in graph.initializer}
        return self.declared.get(name, 0)

    def _types(self, node: Any, operands: Sequence[Node | None], refusal: str) -> list[int]:
        """The types of the operands: bits of integers mean nothing without them."""
        result = []
        for name, operand in zip(node.input, operands, strict=False):
            if operand is not None:
                stated = self._type(name)
                if ONNX_KINDS.get(stated) != operand.kind:
                    stated = {"f": 1, "b": 9}.get(operand.kind, 0)
                if not stated:
                    raise Refused(refusal)
                result.append(stated)
        return result

    def _fold_constants(self, run: _Reference, given: Sequence[Node], reason: str) -> list[Any]:
        """The results of a call of constants."""
        try:
            return [self.b.constant(result) for result in run([constant["value"] for constant in given])]
        except Refused:
            raise Refused(reason) from None


class _Reference:
    """One node as a model of its own, run by ONNX's reference evaluator."""

    def __init__(self, onnx: Any, node: Any, operands: Sequence[Node | None], opset: int, types: Sequence[int]) -> None:
        self.onnx = onnx
        self.inputs = [f"i{k}" for k, operand in enumerate(operands) if operand is not None]
        self.types = [onnx.helper.tensor_dtype_to_np_dtype(number) for number in types]
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        del copy.input[:]
        copy.input.extend("" if operand is None else f"i{k}" for k, operand in enumerate(operands))
        self.outputs = [name for name in node.output if name]
        infos = [
            onnx.helper.make_tensor_value_info(name, kind, operand.shape)
            for name, kind, operand in zip(self.inputs, types, (x for x in operands if x is not None), strict=True)
        ]
        ends = [onnx.helper.make_empty_tensor_value_info(name) for name in self.outputs]
        graph = onnx.helper.make_graph([copy], "call", infos, ends)
        version = onnx.helper.make_opsetid(node.domain, opset if node.domain in DOMAINS[:2] else 1)
        self.model = onnx.helper.make_model(graph, opset_imports=[version])
        self.text = str(sorted((a.name, str(onnx.helper.get_attribute_value(a))) for a in node.attribute))

    def results(self, refusal: str) -> list[tuple[tuple[int, ...], Any]]:
        """Size and kind of every result, by ONNX's own inference."""
        try:
            inferred = self.onnx.shape_inference.infer_shapes(self.model, strict_mode=True)
        except Exception:  # its errors are those of C++
            raise Refused(refusal) from None
        result = []
        for info in inferred.graph.output:
            tensor = info.type.tensor_type
            known = tensor.HasField("shape") and all(d.HasField("dim_value") for d in tensor.shape.dim)
            if not known or tensor.elem_type not in ONNX_KINDS:
                raise Refused(refusal)
            result.append((tuple(d.dim_value for d in tensor.shape.dim), ONNX_KINDS[tensor.elem_type]))
        return result

    def __call__(self, operands: Sequence[Any]) -> list[Any]:
        """The values of the results."""
        reference = needed("onnx.reference").ReferenceEvaluator(self.model)
        feeds: dict[str, Any] = {
            name: np.asarray(x).astype(kind) for name, x, kind in zip(self.inputs, operands, self.types, strict=True)
        }
        try:
            return [np.array(result) for result in reference.run(None, feeds)]
        except Exception as error:  # the reference raises whatever it meets
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:120]
            raise Refused(f"{self.model.graph.node[0].op_type}: ONNX's reference cannot run it ({reason})") from None


@dataclass(frozen=True, eq=False)
class _Result:
    """One result of a node that only the reference can run; of arrays, and no PyTorch needed."""

    run: _Reference
    number: int
    of_arrays = True

    def __call__(self, *operands: Any) -> NDArray[Any]:
        return self.run(operands)[self.number]  # type: ignore[no-any-return]


def _made_by(graph: Any, name: str) -> str:
    maker = next((node for node in graph.node if name in node.output), None)
    return "any node" if maker is None else f"what is read of {place_of(maker)}"


def _reads(node: Any) -> set[str]:
    """The names that a node and the graphs inside it read."""
    names = set(node.input)
    for graph in inner_graphs(node):
        for inner in graph.node:
            names |= _reads(inner)
        names |= {output.name for output in graph.output}
    return names


def _codes(texts: NDArray[Any]) -> NDArray[np.int64]:
    """Texts (names of classes) as numbers that stand for them: equal for equal texts."""
    flat = [text if isinstance(text, bytes) else str(text).encode() for text in texts.ravel().tolist()]
    codes = [int.from_bytes(hashlib.sha256(text).digest()[:7], "big") for text in flat]
    return np.array(codes, dtype=np.int64).reshape(texts.shape)


def place_of(node: Any) -> str:
    """A node of a file, in words."""
    return f"node {(node.name or (node.output[0] if node.output else ''))[:80]!r} ({node.op_type[:40]})"


def _explain_unknown(node: Any) -> str:
    """Why a call is not read, and what to do about it."""
    if node.domain == "ai.onnx.ml":
        return "is no layer of a network, but a model of its own (trees, a support vector machine), and is not read"
    if node.domain not in DOMAINS:
        return (
            f"is not supported (domain {node.domain[:40]!r}); give the model as it was exported, before a runtime's "
            "optimisation fused its nodes"
        )
    random = "is not supported, as it draws random numbers" if node.op_type in RANDOM else "is not supported"
    return f"{random}; give the PyTorch module itself (module:factory), or a graph without it"


def _plain(value: Any) -> Any:
    """Text instead of bytes, lists instead of what protobuf calls them."""
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value]
    return value
