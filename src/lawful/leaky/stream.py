"""Residual streams of any module: the values that the adds `x + f(x)` of its exported graph carry."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx, nn

from lawful.errors import LawfulError
from lawful.leaky.residual import ResidualAdd, residual_adds
from lawful.network.modules.calling import as_taken
from lawful.network.modules.export import ExportedModule, export_module, in_mode
from lawful.types import Floats

CHUNK = 16  # inputs at a time


@dataclass(frozen=True, eq=False)
class StreamStates:
    """What one block read and wrote: a row per neuron, a column per sample (the same samples in both)."""

    name: str
    before: Floats
    after: Floats
    projected: bool


def as_inputs(module: nn.Module, samples: Floats, where: str = "", hint: str = "") -> torch.Tensor:
    """Samples as a module takes them (`as_taken`), of its own type, tried on one.

    >>> as_inputs(nn.Embedding(5, 2), np.array([[0.0, 3.0]]))
    tensor([[0, 3]])
    """
    own = next((parameter.dtype for parameter in module.parameters()), torch.float64)
    inputs = as_taken(module, samples, own, where)
    try:
        with torch.no_grad(), in_mode(module, training=False):
            module(inputs[:1])
    except Exception as error:  # the module is the user's own code
        raise LawfulError(f"the network does not run on these samples: {str(error)[:150]}{hint}") from None
    return inputs


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
            exported = export_module(module, [chunk], _keywords(module))
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


def _keywords(module: nn.Module) -> dict[str, bool]:
    """A language model that keeps a cache returns what no graph can hold: it is called without."""
    return {"use_cache": False} if "use_cache" in inspect.signature(module.forward).parameters else {}


def columns(value: Tensor, channels: int) -> Floats:
    """A row per neuron, a column per pixel or token: in single precision, if the module has no more."""
    flat = value.detach().movedim(channels, 0).reshape(value.shape[channels], -1)
    return np.asarray((flat if flat.dtype == torch.float64 else flat.float()).cpu().numpy())


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
