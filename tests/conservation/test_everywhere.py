"""Laws that training has near all weights: explicit ones for every way in which bound gates can be set."""

from __future__ import annotations

import numpy as np
import pytest

from lawful.conservation import count_laws
from lawful.conservation.near_random_weights import training_laws
from lawful.conservation.regions.forced_gates import least_laws, sign_patterns
from lawful.network import Architecture

BOUND = {  # laws of φ, and explicit laws near almost every weight vector
    "1-3-1 relu": (3, 4),  # two of three neurons are on for inputs of the same sign
    "1-2-2-1 relu": (4, 5),
    "2-1-2-1 relu": (3, 4),  # both neurons after the narrow layer read multiples of its output
    "1-1-2-1-1 relu": (4, 5),
    "3-1-3-2 relu": (4, 7),
    "1-2-3-3-1 relu": (8, 10),  # too many ways to set all gates: those of the last layer stay free
}


@pytest.mark.parametrize("text", BOUND)
def test_training_has_more_laws_than_phi_near_all_weights(text: str) -> None:
    laws, least = BOUND[text]
    count = count_laws(text)
    assert (count.laws, least_laws(count)) == (laws, least)
    found = training_laws(count, weights=4)
    assert found is not None
    assert found.witness is None
    assert found.least == least
    assert min(found.near) >= least


@pytest.mark.parametrize("seed", range(3))
def test_no_random_weights_have_fewer(seed: int) -> None:
    """Counts near weights are made by another way: patterns that occur, brackets, ranks."""
    rng = np.random.default_rng(seed)
    for text, (_, least) in BOUND.items():
        network = Architecture.parse(text).initialise(seed=seed)
        count = count_laws(network.with_theta(rng.normal(size=network.parameters)), level="near")
        assert count.laws >= least


@pytest.mark.parametrize("text", ["2-2-2-1 relu", "1-3-1 relu bias", "2-1-2-1 relu bias", "3-4-2 relu", "2-2-1 linear"])
def test_where_no_gate_is_bound_nothing_is_said(text: str) -> None:
    assert least_laws(count_laws(text)) is None


def test_too_many_sets_are_not_listed() -> None:
    assert sign_patterns(Architecture.parse("1-9-9-9-1 relu").to_dag()) is None


def test_the_command_says_so(lawful) -> None:  # type: ignore[no-untyped-def]
    shown = " ".join(lawful("laws", "2-1-2-1 relu").stdout.split())
    assert "Proved: near almost every weight vector training has at least 4 laws, more than those of φ" in shown
    assert lawful("laws", "2-1-2-1 relu", "--json").json["near"]["least"] == 4
