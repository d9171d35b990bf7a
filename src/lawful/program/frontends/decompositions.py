"""Calls of an exported program in terms of simpler ones: parts under `no_grad`, and calls that the table lacks.

Complex numbers of a module are pairs of reals: rotations written as products, and Fourier transforms. Programs are
about reals. Between the calls that make complex numbers and those that end them, a value is a pair of nodes, and the
few calls that such code uses are written out. Any other call gets the complex number itself, and is opaque.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import fx

from lawful.program.builder import Builder
from lawful.program.program import Node
from lawful.program.table import ATEN, ATEN_CASTS, ATEN_FACTORIES, ATEN_MOVEMENTS


@dataclass(frozen=True)
class ComplexPair:
    """x + iy."""

    real: Node
    imaginary: Node


def as_complex(b: Builder, value: Any) -> Any:
    """A pair as one opaque complex value; lists entry by entry, everything else as it is."""
    if isinstance(value, (list, tuple)):
        return type(value)(as_complex(b, entry) for entry in value)
    if not isinstance(value, ComplexPair):
        return value
    parts = value.real, value.imaginary
    return b.opaque("complex", parts, torch.complex, value.real.shape, "c", "a pair of reals")


def follow_pairs(
    b: Builder, name: str, bound: Mapping[str, Any], move: Callable[[dict[str, Any]], Any]
) -> ComplexPair | Node | None:
    """The result of a call that makes, keeps or ends pairs; None if it does not, or not in a way that is followed."""
    values = list(bound.values())
    paired = any(isinstance(value, ComplexPair) for value in values)
    if paired and name in ATEN_MOVEMENTS and sum(isinstance(operand, (ComplexPair, Node)) for operand in values) == 1:
        # What only moves entries does so with both parts alike; of several operands each would need to be a pair.
        moved = [move({key: _part(argument, part) for key, argument in bound.items()}) for part in (0, 1)]
        return ComplexPair(*moved) if all(isinstance(half, Node) for half in moved) else None
    rule = _RULES.get(name)
    return rule(b, paired, bound) if rule is not None else None


def _part(value: Any, part: int) -> Any:
    return (value.real, value.imaginary)[part] if isinstance(value, ComplexPair) else value


def _last(b: Builder, x: Node, at: int) -> Node:
    return b.reshape(b.slice(x, -1, slice(at, at + 1)), x.shape[:-1])


def _view_as_complex(b: Builder, paired: bool, bound: Mapping[str, Any]) -> ComplexPair | None:
    x = bound["self"]
    return ComplexPair(_last(b, x, 0), _last(b, x, 1)) if isinstance(x, Node) and x.kind == "f" else None


def _view_as_real(b: Builder, paired: bool, bound: Mapping[str, Any]) -> Node | None:
    x = bound["self"]
    return b.move(lambda *t: np.stack(t, -1), x.real, x.imaginary) if paired else None


def _polar(b: Builder, paired: bool, bound: Mapping[str, Any]) -> ComplexPair:
    size, angle = bound["abs"], bound["angle"]
    return ComplexPair(*(b.mul(size, b.function(function, angle)) for function in ("cos", "sin")))


def _mul(b: Builder, paired: bool, bound: Mapping[str, Any]) -> ComplexPair | None:
    x, y = bound["self"], bound["other"]
    if not paired or any(isinstance(operand, (complex, bool)) for operand in (x, y)):
        return None
    if isinstance(x, ComplexPair) and isinstance(y, ComplexPair):
        real = b.sub(b.mul(x.real, y.real), b.mul(x.imaginary, y.imaginary))
        return ComplexPair(real, b.add(b.mul(x.real, y.imaginary), b.mul(x.imaginary, y.real)))
    pair, factor = (x, y) if isinstance(x, ComplexPair) else (y, x)
    return None if getattr(factor, "kind", "f") == "c" else ComplexPair(
        b.mul(pair.real, factor), b.mul(pair.imaginary, factor))  # fmt: skip


def _abs(b: Builder, paired: bool, bound: Mapping[str, Any]) -> Node | None:
    x = bound["self"]
    return b.power(b.add(b.power(x.real, 2), b.power(x.imaginary, 2)), 0.5) if paired else None


def _real(b: Builder, paired: bool, bound: Mapping[str, Any]) -> Node | None:
    return bound["self"].real if paired else None


def _imaginary(b: Builder, paired: bool, bound: Mapping[str, Any]) -> Node | None:
    return bound["self"].imaginary if paired else None


def _transform(b: Builder, paired: bool, bound: Mapping[str, Any]) -> ComplexPair | None:
    """`Σ_t x[t] exp(-2πi k t / n)` along an axis: fixed matrices; half of the frequencies for reals."""
    x, norm, dim = bound["self"], bound.get("norm"), bound.get("dim", -1)
    if bound.get("n") is not None or norm not in (None, "backward") or not isinstance(x, (Node, ComplexPair)):
        return None
    if getattr(x, "kind", "f") != "f":
        return None
    size = (x.real if isinstance(x, ComplexPair) else x).shape[dim]
    half = bound["half"]
    angle = 2 * math.pi * np.outer(np.arange(size // 2 + 1 if half else size), np.arange(size)) / size
    if isinstance(x, Node):
        return ComplexPair(b.along(x, dim, np.cos(angle)), b.along(x, dim, -np.sin(angle)))
    cos, sin = np.cos(angle), np.sin(angle)
    real = b.add(b.along(x.real, dim, cos), b.along(x.imaginary, dim, sin))
    return ComplexPair(real, b.sub(b.along(x.imaginary, dim, cos), b.along(x.real, dim, sin)))


_RULES: dict[str, Callable[[Builder, bool, Mapping[str, Any]], ComplexPair | Node | None]] = {
    "view_as_complex": _view_as_complex,
    "view_as_real": _view_as_real,
    "polar": _polar,
    "mul": _mul,
    "abs": _abs,
    "real": _real,
    "imag": _imaginary,
    "fft_fft": lambda b, paired, bound: _transform(b, paired, {**bound, "half": False}),
    "fft_rfft": lambda b, paired, bound: _transform(b, paired, {**bound, "half": True}),
}
COMPLEX_CALLS = frozenset(_RULES)


# Calls that compute nothing.
SILENT = frozenset({"_assert_tensor_metadata", "_assert_scalar", "_assert_async", "sym_constrain_range_for_size"})


def operator_name(target: Any) -> str:
    """The bare name of an ATen operator or a Python function: `linear`, `getitem`."""
    if isinstance(target, torch._ops.OpOverload):
        target = target.overloadpacket
    return str(getattr(target, "__name__", target))


def detach_regions(program: Any) -> None:
    """Write the parts of a program that run under `torch.no_grad()` in line, their results detached.

    Training takes those results for data, and decompositions would forget that.
    """
    graph = program.graph_module.graph
    for call in [node for node in graph.nodes if operator_name(node.target) == "wrap_with_set_grad_enabled"]:
        enabled, inside, *arguments = call.args
        part = getattr(program.graph_module, inside.target).graph
        values = dict(zip((node for node in part.nodes if node.op == "placeholder"), arguments, strict=True))
        with graph.inserting_before(call):
            for node in part.nodes:
                if node.op == "call_function":
                    values[node] = graph.node_copy(node, values.__getitem__)
            last = next(node for node in part.nodes if node.op == "output")
            results = [_detach_without_gradients(graph, values[node], enabled) if isinstance(node, fx.Node) else node
                       for node in last.args[0]]  # fmt: skip
        for reader in list(call.users):  # each takes one of the results
            reader.replace_all_uses_with(results[reader.args[1]])
            graph.erase_node(reader)
        graph.erase_node(call)


def _detach_without_gradients(graph: fx.Graph, node: fx.Node, enabled: bool) -> fx.Node:
    if enabled:
        return node
    result = graph.call_function(torch.ops.aten.detach.default, (node,))
    result.meta = dict(node.meta)
    return result


@cache
def core_decompositions() -> Mapping[Any, Callable[..., Any]]:
    """How PyTorch computes operations in terms of ATen's core, but for those that it takes apart whenever it is asked.

    `core_aten_decompositions` is the same with the latter, for which it walks through all operations at every call.

    >>> torch.ops.aten.addcmul.default in core_decompositions(), torch.ops.aten.mm.default in core_decompositions()
    (True, False)
    """
    from torch._decomp import _core_aten_decompositions_post_autograd

    return dict(_core_aten_decompositions_post_autograd())


def break_down(program: Any) -> Any:
    """The exported program with new values for changes in place, and without calls that the table does not know.

    Those are written as PyTorch itself computes them, where it says how.
    """
    from torch._export.utils import _get_decomp_for_cia

    known = (
        {call.split(".")[0] for call in ATEN} | ATEN_MOVEMENTS | ATEN_FACTORIES | ATEN_CASTS | SILENT | COMPLEX_CALLS
    )
    core, smaller, again = core_decompositions(), {}, False
    for node in program.graph.nodes:
        target = node.target
        if isinstance(target, torch._ops.OpOverload):
            again |= target._schema.is_mutable
            if operator_name(target) in known:
                continue
            if target._can_decompose():
                smaller[target] = _get_decomp_for_cia(target)
            elif target in core:
                smaller[target] = core[target]
        else:  # `torch.vmap` leaves marks of its own around the calls of one sample
            again |= "functorch" in str(getattr(target, "__module__", ""))
    return program.run_decompositions(smaller) if smaller or again else program
