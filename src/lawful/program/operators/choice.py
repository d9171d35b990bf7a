"""Comparisons, and operators that pick one of their operands by comparing: maxima, `where`, sorting.

They commute with what all operands share: a positive factor, a common shift.
"""

from __future__ import annotations

import math
from functools import partial, reduce
from typing import Any

from lawful.program.builder import Builder, Operand
from lawful.program.program import Node
from lawful.program.table import ATEN, ONNX, Entry, OperatorFamily, Refused, Traits, aten, define, onnx

_COMPARED = Traits(degree=0, shift=0)
_COMPARISONS = {
    "eq": ("x = y", "equal", ("eq",), "Equal"),
    "ne": ("x ≠ y", "not_equal", ("ne", "not_equal"), ""),
    "lt": ("x < y", "less", ("lt", "less"), "Less"),
    "le": ("x ≤ y", "less_equal", ("le", "less_equal"), "LessOrEqual"),
    "gt": ("x > y", "greater", ("gt", "greater"), "Greater"),
    "ge": ("x ≥ y", "greater_equal", ("ge", "greater_equal"), "GreaterOrEqual"),
}
_CONNECTIVES = {
    "and": ("both", "logical_and", ("logical_and",), "And"),
    "or": ("one or both", "logical_or", ("logical_or",), "Or"),
    "xor": ("exactly one", "logical_xor", ("logical_xor",), "Xor"),
}


def _compare(name: str, formula: str, function: str, aten_names: tuple[str, ...], onnx_name: str) -> None:
    def meaning(arrays: object, a: object, x: object, y: object) -> object:
        short = {"equal": "eq", "not_equal": "ne"}.get(function, function)  # torch.equal is one truth value
        return getattr(arrays, short if hasattr(arrays, short) else function)(x, y)

    define(name, OperatorFamily.COMPARISON, formula, meaning, _COMPARED, kind="b", onnx=onnx_name)

    def build(b: Builder, x: Operand, other: Operand) -> Node:
        one, two = b._pair(x, other)
        return b.elementwise(name, one, two)

    for aten_name in aten_names:
        ATEN[aten_name] = Entry(build)
    if onnx_name:
        ONNX[onnx_name] = Entry(build)


def _connect(name: str, formula: str, function: str, aten_names: tuple[str, ...], onnx_name: str) -> None:
    define(
        name,
        OperatorFamily.COMPARISON,
        formula,
        lambda arrays, a, x, y: getattr(arrays, function)(x, y),
        kind="b",
        onnx=onnx_name,
    )

    def build(b: Builder, x: Operand, other: Operand) -> Node:
        one, two = b._pair(x, other)
        return b.elementwise(name, b.as_kind(one, "b"), b.as_kind(two, "b"), commutes=True)

    def of_bits(b: Builder, x: Operand, other: Operand) -> Node:
        if any(b.operand(operand).kind != "b" for operand in (x, other)):
            raise Refused(f"{name} of the bits of integers")
        return build(b, x, other)

    for aten_name in aten_names:
        ATEN[aten_name] = Entry(build)
    for overload in (f"bitwise_{name}", f"__{name}__"):
        ATEN[overload] = Entry(of_bits)
    ONNX[onnx_name] = Entry(build)


for _name, _line in _COMPARISONS.items():
    _compare(_name, *_line)
for _name, _line in _CONNECTIVES.items():
    _connect(_name, *_line)
define(
    "not", OperatorFamily.COMPARISON, "the opposite", lambda arrays, a, x: arrays.logical_not(x), kind="b", onnx="Not"
)
define(
    "isnan",
    OperatorFamily.COMPARISON,
    "x is NaN",
    lambda arrays, a, x: arrays.isnan(x),
    Traits(degree=0, shift=0, finite=False),
    kind="b",
    onnx="IsNaN",
)
define(
    "isinf",
    OperatorFamily.COMPARISON,
    "x is infinite",
    lambda arrays, a, x: arrays.isinf(x),
    Traits(degree=0, shift=0, finite=False),
    kind="b",
    onnx="IsInf",
)


@aten("logical_not")
@onnx("Not")
def not_(b: Builder, x: Node) -> Node:
    """The opposite; a number is true unless it is 0."""
    return b.elementwise("not", b.as_kind(x, "b"))


@aten("bitwise_not")
def _bitwise_not(b: Builder, x: Node) -> Node:
    return not_(b, x) if x.kind == "b" else b.sub(-1, x)  # two's complement


@aten("isnan")
@onnx("IsNaN")
def isnan(b: Builder, x: Node) -> Node:
    """Whether x is NaN; integers never are."""
    return b.elementwise("isnan", b.as_kind(x, "f"))


@aten("isinf")
def isinf(b: Builder, x: Node) -> Node:
    """Whether x is infinite."""
    return b.elementwise("isinf", b.as_kind(x, "f"))


@onnx("IsInf")
def _isinf(b: Builder, x: Node, detect_negative: int = 1, detect_positive: int = 1) -> Node:
    infinite = isinf(b, x)
    if not detect_negative:
        infinite = b.elementwise("and", infinite, b.elementwise("gt", x, 0.0))
    return infinite if detect_positive else b.elementwise("and", infinite, b.elementwise("lt", x, 0.0))


@aten("isfinite")
def isfinite(b: Builder, x: Node) -> Node:
    """Neither NaN nor infinite."""
    return not_(b, b.elementwise("or", isnan(b, x), isinf(b, x)))


@aten("isposinf")
def _isposinf(b: Builder, x: Node) -> Node:
    return b.elementwise("eq", b.as_kind(x, "f"), float("inf"))


@aten("isneginf")
def _isneginf(b: Builder, x: Node) -> Node:
    return b.elementwise("eq", b.as_kind(x, "f"), float("-inf"))


@aten("signbit")
def _signbit(b: Builder, x: Node) -> Node:
    raise Refused("signbit reads the sign of zero")


_PICKS = Traits(degree=1, monotone=1, zero=True, shift=1)
define("maximum", OperatorFamily.CHOICE, "max(x, y)", lambda arrays, a, x, y: arrays.maximum(x, y), _PICKS, onnx="Max")
define("minimum", OperatorFamily.CHOICE, "min(x, y)", lambda arrays, a, x, y: arrays.minimum(x, y), _PICKS, onnx="Min")
define(
    "where",
    OperatorFamily.CHOICE,
    "x where c holds, else y",
    lambda arrays, a, c, x, y: arrays.where(c, x, y),
    Traits(degree=1, odd=True, monotone=1, zero=True, linear="jointly", shift=1),
    onnx="Where",
)
define(
    "sorted",
    OperatorFamily.CHOICE,
    "the entries along an axis in order",
    lambda arrays, a, x: arrays.sort(x, a["axis"], a["descending"]),
    _PICKS,
    shape=lambda a, s: s,
    attributes=("axis", "descending"),
)
define(
    "argsort",
    OperatorFamily.CHOICE,
    "where the entries in order were; of equal ones the first comes first",
    lambda arrays, a, x: arrays.argsort(x, a["axis"], a["descending"]),
    Traits(degree=0, shift=0),
    kind="i",
    shape=lambda a, s: s,
    attributes=("axis", "descending"),
)


def _register_extreme(name: str, aten_name: str, onnx_name: str) -> None:
    """max or min of two or, in ONNX, of many; `fmax` and `fmin` pass a NaN over."""

    @aten(name, f"{aten_name}.other")
    def of_two(b: Builder, x: Operand, other: Operand) -> Node:
        return getattr(b, name)(x, other)  # type: ignore[no-any-return]

    @aten(f"f{aten_name}")
    def of_numbers(b: Builder, x: Node, other: Node) -> Node:
        one, two = b._pair(x, other)
        both = b.where(b.elementwise("isnan", two), one, of_two(b, one, two))
        return b.where(b.elementwise("isnan", one), two, both)

    @onnx(onnx_name)
    def of_many(b: Builder, x: Node, *others: Node) -> Node:
        return reduce(partial(of_two, b), others, x)


_register_extreme("maximum", "max", "Max")
_register_extreme("minimum", "min", "Min")


@aten("clamp", "clip")
def clamp(b: Builder, x: Node, min: Operand | None = None, max: Operand | None = None) -> Node:
    """x kept between two bounds; the upper one wins."""
    if min is not None:
        x = b.maximum(x, min)
    return x if max is None else b.minimum(x, max)


@onnx("Clip")
def _clip(
    b: Builder, x: Node, low: Node | None = None, high: Node | None = None, min: Any = None, max: Any = None
) -> Node:
    """Bounds are inputs of newer versions and attributes of older ones."""
    return clamp(b, x, low if min is None else min, high if max is None else max)


# The calls that bound a value by a number, by the operator that they build.
CLAMPS = {"maximum": "clamp_min", "minimum": "clamp_max"}


@aten("clamp_min")
def clamp_min(b: Builder, x: Node, min: Operand) -> Node:
    """max(x, bound)."""
    return b.maximum(x, min)


@aten("clamp_max")
def clamp_max(b: Builder, x: Node, max: Operand) -> Node:
    """min(x, bound)."""
    return b.minimum(x, max)


@aten("hardtanh")
def hardtanh(b: Builder, x: Node, min_val: Operand = -1, max_val: Operand = 1) -> Node:
    """x kept between two numbers."""
    return clamp(b, x, min_val, max_val)


@aten("where")
@onnx("Where")
def where(b: Builder, condition: Node, x: Operand, other: Operand) -> Node:
    """x where the condition holds, else y."""
    return b.where(condition, x, other)


@aten("masked_fill")
def masked_fill(b: Builder, x: Node, mask: Node, value: Operand) -> Node:
    """A number where a mask is true."""
    return b.as_kind(b.where(mask, value, x), x.kind)


@aten("nan_to_num")
def nan_to_num(
    b: Builder, x: Node, nan: float | None = None, posinf: float | None = None, neginf: float | None = None
) -> Node:
    """Numbers instead of NaN and infinities; the largest of the type unless they are given."""
    if x.kind != "f":
        return x
    largest = 3.4028234663852886e38  # of float32, in which modules run
    x = b.where(b.elementwise("isnan", x), 0.0 if nan is None else nan, x)
    x = b.where(b.elementwise("eq", x, math.inf), largest if posinf is None else posinf, x)
    return b.where(b.elementwise("eq", x, -math.inf), -largest if neginf is None else neginf, x)


def _sort(b: Builder, x: Node, axis: int, descending: bool) -> list[Node]:
    if not x.rank:
        return [x, b.constant(0)]
    axis %= x.rank
    return [b.apply(name, (x,), axis=axis, descending=bool(descending)) for name in ("sorted", "argsort")]


@aten("sort")
def sort(b: Builder, x: Node, dim: int = -1, descending: bool = False, stable: bool | None = None) -> list[Node]:
    """The entries in order, and where they were."""
    return _sort(b, x, dim, descending)


@aten("argsort")
def argsort(b: Builder, x: Node, dim: int = -1, descending: bool = False, stable: bool | None = None) -> Node:
    """Where the entries in order were."""
    return _sort(b, x, dim, descending)[1]


@aten("msort")
def msort(b: Builder, x: Node) -> Node:
    """In order along the first axis."""
    return _sort(b, x, 0, False)[0]


@aten("topk")
def topk(b: Builder, x: Node, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> list[Node]:
    """The first k of the entries in order, and where they were."""
    both = _sort(b, x, dim, largest)
    return [b.slice(sorted_part, dim, slice(0, k)) if x.rank else sorted_part for sorted_part in both]


@onnx("TopK")
def _topk(
    b: Builder, x: Node, count: Node | None = None, axis: int = -1, largest: int = 1, sorted: int = 1, k: Any = None
) -> list[Node]:
    number = k if count is None else int(b.numbers(count, "the k of TopK")[0])
    return topk(b, x, number, axis, bool(largest))


@aten("kthvalue")
def kthvalue(b: Builder, x: Node, k: int, dim: int = -1, keepdim: bool = False) -> list[Node]:
    """The k-th smallest entry along an axis."""
    if not x.rank:
        return [x, b.constant(0)]
    parts = [b.slice(sorted_part, dim, slice(k - 1, k)) for sorted_part in _sort(b, x, dim, False)]
    axis = dim % x.rank
    return parts if keepdim else [b.reshape(p, [n for j, n in enumerate(p.shape) if j != axis]) for p in parts]
