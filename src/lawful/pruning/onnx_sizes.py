"""Sizes that the nodes of an ONNX file state, once channels have left: a Reshape into heads, a Split into parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx
from torch.overrides import TorchFunctionMode

from lawful.errors import Unsupported
from lawful.network.modules.export import ExportedModule, operator_name
from lawful.network.modules.onnx_module import OnnxModule
from lawful.pruning.cut import KeptChannels
from lawful.pruning.retrace import PARTS, new_parts, new_sizes

Sizes = tuple[int, ...]
STATING = {torch.Tensor.reshape: "reshape", torch.Tensor.split: "split", torch.split: "split"}


def stated_sizes(
    module: OnnxModule, read: ExportedModule, state: KeptChannels, examples: Sequence[torch.Tensor]
) -> dict[str, Sizes]:
    """What the nodes of a file must state for the channels that are left, by their first outputs."""
    new = new_sizes(read, state)
    parts = new_parts(read, new)
    if not new:
        return {}
    watched = _Watched(module, examples)
    nodes = {node.output[0]: node for node in module.nodes}
    found: dict[str, Sizes] = {}
    for kind, names in (("reshape", ("reshape",)), ("split", PARTS)):
        calls = [call for call in read.calls if operator_name(call.target) in names]
        owners = watched.owners[kind]
        if len(calls) != len(owners):
            raise Unsupported("the sizes in its nodes are not followed")
        for call, owner in zip(calls, owners, strict=True):
            node = nodes[owner]
            if node.op_type == "Split" and call.name in parts:
                found[owner] = parts[call.name]
            elif node.op_type == "Reshape" and call.name in new:
                found[owner] = _reshaped(call, new, _stated(module, node.input[1]))
    return found


class _Watched(TorchFunctionMode):
    """Which node of a file makes each call that states sizes, in order."""

    def __init__(self, module: OnnxModule, examples: Sequence[torch.Tensor]) -> None:
        super().__init__()
        self.owners: dict[str, list[str]] = {"reshape": [], "split": []}
        self._node = ""
        step = type(module)._step

        def watched(node: Any, *rest: Any) -> None:
            self._node = node.output[0]
            step(module, node, *rest)

        module._step = watched  # type: ignore[method-assign, assignment]
        try:
            with torch.no_grad(), self:
                module(*examples)
        except Unsupported:  # the sizes are those of before: what follows is not needed
            pass
        finally:
            del module._step

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Note the node of a call, and make it."""
        if function in STATING:
            self.owners[STATING[function]].append(self._node)
        return function(*args, **(kwargs or {}))


def _stated(module: OnnxModule, name: str) -> list[int | None] | None:
    """The sizes that a file states under a name, None for those it works out from the input's; None if it is all."""
    found = module.constants.get(name)
    if found is not None:
        return [int(size) for size in found.ravel()]
    maker = next((node for node in module.nodes if name in node.output and node.op_type == "Concat"), None)
    if maker is None:
        return None
    parts = [_stated(module, part) if part in module.constants else [None] for part in maker.input]
    return [size for part in parts for size in part or ()]


def _reshaped(call: fx.Node, new: dict[str, Sizes], stated: list[int | None] | None) -> Sizes:
    """The sizes of a Reshape: 0 where it passes one on, −1 where it works one out."""
    source: Any = call.args[0]
    before, after = (tuple(map(int, each.meta["val"].shape)) for each in (source, call))
    below, above = new.get(source.name, before), new[call.name]
    given = [None] * len(after) if stated is None or len(stated) != len(after) else stated
    found: list[int] = []
    for at, size in enumerate(given):
        passed = before[at : at + 1] == after[at : at + 1] and below[at] == above[at]
        if size is None:
            found.append(0 if passed else -1 if after[at] == above[at] else above[at])
        else:
            kept = size == -1 or (passed if size == 0 else after[at] == above[at])
            found.append(size if kept else above[at])
    if found.count(-1) > 1:
        raise Unsupported("several sizes of a Reshape depend on the input")
    return tuple(found)
