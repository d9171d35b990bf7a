"""What an operator of a traced graph is given: its call, its numbers, and two samples that it must keep apart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from lawful.errors import Unsupported
from lawful.network.assemble import Assembly, sizes
from lawful.network.operations import finite
from lawful.types import Floats

BATCH = 2  # samples in the traced batch


@dataclass(frozen=True)
class Call:
    """One call of the graph: where hidden nodes are collected, the operator, and the size of its result."""

    assembly: Assembly
    target: Any
    shape: tuple[int, ...]  # without the batch


def numbers(name: str, tensor: Any) -> Floats:
    """A tensor's entries in float64."""
    if tensor.is_complex() or tensor.layout != torch.strided or tensor.is_meta:
        raise Unsupported(f"tensor {name!r} is {tensor.dtype}, {tensor.layout}: dense real tensors are supported")
    return finite(name, tensor.detach().cpu().to(torch.float64).numpy())


def optional(name: str, tensor: Any) -> Floats | None:
    """The same, if there is a tensor."""
    return None if tensor is None else numbers(name, tensor)


def per_axis(value: Any, count: int) -> tuple[int, ...]:
    """One number for every axis, or a number for each."""
    parts = tuple(value) if isinstance(value, (list, tuple)) else (value,)
    return tuple(int(part) for part in (parts * count if len(parts) == 1 else parts))


def as_numbers(part: Any) -> Floats:
    """The entries of a tensor, or a number."""
    return numbers("constant", part if isinstance(part, torch.Tensor) else torch.tensor(part, dtype=torch.float64))


def same_for_all(fixed: Floats, shape: tuple[int, ...]) -> Floats:
    """A constant that is the same for every sample, in the shape of one."""
    try:
        both = np.broadcast_to(fixed, (BATCH, *shape))
    except ValueError:
        raise Unsupported(f"a constant of {sizes(fixed.shape)} does not fit {sizes(shape)}") from None
    if not (both == both[:1]).all():
        raise Unsupported("a constant differs from sample to sample")
    return np.asarray(both[0])
