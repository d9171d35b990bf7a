"""Velocities in closed form against autodiff, and the data they need."""

from __future__ import annotations

import numpy as np
import pytest
from effort import trials
from hypothesis import given, settings
from hypothesis import strategies as st

from lawful.papers.truncation.clusters import synthetic
from lawful.papers.truncation.flow.field import BLOCK, Composed, Maps, Separated, truncate
from reproduction.claims.truncation import autodiff, generator, rotations


def random_maps(rng: np.random.Generator, layers: int, size: int) -> Maps:
    return Maps(0.5 * rng.normal(size=(layers, size)), rotations(rng, layers, size))


@settings(max_examples=trials(8, 25), deadline=None)
@given(st.integers(1, 9), st.integers(1, 60), st.integers(0, 10**6))
def test_theorem_3_2_corrected_equals_autodiff(size: int, count: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    points, target, maps = rng.normal(size=(count, size)), rng.normal(size=size), random_maps(rng, 1, size)
    field = Separated(points, target)
    exact = autodiff(points, np.tile(target, (count, 1)), np.full(count, 1 / count), maps)
    found = field.velocity(maps)
    np.testing.assert_allclose(found.shifts, exact.shifts, atol=1e-12)
    np.testing.assert_allclose(found.generators, exact.generators, atol=1e-12)


def test_blocks_add_up() -> None:
    rng = np.random.default_rng(0)
    points, target, maps = rng.normal(size=(2 * BLOCK + 17, 3)), rng.normal(size=3), random_maps(rng, 1, 3)
    field = Separated(points, target)
    np.testing.assert_allclose(field.velocity(maps).generators[0], generator(field, maps, bare=1.0), atol=1e-12)


def test_the_printed_theorem_3_2_is_wrong() -> None:
    rng = np.random.default_rng(0)
    field, maps = Separated(rng.normal(size=(50, 4)), rng.normal(size=4)), random_maps(rng, 1, 4)
    exact = field.velocity(maps).generators[0]
    assert np.abs(generator(field, maps, bare=0.0) - exact).max() > 1e-2
    np.testing.assert_allclose(generator(field, maps, bare=1.0), exact, atol=1e-13)


@settings(max_examples=trials(8, 20), deadline=None)
@given(st.integers(2, 6), st.integers(1, 5), st.integers(0, 10**6))
def test_theorem_5_1_corrected_equals_autodiff(size: int, layers: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    data = synthetic(size, 7, 1.0, seed)
    maps, targets = random_maps(rng, layers, size), rng.normal(size=data.points.shape)
    field = Composed(data.points, targets, data.weights)
    exact, found = autodiff(data.points, targets, data.weights, maps), field.velocity(maps)
    np.testing.assert_allclose(found.shifts, exact.shifts, atol=1e-11)
    np.testing.assert_allclose(found.generators, exact.generators, atol=1e-11)


@pytest.mark.parametrize("composed", [False, True])
def test_rates_are_derivatives_of_the_preactivations(composed: bool) -> None:
    rng = np.random.default_rng(3)
    points, layers = rng.normal(size=(20, 4)), 3 if composed else 1
    maps = random_maps(rng, layers, 4)
    field = Composed(points, points[::-1], np.full(20, 0.05)) if composed else Separated(points, points[0])
    velocity = field.velocity(maps)
    active = (field.preactivations(maps) > 0).astype(float)
    step = 1e-6
    moved = [
        Maps(maps.shifts + h * velocity.shifts, maps.rotations + h * velocity.generators @ maps.rotations)
        for h in (step, -step)
    ]
    ahead, behind = (field.preactivations(each, active) for each in moved)
    np.testing.assert_allclose(field.rates(maps, velocity, active), (ahead - behind) / (2 * step), atol=1e-7)


def test_one_composed_map_is_a_separated_map() -> None:
    rng = np.random.default_rng(4)
    points, target, maps = rng.normal(size=(30, 5)), rng.normal(size=5), random_maps(rng, 1, 5)
    one = Separated(points, target)
    other = Composed(points, np.tile(target, (30, 1)), np.full(30, 1 / 30))
    for a, b in zip(one.velocity(maps), other.velocity(maps), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-13)
    assert one.cost(maps) == pytest.approx(other.cost(maps), rel=1e-12)


def test_cost_is_the_mean_square_distance_of_the_images() -> None:
    rng = np.random.default_rng(5)
    points, target, maps = rng.normal(size=(30, 5)), rng.normal(size=5), random_maps(rng, 1, 5)
    images = truncate(points, maps.shifts[0], maps.rotations[0])
    expected = ((images - target) ** 2).sum(axis=1).mean() / 2
    assert Separated(points, target).cost(maps) == pytest.approx(expected, rel=1e-12)
