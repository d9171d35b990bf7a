"""PyTorch modules: `torch.export` says which ATen calls a module makes, the table says what they are.

A call without an entry, or with an argument that its entry does not know, becomes *opaque*: it can still be run.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import fx, nn

from lawful.errors import Unsupported
from lawful.program.builder import Builder
from lawful.program.frontends.decompositions import SILENT, as_complex, follow_pairs, operator_name
from lawful.program.frontends.export import ROUNDS, ExportedModule, export_module
from lawful.program.index_map import IndexMap
from lawful.program.passes.patterns import recognise
from lawful.program.program import Node, Program
from lawful.program.table import ATEN, ATEN_CASTS, ATEN_FACTORIES, ATEN_MOVEMENTS, Entry, Refused, ValueKind

# Arguments that change no value: where and how numbers are stored, how gradients are computed, training alone.
WITHOUT_EFFECT = frozenset(
    """
    layout device pin_memory memory_format non_blocking copy implicit cudnn_enable cudnn_enabled momentum sparse
    sparse_grad scale_grad_by_freq padding_idx half_to_float path generator benchmark deterministic
    """.split()  # noqa: SIM905
)
ROUNDS_TO = "rounds to"  # of a cast: a note that a program over the reals is its module up to rounding
WRAPS = "does not wrap around"  # of integers: a note that a program is not its module where they are large
NARROW = {torch.uint8: "uint8", torch.int8: "int8", torch.int16: "int16"}


def read_module(
    module: nn.Module, inputs: Sequence[torch.Tensor | tuple[int, ...]], keywords: Mapping[str, Any] | None = None
) -> Program:
    """What a module computes in evaluation mode; an input is an example, or its size with the batch.

    >>> print(read_module(nn.Sequential(nn.Linear(3, 2), nn.ReLU()), [(4, 3)]).text())
    %0 = input(name='input') : f[4, 3]
    %1 = parameter(name='0.weight') : f[2, 3]
    %2 = contract(%1, %0, spec='ab,cb->ca') : f[4, 2]
    %3 = parameter(name='0.bias') : f[2]
    %4 = take(%3, map=reshape) : f[1, 2]
    %5 = add(%2, %4) : f[4, 2]
    %6 = relu(%5) : f[4, 2]
    return %6
    """
    return read_exported(export_module(module, inputs, keywords), type(module).__name__)


def read_exported(
    exported: ExportedModule,
    source: str = "",
    held: Container[str] = (),
    *,
    exact: bool = False,
    trains: bool = False,
) -> Program:
    """The program of a module that was traced; `exact` for exact arithmetic, in which no constant is rounded.

    Buffers of the names in `held` are leaves, whatever they are: a checkpoint may hold other numbers than the module.
    If it `trains`, as what a loss reads of it: without the new values of buffers, and with marks where values are
    detached from training.
    """
    b = Builder(source, exact=exact, trains=trains)
    values: dict[fx.Node, Any] = {}
    for place in exported.graph.nodes:
        if place.op == "placeholder":
            values[place] = _leaf(b, place, exported, held)
    results = _Walk(b).graph(exported.graph, values)[exported.updates if trains else 0 :]
    program = b.finish(output for output in map(partial(as_complex, b), results) if isinstance(output, Node))
    return recognise(program, exact)


def padded_rows(exported: ExportedModule) -> dict[str, int]:
    """The parameters that are read as tables with a row that this reading never trains (`padding_idx`), and the row."""
    return {
        exported.names[table.name]: bound["padding_idx"]
        for table, bound in _embeddings(exported)
        if bound["padding_idx"] >= 0
    }


def scales_gradients(exported: ExportedModule) -> bool:
    """Whether a table divides the gradients of its rows by how often they are read (`scale_grad_by_freq`)."""
    return any(bound["scale_grad_by_freq"] for _, bound in _embeddings(exported))


def _embeddings(exported: ExportedModule) -> Iterator[tuple[fx.Node, dict[str, Any]]]:
    """The trained tables, and the arguments with which each is read."""
    for node in exported.calls:
        if operator_name(node.target) == "embedding":
            bound = _bind(node.target, node.args, node.kwargs)
            if bound["weight"].name in exported.trained:
                yield bound["weight"], bound


def _leaf(b: Builder, place: fx.Node, exported: ExportedModule, held: Container[str]) -> Any:
    if place.name in exported.inputs:
        example = place.meta.get("val")
        if not isinstance(example, torch.Tensor):
            return example
        return b.input(place.name, example.shape, kind_of(example.dtype))
    tensor = exported.tensors.get(place.name)
    if tensor is None:  # a second name of a tied tensor: nothing reads it
        return None
    kind = kind_of(tensor.dtype)
    if place.name in exported.trained:
        return b.parameter(exported.names[place.name], tensor, kind)
    # Counters, positions and single numbers decide shapes and masks: they are folded. Statistics stay leaves.
    name = exported.names.get(place.name)
    if name is None or (name not in held and (kind != "f" or tensor.numel() == 1)):
        return b.constant(_numpy(tensor), kind)
    return b.buffer(name, tensor, kind)


class _Walk:
    """Calls of a graph, one after the other."""

    def __init__(self, builder: Builder) -> None:
        self.b = builder

    def graph(self, graph: fx.Graph, values: dict[fx.Node, Any]) -> list[Any]:
        """The results of a graph whose placeholders have values."""
        for node in graph.nodes:
            if node.op == "call_function":
                values[node] = self.call(node, values)
            elif node.op == "get_attr":
                attribute: Any = graph.owning_module
                for part in node.target.split("."):
                    attribute = getattr(attribute, part)
                values[node] = (
                    attribute if isinstance(attribute, fx.GraphModule) else self.b.constant(_numpy(attribute))
                )
            elif node.op == "output":
                return _flat(fx.node.map_arg(node.args[0], lambda operand: values[operand]))
        return []

    def call(self, node: fx.Node, values: Mapping[fx.Node, Any]) -> Any:
        """The value of a call: nodes, or plain numbers where sizes are computed."""
        target: Any = node.target
        self.b.step += 1
        inside = list((node.meta.get("nn_module_stack") or {}).values())
        if inside:
            self.b.parts[self.b.step] = str(inside[-1][0])
        arguments = fx.node.map_arg(node.args, lambda operand: values[operand])
        keywords = fx.node.map_arg(node.kwargs, lambda operand: values[operand])
        if target is operator.getitem:
            if arguments[0] is None:
                raise Unsupported(f"{node.args[0]} makes a list of a length that depends on data")
            return arguments[0][arguments[1]]  # type: ignore[index]
        if not isinstance(target, torch._ops.OpOverload):
            body = next((k for k, argument in enumerate(arguments) if isinstance(argument, fx.GraphModule)), None)
            if body is None:
                return target(*arguments, **keywords)  # arithmetic of sizes
            inner: Any = arguments[body]  # a region under no_grad or autocast
            places = [inner_node for inner_node in inner.graph.nodes if inner_node.op == "placeholder"]
            return self.graph(inner.graph, dict(zip(places, arguments[body + 1 :], strict=True)))
        name = target._schema.name.split("::")[-1]
        if name in SILENT:
            return None
        self.b.place = layer_of(node) + name
        if name.startswith("as_strided") and not _is_plain(node.args[0]):
            # Even run as it is, it would read other entries: values here have no strides.
            raise Unsupported("as_strided of a tensor that is not contiguous")
        bound = _bind(target, arguments, keywords)
        expected = node.meta.get("val")
        pair = follow_pairs(self.b, name, bound, lambda half: self._move(target, half))
        if pair is not None:
            return pair
        bound = {key: as_complex(self.b, value) for key, value in bound.items()}
        try:
            result = self._known_value(target, name, bound, expected, _type_of(node.args[0] if node.args else None))
        except Refused as reason:
            return self._opaque(target, name, bound, expected, str(reason))
        if isinstance(result, (list, tuple)) and any(entry is None for entry in result):
            # an entry may leave out what hardly anybody reads, as the positions of maxima: opaque, for those who do
            rest = self._opaque(target, name, bound, expected, "a result without an entry")
            result = [other if entry is None else entry for entry, other in zip(result, rest, strict=True)]
        return self._check_sizes(result, expected, str(target))

    def _known_value(
        self, target: Any, name: str, bound: dict[str, Any], expected: Any, before: torch.dtype | None
    ) -> Any:
        if _is_complex(expected) or any(isinstance(v, Node) and v.kind == "c" for v in _flat(list(bound.values()))):
            raise Refused("complex numbers")
        if name in ATEN_CASTS:
            return self._cast(next(iter(bound.values())), expected.dtype, before)
        if name in ATEN_FACTORIES:
            return self._factory(target, bound)
        if name in ATEN_MOVEMENTS and bound.get("dtype") is None:  # `view` as another type reads bits
            return self._move(target, bound)
        entry = find_entry(target)
        if entry is None:
            raise Refused("no entry")
        first, arguments = _arguments(entry, target, bound)
        if bound.get("dtype") is not None and isinstance(first, Node):
            first = self._cast(first, bound["dtype"])  # sums, softmax, ...: PyTorch casts before it computes
        return entry.build(self.b, first, **arguments)

    def _cast(self, x: Node, dtype: torch.dtype, before: torch.dtype | None = None) -> Node:
        """A cast between types of one kind is nothing, and a note if it may round."""
        widens = before is not None and torch.promote_types(before, dtype) == dtype
        if x.kind == "f" and dtype in ROUNDS and not widens:
            self.b.notes[f"{ROUNDS_TO} {ROUNDS[dtype]}"] += 1
        if x.kind != "b" and dtype in NARROW:
            self.b.notes[f"{NARROW[dtype]} {WRAPS}"] += 1
        return self.b.as_kind(x, kind_of(dtype))

    def _factory(self, target: Any, bound: dict[str, Any]) -> Node:
        """A tensor made of numbers alone, or like another one in size: made by PyTorch."""
        filled = {}
        for name, value in bound.items():
            if isinstance(value, Node):
                number = self.b.number(value)
                like = name == "self" and target._schema.name.endswith(("_like", "new_zeros", "new_ones", "new_full"))
                if not like and number is None:
                    raise Refused("a tensor that is made of data")
                value = torch.empty(value.shape, dtype=_TYPES[value.kind]) if like else number
            filled[name] = torch.device("cpu") if name == "device" else value
        return self.b.constant(_numpy(_run(target, filled)))

    def _move(self, target: Any, bound: dict[str, Any]) -> Any:
        """A call that only moves entries: strides say where to if it returns a view, labels if it does not."""
        sources: list[Node] = []
        for name, value in bound.items():
            if name in ("other", "indices", "repeats", "tensor_indices_or_sections") or not _nodes(value):
                continue
            sources.extend(_nodes(value))

        def run(arrays: Sequence[torch.Tensor]) -> Any:
            left = iter(arrays)
            filled: dict[str, Any] = {}
            for name, value in bound.items():
                if name == "other" and isinstance(value, Node):
                    filled[name] = torch.empty(value.shape)
                elif isinstance(value, Node) and value not in sources:
                    known = self.b.value(value)
                    if known is None:
                        raise Refused("a movement that depends on data")
                    filled[name] = torch.from_numpy(known.copy())
                elif isinstance(value, (list, tuple)) and _nodes(value):
                    filled[name] = [next(left) for _ in value]
                else:
                    filled[name] = next(left) if isinstance(value, Node) else value
            return _run(target, filled)

        if len(sources) == 1:
            blank = torch.empty(sources[0].shape, device="meta")
            views = run([blank])
            parts = list(views) if isinstance(views, (list, tuple)) else [views]
            if all(part.numel() and (part is blank or part._base is blank) for part in parts):
                maps = [IndexMap.affine(view.shape, view.stride(), int(view.storage_offset())) for view in parts]
                nodes = [self.b.take(sources, index) for index in maps]
                return nodes if isinstance(views, (list, tuple)) else nodes[0]
        labels, total = [], 1
        for source in sources:
            # reals, since not every call moves integers; exact up to 2⁵³
            labels.append(torch.arange(total, total + source.size, dtype=torch.float64).reshape(source.shape))
            total += source.size
        result = run(labels)
        if isinstance(result, (list, tuple)):
            return [self.b.take_labels(label_tensor.numpy().astype("int64"), sources) for label_tensor in result]
        return self.b.take_labels(result.numpy().astype("int64"), sources)

    def _check_sizes(self, result: Any, expected: Any, name: str) -> Any:
        """Every call's result has the size that PyTorch says; a wrong entry is found at its own call."""
        if isinstance(result, (list, tuple)):
            parts = expected if isinstance(expected, (list, tuple)) else [None] * len(result)
            return [self._check_sizes(entry, part, name) for entry, part in zip(result, parts, strict=True)]
        if not isinstance(result, Node) or not isinstance(expected, torch.Tensor):
            return result
        if tuple(expected.shape) != result.shape:
            raise AssertionError(f"the entry of {name} gives {list(result.shape)} instead of {list(expected.shape)}")
        return self.b.as_kind(result, kind_of(expected.dtype))

    def _opaque(self, target: Any, name: str, bound: dict[str, Any], expected: Any, reason: str) -> Any:
        operands = [operand for value in bound.values() for operand in _nodes(value)]

        def fill(tensors: Sequence[torch.Tensor]) -> dict[str, Any]:
            left = iter(tensors)
            reals = [tensor.dtype for tensor in tensors if tensor.is_floating_point()]
            return {
                key: next(left)
                if isinstance(value, Node)
                else [next(left) if isinstance(entry, Node) else entry for entry in value]
                if _nodes(value)
                else reals[0]  # reals are computed in one type, whatever the call asks for
                if reals and isinstance(value, torch.dtype) and value.is_floating_point
                else value
                for key, value in bound.items()
            }

        plain = {key: value for key, value in bound.items() if not _nodes(value) and key not in WITHOUT_EFFECT}
        single = isinstance(expected, torch.Tensor)
        if not single and not isinstance(expected, (list, tuple)):
            raise Refused(f"{name} makes a number of data")
        parts = [expected] if single else list(expected)
        nodes: list[Node | None] = []
        for k, part in enumerate(parts):
            if not isinstance(part, torch.Tensor):
                nodes.append(None)
                continue
            call: Callable[..., Any] = lambda *x, k=k: _run(target, fill(x)) if single else _run(target, fill(x))[k]  # noqa: E731
            shape, kind = tuple(int(n) for n in part.shape), kind_of(part.dtype)
            nodes.append(self.b.opaque(name, operands, call, shape, kind, f"{target} {k} {plain} ({reason})"))
        return nodes[0] if single else nodes


def layer_of(node: fx.Node) -> str:
    """The layer that a call belongs to, in the words of its module."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    if not stack or not stack[-1][0]:
        return ""
    name, kind = stack[-1]
    return f"layer {str(name)!r} ({str(getattr(kind, '__name__', kind)).rsplit('.', 1)[-1]}), "


def _type_of(argument: Any) -> torch.dtype | None:
    """The type of a tensor in the traced module."""
    value = argument.meta.get("val") if isinstance(argument, fx.Node) else None
    return value.dtype if isinstance(value, torch.Tensor) else None


_TYPES = {"b": torch.bool, "i": torch.int64, "f": torch.float32, "c": torch.complex64}


def kind_of(dtype: torch.dtype) -> ValueKind:
    """The kind of values of a type."""
    if dtype == torch.bool:
        return "b"
    return "c" if dtype.is_complex else "f" if dtype.is_floating_point else "i"


def find_entry(target: Any) -> Entry | None:
    """The table's entry of an ATen call: of its overload, of its name, or of the name without a change in place."""
    schema = target._schema
    name, overload = schema.name.split("::")[-1], schema.overload_name or "default"
    return ATEN.get(f"{name}.{overload}") or ATEN.get(name) or ATEN.get(name.removesuffix("_"))


def _bind(target: Any, arguments: Any, keywords: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments by the names of the schema, with its defaults."""
    bound = {}
    for k, argument in enumerate(target._schema.arguments):
        if k < len(arguments):
            bound[argument.name] = arguments[k]
        elif argument.name in keywords:
            bound[argument.name] = keywords[argument.name]
        else:
            bound[argument.name] = argument.default_value if argument.has_default_value() else None
    return bound


def _run(target: Any, bound: Mapping[str, Any]) -> Any:
    """Call by the schema: some arguments have to be given by name."""
    by_name = {argument.name for argument in target._schema.arguments if argument.kwarg_only}
    plain = [value for name, value in bound.items() if name not in by_name]
    return target(*plain, **{name: value for name, value in bound.items() if name in by_name})


def _arguments(entry: Entry, target: Any, bound: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """What an entry is called with: the first argument, the others by name; unknown ones must have their default."""
    schema = target._schema.arguments
    known = entry.parameters
    arguments = {}
    for argument in schema[1:]:
        name, value = "x" if argument.name == "self" else argument.name, bound[argument.name]
        if name in known:
            arguments[name] = value
        elif name not in WITHOUT_EFFECT and name != "dtype":
            default = argument.default_value if argument.has_default_value() else None
            if value is not default and value != default:
                raise Refused(f"its argument {name}={value}")
    return bound[schema[0].name], arguments


def _is_plain(place: Any) -> bool:
    """Whether a call's operand is contiguous and all of its memory."""
    value = place.meta.get("val") if isinstance(place, fx.Node) else None
    return isinstance(value, torch.Tensor) and value.is_contiguous() and value.storage_offset() == 0


def _is_complex(expected: Any) -> bool:
    return any(isinstance(tensor, torch.Tensor) and tensor.is_complex() for tensor in _flat(expected))


def _nodes(value: Any) -> list[Node]:
    return [leaf for leaf in _flat(value) if isinstance(leaf, Node)]


def _flat(value: Any) -> list[Any]:
    """The leaves of nested lists, tuples and dictionaries."""
    if isinstance(value, (list, tuple)):
        return [leaf for entry in value for leaf in _flat(entry)]
    if isinstance(value, dict):
        return [leaf for entry in value.values() for leaf in _flat(entry)]
    return [value]


def _numpy(tensor: torch.Tensor) -> Any:
    tensor = tensor.detach().cpu()
    return (tensor.double() if tensor.dtype == torch.bfloat16 else tensor.resolve_conj()).numpy()
