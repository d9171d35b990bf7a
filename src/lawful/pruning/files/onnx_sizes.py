"""Sizes that the nodes of an ONNX file state, once channels have left: of a reshape into heads, of parts."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from lawful.errors import Unsupported
from lawful.program.domains.interpret import interpret
from lawful.program.frontends.onnx import SizeStatement
from lawful.pruning.channels.cut import KeptChannels
from lawful.pruning.channels.remainder import RemainingEntries, count_entries, mark_weights
from lawful.sources.onnx.module import OnnxModule

Sizes = tuple[int, ...]


def stated_sizes(module: OnnxModule, state: KeptChannels, examples: Sequence[torch.Tensor]) -> dict[str, Sizes]:
    """What the nodes of a file must state for the channels that are left, by their first outputs."""
    masks = {module.names[path]: mask for path, mask in mark_weights(state).items() if path in module.names}
    if all(bool(mask.all()) for mask in masks.values()):
        return {}
    program, statements = module.statements(examples)
    left = interpret(program, RemainingEntries(masks))
    found: dict[str, Sizes] = {}
    for each in statements:
        before, after = (count_entries(left[node], node.shape) for node in (each.source, each.results[0]))
        parts = [count_entries(left[node], node.shape) for node in each.results]
        if all(size == node.shape for size, node in zip(parts, each.results, strict=True)):
            continue
        if each.axis is None:
            found[each.name] = _reshaped(each, before, after)
        else:
            found[each.name] = tuple(size[each.axis] for size in parts)
    return found


def _reshaped(statement: SizeStatement, below: Sizes, above: Sizes) -> Sizes:
    """The sizes of a result: 0 where one is passed on, −1 where one is worked out."""
    before, after = statement.source.shape, statement.results[0].shape
    stated = statement.written
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
        raise Unsupported("several sizes of a result depend on the input")
    return tuple(found)
