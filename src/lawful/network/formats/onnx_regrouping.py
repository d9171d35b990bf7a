"""ONNX's operators that only move entries: each is run on labels, which say what went where."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lawful.errors import InvalidNetwork, Unsupported
from lawful.network.assemble import Value, fixed_value
from lawful.network.formats.onnx_operands import Constant, Operand, Options, Reader, value_of

Labels = NDArray[np.intp]


def _ints(what: str, operand: Operand) -> list[int]:
    if operand is None or isinstance(operand, Value):
        raise Unsupported(f"its {what} must be a constant")
    return [int(number) for number in np.asarray(operand).ravel()]


def _axes(options: Options, operand: Operand) -> list[int]:
    return list(options["axes"]) if "axes" in options else [] if operand is None else _ints("axes", operand)


def _transpose(labels: Labels, options: Options) -> Labels:
    return np.transpose(labels, options.get("perm"))


def _flatten(labels: Labels, options: Options) -> Labels:
    axis = options.get("axis", 1)
    cut = axis + labels.ndim if axis < 0 else axis
    return labels.reshape(int(np.prod(labels.shape[:cut], dtype=np.int64)), -1)


def _reshape(labels: Labels, options: Options, target: Operand = None) -> Labels:
    wanted = list(options["shape"]) if "shape" in options else _ints("shape", target)
    if not options.get("allowzero", 0):
        wanted = [labels.shape[axis] if size == 0 else size for axis, size in enumerate(wanted)]
    try:
        return labels.reshape(wanted)
    except ValueError:
        raise InvalidNetwork(f"cannot reshape {list(labels.shape)} to {wanted}") from None


def _squeeze(labels: Labels, options: Options, axes: Operand = None) -> Labels:
    stated = _axes(options, axes)
    chosen = stated or [axis for axis, size in enumerate(labels.shape) if size == 1]
    return np.squeeze(labels, tuple(chosen))


def _unsqueeze(labels: Labels, options: Options, axes: Operand = None) -> Labels:
    return np.expand_dims(labels, tuple(_axes(options, axes)))


def _slice(labels: Labels, options: Options, *operands: Operand) -> Labels:
    if "starts" in options:
        starts, ends = list(options["starts"]), list(options["ends"])
        axes, steps = list(options.get("axes", range(len(starts)))), [1] * len(starts)
    else:
        starts, ends = _ints("starts", operands[0]), _ints("ends", operands[1])
        axes = _ints("axes", operands[2]) if len(operands) > 2 and operands[2] is not None else list(range(len(starts)))
        steps = _ints("steps", operands[3]) if len(operands) > 3 and operands[3] is not None else [1] * len(starts)
    chosen = [slice(None)] * labels.ndim
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        size = labels.shape[axis]
        if step < 0:  # counted down from the first entry at least, to before it at most
            start, end = max(start, -size), None if end < -size else end
        chosen[axis] = slice(start, end, step)
    return labels[tuple(chosen)]


def _gather(labels: Labels, options: Options, indices: Operand) -> Labels:
    return np.asarray(np.take(labels, np.asarray(indices, dtype=np.intp), axis=options.get("axis", 0)))


def _columns(labels: Labels, options: Options, indices: Operand) -> Labels:
    return np.asarray(np.take(labels, np.asarray(indices, dtype=np.intp).ravel(), axis=-1))


def _expand(labels: Labels, options: Options, shape: Operand) -> Labels:
    return np.broadcast_to(labels, np.broadcast_shapes(labels.shape, tuple(_ints("shape", shape))))


def _tile(labels: Labels, options: Options, repeats: Operand) -> Labels:
    return np.tile(labels, _ints("repeats", repeats))


def _depth_to_space(labels: Labels, options: Options) -> Labels:
    block, (batch, depth, height, width) = options["blocksize"], labels.shape
    if options.get("mode", b"DCR") == b"DCR":
        parts = labels.reshape(batch, block, block, depth // block**2, height, width).transpose(0, 3, 4, 1, 5, 2)
    else:
        parts = labels.reshape(batch, depth // block**2, block, block, height, width).transpose(0, 1, 4, 2, 5, 3)
    return parts.reshape(batch, depth // block**2, height * block, width * block)


SINGLE: dict[str, Callable[..., Labels]] = {
    "Transpose": _transpose,
    "Flatten": _flatten,
    "Reshape": _reshape,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Slice": _slice,
    "Gather": _gather,
    "ArrayFeatureExtractor": _columns,
    "Expand": _expand,
    "Tile": _tile,
    "DepthToSpace": _depth_to_space,
}
PLAIN_MOVES = ("Transpose", "Flatten", "Reshape", "Squeeze", "Unsqueeze")  # each entry stays once


def move(name: str, reader: Reader, options: Options, first: Operand, *rest: Operand) -> Value:
    """An operator of one tensor."""
    found: Value = reader.regroup([value_of(first)], lambda labels: SINGLE[name](labels[0], options, *rest))
    return found


def concat(reader: Reader, options: Options, *parts: Operand) -> Value:
    """Tensors and constants side by side."""
    values = [part if isinstance(part, Value) else _constant(reader, part) for part in parts]
    found: Value = reader.regroup(values, lambda labels: np.concatenate(labels, axis=options["axis"]))
    return found


def _constant(reader: Reader, part: Constant | None) -> Value:
    numbers = np.asarray(part, dtype=np.float64)
    if reader.batch and (len(numbers) != reader.batch or (numbers != numbers[:1]).any()):
        raise Unsupported("joins a constant that differs from sample to sample")
    return fixed_value(numbers[0] if reader.batch else numbers)


def split(reader: Reader, options: Options, outputs: int, first: Operand, sizes: Operand = None) -> list[Value]:
    """A tensor in pieces along an axis."""
    axis = options.get("axis", 0)
    value = value_of(first)
    whole = reader.whole(value.shape)[axis]
    stated = list(options["split"]) if "split" in options else [] if sizes is None else _ints("sizes", sizes)
    each = -(-whole // outputs)
    stated = stated or [min(each, whole - each * k) for k in range(outputs)]
    ends = np.cumsum(stated)[:-1]
    found: list[Value] = reader.regroup([value], lambda labels: list(np.split(labels[0], ends, axis=axis)))
    return found


def pad(reader: Reader, options: Options, first: Operand, *rest: Operand) -> Value:
    """Constants, mirrored or repeated entries around a tensor."""
    value = value_of(first)
    mode = options.get("mode", b"constant").decode()
    widths = list(options["pads"]) if "pads" in options else _ints("pads", rest[0])
    rank = len(value.shape) + bool(reader.batch)
    axes = _ints("axes", rest[2]) if len(rest) > 2 and rest[2] is not None else list(range(rank))
    pairs = [(0, 0)] * rank
    for number, axis in enumerate(axes):
        pairs[axis] = (widths[number], widths[number + len(axes)])
    if any(min(pair) < 0 for pair in pairs):
        raise Unsupported("crops by negative padding")
    if mode != "constant":
        kinds: dict[str, Any] = {"edge": "edge", "reflect": "reflect", "wrap": "wrap"}
        found: Value = reader.regroup([value], lambda labels: np.pad(labels[0], pairs, kinds[mode]))
        return found
    given = rest[1] if len(rest) > 1 else None
    fill = options.get("value", 0.0) if given is None else float(np.asarray(given).ravel()[0])
    extra = fixed_value(np.full((1,) * len(value.shape), float(fill)))

    def around(labels: list[Labels]) -> Labels:
        marks = np.pad(labels[0], pairs, constant_values=-1)
        filler = np.broadcast_to(labels[1], (reader.batch, *[1] * len(value.shape))) if reader.batch else labels[1]
        return np.where(marks < 0, filler, marks)

    result: Value = reader.regroup([value, extra], around)
    return result


def moves() -> dict[str, Callable[..., Any]]:
    """Every operator of this file but `Split`, by name."""
    return {**{name: partial(move, name) for name in SINGLE}, "Concat": concat, "Pad": pad}
