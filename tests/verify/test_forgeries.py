"""What forgers tried by hand: every one of these was once accepted, or crashed, or ran for minutes."""

from __future__ import annotations

import copy
import json
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from effort import trials
from forging import REFUSED, signed
from real import MAKERS, real

from lawful import CertificateError, NotACertificate, Unsupported, verify
from lawful.conservation import count_laws
from lawful.conservation.certificate import certificate as of_laws
from lawful.invariant_set import components
from lawful.invariant_set.certificate import certificate as of_components
from lawful.network import Architecture, Mlp
from lawful.network.digest import digest, network_record
from lawful.pruning.neurons.certificate import certificate as of_pruning
from lawful.pruning.neurons.prune import prune


@pytest.mark.parametrize("value", [1e300, 10, 1.0, -1.0, -1e-300, 0, "0", None, True])
def test_a_weight_moved_and_a_tolerance_stretched(value: object) -> None:
    proof = copy.deepcopy(real("same by weights"))
    proof["networks"][0]["weights"][0][0][0] += 5.0
    proof["within"]["value"] = value
    with pytest.raises(REFUSED):
        verify(signed(proof))


@pytest.mark.parametrize("text", ["NaN", "Infinity", "1e400", "-1e400"])
@pytest.mark.parametrize("name", MAKERS)
def test_numbers_that_are_none(name: str, text: str) -> None:
    """Wherever a number stands first in the file, there stands none now."""
    whole = json.dumps(real(name))
    places = [place for place in range(1, len(whole)) if whole[place].isdigit() and whole[place - 1] in " ["]
    places = [place for place in places if whole[:place].count('"') % 2 == 0]  # not inside a text
    for place in places[:: max(1, len(places) // 10)]:
        end = next(k for k in range(place, len(whole)) if whole[k] in ",]}")
        with pytest.raises(NotACertificate):
            verify(whole[:place] + text + whole[end:])


def test_identical_networks_are_not_different() -> None:
    proof = copy.deepcopy(real("different"))
    proof["networks"][1] = proof["networks"][0]
    with pytest.raises(CertificateError, match="do not differ"):
        verify(signed(proof))
    with pytest.raises(NotACertificate):
        verify(signed(proof | {"tolerance": -1.0}))


def test_equality_weight_by_weight_is_not_called_equality_of_functions() -> None:
    assert "same function" in verify(real("same exactly")).statement
    found = verify(real("same by weights"))
    assert "same function" not in found.statement
    assert repr(real("same by weights")["within"]["value"]) in found.statement


def test_a_huge_tolerance_and_an_empty_flow_prove_no_connection() -> None:
    """Locked, by weights: with a tolerance beyond everything no flow is wrong."""
    proof = copy.deepcopy(real("components"))
    assert verify(proof).facts["connected"] is False
    every = list(range(len(proof["network"]["edges"])))
    proof |= {"tolerance": 10**30 * proof["denominator"], "locked": [], "log2_components": 0, "connected": True}
    proof["flows"] = [{"squares": [], "frees": every}]
    with pytest.raises(CertificateError, match="does not follow"):
        verify(proof)
    found = verify(proof | {"connected": None})
    assert found.facts["connected"] is None
    assert "connected" not in found.statement
    assert "1e+30" in found.statement


def test_a_balance_that_is_not_that_of_the_weights() -> None:
    proof = copy.deepcopy(real("components"))
    proof["network"]["weights"][0] += 1e-9
    with pytest.raises(CertificateError, match="balance is not that of the weights"):
        verify(signed(proof))


@pytest.mark.parametrize("scale", [1e-165, 1e-9, 1e9, 1e150])
def test_locks_at_any_scale(scale: float) -> None:
    """Squares of 1e-165 are zero in floating point; here they are rationals."""
    dag = Architecture.parse("1-2-1").to_dag().with_theta(np.array([1.0, 3.0, -2.0, 1.0]) * scale)
    found = verify(of_components(components(dag)), dag)
    assert found.facts["log2_components"] == 2
    assert found.facts["locked"][0]["at_least"] > 0


THIN = {
    "kind": "truncation-separation", "version": 1, "about": [], "labels": [0, 0, 1, 1],
    "points": [[0.0, 0.0], [0.0, 1.0], [1e-10, 0.5], [1.0, 0.2]],
}  # fmt: skip
PLANE = {"answer": "hyperplane", "normal": ["1", "0"]}
BACK = {"answer": "hyperplane", "normal": ["-1", "0"]}


def test_a_thin_gap_has_one_answer() -> None:
    assert verify(THIN | {"answers": [PLANE, BACK]}).facts["answers"] == ("hyperplane", "hyperplane")
    for shares in (["1", "0"], ["1/2", "1/2"], ["0", "1"]):
        point = {"answer": "common point", "inside": ["1/2", "1/2"], "outside": shares}
        with pytest.raises(CertificateError, match="different points"):
            verify(THIN | {"answers": [point, BACK]})


@pytest.mark.parametrize(
    "shares",
    [["1/2", "1/3"], ["3/2", "-1/2"], ["0", "0"], ["1/2", "500000000001/1000000000000"], [0.5, 0.5], ["NaN", "1"]],
)
def test_shares_of_a_point_add_up_to_one(shares: list[object]) -> None:
    proof = copy.deepcopy(real("no separation"))
    proof["answers"][0]["inside"] = shares
    with pytest.raises(REFUSED):
        verify(proof)


def test_no_answers_are_no_answer() -> None:
    for answers in ([], [PLANE], [PLANE, BACK, PLANE]):
        with pytest.raises(CertificateError, match="one for each cluster"):
            verify(THIN | {"answers": answers})
    undecided = verify(THIN | {"answers": [{"answer": "undecided"}] * 2})
    assert undecided.statement.endswith("each of the 2 clusters is left undecided")


def test_a_geodesic_without_weights_says_nothing() -> None:
    proof = real("geodesic")
    none = (np.array(proof["weights"]) * 0.0).tolist()
    with pytest.raises(CertificateError, match="zero"):
        verify(proof | {"weights": none})


def test_weights_on_a_boundary_show_no_pattern() -> None:
    """`max(0·x, 0)`: the slightest change of the weight turns the neuron on or off."""
    network = Mlp([[[0.0]], [[1.0]]])
    proof = {
        "kind": "laws", "version": 1, "about": [digest(network)], "laws": 2, "parameters": 2, "states": 2,
        "dimensions": [0], "level": "data", "loss": "full", "flow": {"name": "gradient"},
        "network": network_record(network),
        "prime": 8388593, "seed": 0, "point": [5, 7], "brackets": [4], "known": [["weight", 0, 1], ["weight", 1, 2]],
        "inputs": [[1.0]], "fixed": [1.0, 0.0, 1.0], "groups": [0],
    }  # fmt: skip
    with pytest.raises(CertificateError, match="boundary"):
        verify(proof)
    near = {key: value for key, value in proof.items() if key != "groups"} | {"level": "near"}
    with pytest.raises(CertificateError, match="boundary"):
        verify(near)
    with pytest.raises(CertificateError, match="boundary"):
        verify(near | {"inputs": [[0.0]]})
    with pytest.raises(Unsupported, match="boundary"):
        of_laws(count_laws(network, level="data", data=[[1.0]]))


def test_a_weight_is_missing_near() -> None:
    proof = copy.deepcopy(real("laws near"))
    proof["network"]["weights"].pop()
    with pytest.raises(NotACertificate, match="entries"):
        verify(proof)


@pytest.mark.parametrize("network", [{"architecture": 5}, {"architecture": "2-2-2 linear"}, 5, None, [], {}])
def test_a_network_that_is_none(network: object) -> None:
    with pytest.raises(NotACertificate):
        verify(real("laws") | {"network": network})


def test_levels_of_brackets_are_affordable_or_refused() -> None:
    """A few hundred bytes must not buy an hour."""
    deep = {
        "network": network_record(Architecture.parse("1-1-1-1-1-1-1 linear").to_dag()),
        "parameters": 6,
        "states": 6,
    }
    deep |= {"point": [1, 2, 3, 4, 5, 6], "known": []}
    body = signed(real("laws") | deep)
    with pytest.raises(NotACertificate, match="out of range"):
        verify(body | {"brackets": [4, 0, 0, 0, 0, 0, 0, 0, 0], "dimensions": [4] * 9})
    with pytest.raises(Unsupported, match="steps"):
        verify(body | {"brackets": [4] + [1] * 11, "dimensions": [4] * 12})
    with pytest.raises(NotACertificate, match="more than"):
        verify(body | {"brackets": [1] * 40, "dimensions": [4] * 40})


@pytest.mark.parametrize("seed", range(trials(4, 12)))
def test_prunings_with_negative_slopes_are_accepted(seed: int) -> None:
    """`max(z, 0) − z/2` is never negative: intervals must know it."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 4, size=5)
    weights = [rng.choice([-1.0, 0.0, 1.0, 2.0], size=(b, a)) for a, b in pairwise(sizes)]
    network = Mlp(weights, [rng.choice([-1.0, 0.0, 1.0], size=b) for b in sizes[1:]], [0.0, -0.5, -0.5])
    for question in ({}, {"box": (-1.0, 1.0)}, {"tolerance": 0.5}):
        pruning = prune(network, **question, replayable=True)
        assert verify(of_pruning(pruning), network, pruning.network).facts["neurons_before"] == sum(sizes[1:-1])


def test_a_defect_cannot_be_hidden_in_a_neuron_that_falls_silent() -> None:
    """`y = v = relu(u)`, `u = relu(x)` on [-1, 1]: with u replaced by 0, v hears nothing and goes, yet y moves by 1."""
    chain = Mlp([[[1.0]], [[1.0]], [[1.0]]])
    rest = {"roles": [0, 2], "edges": [], "slopes": [], "weights": []}
    stage = {"evidence": [[1, "0"]], "carriers": [], "after": rest, "labels": [0, 3]}
    proof = {
        "kind": "pruning", "version": 2, "original": network_record(chain), "box": [[-1.0], [1.0]], "neurons_before": 2,
        "neurons_after": 0, "max_output_change_bound": 0.0, "rounding_bound": 0.0, "stages": [stage],
    }  # fmt: skip
    with pytest.raises(CertificateError, match="a neuron is missing"):
        verify(signed(proof))
    for reason, words in ((None, "still reads"), ("0", "add up to more"), ("off", "can be active")):
        lie = proof | {"stages": [stage | {"evidence": [[1, "0"], [2, reason]]}]}
        with pytest.raises(CertificateError, match=words):
            verify(signed(lie))
    honest = proof | {"max_output_change_bound": 1.0, "stages": [stage | {"evidence": [[1, "0"], [2, "0"]]}]}
    assert verify(signed(honest)).facts["max_output_change_bound"] == Fraction(1)
