"""Values of constant channels: rationals where they are, balls elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any

from flint import arb

from lawful.verify.core.balls import ball
from lawful.verify.core.schema import require

ZERO = Fraction(0)
Value = Any  # a Fraction or a ball
ZERO_AT_ZERO = ("tanh", "erf", "gelu", "silu", "mish", "elu", "celu", "selu", "sin", "sinh", "atan", "expm1", "log1p",
                "sqrt", "softshrink", "hardshrink")  # fmt: skip
ODD = ("tanh", "erf", "sin", "atan", "sinh", "softshrink", "hardshrink")
EVEN = ("cos", "cosh")
SHRINKS = ("softshrink", "hardshrink")  # not 0 at 0 for a negative width
CLIPS = {"relu6": (Fraction(0), Fraction(6))}


def exact(value: Value) -> bool:
    """Whether it is a rational."""
    return isinstance(value, Fraction)


def is_zero(value: Value) -> bool:
    """Whether it surely is 0."""
    return exact(value) and not value


def _ball(value: Value) -> Any:
    return ball(value) if exact(value) else value


def size_of(value: Value) -> Fraction:
    """At least the absolute value."""
    return abs(value) if exact(value) else 2 * Fraction(float(abs(value).upper()))


def plus(terms: Iterable[tuple[Fraction, Value]], start: Value) -> Value:
    """`start + Σ factor · value`."""
    total = start
    for factor, value in terms:
        if factor and not is_zero(value):
            both = exact(total) and exact(value)
            total = total + factor * value if both else _ball(total) + ball(factor) * _ball(value)
    return total


def times(one: Value, two: Value) -> Value:
    """The product."""
    if is_zero(one) or is_zero(two):
        return ZERO
    return one * two if exact(one) and exact(two) else _ball(one) * _ball(two)


def standardise(value: Value, mean: Fraction, variance: Fraction, gain: Fraction, shift: Fraction) -> Value:
    """`(value − mean)/√variance · gain + shift`."""
    away = plus([(Fraction(-1), mean)], value)
    if not gain or is_zero(away):
        return shift
    require(variance > 0, "a normalisation divides by the root of a number that is not positive")
    return _ball(away) * ball(gain) / ball(variance).sqrt() + ball(shift)


def evaluate(function: str, given: Sequence[Fraction | str], value: Value) -> Value | None:
    """A function of a constant; None if it is not known here."""
    numbers = [item for item in given if isinstance(item, Fraction)]
    if function in ("relu", "leaky_relu"):
        slope = numbers[0] if function == "leaky_relu" else ZERO
        if value > 0:
            return value
        if exact(value) or value < 0:
            return times(slope, value)
        return None
    if function in ("hardtanh", "relu6"):
        return _clip(value, *CLIPS.get(function, numbers[:2]))
    if function in ("hardsigmoid", "hardswish"):
        part = _clip(plus([(Fraction(1), Fraction(3))], value), Fraction(0), Fraction(6))
        share = None if part is None else times(Fraction(1, 6), part)
        return share if function == "hardsigmoid" or share is None else times(value, share)
    match function:
        case "power":
            count = numbers[0]
            return value ** int(count) if count.denominator == 1 and 0 < count < 10 else None
        case "abs":
            return abs(value)
        case "neg":
            return -value
        case "add number":
            return plus([(Fraction(1), numbers[0])], value)
        case "sub number":
            return plus([(Fraction(-1), numbers[0])], value)
        case "mul number":
            return times(value, numbers[0])
        case "div number":
            return times(value, 1 / numbers[0]) if numbers[0] else None
        case "rsub number":
            return plus([(Fraction(-1), value)], numbers[0])
        case "clamp_min" | "clamp_max":
            if exact(value):
                return (max if function == "clamp_min" else min)(value, numbers[0])
            if value > ball(numbers[0]) or value < ball(numbers[0]):
                return value if (value > ball(numbers[0])) is (function == "clamp_min") else numbers[0]
            return None
        case "threshold" if exact(value):
            return value if value > numbers[0] else numbers[1]
    known = function in ZERO_AT_ZERO and not (function in SHRINKS and any(part < 0 for part in numbers))
    return ZERO if known and is_zero(value) else _smooth(function, given, _ball(value))


def parity(function: str, given: Sequence[Fraction | str]) -> int:
    """−1 where `f(−x) = −f(x)`, 1 where `f(−x) = f(x)`, 0 where neither is known."""
    if function == "power" and isinstance(given[0], Fraction) and given[0].denominator == 1:
        return -1 if given[0] % 2 else 1
    if function in SHRINKS and any(isinstance(part, Fraction) and part < 0 for part in given):
        return 0
    return -1 if function in ODD else 1 if function in EVEN else 0


def _clip(value: Value, low: Fraction, high: Fraction) -> Value | None:
    if exact(value):
        return min(max(value, low), high)
    if value < ball(low):
        return low
    if value > ball(high):
        return high
    return value if value > ball(low) and value < ball(high) else None


def _smooth(function: str, given: Sequence[Fraction | str], x: Any) -> Any | None:
    if function == "sigmoid":
        return 1 / (1 + (-x).exp())
    if function == "silu":
        return x / (1 + (-x).exp())
    if function == "tanh":
        return x.tanh()
    if function == "erf":
        return x.erf()
    if function in ("exp", "sin", "cos"):
        return getattr(x, function)()
    if function == "log_sigmoid":
        return -(1 + (-x).exp()).log()
    if function in ("elu", "celu"):
        rate, *rest = (item for item in given if isinstance(item, Fraction))
        if rest not in ([], [1, 1]) or not (x > 0 or x < 0) or not rate:
            return None
        return x if x > 0 else ball(rate) * ((x / ball(rate) if function == "celu" else x).exp() - 1)
    if function == "softplus" and len(given) == 2:
        rate, linear = (ball(part) for part in given if isinstance(part, Fraction))
        return (1 + (x * rate).exp()).log() / rate if x * rate < linear else None
    if function == "mish":
        return x * (1 + x.exp()).log().tanh()
    if function == "gelu" and list(given) == ["none"]:
        return x * (1 + (x / arb(2).sqrt()).erf()) / 2
    if function == "gelu" and list(given) == ["tanh"]:
        cubed = x + ball(Fraction(0.044715)) * x * x * x
        return x * (1 + (cubed * (2 / arb.pi()).sqrt()).tanh()) / 2
    return None
