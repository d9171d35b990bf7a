"""A certificate of distance verifies; no changed one does; bounds hold every sample."""

from __future__ import annotations

import copy
import json
import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from effort import trials
from forging import REFUSED, Proof, changed, signed

from lawful import Architecture, CertificateError, Dag, Mlp
from lawful.bounds.distance import distance
from lawful.bounds.result import certificate
from lawful.bounds.slopes import Growth
from lawful.fibers.monotone import certificate_of_monotone, check_monotone
from lawful.verify import verify
from lawful.verify.bounds.distance import difference_bounds
from lawful.verify.bounds.network import pack
from lawful.verify.bounds.pair import Places, deepen, share_layers
from lawful.verify.core.dag import dag_of


def random_mlp(rng: np.random.Generator, widths: tuple[int, ...], slope: float = 0.0) -> Mlp:
    weights = [rng.normal(size=(m, n)) * math.sqrt(2 / n) for n, m in pairwise(widths)]
    return Mlp(weights, [0.3 * rng.normal(size=m) for m in widths[1:]], slope)


def moved(network: Mlp, rng: np.random.Generator, size: float = 0.05) -> Mlp:
    return network.with_theta(network.theta + size * rng.normal(size=network.parameters))


def proof_of(first: Mlp | Dag, second: Mlp | Dag, inputs: int, **options: object) -> Proof:
    found = distance(first, second, (-np.ones(inputs), np.ones(inputs)), seconds=20.0, **options)  # type: ignore[arg-type]
    return dict(json.loads(json.dumps(certificate(found, first, second))))


@pytest.fixture(scope="module")
def pair() -> tuple[Mlp, Mlp]:
    rng = np.random.default_rng(0)
    first = random_mlp(rng, (2, 6, 6, 2))
    return first, moved(first, rng)


@pytest.fixture(scope="module")
def proof(pair: tuple[Mlp, Mlp]) -> Proof:
    close = Fraction(proof_of(*pair, 2)["lower"]["above"]) * Fraction(102, 100)
    proof = proof_of(*pair, 2, within=close)
    assert proof["tree"].count(0) > 10
    return proof


@pytest.mark.parametrize("norm", [math.inf, 1.0, 2.0])
def test_proved_questions_and_bounds_verify(pair: tuple[Mlp, Mlp], norm: float) -> None:
    for within in (None, Fraction(3, 2)):
        given = proof_of(*pair, 2, norm=norm, within=within)
        found = verify(given, *pair)
        assert found.facts["upper"] == (within or found.facts["upper"])
        assert found.facts["lower"] < found.facts["upper"]
        assert found.facts["leaves"] == given["tree"].count(0)


def test_violations_verify_without_a_tree(pair: tuple[Mlp, Mlp]) -> None:
    given = proof_of(*pair, 2, within=Fraction(1, 1000))
    assert given["tree"] == []
    assert verify(given, *pair).facts["lower"] == Fraction(1, 1000)
    with pytest.raises(CertificateError, match="do not differ"):
        verify(given | {"lower": given["lower"] | {"above": "1000"}})


@pytest.mark.parametrize("slope", [0.0, 0.1])
def test_disguised_deeper_wider_and_skipping_networks(slope: float) -> None:
    rng = np.random.default_rng(1)
    first = random_mlp(rng, (2, 5, 4, 1), slope)
    order, factor = rng.permutation(5), np.exp(rng.normal(size=5))
    weights, biases = list(first.weights), list(first.biases)
    weights[0], biases[0] = (weights[0] * factor[:, None])[order], (biases[0] * factor)[order]  # type: ignore[operator, index]
    weights[1] = (weights[1] / factor)[:, order]
    disguised = Mlp(weights, biases, first.slopes)
    assert verify(proof_of(first, disguised, 2), first, disguised).facts["upper"] < 1e-10
    other = random_mlp(rng, (2, 7, 1), slope)
    verify(proof_of(first, other, 2, within=20), first, other)
    skipping = Architecture.parse("2-4-3-1 relu bias skip(0,2)").initialise(seed=1).to_dag()
    verify(proof_of(skipping, random_mlp(rng, (2, 3, 1)), 2, within=20))


def test_equal_weights_in_another_order_need_no_tree() -> None:
    rng = np.random.default_rng(2)
    first = random_mlp(rng, (2, 5, 1))
    order = rng.permutation(5)
    second = Mlp([first.weights[0][order], first.weights[1][:, order]], [first.biases[0][order], first.biases[1]])  # type: ignore[index]
    given = proof_of(first, second, 2)
    assert given["upper"] == "0"
    assert verify(given).facts["upper"] == 0


@pytest.mark.parametrize("seed", range(trials(4, 12)))
def test_integer_bounds_hold_every_sample(seed: int) -> None:
    rng = np.random.default_rng(seed)
    widths = tuple(int(n) for n in rng.integers(1, 7, size=int(rng.integers(2, 5))))
    first = random_mlp(rng, widths, [0.0, 0.3, 1.0][seed % 3])
    second = moved(first, rng, 10.0 ** rng.integers(-6, 1))
    layers = [pack(dag_of(network)).layers for network in (first, second)]
    matches = [Places(np.arange(n), rng.permutation(n), np.full(n, 3 / 7)) for n in widths[1:-1]]
    ours, theirs = (deepen(each, len(layers[0])) for each in layers)
    shared = share_layers(ours, theirs, matches, widths[0])
    low = rng.normal(size=widths[0])
    high = low + 10.0 ** rng.integers(-3, 1)
    box = [(Fraction(a), Fraction(b)) for a, b in zip(low.tolist(), high.tolist(), strict=True)]
    ((least, most),) = difference_bounds(shared, [box])
    points = rng.uniform(low, high, (400, widths[0]))
    gaps = second.evaluate(points) - first.evaluate(points)
    assert (gaps.max(axis=0) <= most + 1e-12 * np.abs(most)).all()
    assert (gaps.min(axis=0) >= least - 1e-12 * np.abs(least)).all()


FORGERS = {
    "a smaller bound": changed("upper", to=lambda text: str(Fraction(text) / 3)),
    "a larger lower bound": changed("lower", "above", to=lambda text: str(Fraction(text) * 2)),
    "an input outside": changed("lower", "input", 0, to=lambda x: 7.5),
    "a larger box": changed("box", 0, to=lambda side: ["-100", "100"]),
    "an inverted box": changed("box", 0, to=lambda side: side[::-1]),
    "no tree": changed("tree", to=lambda tree: []),
    "one leaf": changed("tree", to=lambda tree: [0]),
    "a tree that ends early": changed("tree", to=lambda tree: tree[:-1]),
    "a tree that goes on": changed("tree", to=lambda tree: [*tree, 0]),
    "a coordinate that is not": changed("tree", 0, to=lambda node: 9),
    "an output twice": changed("outputs", to=lambda outputs: [0, 0]),
    "another norm": changed("norm", to=lambda norm: "3"),
    "a neuron lost": changed("matching", 0, "second", to=lambda places: [0, 0, *places[2:]]),
    "a negative factor": changed("matching", 0, "scale", to=lambda scale: [-1.0, *scale[1:]]),
    "another network": changed("networks", 1, "biases", -1, to=lambda bias: [each + 2 for each in bias]),
    "another digest": changed("about", 0, to=lambda text: text[:-1] + ("0" if text[-1] != "0" else "1")),
    "an unknown key": lambda proof: proof.update(extra=1),
    "a NaN": changed("lower", "input", 0, to=lambda x: "NaN"),
}


@pytest.mark.parametrize("name", FORGERS)
def test_forgeries_are_rejected(proof: Proof, name: str) -> None:
    assert verify(proof).facts["upper"] == Fraction(proof["upper"])
    forged = copy.deepcopy(proof)
    FORGERS[name](forged)
    with pytest.raises(REFUSED):
        verify(forged if name == "another digest" else signed(forged))


def test_factors_that_underflow_hide_nothing() -> None:
    """`w relu(v x)` reaches 1000 on the box; with a factor 1e-165 for the neuron, v underflows to nothing."""
    first, second = Mlp([[[1e-160]], [[0.0]]]), Mlp([[[1e-160]], [[1e143]]])
    given = certificate(distance(first, second, ([0.0], [1e20]), seconds=1.0), first, second)
    assert verify(given).facts["upper"] >= 1000
    for scale in (1e-165, 1e-308, 5e-324, 1e300):
        match = {"first": [-1, 0], "second": [0, -1], "scale": [scale, 1.0]}
        with pytest.raises(REFUSED):
            verify(signed(given | {"matching": [match], "upper": "1", "tree": [0], "spectral": None, "lower": None}))


def test_slopes_that_underflow_keep_their_sign() -> None:
    """Slope 0.6 · (5e-324 · 1e308 - 6.6e-16) is negative: 0.6 · 5e-324 rounds up to 5e-324."""
    network = Mlp([[[5e-324], [1.0]], [[1e308, -6.6e-16]]], slopes=0.6)
    growth = [Growth(0, rising=True)]
    assert check_monotone(network, ([-1.0], [-0.5]), growth, seconds=1.0).status != "holds"
    falls = certificate_of_monotone(check_monotone(network, ([-1.0], [-0.5]), growth, seconds=1.0), network)
    with pytest.raises(REFUSED):
        verify(falls | {"inputs": None, "tree": [0], "regions": []})


def test_the_certificate_is_about_its_networks(proof: Proof, pair: tuple[Mlp, Mlp]) -> None:
    assert verify(proof, *pair).given == (0, 1)
    with pytest.raises(CertificateError):
        verify(proof, pair[0].with_theta(pair[0].theta + 1.0))
