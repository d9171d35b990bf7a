"""Calls of a PyTorch function, recorded once and replayed: no module code, no autograd, no dispatch to modes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx

Tensors = Sequence[torch.Tensor]
ATEN = torch.ops.aten
QUICK: dict[Any, Any] = {  # the same calls, past the dispatcher's own Python
    ATEN.t.default: torch.t, ATEN.mm.default: torch.mm, ATEN.bmm.default: torch.bmm, ATEN.addmm.default: torch.addmm,
    ATEN.mul.Tensor: torch.mul, ATEN.add.Tensor: torch.add, ATEN.sub.Tensor: torch.sub,
    ATEN.sum.dim_IntList: torch.sum,
}  # fmt: skip


def record_calls(function: Callable[..., Sequence[torch.Tensor]], examples: Tensors) -> Callable[..., Tensors] | None:
    """The same function of tensors of these sizes as a list of ATen calls, backward passes included.

    None where the calls cannot be known beforehand: a branch that depends on values, a number taken out of a tensor, a
    change in place of something that is not an argument.

    >>> def slope(x):
    ...     x = x.detach().requires_grad_()
    ...     return torch.autograd.grad(x.sin().sum(), [x])
    >>> replay = record_calls(slope, [torch.zeros(3)])
    >>> torch.allclose(replay(torch.ones(3))[0], torch.ones(3).cos())
    True
    >>> record_calls(lambda x: [x if x.sum() > 0 else -x], [torch.ones(3)]) is None
    True
    """
    try:
        module: Any = make_fx(function)(*examples)
    except Exception:  # the module's own code runs, and tracing refuses in many ways
        return None
    if any(_changes(node) and _lasting(node.args[0]) for node in module.graph.nodes):
        return None
    for node in list(module.graph.nodes):
        _simplify(node, module.graph)
    module.graph.eliminate_dead_code(lambda node: node.op in ("placeholder", "output") or _changes(node))
    module.recompile()
    forward: Callable[..., Tensors] = module.forward
    return forward


def _changes(node: fx.Node) -> bool:
    """Whether a call changes its first argument in place."""
    return isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable


def _lasting(node: Any) -> bool:
    """Whether a value lives in a tensor that is not made anew by every replay: an argument or a buffer."""
    while isinstance(node, fx.Node) and node.op == "call_function" and _looks_into(node):
        node = node.args[0]
    return not (isinstance(node, fx.Node) and node.op == "call_function")


def _looks_into(node: fx.Node) -> bool:
    """Whether a call returns a view of its first argument, or that argument."""
    schema = getattr(node.target, "_schema", None)
    return schema is not None and any(result.alias_info is not None for result in schema.returns)


def _simplify(node: fx.Node, graph: fx.Graph) -> None:
    """Leave out what changes nothing, and call by the quickest way."""
    if node.op != "call_function":
        return
    source: Any = node.args[0] if node.args else None
    same = isinstance(source, fx.Node) and _shape(node) == _shape(source)
    if node.target is ATEN.detach.default or (node.target in (ATEN.view.default, ATEN.expand.default) and same):
        node.replace_all_uses_with(source)
        graph.erase_node(node)
    elif node.target is ATEN.t.default and source.target in (ATEN.t.default, torch.t):
        node.replace_all_uses_with(source.args[0])
        graph.erase_node(node)
    elif not node.kwargs and node.target in QUICK:
        node.target = QUICK[node.target]


def _shape(node: fx.Node) -> tuple[int, ...] | None:
    value = node.meta.get("val")
    return tuple(value.shape) if isinstance(value, torch.Tensor) else None
