"""Operators that only move entries: the operator itself, run on labels, says which entry goes where."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from lawful.errors import Unsupported
from lawful.network.assemble import Value, fixed_value, join
from lawful.network.modules.operands import BATCH, Call, numbers, same_for_all
from lawful.network.operations import finite


def regrouped(values: Sequence[Value], run: Callable[[list[torch.Tensor]], Any]) -> Any:
    """What `run` makes of the values: it is run on labels of their entries."""
    total, labels, start = sum(value.size for value in values), [], 0
    for value in values:
        one = torch.arange(start, start + value.size).reshape(value.shape)
        labels.append(torch.stack([one + sample * total for sample in range(BATCH)]))
        start += value.size
    found = run(labels)
    if isinstance(found, (list, tuple)):
        return [_taken(values, part, total) for part in found]
    return _taken(values, found, total)


def _taken(values: Sequence[Value], labels: torch.Tensor, total: int) -> Value:
    apart = labels.ndim > 0 and len(labels) == BATCH and bool((labels[1] == labels[0] + total).all())
    if not apart or (labels[0].numel() and not 0 <= int(labels[0].min()) <= int(labels[0].max()) < total):
        raise Unsupported("mixes the samples of a batch")
    whole = values[0] if len(values) == 1 else join(values)
    return whole.take(labels[0].numpy().ravel(), tuple(labels.shape[1:]))


def regroup(call: Call, *arguments: Any, **options: Any) -> Any:
    """The call itself, which only moves entries."""
    values: list[Value] = []
    place = _collect(arguments, values)
    return regrouped(values, lambda labels: call.target(*_filled(place, labels), **options))


def _collect(part: Any, values: list[Value]) -> Any:
    """The arguments with each pending tensor replaced by its number in `values`."""
    if isinstance(part, (list, tuple)):
        return type(part)(_collect(each, values) for each in part)
    if isinstance(part, Value):
        values.append(part)
        return _Slot(len(values) - 1)
    return part


@dataclass(frozen=True)
class _Slot:
    number: int


def _filled(part: Any, labels: list[torch.Tensor]) -> Any:
    if isinstance(part, (list, tuple)):
        return type(part)(_filled(each, labels) for each in part)
    return labels[part.number] if isinstance(part, _Slot) else part


def concatenate(call: Call, tensors: Sequence[Any], dim: int = 0) -> Value:
    """Values and constants side by side."""
    shape = (BATCH, *call.shape)
    parts = [part if isinstance(part, Value) else _beside(part, shape, dim) for part in tensors]
    found: Value = regrouped(parts, lambda labels: call.target(labels, dim))
    return found


def _beside(part: Any, shape: tuple[int, ...], dim: int) -> Value:
    fixed = numbers("constant", part)
    return fixed_value(same_for_all(fixed, fixed.shape[1:]))


def padded(call: Call, value: Value, pad: Sequence[int], mode: Any = "constant", fill: float | None = None) -> Value:
    """Padding with a number is joined as one more entry; other modes repeat entries."""
    plain = mode == "constant"
    whole = join([value, fixed_value(finite("padding", np.array([float(fill or 0.0)])))]) if plain else value
    one = torch.arange(value.size, dtype=torch.float64).reshape(value.shape)
    labels = torch.nn.functional.pad(torch.stack([one, one]), list(pad), mode, value.size if plain else None)
    if tuple(labels.shape) != (BATCH, *call.shape):
        raise Unsupported("pads the batch")
    return whole.take(labels[0].to(torch.int64).numpy().ravel(), call.shape)
