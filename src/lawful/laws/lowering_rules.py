"""Arrays of a program seen as tensors: shapes, constants and masks, which every rule of an operation needs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from lawful.errors import Unsupported
from lawful.laws.program import Writer


@dataclass(frozen=True, eq=False)
class TracedArray:
    """An array of the program seen as a tensor; `dead` marks the entries that are −∞ (masked before a softmax)."""

    number: int
    shape: tuple[int, ...]
    dead: torch.Tensor | None = None


@dataclass(frozen=True)
class Tokens:
    """The input, if it holds token ids: the program reads the unit vector of each."""

    shape: tuple[int, ...]


class Rules:
    """What is needed to write `do_NAME` for an operation, with the arguments of `torch.ops.aten.NAME`."""

    def __init__(self, write: Writer) -> None:
        self.write = write

    def placed(self, value: Any, shape: Sequence[int]) -> int:
        """The number of an array that holds a value broadcast to a shape."""
        shape = tuple(shape)
        if not isinstance(value, TracedArray):
            tensor = torch.as_tensor(value, dtype=torch.float64)
            if not torch.isfinite(tensor).all():
                raise Unsupported("no proof covers infinite constants outside a softmax")
            return self.write.constant(tensor.expand(shape).numpy())
        if value.dead is not None:
            raise Unsupported("no proof covers masked arrays outside a softmax")
        if value.shape == shape:
            return value.number
        numbers = torch.arange(math.prod(value.shape)).reshape(value.shape).expand(shape)
        return self.write.take((value.number,), numbers.reshape(-1).numpy())

    def binary(self, kind: str, first: Any, second: Any) -> TracedArray:
        """A sum or product with broadcasting."""
        shape = common_shape(first, second)
        return TracedArray(self.write.pair(kind, self.placed(first, shape), self.placed(second, shape)), shape)

    def unary(self, kind: str, value: TracedArray) -> TracedArray:
        """A function of every entry."""
        return TracedArray(self.write.function(kind, self.placed(value, value.shape)), value.shape)

    def scaled(self, value: TracedArray, factor: float) -> TracedArray:
        """Times a number."""
        return value if factor == 1 else self.binary("mul", value, factor)

    def fixed(self, number: float) -> TracedArray:
        """A number."""
        return TracedArray(self.write.constant(np.array([number])), ())

    def chosen(self, sign: TracedArray, positive: Any, other: Any) -> TracedArray:
        """By the sign of every entry."""
        shape = sign.shape
        numbers = self.placed(sign, shape), self.placed(positive, shape), self.placed(other, shape)
        return TracedArray(self.write.choose(*numbers), shape)

    # Constants and constant masks

    def do_where(self, mask: Any, first: Any, second: Any) -> Any:
        """By a constant mask."""
        if isinstance(mask, TracedArray):
            raise Unsupported("no proof covers a choice by a computed condition")
        if isinstance(second, torch.Tensor) and torch.isneginf(second).any():
            shape = common_shape(first, second, mask)
            dead = torch.isneginf(second.expand(shape)) & ~mask.expand(shape)
            return TracedArray(self.placed(first, shape), shape, dead)
        if isinstance(first, torch.Tensor) and torch.isneginf(first).any():
            return self.do_where(~mask, second, first)
        shape = common_shape(mask, first, second)
        count = math.prod(shape)
        numbers = torch.arange(count).reshape(shape)
        chosen = torch.where(mask.expand(shape), numbers, numbers + count)
        sources = self.placed(first, shape), self.placed(second, shape)
        return TracedArray(self.write.take(sources, chosen.reshape(-1).numpy()), shape)

    def do_masked_fill(self, value: Any, mask: Any, fill: Any) -> Any:
        """By a constant mask."""
        number = torch.as_tensor(fill, dtype=torch.float64)
        return self.do_where(torch.as_tensor(mask), number, value)

    def do_eq(self, value: TracedArray, other: Any) -> torch.Tensor:
        """Which entries are masked; nothing else can be said of numbers that vary."""
        if other != -math.inf:
            raise Unsupported("no proof covers a comparison of computed numbers")
        return torch.zeros(value.shape, dtype=torch.bool) if value.dead is None else value.dead

    def do_copy(self, value: Any, source: Any, later: bool = False) -> TracedArray:
        """What is written over an array."""
        return TracedArray(self.placed(source, shape_of(value)), shape_of(value))

    def do_full_like(self, value: TracedArray, fill: float, **rest: Any) -> torch.Tensor:
        """A constant of the same shape."""
        return torch.full(value.shape, float(fill), dtype=torch.float64)

    def do_zeros_like(self, value: TracedArray, **rest: Any) -> torch.Tensor:
        """Zeros of the same shape."""
        return torch.zeros(value.shape, dtype=torch.float64)

    def do_ones_like(self, value: TracedArray, **rest: Any) -> torch.Tensor:
        """Ones of the same shape."""
        return torch.ones(value.shape, dtype=torch.float64)


def shape_of(value: Any) -> tuple[int, ...]:
    """The shape of an array or tensor; a number has none."""
    if isinstance(value, (TracedArray, torch.Tensor)):
        return tuple(value.shape)
    return ()


def common_shape(*values: Any) -> tuple[int, ...]:
    """The shape that several values broadcast to."""
    return tuple(int(size) for size in np.broadcast_shapes(*(shape_of(value) for value in values)))
