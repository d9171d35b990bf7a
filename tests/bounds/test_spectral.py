"""The bound by singular values: true for any weights, tighter than linear relaxations for wide layers, re-checked."""

from __future__ import annotations

import copy
import json
import math
import time
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from effort import trials
from hypothesis import given, settings
from hypothesis import strategies as st

from lawful import CertificateError, Mlp
from lawful.bounds.distance import distance
from lawful.bounds.layers import exact_difference, layers_of
from lawful.bounds.pair import align
from lawful.bounds.result import certificate
from lawful.bounds.spectral import norm_above, spectral_bound
from lawful.verify import verify


def network(rng: np.random.Generator, widths: tuple[int, ...], slope: float) -> Mlp:
    weights = [rng.normal(size=(m, n)) * math.sqrt(2 / n) for n, m in pairwise(widths)]
    return Mlp(weights, [0.3 * rng.normal(size=m) for m in widths[1:]], slope)


def rounded(original: Mlp, levels: int = 127) -> Mlp:
    """Weights on a grid, as in an int8 copy."""
    steps = [np.abs(weight).max() / levels for weight in original.weights]
    return Mlp(
        [np.round(w / s) * s for w, s in zip(original.weights, steps, strict=True)], original.biases, original.slopes
    )


@given(st.integers(0, 2**32 - 1), st.sampled_from([0.0, 0.25, 0.9]), st.integers(0, 2))
@settings(max_examples=trials(10, 30), deadline=None)
def test_no_sample_exceeds_it(seed: int, slope: float, deeper: int) -> None:
    rng = np.random.default_rng(seed)
    widths = (int(rng.integers(1, 10)), *(int(n) for n in rng.integers(1, 12, size=1 + deeper)), 2)
    first = network(rng, widths, slope)
    second = first.with_theta(first.theta + 10.0 ** rng.uniform(-6, 0) * rng.normal(size=first.parameters))
    low = rng.normal(size=widths[0])
    high = low + 10.0 ** rng.uniform(-3, 2)
    found = spectral_bound(
        align(layers_of(first), layers_of(second)),
        (low, high),
        np.arange(2),
        np.full(2, np.inf),
        time.monotonic() + 0.2,
    )
    assert found is not None
    points = rng.uniform(low, high, (500, widths[0]))
    points = np.concatenate([points, np.where(rng.random(points.shape) < 0.5, low, high)])
    for output, at in enumerate(np.abs(second.evaluate(points) - first.evaluate(points)).argmax(axis=0)):
        gap = exact_difference(layers_of(first), layers_of(second), points[at])[output]
        assert abs(gap) <= Fraction(float(found.gaps[output]))


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=trials(10, 30), deadline=None)
def test_norms_are_bounded_from_above(seed: int) -> None:
    rng = np.random.default_rng(seed)
    matrix = rng.normal(size=rng.integers(1, 30, size=2)) * 10.0 ** rng.uniform(-200, 200)
    true = np.linalg.norm(matrix, ord=2)
    assert true * (1 - 1e-13) <= norm_above(matrix) <= 1.005 * true


@pytest.fixture(scope="module")
def wide() -> tuple[Mlp, Mlp]:
    first = network(np.random.default_rng(0), (40, 40, 3), 0.0)
    return first, rounded(first)


def test_quantised_copies_on_a_wide_box_are_bounded_within_a_factor_of_two(wide: tuple[Mlp, Mlp]) -> None:
    box = np.zeros(40), np.ones(40)
    found = distance(*wide, box, seconds=4.0)
    assert found.spectral is not None
    assert found.upper < 2 * float(found.lower)
    proof = json.loads(json.dumps(certificate(found, *wide)))
    assert verify(proof, *wide).facts["upper"] >= found.lower
    for change in (
        lambda body: body.update(spectral=None),
        lambda body: body["spectral"]["rows"][0].__setitem__(1, -1.0),
        lambda body: body["spectral"].update(rows=[[1.0] * 41] * 3),
        lambda body: body.update(upper=str(found.lower)),
    ):
        forged = copy.deepcopy(proof)
        change(forged)
        with pytest.raises(CertificateError):
            verify(forged)


def test_rescaling_changes_nothing(wide: tuple[Mlp, Mlp]) -> None:
    """Neurons and inputs rescaled by powers of two."""
    first, second = wide
    factor = 2.0**30
    other = Mlp([second.weights[0] * factor, second.weights[1] / factor], [second.biases[0] * factor, second.biases[1]])
    box = (np.zeros(40), np.ones(40))
    outputs, never = np.arange(3), np.full(3, np.inf)
    bounds = [
        spectral_bound(align(layers_of(first), layers_of(copy)), box, outputs, never, math.inf)
        for copy in (second, other)
    ]
    assert bounds[0] is not None
    assert bounds[1] is not None
    np.testing.assert_allclose(bounds[0].gaps, bounds[1].gaps, rtol=1e-2)
