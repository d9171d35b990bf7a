"""A program in PyTorch: gradients flow, and `torch.export` finds plain calls; as a module, it is trained and saved."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from lawful.errors import LawfulError, Unsupported
from lawful.program.arrays import TorchArrays
from lawful.program.backends.calls import Call, select_calls
from lawful.program.backends.movement_steps import Pool, carry_out
from lawful.program.program import Node, Program
from lawful.program.table import OperatorFamily

Run = Callable[..., Any]


class TorchProgram:
    """A program that PyTorch runs."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.calls = select_calls(program)
        self.runs = [_run(call) for call in self.calls]
        self.leaves = {leaf for call in self.calls for leaf in call.operands if leaf.family is OperatorFamily.LEAF} | {
            leaf for leaf in program.outputs if leaf.family is OperatorFamily.LEAF
        }
        self._constants: dict[tuple[Node, Any, Any], torch.Tensor] = {}

    def __call__(
        self, inputs: Sequence[torch.Tensor], tensors: Mapping[str, torch.Tensor], real: torch.dtype
    ) -> tuple[torch.Tensor, ...]:
        """The outputs; `real` is the floating type in which all is computed."""
        arrays = TorchArrays(real)
        by_name = {node["name"]: value for node, value in zip(self.program.inputs, inputs, strict=True)}
        device = inputs[0].device if inputs else torch.device("cpu")
        values: dict[Node, Any] = {}
        for leaf in self.leaves:
            values[leaf] = self._leaf(leaf, by_name if leaf.op == "input" else tensors, arrays, device)
        last = {operand: call for call in self.calls for operand in call.operands}
        outputs = set(self.program.outputs)
        for call, run in zip(self.calls, self.runs, strict=True):
            values[call.node] = run(arrays, *(values[operand] for operand in call.operands))
            for operand in set(call.operands):
                if last[operand] is call and operand not in outputs:
                    del values[operand]
        return tuple(values[output] for output in self.program.outputs)

    def _leaf(self, leaf: Node, held: Mapping[str, torch.Tensor], arrays: TorchArrays, device: Any) -> torch.Tensor:
        if leaf.op == "constant":
            key = (leaf, arrays.real, device)
            if key not in self._constants:
                value = arrays.cast(torch.from_numpy(np.array(leaf["value"])), leaf.kind)
                self._constants[key] = value.to(device)
            return self._constants[key]
        result = held[leaf["name"]]
        if tuple(result.shape) != leaf.shape:
            raise LawfulError(f"{leaf['name']} has size {list(result.shape)}, not {list(leaf.shape)}")
        wanted = {"b": torch.bool, "i": torch.int64, "f": arrays.real}[leaf.kind]
        return result if result.dtype == wanted else arrays.cast(result, leaf.kind)


class _Movements:
    """The steps of movements in PyTorch."""

    def reshape(self, x: Any, shape: Sequence[int]) -> Any:
        return x.reshape(tuple(shape))

    def permute(self, x: Any, order: Sequence[int]) -> Any:
        return x.permute(tuple(order))

    def slice(self, x: Any, cut: tuple[int, int, int]) -> Any:
        return torch.ops.aten.slice(x, *cut)

    def expand(self, x: Any, shape: Sequence[int]) -> Any:
        return x.expand(tuple(shape))

    def flip(self, x: Any, axes: Sequence[int]) -> Any:
        return x.flip(tuple(axes))

    def select(self, x: Any, chosen: tuple[int, Any]) -> Any:
        return x.index_select(chosen[0], torch.from_numpy(np.ascontiguousarray(chosen[1])).to(x.device))

    def concatenate(self, parts: list[Any], axis: int) -> Any:
        return torch.cat(parts, axis)

    def pad(self, x: Any, padding: tuple[Sequence[tuple[int, int]], float]) -> Any:
        return _pad(x, padding[0], padding[1])

    def flat(self, sources: list[Any], positions: Any) -> Any:
        whole = torch.cat([source.reshape(-1) for source in sources]) if len(sources) > 1 else sources[0].reshape(-1)
        at = torch.from_numpy(np.ascontiguousarray(positions)).to(whole.device)
        return whole.index_select(0, at.reshape(-1)).reshape(positions.shape)


_MOVEMENTS = _Movements()


def _run(call: Call) -> Run:
    """How PyTorch computes a call: of the arrays of a floating type, and of the operands."""
    node = call.node
    if call.kind == "opaque":
        number = len(_UNKNOWN)
        _UNKNOWN.append(node)
        run = _unknown_operator(node["name"])
        return lambda arrays, *x: arrays.cast(run(list(x), number), node.kind)
    if call.kind == "operator" and node.op not in _OPERATORS:
        attributes, meaning = node.attributes, node.operator.meaning
        return lambda arrays, *x: meaning(arrays, attributes, *x)
    compute = _OPERATORS[node.op](node) if call.kind == "operator" else _CALLS[call.kind](call)
    if compute is None:
        attributes, meaning = node.attributes, node.operator.meaning
        return lambda arrays, *x: meaning(arrays, attributes, *x)
    return lambda arrays, *x: compute(*x)


# Calls that only a function of arrays can run (ONNX's reference): operators of PyTorch under their names, so that
# `torch.export` keeps them as calls. They have no gradient, and say so instead of being constant for training.

_UNKNOWN: list[Node] = []
_LIBRARY: Any = torch.library.Library("lawful", "DEF")  # type: ignore[no-untyped-call]


@cache
def _unknown_operator(name: str) -> Any:
    """PyTorch's operator of this name: of operands, and of the place of its node in `_UNKNOWN`."""
    _LIBRARY.define(f"{name}(Tensor[] operands, int place) -> Tensor")
    kinds = {"b": torch.bool, "i": torch.int64, "f": torch.float32}

    def run(operands: Sequence[torch.Tensor], place: int) -> torch.Tensor:
        node = _UNKNOWN[place]
        return torch.from_numpy(np.array(node["call"](*(operand.numpy() for operand in operands))))

    def shape(operands: Sequence[torch.Tensor], place: int) -> torch.Tensor:
        node = _UNKNOWN[place]
        real = next((operand.dtype for operand in operands if operand.is_floating_point()), torch.float32)
        return torch.empty(node.shape, dtype=real if node.kind == "f" else kinds[node.kind])

    def refuse(context: Any, gradient: torch.Tensor) -> Any:
        raise Unsupported(f"{name} is not in the table of operators, and only ONNX's reference runs it: no gradient")

    _LIBRARY.impl(name, run, "CPU")
    torch.library.register_fake(f"lawful::{name}", shape, lib=_LIBRARY)
    torch.library.register_autograd(f"lawful::{name}", refuse, lib=_LIBRARY)
    return getattr(torch.ops.lawful, name).default


# Operators that PyTorch has a better call for than the table's meaning


def _power(node: Node) -> Run | None:
    runs: dict[float, Any] = {2.0: torch.square, 0.5: torch.sqrt, -0.5: torch.rsqrt, -1.0: torch.reciprocal}
    exponent = node["exponent"]
    whole = int(exponent) if exponent == int(exponent) else exponent
    return runs.get(exponent) or ((lambda x: x.pow(whole)) if exponent % 1 != 0.5 else None)


_OPERATORS: Mapping[str, Callable[[Node], Run | None]] = {
    "power": _power,
    "softmax": lambda node: lambda x: torch.softmax(x, node["axis"]),
    # beyond 50 the two differ by less than e⁻⁵⁰, far below a rounding; PyTorch's own threshold of 20 is seen in float64
    "softplus": lambda node: lambda x: functional.softplus(x, 1.0, 50.0),
}


# Calls of several nodes


def _linear(call: Call) -> Run:
    order, back, turned = call["order"], call["back"], call["turned"]

    def run(value: Any, weight: Any, shift: Any = None) -> Any:
        value = value if order is None else value.permute(order)
        product = torch.matmul(value, weight) if turned else functional.linear(value, weight, shift)
        return product if back is None else product.permute(back)

    return run


def _matrix_product(call: Call) -> Run:
    orders, shapes, back, shape = (call[name] for name in ("orders", "shapes", "back", "shape"))

    def run(x: Any, y: Any) -> Any:
        x, y = (_in_order(t, order, size) for t, order, size in zip((x, y), orders, shapes, strict=True))
        product = torch.matmul(x, y)
        product = product if list(product.shape) == shape else product.reshape(shape)
        return product if back == sorted(back) else product.permute(back)

    return run


def _in_order(x: Any, order: Sequence[int], shape: Sequence[int]) -> Any:
    x = x if list(order) == sorted(order) else x.permute(tuple(order))
    return x if list(x.shape) == list(shape) else x.reshape(tuple(shape))


def _convolution(call: Call) -> Run:
    rank = call.node.rank - 2
    layer: Any = getattr(functional, f"conv_transpose{rank}d" if call["transposed"] else f"conv{rank}d")
    if call["transposed"]:
        settings = [call[name] for name in ("stride", "padding", "output_padding", "groups", "dilation")]
    else:
        settings = [call[name] for name in ("stride", "padding", "dilation", "groups")]
    return lambda x, weight, shift=None: layer(x, weight, shift, *settings)


def _batch_norm(call: Call) -> Run:
    def run(x: Any, m: Any, v: Any, g: Any, b: Any) -> Any:
        if len(x) > 1:
            return functional.batch_norm(x, m, v, g, b, False, 0.0, call["epsilon"])
        # PyTorch (2.13, on a processor) mixes up the entries of gradients that come back transposed to a batch of one:
        # the stride of an axis of length 1 may be anything, and `batch_norm` reads it.
        sizes = [1, -1] + [1] * (x.dim() - 2)
        scale = g / (v + call["epsilon"]).sqrt()
        return (x - m.reshape(sizes)) * scale.reshape(sizes) + b.reshape(sizes)

    return run


def _norm(call: Call) -> Run:
    shape, epsilon, centre = call["shape"], call["epsilon"], call["centre"]
    places = (call["scaled"], call["shifted"])

    def run(x: Any, *vectors: Any) -> Any:
        rest = iter(vectors)
        g, b = (next(rest) if used else None for used in places)
        if centre:
            return functional.layer_norm(x, shape, g, b, epsilon)
        return functional.rms_norm(x, list(shape), g, epsilon)

    return run


def _group_norm(call: Call) -> Run:
    groups, epsilon, shape = call["groups"], call["epsilon"], call["shape"]

    def run(x: Any, g: Any = None, b: Any = None) -> Any:
        x = x if x.shape == shape else x.reshape(shape)
        if groups == x.shape[1] and g is not None:
            return functional.instance_norm(x, None, None, g, b, True, 0.0, epsilon)
        return functional.group_norm(x, groups, g, b, epsilon)

    return run


def _difference(call: Call) -> Run:
    number = call["number"]
    return (lambda x, y: x - y) if number is None else lambda y: number - y


def _write_quotient(call: Call) -> Run:
    number = call["number"]
    return (lambda x, y: x / y) if number is None else lambda y: number / y


def _with_number(call: Call) -> Run:
    number = call["number"]
    runs: dict[str, Run] = {
        "add": lambda x: x + number,
        "mul": lambda x: -x if number == -1 else x * number,
        "maximum": lambda x: x.clamp(min=number),
        "minimum": lambda x: x.clamp(max=number),
    }
    return runs[call.node.op]


def _where_number(call: Call) -> Run:
    number = call["number"]
    return (lambda c, v: torch.where(c, number, v)) if call["first"] else lambda c, v: torch.where(c, v, number)


def _average_pool(call: Call) -> Run:
    pool, factor = call["pool"], call["factor"]
    if factor is None:
        return lambda x: _run_pool("avg", pool, x, 0.0)
    factor_tensor = torch.from_numpy(np.array(factor))
    return lambda x: _run_pool("avg", pool, x, 0.0) * factor_tensor.to(device=x.device, dtype=x.dtype)


def _max_pool(call: Call) -> Run:
    pool, shape = call["pool"], call.node.shape

    def run(x: Any) -> Any:
        maxima = _run_pool("max", pool, x, -np.inf)
        return maxima if shape == pool.shape else maxima.reshape(shape)

    return run


def _run_pool(kind: str, pool: Pool, x: Any, fill: float) -> Any:
    run: Any = getattr(functional, f"{kind}_pool{len(pool.kernel)}d")
    even = pool.even_padding(x.shape[2:])
    if even is None or (kind == "avg" and any(even)):
        x, even = _pad(x, pool.padding, fill), (0,) * len(pool.kernel)
    if kind == "avg":
        return run(x, pool.kernel, pool.stride)
    return run(x, pool.kernel, pool.stride, even, pool.dilation)


def _pad(x: Any, pairs: Sequence[tuple[int, int]], number: float) -> Any:
    """A number around the last axes."""
    while pairs and tuple(pairs[0]) == (0, 0):
        pairs = pairs[1:]
    widths = [side for pair in reversed(pairs) for side in pair]
    return functional.pad(x, widths, value=number) if widths else x


_CALLS: Mapping[str, Callable[[Call], Run]] = {
    "linear": _linear,
    "matrix product": _matrix_product,
    "convolution": _convolution,
    "batch norm": _batch_norm,
    "norm": _norm,
    "group norm": _group_norm,
    "leaky relu": lambda call: lambda x: functional.leaky_relu(x, call["slope"]),
    "prelu": lambda call: functional.prelu,
    "difference": _difference,
    "quotient": _write_quotient,
    "mean": lambda call: lambda x: x.mean(call["axes"], keepdim=True),
    "average pool": _average_pool,
    "max pool": _max_pool,
    "with number": _with_number,
    "where number": _where_number,
    "movement": lambda call: lambda *x: carry_out(call["steps"], x, _MOVEMENTS),
    "embedding": lambda call: lambda table, at: functional.embedding(at, table),
}


class ProgramModule(nn.Module):
    """What a program computes, in the floating type of its first parameter (or `real`)."""

    def __init__(self, program: Program, real: torch.dtype | None = None) -> None:
        """Copy the program's parameters and buffers; `state_dict` has the program's own names."""
        super().__init__()
        self.program, self.run = program, TorchProgram(program)
        tensors = {name: _as_tensor(program.tensors[name]) for name in (*program.parameters, *program.buffers)}
        self._real = real or next((tensors[name].dtype for name in program.parameters), torch.float64)
        for name, tensor in tensors.items():
            home, _, last = name.rpartition(".")
            place = self._place(home)
            if name in program.parameters:
                place.register_parameter(last, nn.Parameter(tensor.to(self._real)))
            else:
                place.register_buffer(last, tensor.to(self._real) if tensor.is_floating_point() else tensor)

    @property
    def real(self) -> torch.dtype:
        """The floating type in which it computes: that of its parameters now, which `double()` and `half()` change."""
        return next((parameter.dtype for parameter in self.parameters() if parameter.is_floating_point()), self._real)

    def __deepcopy__(self, memo: dict[int, Any]) -> ProgramModule:
        """A copy has weights of its own; the program, which never changes, is shared."""
        module = ProgramModule.__new__(ProgramModule)
        memo |= {id(self): module, id(self.program): self.program, id(self.run): self.run}
        module.__dict__ = copy.deepcopy(self.__dict__, memo)
        return module

    def _place(self, home: str) -> nn.Module:
        """The module inside this one in which a name lives; made where it is missing."""
        place: nn.Module = self
        for part in home.split(".") if home else ():
            if part not in place._modules:
                place.add_module(part, nn.Module())
            place = place.get_submodule(part)
        return place

    def forward(self, *inputs: torch.Tensor) -> Any:
        """One output, or a tuple of several."""
        tensors = {**dict(self.named_parameters()), **dict(self.named_buffers())}
        outputs = self.run(inputs, tensors, self.real)
        return outputs[0] if len(outputs) == 1 else outputs


def _as_tensor(held: Any) -> torch.Tensor:
    return held.detach().clone() if isinstance(held, torch.Tensor) else torch.tensor(held)
