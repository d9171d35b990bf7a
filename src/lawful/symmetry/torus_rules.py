"""Scales entry by entry: labels of each call's result from those of its arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import fx

from lawful.program.frontends.export import ExportedModule, operator_name
from lawful.symmetry.labels import compact
from lawful.symmetry.logarithms import Logarithms
from lawful.types import Residues

MOVES = {"view", "reshape", "_unsafe_view", "flatten", "unflatten", "squeeze", "unsqueeze", "expand", "permute",
         "transpose", "t", "numpy_T", "mT", "movedim", "slice", "select", "narrow", "flip", "roll", "repeat",
         "contiguous", "clone", "alias", "to", "_to_copy", "neg"}  # fmt: skip
PASSES = {"relu", "leaky_relu", "abs", "dropout"}  # positive scales pass, entry by entry


def read_logarithms(
    exported: ExportedModule, shapes: Mapping[str, tuple[int, ...]]
) -> tuple[dict[str, Residues], Logarithms]:
    """The label of every entry of each parameter, and the equations that all calls of the graph demand."""
    torus = Logarithms()
    values: dict[fx.Node, Any] = {}
    entries: dict[str, Residues] = {
        name: np.zeros(int(np.prod(shape, dtype=int)), np.int64) for name, shape in shapes.items()
    }
    for node in exported.graph.nodes:
        shape = _shape(node)
        if node.op == "placeholder" and node.name in exported.trained and exported.names[node.name] in shapes:
            labels = torus.fresh(int(np.prod(shape, dtype=int)))
            entries[exported.names[node.name]] = labels.numpy()
            values[node] = labels.reshape(shape)
        elif node.op == "call_function":
            values[node] = _call(torus, node, values)
        elif node.op == "output":
            for each in node.all_input_nodes:
                _pin(torus, values[each])
        else:
            values[node] = _still(shape)
    return entries, torus


def _call(torus: Logarithms, node: fx.Node, values: Mapping[fx.Node, Any]) -> Any:
    name = operator_name(node.target)
    if name == "getitem":
        return values[node.args[0]][node.args[1]]  # type: ignore[index]
    rule = RULES.get(name)
    given = [values[each] for each in node.all_input_nodes]
    named = name == "scaled_dot_product_attention" or not node.kwargs  # options by name are not read
    if rule is not None and named and all(isinstance(each, torch.Tensor) for each in given):
        arguments = fx.map_arg(node.args, lambda each: values[each])
        try:
            result = rule(torus, node, *arguments)
            if tuple(result.shape) == _shape(node):
                return result
            torus.pin(result)
        except (TypeError, RuntimeError, IndexError, ValueError):
            pass
    for each in given:
        _pin(torus, each)
    found = node.meta.get("val")
    if isinstance(found, (tuple, list)):
        return tuple(_still(tuple(part.shape)) for part in found if isinstance(part, torch.Tensor))
    return _still(_shape(node))


def _pin(torus: Logarithms, value: Any) -> None:
    for part in value if isinstance(value, tuple) else (value,):
        torus.pin(part)


def _shape(node: fx.Node) -> tuple[int, ...]:
    value = node.meta.get("val")
    return tuple(int(size) for size in value.shape) if isinstance(value, torch.Tensor) else ()


def _still(shape: tuple[int, ...]) -> torch.Tensor:
    return torch.zeros((), dtype=torch.int64).expand(shape)


# Rules: labels of the result from those of the arguments


def _moved(torus: Logarithms, node: fx.Node, x: torch.Tensor, *rest: Any) -> torch.Tensor:
    name = operator_name(node.target)
    if name in ("to", "_to_copy", "contiguous", "clone", "alias", "neg"):
        return x
    if name in ("view", "reshape", "_unsafe_view", "expand"):
        return compact(x.reshape(_shape(node)) if name != "expand" else x.expand(_shape(node)))
    return compact(node.target(x, *rest))  # type: ignore[operator]


def _same(torus: Logarithms, node: fx.Node, x: torch.Tensor, *rest: Any) -> torch.Tensor:
    return x


def _sum(torus: Logarithms, node: fx.Node, x: Any, y: Any) -> torch.Tensor:
    if not isinstance(x, torch.Tensor) or not isinstance(y, torch.Tensor):
        raise TypeError("a number stands still")
    shape = _shape(node)
    torus.same(x.expand(shape), y.expand(shape))
    return x.expand(shape)


def _product(torus: Logarithms, node: fx.Node, x: Any, y: Any) -> torch.Tensor:
    if not isinstance(x, torch.Tensor) or not isinstance(y, torch.Tensor):
        found: torch.Tensor = x if isinstance(x, torch.Tensor) else y
        return found
    return torus.total(x, y, -1.0 if operator_name(node.target) == "div" else 1.0)


def _power(torus: Logarithms, node: fx.Node, x: Any, exponent: Any) -> torch.Tensor:
    if not isinstance(x, torch.Tensor) or not isinstance(exponent, (int, float)):
        raise TypeError("only a fixed exponent is followed")
    return torus.total(_still(tuple(x.shape)), x, float(exponent))


def _matmul(torus: Logarithms, node: fx.Node, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    if x.dim() < 2 or y.dim() < 2:
        raise TypeError("vectors are not followed")
    wide = torus.total(x.unsqueeze(-1), y.unsqueeze(-3), summed=max(x.dim(), y.dim()) - 1)
    return wide.squeeze(-2)


def _linear(
    torus: Logarithms, node: fx.Node, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
) -> torch.Tensor:
    found = _matmul(torus, node, x, weight.transpose(-1, -2))
    if bias is not None:
        torus.same(found, bias.expand(found.shape))
    return found


def _embedding(torus: Logarithms, node: fx.Node, weight: torch.Tensor, *rest: Any) -> torch.Tensor:
    return torus.level(weight, [0])[0].expand(_shape(node))


def _mean(torus: Logarithms, node: fx.Node, x: torch.Tensor, dims: Sequence[int], *rest: Any) -> torch.Tensor:
    return torus.level(x, [d % x.dim() for d in dims]).reshape(_shape(node))


def _softmax(torus: Logarithms, node: fx.Node, x: torch.Tensor, *rest: Any) -> torch.Tensor:
    torus.pin(x)
    return _still(_shape(node))


def _normalised(torus: Logarithms, node: fx.Node, x: torch.Tensor, size: Any, *rest: Any) -> torch.Tensor:
    """Norms of the last dimensions: the input stands still, gain and bias move alike."""
    torus.pin(x)
    gains = [part for part in rest if isinstance(part, torch.Tensor)]
    for other in gains[1:]:
        torus.same(gains[0], other)
    return gains[0].expand(_shape(node)) if gains and len(gains) == len(rest[:2]) else _softly(torus, node, gains)


def _softly(torus: Logarithms, node: fx.Node, gains: Sequence[torch.Tensor]) -> torch.Tensor:
    if operator_name(node.target) == "rms_norm" and gains:
        return gains[0].expand(_shape(node))
    for each in gains:
        torus.pin(each)
    return _still(_shape(node))


def _attention(
    torus: Logarithms, node: fx.Node, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *rest: Any
) -> torch.Tensor:
    if any(isinstance(each, torch.Tensor) for each in rest) or node.kwargs.get("enable_gqa"):
        raise TypeError("masks and grouped heads are not followed")
    torus.pin(torus.total(q.unsqueeze(-2), k.unsqueeze(-3), summed=q.dim()).squeeze(-1))
    return torus.level(v, [v.dim() - 2]).expand(_shape(node))


Rule = Callable[..., torch.Tensor]
RULES: dict[str, Rule] = {
    **dict.fromkeys(MOVES, _moved),
    **dict.fromkeys(PASSES, _same),
    "add": _sum,
    "sub": _sum,
    "mul": _product,
    "div": _product,
    "pow": _power,
    "matmul": _matmul,
    "bmm": _matmul,
    "linear": _linear,
    "embedding": _embedding,
    "mean": _mean,
    "softmax": _softmax,
    "layer_norm": _normalised,
    "rms_norm": _normalised,
    "scaled_dot_product_attention": _attention,
}
