"""Functions of one number under the names that certificates of channels have, evaluated in rationals and in balls.

A value is a rational where it is known as one, and a ball of FLINT that holds the real number elsewhere. Of the
functions that the table of operators knows, those are here of which the checker of these certificates knows as much:
the table says it of more (asin, round), and what rests on those would be refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import Any

from flint import arb, fmpq

from lawful.program.operators.arithmetic import ROOTS
from lawful.program.program import Node

Value = Any  # a Fraction, or a ball of FLINT that holds the real number
Arguments = tuple[float | str, ...]
ZERO = Fraction(0)
VANISHING = ("tanh", "erf", "sin", "sinh", "atan", "expm1", "log1p", "sqrt", "softshrink")  # 0 at 0
ODD = ("tanh", "erf", "sin", "atan", "sinh", "softshrink")  # f(−x) = −f(x)
EVEN = ("abs", "cos", "cosh")  # f(−x) = f(x)
HOMOGENEOUS = ("relu", "abs")  # commute with positive factors
ONE_SIDED = "relu"  # treats positive and negative values apart
UNBOUNDED = 1e300  # a softplus that is linear nowhere


def name_function(node: Node) -> tuple[str, str, Arguments]:
    """Kind, name and numbers that certificates have for an elementwise operator; `same` commutes with factors > 0."""
    if node.op == "power" and node["exponent"] in ROOTS:
        return "bend", ROOTS[node["exponent"]], ()
    if node.op == "softplus":
        return "bend", node.op, (1.0, UNBOUNDED)
    numbers = tuple(float(v) for v in node.attributes.values() if isinstance(v, (int, float)))
    return ("same" if node.op in HOMOGENEOUS else "bend"), node.op, numbers


def parity(function: str, arguments: Arguments) -> int:
    """−1 for an odd function, 1 for an even one, 0 for others.

    >>> parity("tanh", ()), parity("power", (2.0,)), parity("sigmoid", ())
    (-1, 1, 0)
    """
    if function == "power" and isinstance(arguments[0], float) and arguments[0].is_integer():
        return 1 if arguments[0] % 2 == 0 else -1
    return -1 if function in ODD else 1 if function in EVEN else 0


def ball(value: Value) -> Any:
    """A ball around a value."""
    return arb(fmpq(value.numerator, value.denominator)) if isinstance(value, Fraction) else value


def nearest(value: Value) -> float:
    """A value as a double."""
    return float(value) if isinstance(value, Fraction) else float(value.mid())


def is_rational(value: Value | None) -> bool:
    """Whether a value is known exactly."""
    return isinstance(value, Fraction)


def is_double(value: Value) -> bool:
    """Whether a value is known exactly, and is a double."""
    return isinstance(value, Fraction) and Fraction(nearest(value)) == value


def combine(terms: Iterable[tuple[float | Fraction, Value]], start: Value = ZERO) -> Value:
    """`start + Σ weight · value`.

    >>> combine([(2.0, Fraction(1, 3)), (0.5, Fraction(1))])
    Fraction(7, 6)
    """
    total = start
    for weight, value in terms:
        factor = Fraction(weight)
        if not factor or (isinstance(value, Fraction) and not value):
            continue
        if isinstance(total, Fraction) and isinstance(value, Fraction):
            total = total + factor * value
        else:
            total = ball(total) + ball(factor) * ball(value)
    return total


def product(one: Value, two: Value) -> Value:
    """The product; a rational 0 stays one."""
    if isinstance(one, Fraction) and isinstance(two, Fraction):
        return one * two
    return ZERO if one == ZERO or two == ZERO else ball(one) * ball(two)


def normalise(value: Value, mean: float, variance: float, epsilon: float, gain: float, shift: float) -> Value:
    """`(value − mean)/√(variance + epsilon) · gain + shift`."""
    away = combine([(-1.0, Fraction(mean))], value)
    if gain == 0 or (isinstance(away, Fraction) and not away):
        return Fraction(shift)
    root = ball(Fraction(variance) + Fraction(epsilon)).sqrt()
    return ball(away) * ball(Fraction(gain)) / root + ball(Fraction(shift))


def apply_function(function: str, arguments: Arguments, value: Value) -> Value | None:
    """An elementwise function of a value; None where the function is not known here.

    >>> apply_function("relu", (), Fraction(-3)), apply_function("clamp_max", (6.0,), Fraction(9))
    (Fraction(0, 1), Fraction(6, 1))
    >>> apply_function("tanh", (), Fraction(0))
    Fraction(0, 1)
    """
    numbers = [Fraction(part) for part in arguments if not isinstance(part, str)]
    match function:
        case "relu":
            return _rectify(value)
        case "power":
            whole = numbers[0].denominator == 1 and 0 < numbers[0] < 10
            return value ** int(numbers[0]) if whole else None
        case "abs":
            return abs(value)
        case "clamp_min" | "clamp_max":
            return _clamp(value, numbers[0], below=function == "clamp_min")
        case "add number":
            return combine([(1.0, numbers[0])], value)
        case "mul number":
            return product(value, numbers[0])
    if value == ZERO and function in VANISHING:
        return ZERO
    x, one = ball(value), arb(1)
    match function:
        case "sigmoid":
            return one / (one + (-x).exp())
        case "tanh":
            return x.tanh()
        case "erf":
            return x.erf()
        case "softplus" if bool(x * ball(numbers[0]) < ball(numbers[1])):
            return (one + (x * ball(numbers[0])).exp()).log() / ball(numbers[0])
        case "exp":
            return x.exp()
        case "sin":
            return x.sin()
        case "cos":
            return x.cos()
    return None


def _sign(value: Value) -> int:
    """1 or −1 where it is sure, else 0."""
    return 1 if value > 0 else -1 if value < 0 else 0


def _rectify(value: Value) -> Value:
    if isinstance(value, Fraction):
        return max(value, ZERO)
    sign = _sign(value)
    return value if sign > 0 else ZERO if sign < 0 else (value + abs(value)) / 2


def _clamp(value: Value, bound: Fraction, *, below: bool) -> Value | None:
    """`max(value, bound)`, or `min`; None for a ball that holds the bound."""
    if isinstance(value, Fraction):
        return max(value, bound) if below else min(value, bound)
    sign = _sign(value - ball(bound))
    return None if not sign else value if (sign > 0) is below else bound
