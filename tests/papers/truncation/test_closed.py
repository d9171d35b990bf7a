"""Closed-form truncation times against extended precision and against their differential equation."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from effort import trials
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import solve_ivp

from lawful.errors import LawfulError
from lawful.papers.truncation.flow.predictions import fixed_flow, schedule
from reproduction.claims.truncation import rotations


def exact_times(values: np.ndarray, target: float) -> list[float]:
    """(4.49) in 50 digits."""
    with mpmath.workdps(50):
        data = [mpmath.mpf(float(value)) for value in np.sort(values)]
        time, found = mpmath.mpf(0), [mpmath.mpf(0)]
        for n in range(1, len(data)):
            time += mpmath.mpf(len(data)) / n * mpmath.log((target - data[n - 1]) / (target - data[n]))
            found.append(time)
        return [float(value) for value in found]


@pytest.mark.parametrize("gap", [1e-9, 1e-3, 10.0])
def test_times_to_machine_precision(gap: float) -> None:
    values = np.random.default_rng(0).normal(size=400)
    target = float(values.max() + gap)
    found = schedule(values, float(values.min()), target)
    np.testing.assert_allclose(found.times, exact_times(values, target), rtol=1e-14, atol=1e-15)
    np.testing.assert_allclose(found.rates, np.arange(1, 401) / 400)


@settings(max_examples=trials(10, 30), deadline=None)
@given(st.lists(st.floats(-3, 3), min_size=1, max_size=12), st.floats(-4, 4), st.floats(-4, 4))
def test_solves_its_differential_equation(values: list[float], start: float, target: float) -> None:
    found, data = schedule(values, start, target), np.array(values)
    assert (np.diff(found.times) >= 0).all()
    for time, rate, end in zip(found.times, found.rates, [*found.times[1:], found.times[-1] + 1.0], strict=True):
        middle = (time + min(end, time + 1.0)) / 2
        if end - time > 1e-6 and np.isfinite(end):
            level = float(found(middle))
            nearest = np.abs(data - level).min()
            if nearest > 1e-9:
                assert rate == pytest.approx((data <= level).mean())


def test_matches_blind_integration() -> None:
    values = np.random.default_rng(1).normal(size=15)
    found = schedule(values, 0.1, 3.0)
    solved = solve_ivp(
        lambda _, b: (values <= b[0]).mean() * (3.0 - b), (0, 4), [0.1], max_step=1e-3, rtol=1e-9, atol=1e-12
    )
    assert float(found(4.0)) == pytest.approx(solved.y[0, -1], abs=1e-5)


def test_below_the_data_nothing_moves_and_beyond_the_target_nothing_is_reached() -> None:
    still = schedule([1.0, 2.0], 0.0, 3.0)
    assert (still.limit, float(still(100.0)), len(still.times)) == (0.0, 0.0, 1)
    short = schedule([0.0, 1.0, 5.0], 0.0, 3.0)
    assert len(short.times) == 2
    assert short.rates[-1] == pytest.approx(2 / 3)
    assert short.limit == 3.0


def test_moving_down_releases_points_and_stops_at_the_lowest() -> None:
    found = schedule([0.0, 1.0, 2.0], 2.5, -1.0)
    np.testing.assert_allclose(found.rates, [1.0, 2 / 3, 1 / 3, 0.0])
    assert found.limit == 0.0
    assert found.order.tolist() == [2, 1, 0]


def test_equal_points_pass_together() -> None:
    found = schedule([0.0, 1.0, 1.0], 0.0, 2.0)
    assert found.times[1] == found.times[2]


def test_fixed_flow_solves_the_vector_equation() -> None:
    rng = np.random.default_rng(2)
    points, turn, shift, target = rng.normal(size=(20, 3)), rotations(rng, 1, 3)[0], np.zeros(3), np.full(3, 2.0)
    flow = fixed_flow(points, target, shift, turn)
    for time in (0.3, 2.0):
        later, earlier = flow.shift(time + 1e-6), flow.shift(time - 1e-6)
        beta = flow.shift(time)
        share = ((points + beta) @ turn.T <= 0).mean(axis=0)
        np.testing.assert_allclose((later - earlier) / 2e-6, -turn.T @ (share * (turn @ (beta + target))), atol=1e-6)


@pytest.mark.parametrize("values", [[], [np.nan], [[1.0]]])
def test_bad_values(values: list[float]) -> None:
    with pytest.raises(LawfulError, match="finite"):
        schedule(values, 0.0, 1.0)
