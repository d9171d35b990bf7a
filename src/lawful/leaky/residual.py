"""Which adds of a module's graph are residual blocks `x + f(x)`, and which dimension of their stream is the neurons'.

A residual add joins an activation, or a copy of it (in another precision, say), with something computed from it. Where
a stage changes its width the activation is carried along by an affine map; its add is a block too, `projected`,
compared with what that map makes of it, unless the other branch is affine as well (two heads that are averaged).
Two branches that are added up before they join the stream, as attention and MLP of a parallel block, are no block.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torch import Tensor, fx

from lawful.leaky.neurons import MIXING, NORMS, neurons
from lawful.network.modules.export import ExportedModule, operator_name

Above = dict[fx.Node, set[fx.Node]]
BENDING = frozenset({
    "relu", "relu6", "leaky_relu", "prelu", "elu", "celu", "selu", "gelu", "silu", "mish", "sigmoid", "tanh",
    "hardtanh", "hardswish", "hardsigmoid", "softplus", "softmax", "_softmax", "log_softmax", "exp", "pow", "abs",
    "clamp", "bmm",
})  # fmt: skip

COPIES = frozenset({"to", "_to_copy", "clone", "alias", "contiguous", "detach", "dropout", "identity", "type_as"})


@dataclass(frozen=True, eq=False)
class ResidualAdd:
    """One block: the stream that enters (`skip`), the sum that leaves, and which dimension holds the neurons."""

    name: str
    skip: fx.Node
    branch: fx.Node
    result: fx.Node
    channels: int
    projected: bool


def residual_adds(exported: ExportedModule) -> tuple[ResidualAdd, ...]:
    """The residual adds of a graph, in order.

    >>> from torch import nn
    >>> from lawful.network.modules.export import export_module
    >>> class Block(nn.Module):
    ...     def __init__(self) -> None:
    ...         super().__init__()
    ...         self.inner = nn.Linear(4, 4)
    ...     def forward(self, x: Tensor) -> Tensor:
    ...         return x + self.inner(x.relu())
    >>> net = nn.Sequential(nn.Linear(2, 4), Block(), Block(), nn.Linear(4, 1))
    >>> [add.name for add in residual_adds(export_module(net, [(3, 2)]))]
    ['1', '2']
    """
    above: Above = {}
    found: list[ResidualAdd] = []
    for node in exported.graph.nodes:
        if node.op == "placeholder":
            if node.name in exported.inputs:
                above[node] = {node}
            continue
        known = [each for each in node.all_input_nodes if each in above]
        if not known:
            continue
        above[node] = {node}.union(*(above[each] for each in known))
        if operator_name(node.target) in ("add", "add_"):
            block = _residual(node, above)
            if block is not None:
                found.append(block)
    outer = [block for block in found if not (block.projected and _inside(block, found, above))]
    return tuple(_completed(outer, exported))


def _inside(block: ResidualAdd, found: list[ResidualAdd], above: Above) -> bool:
    """Whether an add of two branches is part of what another block adds to its stream."""
    return any(
        not other.projected and block.result in above[other.branch] and block.result not in above[other.skip]
        for other in found
    )


def _residual(node: fx.Node, above: Above) -> ResidualAdd | None:
    first, second = (*node.args[:2], None)[:2]
    if not (isinstance(first, fx.Node) and isinstance(second, fx.Node) and first in above and second in above):
        return None
    if shape_of(first) != shape_of(second) or len(shape_of(node)) < 2 or first is second:
        return None
    leads = _original(first) in above[second]
    projected = not (leads or _original(second) in above[first])
    if projected:
        ways = sorted(((first, second), (second, first)), key=lambda way: len(above[way[0]] - above[way[1]]))
        carried = [way for way in ways if _affine(above[way[0]] - above[way[1]], above)]
        if len(carried) != 1 or not _stream(above[first] & above[second]):
            return None
        skip, branch = carried[0]
    else:
        skip, branch = (first, second) if leads else (second, first)
    if not any(_weighs(each) for each in above[branch] - above[skip]):
        return None  # nothing is computed on the way: no block
    return ResidualAdd(_name(node, skip, branch, above), skip, branch, node, 0, projected)


def _original(node: fx.Node) -> fx.Node:
    """What a chain of copies is a copy of."""
    while operator_name(node.target) in COPIES and node.all_input_nodes:
        node = node.all_input_nodes[0]
    return node


def _stream(nodes: set[fx.Node]) -> bool:
    """Whether one of the nodes is an activation: tokens and masks that two sides share make no stream."""
    values = (node.meta.get("val") for node in nodes)
    return any(isinstance(value, Tensor) and value.is_floating_point() and value.ndim > 1 for value in values)


def _affine(nodes: set[fx.Node], above: Above) -> bool:
    """Whether nothing bends on the way: no activation, and no product of two things that the input moves."""
    for node in nodes:
        name = operator_name(node.target)
        if name in BENDING or name.startswith("scaled_dot_product"):
            return False
        if name in ("mul", "div", "matmul", "mm") and sum(each in above for each in node.all_input_nodes) > 1:
            return False
    return True


def _weighs(node: fx.Node) -> bool:
    """Whether a call mixes neurons."""
    name = operator_name(node.target)
    return name in MIXING or name in NORMS or name.startswith("scaled_dot_product")


def _completed(found: list[ResidualAdd], exported: ExportedModule) -> Iterator[ResidualAdd]:
    """Names apart; and blocks of one shape have their neurons in one dimension."""
    votes: dict[tuple[int, ...], list[tuple[int, int]]] = defaultdict(list)
    for block in found:
        votes[shape_of(block.result)] += neurons((block.skip, block.result, block.branch), exported)
    names = [block.name for block in found]
    paths = [_path(block.result) for block in found]
    for number, block in enumerate(found):
        dimensions = len(shape_of(block.result))
        cast = votes[shape_of(block.result)]
        best = [place for rank, place in cast if rank == min(cast)[0]]
        default = 1 if dimensions == 4 else dimensions - 1
        channels = 1 if dimensions == 2 else max(sorted(set(best)), key=best.count) if best else default
        name = paths[number] if paths[number] and paths.count(paths[number]) == 1 else block.name
        if names.count(name) > 1:
            name = f"{name}#{1 + names[:number].count(name)}"
        yield ResidualAdd(name, block.skip, block.branch, block.result, channels, block.projected)


def shape_of(node: fx.Node) -> tuple[int, ...]:
    """The shape of a node's value, () if that is no tensor."""
    value: Any = node.meta.get("val")
    return tuple(value.shape) if isinstance(value, Tensor) else ()


def _name(node: fx.Node, skip: fx.Node, branch: fx.Node, above: Above) -> str:
    """The module that adds, and the part of it that computed the branch: the last one that mixes neurons."""
    here = _path(node)
    mixing = [each for each in above[branch] - above[skip] if operator_name(each.target) in MIXING]
    order = {each: place for place, each in enumerate(above)}
    there = _path(max(mixing, key=order.__getitem__, default=branch))
    inside = there.removeprefix(here).strip(".").split(".")[0] if there.startswith(here) else ""
    return ".".join(part for part in (here, inside) if part) or node.name


def _path(node: fx.Node) -> str:
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    return str(stack[-1][0]) if stack else ""
