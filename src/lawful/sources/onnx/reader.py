"""ONNX files become networks: their program, and its scalar graph."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from lawful.errors import InvalidNetwork, LawfulError, Unsupported
from lawful.formats.graphs import onnx_file
from lawful.formats.io.limits import check_entries
from lawful.network.assemble import sizes
from lawful.network.dag import Dag
from lawful.network.mlp import Mlp
from lawful.network.reading import Reading, TensorReading, assumed_in_training, carrying, list_names, rounded_inside
from lawful.network.validity import check_names
from lawful.program.domains.graph_reading import GraphReading, is_piecewise_linear, read_graph
from lawful.program.frontends.onnx import place_of, read_onnx
from lawful.program.frontends.onnx_quantised import lower_quantised
from lawful.program.frontends.onnx_weights import entry_of, inner_graphs
from lawful.program.passes.tail import depends_on_input, follows_tail
from lawful.program.program import Node, Program
from lawful.program.table import OPERATORS, OperatorFamily, Traits

ADVICE = "give the PyTorch module itself (module:factory), or a graph without it"
OPEN = -1  # the size of a batch that the file leaves open
MAX_SIZES = 64  # entries of a tensor that holds sizes or axes
MAX_COMPUTED = 10_000_000  # entries of a constant that is computed
ROWS = "the first axis of the input, of size"
REAL = (0, 1, 10, 11, 16)  # TensorProto's undefined, FLOAT, FLOAT16, DOUBLE and BFLOAT16
WHOLE = "its inputs are whole numbers: answers are about real ones"


def load(path: Path, *, input_shape: tuple[int, ...] | None = None, drop_useless: bool = False) -> Mlp | Dag:
    """The network of an ONNX file; its first dimension is the batch, unless the file has only one sample."""
    model = load_model(path)
    return network_of(model, path.parent, input_shape, drop_useless)


def network_of(
    model: Any, folder: Path, input_shape: tuple[int, ...] | None = None, drop_useless: bool = False
) -> Mlp | Dag:
    """The network of a model; tensors in other files lie in the folder."""
    graph = model.graph
    stored = {proto.name for proto in graph.initializer}
    inputs = [entry for entry in graph.input if entry.name not in stored]
    if len(inputs) != 1 or not graph.output:
        raise Unsupported(f"{len(inputs)} inputs and {len(graph.output)} outputs: one of each is supported")
    _refuse_curves(graph)
    obstacle: LawfulError | None = None
    # A first axis of several may be a batch or part of the sample: as a batch first, which asks more of the graph.
    for batch, shape in _ways(inputs[0], input_shape):
        # Read for one size of the batch, a number that happens to be that size would look like a constant.
        first, second = _free_sizes(graph) if batch == OPEN else (batch, batch)
        try:
            network = _read(model, folder, inputs[0], first, shape, drop_useless)
        except LawfulError as error:
            obstacle = error  # of the last way, which asks least
            continue
        if batch == OPEN and any(node.op_type in ("Shape", "Size") for node in graph.node):
            again = _read(model, folder, inputs[0], second, shape, drop_useless)
            if not _agree(network, again):
                raise Unsupported("computes with the size of the batch")
        if batch > 0:
            network = carrying(network, network.reading and network.reading.assuming(f"{ROWS} {batch}, counts samples"))
        return network
    raise obstacle or Unsupported("its input cannot be read")


def _check(graph: Any) -> None:
    """Refuse graphs that are none, before anything is computed: for graphs of scalar weights and for modules."""
    check_entries(len(graph.node))
    check_names(entry.name for entry in (*graph.initializer, *graph.node, *graph.input, *graph.output))
    check_names(name for node in graph.node for name in node.output)
    if graph.sparse_initializer:
        raise Unsupported("sparse initializers are not supported")
    known = {"", *(entry.name for entry in (*graph.initializer, *graph.input))}
    for node in graph.node:
        place = place_of(node)
        for name in node.input:
            if name not in known:
                raise InvalidNetwork(f"{place} reads {name[:80]!r} before it is computed: a cycle, or a missing node")
        for name in node.output:
            if name and name in known:
                raise InvalidNetwork(f"{place} computes {name[:80]!r}, which exists already")
            known.add(name)
    for entry in graph.output:
        if entry.name not in known:
            raise InvalidNetwork(f"its output {entry.name[:80]!r} does not come from its input")


def _check_functions(model: Any) -> None:
    """Refuse functions that call themselves, or that a few lines of calls make into millions of nodes."""
    functions = {(function.domain, function.name): function for function in model.functions}
    sizes: dict[tuple[str, str], int | None] = {}  # nodes of each, written out; None while they are counted

    def count(nodes: Any) -> int:
        total = 0
        for node in nodes:
            called = (node.domain, node.op_type)
            total += 1 + sum(count(inner.node) for inner in inner_graphs(node))
            if called in functions:
                if called not in sizes:
                    sizes[called] = None
                    sizes[called] = count(functions[called].node)
                size = sizes[called]
                if size is None:
                    raise InvalidNetwork(f"its function {node.op_type[:80]!r} calls itself")
                total += size
        return total

    try:
        check_entries(count(model.graph.node))
    except RecursionError:
        raise InvalidNetwork("its functions call each other too deeply") from None


def _refuse_curves(graph: Any) -> None:
    """Refuse a curved function of the data with a layer behind it, by the names of its calls alone.

    What `read_graph` would say after it has read a program for a batch of several samples, in a hundredth of the time.
    Values that follow from sizes are no data; a call that is missed here is refused there. Masks (a comparison, a sign)
    are constant but for jumps, and x · (x > 0) is a ReLU: nothing that comes from one counts as curved.
    """
    curved = {
        operator.onnx
        for operator in OPERATORS.values()
        if operator.family is OperatorFamily.ELEMENTWISE
        and isinstance(operator.traits, Traits)
        and operator.traits.degree is None
    }
    products = {operator.onnx for operator in OPERATORS.values() if operator.family is OperatorFamily.PRODUCT}
    masks = {
        operator.onnx
        for operator in OPERATORS.values()
        if operator.family is OperatorFamily.COMPARISON
        or (isinstance(operator.traits, Traits) and (operator.traits.steps or operator.traits.degree == 0))
    }
    masked: set[str] = set()
    stored = {proto.name for proto in graph.initializer}
    data = {entry.name for entry in graph.input if entry.name not in stored}
    behind: dict[str, Any] = {}  # for each value, the first curved call on the way to it
    for node in graph.node:
        entry = entry_of(node)
        varying = [name for name in node.input if name in data]
        if entry is None or not varying or entry.sizes_alone:
            continue
        data.update(node.output)
        if node.op_type in masks or not masked.isdisjoint(varying):
            masked.update(node.output)
        first = next((behind[name] for name in varying if name in behind), None)
        if first is not None and any(node.input[place] in stored for place in entry.weights if place < len(node.input)):
            raise Unsupported(f"{place_of(first)}: is not supported; {ADVICE}")
        is_masked = not masked.isdisjoint(varying)
        if (
            first is None
            and not is_masked
            and (node.op_type in curved or (node.op_type in products and len(varying) > 1))
        ):
            first = node
        if first is not None:
            behind |= dict.fromkeys(node.output, first)


def _agree(one: Mlp | Dag, two: Mlp | Dag) -> bool:
    """Whether two readings of a file for batches of other sizes compute the same, on a few inputs.

    Sizes decide in which order operands that commute stand, so edges may be ordered in another way. A number that
    depends on the batch's size differs by far more than roundings do.
    """
    count = len(one.to_dag().inputs)
    inputs = np.random.default_rng(0).normal(size=(4, count))
    first, second = one.evaluate(inputs), two.evaluate(inputs)
    scale = max(float(np.abs(first).max(initial=0.0)), 1e-300)
    return one.parameters == two.parameters and bool((np.abs(first - second) <= 1e-9 * scale).all())


def _free_sizes(graph: Any) -> tuple[int, int]:
    """Two sizes for an open batch that no tensor and no setting of the graph has.

    With a size that the graph has too, a reshape to it would seem to keep the samples apart.
    """
    from onnx import TensorProto, numpy_helper

    taken: set[int] = set()
    tensors = [*graph.initializer]
    for node in graph.node:
        for attribute in node.attribute:
            taken.update((attribute.i, *attribute.ints))
            tensors += [attribute.t] if attribute.HasField("t") else []
    for tensor in tensors:
        taken.update(tensor.dims)
        inside = tensor.data_location != TensorProto.EXTERNAL and sum(tensor.dims) < MAX_SIZES
        if inside and tensor.data_type in (TensorProto.INT64, TensorProto.INT32):
            taken.update(numpy_helper.to_array(tensor).ravel().tolist())
    for entry in graph.input:
        taken.update(dim.dim_value for dim in entry.type.tensor_type.shape.dim)
    free = (size for size in itertools.count(2) if size not in taken)
    return next(free), next(free)


def _read(model: Any, folder: Path, entry: Any, batch: int, shape: tuple[int, ...], drop_useless: bool) -> Mlp | Dag:
    whole = (batch, *shape) if batch else shape
    array = partial(onnx_file.array, folder=folder)
    program = read_onnx(model, {entry.name: whole}, load=array, most=MAX_COMPUTED)
    answer, ignored = _result(program, [output.name for output in model.graph.output], drop_useless)
    graph_read = read_graph(answer, batch, hint=lambda place: ADVICE, may_be_constant=drop_useless)
    network = graph_read.domain.assembly.finish(graph_read.value, drop_useless=drop_useless)
    return carrying(network, _reading(model, entry, graph_read, network, ignored))


def _reading(model: Any, entry: Any, found: GraphReading, network: Mlp | Dag, ignored: list[str]) -> Reading:
    domain, layers = found.domain, _layers(model, found)
    assumed = [] if found.tail is None else [f"{found.tail.words} at the end is cut off: answers are about its input"]
    if entry.type.tensor_type.elem_type not in REAL:
        assumed.append(WHOLE)
    return Reading(
        "onnx",
        layers,
        (*assumed, *rounded_inside(layers, found.casts)),
        tuple(ignored),
        found.find_entangled(network, "file"),
        "" if found.tail is None else found.tail.words,
        in_training_only=assumed_in_training(
            [name for name, times in domain.used.items() if times > 1], [node.op_type for node in model.graph.node]
        ),
        computed=domain.computed,
        template=model,
    )


def _result(program: Program, names: list[str], may_be_constant: bool) -> tuple[Program, list[str]]:
    """The program of the output that is the network's answer, or of all that are made of it by a tail; and the rest."""
    varying = depends_on_input(program)
    outputs = dict(zip(names, program.outputs, strict=True))
    foreign = next((name for name, node in outputs.items() if node not in varying), None)
    if foreign is not None and not (may_be_constant and len(names) == 1):
        raise InvalidNetwork(f"its output {foreign[:80]!r} does not come from its input")
    after = follows_tail(varying, is_piecewise_linear)
    plain = {name: node for name, node in outputs.items() if node not in after}
    if len(set(plain.values())) > 1:
        raise Unsupported(f"its outputs {list_names(plain)} are different tensors: one is supported")
    cut = [name for name in names if name not in plain]
    ignored = [f"output {name[:80]!r} ({_label(outputs[name])})" for name in cut] if plain or len(cut) > 1 else []
    answer: list[Node] = list(plain.values())[:1] or list(outputs.values())
    return Program.of(program.inputs, answer, program.tensors, program.source, program.notes, program.places), ignored


def _label(node: Node) -> str:
    return "labels" if node.kind != "f" else "probabilities"


def _layers(model: Any, found: GraphReading) -> tuple[TensorReading, ...]:
    """The tensors that weigh something, in the order in which they are used."""
    from onnx import TensorProto

    stored = {proto.name: proto for proto in model.graph.initializer}
    words = {"float": "float32", "double": "float64"}
    layers = []
    for name in found.domain.used:
        tensor = found.domain.program.tensors[name]
        kind = TensorProto.DataType.Name(stored[name].data_type).lower() if name in stored else str(tensor.dtype)
        layers.append(TensorReading(name, words.get(kind, kind), tuple(tensor.shape)))
    return tuple(layers)


def _ways(entry: Any, given: tuple[int, ...] | None) -> list[tuple[int, tuple[int, ...]]]:
    """How the input may be read: the batch's size (0 for none, or `OPEN`) and the sizes of a sample."""
    kind = entry.type.tensor_type
    if not kind.HasField("shape"):
        if given is None:
            raise Unsupported("its input size is unknown: give it without the batch, like --input 3,8,8")
        return [(OPEN, given)]
    stated = [dim.dim_value if dim.HasField("dim_value") and dim.dim_value > 0 else None for dim in kind.shape.dim]
    if len(stated) == 1:
        return [(0, fill_open_sizes(stated, given))]
    if not stated:
        raise Unsupported("its input is a single number: the batch and at least one size are needed")
    batch, inner = stated[0], fill_open_sizes(stated[1:], given)
    if batch is None:
        return [(OPEN, inner)]
    return [(batch, inner), (0, (batch, *inner))] if batch > 1 else [(0, (1, *inner))]


def fill_open_sizes(stated: Sequence[int | None], given: tuple[int, ...] | None) -> tuple[int, ...]:
    """The sizes that a file states, and where it leaves them open those that the user gives."""
    if given is not None:
        if len(given) != len(stated) or any(size not in (None, want) for size, want in zip(stated, given, strict=True)):
            words = "×".join("?" if size is None else str(size) for size in stated)
            raise InvalidNetwork(f"its input is {words}, not {sizes(given)}")
        return given
    if any(size is None for size in stated):
        raise Unsupported("its input size is left open: give it without the batch, like --input 3,8,8")
    return tuple(size for size in stated if size is not None)


def load_model(path: Path) -> Any:
    """The model of a file as everybody reads it: local functions and quantised operators written out."""
    model = onnx_file.parse(path)
    _check(model.graph)
    if model.functions:
        from onnx.inliner import inline_local_functions

        _check_functions(model)
        model = inline_local_functions(model)
    return lower_quantised(model, partial(onnx_file.array, folder=path.parent))
