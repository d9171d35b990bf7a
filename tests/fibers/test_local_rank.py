"""Directions that a deep function fixes: numbers of fractions, symmetries that take some away."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fibers.exact_jacobian import jacobian_rank

from lawful import Mlp, write
from lawful.fibers.deep.identifiability import identifiable
from lawful.fibers.deep.local_rank import fixed_directions
from lawful.fibers.layers import Stack


def network(widths: tuple[int, ...], seed: int, slope: float = 0.0) -> Mlp:
    rng = np.random.default_rng(seed)
    return Mlp([rng.normal(size=(m, n)) for n, m in pairwise(widths)], [rng.normal(size=m) for m in widths[1:]], slope)


@pytest.mark.parametrize("widths", [(2, 3, 1), (2, 4, 3, 1), (2, 3, 3, 2, 2)])
@pytest.mark.parametrize("slope", [0.0, 0.25])
def test_as_many_as_fractions_show(widths: tuple[int, ...], slope: float) -> None:
    """The rank of the derivatives in fractions, at inputs in all regions, is an independent count."""
    mlp = network(widths, 1, slope)
    found = fixed_directions(Stack.of(mlp))
    assert found is not None
    assert found.fixed == jacobian_rank(mlp) <= found.most == mlp.parameters - sum(widths[1:-1])
    if slope:  # no neuron is ever silent
        assert found.fixed == found.most


def test_rescaling_changes_no_count() -> None:
    mlp = network((2, 4, 3, 1), 1, 0.25)
    factors = 2.0 ** np.array([30, -30, 10, 0])
    weights = [mlp.weights[0] * factors[:, None] * 2.0**-30, mlp.weights[1] / factors, mlp.weights[2]]
    other = Mlp(weights, [mlp.biases[0] * factors, *mlp.biases[1:]], 0.25)
    assert fixed_directions(Stack.of(other)) == fixed_directions(Stack.of(mlp))


def test_duplicate_neurons_are_not_fixed() -> None:
    mlp = network((2, 4, 3, 1), 1, 0.25)
    weights, biases = [np.array(w) for w in mlp.weights], [np.array(b) for b in mlp.biases]
    weights[0][1], biases[0][1] = weights[0][0], biases[0][0]
    found = fixed_directions(Stack.of(Mlp(weights, biases, 0.25)))
    assert found is not None
    assert found.fixed < found.most


def test_too_large_is_said() -> None:
    assert fixed_directions(Stack.of(network((40, 40, 40, 1), 0))) is None


def test_deep_networks_get_a_partial_answer(lawful: Callable[..., Any], tmp_path: Path) -> None:
    found = identifiable(network((2, 4, 3, 1), 1, 0.25))
    assert found.identifiable is None
    assert found.layers == ("locally fixed", "locally fixed")
    write(network((2, 4, 4, 3, 1), 3, 0.25), tmp_path / "deep.json")
    said = lawful("identifiable", tmp_path / "deep.json", code=3).stdout
    assert "near these weights" in said
