"""The normal form of one hidden layer: unique, for all parameters (P4 Lemma 2)."""

from __future__ import annotations

import numpy as np
import pytest
from effort import trials
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lawful import Mlp, Unsupported
from lawful.fibers import Domain, NormalForm, Stack, minimal_network, normal_form
from lawful.fibers.layers import floating
from lawful.fibers.shallow.normal_form import Kind, difference_form, group_rows, nonnegative
from lawful.types import Floats

small = st.integers(-2, 2)


@st.composite
def shallow(draw: st.DrawFn) -> Stack:
    """Small integer weights: parallel, opposite, dead and cancelling neurons appear by themselves."""
    inputs, hidden, outputs = draw(st.integers(1, 3)), draw(st.integers(1, 6)), draw(st.integers(1, 2))
    count = hidden * (inputs + 1) + outputs * (hidden + 1)
    numbers = np.array(draw(st.lists(small, min_size=count, max_size=count)), dtype=np.float64)
    weight, bias, out, shift = np.split(numbers, np.cumsum([hidden * inputs, hidden, outputs * hidden]))
    slope = draw(st.sampled_from([0.0, 0.5]))
    return Stack((weight.reshape(hidden, inputs), out.reshape(outputs, hidden)), (bias, shift), (slope,))


def domains(inputs: int) -> list[Domain]:
    return [Domain.space(inputs), Domain.orthant(inputs), Domain.box(inputs, -1.0, 2.0)]


def value(form: NormalForm, points: Floats) -> Floats:
    total = points @ floating(form.matrix).T + floating(form.offset)
    for group in form.groups:
        bend = np.maximum(points @ floating(group.hyperplane[:-1]) + floating(group.hyperplane[-1:])[0], 0.0)
        total = total + np.outer(bend, floating(group.jump))
    return np.asarray(total)


@settings(max_examples=trials(20, 60), deadline=None)
@example(Stack((np.array([[1.0, 1.0]]), np.array([[1.0], [1.0]])), (np.zeros(1), np.zeros(2)), (0.5,)))
@example(Stack((np.array([[0.0, 1.0, 1.0]]), np.array([[1.0], [1.0]])), (np.zeros(1), np.zeros(2)), (0.0,)))
@given(shallow())
def test_the_form_and_the_minimal_network_are_the_same_function(stack: Stack) -> None:
    rng = np.random.default_rng(0)
    for domain in domains(stack.widths[0]):
        for tolerance in (0.0, 1e-10):
            form = normal_form(stack, domain, tolerance=tolerance)
            small = minimal_network(form)
            points = domain.sample(40, rng, 3.0)
            assert np.allclose(value(form, points), stack.evaluate(points))
            assert np.allclose(small.evaluate(points), stack.evaluate(points))
            assert difference_form(stack, small, domain, tolerance).residual <= tolerance


@settings(max_examples=trials(20, 60), deadline=None)
@given(shallow(), st.randoms(use_true_random=False))
def test_the_form_is_unique(stack: Stack, random: object) -> None:
    """Split neurons, add cancelling pairs and dead neurons: the exact normal form stays."""
    hidden, out = stack.weights
    rows, width = stack.row(0), stack.widths[0]
    extra = np.concatenate([2 * rows[:1], rows[:1], -rows[:1], np.zeros((1, width + 1))])
    more = np.column_stack([out[:, :1], -2 * out[:, :1], 0 * out[:, :1], np.ones(len(out))])
    grown = Stack(
        (np.concatenate([hidden, extra[:, :-1]]), np.column_stack([out, more])),
        (np.concatenate([stack.biases[0], extra[:, -1]]), stack.biases[1]),
        stack.slopes,
    )
    for domain in domains(width):
        assert difference_form(stack, grown, domain, 0.0).residual == 0
        assert len(normal_form(grown, domain, tolerance=0).visible) == len(
            normal_form(stack, domain, tolerance=0).visible
        )


def test_kinds_on_the_orthant() -> None:
    """P4 Definition 21: dead, linear, nonlinear; and a cancelling pair (C.2)."""
    weight = [[-1.0, -2.0], [1.0, 0.5], [1.0, -1.0], [2.0, -2.0], [1.0, 1.0]]
    mlp = Mlp([weight, [[1.0, 1.0, 2.0, -1.0, 3.0]]], [[-1.0, 0.0, 0.5, 1.0, -1.0], None])
    kinds = normal_form(mlp, Domain.orthant(2), tolerance=0).kinds
    assert kinds == (Kind.DEAD, Kind.LINEAR, Kind.CANCELLING, Kind.CANCELLING, Kind.VISIBLE)


def test_a_difference_of_one_bit_is_seen_exactly() -> None:
    mlp = Mlp([[[1.0, 2.0], [3.0, -1.0]], [[1.0, -1.0]]], [[0.1, 0.2], [0.3]])
    theta = mlp.theta.copy()
    theta[0] = np.nextafter(theta[0], 2.0)
    form = difference_form(Stack.of(mlp), Stack.of(mlp.with_theta(theta)), None, 0.0)
    assert form.residual > 0
    assert difference_form(Stack.of(mlp), Stack.of(mlp.with_theta(theta)), None, 1e-10).residual < 1e-10


def test_large_biases_do_not_hide_different_directions() -> None:
    rows = np.array([[1.0, 0.0, 1e13], [0.0, 1.0, 1e13]])
    assert len(group_rows(rows, 1e-10)) == 2


def test_nonnegative_factors() -> None:
    """P4 Proposition 28: one more row suffices."""
    rng = np.random.default_rng(0)
    left, right = rng.normal(size=(4, 3)), rng.normal(size=(3, 6))
    outer, inner = nonnegative(left, right)
    assert inner.shape == (4, 6)
    assert (inner >= 0).all()
    assert np.allclose(outer @ inner, left @ right)


def test_two_hidden_layers_have_no_such_form() -> None:
    with pytest.raises(Unsupported, match="one hidden layer"):
        normal_form(Mlp([np.ones((2, 2)), np.ones((2, 2)), np.ones((1, 2))]))
