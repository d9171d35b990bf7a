"""ONNX graphs become networks, operator by operator."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from lawful.errors import InvalidNetwork, LawfulError, Unsupported
from lawful.network.assemble import Assembly, Value, sizes
from lawful.network.dag import Dag
from lawful.network.formats import onnx_file
from lawful.network.formats.limits import check_entries
from lawful.network.formats.onnx_operators import OPERATORS, SUPPORTED, Operand, Reader
from lawful.network.mlp import Mlp
from lawful.network.operations import finite
from lawful.network.reading import Reading, TensorReading, carrying


def load(path: Path, *, input_shape: tuple[int, ...] | None = None, drop_useless: bool = False) -> Mlp | Dag:
    """The network of an ONNX file; its first dimension is the batch."""
    model = onnx_file.parse(path)
    graph = model.graph
    check_entries(len(graph.node))
    if graph.sparse_initializer:
        raise Unsupported("sparse initializers are not supported")
    known: dict[str, Operand] = {
        proto.name: finite(proto.name, onnx_file.tensor(proto, path.parent)) for proto in graph.initializer
    }
    inputs = [entry for entry in graph.input if entry.name not in known]
    if len(inputs) != 1 or len(graph.output) != 1:
        raise Unsupported(f"{len(inputs)} inputs and {len(graph.output)} outputs: one of each is supported")
    batch, shape = _input_shape(inputs[0], input_shape)
    reader = Reader(Assembly(shape), path.parent, batch)
    known[inputs[0].name] = reader.assembly.input()
    for node in graph.node:
        _run(reader, node, known)
    result = known.get(graph.output[0].name)
    if not isinstance(result, Value):
        raise InvalidNetwork(f"its output {graph.output[0].name[:80]!r} does not come from its input")
    network = reader.assembly.finish(result, drop_useless=drop_useless)
    return carrying(network, _reading(model, network.parameters))


def _reading(model: Any, parameters: int) -> Reading:
    """The initializers in the order in which nodes use them, and whether the graph has as many weights."""
    held = {proto.name: proto for proto in model.graph.initializer}
    used = dict.fromkeys(name for node in model.graph.node for name in node.input if name in held)
    layers = tuple(TensorReading(name, _type_name(held[name]), tuple(held[name].dims)) for name in used)
    stored = sum(math.prod(each.shape) for each in layers if each.dtype.startswith(("float", "bfloat", "double")))
    entangled = (
        ()
        if parameters <= stored
        else (f"the file holds {stored:,} weights and its graph {parameters:,}: some are used more than once",)
    )
    return Reading("onnx", layers, entangled=entangled, template=model)


def _type_name(proto: Any) -> str:
    from onnx import TensorProto

    name = TensorProto.DataType.Name(proto.data_type).lower()
    return {"float": "float32", "double": "float64"}.get(str(name), str(name))


def _input_shape(entry: Any, given: tuple[int, ...] | None) -> tuple[int | None, tuple[int, ...]]:
    """The batch size, if fixed, and the other sizes, of which those left open must be given."""
    kind = entry.type.tensor_type
    if not kind.HasField("shape"):
        if given is None:
            raise Unsupported("its input size is unknown: give it without the batch, like --input 3,8,8")
        return None, given
    stated = [dim.dim_value if dim.HasField("dim_value") else None for dim in kind.shape.dim]
    if len(stated) < 2:
        raise Unsupported(f"its input has {len(stated)} dimensions: the batch and at least one more are needed")
    batch, inner = stated[0], stated[1:]
    if given is not None:
        if len(given) != len(inner) or any(size not in (None, want) for size, want in zip(inner, given, strict=True)):
            words = "×".join("?" if size is None else str(size) for size in inner)
            raise InvalidNetwork(f"its input is {words}, not {sizes(given)}")
        return batch, given
    if any(size is None or size < 1 for size in inner):
        raise Unsupported("its input size is left open: give it without the batch, like --input 3,8,8")
    return batch, tuple(size for size in inner if size is not None)


def _run(reader: Reader, node: Any, known: dict[str, Operand]) -> None:
    place = f"node {(node.name or (node.output[0] if node.output else ''))[:80]!r} ({node.op_type[:40]})"
    if node.domain not in ("", "ai.onnx") or node.op_type not in OPERATORS:
        raise Unsupported(f"{place} is not supported; supported are {SUPPORTED}")
    operands: list[Operand] = []
    for name in node.input:
        if name and name not in known:
            raise InvalidNetwork(f"{place} reads {name[:80]!r} before it is computed: a cycle, or a missing node")
        operands.append(known[name] if name else None)
    if node.output and node.output[0] in known:
        raise InvalidNetwork(f"{place} computes {node.output[0][:80]!r}, which exists already")
    try:
        from onnx.helper import get_attribute_value

        options = {entry.name: get_attribute_value(entry) for entry in node.attribute}
        known[node.output[0]] = OPERATORS[node.op_type](reader, options, *operands)
    except LawfulError as error:
        raise type(error)(f"{place}: {error}") from None
    except (TypeError, ValueError, IndexError, KeyError, AttributeError) as error:
        raise Unsupported(f"{place} is used in an unsupported way ({str(error)[:120]})") from None
