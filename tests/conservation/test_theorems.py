"""Theorems that definite answers rest on, searched at the smallest sizes against exact ranks; see docs/theorems.md."""

from __future__ import annotations

from itertools import product

import pytest

from lawful.conservation import count_laws
from lawful.conservation.theorems import balanced_laws, linear_laws, predicted_laws
from lawful.network import Architecture


@pytest.mark.parametrize("depth", [3, 4])
def test_the_formula_of_linear_networks(depth: int) -> None:
    """P1 Corollary 4.4 for one hidden layer, its sum over layers cut at width 1 beyond: widths up to 3 (2 if deep)."""
    for widths in product(range(1, 4 if depth == 3 else 3), repeat=depth):
        found = count_laws(f"{'-'.join(map(str, widths))} linear")
        assert (found.laws, found.status) == (linear_laws(widths), "proved"), widths
        between = any(widths[i] == widths[j] == 1 for i in range(depth) for j in range(i + 2, depth))
        assert between or linear_laws(widths) == balanced_laws(widths)


@pytest.mark.parametrize("bias", ["", " bias"])
def test_one_law_of_phi_for_each_hidden_neuron(bias: str) -> None:
    """P1 Example 3.6 and Corollary 4.6: ReLU networks of all widths up to 3 (2 if deep), with and without biases."""
    cases = [*product(range(1, 4), repeat=3), *product(range(1, 3), repeat=4)]
    for widths in cases:
        architecture = Architecture.parse(f"{'-'.join(map(str, widths))} relu{bias}")
        found = count_laws(architecture)
        assert (found.laws, found.status) == (predicted_laws(architecture), "proved"), widths
