"""Pools: which windows of a value a reduction runs over, read from its index map."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from lawful.program.backends.movement_steps import digits_of
from lawful.program.builder import Builder
from lawful.program.operators.window import cut_windows
from lawful.program.program import Node

MAX_READ = 2**25  # entries of a map whose digits are spelled out


@dataclass(frozen=True, eq=False)
class Pool:
    """Windows of a value (samples, channels, places ...); `padding` are pairs, as wide as the windows need."""

    source: Node
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    shape: tuple[int, ...]

    def even_padding(self, sizes: tuple[int, ...]) -> tuple[int, ...] | None:
        """One number an axis that gives the same windows, at most half a window as PyTorch demands."""
        for k, (low, _) in enumerate(self.padding):
            reach = self.dilation[k] * (self.kernel[k] - 1) + 1
            if 2 * low > self.kernel[k] or (sizes[k] + 2 * low - reach) // self.stride[k] + 1 != self.shape[2 + k]:
                return None
        return tuple(low for low, _ in self.padding)


def read_windows(reduction: Node, fill: float) -> Pool | None:
    """The pool of a reduction of windows of one value, with `fill` around it; checked entry by entry."""
    windows = reduction.inputs[0]
    rank = windows.rank // 2 - 1
    if windows.op != "take" or windows.size > MAX_READ or windows.rank != 2 + 2 * rank or not 1 <= rank <= 3:
        return None
    if reduction["axes"] != tuple(k for k in range(2 + rank, 2 + 2 * rank) if windows.shape[k] != 1):
        return None  # a reduction names no axes of size 1
    x = next((each for each in windows.inputs if each.op != "constant"), None)
    if x is None or x.rank != 2 + rank or any(each is not x and each.op != "constant" for each in windows.inputs):
        return None
    before = 0
    for each in windows.inputs:
        if each is x:
            break
        before += each.size
    at = windows["map"].positions - before
    inside = (at >= 0) & (at < x.size)
    digits = digits_of(np.where(inside, at, 0), x.shape)
    kernel = windows.shape[2 + rank :]
    found = []
    for k in range(rank):
        others = tuple(j for j in range(windows.rank) if j not in (2 + k, 2 + rank + k))
        place = np.where(inside, digits[2 + k], -1).max(axis=others)
        line = _line(place, x.shape[2 + k])
        if line is None:
            return None
        found.append(line)
    stride, dilation, low = (tuple(each[j] for each in found) for j in range(3))
    reach = [d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True)]
    padding = tuple(
        (p, (n - 1) * s + r - size - p)
        for p, n, s, r, size in zip(low, windows.shape[2:], stride, reach, x.shape[2:], strict=False)
    )
    b = Builder()
    same = cut_windows(b, b.input("x", x.shape), kernel, stride, padding, dilation, fill=fill)
    pool = Pool(x, tuple(kernel), stride, dilation, padding, windows.shape[: 2 + rank])
    return pool if _is_same(same, windows) else None


def _line(place: np.ndarray[tuple[int, ...], np.dtype[np.int64]], size: int) -> tuple[int, int, int] | None:
    """(stride, dilation, padding) of places i × stride + j × dilation - padding, -1 outside."""
    valid = place >= 0
    if not bool(valid.any()):
        return None
    steps = []
    for axis in (0, 1):
        both = valid[1:] & valid[:-1] if axis == 0 else valid[:, 1:] & valid[:, :-1]
        jump = np.diff(place, axis=axis)[both]
        steps.append(int(jump[0]) if jump.size else 1)
    i, j = (int(k[0]) for k in np.nonzero(valid))
    return (steps[0], steps[1], i * steps[0] + j * steps[1] - int(place[i, j])) if min(steps) > 0 else None


def _is_same(one: Node, two: Node) -> bool:
    """Whether two movements of one value and constants are equal: maps, and constants in their order."""
    if one.op != "take" or one["map"] != two["map"] or len(one.inputs) != len(two.inputs):
        return False
    return all(
        a.op == "input" if b.op != "constant" else a.op == "constant" and np.array_equal(a["value"], b["value"])
        for a, b in zip(one.inputs, two.inputs, strict=True)
    ) and math.prod(one.shape) == math.prod(two.shape)
