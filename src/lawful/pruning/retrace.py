"""A smaller module as its traced graph, where the module's own class cannot hold the sizes that are left."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import fx, nn

from lawful.errors import Unsupported
from lawful.network.modules.export import ExportedModule, operator_name
from lawful.pruning.attention import attentions
from lawful.pruning.cut import KeptChannels, bias_beside, cut_tensors
from lawful.pruning.groups import groups_left

SIZES = {"view": 1, "reshape": 1, "expand": 1, "_unsafe_view": 1, "unflatten": 2}  # where a call states sizes
PARTS = ("split", "split_with_sizes")


@torch.no_grad()
def traced_module(read: ExportedModule, state: KeptChannels) -> fx.GraphModule:
    """The graph with its tensors at their new sizes, under their names; for inputs of the size it was traced with."""
    graph = copy.deepcopy(read.graph)
    nodes = {node.name: node for node in graph.nodes}
    new = new_sizes(read, state)
    for name, sizes in new.items():
        _resize(nodes[name], sizes)
    for name, parts in new_parts(read, new).items():
        node = nodes[name]
        node.target = torch.ops.aten.split_with_sizes.default
        node.args = (node.args[0], list(parts), *node.args[2:])
    for operation in state.program.operations:
        if operation.kind == "depthwise" or operation.groups > 1:
            rows = state.alive_at(operation.name)
            count = int(rows.sum()) if operation.kind == "depthwise" else groups_left(operation, rows)
            nodes[operation.name].update_arg(6, count)
    cut = cut_tensors(state)
    root = nn.Module()
    for name, tensor in read.tensors.items():
        node = nodes[name]
        path = read.names.get(name, f"constant_{name}")
        array = cut.get(path)
        value = tensor.detach().clone() if array is None else torch.as_tensor(array.copy())
        _hold(root, path, value, name in read.trained)
        if not node.users:
            continue
        with graph.inserting_before(node):
            node.replace_all_uses_with(graph.get_attr(path))
    _add_biases(root, graph, nodes, state, cut)
    for name in read.tensors:
        graph.erase_node(nodes[name])
    last = next(node for node in reversed(graph.nodes) if node.op == "output")
    parts = tuple(last.args[0])
    last.args = (parts[0] if len(parts) == 1 else parts,)
    found = fx.GraphModule(root, graph)
    found.graph.lint()
    return found


def new_sizes(read: ExportedModule, state: KeptChannels) -> dict[str, tuple[int, ...]]:
    """The sizes of every activation whose channels are fewer now."""
    found: dict[str, tuple[int, ...]] = {}
    for name, spot in state.program.spots.items():
        left = int(state.alive_at(name).sum())
        if left != len(spot.cells):
            found[name] = tuple(left if axis == spot.axis else size for axis, size in enumerate(spot.shape))
    for attention in attentions(read):
        for name, (source, labels) in attention.inner.items():
            kept = torch.as_tensor(state.alive_at(attention.result if source is None else source))
            if not bool(kept.all()) and isinstance(labels, torch.Tensor):
                found[name] = _counted(kept[labels])
    calls = {call.name for call in read.calls}
    return {name: sizes for name, sizes in found.items() if name in calls}


def new_parts(read: ExportedModule, sizes: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """The sizes of parts of an activation, where those of its calls changed."""
    found: dict[str, tuple[int, ...]] = {}
    for call in read.calls:
        parts = {user.args[1]: user for user in call.users if operator_name(user.target) == "getitem"}
        if operator_name(call.target) in PARTS and any(user.name in sizes for user in parts.values()):
            if len(parts) != len(call.meta["val"]):
                raise Unsupported("a part that nobody reads")
            axis: Any = call.args[2] if len(call.args) > 2 else 0
            whole = [sizes.get(parts[at].name, tuple(parts[at].meta["val"].shape)) for at in sorted(parts)]  # type: ignore[type-var]
            found[call.name] = tuple(int(each[axis]) for each in whole)
    return found


def _counted(left: torch.Tensor) -> tuple[int, ...]:
    """Sizes of what is left of a tensor, if every line that is left keeps equally much.

    >>> _counted(torch.tensor([[True, False, True], [False, False, False], [True, True, False]]))
    (2, 2)
    """
    sizes: list[int] = []
    while left.ndim:
        sizes.append(int(left.sum(dim=-1).max()))
        left = left.any(dim=-1)
    return tuple(reversed(sizes))


def _resize(node: fx.Node, sizes: tuple[int, ...]) -> None:
    """Change the sizes that a call states."""
    name = operator_name(node.target)
    if name in SIZES:
        place = SIZES[name]
        old = tuple(int(size) for size in node.meta["val"].shape)
        start = int(node.args[1]) % node.args[0].meta["val"].ndim if name == "unflatten" else 0  # type: ignore[union-attr, arg-type]
        stated: Any = list(node.args[place])  # type: ignore[arg-type]
        for at, size in enumerate(stated):
            if size == old[start + at]:
                stated[at] = sizes[start + at]
        node.update_arg(place, stated)
    elif name == "slice" and sizes[int(node.args[1])] != node.meta["val"].shape[int(node.args[1])]:  # type: ignore[arg-type]
        raise Unsupported("a slice of another size")


def _hold(root: nn.Module, path: str, value: torch.Tensor, trained: bool) -> None:
    """Put a tensor under its name."""
    owner = root
    *parts, last = path.split(".")
    for part in parts:
        if part not in owner._modules:
            owner.add_module(part, nn.Module())
        owner = owner.get_submodule(part)
    if trained:
        owner.register_parameter(last, nn.Parameter(value))
    else:
        owner.register_buffer(last, value)


def _add_biases(
    root: nn.Module, graph: fx.Graph, nodes: Mapping[str, fx.Node], state: KeptChannels, cut: Mapping[str, Any]
) -> None:
    """Layers that gain a bias."""
    for operation in state.program.operations:
        weight = str(operation.tensors.get("weight"))
        if operation.kind == "layer" and weight in state.added:
            name = bias_beside(weight)
            _hold(root, name, torch.as_tensor(cut[name].copy()), True)
            node = nodes[operation.name]
            with graph.inserting_before(node):
                bias = graph.get_attr(name)
            node.args = (*node.args[:2], bias, *node.args[3:])
