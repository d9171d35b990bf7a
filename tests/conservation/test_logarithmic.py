"""Laws beyond polynomials: sums of logarithms and a polynomial, all of them, exactly."""

from __future__ import annotations

import json

import numpy as np
import pytest

from lawful.conservation.known.logarithmic import logarithmic_laws
from lawful.errors import LawfulError, Unsupported
from lawful.network import Dag, Role

ROLES = [Role.INPUT, Role.HIDDEN, Role.OUTPUT]


def _bridge() -> Dag:
    """A linear neuron p, q beside a direct edge s: log|p + q| − s is conserved, and no polynomial replaces it."""
    return Dag(("x", "h", "y"), ROLES, [0, 1, 0], [1, 2, 2], [0.5, -1.0, 0.3], slopes=[0.0, 1.0, 0.0])


def test_the_law_beside_a_detour():
    found = logarithmic_laws(_bridge(), 2)
    assert (found.polynomial, found.independent, len(found)) == (1, 2, 1)
    (law,) = found.laws
    theta = np.array([0.5, -1.2, 0.3])
    p, q, _ = theta
    assert law.gradient(theta) @ np.array([q, p, 1.0]) == pytest.approx(0, abs=1e-12)  # the only field there is
    step = 1e-6
    slopes = [(law.value(theta + step * e) - law.value(theta - step * e)) / (2 * step) for e in np.eye(3)]
    assert np.allclose(slopes, law.gradient(theta), atol=1e-6)


@pytest.mark.parametrize(("text", "laws"), [("2-2-1 linear", 3), ("1-2-2-1 linear", 6), ("2-2-1 relu bias", 2)])
def test_logarithms_of_polynomial_laws_are_not_new(text, laws):
    """u² − v² = (u − v)(u + v), so its logarithm is of this form, but no other law; the seventh of 1-2-2-1 is not."""
    found = logarithmic_laws(text, 2)
    assert (found.laws, found.polynomial, found.independent) == ((), laws, laws)


def test_bad_input():
    with pytest.raises(Unsupported, match="at most"):
        logarithmic_laws("8-8-8 relu")
    with pytest.raises(LawfulError, match="degree"):
        logarithmic_laws("2-2-1 relu", 0)


def test_command_line(lawful, tmp_path):
    graph = {"inputs": ["x"], "outputs": ["y"], "edges": [["x", "h", 0.5], ["h", "y", -1.0], ["x", "y", 0.3]]}
    path = tmp_path / "bridge.json"
    path.write_text(json.dumps(graph | {"activation": "linear"}))
    found = lawful("laws", path, "--logarithms", "--json").json["logarithmic"]
    assert [law["words"] for law in found["laws"]] == ["log|x→h + h→y| − x→y", "log|x→h − h→y| + x→y"]
    assert (found["independent"], found["polynomial"], found["degree"]) == (2, 0, 1)
    assert "2 independent, 1 beyond" in lawful("laws", path, "--logarithms", "--degree", "2").stdout
    lawful("laws", path, "--logarithms", "--near", code=2)
