"""A program as an ONNX file, by the same calls that PyTorch gets; what ONNX cannot say is refused by name.

Reals are of one type; parameters and buffers keep their names as initializers. The sizes of a program are numbers, so
a file for any number of samples is found from the programs for 2 and for 3 samples: their nodes must be the same, and
every whole number that differs is taken as affine in the number of samples (a flattened axis of n·k entries, the end
of a slice). That two points lie on a line proves nothing about a third: who writes such a file compares it with the
program for another number of samples.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lawful.extras import needed
from lawful.program.backends.calls import Call, select_calls
from lawful.program.backends.movement_steps import carry_out
from lawful.program.program import Node, Program, widest
from lawful.program.table import OperatorFamily, Refused, ValueKind

OPSET, IR_VERSION = 17, 8  # old enough for every runtime in use
TYPES = {"float64": "DOUBLE", "float32": "FLOAT", "float16": "FLOAT16"}


def write_onnx(program: Program, real: str = "float32") -> Any:
    """The `ModelProto` of a program, its reals in this type."""
    return _draft(program, real).finish()


def write_any_batch(read: Callable[[int], Program], real: str = "float32", output: str = "output") -> Any | None:
    """The model for any number of samples along the first axis of every input; None where its nodes depend on it.

    `read` gives the program for a number of samples.
    """
    two, three = (_draft(read(samples), real) for samples in (2, 3))
    if not two.depend_affinely(three):
        return None
    return two.finish(three.program, output)


def _draft(program: Program, real: str) -> _Draft:
    if real not in TYPES:
        raise Refused(f"reals of {real}: ONNX files are written in {', '.join(TYPES)}")
    draft = _Draft(program, real)
    for call in select_calls(program):
        if call.kind == "opaque":
            raise Refused(f"{call.node['name']} is not in the table of operators, and cannot be written")
        if call.kind == "operator":
            draft.values[call.node] = _operator(draft, call)
        else:
            draft.values[call.node] = _CALLS[call.kind](
                draft, call, *(draft.value(operand) for operand in call.operands)
            )
    for node in program.outputs:
        draft.value(node)
    return draft


class _Draft:
    """Nodes and initializers so far, and the names of values; it carries out steps of movements, too."""

    def __init__(self, program: Program, real: str) -> None:
        self.onnx, self.program = needed("onnx"), program
        self.dtypes: dict[str, Any] = {"f": np.dtype(real), "i": np.dtype(np.int64), "b": np.dtype(np.bool_)}
        self.values: dict[Node, str] = {}
        self.nodes: list[Any] = []
        self.tensors: dict[str, NDArray[Any]] = {}
        self.taken = {node["name"] for node in program.nodes if "name" in node.attributes}

    def value(self, node: Node) -> str:
        """The name of a node's value; leaves are written when they are first read."""
        if node not in self.values:
            if node.op == "constant":
                self.values[node] = self.constant(node["value"], node.kind)
            elif node.op == "input":
                name = str(node["name"])
                self.values[node] = self._free(name) if name in self.program.tensors else name
            else:
                self.values[node] = self.tensor(node["name"], _array(self.program.tensors[node["name"]]), node.kind)
        return self.values[node]

    def constant(self, value: Any, kind: ValueKind = "f") -> str:
        """An unnamed tensor."""
        return self.tensor(self._free("constant"), np.asarray(value), kind)

    def tensor(self, name: str, array: NDArray[Any], kind: ValueKind) -> str:
        """A named tensor."""
        with np.errstate(over="ignore"):
            self.tensors[name] = np.asarray(array, dtype=self.dtypes[kind])
        return name

    def node(self, operator: str, *operands: str, results: int = 1, **attributes: Any) -> str:
        """A call of ONNX's operator; the name of its last result."""
        names = [self._free(operator.lower()) for _ in range(results)]
        self.nodes.append(self.onnx.helper.make_node(operator, list(operands), names, **attributes))
        return names[-1]

    def cast(self, name: str, old: ValueKind, new: ValueKind) -> str:
        """A value of another kind."""
        return name if old == new else self.node("Cast", name, to=self.type_of(new))

    def type_of(self, kind: ValueKind) -> int:
        return int(self.onnx.helper.np_dtype_to_tensor_dtype(self.dtypes[kind]))

    def finish(self, other: Program | None = None, output: str = "output") -> Any:
        """The model: every output has a name of its own. Sizes that are others in the other program stay open."""
        helper, other = self.onnx.helper, other or self.program

        def end(name: str, one: Node, two: Node) -> Any:
            sizes = [
                size if size == second else "batch" if axis == 0 else None
                for axis, (size, second) in enumerate(zip(one.shape, two.shape, strict=True))
            ]
            return helper.make_tensor_value_info(name, self.type_of(one.kind), sizes)

        starts = [end(self.value(x), x, y) for x, y in zip(self.program.inputs, other.inputs, strict=True)]
        ends = []
        for k, (node, second) in enumerate(zip(self.program.outputs, other.outputs, strict=True)):
            name = output if len(self.program.outputs) == 1 else f"{output}{k}"
            name = name if name not in self.taken else self._free(name)
            self.nodes.append(helper.make_node("Identity", [self.value(node)], [name]))
            ends.append(end(name, node, second))
        tensors = [self.onnx.numpy_helper.from_array(array, name) for name, array in self.tensors.items()]
        graph = helper.make_graph(self.nodes, "lawful", starts, ends, tensors)
        opset = helper.make_opsetid("", OPSET)
        return helper.make_model(graph, opset_imports=[opset], ir_version=IR_VERSION, producer_name="lawful")

    def depend_affinely(self, other: _Draft) -> bool:
        """Let whole constants depend on the number of samples as in the drafts for 2 (this one) and 3 (the other)."""
        if [node.SerializeToString() for node in self.nodes] != [node.SerializeToString() for node in other.nodes]:
            return False
        if list(self.tensors) != list(other.tensors):
            return False
        weights = {*self.program.parameters, *self.program.buffers}
        changed = {
            name: (array, other.tensors[name])
            for name, array in self.tensors.items()
            if name not in weights and not np.array_equal(array, other.tensors[name], equal_nan=array.dtype.kind == "f")
        }
        if any(
            two.shape != three.shape if two.dtype.kind == "i" else two.ndim != three.ndim or not _is_one(two, three)
            for two, three in changed.values()
        ):
            return False
        shapes = {node.input[1] for node in self.nodes if node.op_type == "Reshape"}
        rest, self.nodes = self.nodes, []
        for name, (two, three) in changed.items():
            if name in shapes and (two != three).sum() == 1 and (two > 0).all():
                self.tensors[name] = np.where(two == three, two, -1)  # ONNX's own word for what is left
                continue
            del self.tensors[name]
            if two.dtype.kind == "i":
                repeated = self._line(two, three)
            else:  # a state of zeros for each sample
                number = self.tensor(self._free("constant"), two.flat[0], "b" if two.dtype.kind == "b" else "f")
                repeated = self.node("Expand", number, self._line(np.array(two.shape), np.array(three.shape)))
            self.nodes.append(self.onnx.helper.make_node("Identity", [repeated], [name]))
        self.nodes += rest
        return True

    def _line(self, two: NDArray[Any], three: NDArray[Any]) -> str:
        """Whole numbers that are these for 2 and for 3 samples."""
        slope, start = self.constant(three - two, "i"), self.constant(3 * two - 2 * three, "i")
        batch = self.slice(self.node("Shape", self.value(self.program.inputs[0])), (0, 0, 1))
        return self.node("Add", self.node("Mul", slope, batch), start)

    def _free(self, stem: str) -> str:
        name = f"{stem}.{len(self.taken)}"
        while name in self.taken:
            name += "_"
        self.taken.add(name)
        return name

    # the steps of movements

    def reshape(self, x: str, shape: Sequence[int]) -> str:
        return self.node("Reshape", x, self.constant(np.array(shape, np.int64), "i"), **_zeros(shape))

    def permute(self, x: str, order: Sequence[int]) -> str:
        return self.node("Transpose", x, perm=list(order))

    def slice(self, x: str, cut: tuple[int, int, int]) -> str:
        axis, start, stop = cut
        return self.node("Slice", x, *(self.constant([n], "i") for n in (start, stop, axis)))

    def expand(self, x: str, shape: Sequence[int]) -> str:
        return self.node("Expand", x, self.constant(np.array(shape, np.int64), "i"))

    def flip(self, x: str, axes: Sequence[int]) -> str:
        many = len(axes)
        ends = ([-1] * many, [np.iinfo(np.int64).min] * many, list(axes), [-1] * many)
        return self.node("Slice", x, *(self.constant(end, "i") for end in ends))

    def select(self, x: str, chosen: tuple[int, Any]) -> str:
        return self.node("Gather", x, self.constant(chosen[1], "i"), axis=chosen[0])

    def concatenate(self, parts: list[str], axis: int) -> str:
        return self.node("Concat", *parts, axis=axis)

    def pad(self, x: str, padding: tuple[Sequence[tuple[int, int]], float]) -> str:
        pairs, number = padding
        sides = [low for low, _ in pairs] + [high for _, high in pairs]
        return self.node("Pad", x, self.constant(sides, "i"), self.constant(number, "f"))

    def flat(self, sources: list[str], positions: Any) -> str:
        parts = [self.node("Reshape", source, self.constant([-1], "i")) for source in sources]
        whole = self.concatenate(parts, 0) if len(parts) > 1 else parts[0]
        return self.node("Gather", whole, self.constant(positions, "i"), axis=0)


def _is_one(two: NDArray[Any], three: NDArray[Any]) -> bool:
    """Whether all entries of both are one number."""
    return bool(two.size and three.size and (two == two.flat[0]).all() and (three == two.flat[0]).all())


def _zeros(shape: Sequence[int]) -> dict[str, int]:
    return {"allowzero": 1} if 0 in tuple(shape) else {}


def _array(held: Any) -> NDArray[Any]:
    return held if isinstance(held, np.ndarray) else np.asarray(held.detach().cpu().numpy())


def _operator(d: _Draft, call: Call) -> str:
    """One node of the table's operator: by ONNX's operator of the same operands, or by a rule."""
    node, names = call.node, [d.value(operand) for operand in call.operands]
    rule = _OPERATORS.get(node.op)
    if rule is not None:
        return rule(d, node, *names)
    if not node.operator.onnx:
        raise Refused(f"ONNX has no operator for {node.op}")
    kinds = [operand.kind for operand in call.operands]
    if node.family is OperatorFamily.CHOICE and node.op == "where":
        kind = node.kind
        names = [names[0], *(d.cast(x, old, kind) for x, old in zip(names[1:], kinds[1:], strict=True))]
        return d.node(node.operator.onnx, *names)
    kind = widest(*kinds) if node.family is OperatorFamily.COMPARISON else node.kind
    arithmetic = kind == "b" and node.op not in ("and", "or", "xor", "not", "eq", "detach")
    inside: ValueKind = "i" if arithmetic else kind
    value = d.node(node.operator.onnx, *(d.cast(x, old, inside) for x, old in zip(names, kinds, strict=True)))
    return value if node.family is OperatorFamily.COMPARISON else d.cast(value, inside, node.kind)


def _reduction(name: str) -> Callable[..., str]:
    def rule(d: _Draft, node: Node, x: str) -> str:
        kind = node.inputs[0].kind
        inside: ValueKind = "i" if kind == "b" else kind
        x = d.cast(x, kind, inside)
        axes = list(node["axes"])
        if name == "ReduceSum":
            value = d.node(name, x, d.constant(axes, "i"), keepdims=1)
        else:
            value = d.node(name, x, axes=axes, keepdims=1)
        return d.cast(value, inside, node.kind)

    return rule


def _power(d: _Draft, node: Node, x: str) -> str:
    exponent = node["exponent"]
    if exponent == 0.5:
        return d.node("Sqrt", x)
    if exponent == -0.5:
        return d.node("Reciprocal", d.node("Sqrt", x))
    return d.node("Reciprocal", x) if exponent == -1 else d.node("Pow", x, d.constant(exponent))


def _normalise(d: _Draft, node: Node, x: str) -> str:
    axes = list(node["axes"])
    if node["centre"]:
        x = d.node("Sub", x, d.node("ReduceMean", x, axes=axes, keepdims=1))
    square = d.node("ReduceMean", d.node("Mul", x, x), axes=axes, keepdims=1)
    return d.node("Div", x, d.node("Sqrt", d.node("Add", square, d.constant(node["epsilon"]))))


def _sort(result: int) -> Callable[..., str]:
    def rule(d: _Draft, node: Node, x: str) -> str:
        count = d.constant([node.shape[node["axis"]]], "i")
        kind = node.inputs[0].kind
        settings = {"axis": node["axis"], "largest": int(node["descending"])}
        if kind == "b":
            raise Refused("ONNX sorts no truth values")
        values = d.node("TopK", x, count, results=2, **settings)
        return values if result else str(d.nodes[-1].output[0])

    return rule


def _trunc(d: _Draft, node: Node, x: str) -> str:
    return d.node("Mul", d.node("Sign", x), d.node("Floor", d.node("Abs", x)))


def _pow(d: _Draft, node: Node, x: str, y: str) -> str:
    if any(operand.kind != "f" for operand in node.inputs):
        raise Refused("ONNX has no operator for powers of integers that may be negative")
    return d.node("Pow", x, y)


def _lookup(name: str) -> Callable[..., str]:
    def rule(d: _Draft, node: Node, x: str, at: str) -> str:
        table, index = node.inputs
        if name == "GatherElements":  # its index has all the rows of the table
            for axis, size in enumerate(index.shape):
                if axis != node["axis"] and size != table.shape[axis]:
                    x = d.slice(x, (axis, 0, size))
        return d.node(name, x, at, axis=node["axis"])

    return rule


def _scatter(d: _Draft, node: Node, x: str, at: str, source: str) -> str:
    index, updates = node.inputs[1:]
    for axis, size in enumerate(index.shape):
        if size != updates.shape[axis]:
            source = d.slice(source, (axis, 0, size))
    reduction = {} if node["reduce"] == "none" else {"reduction": node["reduce"]}
    if node["reduce"] in ("max", "min"):
        raise Refused(f"ONNX {OPSET} has no scatter that takes the {node['reduce']}")
    return d.node("ScatterElements", x, at, source, axis=node["axis"], **reduction)


def _refuse_noise(d: _Draft, node: Node) -> str:
    raise Refused("random gates are not written: read the module in evaluation")


_OPERATORS: Mapping[str, Callable[..., str]] = {
    "sum": _reduction("ReduceSum"),
    "amax": _reduction("ReduceMax"),
    "amin": _reduction("ReduceMin"),
    "prod": _reduction("ReduceProd"),
    "any": _reduction("ReduceMax"),
    "all": _reduction("ReduceMin"),
    "argmax": lambda d, node, x: d.node("ArgMax", x, axis=node["axis"], keepdims=1),
    "argmin": lambda d, node, x: d.node("ArgMin", x, axis=node["axis"], keepdims=1),
    "softmax": lambda d, node, x: d.node("Softmax", x, axis=node["axis"]),
    "normalise": _normalise,
    "power": _power,
    "pow": _pow,
    "trunc": _trunc,
    "fmod": lambda d, node, x, y: d.node("Mod", x, y, fmod=1),
    "ne": lambda d, node, x, y: d.node("Not", _equal(d, node, x, y)),
    "cast": lambda d, node, x: d.cast(x, node.inputs[0].kind, node.kind),
    "contract": lambda d, node, x, y: d.node("Einsum", x, y, equation=node["spec"]),
    "lookup": _lookup("Gather"),
    "gather": _lookup("GatherElements"),
    "scatter": _scatter,
    "sorted": _sort(0),
    "argsort": _sort(1),
    "gates": _refuse_noise,
}


def _equal(d: _Draft, node: Node, x: str, y: str) -> str:
    kinds = [operand.kind for operand in node.inputs]
    return d.node("Equal", *(d.cast(n, old, widest(*kinds)) for n, old in zip((x, y), kinds, strict=True)))


# Calls of several nodes


def _linear(d: _Draft, call: Call, x: str, weight: str, bias: str = "") -> str:
    value = x if call["order"] is None else d.permute(x, call["order"])
    if call.operands[0].rank == 2:
        product = d.node("Gemm", value, weight, *([bias] if bias else []), transB=0 if call["turned"] else 1)
    else:
        product = d.node("MatMul", value, weight if call["turned"] else d.permute(weight, (1, 0)))
        product = d.node("Add", product, bias) if bias else product
    return product if call["back"] is None else d.permute(product, call["back"])


def _matrix_product(d: _Draft, call: Call, *names: str) -> str:
    parts = []
    for x, name, order, shape in zip(call.operands, names, call["orders"], call["shapes"], strict=True):
        moved = name if list(order) == sorted(order) else d.permute(name, order)
        parts.append(moved if [x.shape[k] for k in order] == list(shape) else d.reshape(moved, shape))
    many = list(call["shapes"][0][:-1])
    product = d.node("MatMul", *parts)
    if [*many, call["shapes"][1][-1]] != list(call["shape"]):
        product = d.reshape(product, call["shape"])
    return product if call["back"] == sorted(call["back"]) else d.permute(product, call["back"])


def _convolution(d: _Draft, call: Call, *names: str) -> str:
    rank = call.node.rank - 2
    settings = {
        "strides": list(call["stride"]),
        "dilations": list(call["dilation"]),
        "group": call["groups"],
        "kernel_shape": list(call.operands[1].shape[2 : 2 + rank]),
    }
    low, extra = list(call["padding"]), list(call["output_padding"] or ()) if call["transposed"] else []
    if call["transposed"]:
        return d.node("ConvTranspose", *names, pads=low + low, output_padding=extra, **settings)
    return d.node("Conv", *names, pads=low + low, **settings)


def _batch_norm(d: _Draft, call: Call, x: str, mean: str, variance: str, scale: str, shift: str) -> str:
    return d.node("BatchNormalization", x, scale, shift, mean, variance, epsilon=call["epsilon"])


def _norm(d: _Draft, call: Call, x: str, *held: str) -> str:
    rest = iter(held)
    scale, shift = (next(rest) if used else None for used in (call["scaled"], call["shifted"]))
    shape = call["shape"]
    if call["centre"]:
        gamma = d.constant(np.ones(shape)) if scale is None else scale
        named = [x, gamma] if shift is None else [x, gamma, shift]
        return d.node("LayerNormalization", *named, axis=-len(shape), epsilon=call["epsilon"])
    axes = list(range(-len(shape), 0))
    square = d.node("ReduceMean", d.node("Mul", x, x), axes=axes, keepdims=1)
    normalised = d.node("Div", x, d.node("Sqrt", d.node("Add", square, d.constant(call["epsilon"]))))
    return normalised if scale is None else d.node("Mul", normalised, scale)


def _group_norm(d: _Draft, call: Call, x: str, *held: str) -> str:
    shape, groups = call["shape"], call["groups"]
    ones = d.constant(np.ones(groups))
    parts = d.reshape(x, (shape[0], groups, -1))
    normalised = d.node("InstanceNormalization", parts, ones, d.constant(np.zeros(groups)), epsilon=call["epsilon"])
    normalised = d.reshape(normalised, shape)
    for name, operator in zip(held, ("Mul", "Add"), strict=False):
        normalised = d.node(operator, normalised, d.reshape(name, (shape[1], *(1,) * (len(shape) - 2))))
    return normalised


def _leaky_relu(d: _Draft, call: Call, x: str) -> str:
    """LeakyRelu keeps its slope in single precision; PRelu keeps it as it is."""
    slope = call["slope"]
    if float(np.float32(slope)) == slope:
        return d.node("LeakyRelu", x, alpha=slope)
    return d.node("PRelu", x, d.constant([slope]))


def _prelu(d: _Draft, call: Call, x: str, slope: str) -> str:
    rank = call.node.rank
    return d.node("PRelu", x, slope if rank == 2 else d.reshape(slope, (-1, *(1,) * (rank - 2))))


def _between(operator: str) -> Callable[..., str]:
    def rule(d: _Draft, call: Call, *names: str) -> str:
        kinds = [operand.kind for operand in call.operands]
        if operator == "Div" and call.node.kind != "f":
            raise Refused("ONNX's quotient of integers is another one")
        cast = [d.cast(x, old, call.node.kind) for x, old in zip(names, kinds, strict=True)]
        if call["number"] is not None:
            cast = [d.constant(call["number"], call.node.kind), *cast]
        return d.node(operator, *cast)

    return rule


def _with_number(d: _Draft, call: Call, x: str) -> str:
    node = call.node
    kind: ValueKind = "i" if node.kind == "b" else node.kind
    value = d.node(node.operator.onnx, d.cast(x, call.operands[0].kind, kind), d.constant(call["number"], kind))
    return d.cast(value, kind, node.kind)


def _where_number(d: _Draft, call: Call, condition: str, x: str) -> str:
    kind = call.node.kind
    parts = [d.constant(call["number"], kind), d.cast(x, call.operands[1].kind, kind)]
    return d.node("Where", condition, *(parts if call["first"] else parts[::-1]))


def _pool(operator: str) -> Callable[..., str]:
    def rule(d: _Draft, call: Call, x: str) -> str:
        pool = call["pool"]
        if call.operands[0].kind != "f":
            raise Refused("ONNX pools reals alone")
        fill = 0.0 if operator == "AveragePool" else -math.inf
        if any(side for pair in pool.padding for side in pair):
            x = d.pad(x, ([(0, 0), (0, 0), *pool.padding], fill))
        settings: dict[str, Any] = {"kernel_shape": list(pool.kernel), "strides": list(pool.stride)}
        if operator == "MaxPool":
            pooled = d.node(operator, x, dilations=list(pool.dilation), **settings)
        elif any(step != 1 for step in pool.dilation):
            raise Refused("an average of windows with gaps")
        else:
            pooled = d.node(operator, x, **settings)
            if call["factor"] is not None:
                pooled = d.node("Mul", pooled, d.constant(call["factor"]))
        return pooled if call.node.shape == pool.shape else d.reshape(pooled, call.node.shape)

    return rule


_CALLS: Mapping[str, Callable[..., str]] = {
    "linear": _linear,
    "matrix product": _matrix_product,
    "convolution": _convolution,
    "batch norm": _batch_norm,
    "norm": _norm,
    "group norm": _group_norm,
    "leaky relu": _leaky_relu,
    "prelu": _prelu,
    "difference": _between("Sub"),
    "quotient": _between("Div"),
    "mean": lambda d, call, x: d.node("ReduceMean", x, axes=list(call["axes"]), keepdims=1),
    "average pool": _pool("AveragePool"),
    "max pool": _pool("MaxPool"),
    "with number": _with_number,
    "where number": _where_number,
    "movement": lambda d, call, *names: carry_out(call["steps"], names, d),
    "embedding": lambda d, call, table, at: d.node("Gather", table, at, axis=0),
}
