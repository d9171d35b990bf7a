"""Calls that only move entries: where the axis of channels is afterwards."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from lawful.network.modules.export import operator_name

VIEWS = ("view", "reshape", "flatten", "unflatten", "_unsafe_view")
MOVES = ("permute", "transpose", "t", "movedim", "moveaxis", "swapaxes", "swapdims", "numpy_T", "mT")


def moved_axis(call: Any, axis: int, old: Sequence[int], new: Sequence[int]) -> int | None:
    """The axis of channels of what a call returns, all of them in their order; None if it may be otherwise.

    Channels lie along `axis` of a tensor of sizes `old`, which the call turns into one of sizes `new`.
    """
    name, args = operator_name(call.target), list(call.args[1:])
    rank = len(old)
    if name in VIEWS and isinstance(args[-1] if args else 0, (int, list, tuple)):  # and no view as another type
        return _regrouped(axis, old, new)
    if name in MOVES:  # seen on a tensor of which all axes have other sizes
        sizes = range(2, rank + 2)
        found: Sequence[int] = call.target(torch.empty(*sizes, device="meta"), *args, **call.kwargs).shape
        return list(found).index(sizes[axis])
    if name == "unsqueeze":
        return axis + int(args[0] % (rank + 1) <= axis)
    if name == "squeeze":
        given = range(rank) if not args else args[0] if isinstance(args[0], (list, tuple)) else [args[0]]
        gone = {each % rank for each in given if old[each] == 1}
        return None if axis in gone else axis - sum(each < axis for each in gone)
    if name == "select":
        at = args[0] % rank
        return None if at == axis else axis - int(at < axis)
    if name in ("slice", "flip"):
        touched = {each % rank for each in (args[0] if name == "flip" else [args[0] if args else 0])}
        return None if axis in touched else axis
    if name == "expand":
        at = axis + len(new) - rank
        return at if new[at] == old[axis] else None
    return None


def _regrouped(axis: int, old: Sequence[int], new: Sequence[int]) -> int | None:
    """Where an axis is after a view, if the entries before and behind it stay before and behind it.

    >>> _regrouped(1, (2, 6, 4, 4), (2, 6, 16)), _regrouped(2, (2, 5, 6), (10, 6)), _regrouped(1, (2, 6, 4), (2, 24))
    (1, 1, None)
    """
    before = math.prod(old[:axis])
    places = (at for at, size in enumerate(new) if size == old[axis] and math.prod(new[:at]) == before)
    return next(places, None)
