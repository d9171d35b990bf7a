"""A module's graph with its layers said as layers: files and formulas write `x @ weight + bias` as two calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx, nn

from lawful.network.modules.export import ExportedModule, export_module, operator_name


def product(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """A layer whose weight is stored with inputs first.

    >>> product(torch.ones(1, 2), torch.ones(2, 1), torch.ones(1))
    tensor([[3.]])
    """
    found = x @ weight
    return found if bias is None else found + bias


def read_module(module: nn.Module, inputs: Sequence[torch.Tensor | tuple[int, ...]]) -> ExportedModule:
    """The exported graph of a module with products of weights as layers, without changes to the type it has.

    >>> class Written(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.w, self.b = nn.Parameter(torch.ones(2, 3)), nn.Parameter(torch.ones(3))
    ...     def forward(self, x):
    ...         return self.b + x @ self.w
    >>> [operator_name(call.target) for call in read_module(Written(), [(2, 5, 2)]).calls]
    ['product']
    """
    read = export_module(module, inputs)
    for node in read.calls:
        name = operator_name(node.target)
        if name == "to" and not node.kwargs and node.args[1:] == (_value(node.args[0]).dtype,):
            node.replace_all_uses_with(node.args[0])  # type: ignore[arg-type]
            read.graph.erase_node(node)
        elif name == "matmul" and _is_tensor(read, node.args[1], 2) and not _is_tensor(read, node.args[0]):
            node.target = product
        elif name == "linear" and (weight := _turned(read, node.args[1])) is not None:
            node.target, node.args = product, (node.args[0], weight, *node.args[2:])
        elif name == "add" and len(node.args) == 2 and not node.kwargs:
            _join(read, node)
    read.graph.eliminate_dead_code()
    return read


def _turned(read: ExportedModule, node: Any) -> fx.Node | None:
    """The matrix that a call turns over."""
    if isinstance(node, fx.Node) and operator_name(node.target) == "t" and _is_tensor(read, node.args[0], 2):
        return node.args[0]  # type: ignore[return-value]
    return None


def _join(read: ExportedModule, node: fx.Node) -> None:
    """A product and the bias that is added to it become one call."""
    for found, bias in (node.args, node.args[::-1]):
        if not isinstance(found, fx.Node) or found.target is not product or len(found.args) > 2:
            continue
        alone = len(found.users) == 1 and found not in read.results
        if alone and _is_tensor(read, bias, 1) and _value(bias).shape[0] == _value(found).shape[-1]:
            node.target, node.args = product, (*found.args, bias)
            read.graph.erase_node(found)
            return


def _is_tensor(read: ExportedModule, node: Any, rank: int | None = None) -> bool:
    """Whether a node is a tensor of the module, of this rank."""
    return isinstance(node, fx.Node) and node.name in read.tensors and rank in (None, _value(node).ndim)


def _value(node: Any) -> torch.Tensor:
    found: torch.Tensor = node.meta["val"]
    return found
