"""ONNX graphs become networks, operator by operator."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from lawful.errors import InvalidNetwork, LawfulError, Unsupported
from lawful.network.assemble import Assembly, Value, sizes
from lawful.network.dag import Dag
from lawful.network.formats import onnx_file, onnx_graph, onnx_tails
from lawful.network.formats.limits import check_entries
from lawful.network.formats.onnx_constants import COMPUTED, computed
from lawful.network.formats.onnx_operands import Operand, Reader
from lawful.network.formats.onnx_operators import OTHERS, PLAIN, WEIGHED
from lawful.network.formats.onnx_options import options_of
from lawful.network.formats.onnx_refusals import DOMAINS, unread
from lawful.network.formats.onnx_regrouping import PLAIN_MOVES, moves, split
from lawful.network.formats.onnx_tails import CutOff
from lawful.network.mlp import Mlp
from lawful.network.names import check_names
from lawful.network.reading import Reading, TensorReading, assumed_in_training, carrying, listed, rounded_inside

MOVES = moves()
OPERATORS = {**WEIGHED, **PLAIN, **MOVES, **OTHERS}
BATCH = 3  # samples with which sizes are computed where the file leaves the batch open
ROWS = "the first axis of the input, of size"
FLOATS = ("float", "bfloat")
REAL = (0, 1, 10, 11, 16)  # TensorProto's undefined, FLOAT, FLOAT16, DOUBLE and BFLOAT16
WHOLE = "its inputs are whole numbers: answers are about real ones"


Known = dict[str, Operand | CutOff]


def load(path: Path, *, input_shape: tuple[int, ...] | None = None, drop_useless: bool = False) -> Mlp | Dag:
    """The network of an ONNX file; its first dimension is the batch, unless the file has only one sample."""
    model = onnx_graph.load(path)
    return network_of(model, path.parent, input_shape, drop_useless)


def network_of(
    model: Any, folder: Path, input_shape: tuple[int, ...] | None = None, drop_useless: bool = False
) -> Mlp | Dag:
    """The network of a model; tensors in other files lie in the folder."""
    graph = model.graph
    check_entries(len(graph.node))
    check_names(entry.name for entry in (*graph.initializer, *graph.node, *graph.input, *graph.output))
    check_names(name for node in graph.node for name in node.output)
    if graph.sparse_initializer:
        raise Unsupported("sparse initializers are not supported")
    constants = {proto.name: onnx_file.array(proto, folder) for proto in graph.initializer}
    inputs = [entry for entry in graph.input if entry.name not in constants]
    if len(inputs) != 1 or not graph.output:
        raise Unsupported(f"{len(inputs)} inputs and {len(graph.output)} outputs: one of each is supported")
    obstacles: list[tuple[int, LawfulError]] = []
    for batch, shape in _ways(inputs[0], input_shape):
        ends = frozenset(entry.name for entry in graph.output)
        reader = Reader(Assembly(shape), folder, batch, onnx_file.opset_of(model), outputs=ends)
        known: Known = dict(constants)
        try:
            found = _run(reader, model, inputs[0], known, drop_useless)
        except LawfulError as error:
            obstacles.append((len(known), error))
            continue
        if batch == BATCH and any(node.op_type in ("Shape", "Size") for node in graph.node):
            twin = Reader(Assembly(shape), folder, BATCH + 1, reader.opset, outputs=ends)
            again = _run(twin, model, inputs[0], dict(constants), drop_useless)
            if not np.array_equal(found.theta, again.theta):
                raise Unsupported("computes with the size of the batch")
        if batch not in (0, BATCH) or (batch == BATCH and _states_batch(inputs[0])):
            found = carrying(found, found.reading and found.reading.assuming(f"{ROWS} {batch}, counts samples"))
        return found
    raise max(obstacles, key=lambda each: each[0])[1]  # of the way that led furthest


def _states_batch(entry: Any) -> bool:
    shape = entry.type.tensor_type.shape.dim
    return len(shape) > 0 and shape[0].HasField("dim_value") and shape[0].dim_value > 0


def _run(reader: Reader, model: Any, entry: Any, known: Known, drop_useless: bool) -> Mlp | Dag:
    constants, name, whole = set(known), entry.name, entry.type.tensor_type.elem_type not in REAL
    known[name] = reader.assembly.input()
    reader.integers = {name} if whole else set()
    used: Counter[str] = Counter()
    for node in model.graph.node:
        _apply(reader, node, known, used, constants)
    value, reading = _result(model, known)
    network = reader.assembly.finish(value, drop_useless=drop_useless)
    twice = [name for name, times in used.items() if times > 1]
    reasons = [*reader.entangled, *(f"{name} is used more than once" for name in twice)]
    layers = _layers(model, used)
    stored = sum(math.prod(each.shape) for each in layers if each.dtype.startswith(FLOATS))
    if network.parameters != stored:
        reasons.append(f"the file holds {stored:,} weights and its graph {network.parameters:,}")
    assumed = (*reading.assumed, *rounded_inside(layers, reader.assembly.casts), *([WHOLE] if whole else []))
    found = Reading(
        "onnx",
        layers,
        assumed,
        reading.ignored,
        tuple(dict.fromkeys(reasons)),
        reading.tail,
        in_training_only=assumed_in_training(twice, [node.op_type for node in model.graph.node]),
        computed=reader.computed,
        template=model,
    )
    return carrying(network, found)


def _result(model: Any, known: Known) -> tuple[Value, Reading]:
    """The tensor that is the network's answer: the only one from which all outputs are made."""
    outputs = {entry.name: known.get(entry.name) for entry in model.graph.output}
    plain = {name: found for name, found in outputs.items() if isinstance(found, Value)}
    cut = {name: found for name, found in outputs.items() if isinstance(found, CutOff)}
    foreign = next((name for name in outputs if name not in plain and name not in cut), None)
    if foreign is not None:
        raise InvalidNetwork(f"its output {foreign[:80]!r} does not come from its input")
    if len(plain) > 1:
        raise Unsupported(f"its outputs {listed(plain)} are different tensors: one is supported")
    if len({id(found.value) for found in cut.values()}) > 1 and not plain:
        raise Unsupported(f"its outputs {listed(cut)} come from different tensors: one is supported")
    ignored = tuple(f"output {name[:80]!r} ({found.operator})" for name, found in cut.items())
    if plain:
        return next(iter(plain.values())), Reading("onnx", ignored=ignored)
    first = next(iter(cut.values()))
    tails = " and ".join(dict.fromkeys(found.operator for found in cut.values()))
    said = f"{tails} at the end is cut off: answers are about its input"
    trails = "".join(f"{found.operator}:{found.trail};" for found in cut.values())
    mark = f" ({hashlib.sha256(trails.encode()).hexdigest()[:8]})" if first.trail or len(cut) > 1 else ""
    tail = first.operator + mark
    return first.value, Reading("onnx", assumed=(said,), ignored=ignored if len(cut) > 1 else (), tail=tail)


def _layers(model: Any, used: Counter[str]) -> tuple[TensorReading, ...]:
    """The initializers that weigh something, in the order in which nodes use them."""
    from onnx import TensorProto

    held = {proto.name: proto for proto in model.graph.initializer}
    found = []
    for name in used:
        kind = TensorProto.DataType.Name(held[name].data_type).lower()
        word = {"float": "float32", "double": "float64"}.get(kind, kind)
        found.append(TensorReading(name, word, tuple(held[name].dims)))
    return tuple(found)


def _ways(entry: Any, given: tuple[int, ...] | None) -> list[tuple[int, tuple[int, ...]]]:
    """How the input may be read: the batch's size (0 for none) and the sizes of a sample."""
    kind = entry.type.tensor_type
    if not kind.HasField("shape"):
        if given is None:
            raise Unsupported("its input size is unknown: give it without the batch, like --input 3,8,8")
        return [(BATCH, given)]
    stated = [dim.dim_value if dim.HasField("dim_value") and dim.dim_value > 0 else None for dim in kind.shape.dim]
    if len(stated) == 1:
        return [(0, _filled(stated, given))]
    if not stated:
        raise Unsupported("its input is a single number: the batch and at least one size are needed")
    batch, inner = stated[0], _filled(stated[1:], given)
    if batch is None:
        return [(BATCH, inner)]
    return [(batch, inner), (0, (batch, *inner))] if batch > 1 else [(0, (1, *inner))]


def _filled(stated: list[int | None], given: tuple[int, ...] | None) -> tuple[int, ...]:
    if given is not None:
        if len(given) != len(stated) or any(size not in (None, want) for size, want in zip(stated, given, strict=True)):
            words = "×".join("?" if size is None else str(size) for size in stated)
            raise InvalidNetwork(f"its input is {words}, not {sizes(given)}")
        return given
    if any(size is None for size in stated):
        raise Unsupported("its input size is left open: give it without the batch, like --input 3,8,8")
    return tuple(size for size in stated if size is not None)


def _apply(reader: Reader, node: Any, known: Known, used: Counter[str], constants: set[str]) -> None:
    place = f"node {(node.name or (node.output[0] if node.output else ''))[:80]!r} ({node.op_type[:40]})"
    operands: list[Operand | CutOff] = []
    for name in node.input:
        if name and name not in known:
            raise InvalidNetwork(f"{place} reads {name[:80]!r} before it is computed: a cycle, or a missing node")
        operands.append(known[name] if name else None)
    for name in node.output:
        if name and name in known:
            raise InvalidNetwork(f"{place} computes {name[:80]!r}, which exists already")
    try:
        _check_numbers(reader, node)
        results = _results(reader, node, operands)
    except LawfulError as error:
        raise type(error)(f"{place}: {error}") from None
    except (TypeError, ValueError, IndexError, KeyError, AttributeError) as error:
        raise Unsupported(f"{place} is used in an unsupported way ({str(error)[:120]})") from None
    if any(isinstance(operand, Value) for operand in operands) and node.op_type not in PLAIN_MOVES:
        used.update(name for name in node.input if name in constants and np.asarray(known[name]).dtype.kind == "f")
        cut = any(isinstance(result, CutOff) for result in results)
        if node.op_type not in WEIGHED and node.op_type not in PLAIN and not cut:
            reader.entangled.append(f"{node.op_type} shares, fixes or folds weights")
    for name, result in zip(node.output, results, strict=False):
        known[name] = result
        if isinstance(result, Value) and node.op_type != "Cast" and not reader.integers.isdisjoint(node.input):
            reader.integers.add(name)


def _check_numbers(reader: Reader, node: Any) -> None:
    """Whole numbers round what is divided, and overflow: they may be moved, and cast, but not computed with."""
    if node.op_type in ("Cast", "Shape", "Split", "Identity", *MOVES) or reader.integers.isdisjoint(node.input):
        return
    raise Unsupported("computes with whole numbers before they are cast to real ones")


def _results(reader: Reader, node: Any, operands: list[Operand | CutOff]) -> list[Operand | CutOff]:
    pending = [operand for operand in operands if isinstance(operand, Value)]
    if any(isinstance(operand, CutOff) for operand in operands):
        return list(onnx_tails.follow(reader, node, operands))
    if node.domain not in DOMAINS:
        raise unread(node)
    if not pending:
        return _folded(reader, node, operands)
    options = options_of(node, reader.opset)
    if node.op_type in onnx_tails.TAILS:
        return list(onnx_tails.begin(reader, node, options, operands, pending[0]))
    plain = [operand for operand in operands if not isinstance(operand, CutOff)]
    if node.op_type == "Shape":
        whole = reader.whole(pending[0].shape)
        return [np.array(whole[options.get("start", 0) : options.get("end")], dtype=np.int64)]
    if node.op_type == "Split":
        return list(split(reader, options, len(node.output), *plain))
    if node.op_type not in OPERATORS:
        raise unread(node)
    try:
        return [OPERATORS[node.op_type](reader, options, *plain)]
    except Unsupported:
        if node.op_type == "Reshape" and node.output[0] in reader.outputs and len(plain) > 1:
            sizes_asked = np.asarray(plain[1]).ravel().tolist() if not isinstance(plain[1], Value) else []
            if sizes_asked in ([-1], [-1, 1]):  # some tools stack the outputs of all samples at the end
                return [CutOff(pending[0], "Reshape", str(sizes_asked))]
        raise


def _folded(reader: Reader, node: Any, operands: list[Any]) -> list[Operand | CutOff]:
    """Numbers that do not depend on the input."""
    if node.op_type != "Constant" and node.op_type not in COMPUTED:
        raise unread(node)
    results = computed(node, operands, reader.opset, reader.folder)
    if node.op_type != "Constant" and any(each.dtype.kind == "f" and each.size > 1 for each in results):
        reader.entangled.append(f"{node.op_type} computes a weight from others")
    return list(results)
