"""Residual streams of any module: the adds `x + f(x)` of its exported graph, and the values they carry.

A residual add joins an activation with something computed from it. The stream is what its first argument carries: for
images a sample is a pixel, for text a token, and the neurons are the channels. A stage that changes its width projects
both sides; its add joins two branches of one value and is a block too, compared with the shorter branch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx, nn

from lawful.network.modules.export import ExportedModule, export_module, operator_name
from lawful.types import Floats

CHUNK = 16  # inputs at a time
CHANNELS_LAST = frozenset({"linear", "addmm", "mm", "matmul", "bmm", "layer_norm", "embedding"})
CHANNELS_SECOND = frozenset({"conv1d", "conv2d", "conv3d", "convolution", "batch_norm", "group_norm"})


@dataclass(frozen=True, eq=False)
class ResidualAdd:
    """One block: the stream that enters (`skip`), the sum that leaves, and which dimension holds the neurons."""

    name: str
    skip: fx.Node
    result: fx.Node
    channels: int
    projected: bool


def residual_adds(exported: ExportedModule) -> tuple[ResidualAdd, ...]:
    """The residual adds of a graph, in order.

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
    above: dict[fx.Node, set[fx.Node]] = {}
    found: list[ResidualAdd] = []
    for node in exported.graph.nodes:
        known = [each for each in node.all_input_nodes if each in above]
        if node.op == "placeholder":
            if node.name in exported.inputs:
                above[node] = {node}
            continue
        if not known:
            continue
        above[node] = {node}.union(*(above[each] for each in known))
        if operator_name(node.target) in ("add", "add_"):
            block = _residual(node, above)
            if block is not None:
                found.append(block)
    return tuple(_completed(found))


def _completed(found: list[ResidualAdd]) -> Iterator[ResidualAdd]:
    """Names apart, and where a branch hides its neurons' dimension, that of another block of the same shape."""
    places = {_shape(block.result): block.channels for block in found if block.channels}
    names = [block.name for block in found]
    paths = [_path(block.result) for block in found]
    for number, block in enumerate(found):
        dimensions = len(_shape(block.result))
        channels = block.channels or places.get(_shape(block.result)) or (1 if dimensions == 4 else dimensions - 1)
        name = paths[number] if paths[number] and paths.count(paths[number]) == 1 else block.name
        if names.count(name) > 1:
            name = f"{name}#{1 + names[:number].count(name)}"
        yield ResidualAdd(name, block.skip, block.result, channels, block.projected)


def _residual(node: fx.Node, above: dict[fx.Node, set[fx.Node]]) -> ResidualAdd | None:
    first, second = (*node.args[:2], None)[:2]
    if not (isinstance(first, fx.Node) and isinstance(second, fx.Node) and first in above and second in above):
        return None
    if _shape(first) != _shape(second) or len(_shape(node)) < 2 or first is second:
        return None
    if first in above[second] or second in above[first]:
        skip, branch, projected = (first, second, False) if first in above[second] else (second, first, False)
    else:
        alone = [above[each] - above[other] for each, other in ((first, second), (second, first))]
        if not any(_weighs(each) for each in alone[0] | alone[1]) or not above[first] & above[second]:
            return None
        shorter = len(alone[0]) <= len(alone[1])
        skip, branch, projected = (first, second, True) if shorter else (second, first, True)
    if not any(_weighs(each) for each in above[branch] - above[skip]):
        return None  # nothing is computed on the way: no block
    return ResidualAdd(_name(node, branch), skip, node, _channels(branch, len(_shape(node))), projected)


def _shape(node: fx.Node) -> tuple[int, ...]:
    value = node.meta.get("val")
    return tuple(value.shape) if isinstance(value, Tensor) else ()


def _weighs(node: fx.Node) -> bool:
    """Whether a call mixes neurons."""
    name = operator_name(node.target)
    return name in CHANNELS_LAST or name in CHANNELS_SECOND or name.startswith("scaled_dot_product")


def _channels(branch: fx.Node, dimensions: int) -> int:
    """The dimension of the neurons: where the branch's last layer left them, permuted since; 0 if hidden."""
    if dimensions == 2:
        return 1
    moved: list[Sequence[int]] = []
    node: Any = branch
    while isinstance(node, fx.Node) and node.op == "call_function":
        name, arguments = operator_name(node.target), _plain(node.args)
        if name in CHANNELS_LAST or name in CHANNELS_SECOND:
            place = 1 if name in CHANNELS_SECOND else len(_shape(node)) - 1
            for order in reversed(moved):
                place = list(order).index(place)
            return place
        if name == "permute":
            moved.append([axis % dimensions for axis in arguments[1]])
        elif name == "transpose":
            order = list(range(dimensions))
            one, two = (axis % dimensions for axis in arguments[1:3])
            order[one], order[two] = order[two], order[one]
            moved.append(order)
        elif len(_shape(node)) != dimensions:
            break
        node = next((each for each in node.all_input_nodes if len(_shape(each)) == dimensions), None)
    return 0


def _plain(arguments: Any) -> Any:
    """The arguments of a call, untyped."""
    return arguments


def _name(node: fx.Node, branch: fx.Node) -> str:
    """The module that adds, and the part of it that computed the branch."""
    here, there = (_path(each) for each in (node, branch))
    inside = there.removeprefix(here).strip(".").split(".")[0] if there.startswith(here) else ""
    return ".".join(part for part in (here, inside) if part) or node.name


def _path(node: fx.Node) -> str:
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    return str(stack[-1][0]) if stack else ""


@dataclass(frozen=True, eq=False)
class StreamStates:
    """What one block read and wrote: a row per neuron, a column per sample (the same samples in both)."""

    name: str
    before: Floats
    after: Floats
    projected: bool


def stream_states(module: nn.Module, inputs: Tensor, *, most: int, seed: int = 0) -> tuple[StreamStates, ...]:
    """Run the module in eval mode and keep at most so many samples (pixels, tokens) of every residual add."""
    chunks = [inputs[start : start + CHUNK] for start in range(0, len(inputs), CHUNK)]
    graphs: dict[int, tuple[ExportedModule, tuple[ResidualAdd, ...]]] = {}
    kept: dict[str, list[tuple[Floats, Floats]]] = {}
    projected: dict[str, bool] = {}
    rng = np.random.default_rng(seed)
    share = -(-most // len(chunks))
    for chunk in chunks:
        if len(chunk) not in graphs:
            exported = export_module(module, [chunk])
            graphs[len(chunk)] = exported, residual_adds(exported)
        exported, blocks = graphs[len(chunk)]
        wanted = {each for block in blocks for each in (block.skip, block.result)}
        values = dict(_run(exported, chunk, wanted))
        for block in blocks:
            pair = [columns(values[each], block.channels) for each in (block.skip, block.result)]
            chosen = _some(pair[0].shape[1], share, rng)
            kept.setdefault(block.name, []).append((pair[0][:, chosen], pair[1][:, chosen]))
            projected[block.name] = block.projected
    return tuple(
        StreamStates(
            name,
            np.concatenate([before for before, _ in pairs], axis=1),
            np.concatenate([after for _, after in pairs], axis=1),
            projected[name],
        )
        for name, pairs in kept.items()
    )


def columns(value: Tensor, channels: int) -> Floats:
    """A row per neuron, a column per pixel or token."""
    flat = value.detach().movedim(channels, 0).reshape(value.shape[channels], -1)
    return np.asarray(flat.double().cpu().numpy())


def _some(count: int, most: int, rng: np.random.Generator) -> Any:
    return slice(None) if count <= most else np.sort(rng.choice(count, most, replace=False))


@torch.no_grad()
def _run(exported: ExportedModule, given: Tensor, wanted: set[fx.Node]) -> Iterator[tuple[fx.Node, Tensor]]:
    """Follow the graph on one input until all wanted values are there; values are dropped after their last use."""
    waiting = len(wanted)
    last = {each: node for node in exported.graph.nodes for each in node.all_input_nodes}
    values: dict[fx.Node, Any] = {}
    for node in exported.graph.nodes:
        if not waiting:
            return  # what follows, such as the scores of a vocabulary, is not asked for
        if node.op == "placeholder":
            values[node] = given if node.name in exported.inputs else exported.tensors.get(node.name)
        else:
            arguments = fx.map_arg(node.args, values.__getitem__)
            keywords = fx.map_arg(node.kwargs, values.__getitem__)
            values[node] = node.target(*arguments, **keywords)
        if node in wanted:
            waiting -= 1
            yield node, values[node]
        for each in (*node.all_input_nodes, node):
            if last.get(each, node) is node:
                values.pop(each, None)
