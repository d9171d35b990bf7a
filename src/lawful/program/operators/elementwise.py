"""Functions of one real number, and the activations that are made of them.

Activations that are products or sums of these have no operator of their own: SiLU is `x sigmoid(x)`, leaky ReLU is
`relu(x) - slope relu(-x)`. So a domain that follows relu, sigmoid, tanh, erf and products follows them all.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from lawful.program.builder import Builder, Operand
from lawful.program.program import Node
from lawful.program.table import (
    ATEN,
    INFINITY,
    ONNX,
    Entry,
    OperatorFamily,
    Refused,
    Traits,
    define,
    onnx,
    power_traits,
)
from lawful.program.table import aten as aten

# Functions in terms of exponentials, logarithms, the error function, sines, cosines, powers and choices.
_ELEMENTARY: dict[str, Callable[[Builder, Node], Node]] = {
    "relu": lambda b, x: b.where(b.elementwise("gt", x, 0.0), x, 0.0),
    "abs": lambda b, x: b.where(b.elementwise("gt", x, 0.0), x, b.neg(x)),
    "sign": lambda b, x: b.where(b.elementwise("gt", x, 0.0), 1.0, -1.0),  # but at 0 itself
    "expm1": lambda b, x: b.add(b.function("exp", x), -1.0),
    "log1p": lambda b, x: b.function("log", b.add(x, 1.0)),
    "erfc": lambda b, x: b.sub(1.0, b.function("erf", x)),
    "tanh": lambda b, x: b.sub(1.0, b.mul(2.0, b.power(b.add(b.function("exp", b.mul(x, 2.0)), 1.0), -1.0))),
    "sigmoid": lambda b, x: b.power(b.add(b.function("exp", b.neg(x)), 1.0), -1.0),
    "softplus": lambda b, x: b.function("log", b.add(b.function("exp", x), 1.0)),
    "tan": lambda b, x: b.div(b.function("sin", x), b.function("cos", x)),
    "sinh": lambda b, x: b.mul(0.5, b.sub(b.function("exp", x), b.function("exp", b.neg(x)))),
    "cosh": lambda b, x: b.mul(0.5, b.add(b.function("exp", x), b.function("exp", b.neg(x)))),
    "asinh": lambda b, x: b.function("log", b.add(x, b.power(b.add(b.power(x, 2.0), 1.0), 0.5))),
    "acosh": lambda b, x: b.function("log", b.add(x, b.power(b.sub(b.power(x, 2.0), 1.0), 0.5))),
    "atanh": lambda b, x: b.mul(0.5, b.function("log", b.div(b.add(x, 1.0), b.sub(1.0, x)))),
}


def _define(
    name: str, formula: str, traits: Traits, aten_names: tuple[str, ...] | None = None, onnx_name: str = ""
) -> None:
    """A function that NumPy and PyTorch have under this name; ATen's name is the same unless it is given."""
    define(
        name,
        OperatorFamily.ELEMENTWISE,
        formula,
        lambda arrays, a, x: getattr(arrays, name)(x),
        traits,
        elementary=_ELEMENTARY.get(name),
        onnx=onnx_name,
    )

    def build(b: Builder, x: Operand) -> Node:
        return b.function(name, x)

    for aten_name in (name,) if aten_names is None else aten_names:
        ATEN[aten_name] = Entry(build)
    if onnx_name:
        ONNX[onnx_name] = Entry(build)


_UNIT = (-1.0, 1.0)
_POSITIVE = (0.0, INFINITY)
_ODD = Traits(odd=True, zero=True)
_RISES = Traits(odd=True, monotone=1, zero=True)
_STEPS = Traits(monotone=1, zero=True, steps=True)
_ODD_STEPS = Traits(odd=True, monotone=1, zero=True, steps=True)

_define("relu", "max(x, 0)", Traits(degree=1, monotone=1, zero=True, kinks=(0.0,), range=_POSITIVE), None, "Relu")
_define("abs", "|x|", Traits(degree=1, even=True, zero=True, kinks=(0.0,), range=_POSITIVE), None, "Abs")
_define(
    "sign",
    "x / |x|, 0 at 0",
    Traits(degree=0, odd=True, monotone=1, zero=True, kinks=(0.0,), range=_UNIT),
    ("sign", "sgn"),
    "Sign",
)
_define("exp", "eˣ", Traits(monotone=1, range=_POSITIVE), None, "Exp")
_define("expm1", "eˣ - 1", Traits(monotone=1, zero=True, range=(-1.0, INFINITY)))
_define("log", "log x", Traits(monotone=1), None, "Log")
_define("log1p", "log(1 + x)", Traits(monotone=1, zero=True))
_define(
    "erf", "2/√π ∫₀ˣ exp(-t²) dt", Traits(odd=True, monotone=1, zero=True, range=_UNIT), ("erf", "special_erf"), "Erf"
)
# exp(-x²) multiplies the rounding of x² by x², until erfc underflows at 27
_define("erfc", "1 - erf x", Traits(monotone=-1, range=(0.0, 2.0), error=1000.0), ("erfc", "special_erfc"))
_define("tanh", "tanh x", Traits(odd=True, monotone=1, zero=True, range=_UNIT), None, "Tanh")
_define("sigmoid", "1 / (1 + e⁻ˣ)", Traits(monotone=1, range=(0.0, 1.0)), ("sigmoid", "special_expit"), "Sigmoid")
_define("softplus", "log(1 + eˣ)", Traits(monotone=1, range=_POSITIVE), (), "Softplus")
_define("sin", "sin x", Traits(odd=True, zero=True, range=_UNIT), None, "Sin")
_define("cos", "cos x", Traits(even=True, range=_UNIT), None, "Cos")
_define("tan", "tan x", _ODD, None, "Tan")
_define("asin", "arcsin x", Traits(odd=True, monotone=1, zero=True, range=(-1.58, 1.58)), ("asin", "arcsin"), "Asin")
_define("acos", "arccos x", Traits(monotone=-1, range=(0.0, 3.15)), ("acos", "arccos"), "Acos")
_define("atan", "arctan x", Traits(odd=True, monotone=1, zero=True, range=(-1.58, 1.58)), ("atan", "arctan"), "Atan")
_define("sinh", "sinh x", _RISES, None, "Sinh")
_define("cosh", "cosh x", Traits(even=True, range=(1.0, INFINITY)), None, "Cosh")
_define("asinh", "arsinh x", _RISES, ("asinh", "arcsinh"), "Asinh")
_define("acosh", "arcosh x", Traits(monotone=1, range=_POSITIVE), ("acosh", "arccosh"), "Acosh")
_define("atanh", "artanh x", _RISES, ("atanh", "arctanh"), "Atanh")
# near its roots below 0, no digit of a computed value is known to be right
_define("lgamma", "log |Γ(x)|", Traits(error=INFINITY), ("lgamma", "special_gammaln"))
_define("floor", "⌊x⌋", _STEPS, None, "Floor")
_define("ceil", "⌈x⌉", _STEPS, None, "Ceil")
_define("round", "the nearest integer, the even one of two", _ODD_STEPS, ("round.default", "round_"), "Round")
_define("trunc", "x cut towards 0", _ODD_STEPS, ("trunc", "fix"))

define(
    "power",
    OperatorFamily.ELEMENTWISE,
    "xᵖ",
    lambda arrays, a, x: arrays.power(x, a["exponent"]),
    power_traits,
    attributes=("exponent",),
)
define(
    "cast",
    OperatorFamily.ELEMENTWISE,
    "x as another kind; reals are cut towards 0",
    lambda arrays, a, x: arrays.cast(x, a["to"]),
    lambda a: Traits(monotone=1, zero=True),
    attributes=("to",),
)

# Activations


@aten("special_ndtr")
def ndtr(b: Builder, x: Operand) -> Node:
    """The distribution function of the normal distribution."""
    return b.mul(b.function("erfc", b.mul(x, -(0.5**0.5))), 0.5)


@aten("leaky_relu")
def leaky_relu(b: Builder, x: Node, negative_slope: Operand = 0.01) -> Node:
    """relu(x) - slope relu(-x)."""
    return b.sub(b.function("relu", x), b.mul(b.function("relu", b.neg(x)), negative_slope))


@onnx("LeakyRelu")
def _leaky_relu(b: Builder, x: Node, alpha: float = 0.01) -> Node:
    return leaky_relu(b, x, alpha)


@aten("prelu", "_prelu_kernel")
def prelu(b: Builder, x: Node, weight: Node) -> Node:
    """Leaky ReLU with a slope for each index of axis 1."""
    if weight.rank == 1 and x.rank > 1:
        weight = b.reshape(weight, (weight.shape[0], *(1,) * (x.rank - 2)))
    return leaky_relu(b, x, weight)


@onnx("PRelu", weights=(1,))
def _prelu(b: Builder, x: Node, slope: Node) -> Node:
    return leaky_relu(b, x, slope)


@aten("rrelu")
def rrelu(
    b: Builder, x: Node, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False, generator: Any = None
) -> Node:
    """A leaky ReLU with a random slope: its mean in evaluation."""
    if training:
        raise Refused("rrelu in training")
    return leaky_relu(b, x, (lower + upper) / 2)


@aten("rrelu_with_noise_functional")
def rrelu_with_noise(
    b: Builder, x: Node, noise: Node, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False
) -> list[Node]:
    """The same, beside its noise, which evaluation does not read."""
    return [rrelu(b, x, lower, upper, training), noise]


@aten("relu6")
def relu6(b: Builder, x: Node) -> Node:
    """min(relu(x), 6)."""
    return b.minimum(b.function("relu", x), 6.0)


@aten("hardsigmoid")
def hardsigmoid(b: Builder, x: Node) -> Node:
    """min(relu(x + 3), 6) / 6, as PyTorch writes it."""
    return b.div(relu6(b, b.add(b.as_kind(x, "f"), 3.0)), 6.0)


@onnx("HardSigmoid")
def _hardsigmoid(b: Builder, x: Node, alpha: float = 0.2, beta: float = 0.5) -> Node:
    return b.minimum(b.function("relu", b.add(b.mul(x, alpha), beta)), 1.0)


@aten("hardswish")
@onnx("HardSwish")
def hardswish(b: Builder, x: Node) -> Node:
    """x hardsigmoid(x)."""
    return b.mul(x, hardsigmoid(b, x))


@aten("silu")
def silu(b: Builder, x: Node) -> Node:
    """x sigmoid(x)."""
    return b.mul(x, b.function("sigmoid", x))


@onnx("Swish")
def _swish(b: Builder, x: Node, alpha: float = 1.0) -> Node:
    return b.mul(x, b.function("sigmoid", b.mul(x, alpha)))


@aten("gelu")
@onnx("Gelu")
def gelu(b: Builder, x: Node, approximate: str = "none") -> Node:
    """x Φ(x), or its approximation by tanh."""
    half = b.mul(x, 0.5)
    if approximate == "tanh":
        inner = b.mul(b.add(x, b.mul(b.power(x, 3), 0.044715)), math.sqrt(2 / math.pi))
        return b.mul(half, b.add(b.function("tanh", inner), 1.0))
    return b.mul(half, b.add(b.function("erf", b.mul(x, math.sqrt(0.5))), 1.0))


@aten("softplus")
def softplus(b: Builder, x: Node, beta: float = 1.0, threshold: float = 20.0) -> Node:
    """log(1 + exp(β x)) / β.

    PyTorch returns x where β x exceeds the threshold. There the two differ by log(1 + exp(-β x)) / β, at most
    2.1e-9 / β at 20: a rounding like others, and noted like others. A lower threshold is another function.
    """
    curve = b.div(b.function("softplus", b.mul(x, beta)), beta) if beta != 1 else b.function("softplus", x)
    if threshold < 20 or b.exact:
        return b.where(b.elementwise("gt", b.mul(x, beta), float(threshold)), x, curve)
    b.notes["softplus is not cut off at its threshold"] += 1
    return curve


@aten("mish")
@onnx("Mish")
def mish(b: Builder, x: Node) -> Node:
    """x tanh(softplus(x))."""
    return b.mul(x, b.function("tanh", b.function("softplus", x)))


@aten("elu")
@onnx("Elu")
def elu(b: Builder, x: Node, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Node:
    """scale (x for x > 0, else α (exp(input_scale x) - 1)): relu(x) + α expm1(min(x, 0)) has no branch to follow."""
    below = b.function("expm1", b.mul(b.minimum(b.as_kind(x, "f"), 0.0), input_scale))
    return b.mul(b.add(b.function("relu", x), b.mul(below, alpha)), scale)


@aten("selu")
def _selu_aten(b: Builder, x: Node) -> Node:
    return elu(b, x, 1.6732632423543772, 1.0507009873554805)


@onnx("Selu")
def _selu(b: Builder, x: Node, alpha: float = 1.6732631921768188, gamma: float = 1.0507010221481323) -> Node:
    return elu(b, x, alpha, gamma)


@aten("celu")
@onnx("Celu")
def celu(b: Builder, x: Node, alpha: float = 1.0) -> Node:
    """relu(x) + α expm1(min(x, 0) / α)."""
    return elu(b, x, alpha, 1.0, 1.0 / alpha)


@aten("log_sigmoid")
def log_sigmoid(b: Builder, x: Node) -> Node:
    """-softplus(-x)."""
    return b.neg(b.function("softplus", b.neg(x)))


@onnx("Softsign")
def softsign(b: Builder, x: Node) -> Node:
    """x / (1 + |x|)."""
    return b.div(x, b.add(b.function("abs", x), 1.0))


@aten("glu")
def glu(b: Builder, x: Node, dim: int = -1) -> Node:
    """The first half of an axis, times the sigmoid of the second."""
    half = x.shape[dim] // 2
    first, second = b.slice(x, dim, slice(0, half)), b.slice(x, dim, slice(half, None))
    return b.mul(first, b.function("sigmoid", second))


@aten("softshrink")
def softshrink(b: Builder, x: Node, lambd: float = 0.5) -> Node:
    """relu(x - λ) - relu(-x - λ)."""
    return b.sub(b.function("relu", b.sub(x, lambd)), b.function("relu", b.sub(b.neg(x), lambd)))


@onnx("Shrink")
def _shrink(b: Builder, x: Node, bias: float = 0.0, lambd: float = 0.5) -> Node:
    above, below = b.elementwise("gt", x, lambd), b.elementwise("lt", x, -lambd)
    return b.where(above, b.sub(x, bias), b.where(below, b.add(x, bias), b.operand(0, x)))


@aten("hardshrink")
def hardshrink(b: Builder, x: Node, lambd: float = 0.5) -> Node:
    """x where |x| > λ, else 0."""
    return b.where(b.elementwise("gt", b.function("abs", x), lambd), x, 0.0)


@aten("threshold")
def threshold(b: Builder, x: Node, threshold: float, value: float) -> Node:
    """x where x > threshold, else a number: with zeros it is relu."""
    if threshold == value == 0:
        return b.function("relu", x)
    return b.where(b.elementwise("le", x, threshold), value, x)


@onnx("ThresholdedRelu")
def _thresholded_relu(b: Builder, x: Node, alpha: float = 1.0) -> Node:
    return b.where(b.elementwise("gt", x, alpha), x, 0.0)


@aten("exp2")
def exp2(b: Builder, x: Node) -> Node:
    """2ˣ."""
    return b.function("exp", b.mul(b.as_kind(x, "f"), math.log(2)))


@aten("log2")
def log2(b: Builder, x: Node) -> Node:
    """log x / log 2."""
    return b.mul(b.function("log", x), 1 / math.log(2))


@aten("log10")
def log10(b: Builder, x: Node) -> Node:
    """log x / log 10."""
    return b.mul(b.function("log", x), 1 / math.log(10))


@aten("sinc")
def sinc(b: Builder, x: Node) -> Node:
    """sin(πx) / (πx), 1 at 0."""
    turned = b.mul(b.as_kind(x, "f"), math.pi)
    return b.where(b.elementwise("eq", x, b.operand(0, x)), 1.0, b.div(b.function("sin", turned), turned))


@aten("deg2rad")
def deg2rad(b: Builder, x: Node) -> Node:
    """x π / 180."""
    return b.mul(b.as_kind(x, "f"), math.pi / 180)


@aten("rad2deg")
def rad2deg(b: Builder, x: Node) -> Node:
    """x 180 / π."""
    return b.mul(b.as_kind(x, "f"), 180 / math.pi)


@aten("frac")
def frac(b: Builder, x: Node) -> Node:
    """x - trunc(x)."""
    return b.sub(x, b.function("trunc", x))


@aten("logit")
def logit(b: Builder, x: Node, eps: float | None = None) -> Node:
    """log(x / (1 - x)), x kept `eps` away from 0 and 1."""
    x = b.as_kind(x, "f")
    if eps is not None:
        x = b.minimum(b.maximum(x, eps), 1.0 - eps)
    return b.function("log", b.div(x, b.sub(1.0, x)))
