"""A module cut to the channels that are left, and that it is still the same computation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import fx, nn

from lawful.errors import Unsupported
from lawful.network.modules.export import ExportedModule, export_module, operator_name
from lawful.pruning.cut import KeptChannels, cut_tensors
from lawful.types import Floats

COMPARED = 1e-9  # relative difference of outputs in float64
LAYERS = ("linear", "conv1d", "conv2d", "conv3d")
SIZED = ("view", "reshape", "expand", "flatten", "arange", "zeros", "ones", "full", "slice", "split", "narrow",
         "split_with_sizes", "unflatten", "repeat", *LAYERS)  # fmt: skip


@torch.no_grad()
def shrink(module: nn.Module, state: KeptChannels) -> None:
    """Cut every tensor to the cells that are left, and let the layers know their sizes."""
    for name, array in cut_tensors(state).items():
        _put(module, name, array)
    for part in module.modules():
        if isinstance(part, (nn.Conv1d, nn.Conv2d, nn.Conv3d)):
            if part.groups > 1 and part.groups == part.in_channels == part.out_channels:
                part.groups = len(part.weight)
            part.out_channels, part.in_channels = len(part.weight), part.weight.shape[1] * part.groups
        elif isinstance(part, nn.Linear):
            part.out_features, part.in_features = part.weight.shape
        elif isinstance(part, (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)) and part.running_mean is not None:
            part.num_features = len(part.running_mean)


def _put(module: nn.Module, name: str, array: Floats) -> None:
    where, _, last = name.rpartition(".")
    owner = module.get_submodule(where)
    tensor = torch.as_tensor(np.ascontiguousarray(array))
    old = getattr(owner, last, None)
    if last in owner._buffers:
        setattr(owner, last, tensor)
    else:
        setattr(owner, last, nn.Parameter(tensor, requires_grad=True if old is None else old.requires_grad))


@torch.no_grad()
def compared(one: nn.Module, two: nn.Module, examples: Sequence[torch.Tensor]) -> float:
    """The largest difference of outputs; refused if it is more than rounding."""
    expected = _outputs(one(*examples))
    try:
        found = _outputs(two(*examples))
    except (RuntimeError, ValueError, IndexError, TypeError) as error:
        lines = str(error).strip().splitlines() or [""]
        raise Unsupported(
            f"{type(one).__name__} fixes the sizes of its layers in its own code ({lines[0][:120]})"
        ) from None
    worst = 0.0
    for before, after in zip(expected, found, strict=True):
        scale = float(before.abs().max()) or 1.0
        gap = float((before - after).abs().max()) if before.shape == after.shape else np.inf
        if not gap <= COMPARED * scale:
            raise Unsupported(
                f"{type(one).__name__} computes something else than its graph shows: outputs differ by {gap:.2g}"
            )
        worst = max(worst, gap)
    return worst


def same_calls(read: ExportedModule, small: nn.Module, examples: Sequence[torch.Tensor]) -> None:
    """Refuse a smaller module whose graph is not the original's with other sizes: its code may look at its widths."""
    inputs = [tuple(each.shape) if each.is_floating_point() else each for each in examples]
    before, after = _described(read), _described(export_module(small, inputs))
    if before != after:
        name = type(small).__name__
        raise Unsupported(f"{name} computes something else than its graph shows once it is smaller")


def _described(read: ExportedModule) -> list[Any]:
    """The calls with all their arguments, sizes aside."""
    places = {node.name: f"tensor {read.names[node.name]}" for node in read.graph.nodes if node.name in read.names}
    places |= {name: f"input {number}" for number, name in enumerate(read.inputs)}
    found: list[Any] = []
    for call in read.calls:
        name = operator_name(call.target)
        places[call.name] = f"call {len(found)}"
        arguments = [*call.args[:2], *call.args[3:]] if name in LAYERS else call.args  # a layer may gain a bias
        found.append((name, _plain(arguments, places, name in SIZED), _plain(call.kwargs, places, name in SIZED)))
    return [*found, _plain(read.results, places, False)]


def _plain(value: Any, places: Mapping[str, str], sized: bool) -> Any:
    if isinstance(value, fx.Node):
        return places.get(value.name, "a constant")
    if isinstance(value, (list, tuple)):
        return [_plain(part, places, sized) for part in value]
    if isinstance(value, dict):
        return {key: _plain(part, places, sized) for key, part in value.items()}
    return "a size" if sized and isinstance(value, int) and not isinstance(value, bool) else repr(value)


def _outputs(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, (tuple, list)) else ()
    return [tensor for part in parts for tensor in _outputs(part)]
