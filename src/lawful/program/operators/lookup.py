"""Reading and writing at positions that are data. Where positions are known, it is a movement instead."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from lawful.program.builder import Builder, Operand
from lawful.program.program import Node
from lawful.program.table import OperatorFamily, Refused, Traits, aten, define, onnx

_READS = Traits(degree=1, odd=True, monotone=1, zero=True, linear="jointly", shift=1)
define(
    "lookup",
    OperatorFamily.LOOKUP,
    "the slices of a table at positions along an axis",
    lambda arrays, a, x, i: arrays.lookup(x, _inside(arrays, i, x.shape[a["axis"]]), a["axis"]),
    _READS,
    shape=lambda a, s, t: (*s[: a["axis"]], *t, *s[a["axis"] + 1 :]),
    attributes=("axis",),
)
define(
    "gather",
    OperatorFamily.LOOKUP,
    "the entries of a table at positions along an axis, one for each entry of the result",
    lambda arrays, a, x, i: arrays.gather(x, _inside(arrays, i, x.shape[a["axis"]]), a["axis"]),
    _READS,
    shape=lambda a, s, t: t,
    attributes=("axis",),
)
define(
    "scatter",
    OperatorFamily.LOOKUP,
    "x with entries written, added, ... at positions along an axis",
    lambda arrays, a, x, i, v: arrays.scatter(x, _inside(arrays, i, x.shape[a["axis"]]), v, a["axis"], a["reduce"]),
    lambda a: Traits(degree=1, zero=True, monotone=1, linear="jointly", shift=1) if a["reduce"] == "none" else Traits(),
    shape=lambda a, s, t, u: s,
    attributes=("axis", "reduce"),
)


def _inside(arrays: Any, index: Any, size: int) -> Any:
    """Negative positions count from the end."""
    return arrays.where(index < 0, index + size, index)


def _known_value(b: Builder, index: Node, size: int) -> Any:
    value = b.value(index)
    return None if value is None else np.where(value < 0, value + size, value)


@aten("index_select")
def index_select(b: Builder, x: Node, dim: int, index: Node) -> Node:
    """Slices at positions along an axis."""
    if not x.rank:
        return b.reshape(index_select(b, b.reshape(x, (1,)), 0, index), ())
    return b.lookup(x, index, dim % x.rank)


@aten("embedding")
def embedding(b: Builder, weight: Node, indices: Node) -> Node:
    """Rows of a table; `padding_idx` and the like are about gradients."""
    return index_select(b, weight, 0, indices)


@onnx("Gather", weights=(0,), carries=1)
def _gather(b: Builder, x: Node, index: Node, axis: int = 0) -> Node:
    return index_select(b, x, axis, index)


@aten("gather")
def gather(b: Builder, x: Node, dim: int, index: Node) -> Node:
    """Entries at positions along an axis."""
    if not x.rank:
        return b.expand(x, index.shape)
    axis = dim % x.rank
    at = _known_value(b, index, x.shape[axis])
    if at is None:
        return b.apply("gather", (x, index), x.kind, axis=axis)
    cut = tuple(slice(0, n) if k != axis else slice(None) for k, n in enumerate(index.shape))
    return b.move(lambda t: np.take_along_axis(t[cut], at, axis), x)


@onnx("GatherElements")
def _gather_elements(b: Builder, x: Node, index: Node, axis: int = 0) -> Node:
    return gather(b, x, axis, index)


@aten("take_along_dim")
def take_along_dim(b: Builder, x: Node, indices: Node, dim: int | None = None) -> Node:
    """Entries at positions along an axis; the others broadcast."""
    if dim is None:
        return gather(b, b.reshape(x, (x.size,)), 0, b.reshape(indices, (indices.size,)))
    axis = dim % x.rank
    rest = np.broadcast_shapes(*(tuple(1 if k == axis else n for k, n in enumerate(t.shape)) for t in (x, indices)))
    wide = [tuple(t.shape[k] if k == axis else n for k, n in enumerate(rest)) for t in (x, indices)]
    return gather(b, b.expand(x, wide[0]), axis, b.expand(indices, wide[1]))


@aten("take")
def take(b: Builder, x: Node, index: Node) -> Node:
    """Entries at flat positions."""
    flat = b.reshape(x, (x.size,))
    return index_select(b, flat, 0, index)


@aten("index", "_unsafe_index")
def index(b: Builder, x: Node, indices: Sequence[Node | None]) -> Node:
    """Entries at positions along several axes, as NumPy indexes."""
    values = [None if i is None else b.value(i) for i in indices]
    if all(i is None or v is not None for i, v in zip(indices, values, strict=True)):
        at = tuple(slice(None) if v is None else v for v in values)
        return b.move(lambda t: t[at], x)
    if any(i is not None and i.kind == "b" for i in indices):
        raise Refused("an index by truth values that are data: its size is not known")
    axes = [k for k, i in enumerate(indices) if i is not None]
    if axes != list(range(axes[0], axes[-1] + 1)):  # axes apart come in front, as NumPy has it
        front = [*axes, *(k for k in range(x.rank) if k not in axes)]
        return index(b, b.permute(x, front), [indices[k] for k in axes])
    flat = _flat_position(b, [indices[k] for k in axes], x.shape[axes[0] : axes[-1] + 1])
    merged = b.reshape(x, (*x.shape[: axes[0]], math.prod(x.shape[axes[0] : axes[-1] + 1]), *x.shape[axes[-1] + 1 :]))
    return index_select(b, merged, axes[0], flat)


def _flat_position(b: Builder, indices: Sequence[Any], sizes: Sequence[int]) -> Node:
    flat = b.constant(0)
    for i, size in zip(indices, sizes, strict=True):
        flat = b.add(b.mul(flat, size), b.where(b.elementwise("lt", i, 0), b.add(i, size), i))
    return flat


@onnx("GatherND")
def _gather_nd(b: Builder, x: Node, positions: Node, batch_dims: int = 0) -> Node:
    depth = positions.shape[-1]
    parts = [b.reshape(b.slice(positions, -1, slice(k, k + 1)), positions.shape[:-1]) for k in range(depth)]
    for axis in range(batch_dims)[::-1]:  # the batch's own number is the position along its axis
        batch_index = np.arange(x.shape[axis]).reshape(-1, *(1,) * (positions.rank - 2 - axis))
        parts.insert(0, b.expand(b.constant(batch_index), positions.shape[:-1]))
    return index(b, x, parts)


@aten("index_put", "_unsafe_index_put")
def index_put(b: Builder, x: Node, indices: Sequence[Node | None], values: Node, accumulate: bool = False) -> Node:
    """x with entries written at positions along several axes."""
    known = [None if i is None else b.value(i) for i in indices]
    if all(i is None or v is not None for i, v in zip(indices, known, strict=True)):
        at = tuple(slice(None) if v is None else v for v in known)
        if accumulate:
            return _accumulate(b, x, at, values)
        return b.move(lambda t, s: _written(t, at, s), x, b.as_kind(values, x.kind))
    mask = indices[0]
    if len(indices) == 1 and mask is not None and mask.kind == "b" and not accumulate and values.size == 1:
        mask = b.reshape(mask, (*mask.shape, *(1,) * (x.rank - mask.rank)))
        return b.where(mask, b.as_kind(b.reshape(values, (1,) * x.rank), x.kind), x)
    return _scatter_flat(b, x, indices, values, "add" if accumulate else "none")


def _written(x: Any, at: Any, values: Any) -> Any:
    x = x.copy()
    x[at] = values
    return x


def _accumulate(b: Builder, x: Node, at: Any, values: Node) -> Node:
    """Positions may repeat: a scatter along the flat axis."""
    where = np.arange(x.size).reshape(x.shape)[at]
    source = b.reshape(b.expand(b.as_kind(values, x.kind), where.shape), (where.size,))
    flat = b.reshape(x, (x.size,))
    return b.reshape(
        b.apply("scatter", (flat, b.constant(where.ravel()), source), x.kind, axis=0, reduce="add"), x.shape
    )


def _scatter_flat(b: Builder, x: Node, indices: Sequence[Node | None], values: Node, reduce: str) -> Node:
    """Positions that are data along the first axes: a scatter along one flat axis."""
    if any(i is None or i.kind == "b" for i in indices):
        raise Refused("entries written at positions that are data")
    depth = len(indices)
    shape = np.broadcast_shapes(*(i.shape for i in indices if i is not None))
    flat = b.reshape(b.expand(_flat_position(b, indices, x.shape[:depth]), shape), (math.prod(shape),))
    rest = x.shape[depth:]
    width = math.prod(rest)
    at = b.add(b.reshape(b.mul(flat, width), (flat.size, 1)), b.constant(np.arange(width)[None]))
    source = b.reshape(b.expand(b.as_kind(values, x.kind), (*shape, *rest)), (flat.size * width,))
    whole = b.apply(
        "scatter", (b.reshape(x, (x.size,)), b.reshape(at, (at.size,)), source), x.kind, axis=0, reduce=reduce
    )
    return b.reshape(whole, x.shape)


@onnx("ScatterND")
def _scatter_nd(b: Builder, x: Node, positions: Node, updates: Node, reduction: str = "none") -> Node:
    depth = positions.shape[-1]
    parts = [b.reshape(b.slice(positions, -1, slice(k, k + 1)), positions.shape[:-1]) for k in range(depth)]
    if reduction == "none":
        return index_put(b, x, parts, updates)
    return _scatter_flat(b, x, parts, updates, reduction)


def scatter_along(b: Builder, x: Node, axis: int, index: Node, source: Node, reduce: str) -> Node:
    """x with entries written at positions along an axis."""
    if not x.rank:
        one = [b.reshape(t, (1,)) for t in (x, index, source)]
        return b.reshape(scatter_along(b, one[0], 0, one[1], one[2], reduce), ())
    axis %= x.rank
    source = b.as_kind(source, x.kind)
    source = b.take((source,), _corner(source, index))
    at = _known_value(b, index, x.shape[axis])
    if at is not None and reduce == "none":

        def write(t: Any, s: Any) -> Any:
            where = list(np.indices(at.shape, sparse=True))
            where[axis] = at
            return _written(t, tuple(where), s)

        return b.move(write, x, source)
    return b.apply("scatter", (x, index, source), x.kind, axis=axis, reduce=reduce)


def _corner(source: Node, index: Node) -> Any:
    """The part of a source that an index reads: entries beyond its sizes are not used."""
    from lawful.program.index_map import IndexMap, row_major

    return IndexMap.affine(index.shape, row_major(source.shape))


_REDUCTIONS = {None: "none", "none": "none", "sum": "add", "add": "add", "prod": "mul", "multiply": "mul", "mul": "mul",
               "amax": "max", "max": "max", "amin": "min", "min": "min"}  # fmt: skip


@aten("scatter")
def scatter(
    b: Builder,
    x: Node,
    dim: int,
    index: Node,
    src: Node | None = None,
    value: Operand | None = None,
    reduce: str | None = None,
) -> Node:
    """Entries of a source, or a number, written at positions."""
    source = src if src is not None else b.expand(b.operand(value, x), index.shape)  # type: ignore[arg-type]
    return scatter_along(b, x, dim, index, source, _REDUCTIONS[reduce])


@aten("scatter_add")
def scatter_add(b: Builder, x: Node, dim: int, index: Node, src: Node) -> Node:
    """Entries of a source added at positions."""
    return scatter_along(b, x, dim, index, src, "add")


@aten("scatter_reduce")
def scatter_reduce(
    b: Builder, x: Node, dim: int, index: Node, src: Node, reduce: str, include_self: bool = True
) -> Node:
    """Entries of a source added, multiplied, ... at positions."""
    if not include_self or reduce not in _REDUCTIONS:
        raise Refused(f"scatter_reduce by {reduce}{'' if include_self else ' without what was there'}")
    return scatter_along(b, x, dim, index, src, _REDUCTIONS[reduce])


@onnx("ScatterElements", "Scatter")
def _scatter_elements(b: Builder, x: Node, index: Node, updates: Node, axis: int = 0, reduction: str = "none") -> Node:
    return scatter_along(b, x, axis, index, updates, _REDUCTIONS[reduction])


@aten("index_add")
def index_add(b: Builder, x: Node, dim: int, index: Node, source: Node, alpha: Operand = 1) -> Node:
    """Slices of a source added at positions along an axis."""
    return _index_scatter(b, x, dim, index, source if alpha == 1 else b.mul(source, alpha), "add")


@aten("index_copy")
def index_copy(b: Builder, x: Node, dim: int, index: Node, source: Node) -> Node:
    """Slices of a source written at positions along an axis."""
    return _index_scatter(b, x, dim, index, source, "none")


@aten("index_fill")
def index_fill(b: Builder, x: Node, dim: int, index: Node, value: Operand) -> Node:
    """A number written at positions along an axis."""
    number = b.reshape(b.operand(value, x), ())
    if not x.rank:
        return b.as_kind(number, x.kind)
    shape = tuple(index.size if k == dim % x.rank else n for k, n in enumerate(x.shape))
    return _index_scatter(b, x, dim, index, b.expand(number, shape), "none")


def _index_scatter(b: Builder, x: Node, dim: int, index: Node, source: Node, reduce: str) -> Node:
    if not x.rank:
        return b.reshape(_index_scatter(b, b.reshape(x, (1,)), 0, index, b.reshape(source, (1,)), reduce), ())
    axis = dim % x.rank
    shape = tuple(index.size if k == axis else n for k, n in enumerate(x.shape))
    at = b.expand(b.reshape(index, (index.size, *(1,) * (x.rank - axis - 1))), shape)
    return scatter_along(b, x, axis, at, b.reshape(source, shape), reduce)


@aten("one_hot")
def one_hot(b: Builder, x: Node, num_classes: int = -1) -> Node:
    """1 at the class, 0 elsewhere."""
    if num_classes < 0:
        raise Refused("one_hot with as many classes as the data has")
    return b.as_kind(b.elementwise("eq", b.reshape(x, (*x.shape, 1)), b.constant(np.arange(num_classes))), "i")


@onnx("OneHot")
def _one_hot(b: Builder, x: Node, depth: Node, values: Node, axis: int = -1) -> Node:
    size = int(b.numbers(depth, "the depth of OneHot")[0])
    b.check_size(size)
    place = axis % (x.rank + 1)
    classes = b.constant(np.arange(size).reshape(-1, *(1,) * (x.rank - place)))
    wide = b.reshape(b.as_kind(x, "i"), (*x.shape[:place], 1, *x.shape[place:]))
    hit = b.elementwise("eq", b.where(b.elementwise("lt", wide, 0), b.add(wide, size), wide), classes)
    off, on = (b.reshape(b.slice(values, 0, slice(k, k + 1)), ()) for k in (0, 1))
    return b.where(hit, on, off)


@onnx("Compress", "NonZero", "Unique", "NonMaxSuppression")
def _data_dependent_size(
    b: Builder, *operands: Node, axis: int = 0, sorted: int = 1, center_point_box: int = 0
) -> Node:
    raise Refused("a result whose size depends on data")
