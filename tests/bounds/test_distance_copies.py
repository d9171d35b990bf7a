"""Copies of a network, exact and near, at all scales: their distance is what it is."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from bounds.distance_oracles import disguised, moved, random_mlp, sampled

from lawful import Mlp
from lawful.bounds.distance import distance


@pytest.mark.parametrize("widths", [(3, 8, 8, 2), (5, 50, 50, 50, 5)])
def test_an_exact_copy_is_at_distance_zero(widths: tuple[int, ...]) -> None:
    rng = np.random.default_rng(2)
    first = random_mlp(rng, widths)
    weights, biases = [np.array(w) for w in first.weights], [np.array(b) for b in first.biases]
    for layer in range(len(weights) - 1):
        order, factor = rng.permutation(len(weights[layer])), 2.0 ** rng.integers(-30, 30, size=len(weights[layer]))
        weights[layer], biases[layer] = (weights[layer] * factor[:, None])[order], (biases[layer] * factor)[order]
        weights[layer + 1] = (weights[layer + 1] / factor)[:, order]
    found = distance(first, Mlp(weights, biases), (-np.ones(widths[0]), np.ones(widths[0])))
    assert (found.lower, found.upper, found.boxes) == (0, 0.0, 1)


def test_single_precision_copies_in_disguise_are_near() -> None:
    rng = np.random.default_rng(4)
    first = random_mlp(rng, (4, 20, 20, 20, 3))
    copy = disguised(first, rng, single=True)
    found = distance(first, copy, (-np.ones(4), np.ones(4)), within=1e-4, seconds=30.0)
    assert found.status == "proved"
    assert found.upper < 1e-4
    assert found.boxes < 20  # the whole box, or nearly: differences are what is bounded


@pytest.mark.parametrize("shift", [1e-3, 0.1, 10_000.0])
def test_a_shifted_output_is_seen(shift: float) -> None:
    rng = np.random.default_rng(6)
    first = random_mlp(rng, (4, 20, 20, 20, 3))
    biases = [np.array(b) for b in first.biases]
    biases[-1][1] += shift
    second = Mlp(first.weights, biases)
    found = distance(first, second, (-np.ones(4), np.ones(4)), seconds=5.0)
    assert float(found.lower) == pytest.approx(shift, rel=1e-9)
    assert found.upper == pytest.approx(shift, rel=1e-9)
    assert [each.upper > 0.5 * shift for each in found.per_output] == [False, True, False]


@pytest.mark.parametrize("power", [-9, 9])
@pytest.mark.parametrize("what", ["inputs", "neurons"])
def test_scales_change_nothing(power: int, what: str) -> None:
    rng = np.random.default_rng(7)
    first = random_mlp(rng, (3, 8, 8, 2))
    second = moved(first, rng, 0.05)
    plain = distance(first, second, (-np.ones(3), np.ones(3)), within=0.9, seconds=30.0)
    factor = 2.0 ** (power * 3.32)
    ends = np.ones(3)
    networks = []
    for network in (first, second):
        weights, biases = [np.array(w) for w in network.weights], [np.array(b) for b in network.biases]
        if what == "inputs":
            weights[0][:, 1] /= factor
        else:
            weights[1][::2] *= factor
            biases[1][::2] *= factor
            weights[2][:, ::2] /= factor
        networks.append(Mlp(weights, biases))
    if what == "inputs":
        ends[1] *= factor
    found = distance(*networks, (-ends, ends), within=0.9, seconds=30.0)
    assert found.status == plain.status
    assert float(found.lower) == pytest.approx(float(plain.lower), rel=0.2)


def test_overflow_is_never_a_proof() -> None:
    first = Mlp([[[1e200], [-1e200]], [[1e200, 1e200], [1.0, 1.0]], [[1.0, -1.0]]])
    second = Mlp([[[1e200], [-1e200]], [[1e200, 2e200], [1.0, 1.0]], [[1.0, -1.0]]])
    found = distance(first, second, ([-1.0], [1.0]), within=1e308, seconds=1.0)
    assert found.status != "proved"
    big = Mlp([[[1e308], [-1e308]], [[1.0, 1.0]]]), Mlp([[[1e308], [-1e308]], [[1.0, 0.0]]])
    found = distance(*big, ([-1.0], [1.0]), within=1e300, seconds=1.0)
    assert found.status == "violated"
    assert found.lower > 10**307


def test_tiny_weights_and_dead_neurons() -> None:
    tiny = Mlp([[[5e-324]], [[1.0]]]), Mlp([[[1e-323]], [[1.0]]])
    found = distance(*tiny, ([-1.0], [1.0]))
    assert 0 < found.lower <= Fraction(found.upper) < 1e-290
    dead = Mlp([[[1.0], [1.0]], [[1.0, 3.0]]], [[0.0, -10.0], None]), Mlp([[[1.0]], [[1.0]]])
    found = distance(*dead, ([-1.0], [1.0]))
    assert found.upper < 1e-12


def test_quantised_copies() -> None:
    rng = np.random.default_rng(8)
    first = random_mlp(rng, (4, 16, 16, 3))
    half = Mlp(*([a.astype(np.float16) for a in arrays] for arrays in (first.weights, first.biases)))
    steps = [np.abs(w).max() / 127 for w in first.weights]
    whole = Mlp([np.round(w / s) * s for w, s in zip(first.weights, steps, strict=True)], first.biases)
    for copy, most in ((half, 0.02), (whole, 0.6)):
        found = distance(first, copy, (-np.ones(4), np.ones(4)), seconds=3.0)
        assert sampled(first, copy, -np.ones(4), np.ones(4)) <= found.upper < most
