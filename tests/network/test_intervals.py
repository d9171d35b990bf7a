"""Intervals hold the true numbers: compared with rational arithmetic at the corners of the box."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lawful.fibers.layers import rational
from lawful.fibers.regions.domain import Domain
from lawful.network.intervals import activation_range, affine

numbers = st.floats(-1e9, 1e9, allow_subnormal=True)
slopes = st.sampled_from([0.0, 0.1, 1.0, -0.3, 2.5])


def corners(row: list[float], bias: float, ends: list[tuple[float, float]]) -> list[Fraction]:
    """Exact values at the corners: a linear function has its extremes there."""
    return [
        sum((Fraction(w) * Fraction(x) for w, x in zip(row, point, strict=True)), Fraction(bias))
        for point in product(*ends)
    ]


def bent(value: Fraction, slope: float) -> Fraction:
    return value if value > 0 else Fraction(slope) * value


@given(
    row=st.lists(numbers, min_size=3, max_size=3),
    bias=numbers,
    ends=st.lists(st.tuples(numbers, numbers).map(lambda pair: (min(pair), max(pair))), min_size=3, max_size=3),
    slope=slopes,
    scale=st.sampled_from([1e-300, 1e-9, 1.0, 1e9, 1e150]),
)
def test_the_true_range_lies_inside(
    row: list[float], bias: float, ends: list[tuple[float, float]], slope: float, scale: float
) -> None:
    ends = [(low * scale, high * scale) for low, high in ends]
    low, high = np.array(ends).T
    values = corners(row, bias, ends)
    lower, upper = affine(np.array([row]), np.array([bias]), low, high)
    assert lower[0] <= min(values)
    assert max(values) <= upper[0]
    below, above = activation_range(lower, upper, np.array([slope]))
    after = [bent(value, slope) for value in values] + [Fraction(0)] * (min(values) <= 0 <= max(values))
    assert below[0] <= min(after)
    assert max(after) <= above[0]
    if (low < high).all():
        rows = np.array([[*row, bias]])
        for given_rows in (rows, rational(rows)):
            seen = Domain(low, high).through(given_rows, slope)
            assert seen.low[0] <= min(after)
            assert max(after) <= seen.high[0]


def test_a_large_layer_is_rounded_outwards() -> None:
    """Hundreds of terms of every size: the error of the sum is covered."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(5, 301)) * 10.0 ** rng.integers(-12, 12, size=(5, 301))
    domain = Domain.box(300, -np.pi, np.e)
    seen = domain.through(rows, 1.0)
    for number, row in enumerate(rational(rows)):
        least, most = domain.range(row)
        assert Fraction(seen.low[number]) <= Fraction(int(least.p), int(least.q))
        assert Fraction(seen.high[number]) >= Fraction(int(most.p), int(most.q))


def test_zero_times_infinity_is_zero() -> None:
    lower, upper = affine(np.array([[0.0, 1.0]]), None, np.array([-np.inf, 1.0]), np.array([np.inf, 2.0]))
    assert (lower[0], upper[0]) == (1.0, 2.0)
