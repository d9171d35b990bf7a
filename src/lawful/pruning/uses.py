"""Which calls use a tensor, and whether they all use it as one layer."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from torch import fx

from lawful.network.modules.export import ExportedModule, operator_name

LAYERS = (
    "linear",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "batch_norm",
    "prelu",
)  # fmt: skip  (they may be used several times)


def uses_of(read: ExportedModule) -> dict[str, list[fx.Node]]:
    """The calls that read each tensor, once for every place where they do."""
    found: dict[str, list[fx.Node]] = {}
    for call in read.calls:
        names: list[str] = []
        fx.map_arg((call.args, call.kwargs), lambda node, names=names: names.append(node.name))  # type: ignore[misc]
        for name in names:
            if name in read.tensors:
                found.setdefault(name, []).append(call)
    returned = {each.name for each in read.results if isinstance(each, fx.Node)}
    return {name: calls * (1 + (name in returned)) for name, calls in found.items()}


def alike(calls: Sequence[fx.Node], read: ExportedModule, apart: Collection[str]) -> bool:
    """Whether calls are several uses of one layer: all the same but for what they read, none of those set `apart`."""
    first = _settings(calls[0], read)
    return len({call.name for call in calls}) == len(calls) and all(
        operator_name(call.target) in LAYERS and call.name not in apart and _settings(call, read) == first
        for call in calls
    )


def _settings(call: fx.Node, read: ExportedModule) -> Any:
    """All arguments but the first, tensors by their names."""

    def name(node: fx.Node) -> str:
        return node.name if node.name in read.tensors else "computed"

    rest = fx.map_arg((call.args[1:], call.kwargs), lambda node: name(node))
    return operator_name(call.target), repr(rest)
