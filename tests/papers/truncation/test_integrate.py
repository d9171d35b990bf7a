"""Event-driven integration: sign changes, orthogonality, held coordinates."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from scipy.integrate import DOP853

from lawful.errors import LawfulError
from lawful.papers.truncation.clusters import Clusters, synthetic
from lawful.papers.truncation.flow.boundary import first_crossing
from lawful.papers.truncation.flow.field import Composed, Field, Maps, Separated, cayley
from lawful.papers.truncation.flow.integrate import integrate
from lawful.papers.truncation.flow.motion import run_flow
from lawful.papers.truncation.flow.predictions import schedule
from reproduction.claims.truncation import rotations


def small_steps(field: Field, maps: Maps, time: float, steps: int) -> Maps:
    """The midpoint rule on the group, blind to sign changes."""
    step = time / steps
    for _ in range(steps):
        velocity = field.velocity(maps)
        half = Maps(maps.shifts + step / 2 * velocity.shifts, cayley(step / 2 * velocity.generators) @ maps.rotations)
        velocity = field.velocity(half)
        maps = Maps(maps.shifts + step * velocity.shifts, cayley(step * velocity.generators) @ maps.rotations)
    return maps


def problem(seed: int, size: int, count: int) -> tuple[Separated, Maps]:
    rng = np.random.default_rng(seed)
    points, target, shift = rng.normal(size=(count, size)), rng.normal(size=size), 0.3 * rng.normal(size=(1, size))
    return Separated(points, target), Maps(shift, rotations(rng, 1, size))


@pytest.mark.parametrize(("seed", "size", "count"), [(0, 2, 20), (1, 3, 25), (2, 4, 20)])
def test_follows_the_flow_of_small_steps(seed: int, size: int, count: int) -> None:
    field, start = problem(seed, size, count)
    run = integrate(field, start, [0.0, 1.0])
    assert run.events
    coarse, fine = (small_steps(field, start, 1.0, steps) for steps in (500, 2000))
    errors = [
        max(float(np.abs(a - b).max()) for a, b in zip(run.maps[-1], rough, strict=True)) for rough in (coarse, fine)
    ]
    assert errors[1] < 2e-4
    assert errors[1] < errors[0]  # small steps approach us, not the other way round


def test_points_that_an_earlier_map_made_one_cross_zero_together() -> None:
    """Flipping one of them alone leaves the flow: small steps, which know no events, tell the two apart."""
    data = Clusters(np.random.default_rng(88).normal(size=(22, 2)), np.repeat([0, 1], 11))
    run = run_flow(data, general=True, until=2.8, frames=29)
    assert max(Counter(event.time for event in run.events).values()) == 6  # at 2.726
    field = Composed(data.points, run.start.targets[data.labels], data.weights)
    errors = [
        max(float(np.abs(a - b).max()) for a, b in zip(run.maps(28), rough, strict=True))
        for rough in (small_steps(field, run.maps(27), 0.1, steps) for steps in (50, 200))
    ]
    assert errors[1] < 1e-7
    assert errors[1] < errors[0]


def test_rotations_stay_orthogonal_and_the_cost_falls() -> None:
    field, start = problem(3, 5, 40)
    run = integrate(field, start, np.linspace(0.0, 4.0, 21))
    for maps in run.maps:
        assert np.abs(maps.rotations[0] @ maps.rotations[0].T - np.eye(5)).max() < 1e-14
    assert (np.diff(run.costs) <= 0).all()
    assert (run.descent <= 0).all()


def test_descent_is_the_derivative_of_the_cost() -> None:
    field, start = problem(4, 3, 30)
    run = integrate(field, start, np.linspace(0.0, 1.0, 2001))
    slopes = (run.costs[2:] - run.costs[:-2]) / (run.times[2:] - run.times[:-2])
    gaps = np.abs(slopes - run.descent.sum(axis=1)[1:-1])
    jumps = np.array([event.time for event in run.events])
    smooth = np.abs(run.times[1:-1, None] - jumps).min(axis=1) > 1e-3
    assert smooth.sum() > 500
    assert gaps[smooth].max() < 1e-5


def test_sign_changes_are_where_the_closed_form_says() -> None:
    values = np.random.default_rng(0).normal(size=30)
    exact = schedule(values, float(values.min()), 4.0)
    run = integrate(
        Separated(values[:, None], np.array([4.0])), Maps(np.array([[-values.min()]]), np.ones((1, 1, 1))), [0.0, 300.0]
    )
    np.testing.assert_allclose([event.time for event in run.events], exact.times[1:], rtol=1e-8)
    assert [event.point for event in run.events] == exact.order.tolist()


@pytest.mark.parametrize("seed", [8, 11])
def test_a_coordinate_pushed_from_both_sides_is_held_on_the_boundary(seed: int) -> None:
    from scipy.stats import ortho_group

    rng = np.random.default_rng(seed)
    points, target, shift = rng.normal(size=(60, 5)), rng.normal(size=5), 0.3 * rng.normal(size=5)
    field = Separated(points, target)
    start = Maps(shift[None], ortho_group.rvs(5, random_state=seed + 1)[None])
    run = integrate(field, start, np.linspace(0.0, 0.4, 41))
    held = [event for event in run.events if event.kind == "hold"]
    assert held
    first = held[0]
    after = int(np.searchsorted(run.times, first.time))
    z = field.preactivations(run.maps[after])[first.layer, first.point, first.coordinate]
    assert abs(z) < 1e-9 or any(e.point == first.point and e.time > first.time for e in run.events)
    assert (np.diff(run.costs) < 0).all()
    rough = small_steps(field, start, 0.4, 4000)  # chatters around the boundary, within a step of it
    assert np.abs(rough.shifts - run.maps[-1].shifts).max() < 1e-3


def test_composed_flow_of_separated_clusters_is_the_separated_flow() -> None:
    data = synthetic(3, 8, 0.1)
    apart, whole = (run_flow(data, general=general, until=5.0, frames=6) for general in (False, True))
    assert all(apart.separated)
    assert [event.kind for event in apart.events] == [event.kind for event in whole.events]
    for index in range(6):
        np.testing.assert_allclose(apart.images(index), whole.images(index), atol=1e-8)


def test_a_composed_run_that_meets_a_corner_halts_and_keeps_what_it_had() -> None:
    rng = np.random.default_rng(2)
    labels = np.repeat(np.arange(4), 15)
    points = 2 * np.eye(4)[labels] + 0.4 * rng.normal(size=(60, 4))
    field = Composed(points, rng.normal(size=(4, 4))[labels], np.full(60, 1 / 15))
    run = integrate(field, Maps(0.5 * rng.normal(size=(4, 4)), rotations(rng, 4, 4)), [0.0, 0.1, 0.2], max_events=20)
    assert run.halted is not None
    assert run.halted.startswith("more than 20 sign changes before s = ")
    assert len(run.times) == len(run.maps) == len(run.costs) < 3


@pytest.mark.parametrize(
    ("what", "words"),
    [("smooth_passage", "no method got past them"), ("DOP853", "could not be integrated past s = 0: too stiff")],
)
def test_a_run_that_no_method_carries_on_says_so(what: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Failing(DOP853):
        def step(self) -> str:
            self.status = "failed"
            return "too stiff"

    broken = Failing if what == "DOP853" else lambda *_: None
    monkeypatch.setattr(f"lawful.papers.truncation.flow.integrate.{what}", broken)
    rng = np.random.default_rng(1)
    labels = np.repeat(np.arange(3), 3)  # the corner of the next test
    points = 2 * np.eye(3)[labels] + 0.4 * rng.normal(size=(9, 3))
    field = Composed(points, rng.normal(size=(3, 3))[labels], np.full(9, 1 / 3))
    turns = np.array([np.linalg.qr(rng.normal(size=(3, 3)))[0] for _ in range(3)])
    run = integrate(field, Maps(0.5 * rng.normal(size=(3, 3)), turns), [0.0, 0.2, 0.3])
    assert run.halted is not None
    assert words in run.halted
    assert len(run.times) == len(run.costs) < 3


def test_a_corner_where_no_signs_settle_is_rounded_and_left_again() -> None:
    """Three points a cluster, composed maps from a random start: at s = 0.265 held coordinates of several maps meet."""
    rng = np.random.default_rng(1)
    labels = np.repeat(np.arange(3), 3)
    points = 2 * np.eye(3)[labels] + 0.4 * rng.normal(size=(9, 3))
    field = Composed(points, rng.normal(size=(3, 3))[labels], np.full(9, 1 / 3))
    turns = np.array([np.linalg.qr(rng.normal(size=(3, 3)))[0] for _ in range(3)])
    maps = Maps(0.5 * rng.normal(size=(3, 3)), turns)
    run = integrate(field, maps, [0.0, 0.2, 0.3])
    assert run.halted is None
    assert len(run.rounded) == 1
    (begin, end) = run.rounded[0]
    assert 0.2 < begin < end < 0.3  # signs settle again
    assert run.costs[1] > run.costs[2]
    assert max(event.time for event in run.events) <= 0.3
    step = 1e-4
    for _ in range(3000):  # Euler's method knows nothing of corners, and chatters about them within a step
        velocity = field.velocity(maps)
        maps = Maps(maps.shifts + step * velocity.shifts, cayley(step * velocity.generators) @ maps.rotations)
    assert abs(field.cost(maps) - run.costs[2]) < 2e-3 * run.costs[2]
    assert np.abs(maps.shifts - run.maps[-1].shifts).max() < 5e-3


@pytest.mark.parametrize("times", [[], [0.0, 0.0], [1.0, 0.5], [0.0, np.inf]])
def test_bad_times(times: list[float]) -> None:
    field, start = problem(0, 2, 5)
    with pytest.raises(LawfulError, match="times must be finite and increasing"):
        integrate(field, start, times)


def cubic(coefficients: list[float]) -> tuple[object, object]:
    polynomial = np.polynomial.Polynomial(coefficients)
    return polynomial, polynomial.deriv()


@pytest.mark.parametrize(
    ("coefficients", "expected"),
    [
        ([1.0, -1.0], 1.0),
        ([0.040001, -0.4, 1.0], None),  # comes within 1e-6 of zero at 0.2
        ([0.03, -0.4, 1.0], 0.1),  # below zero only between 0.1 and 0.3
        ([1.0, 0.0, 0.0, 0.0, 0.0, -1e-3], 1e3 ** (1 / 5)),
    ],
)
def test_first_crossing(coefficients: list[float], expected: float | None) -> None:
    value, slope = cubic(coefficients)

    def sample(time: float) -> tuple[np.ndarray, np.ndarray]:
        return np.array([value(time), 1.0]), np.array([slope(time), 0.0])  # type: ignore[operator]

    found = first_crossing(sample, 0.0, 10.0, sample(0.0), sample(10.0), 1e-13)
    assert (found is None) if expected is None else found == pytest.approx(expected, abs=1e-10)


def test_first_crossing_of_random_polynomials_is_their_first_root() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        polynomials = [np.polynomial.Polynomial(rng.normal(size=6), domain=[0, 1], window=[0, 1]) for _ in range(4)]
        polynomials = [p if p(0.0) > 0 else -p for p in polynomials]
        slopes = [p.deriv() for p in polynomials]

        def sample(time: float, values: list = polynomials, rates: list = slopes) -> tuple[np.ndarray, np.ndarray]:  # type: ignore[type-arg]
            return np.array([p(time) for p in values]), np.array([p(time) for p in rates])

        roots = np.concatenate([p.roots() for p in polynomials])
        inside = np.sort(roots[(np.abs(roots.imag) < 1e-9) & (roots.real > 0) & (roots.real < 1)].real)
        found = first_crossing(sample, 0.0, 1.0, sample(0.0), sample(1.0), 1e-13)
        if len(inside):
            assert found == pytest.approx(inside[0], abs=1e-7)
        else:
            assert found is None
