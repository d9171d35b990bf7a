"""Canonical forms depend on the function, and hashes follow them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lawful import Mlp
from lawful.fibers.deep.bottleneck import bottleneck_fiber
from lawful.fibers.fingerprint import Library, canonical, fingerprint
from lawful.fibers.random_members import disguise, hiding_network, random_network
from lawful.fibers.regions.count import group_networks


def examples(seed: int) -> list[tuple[Mlp, str]]:
    return [
        (random_network(4, 6, 3, seed=seed), "one hidden layer"),
        (random_network(4, 3, 5, 2, seed=seed), "generic three-layer bottleneck"),
        (hiding_network(4, 4, 3, 2, seed=seed), "generic three-layer bottleneck"),
        (hiding_network(4, 4, 1, 2, seed=seed), "generic three-layer bottleneck"),
        (random_network(3, 6, 5, 2, seed=seed), "permutation and scaling only"),
        (random_network(3, 4, 4, 4, 2, seed=seed), "permutation and scaling only"),
    ]


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10_000))
def test_disguises_have_one_canonical_form(seed: int) -> None:
    points = np.random.default_rng(seed).normal(size=(200, 4)) * 3
    for network, regime in examples(seed):
        form, twin = canonical(network), canonical(disguise(network, seed=seed))
        assert form.regime == regime
        inputs = points[:, : network.widths[0]]
        assert np.allclose(form.network.evaluate(inputs), network.evaluate(inputs), atol=1e-8)
        assert np.allclose(form.network.theta, twin.network.theta, rtol=1e-7, atol=1e-7)
        one, other = fingerprint(network), fingerprint(disguise(network, seed=seed + 1))
        library = Library()
        library.add(other, 7)
        assert library.find(one) == 7
        assert fingerprint(network.with_theta(network.theta * 1.001)).hash != one.hash


@pytest.mark.parametrize("seed", range(4))
def test_hashes_are_constant_on_sampled_fibers(seed: int) -> None:
    network = random_network(5, 3, 5, 1, seed=seed)
    hashes = {fingerprint(member).hash for member in bottleneck_fiber(network).sample(5)}
    assert hashes == {fingerprint(network).hash}


def test_duplicates_are_found_in_one_pass() -> None:
    pool: dict[str, Mlp] = {}
    for seed in range(5):
        network = random_network(4, 4, 3, 2, seed=seed)
        pool[f"{seed}"] = network
        pool[f"{seed} again"] = disguise(network, seed=seed)
    found = group_networks(list(pool), pool.__getitem__)
    assert len(found.groups) == 5
    assert sorted(map(sorted, found.groups)) == [[f"{seed}", f"{seed} again"] for seed in range(5)]


def test_blocks_of_one_size_cannot_be_exchanged() -> None:
    """Two functions whose jumps and linear parts are each other's: their hashes are complete, and differ."""
    rows, bias = [[1.0], [1.0], [-1.0]], [-1.0, 0.0, 0.0]
    one = fingerprint(Mlp([rows, [[0.0, 1.0, 0.0], [1.0, 0.0, 1.0]]], [bias, [0.0, -7.0]]))
    two = fingerprint(Mlp([rows, [[0.0, -1.0, 0.0], [1.0, 0.0, -1.0]]], [bias, [0.0, 7.0]]))
    assert one.complete
    assert two.complete
    assert one.hash != two.hash
