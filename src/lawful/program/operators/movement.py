"""Movements: calls that compute nothing. All are one operator, `take`, with an index map.

What a call of ATen moves is found by running PyTorch's own function on labels, so its name is all that the table needs.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np

from lawful.program.builder import Builder, Operand
from lawful.program.program import Node
from lawful.program.table import (
    ATEN_CASTS,
    ATEN_MOVEMENTS,
    OperatorFamily,
    Refused,
    Traits,
    aten,
    define,
    onnx,
)

define(
    "take",
    OperatorFamily.MOVEMENT,
    "entries of the sources at an index map",
    lambda arrays, a, *sources: arrays.take(sources, a["map"]),
    Traits(degree=1, odd=True, monotone=1, zero=True, linear="jointly", shift=1),
    shape=lambda a, *shapes: a["map"].shape,
    attributes=("map",),
)

define(
    "detach",
    OperatorFamily.ELEMENTWISE,
    "x, which training takes for data",
    lambda arrays, a, x: x,
    Traits(degree=1, odd=True, monotone=1, zero=True, linear="jointly", shift=1, gradient=False),
    onnx="Identity",
)
define(
    "gates",
    OperatorFamily.OPAQUE,
    "independent gates: 1 / (1 - share) if open, 0 if shut with chance share",
    lambda arrays, a: arrays.gates(a["shape"], a["share"]),
    Traits(noise=True),
    kind="f",
    shape=lambda a: a["shape"],
    attributes=("name", "number", "shape", "share"),
)

ATEN_MOVEMENTS.update(
    """
    view reshape _unsafe_view _reshape_copy _reshape_alias view_copy flatten ravel unflatten squeeze
    squeeze_copy unsqueeze unsqueeze_copy expand expand_copy broadcast_to permute permute_copy transpose
    transpose_copy t t_copy numpy_T mT mH adjoint matrix_H movedim moveaxis swapaxes swapdims slice slice_copy
    narrow narrow_copy select select_copy split split_copy split_with_sizes split_with_sizes_copy chunk
    tensor_split hsplit vsplit dsplit unbind unbind_copy unsafe_split unsafe_split_with_sizes unsafe_chunk flip
    fliplr flipud roll rot90 repeat tile repeat_interleave diagonal diagonal_copy linalg_diagonal diag
    diag_embed diagflat unfold unfold_copy as_strided as_strided_copy pixel_shuffle pixel_unshuffle
    channel_shuffle tril triu reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d
    replication_pad2d replication_pad3d _pad_circular upsample_nearest1d upsample_nearest2d upsample_nearest3d
    _upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d im2col cat concat concatenate
    stack hstack vstack dstack column_stack row_stack meshgrid broadcast_tensors atleast_1d atleast_2d
    atleast_3d block_diag view_as reshape_as expand_as combinations cartesian_prod select_scatter slice_scatter
    diagonal_scatter as_strided_scatter
    """.split()  # noqa: SIM905
)
ATEN_CASTS.update(
    """
    to _to_copy type_as float double half bfloat16 long int short bool _autocast_to_reduced_precision
    _autocast_to_full_precision _cast_Float _cast_Double
    """.split()  # noqa: SIM905
)


@aten(
    "alias",
    "alias_copy",
    "clone",
    "contiguous",
    "lift",
    "lift_fresh",
    "lift_fresh_copy",
    "positive",
    "real",
    "conj",
    "_conj",
    "conj_physical",
    "resolve_conj",
    "resolve_neg",
)
@onnx("Identity", carries=1)
def same(b: Builder, x: Node) -> Node:
    """x itself: copies, layouts, conjugates of reals."""
    return x


@aten("copy")
def copy(b: Builder, x: Node, src: Node) -> Node:
    """What is written over a value."""
    return b.as_kind(b.expand(src, x.shape), x.kind)


@aten("detach", "detach_copy")
def detach(b: Builder, x: Node) -> Node:
    """x itself; where training is asked about, as data."""
    return b.elementwise("detach", x) if b.trains and x.kind == "f" else x


@aten("dropout")
def dropout(b: Builder, x: Node, p: float = 0.5, train: bool = False) -> Node:
    """Nothing in evaluation; in training a product with gates that are open with chance 1 - p."""
    if not train or p == 0:
        return x
    return b.mul(x, b.gates("dropout", x.shape, float(p)))


@aten("native_dropout")
def native_dropout(b: Builder, x: Node, p: float = 0.5, train: bool | None = None) -> list[Any]:
    """The same with its mask."""
    if train is False or p == 0:
        return [x, b.constant(np.ones(x.shape, dtype=bool))]
    gates = b.gates("native_dropout", x.shape, float(p))
    return [b.mul(x, gates), b.elementwise("ne", gates, 0.0)]


@aten("feature_dropout")
def feature_dropout(b: Builder, x: Node, p: float = 0.5, train: bool = False) -> Node:
    """Whole channels at once."""
    if not train or p == 0:
        return x
    return b.mul(x, b.gates("feature_dropout", (*x.shape[:2], *(1,) * (x.rank - 2)), float(p)))


@aten("alpha_dropout", "feature_alpha_dropout")
def alpha_dropout(b: Builder, x: Node, p: float = 0.5, train: bool = False) -> Node:
    """Nothing, in evaluation."""
    if train and p > 0:
        raise Refused("dropout in training")
    return x


@onnx("Dropout")
def _dropout(
    b: Builder, x: Node, ratio: Any = None, training: Node | None = None, seed: int = 0, outputs: int = 1
) -> list[Node]:
    if training is not None and b.number(training) not in (False, 0):
        share = 0.5 if ratio is None else b.number(ratio) if isinstance(ratio, Node) else ratio
        if share != 0:
            raise Refused("Dropout in training")
    return [x, b.constant(np.ones(x.shape, dtype=bool))][:outputs]


@aten("constant_pad_nd")
def constant_pad(b: Builder, x: Node, pad: list[int], value: Operand = 0) -> Node:
    """A number around the last axes, as many in front and behind as `pad` says; negative ones cut."""
    for k in range(len(pad) // 2):
        axis = x.rank - 1 - k
        low, high = pad[2 * k : 2 * k + 2]
        x = _pad_axis(b, x, axis, low, high, "constant", value)
    return x


def _pad_axis(b: Builder, x: Node, axis: int, low: int, high: int, mode: str, value: Operand) -> Node:
    size = x.shape[axis]
    b.check_size(max(low, 0) + size + max(high, 0))
    at = np.arange(-low, size + high)
    if mode == "reflect":  # 2 1 | 0 1 2 3 | 2 1: there and back again, ends once
        period = max(2 * (size - 1), 1)
        at = np.abs(at) % period
        at = np.where(at >= size, period - at, at)
    elif mode in ("edge", "replicate"):
        at = at.clip(0, size - 1)
    elif mode in ("wrap", "circular"):
        at = at % size
    elif mode != "constant":
        raise Refused(f"padding by {mode}")
    return b.pick(x, axis, np.where((at >= 0) & (at < size), at, -1), fill=value)


@aten("pad")
def pad(b: Builder, x: Node, pad: list[int], mode: str = "constant", value: Operand | None = None) -> Node:
    """Entries around the last axes: a number, or entries of x."""
    if mode == "constant":
        return constant_pad(b, x, pad, 0 if value is None else value)
    for k in range(len(pad) // 2):
        x = _pad_axis(b, x, x.rank - 1 - k, pad[2 * k], pad[2 * k + 1], mode, 0)
    return x


@onnx("Pad")
def _pad(
    b: Builder,
    x: Node,
    pads: Any = None,
    fill: Node | None = None,
    axes: Node | None = None,
    mode: str = "constant",
    value: float = 0.0,
    paddings: Any = None,
) -> Node:
    widths = integers(b, pads if paddings is None else paddings, "the sizes of Pad")
    over = list(range(x.rank)) if axes is None else [int(k) % x.rank for k in b.numbers(axes, "the axes of Pad")]
    b.bound_shape([n + sum(widths[k] + widths[k + len(over)] for k, a in enumerate(over) if a == axis)
             for axis, n in enumerate(x.shape)])  # fmt: skip
    for k, axis in enumerate(over):
        outside = (value if x.kind == "f" else int(value)) if fill is None else b.reshape(fill, ())
        x = _pad_axis(b, x, axis, widths[k], widths[k + len(over)], mode, outside)
    return x


def integers(b: Builder, given: Any, what: str) -> list[int]:
    """Sizes or axes: an input in newer versions of ONNX, an attribute in older ones."""
    return [int(n) for n in (b.numbers(given, what) if isinstance(given, Node) else given)]


@onnx("Reshape", carries=1, states="shape", states_result=True)
def _reshape(b: Builder, x: Node, target: Node | None = None, allowzero: int = 0, shape: Any = None) -> Node:
    sizes = integers(b, target if shape is None else shape, "the sizes of Reshape")
    sizes = [x.shape[k] if n == 0 and not allowzero else n for k, n in enumerate(sizes)]
    if -1 in sizes:
        rest = math.prod(n for n in sizes if n != -1)
        sizes[sizes.index(-1)] = x.size // rest if rest else 0
    return b.reshape(x, sizes)


@onnx("Flatten", carries=1)
def _flatten(b: Builder, x: Node, axis: int = 1) -> Node:
    axis = axis if axis >= 0 else axis + x.rank
    return b.reshape(x, (math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))


@onnx("Transpose", carries=1)
def _transpose(b: Builder, x: Node, perm: Any = None) -> Node:
    return b.permute(x, perm if perm is not None else range(x.rank)[::-1])


@onnx("Expand", carries=1)
def _expand(b: Builder, x: Node, shape: Node) -> Node:
    return b.expand(x, np.broadcast_shapes(x.shape, tuple(integers(b, shape, "the sizes of Expand"))))


@onnx("Unsqueeze", carries=1)
def _unsqueeze(b: Builder, x: Node, over: Node | None = None, axes: Any = None) -> Node:
    new_axes = integers(b, over if axes is None else axes, "the axes of Unsqueeze")
    sizes = list(x.shape)
    for axis in sorted(k % (x.rank + len(new_axes)) for k in new_axes):
        sizes.insert(axis, 1)
    return b.reshape(x, sizes)


@onnx("Squeeze", carries=1)
def _squeeze(b: Builder, x: Node, over: Node | None = None, axes: Any = None) -> Node:
    listed = (
        None if over is None and axes is None else integers(b, over if axes is None else axes, "the axes of Squeeze")
    )
    gone = {k for k, n in enumerate(x.shape) if n == 1} if listed is None else {k % x.rank for k in listed}
    return b.reshape(x, [n for k, n in enumerate(x.shape) if k not in gone])


@onnx("Slice", carries=1)
def _slice(
    b: Builder,
    x: Node,
    start: Node | None = None,
    end: Node | None = None,
    over: Node | None = None,
    step: Node | None = None,
    starts: Any = None,
    ends: Any = None,
    axes: Any = None,
) -> Node:
    begin, stop = (integers(b, p if q is None else q, "the ends of Slice") for p, q in ((start, starts), (end, ends)))
    where: Any = over if axes is None else axes
    along = range(len(begin)) if where is None else integers(b, where, "the axes of Slice")
    steps = [1] * len(begin) if step is None else integers(b, step, "the steps of Slice")
    for axis, low, high, jump in zip(along, begin, stop, steps, strict=True):
        # a slice of Python counts from the end for negative ends; ONNX means "before the first" by a very negative one
        last = None if jump < 0 and high < -x.shape[axis] else high
        x = b.slice(x, axis, slice(low, last, jump))
    return x


@onnx("Split", carries=1, states="split")
def _split(
    b: Builder,
    x: Node,
    parts: Node | None = None,
    axis: int = 0,
    num_outputs: int = 0,
    outputs: int = 1,
    split: Any = None,
) -> list[Node]:
    if parts is None and split is None:
        step = -(-x.shape[axis] // outputs)
        sizes = [max(min(step, x.shape[axis] - step * k), 0) for k in range(outputs)]
    else:
        sizes = integers(b, parts if split is None else split, "the sizes of Split")
    ends = np.cumsum([0, *sizes])
    return [b.slice(x, axis, slice(int(low), int(high))) for low, high in pairwise(ends)]


@onnx("Concat", carries=99, joins=True)
def _concat(b: Builder, *parts: Node, axis: int = 0) -> Node:
    return b.concatenate(parts, axis)


@onnx("Tile", carries=1)
def _tile(b: Builder, x: Node, repeats: Node) -> Node:
    times = integers(b, repeats, "the repeats of Tile")
    b.bound_shape([n * count for n, count in zip(x.shape, times, strict=True)])
    b.check_size(x.size * math.prod(times))
    return b.move(lambda t: np.tile(t, times), x)


@onnx("Trilu", carries=1)
def _trilu(b: Builder, x: Node, k: Node | None = None, upper: int = 1) -> Node:
    at = 0 if k is None else int(b.numbers(k, "the diagonal of Trilu")[0])
    return b.move(lambda t: (np.triu if upper else np.tril)(t, at), x)


@onnx("DepthToSpace")
def _depth_to_space(b: Builder, x: Node, blocksize: int, mode: str = "DCR") -> Node:
    n, c, h, w = x.shape
    s = blocksize
    if mode == "DCR":
        return b.move(
            lambda t: t.reshape(n, s, s, c // s**2, h, w).transpose(0, 3, 4, 1, 5, 2).reshape(n, -1, h * s, w * s), x
        )
    return b.move(
        lambda t: t.reshape(n, c // s**2, s, s, h, w).transpose(0, 1, 4, 2, 5, 3).reshape(n, -1, h * s, w * s), x
    )


@onnx("SpaceToDepth")
def _space_to_depth(b: Builder, x: Node, blocksize: int, mode: str = "DCR") -> Node:
    n, c, h, w = x.shape
    s = blocksize
    order = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
    return b.move(lambda t: t.reshape(n, c, h // s, s, w // s, s).transpose(order).reshape(n, -1, h // s, w // s), x)


@onnx("CenterCropPad")
def _center_crop_pad(b: Builder, x: Node, shape: Node, axes: Any = None) -> Node:
    sizes = integers(b, shape, "the sizes of CenterCropPad")
    for axis, new in zip(range(x.rank) if axes is None else axes, sizes, strict=True):
        old = x.shape[axis]
        start = (old - new) // 2 if old >= new else -((new - old) // 2)
        at = np.arange(start, start + new)
        x = b.pick(x, axis, np.where((at >= 0) & (at < old), at, -1))
    return x


@onnx("ReverseSequence")
def _reverse_sequence(b: Builder, x: Node, lengths: Node, batch_axis: int = 1, time_axis: int = 0) -> Node:
    counts = integers(b, lengths, "the lengths of ReverseSequence")

    def turn(t: Any) -> Any:
        t = t.copy()
        for row, count in enumerate(counts):
            at: list[Any] = [slice(None)] * t.ndim
            at[batch_axis], at[time_axis] = row, slice(0, count)
            back = list(at)
            back[time_axis] = slice(count - 1, None, -1) if count else slice(0, 0)
            t[tuple(at)] = t[tuple(back)].copy()
        return t

    return b.move(turn, x)


# Sequences of ONNX are lists of nodes: the one result of a call that makes one is a list


@onnx("SplitToSequence", carries=1)
def _split_to_sequence(
    b: Builder, x: Node, parts: Node | None = None, axis: int = 0, keepdims: int = 1
) -> list[list[Node]]:
    axis %= x.rank
    lengths = [1] if parts is None else integers(b, parts, "the sizes of SplitToSequence")
    if parts is None or not parts.rank:  # one size for all parts but the last
        lengths = [min(lengths[0], x.shape[axis] - low) for low in range(0, x.shape[axis], lengths[0])]
    ends = [int(n) for n in np.cumsum([0, *lengths])]
    pieces = [b.slice(x, axis, slice(low, high)) for low, high in pairwise(ends)]
    if parts is None and not keepdims:
        pieces = [b.reshape(piece, [n for k, n in enumerate(piece.shape) if k != axis]) for piece in pieces]
    return [pieces]


@onnx("SequenceConstruct", carries=99)
def _sequence_construct(b: Builder, *parts: Node) -> list[list[Node]]:
    return [list(parts)]


@onnx("SequenceAt", carries=1)
def _sequence_at(b: Builder, sequence: list[Node], position: Node) -> Node:
    return sequence[integers(b, position, "the position of SequenceAt")[0]]


@onnx("SequenceLength")
def _sequence_length(b: Builder, sequence: list[Node]) -> Node:
    return b.constant(len(sequence))


@onnx("ConcatFromSequence", carries=99, joins=True)
def _concat_from_sequence(b: Builder, sequence: list[Node], axis: int = 0, new_axis: int = 0) -> Node:
    return b.move(lambda *t: (np.stack if new_axis else np.concatenate)(t, axis), *sequence)
