"""What is known of the distance of two networks on a box, and its evidence as one JSON object."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

import numpy as np

from lawful.bounds.layers import evaluate
from lawful.bounds.pair import NetworkPair
from lawful.bounds.spectral import SpectralBound
from lawful.errors import Unsupported
from lawful.network import Dag, Mlp
from lawful.network.digest import digest, with_layers
from lawful.result import Shown
from lawful.types import Floats

Status = Literal["proved", "violated", "undecided", "bounded"]


@dataclass(frozen=True, eq=False)
class OutputDistance:
    """Bounds of the largest difference of one output."""

    output: int
    lower: Fraction
    upper: float

    @property
    def lower_float(self) -> float:
        """The lower bound as a float that is not above it."""
        return float_below(self.lower)


@dataclass(frozen=True, eq=False)
class Distance(Shown):
    """Bounds of `max ‖g(x) − f(x)‖` over a box, and an input that attains the lower one.

    `lower` is exact: both networks were evaluated in rationals at `input`. `upper` was computed in float64, every
    rounding error bounded and added. `tree` is the splitting that proves it, in preorder, and `spectral` what singular
    values say of the whole box where that is more.
    """

    lower: Fraction
    upper: float
    input: Floats
    per_output: tuple[OutputDistance, ...]
    boxes: int
    tree: tuple[int, ...]
    status: Status
    within: Fraction | None
    norm: float
    low: Floats
    high: Floats
    seconds: float
    interrupted: bool
    pair: NetworkPair
    spectral: SpectralBound | None = None
    stalled: bool = False  # it ended before its time, since neither bound moved any more

    @property
    def lower_float(self) -> float:
        """The lower bound as a float that is not above it."""
        return float_below(self.lower)


def float_below(value: Fraction) -> float:
    """The largest float that is at most a fraction.

    >>> float_below(Fraction(1, 10)) < 0.1 == float_below(Fraction(0.1))
    True
    """
    try:
        near = float(value)
    except OverflowError:
        return math.inf if value == math.inf else math.copysign(1.7976931348623157e308, value)
    return near if Fraction(near) <= value else math.nextafter(near, -math.inf)


def norm_below(gaps: list[Fraction], norm: float) -> Fraction:
    """The norm of exact numbers, for norm 2 rounded down to 64 bits.

    >>> norm_below([Fraction(-3), Fraction(4)], 2.0), norm_below([Fraction(-3), Fraction(4)], 1.0)
    (Fraction(5, 1), Fraction(7, 1))
    """
    sizes = [abs(gap) for gap in gaps]
    if norm == math.inf:
        return max(sizes)
    if norm == 1:
        return sum(sizes, Fraction(0))
    square = sum((size * size for size in sizes), Fraction(0))
    if not square:
        return square
    bits = max(0, 128 - square.numerator.bit_length() + square.denominator.bit_length())
    return Fraction(math.isqrt((square.numerator << 2 * bits) // square.denominator), 1 << bits)


ROOM = Fraction(1, 2**20)  # relative: the verifier rounds otherwise than the maker
ROUNDING = Fraction(1, 10**11)  # relative to the outputs


def certificate(found: Distance, first: Mlp | Dag, second: Mlp | Dag) -> dict[str, Any]:
    """What `lawful verify` needs to compute the bounds anew.

    With a question that was proved the statement is its answer; otherwise the bounds that were found.
    """
    upper: Fraction | None = None
    if found.status == "proved":
        upper = found.within
    elif found.status != "violated" and found.upper < math.inf:
        upper = Fraction(found.upper) * (1 + ROOM) + _rounding(found)
    lower = found.within if found.status == "violated" else found.lower * (1 - ROOM)
    if upper is None and not lower:
        raise Unsupported("nothing is known of this distance that a certificate could state")
    return {
        "kind": "distance",
        "version": 1,
        "about": [digest(network) for network in (first, second)],
        "networks": [with_layers(network) for network in (first, second)],
        "box": _sides(found.low, found.high),
        "outputs": [bound.output for bound in found.per_output],
        "norm": "inf" if found.norm == math.inf else str(int(found.norm)),
        "upper": None if upper is None else str(upper),
        "lower": {"input": found.input.tolist(), "above": str(lower)} if lower else None,
        "matching": [
            {"first": match.first.tolist(), "second": match.second.tolist(), "scale": match.scale.tolist()}
            for match in found.pair.matches
        ],
        "tree": [] if upper is None else list(found.tree),
        "spectral": None
        if upper is None or found.spectral is None
        else {"rows": found.spectral.rows.tolist(), "columns": found.spectral.columns.tolist()},
    }


def _rounding(found: Distance) -> Fraction:
    """Where the bound is all rounding errors the verifier's may be others: a share of the outputs' size."""
    if not found.upper:
        return Fraction(0)
    outputs = np.abs(evaluate(found.pair.first, found.input[None])).max(initial=0.0)
    return ROUNDING * Fraction(float(outputs)) if np.isfinite(outputs) else Fraction(0)


def _sides(low: Floats, high: Floats) -> list[list[str]]:
    return [[str(Fraction(float(end))) for end in side] for side in zip(low, high, strict=True)]
