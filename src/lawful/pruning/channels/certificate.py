"""A pruning of channels as one JSON object: operations, weights before and after, what is gone and what takes over."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from lawful.errors import Unsupported
from lawful.invariant_set.certificate import tensor_bytes, tensor_line, weights_digest
from lawful.pruning.channels import ChannelPruning
from lawful.pruning.channels.cut import bias_beside
from lawful.pruning.channels.fold_and_drop import Tidying
from lawful.pruning.channels.program import ChannelProgram, Heads
from lawful.pruning.channels.weights import Move, refuse_large

if TYPE_CHECKING:
    from lawful.pruning.channels.onnx_file import OnnxPruning

MOST_NUMBERS = 4_000_000  # that a certificate writes down: 21 MB of float32 as text
MOST_INLINE = 4_096  # of a tensor in a certificate of more: biases and statistics
TYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def certificate(pruning: ChannelPruning | OnnxPruning) -> dict[str, Any]:
    """The operations on channels, both sets of weights, what is gone, and what takes over.

    >>> from torch import nn
    >>> from lawful.pruning.channels import prune_channels
    >>> model = nn.Sequential(nn.Linear(2, 3), nn.GELU(), nn.Linear(3, 1))
    >>> with torch.no_grad():
    ...     _ = model[0].weight[1].zero_()
    >>> certificate(prune_channels(model, [(2, 2)]))["gone"]
    [[1, 1]]
    """
    if isinstance(pruning, ChannelPruning):
        states = pruning.original.state_dict(), pruning.module.state_dict()
    else:
        before, after = ({name: torch.as_tensor(array) for name, array in weights.items()}
                         for weights in (pruning.before, pruning.after))  # fmt: skip
        states = before, after
    return written(pruning.program, pruning.moves, pruning.gone, *states, pruning.tidied)


def written(
    program: ChannelProgram,
    moves: Sequence[Move],
    gone: Sequence[int],
    before: Mapping[str, torch.Tensor],
    after: Mapping[str, torch.Tensor],
    tidied: Tidying | None = None,
) -> dict[str, Any]:
    """The same from its parts: weights by name before and after."""
    used = {name for operation in program.operations for name in operation.tensors.values() if name is not None}
    gained = {
        bias_beside(str(operation.tensors["weight"])): str(operation.tensors["weight"])
        for operation in program.operations
        if operation.kind in ("layer", "depthwise") and operation.tensors["bias"] is None
    }
    added = {name: weight for name, weight in gained.items() if name in after and name not in before}
    refuse_large(program, before)
    size = sum(arrays[name].numel() for arrays in (before, after) for name in {*used, *added} if name in arrays)
    most = MOST_INLINE if size > MOST_NUMBERS else size
    _refuse_types(before, used)
    numbers = {name: place for place, name in enumerate(program.activations)}
    known = {operation.name: operation for operation in program.operations}
    steps = []
    for name, cells in program.activations.items():
        operation = known.get(name)
        steps.append({
            "kind": "input" if operation is None else operation.kind,
            "sources": [] if operation is None else [numbers[source] for source in operation.sources],
            "channels": len(cells),
            "tensors": {} if operation is None else dict(operation.tensors),
            "padded": operation is not None and operation.padded,
            "width": 1 if operation is None else operation.width,
            "function": "" if operation is None else operation.function,
            "arguments": [] if operation is None else list(operation.arguments),
        })  # fmt: skip
        if operation is not None and operation.tensors.get("weight") in program.transposed:
            steps[-1]["transposed"] = True
        if operation is not None and operation.groups > 1:
            steps[-1]["groups"] = operation.groups
        if operation is not None and operation.attention is not None:
            steps[-1]["heads"] = _heads(operation.attention)
    homes = {int(cell): (numbers[name], place) for name, cells in reversed(list(program.activations.items()))
             for place, cell in enumerate(cells)}  # fmt: skip
    layers = {str(operation.tensors["weight"]): numbers[operation.name] for operation in reversed(program.operations)
              if operation.kind in ("layer", "depthwise")}  # fmt: skip
    others = {name: tensor_line(tensor) for name, tensor in before.items() if name not in used}
    return {
        "kind": "channel-pruning",
        "version": 3,
        "about": [weights_digest(before), weights_digest(after)],
        "program": steps,
        "results": [numbers[name] for name in program.results],
        "before": {name: _written(before[name], most) for name in sorted(used)},
        "after": {name: _written(after[name], most) for name in sorted(used | set(added)) if name in after},
        "others": others,
        "added": [[layers[weight], name] for name, weight in added.items()],
        "folded": [numbers[norm.name] for _, norm in (tidied.folded if tidied else ())],
        "dropped": [numbers[layer.name] for layer in (tidied.dropped if tidied else ())],
        "lost": [name for name in others if name not in after],
        "gone": [list(homes[cell]) for cell in gone],
        "moves": [
            [kind, layers[weight], place, *([[[other, str(factor)] for other, factor in terms]] if terms else [])]
            for kind, weight, place, terms in moves
        ],
    }


def _heads(heads: Heads) -> dict[str, Any]:
    tables = {name: getattr(heads, name).tolist() for name in ("queries", "keys", "values")}
    return tables | {name: getattr(heads, name) for name in ("rotary", "fixed", "alike", "whole")}


def _refuse_types(state: Mapping[str, torch.Tensor], used: set[str]) -> None:
    odd = next((name for name in sorted(used) if state[name].dtype not in TYPES), None)
    if odd is not None:
        raise Unsupported(f"{odd} is stored as {state[odd].dtype}: certificates are for floats of 16, 32 and 64 bits")


def _written(tensor: torch.Tensor, most: int) -> dict[str, Any]:
    """All numbers, or the digest of a tensor of more: `lawful verify` reads it from the networks given."""
    if tensor.numel() > most:
        return {"line": tensor_line(tensor)}
    return {
        "dtype": str(tensor.dtype).removeprefix("torch."),
        "shape": list(tensor.shape),
        "data": base64.b64encode(tensor_bytes(tensor)).decode("ascii"),
    }
