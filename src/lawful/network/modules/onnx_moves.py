"""ONNX's operators that move entries, said in PyTorch."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch.nn import functional

from lawful.errors import Unsupported
from lawful.network.modules.onnx_values import Call, Operand, Options, axes_of, ints, number, padded, tensor


def _gather(options: Options, first: Operand, second: Operand) -> torch.Tensor:
    axis = options.get("axis", 0)
    if isinstance(second, torch.Tensor):
        table = tensor(first)
        if axis != 0 or table.ndim != 2:
            raise Unsupported("picks by the input along another axis than the rows of a table")
        return functional.embedding(second.long(), table)
    value, places = tensor(first), np.asarray(second)
    size = value.shape[axis]
    if places.ndim == 0:
        return value.select(axis, int(places) % size)
    flat = torch.as_tensor(places.ravel().astype(np.int64) % size)
    axis = axis % value.ndim
    shape = (*value.shape[:axis], *places.shape, *value.shape[axis + 1 :])
    return value.index_select(axis, flat).reshape(shape)


def _gather_elements(options: Options, first: Operand, second: Operand) -> torch.Tensor:
    value, places = tensor(first), tensor(second)
    axis = options.get("axis", 0) % value.ndim
    return torch.gather(value, axis, places % value.shape[axis])


def _cumulative(options: Options, first: Operand, axis: Operand) -> torch.Tensor:
    if options.get("exclusive", 0) or options.get("reverse", 0):
        raise Unsupported("it sums in another order")
    return torch.cumsum(tensor(first), ints(axis)[0])


def _columns(options: Options, first: Operand, places: Operand) -> torch.Tensor:
    value = tensor(first)
    return value.index_select(value.ndim - 1, torch.tensor(ints(places), dtype=torch.int64))


def _reshape(options: Options, first: Operand, shape: Operand = None) -> torch.Tensor:
    value = tensor(first)
    wanted = list(options["shape"]) if "shape" in options else ints(shape)
    if not options.get("allowzero", 0):
        wanted = [value.shape[axis] if size == 0 else size for axis, size in enumerate(wanted)]
    return value.reshape(wanted)


def _flatten(options: Options, first: Operand) -> torch.Tensor:
    value = tensor(first)
    axis = options.get("axis", 1)
    cut = axis + value.ndim if axis < 0 else axis
    return value.reshape(math.prod(value.shape[:cut]), -1)


def _transpose(options: Options, first: Operand) -> torch.Tensor:
    value = tensor(first)
    return value.permute(list(options.get("perm", reversed(range(value.ndim)))))


def _squeeze(options: Options, first: Operand, axes: Operand = None) -> torch.Tensor:
    value = tensor(first)
    chosen = axes_of(options, axes) or [axis for axis, size in enumerate(value.shape) if size == 1]
    return value.squeeze(tuple(chosen)) if chosen else value


def _unsqueeze(options: Options, first: Operand, axes: Operand = None) -> torch.Tensor:
    value = tensor(first)
    chosen = axes_of(options, axes)
    rank = value.ndim + len(chosen)
    for axis in sorted(each % rank for each in chosen):
        value = value.unsqueeze(axis)
    return value


def _slice(options: Options, first: Operand, *operands: Operand) -> torch.Tensor:
    value = tensor(first)
    if "starts" in options:
        starts, ends = list(options["starts"]), list(options["ends"])
        axes, steps = list(options.get("axes", range(len(starts)))), [1] * len(starts)
    else:
        starts, ends = ints(operands[0]), ints(operands[1])
        axes = ints(operands[2]) if len(operands) > 2 and operands[2] is not None else list(range(len(starts)))
        steps = ints(operands[3]) if len(operands) > 3 and operands[3] is not None else [1] * len(starts)
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        size = value.shape[axis]
        low = None if step < 0 and end < -size else end
        places = range(size)[slice(start, low, step)]
        if step > 0:
            value = value.narrow(axis, places.start, 0) if not len(places) else _strided(value, axis, places)
        else:
            value = value.index_select(axis, torch.tensor(list(places), dtype=torch.int64))
    return value


def _strided(value: torch.Tensor, axis: int, places: range) -> torch.Tensor:
    chosen = [slice(None)] * value.ndim
    chosen[axis] = slice(places.start, places.stop, places.step)
    return value[tuple(chosen)]


def split(options: Options, outputs: int, first: Operand, sizes: Operand = None) -> list[torch.Tensor]:
    """A tensor in pieces along an axis."""
    value, axis = tensor(first), options.get("axis", 0)
    stated = list(options["split"]) if "split" in options else [] if sizes is None else ints(sizes)
    each = -(-value.shape[axis] // outputs)
    stated = stated or [min(each, value.shape[axis] - each * k) for k in range(outputs)]
    return list(torch.split(value, stated, dim=axis))


def _concat(options: Options, *parts: Operand) -> torch.Tensor:
    own = next(each for each in parts if isinstance(each, torch.Tensor))
    return torch.cat([tensor(each).to(own.dtype) for each in parts], dim=options["axis"])


def _expand(options: Options, first: Operand, shape: Operand) -> torch.Tensor:
    value = tensor(first)
    return value.expand(np.broadcast_shapes(tuple(value.shape), tuple(ints(shape))))


def _pad(options: Options, first: Operand, *rest: Operand) -> torch.Tensor:
    value = tensor(first)
    widths = list(options["pads"]) if "pads" in options else ints(rest[0])
    axes = ints(rest[2]) if len(rest) > 2 and rest[2] is not None else list(range(value.ndim))
    if options.get("mode", b"constant") != b"constant":
        raise Unsupported("pads by mirrored or repeated entries")
    given = rest[1] if len(rest) > 1 else None
    fill = options.get("value", 0.0) if given is None else number(given)
    before, after = [0] * value.ndim, [0] * value.ndim
    for place, axis in enumerate(axes):
        before[axis], after[axis] = widths[place], widths[place + len(axes)]
    return padded(value, before, after, fill)


MOVES: dict[str, Call] = {
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "CumSum": _cumulative,
    "ArrayFeatureExtractor": _columns,
    "Reshape": _reshape,
    "Flatten": _flatten,
    "Transpose": _transpose,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Slice": _slice,
    "Concat": _concat,
    "Expand": _expand,
    "Tile": lambda options, first, repeats: tensor(first).repeat(ints(repeats)),
    "Pad": _pad,
}
