"""A module with several inputs or outputs as a function from one tensor to one tensor."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from math import prod
from typing import Any

import torch

from lawful.errors import LawfulError, Unsupported

Size = tuple[int, ...]


def with_one_input(network: Any, sizes: Sequence[Any]) -> tuple[torch.nn.Module, Size]:
    """A copy of a module that reads all its inputs from one vector, and the size of that vector."""
    shapes = [tuple(size) if isinstance(size, (tuple, list)) else size for size in sizes]
    if not isinstance(network, torch.nn.Module):
        raise LawfulError(f"several inputs are for modules, not for a {type(network).__name__}")
    if any(isinstance(size, str) for size in shapes):  # ids, as "8:int"
        raise Unsupported(
            "laws of several inputs are counted where all of them are real numbers, and one of these holds whole ones: "
            "ask for its symmetries, whose laws hold for any input"
        )
    if not all(isinstance(size, tuple) and all(isinstance(n, int) and n > 0 for n in size) for size in shapes):
        raise LawfulError(f"sizes of several inputs are like ((3,), (2, 4)), not {sizes!r}")
    return pack_inputs(copy.deepcopy(network), shapes), (sum(prod(size) for size in shapes),)


def pack_inputs(module: torch.nn.Module, sizes: Sequence[Size]) -> torch.nn.Module:
    """The module, reading one vector that holds its inputs one after the other; its class is changed.

    >>> class Sum(torch.nn.Module):
    ...     def forward(self, x, y):
    ...         return x + y.sum((1, 2))[:, None]
    >>> pack_inputs(Sum(), [(2,), (1, 3)])(torch.ones(1, 5)).tolist()
    [[4.0, 4.0]]
    """
    base: Any = type(module)

    class Packed(base):  # type: ignore[misc]  # a subclass, so that copies of the module stay whole
        def forward(self, vector: torch.Tensor) -> Any:
            parts = torch.split(vector, [prod(size) for size in sizes], dim=1)
            return super().forward(*(part.reshape(-1, *size) for part, size in zip(parts, sizes, strict=True)))

    module.__class__ = Packed
    return module


def join_outputs(module: torch.nn.Module, axes: Sequence[int]) -> torch.nn.Module:
    """The module, returning all its floating-point outputs as one vector for each sample; its class is changed.

    `axes` are those of the outputs that count samples. The cache of keys and values that language models return beside
    their outputs is none.
    """
    base: Any = type(module)

    class Joined(base):  # type: ignore[misc]
        def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
            outputs = [x.movedim(axis, 0) for x, axis in zip(list_tensors(super().forward(*inputs)), axes, strict=True)]
            if len(outputs) == 1:
                return outputs[0]
            return torch.cat([tensor.reshape(len(tensor), -1) for tensor in outputs], dim=1)

    module.__class__ = Joined
    return module


def with_classes_last(module: torch.nn.Module, axis: int) -> torch.nn.Module:
    """The module, with an axis of its output moved to the end; its class is changed.

    >>> with_classes_last(torch.nn.Conv1d(1, 3, 1), 1)(torch.ones(2, 1, 5)).shape
    torch.Size([2, 5, 3])
    """
    base: Any = type(module)

    class Moved(base):  # type: ignore[misc]
        def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
            output: torch.Tensor = super().forward(*inputs)
            return output.movedim(axis, -1)

    module.__class__ = Moved
    return module


def several_tensors(result: Any) -> bool:
    """Whether a module returns more than one tensor of numbers."""
    return len(list_tensors(result)) > 1


def list_tensors(result: Any) -> list[torch.Tensor]:
    """The tensors of real numbers that a module returns, or its logits alone."""
    if isinstance(result, torch.Tensor):
        return [result] if result.is_floating_point() else []
    if isinstance(result, dict):
        logits = result.get("logits")
        return [logits] if logits is not None else [tensor for part in result.values() for tensor in list_tensors(part)]
    return [tensor for part in result for tensor in list_tensors(part)] if isinstance(result, (list, tuple)) else []
