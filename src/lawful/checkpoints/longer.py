"""Two modules that are written in different ways and agree on short inputs: does a longer one tell them apart?

A common form is tried at the size of the inputs that were given. A window of attention that is larger than that does
nothing there. Settings that both modules carry name such sizes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn

from lawful.checkpoints.opening import NOT_COMPARED, ApartPair
from lawful.checkpoints.replay import replay
from lawful.errors import LawfulError
from lawful.network.modules.export import export_module
from lawful.symmetry.check import random_inputs

MOST_TOKENS = 1_100  # of an input that is tried
AGREE = 1e-9  # of the outputs' size, or so many times what their weights agree within
TIMES = 100.0


def told_by_longer(pair: ApartPair, within: float) -> str | None:
    """The setting that a longer input shows, or one that is too large to be tried and is used in a graph, if there is
    one. Both checkpoints are known to agree on the inputs given, their weights up to `within`."""
    one, two = pair.architectures
    kinds = [not tensor.is_floating_point() and tensor.ndim > 1 for tensor in one.inputs]
    if not any(kinds) or one.large:
        return None
    tokens = max(tensor.shape[-1] for tensor, whole in zip(one.inputs, kinds, strict=True) if whole)
    for size, words in sorted(differing_sizes(one.module, two.module, tokens).items()):
        remedy = f"({words}): give them with --input {size + 1}:int"
        if size >= MOST_TOKENS:
            if any(size in node.args for each in (one, two) for node in each.exported.calls):
                return f"inputs of {size + 1} tokens may tell them apart {remedy}"
            continue
        longer = [
            tensor.new_zeros((*tensor.shape[:-1], size + 1)) if whole else tensor
            for tensor, whole in zip(one.inputs, kinds, strict=True)
        ]
        try:
            outputs = _outputs(pair, longer, size)
        except (LawfulError, IndexError, RuntimeError):  # one of them takes no inputs as long as that
            continue
        gap = max(float((a - b).abs().max()) for a, b in zip(*outputs, strict=True))
        if not gap <= max(AGREE, TIMES * within) * max(float(a.abs().max()) for a in outputs[0]):
            return f"inputs of {size + 1} tokens tell them apart {remedy}"
    return None


def _outputs(pair: ApartPair, longer: list[torch.Tensor], seed: int) -> list[list[torch.Tensor]]:
    """Of both checkpoints, each in its own module, at one random input of these sizes."""
    graphs = [export_module(each.module, longer) for each in pair.architectures]
    inputs = random_inputs(longer, graphs[0], torch.Generator().manual_seed(seed))
    states = pair.first.state, pair.second.state
    return [replay(graph, state, [inputs])[0] for graph, state in zip(graphs, states, strict=True)]


def differing_sizes(one: nn.Module, two: nn.Module, tokens: int) -> dict[int, str]:
    """Whole numbers that inputs of so many tokens do not reach, in settings in which two modules differ."""
    settings = [_settings(each) for each in (one, two)]
    found: dict[int, str] = {}
    for key in sorted({*settings[0], *settings[1]} - NOT_COMPARED):
        values = [each.get(key) for each in settings]
        if values[0] != values[1] and not key.endswith(("token_id", "token_ids")):
            words = f"{key} is {values[0]} in A, {values[1]} in B"[:100]
            found |= {number: words for value in values for number in _whole(value) if number >= tokens}
    return found


def _settings(module: nn.Module) -> dict[str, Any]:
    told = getattr(getattr(module, "config", None), "to_dict", None)
    return dict(told()) if callable(told) else {}


def _whole(value: Any) -> Iterator[int]:
    if isinstance(value, Mapping):
        for each in value.values():
            yield from _whole(each)
    elif isinstance(value, int) and not isinstance(value, bool):
        yield value
