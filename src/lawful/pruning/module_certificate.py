"""A module's pruning as one JSON object: both chains with all their numbers, and the evidence for every channel."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from lawful.network.modules.layers import LAYERS
from lawful.pruning.module import ModulePruning

SETTINGS = ("kernel_size", "stride", "padding", "dilation", "padding_mode", "ceil_mode", "count_include_pad",
            "divisor_override", "negative_slope", "start_dim", "end_dim", "groups")  # fmt: skip


def certificate(pruning: ModulePruning) -> dict[str, Any]:
    """The two chains, and why every channel that went could go.

    >>> import torch
    >>> from lawful.pruning.module import prune_module
    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU(), torch.nn.Linear(3, 1))
    >>> with torch.no_grad():
    ...     _ = model[0].weight[1].zero_()
    >>> sorted(certificate(prune_module(model)))
    ['about', 'after', 'before', 'kind', 'steps', 'version']
    """
    before, after = ([_written(part) for part in chain] for chain in (pruning.original, pruning.module))
    return {
        "kind": "module-pruning",
        "version": 1,
        "about": [_digest(before), _digest(after)],
        "before": before,
        "after": after,
        "steps": [
            {
                "layer": step.layer,
                "evidence": [[channel, *map(_text, why)] for channel, why in step.evidence.items()],
                "muted": step.muted,
                "weight": step.weight.tolist(),
                "bias": step.bias.tolist(),
            }
            for step in pruning.steps
        ],
    }


def _text(value: Any) -> Any:
    return str(value) if isinstance(value, Fraction) else value


def _written(part: Any) -> dict[str, Any]:
    found = {name: getattr(part, name) for name in SETTINGS if hasattr(part, name)}
    found = {name: list(value) if isinstance(value, tuple) else value for name, value in found.items()}
    if isinstance(part, LAYERS):
        weight = part.weight.detach().double().numpy() + 0.0
        found["dtype"] = str(part.weight.dtype).removeprefix("torch.")
        found["weight"] = weight.reshape(*weight.shape[:2], -1).tolist()
        found["bias"] = None if part.bias is None else (part.bias.detach().double() + 0.0).tolist()
    return {"type": type(part).__name__, **found}


def _digest(parts: Sequence[dict[str, Any]]) -> str:
    text = json.dumps(list(parts), sort_keys=True, separators=(",", ":"))
    return "chain:" + hashlib.sha256(text.encode()).hexdigest()
