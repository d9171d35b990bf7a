"""Sums and products, and the calls that are made of them.

There is no difference, quotient, root or square: `x - y` is `x + (-1) y`, `x / y` is `x y⁻¹`, `√x` is x^½.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lawful.program.builder import Builder, Operand
from lawful.program.program import Node, widest
from lawful.program.table import OperatorFamily, Refused, Traits, aten, define, onnx

define(
    "add",
    OperatorFamily.ADDITION,
    "x + y",
    lambda arrays, a, x, y: x + y,
    Traits(degree=1, odd=True, monotone=1, zero=True, linear="jointly", shift=2),
    onnx="Add",
)
define(
    "mul",
    OperatorFamily.PRODUCT,
    "x y",
    lambda arrays, a, x, y: x * y,
    Traits(degree=2, even=True, zero=True, linear="in each"),
    onnx="Mul",
)


def _quotient_towards_zero(arrays: Any, x: Any, y: Any) -> Any:
    """For integers by their absolute values: a quotient of reals would round large ones."""
    if "int" in str(x.dtype):
        return arrays.sign(x) * arrays.sign(y) * arrays.floor_divide(arrays.abs(x), arrays.abs(y))
    return arrays.trunc(x / y)


_REST = Traits(degree=1, odd=True)
_QUOTIENT = Traits(degree=0, even=True)
_PAIRS: dict[str, tuple[str, Callable[..., Any], Traits]] = {
    "pow": ("xʸ", lambda arrays, a, x, y: arrays.pow(x, y), Traits()),
    "atan2": (
        "the angle of (y, x)",
        lambda arrays, a, x, y: arrays.arctan2(x, y),
        Traits(degree=0, zero=True, range=(-3.15, 3.15)),
    ),
    "fmod": ("the rest of x / y with the sign of x", lambda arrays, a, x, y: arrays.fmod(x, y), _REST),
    "remainder": ("the rest of x / y with the sign of y", lambda arrays, a, x, y: arrays.remainder(x, y), _REST),
    "floor_divide": ("⌊x / y⌋", lambda arrays, a, x, y: arrays.floor_divide(x, y), _QUOTIENT),
    "trunc_divide": (
        "x / y cut towards 0",
        lambda arrays, a, x, y: _quotient_towards_zero(arrays, x, y),
        _QUOTIENT,
    ),
}


def _power_by_logarithm(b: Builder, x: Node, y: Node) -> Node | None:
    return b.function("exp", b.mul(b.function("log", x), y)) if x.kind == "f" else None


for _name, (_formula, _meaning, _traits) in _PAIRS.items():
    _elementary = _power_by_logarithm if _name == "pow" else None
    define(_name, OperatorFamily.ELEMENTWISE, _formula, _meaning, _traits, elementary=_elementary)


def pair(b: Builder, name: str, x: Operand, y: Operand) -> Node:
    """An operator of two operands that are brought to one kind."""
    one, two = b.operand(x, y), b.operand(y, x)
    kind = widest("i", one.kind, two.kind)
    return b.elementwise(name, b.as_kind(one, kind), b.as_kind(two, kind))


@aten("add", "_foreach_add")
@onnx("Add", perhaps=(0, 1), adds=True)
def add(b: Builder, x: Operand, other: Operand, alpha: Operand = 1) -> Node:
    """x + α y."""
    return b.add(x, other if alpha == 1 else b.mul(other, alpha))


@onnx("Sum")
def _sum(b: Builder, x: Node, *others: Node) -> Node:
    for other in others:
        x = b.add(x, other)
    return x


@onnx("Mean")
def _mean(b: Builder, x: Node, *others: Node) -> Node:
    return b.div(_sum(b, x, *others), 1.0 + len(others))


@aten("sub", "subtract")
@onnx("Sub", perhaps=(0, 1), adds=True)
def sub(b: Builder, x: Operand, other: Operand, alpha: Operand = 1) -> Node:
    """x - α y."""
    return b.sub(x, other if alpha == 1 else b.mul(other, alpha))


@aten("rsub")
def rsub(b: Builder, x: Operand, other: Operand, alpha: Operand = 1) -> Node:
    """y - α x."""
    return b.sub(other, x if alpha == 1 else b.mul(x, alpha))


@aten("mul", "multiply")
@onnx("Mul", perhaps=(0, 1))
def mul(b: Builder, x: Operand, other: Operand) -> Node:
    """x y."""
    return b.mul(x, other)


@aten("neg", "negative")
@onnx("Neg")
def neg(b: Builder, x: Node) -> Node:
    """-x."""
    return b.neg(x)


@aten("div", "divide", "true_divide")
def div(b: Builder, x: Operand, other: Operand, rounding_mode: str | None = None) -> Node:
    """x / y, or its floor, or its part before the point."""
    if rounding_mode is None:
        return b.div(x, other)
    return pair(b, "floor_divide" if rounding_mode == "floor" else "trunc_divide", x, other)


@onnx("Div", perhaps=(0, 1))
def _div(b: Builder, x: Node, y: Node) -> Node:
    return b.div(x, y) if "f" in (x.kind, y.kind) else pair(b, "trunc_divide", x, y)


def _register_pair(name: str) -> None:
    @aten(name)
    def build(b: Builder, x: Operand, other: Operand) -> Node:
        return pair(b, name, x, other)


for _name in ("floor_divide", "remainder", "fmod"):
    _register_pair(_name)


@onnx("Mod")
def _mod(b: Builder, x: Node, y: Node, fmod: int = 0) -> Node:
    return pair(b, "fmod" if fmod else "remainder", x, y)


@aten("atan2", "arctan2")
def atan2(b: Builder, x: Node, other: Node) -> Node:
    """The angle of the point (y, x)."""
    return b.elementwise("atan2", b.as_kind(x, "f"), b.as_kind(other, "f"))


@aten("square")
def square(b: Builder, x: Node) -> Node:
    """x²."""
    return b.mul(x, x)


def _register_power(exponent: float, name: str, onnx_name: str = "") -> None:
    @aten(name)
    def build(b: Builder, x: Node) -> Node:
        return b.power(x, exponent)

    if onnx_name:
        onnx(onnx_name)(build)


ROOTS = {0.5: "sqrt", -0.5: "rsqrt", -1.0: "reciprocal"}  # the powers that have calls of their own
_ROOTS_OF_ONNX = {0.5: "Sqrt", -1.0: "Reciprocal"}
for _exponent, _name in ROOTS.items():
    _register_power(_exponent, _name, _ROOTS_OF_ONNX.get(_exponent, ""))


@aten("pow")
def pow_(b: Builder, x: Operand, exponent: Operand) -> Node:
    """xʸ; a fixed exponent of reals is an attribute."""
    number = b.number(exponent)
    base = b.operand(x, exponent)
    if number is not None and (base.kind == "f" or isinstance(number, float)):
        shape = exponent.shape if isinstance(exponent, Node) else ()
        return b.expand(b.power(base, float(number)), np.broadcast_shapes(base.shape, shape))
    return pair(b, "pow", x, exponent)


@onnx("Pow")
def _pow(b: Builder, x: Node, y: Node) -> Node:
    result = pow_(b, x, y)
    return b.as_kind(result, x.kind)  # ONNX gives it the type of x


@aten("float_power")
def float_power(b: Builder, x: Operand, exponent: Operand) -> Node:
    """xʸ of reals."""
    return pow_(b, b.as_kind(b.operand(x), "f"), exponent)


@aten("addcmul")
def addcmul(b: Builder, x: Node, tensor1: Node, tensor2: Node, value: Operand = 1) -> Node:
    """x + value y z."""
    return b.add(x, b.mul(b.mul(tensor1, tensor2), value))


@aten("addcdiv")
def addcdiv(b: Builder, x: Node, tensor1: Node, tensor2: Node, value: Operand = 1) -> Node:
    """x + value y / z."""
    return b.add(x, b.mul(b.div(tensor1, tensor2), value))


@aten("lerp")
def lerp(b: Builder, x: Node, end: Node, weight: Operand) -> Node:
    """x + w (y - x)."""
    return b.add(x, b.mul(b.sub(end, x), weight))


@aten("hypot")
def hypot(b: Builder, x: Node, other: Node) -> Node:
    """√(x² + y²)."""
    return b.power(b.add(b.power(x, 2), b.power(other, 2)), 0.5)


@aten("logaddexp")
def logaddexp(b: Builder, x: Node, other: Node) -> Node:
    """log(eˣ + eʸ) is max(x, y) + log(1 + e^-|x - y|)."""
    gap = b.function("abs", b.sub(x, other))
    return b.add(b.maximum(x, other), b.function("log1p", b.function("exp", b.neg(gap))))


@aten("xlogy", "special_xlogy")
def xlogy(b: Builder, x: Operand, other: Operand) -> Node:
    """x log y, 0 where x is 0."""
    one, two = b._pair(x, other, "f")
    product = b.mul(one, b.function("log", two))
    return b.where(b.elementwise("isnan", two), two, b.where(b.elementwise("eq", one, 0.0), 0.0, product))


@aten("copysign")
def copysign(b: Builder, x: Node, other: Operand) -> Node:
    """|x| with the sign of y: the sign of a zero is no number's."""
    raise Refused("copysign reads the sign of zero")
