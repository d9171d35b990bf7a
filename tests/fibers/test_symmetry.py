"""Every step keeps the function, and refuses where it would not."""

from __future__ import annotations

import numpy as np
import pytest
from effort import trials
from hypothesis import given, settings
from hypothesis import strategies as st

from lawful import CertificateError, LawfulError, Mlp
from lawful.fibers import Stack, flip, translate
from lawful.fibers.random_members import disguise, hiding_network, random_network
from lawful.fibers.reparametrisations import (
    Collapse,
    Drop,
    Flip,
    Merge,
    Quiet,
    Reorder,
    Rescale,
    Translate,
)
from reproduction.formulas import flip_matrix


def probes(inputs: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.concatenate([scale * rng.normal(size=(300, inputs)) for scale in (0.3, 3.0, 30.0)])


@settings(max_examples=trials(8, 25), deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([(4, 4, 3, 2), (5, 3, 1, 2), (2, 6, 4, 1), (3, 5, 1, 1)]))
def test_translation_of_a_hidden_hyperplane(seed: int, widths: tuple[int, ...]) -> None:
    """P4 Section 5: any shift that keeps all second biases negative; no bottleneck needed."""
    network = hiding_network(*widths, neuron=1, seed=seed)
    points = probes(widths[0], seed)
    lowest = float((network.biases[1] / network.weights[1][:, 1]).max())  # type: ignore[operator]
    for shift in (0.999 * lowest, 0.5, 7.0):
        moved = translate(network, 1, shift)
        assert np.allclose(moved.evaluate(points), network.evaluate(points), atol=1e-9)
    with pytest.raises(LawfulError, match="uncovers"):
        translate(network, 1, 1.001 * lowest)


@settings(max_examples=trials(8, 25), deadline=None)
@given(st.integers(0, 10_000), st.sets(st.sampled_from([0, 2, 3])))
def test_flips_keep_the_function(seed: int, flipped: set[int]) -> None:
    network = hiding_network(4, 4, 1, 2, neuron=1, seed=seed)
    points = probes(4, seed)
    assert np.allclose(flip(network, 1, tuple(flipped)).evaluate(points), network.evaluate(points), atol=1e-9)


def test_flips_are_a_group() -> None:
    """P4 Section 5: F_S F_T = F_{S Δ T}."""
    subsets = [(), (1,), (2, 3), (1, 3), (1, 2, 3)]
    for one in subsets:
        for other in subsets:
            both = tuple(sorted(set(one) ^ set(other)))
            assert (flip_matrix(4, 0, one) @ flip_matrix(4, 0, other) == flip_matrix(4, 0, both)).all()


def test_the_flip_of_a_normalised_network_is_its_matrix() -> None:
    network = hiding_network(4, 4, 1, 2, neuron=0, seed=3)
    signs = np.array([[1.0, -1.0, -1.0, -1.0]])
    network = Mlp([network.weights[0], signs, network.weights[2]], network.biases)
    moved = flip(network, 0, (1, 3))
    assert np.allclose(moved.weights[0], flip_matrix(4, 0, (1, 3)) @ network.weights[0])
    assert np.allclose(moved.biases[0], flip_matrix(4, 0, (1, 3)) @ network.biases[0])  # type: ignore[arg-type]


def test_steps_refuse_what_would_change_the_function() -> None:
    stack = Stack.of(random_network(3, 4, 4, 2, seed=1))
    alone = Stack.of(hiding_network(3, 4, 2, 1, seed=1))
    for step, network in (
        (Reorder(1, (0, 0, 1, 2)), stack),
        (Rescale(1, (1.0, -1.0, 1.0, 1.0)), stack),
        (Rescale(1, (1.0, 1.0)), stack),
        (Drop(1, 0), stack),
        (Merge(1, 0, 1), stack),
        (Merge(1, 0, 0), stack),
        (Collapse(1), stack),
        (Translate(1, 0, 0.1), stack),
        (Flip(1, 0, (1,)), alone),
        (Quiet(1, 0, (-1.0,) * 3, (1.0,) * 3), stack),
        (Reorder(3, (0, 1)), stack),
    ):
        with pytest.raises(CertificateError):
            step.apply(network)


def test_steps_that_simplify() -> None:
    base = random_network(3, 4, 4, 2, seed=5)
    first, second, third = (weight.copy() for weight in base.weights)
    bias1, bias2 = np.array(base.biases[0]), np.array(base.biases[1])
    first[1], bias1[1] = 2.5 * first[0], 2.5 * bias1[0]  # a multiple
    first[2] = 0.0  # constant
    second[3], bias2[3] = -np.abs(second[3]), -1.0  # silent
    stack = Stack((first, second, third), (bias1, bias2, np.array(base.biases[2])), (0.0, 0.0))
    small = Drop(2, 3).apply(Drop(1, 1).apply(Merge(1, 0, 1).apply(stack, 1e-12)))
    assert small.widths == (3, 2, 3, 2)
    points = probes(3)
    assert np.allclose(small.evaluate(points), stack.evaluate(points))


@settings(max_examples=trials(8, 20), deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([(4, 4, 1, 2), (4, 4, 3, 2), (3, 5, 4, 4, 2)]))
def test_disguises_keep_the_function(seed: int, widths: tuple[int, ...]) -> None:
    network = hiding_network(*widths, seed=seed) if len(widths) == 4 else random_network(*widths, seed=seed)
    points = probes(widths[0], seed)
    assert np.allclose(disguise(network, seed=seed).evaluate(points), network.evaluate(points), atol=1e-8)
