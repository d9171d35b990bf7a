"""Truth values: comparisons, and what connects them."""

from __future__ import annotations

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

    for each in aten_names:
        ATEN[each] = Entry(build)
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
        if any(b.operand(each).kind != "b" for each in (x, other)):
            raise Refused(f"{name} of the bits of integers")
        return build(b, x, other)

    for each in aten_names:
        ATEN[each] = Entry(build)
    for each in (f"bitwise_{name}", f"__{name}__"):
        ATEN[each] = Entry(of_bits)
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
