"""Elementwise calls of an exported graph as the functions that rules and certificates know."""

from __future__ import annotations

from math import isfinite
from typing import Any

from lawful.network.modules.export import operator_name
from lawful.pruning.channels.program import Arguments

Function = tuple[str, str, Arguments]  # kind (`same` commutes with positive factors), name, numbers

HOMOGENEOUS = ("relu", "leaky_relu", "abs", "neg")
ELEMENTWISE = ("gelu", "silu", "sigmoid", "tanh", "hardtanh", "hardswish", "hardsigmoid", "elu", "softplus", "mish",
               "relu6", "celu", "selu", "erf", "log_sigmoid", "softshrink", "hardshrink", "threshold", "sin", "cos",
               "exp", "expm1", "log", "log1p", "sqrt", "rsqrt", "reciprocal", "atan", "sinh", "cosh")  # fmt: skip
ODD = ("tanh", "erf", "sin", "atan", "sinh", "softshrink", "hardshrink")  # f(−x) = −f(x)
EVEN = ("cos", "cosh")  # f(−x) = f(x)


def function_of(call: Any) -> Function | None:
    """The function that a call applies to every entry of its first argument; None if it is none of these."""
    name, args = operator_name(call.target), list(call.args)
    if name in HOMOGENEOUS or name in ELEMENTWISE:
        return ("same" if name in HOMOGENEOUS else "bend"), name, _numbers(call)
    if name == "square":
        return "bend", "power", (2.0,)
    if name == "pow" and isinstance(args[1], (int, float)):
        return "bend", "power", (float(args[1]),)
    if name in ("clamp", "clamp_min", "clamp_max"):
        return _clamp(name, args, call.kwargs)
    numbered = name in ("add", "sub", "mul", "div", "rsub") and len(args) == 2 and not call.kwargs
    if numbered and isinstance(args[1], (int, float)):
        return ("same" if name in ("mul", "div") else "bend"), f"{name} number", (float(args[1]),)
    return None


def parity(function: str, arguments: Arguments) -> int:
    """−1 for an odd function, 1 for an even one, 0 for others.

    >>> parity("tanh", ()), parity("power", (2.0,)), parity("gelu", ("none",))
    (-1, 1, 0)
    """
    if function == "power" and isinstance(arguments[0], float) and arguments[0].is_integer():
        return 1 if arguments[0] % 2 == 0 else -1
    return -1 if function in ODD else 1 if function in EVEN else 0


def _clamp(name: str, args: list[Any], given: Any) -> Function | None:
    """Bounds below and above, either of which may be missing; from 0 on it is a ReLU."""
    low = args[1] if len(args) > 1 and name != "clamp_max" else given.get("min")
    high = args[1] if name == "clamp_max" else args[2] if len(args) > 2 else given.get("max")
    if any(not (end is None or (isinstance(end, (int, float)) and isfinite(end))) for end in (low, high)):
        return None
    if high is None:
        return ("same", "relu", ()) if low == 0 else None if low is None else ("bend", "clamp_min", (float(low),))
    return ("bend", "clamp_max", (float(high),)) if low is None else ("bend", "hardtanh", (float(low), float(high)))


def _numbers(call: Any) -> Arguments:
    """All that an elementwise call takes beside its activation, in the order of its schema."""
    found = list(call.args[1:])
    for argument in call.target._schema.arguments[1 + len(found) :]:
        found.append(call.kwargs.get(argument.name, argument.default_value))
    return tuple(part if isinstance(part, str) else float(part) for part in found)
