"""Movements as frameworks spell them: reshapes, permutations, slices, expansions, concatenations.

A program has one operator that moves entries, with an index map. Whoever writes a program for another framework wants
the few steps that a person would have written. They are found from the map alone: an affine one is a reshape to the
digits of its strides, a slice of each digit, a permutation and an expansion; one that treats each axis of its source by
itself is a selection along each; one of several sources is cut where the source changes. What is none of these is read
at flat positions.

A pool is a reduction whose windows the map of its operand tells.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lawful.program.builder import Builder
from lawful.program.index_map import IndexMap, Shape, row_major
from lawful.program.operators.window import cut_windows
from lawful.program.program import Node

MAX_SEPARATED = 2**25  # entries of a map whose digits are spelled out: 256 MB an axis
MAX_PARTS = 64  # of a concatenation: beyond that, flat positions are shorter

Positions = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class MovementStep:
    """A step of some kind on the results of others, or on sources by their number.

    Kinds and arguments: `reshape` shape, `permute` order, `slice` (axis, start, stop), `expand` shape, `flip` axes,
    `select` (axis, positions), `concatenate` axis, `pad` (pairs, number), `flat` positions in all sources end to end.
    """

    kind: str
    operands: tuple[MovementStep | int, ...]
    argument: Any


Value = MovementStep | int


def spell_movement(index: IndexMap, shapes: Sequence[Shape], numbers: Sequence[float | None] = ()) -> Value:
    """The steps of a movement of sources of these shapes; `numbers` are those that a source holds everywhere."""
    if len(shapes) == 1:
        return _of_one(index, 0, shapes[0])
    starts = np.cumsum([0, *(math.prod(shape) for shape in shapes)])
    owner = np.searchsorted(starts, index.positions, side="right") - 1
    padded = _padding(index.positions, owner, shapes, numbers) if len(shapes) == 2 and numbers else None
    return padded or _cut(index.positions, owner, starts, shapes)


def carry_out(step: Value, sources: Sequence[Any], calls: Any) -> Any:
    """The result of steps: `calls` has a method for each kind, of the operands and the argument."""
    if isinstance(step, int):
        return sources[step]
    if step.kind in ("concatenate", "flat"):
        return getattr(calls, step.kind)(
            [carry_out(operand, sources, calls) for operand in step.operands], step.argument
        )
    return getattr(calls, step.kind)(carry_out(step.operands[0], sources, calls), step.argument)


def _reshape(x: Value, old: Sequence[int], new: Sequence[int]) -> Value:
    if tuple(old) == tuple(new):
        return x
    if isinstance(x, MovementStep) and x.kind == "reshape":
        x = x.operands[0]
    return MovementStep("reshape", (x,), tuple(new))


def _of_one(index: IndexMap, x: Value, shape: Shape) -> Value:
    if index.size == 0 or (index.keeps_order and index.size == math.prod(shape)):
        return _reshape(x, shape, index.shape) if index.size == math.prod(shape) else _flat(index, (x,))
    cut = _box(index, x, shape)
    if cut is not None:
        return _of_one(*cut)
    if index.strides is not None:
        strides = {step for n, step in zip(shape, row_major(shape), strict=True) if n > 1}
        # With the source's own axes where they fit: what is sliced is then one of them
        for finer in (strides, set[int]()):
            steps = _affine(index, x, shape, finer)
            if steps is not None:
                return steps
    return _separable(index, x, shape) or _flat(index, (x,))


def _flat(index: IndexMap, sources: tuple[Value, ...]) -> MovementStep:
    return MovementStep("flat", sources, index.positions)


def _box(index: IndexMap, x: Value, shape: Shape) -> tuple[IndexMap, Value, Shape] | None:
    """The source cut to the part that is read, along its own axes, and the map of that part; None if that is all."""
    if index.size > MAX_SEPARATED or not shape:
        return None
    digits = digits_of(index.positions, shape)
    ends = [(int(digit.min()), int(digit.max()) + 1) for digit in digits]
    inner = tuple(high - low for low, high in ends)
    if inner == tuple(shape):
        return None
    for axis, (low, high) in enumerate(ends):
        if high - low < shape[axis]:
            x = MovementStep("slice", (x,), (axis, low, high))
    moved = sum(step * (digit - low) for step, digit, (low, _) in zip(row_major(inner), digits, ends, strict=True))
    return IndexMap.of(np.asarray(moved)), x, inner


def digits_of(positions: Positions, shape: Shape) -> list[Positions]:
    """The index along each axis of flat positions.

    `np.unravel_index` is wrong for some arrays with axes of size 1 (NumPy 2.4): digits beyond its buffer are lost.
    """
    return [positions // step % size for step, size in zip(row_major(shape), shape, strict=True)]


def _affine(index: IndexMap, x: Value, shape: Shape, finer: set[int]) -> Value | None:
    """Strides as digits of a mixed radix: reshape to them, slice each, drop those of one entry, permute, expand."""
    steps = index.strides or ()
    moving = [k for k, (n, step) in enumerate(zip(index.shape, steps, strict=True)) if n > 1 and step]
    turned = [k for k in moving if steps[k] < 0]
    offset = index.offset + sum(steps[k] * (index.shape[k] - 1) for k in turned)
    bases = sorted({abs(steps[k]) for k in moving} | finer | {1}, reverse=True)
    size = math.prod(shape)
    if any(big % small for big, small in zip([size, *bases], bases, strict=False)):
        return None
    radix = [big // small for big, small in zip([size, *bases], bases, strict=False)]
    start, left = [], offset
    for base in bases:
        digit, left = divmod(left, base)
        start.append(digit)
    count = [1] * len(bases)
    of_axis: list[list[int]] = []
    for k in moving:  # an axis may run through several digits, the lower ones whole
        at, n = bases.index(abs(steps[k])), index.shape[k]
        mine: list[int] = []
        while n > 1:
            if at < 0 or count[at] > 1:
                return None
            mine.insert(0, at)
            count[at] = min(n, radix[at])
            if n <= radix[at]:
                break
            if n % radix[at] or start[at]:
                return None
            n, at = n // radix[at], at - 1
            if radix[at + 1] == 1:
                return None
        of_axis.append(mine)
    if any(low + n > d for low, n, d in zip(start, count, radix, strict=True)):
        return None
    x = _reshape(x, shape, radix)
    for axis, (low, n, d) in enumerate(zip(start, count, radix, strict=True)):
        if n < d:
            x = MovementStep("slice", (x,), (axis, low, low + n))
    used = [digit for mine in of_axis for digit in mine]
    order = sorted(used)
    x = _reshape(x, count, [count[digit] for digit in order])
    if used != order:
        x = MovementStep("permute", (x,), tuple(order.index(digit) for digit in used))
    thin = [n if k in moving else 1 for k, n in enumerate(index.shape)]
    x = _reshape(x, [count[digit] for digit in used], thin)
    if turned:
        x = MovementStep("flip", (x,), tuple(turned))
    return x if thin == list(index.shape) else MovementStep("expand", (x,), index.shape)


def _separable(index: IndexMap, x: Value, shape: Shape) -> Value | None:
    """Each axis of the source by itself: a selection along it, whose positions may have several axes."""
    if index.size > MAX_SEPARATED or not shape:
        return None
    digits = digits_of(index.positions, shape)
    ours: list[list[int]] = []
    for digit in digits:
        ours.append([k for k, n in enumerate(index.shape) if n > 1 and bool((digit != digit.take([0], k)).any())])
    used = [k for mine in ours for k in mine]
    if len(set(used)) < len(used):
        return None
    sizes = list(shape)
    for axis, (digit, mine) in enumerate(zip(digits, ours, strict=True)):
        at = digit[tuple(slice(None) if k in mine else 0 for k in range(digit.ndim))].ravel()
        if len(at) == sizes[axis] and bool((at == np.arange(len(at))).all()):
            continue
        if bool((np.diff(at) == 1).all()):
            x = MovementStep("slice", (x,), (axis, int(at[0]), int(at[-1]) + 1))
        else:
            x = MovementStep("select", (x,), (axis, at))
        sizes[axis] = len(at)
    x = _reshape(x, sizes, [index.shape[k] for k in used])
    if used != sorted(used):
        x = MovementStep("permute", (x,), tuple(used.index(k) for k in sorted(used)))
    thin = [n if k in used else 1 for k, n in enumerate(index.shape)]
    x = _reshape(x, [index.shape[k] for k in sorted(used)], thin)
    return x if thin == list(index.shape) else MovementStep("expand", (x,), index.shape)


def _padding(
    positions: Positions, owner: Positions, shapes: Sequence[Shape], numbers: Sequence[float | None]
) -> Value | None:
    """One source in a box of the result, and a number everywhere around it."""
    k = next((k for k in (0, 1) if numbers[k] is None and numbers[1 - k] is not None), None)
    if k is None:
        return None
    mine = owner == k
    pairs, box = [], []
    for axis, n in enumerate(owner.shape):
        inside = np.flatnonzero(mine.any(axis=tuple(j for j in range(owner.ndim) if j != axis)))
        pairs.append((int(inside[0]), n - 1 - int(inside[-1])))
        box.append(slice(int(inside[0]), int(inside[-1]) + 1))
    if not bool(mine[tuple(box)].all()):
        return None
    start = math.prod(shapes[0]) if k else 0
    inner = _of_one(IndexMap.of(positions[tuple(box)] - start), k, shapes[k])
    return MovementStep("pad", (inner,), (tuple(pairs), numbers[1 - k]))


def _cut(positions: Positions, owner: Positions, starts: Positions, shapes: Sequence[Shape]) -> Value:
    """Parts with one source each, cut along one axis after the other."""
    if not owner.size or bool((owner == owner.flat[0]).all()):
        k = int(owner.flat[0]) if owner.size else 0
        return _of_one(IndexMap.of(positions - starts[k]), k, shapes[k])
    for axis, n in enumerate(owner.shape):
        rows = np.moveaxis(owner, axis, 0).reshape(n, -1)
        cuts = (np.flatnonzero((rows[1:] != rows[:-1]).any(1)) + 1).tolist()
        if cuts and len(cuts) < MAX_PARTS:
            pieces = zip(np.split(positions, cuts, axis), np.split(owner, cuts, axis), strict=True)
            return MovementStep("concatenate", tuple(_cut(p, o, starts, shapes) for p, o in pieces), axis)
    return MovementStep("flat", tuple(range(len(shapes))), positions)


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
    x = next((source for source in windows.inputs if source.op != "constant"), None)
    if x is None or x.rank != 2 + rank or any(source is not x and source.op != "constant" for source in windows.inputs):
        return None
    before = 0
    for operand in windows.inputs:
        if operand is x:
            break
        before += operand.size
    at = windows["map"].positions - before
    inside = (at >= 0) & (at < x.size)
    digits = digits_of(np.where(inside, at, 0), x.shape)
    kernel = windows.shape[2 + rank :]
    result = []
    for k in range(rank):
        others = tuple(j for j in range(windows.rank) if j not in (2 + k, 2 + rank + k))
        place = np.where(inside, digits[2 + k], -1).max(axis=others)
        line = _line(place, x.shape[2 + k])
        if line is None:
            return None
        result.append(line)
    stride, dilation, low = (tuple(axis[j] for axis in result) for j in range(3))
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
