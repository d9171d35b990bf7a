"""What equal means: exactly, weight by weight, or within a bound; nothing relative to rows, paths or layers."""

from __future__ import annotations

import json
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from effort import trials
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from lawful import Dag, LawfulError, Mlp
from lawful.fibers import Different, Equal
from lawful.fibers.fingerprint import fingerprint
from lawful.fibers.random_members import deepen, disguise, hiding_network, random_network
from lawful.fibers.same import same
from lawful.fibers.verdict import certificate
from lawful.formats.graphs.json_graph import decode
from lawful.types import Floats
from lawful.verify import verify


def acas(seed: int) -> Mlp:
    """Sizes of an ACAS Xu network, in float32, whose outputs are tiny beside the paths that make them."""
    rng = np.random.default_rng(seed)
    sizes = (5, *[50] * 6, 5)
    weights = [rng.normal(size=(n, m)) * (2 / m) ** 0.5 for m, n in pairwise(sizes)]
    weights[-1] = weights[-1] * 0.05
    biases = [0.1 * rng.normal(size=n) for n in sizes[1:]]
    biases[-1] = 0.01 * biases[-1]
    return single(Mlp(weights, biases))


def single(network: Mlp) -> Mlp:
    return network.with_theta(network.theta.astype(np.float32))


def shifted(network: Mlp, by: float, output: int = 0) -> Mlp:
    biases = [
        np.zeros(len(w)) if b is None else np.array(b) for w, b in zip(network.weights, network.biases, strict=True)
    ]
    biases[-1][output] += by
    return Mlp(network.weights, biases, network.slopes)


def exact_gap(found: Different, first: Mlp, second: Mlp) -> Fraction:
    """The difference at the input, by plain fractions and no code of the package."""
    assert found.counterexample is not None
    values = []
    for network in (first, second):
        layer = [Fraction(float(x)) for x in found.counterexample.point]
        for k, (weight, bias) in enumerate(zip(network.weights, network.biases, strict=True)):
            shift = np.zeros(len(weight)) if bias is None else bias
            layer = [
                sum((Fraction(float(w)) * x for w, x in zip(row, layer, strict=True)), Fraction(float(b)))
                for row, b in zip(weight, shift, strict=True)
            ]
            if k < len(network.weights) - 1:
                layer = [max(x, Fraction(network.slopes[k]) * x) for x in layer]
        values.append(layer)
    return max(abs(a - b) for a, b in zip(*values, strict=True))


def test_unrelated_networks_in_a_small_box_are_different() -> None:
    for box in ((0.1, 0.11), (-0.5, 0.5)):
        verdict = same(acas(1), acas(2), box=box, seconds=10)
        assert isinstance(verdict, Different)
        assert exact_gap(verdict, acas(1), acas(2)) > 0


@pytest.mark.parametrize("by", [0.001, 1.0])
def test_a_shifted_output_of_a_float32_network_is_different(by: float) -> None:
    network = acas(3)
    moved = single(shifted(network, by))
    verdict = same(network, moved, seconds=10)
    assert isinstance(verdict, Different)
    assert exact_gap(verdict, network, moved) > Fraction(by) / 2
    assert same(network, single(disguise(moved, seed=1)), seconds=10).verdict == "different"
    assert fingerprint(network).hash != fingerprint(moved).hash


@pytest.mark.parametrize(("digits", "by"), [(np.float32, 10_000.0), (np.float64, 10.0)])
def test_a_shift_below_deep_sums_is_different(digits: type, by: float) -> None:
    rng = np.random.default_rng(0)
    sizes = (8, *[256] * 10, 2)
    network = Mlp([rng.normal(size=(n, m)) * (2 / m) ** 0.5 for m, n in pairwise(sizes)])
    network = network.with_theta(network.theta.astype(digits))
    moved = shifted(network, by)
    assert same(network, moved, seconds=20).verdict == "different"
    verdict = same(network, network)
    assert isinstance(verdict, Equal)
    assert verdict.within.kind == "exactly"


def test_a_small_feature_counts_as_much_as_any_other() -> None:
    network = random_network(64, 32, 3, seed=0)
    small, turned = network.weights[0].copy(), network.weights[0].copy()
    small[:, 7] *= 1e-14
    turned[:, 7] = -small[:, 7]
    first, second = (Mlp([weight, network.weights[1]], network.biases) for weight in (small, turned))
    assert same(first, second, seconds=10).verdict == "different"


def test_a_small_output_counts_as_much_as_any_other() -> None:
    base = random_network(3, 4, 2, seed=1)
    pair = [
        Mlp([base.weights[0], base.weights[1] * [[1e6], [small]]], [base.biases[0], [1e6, small]])
        for small in (1e-5, 2e-5)
    ]
    assert same(*pair, seconds=10).verdict == "different"


def graph(edges: list[list[object]], slope: float) -> Dag:
    """Input x, output y, the rest hidden."""
    text = {"inputs": ["x"], "outputs": ["y"], "edges": edges, "activation": f"leaky_relu({slope})"}
    return decode(json.dumps(text).encode()).to_dag()


def test_a_leaky_skip_is_carried_without_rounding() -> None:
    """`σ(x) − σ(−x) = 49/32 x` for slope 17/32: a skip of weight 49 is two neurons of weight 32."""
    above = [["x", "h", 1.0], ["h", "y", 3.0]]
    skip = graph([*above, ["x", "y", 49.0]], 17 / 32)
    pair = graph([*above, ["x", "k", 1.0], ["x", "m", -1.0], ["k", "y", 32.0], ["m", "y", -32.0]], 17 / 32)
    for exact in (True, False):
        verdict = same(skip, pair, exact=exact)
        assert isinstance(verdict, Equal)
        assert verdict.within.kind == "exactly"
    other = graph([*above, ["x", "y", 49.0 + 2.0**-40]], 17 / 32)
    assert same(other, pair, exact=True).verdict == "different"


def test_smallest_weights_do_not_overflow() -> None:
    tiny = Mlp([[[5e-324, 5e-324]], [[1.0]]], [[0.0], [0.0]])
    assert same(tiny, tiny, exact=True).verdict == "equal"
    assert same(tiny, Mlp([[[5e-324, 1e-323]], [[1.0]]], [[0.0], [0.0]]), exact=True).verdict == "different"


def scaled(network: Mlp, inputs: Floats, neurons: list[Floats]) -> Mlp:
    """The same function of `x · inputs` with other scales of its neurons, all powers of two."""
    weights = [weight.copy() for weight in network.weights]
    biases = [
        np.zeros(len(w)) if b is None else np.array(b) for w, b in zip(network.weights, network.biases, strict=True)
    ]
    weights[0] = weights[0] / inputs
    for layer, factors in enumerate(neurons):
        weights[layer], biases[layer] = weights[layer] * factors[:, None], biases[layer] * factors
        weights[layer + 1] = weights[layer + 1] / factors
    return Mlp(weights, biases, network.slopes)


def pairs(seed: int) -> list[tuple[Mlp, Mlp]]:
    network, hiding = random_network(3, 5, 4, 2, seed=seed), hiding_network(4, 4, 3, 2, seed=seed)
    return [
        (network, disguise(network, seed=seed)),
        (single(network), single(disguise(single(network), seed=seed))),
        (network, shifted(network, 1e-4)),
        (hiding, disguise(hiding, seed=seed)),
        deepen(random_network(2, 3, 2, 1, seed=seed)),
    ]


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 10_000), st.integers(0, 4))
def test_verdicts_do_not_change_with_the_scales_of_inputs_and_neurons(seed: int, kind: int) -> None:
    """Forty decades of powers of two, another scale for every input and every neuron of each network."""
    rng = np.random.default_rng(seed)
    pair = pairs(seed)[kind]
    expected = same(*pair, seconds=10, tolerance=1e-6)

    def exponents(count: int) -> Floats:
        return np.asarray(2.0 ** rng.integers(-66, 67, size=count))

    inputs = exponents(pair[0].widths[0])
    moved = [scaled(network, inputs, [exponents(width) for width in network.widths[1:-1]]) for network in pair]
    found = same(moved[0], moved[1], seconds=10, tolerance=1e-6)
    assert found.verdict == expected.verdict
    if isinstance(expected, Equal) and isinstance(found, Equal):
        assert found.within.kind == expected.within.kind


@settings(max_examples=trials(8, 15), deadline=None)
@given(st.integers(0, 10_000), st.integers(3, 7), st.sampled_from([1e-3, 1e-1, 10.0]), st.booleans())
def test_shifted_biases_of_deep_networks_are_never_equal(seed: int, depth: int, by: float, exact: bool) -> None:
    rng = np.random.default_rng(seed)
    sizes = (4, *rng.integers(8, 24, size=depth), 2)
    network = single(random_network(*map(int, sizes), seed=seed))
    layer = int(rng.integers(0, len(network.biases)))
    biases = [np.array(bias) for bias in network.biases]
    shift = by * abs(biases[layer][0])
    assume(shift > 1e-5)  # a bias that is zero but for rounding: its shift is what equal weights may differ by
    biases[layer][0] += shift
    other = single(disguise(single(Mlp(network.weights, biases)), seed=seed, spread=0.3))
    assert same(network, other, exact=exact, seconds=5).verdict != "equal"


def test_float32_copies_are_copies_by_weights() -> None:
    for seed in range(4):
        network = acas(seed)
        copy = single(disguise(network, seed=seed))
        verdict = same(network, copy)
        assert isinstance(verdict, Equal)
        assert verdict.within.kind == "weights"
        assert 0 < verdict.within.value < 1e-6
        assert same(network, copy, exact=True, seconds=3).verdict == "different"


def test_within_a_bound_on_the_outputs() -> None:
    """Rounded more than weights may be: a bound on a box is all that can be said, and it is proved."""
    network = random_network(2, 5, 4, 1, seed=3)
    noisy = network.with_theta(network.theta * (1 + 1e-6 * np.random.default_rng(0).normal(size=network.parameters)))
    points = np.random.default_rng(1).uniform(-1, 1, size=(5000, 2))
    true = float(np.abs(network.evaluate(points) - noisy.evaluate(points)).max())
    verdict = same(network, noisy, box=(-1.0, 1.0), within=1e-3, seconds=20)
    assert isinstance(verdict, Equal)
    assert verdict.within.kind == "outputs"
    assert true <= verdict.within.value <= 1e-3
    verify(certificate(verdict, network, noisy), network, noisy)
    other = same(network, noisy, box=(-1.0, 1.0), within=true / 4, seconds=20)
    assert isinstance(other, Different)
    assert exact_gap(other, network, noisy) > Fraction(true / 4)
    verify(certificate(other, network, noisy), network, noisy)
    for bad in ({"within": 1.0}, {"within": -1.0, "box": (0, 1)}, {"within": 1.0, "box": (0, 1), "exact": True}):
        with pytest.raises(LawfulError):
            same(network, noisy, **bad)  # type: ignore[arg-type]
