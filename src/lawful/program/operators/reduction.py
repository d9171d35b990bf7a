"""Reductions along axes. Their nodes keep the axes with size 1; dropping them is a reshape."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lawful.program.builder import Builder, Operand
from lawful.program.index_map import Shape
from lawful.program.operators.movement import integers
from lawful.program.program import Node, widest
from lawful.program.table import OperatorFamily, Refused, Traits, ValueKind, aten, define, onnx

Axes = int | Sequence[int] | None


def _with_unit_axes(a: Any, shape: Shape) -> Shape:
    over = a["axes"] if "axes" in a else (a["axis"],)
    return tuple(1 if axis in over else size for axis, size in enumerate(shape))


def _define(
    name: str,
    formula: str,
    meaning: Callable[..., Any],
    traits: Traits | None = None,
    along: str = "axes",
    kind: ValueKind | None = None,
) -> None:
    define(
        name, OperatorFamily.REDUCTION, formula, meaning, traits, kind=kind, shape=_with_unit_axes, attributes=(along,)
    )


_EXTREME = Traits(degree=1, monotone=1, zero=True, shift=1)
_PLACE = Traits(degree=0, shift=0)
_SUM = Traits(degree=1, odd=True, monotone=1, zero=True, linear="jointly")
_define("sum", "Σ x", lambda arrays, a, x: arrays.sum(x, a["axes"]), _SUM)
_define("amax", "max x", lambda arrays, a, x: arrays.amax(x, a["axes"]), _EXTREME)
_define("amin", "min x", lambda arrays, a, x: arrays.amin(x, a["axes"]), _EXTREME)
_define("prod", "Π x", lambda arrays, a, x: arrays.prod(x, a["axes"]), Traits(zero=True))
_define("any", "some entry is true", lambda arrays, a, x: arrays.any(x, a["axes"], keepdims=True), kind="b")
_define("all", "all entries are true", lambda arrays, a, x: arrays.all(x, a["axes"], keepdims=True), kind="b")
_define("argmax", "where the first maximum is", lambda arrays, a, x: arrays.argmax(x, a["axis"]), _PLACE, "axis", "i")
_define("argmin", "where the first minimum is", lambda arrays, a, x: arrays.argmin(x, a["axis"]), _PLACE, "axis", "i")


def _all_if_empty(dim: Axes) -> Axes:
    """PyTorch sums over all axes if none is named."""
    return None if isinstance(dim, (list, tuple)) and not dim else dim


def variance(b: Builder, x: Node, axes: Axes, correction: float, keep: bool) -> Node:
    """Σ (x - mean)² / (n - correction)."""
    centred = b.sub(x, b.mean(x, axes, True))
    total = b.sum(b.power(centred, 2), axes, keep)
    count = x.size / total.size - correction
    return b.div(total, count) if count > 0 else b.mul(total, b.constant(math.nan if count == 0 else math.inf))


def _correction(correction: float | None, unbiased: bool | None) -> float:
    if correction is not None:
        return float(correction)
    return 1.0 if unbiased is None or unbiased else 0.0


def _register_spread(name: str, root: bool, with_mean: bool) -> None:
    """The variance or the standard deviation; overloads name the denominator in two ways."""

    @aten(name)
    def spread(b: Builder, x: Node, dim: Axes = None, unbiased: bool | None = None, correction: float | None = None,
               keepdim: bool = False) -> Any:  # fmt: skip
        over = _all_if_empty(dim)
        spread = variance(b, x, over, _correction(correction, unbiased), keepdim)
        spread = b.power(spread, 0.5) if root else spread
        return [spread, b.mean(x, over, keepdim)] if with_mean else spread


for _name, _root in (("var", False), ("std", True)):
    _register_spread(_name, _root, with_mean=False)
    _register_spread(f"{_name}_mean", _root, with_mean=True)


def _register_plain(name: str, reduce: Callable[[Builder, Node, Axes, bool], Node]) -> None:
    @aten(name)
    def reduction(b: Builder, x: Node, dim: Axes = None, keepdim: bool = False) -> Node:
        return reduce(b, x, _all_if_empty(dim), keepdim)


_register_plain("sum", lambda b, x, axes, keep: b.sum(x, axes, keep))
_register_plain("mean", lambda b, x, axes, keep: b.mean(x, axes, keep))
_register_plain("amax", lambda b, x, axes, keep: b.reduce("amax", x, axes, keep))
_register_plain("amin", lambda b, x, axes, keep: b.reduce("amin", x, axes, keep))
_register_plain("prod", lambda b, x, axes, keep: b.reduce("prod", x, axes, keep))
_register_plain("any", lambda b, x, axes, keep: b.reduce("any", b.as_kind(x, "b"), axes, keep))
_register_plain("all", lambda b, x, axes, keep: b.reduce("all", b.as_kind(x, "b"), axes, keep))


def _register_extreme(extreme: str, name: str) -> None:
    """max or min along an axis, with where it is; ONNX may ask for the last of equal ones."""

    @aten(name, f"{name}.dim")
    def with_place(b: Builder, x: Node, dim: int | None = None, keepdim: bool = False) -> Any:
        if dim is None:
            return b.reduce(extreme, x)
        return [b.reduce(extreme, x, dim, keepdim), b.reduce(f"arg{name}", x, dim, keepdim)]

    @aten(f"arg{name}")
    def place(b: Builder, x: Node, dim: int | None = None, keepdim: bool = False) -> Node:
        if dim is not None:
            return b.reduce(f"arg{name}", x, dim, keepdim)
        flat = b.reduce(f"arg{name}", b.reshape(x, (x.size,)), 0)
        return b.reshape(flat, (1,) * x.rank) if keepdim else flat

    @onnx(f"Arg{name.capitalize()}")
    def onnx_place(b: Builder, x: Node, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Node:
        if not select_last_index:
            return b.reduce(f"arg{name}", x, axis, bool(keepdims))
        turned = b.move(lambda t: np.flip(t, axis), x)
        return b.sub(x.shape[axis] - 1, b.reduce(f"arg{name}", turned, axis, bool(keepdims)))


_register_extreme("amax", "max")
_register_extreme("amin", "min")


@aten("aminmax")
def aminmax(b: Builder, x: Node, dim: int | None = None, keepdim: bool = False) -> list[Node]:
    """Both."""
    return [b.reduce(name, x, dim, keepdim) for name in ("amin", "amax")]


@aten("count_nonzero")
def count_nonzero(b: Builder, x: Node, dim: Axes = None) -> Node:
    """How many entries are not 0."""
    return b.sum(b.as_kind(b.as_kind(x, "b"), "i"), _all_if_empty(dim))


def triangle(size: int, before: bool = False) -> np.ndarray[Any, Any]:
    """The matrix of partial sums; `before` leaves the entry itself out."""
    return np.tril(np.ones((size, size)), -1 if before else 0)


@aten("cumsum")
def cumsum(b: Builder, x: Node, dim: int) -> Node:
    """Partial sums: a contraction with a fixed triangle."""
    return b.along(x, dim, triangle(x.shape[dim])) if x.rank else x


@aten("cumprod")
def cumprod(b: Builder, x: Node, dim: int) -> Node:
    """Products of the first entries along an axis."""
    if not x.rank:
        return x
    x = b.as_kind(x, widest("i", x.kind))
    parts = [b.slice(x, dim, slice(k, k + 1)) for k in range(x.shape[dim])]
    for k in range(1, len(parts)):
        parts[k] = b.mul(parts[k - 1], parts[k])
    return b.concatenate(parts, dim) if parts else x


@onnx("CumSum")
def _cumsum(b: Builder, x: Node, axis: Node, exclusive: int = 0, reverse: int = 0) -> Node:
    over = int(b.numbers(axis, "the axis of CumSum")[0])
    matrix = triangle(x.shape[over], bool(exclusive))
    return b.along(x, over, matrix.T if reverse else matrix)


@onnx("CumProd")
def _cumprod(b: Builder, x: Node, axis: Node, exclusive: int = 0, reverse: int = 0) -> Node:
    over = int(b.numbers(axis, "the axis of CumProd")[0]) % x.rank
    turned = b.move(lambda t: np.flip(t, over), x) if reverse else x
    if exclusive:
        ones = b.expand(b.operand(1, x), [1 if k == over else n for k, n in enumerate(x.shape)])
        turned = b.concatenate([ones, b.slice(turned, over, slice(0, -1))], over)
    products = cumprod(b, turned, over)
    return b.move(lambda t: np.flip(t, over), products) if reverse else products


@aten("norm", "linalg_vector_norm")
def norm(
    b: Builder, x: Node, ord: Operand | None = None, dim: Axes = None, keepdim: bool = False, p: Any = None
) -> Node:
    """(Σ |x|ᵖ)^(1/p), a maximum or minimum for p = ±∞, a count for 0; both names of the order are read."""
    order = 2.0 if ord is None and p is None else float(b.number(ord if p is None else p))  # type: ignore[arg-type]
    over = _all_if_empty(dim)
    if order == 2:
        return b.power(b.sum(b.power(x, 2), over, keepdim), 0.5)
    size = b.function("abs", x)
    if math.isinf(order):
        return b.reduce("amax" if order > 0 else "amin", size, over, keepdim)
    if order == 0:
        return b.as_kind(b.sum(b.elementwise("ne", x, 0.0), over, keepdim), "f")
    if order == 1:
        return b.sum(size, over, keepdim)
    return b.power(b.sum(b.power(size, order), over, keepdim), 1 / order)


@aten("logsumexp")
def logsumexp(b: Builder, x: Node, dim: Axes, keepdim: bool = False) -> Node:
    """log Σ eˣ, shifted by the maximum: the same real number, and finite in floats."""
    over = _all_if_empty(dim)
    x = b.as_kind(x, "f")
    if b.exact:
        total = b.function("log", b.sum(b.function("exp", x), over, True))
    else:
        top = b.reduce("amax", x, over, True)
        finite = b.where(b.elementwise("isinf", top), 0.0, top)  # of -∞ alone, of +∞: no difference of infinities
        total = b.add(finite, b.function("log", b.sum(b.function("exp", b.sub(x, finite)), over, True)))
    axes = b.axes(x, over)
    return total if keepdim else b.reshape(total, [n for k, n in enumerate(x.shape) if k not in axes])


@aten("trace")
def trace(b: Builder, x: Node) -> Node:
    """The sum of the diagonal."""
    return b.sum(b.move(lambda t: np.diagonal(t), x))


@aten("diff")
def diff(
    b: Builder, x: Node, n: int = 1, dim: int = -1, prepend: Node | None = None, append: Node | None = None
) -> Node:
    """Differences of neighbours, n times."""
    parts = [part for part in (prepend, x, append) if part is not None]
    x = b.concatenate(parts, dim) if len(parts) > 1 else x
    for _ in range(n):
        later, earlier = b.slice(x, dim, slice(1, None)), b.slice(x, dim, slice(0, x.shape[dim] - 1))
        x = b.elementwise("ne", later, earlier) if x.kind == "b" else b.sub(later, earlier)
    return x


def _reduction(name: str) -> Any:
    def build(
        b: Builder,
        x: Node,
        over: Node | None = None,
        keepdims: int = 1,
        noop_with_empty_axes: int = 0,
        axes: Any = None,
    ) -> Node:
        reduced_axes = None if over is None and axes is None else integers(b, over if axes is None else axes, "axes")
        if not reduced_axes and noop_with_empty_axes:
            reduced_axes = []
        elif not reduced_axes:
            reduced_axes = None
        result: Node = _REDUCED[name](b, x, reduced_axes, bool(keepdims))
        return result

    return build


_REDUCED: dict[str, Any] = {
    "ReduceSum": lambda b, x, axes, keep: b.sum(x, axes, keep),
    "ReduceMean": lambda b, x, axes, keep: b.as_kind(b.mean(x, axes, keep), x.kind),
    "ReduceMax": lambda b, x, axes, keep: b.as_kind(b.reduce("amax", x, axes, keep), x.kind),
    "ReduceMin": lambda b, x, axes, keep: b.as_kind(b.reduce("amin", x, axes, keep), x.kind),
    "ReduceProd": lambda b, x, axes, keep: b.reduce("prod", x, axes, keep),
    "ReduceSumSquare": lambda b, x, axes, keep: b.sum(b.mul(x, x), axes, keep),
    "ReduceL1": lambda b, x, axes, keep: b.as_kind(b.sum(b.function("abs", x), axes, keep), x.kind),
    "ReduceL2": lambda b, x, axes, keep: b.as_kind(b.power(b.sum(b.power(x, 2), axes, keep), 0.5), x.kind),
    "ReduceLogSum": lambda b, x, axes, keep: b.as_kind(b.function("log", b.sum(x, axes, keep)), x.kind),
    "ReduceLogSumExp": lambda b, x, axes, keep: b.as_kind(
        logsumexp(b, x, axes, keep) if axes != [] else b.as_kind(x, "f"), x.kind
    ),
}
for _name in _REDUCED:
    onnx(_name)(_reduction(_name))


@aten("linalg_norm")
def linalg_norm(b: Builder, x: Node, ord: Any = None, dim: Axes = None, keepdim: bool = False) -> Node:
    """The norm of a vector; norms of matrices are not read."""
    if ord is not None and ((dim is None and x.rank != 1) or (isinstance(dim, (list, tuple)) and len(dim) != 1)):
        raise Refused("a norm of matrices")
    return norm(b, x, ord, dim, keepdim)


@aten("dist")
def dist(b: Builder, x: Node, other: Node, p: float = 2) -> Node:
    """The norm of the difference."""
    return norm(b, b.sub(x, other), p)
