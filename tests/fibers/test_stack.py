"""Exact evaluation agrees with plain fractions and with floats."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lawful import Architecture, LawfulError, Mlp
from lawful.fibers import Domain, Stack
from lawful.fibers.layers import as_layers

finite = st.floats(-1e6, 1e6, allow_nan=False, allow_subnormal=False)


def plain(mlp: Mlp, point: list[float]) -> list[Fraction]:
    values = [Fraction(value) for value in point]
    for weight, bias, slope in zip(mlp.weights, mlp.biases, (*mlp.slopes, 1.0), strict=True):
        shift = np.zeros(len(weight)) if bias is None else bias
        summed = [
            sum((Fraction(w) * v for w, v in zip(row, values, strict=True)), Fraction(b))
            for row, b in zip(weight.tolist(), shift.tolist(), strict=True)
        ]
        values = [value if value > 0 else Fraction(slope) * value for value in summed]
    return values


@given(st.lists(finite, min_size=13, max_size=13), st.lists(finite, min_size=2, max_size=2))
def test_exact_outputs_are_exact(theta: list[float], point: list[float]) -> None:
    mlp = Architecture.parse("2-3-1 leaky_relu(0.1) bias").initialise(seed=0)
    assert isinstance(mlp, Mlp)
    mlp = mlp.with_theta(theta)
    expected = plain(mlp, point)
    assert list(Stack.of(mlp).exact_outputs(point)) == expected
    assert list(Stack.of(mlp, exact=True).exact_outputs(point)) == expected


def test_float_evaluation_agrees_with_the_network() -> None:
    for text in ("5-7-6-3 relu bias", "4-6-2 leaky_relu(0.2)", "3-2 relu bias"):
        mlp = Architecture.parse(text).initialise(seed=1)
        assert isinstance(mlp, Mlp)
        batch = np.random.default_rng(0).normal(size=(50, mlp.widths[0]))
        assert np.allclose(Stack.of(mlp).evaluate(batch), mlp.evaluate(batch))


def test_sensitivity_is_that_of_the_weights_and_of_no_scale() -> None:
    mlp = Architecture.parse("3-4-3-2 relu bias").initialise(seed=1)
    assert isinstance(mlp, Mlp)
    stack, point = Stack.of(mlp), np.random.default_rng(0).normal(size=(1, 3))
    step = 1e-6
    moves = [
        (
            mlp.with_theta(mlp.theta * (1 + step * (np.arange(mlp.parameters) == k))).evaluate(point)
            - mlp.evaluate(point)
        )
        / step
        for k in range(mlp.parameters)
    ]
    assert np.allclose(stack.sensitivity(point), np.sqrt(sum(move**2 for move in moves)), rtol=1e-4)
    scaled = stack.balance(np.full(3, 2.0**40))
    assert np.allclose(scaled.sensitivity(point / 2.0**40), stack.sensitivity(point))


@pytest.mark.parametrize(
    "text",
    ["2-3-3-1 relu bias skip(0,2)", "3-4-4-4-2 relu bias skip(1,3) skip(0,1)", "2-3-3-1 leaky_relu(0.3) skip(0,2)"],
)
def test_skips_become_layers(text: str) -> None:
    dag = Architecture.parse(text).initialise(seed=2)
    batch = np.random.default_rng(0).normal(size=(50, len(dag.to_dag().inputs)))
    assert np.allclose(as_layers(dag.to_dag()).evaluate(batch), dag.evaluate(batch))


def test_a_box_needs_ends_in_order() -> None:
    with pytest.raises(LawfulError, match="low < high"):
        Domain.box(2, 1.0, -1.0)
    with pytest.raises(LawfulError, match="finite"):
        Domain.box(2, -np.inf, 1.0)


@given(st.integers(0, 10_000), st.sampled_from([0.0, 0.3, 1.0, -0.5]))
def test_intervals_hold_all_values_of_a_layer(seed: int, slope: float) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(5, 4)) * rng.choice([0.0, 1.0, 100.0], size=(5, 4))
    for domain in (Domain.space(3), Domain.orthant(3), Domain.box(3, -0.5, 2.0)):
        values = domain.sample(200, rng, 10.0) @ rows[:, :-1].T + rows[:, -1]
        image = domain.through(rows, slope)
        assert all(image.contains(value) for value in np.where(values > 0, values, slope * values))


@given(st.lists(finite, min_size=4, max_size=4), st.integers(0, 1000))
def test_the_range_of_a_row_is_attained(row: list[float], seed: int) -> None:
    domain = Domain.box(3, -1.0, 2.0)
    low, high = domain.range(np.array(row))
    corners = np.array(np.meshgrid(*[[-1.0, 2.0]] * 3)).reshape(3, -1).T
    values = corners @ np.array(row[:-1]) + row[-1]
    assert np.isclose(low, values.min(), rtol=1e-9, atol=1e-6)
    assert np.isclose(high, values.max(), rtol=1e-9, atol=1e-6)
    points = domain.sample(20, np.random.default_rng(seed))
    assert all(domain.contains(point) for point in points)
