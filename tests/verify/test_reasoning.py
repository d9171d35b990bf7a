"""What a certificate's facts do not imply is not stated: arguments that look right and are not."""

from __future__ import annotations

import json
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forging import REFUSED, saved, signed
from real import real

from lawful import CertificateError, NotACertificate, Unsupported, verify
from lawful.fibers.deep.identifiability import certificate as of_identifiable
from lawful.fibers.deep.identifiability import identifiable
from lawful.invariant_set import components
from lawful.invariant_set.certificate import certificate as of_components
from lawful.network import Architecture, Mlp
from lawful.papers.leaky import LeakyResNet


def test_a_tolerance_is_around_the_balance_of_the_weights_themselves() -> None:
    """A lock shown around a balance that is only near the weights' own says nothing about all within the tolerance."""
    dag = Architecture.parse("2-1-1").to_dag().with_theta([0.0, 0.0, 2.0])  # balance -4: locked
    proof = saved(of_components(components(dag, [-5], tolerance=1.0)))
    assert proof["network"]["weights"] is None
    assert "balance (-5)" in verify(proof).statement
    forged = signed(proof | {"network": proof["network"] | {"weights": [0.0, 0.0, 2.0]}})
    with pytest.raises(CertificateError, match="the balance is not that of the weights"):
        verify(forged)


def test_what_a_carrier_passes_on_bounds_its_rounding() -> None:
    """A carrier that takes over a large sum may not be rounded as if it still held a small value."""
    graph = {
        "roles": [0, 1, 1, 2],
        "edges": [[0, 1], [0, 2], [1, 3], [2, 3]],
        "slopes": [1.0, 1.0],
        "weights": [2.0**-20, 2.0**20, 1.0, 1.0],
    }
    after = {"roles": [0, 1, 2], "edges": [[0, 1], [1, 2]], "slopes": [1.0], "weights": [2.0**20 + 2.0**-20, 1 + 2**-9]}
    stage = {"evidence": [[1, "on"], [2, "on"]], "carriers": [[4, 3, "0"]], "after": after, "labels": [0, 4, 3]}
    proof = {"kind": "pruning", "version": 2, "original": graph, "box": None, "neurons_before": 2, "neurons_after": 1,
             "max_output_change_bound": 0.0, "rounding_bound": 2.0**12, "stages": [stage]}  # fmt: skip
    assert verify(signed(proof)).facts["max_output_change_bound"] == 0
    with pytest.raises(CertificateError, match="rounding_bound: the stages add up to more"):
        verify(signed(proof | {"rounding_bound": 2.0**10}))  # the true change at 1 is above 2^11


@pytest.mark.parametrize("sizes", [[5_000_000, 5_000_000, 0, 5_000_000], [1, 4_000_000, 1, 4_000_000]])
def test_a_matrix_product_of_nothing_takes_no_memory(sizes: list[int]) -> None:
    n, p, q, r = sizes
    steps: list[Any] = [
        {"kind": "parameters", "length": n * p * q},
        {"kind": "input", "length": n * q * r},
        {"kind": "matmul", "sources": [0, 1], "sizes": sizes},
    ]
    with pytest.raises(REFUSED):
        verify(saved(real("laws of a module"), steps=steps))


def test_factors_that_pile_up_are_refused_before_they_hang() -> None:
    proof = saved(real("same exactly"))
    width = len(proof["networks"][0]["weights"][0])
    step = {"do": "rescale", "layer": 1, "factors": ["7" * 3999 + "/3"] * width}
    proof["witness"]["first"] = [step] * 2000
    with pytest.raises(Unsupported, match="steps"):
        verify(proof)


def test_a_check_stops_when_its_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lawful.verify.core.schema.MOST_SECONDS", -1.0)
    with pytest.raises(Unsupported, match="processor time"):
        verify(real("components"))


def test_a_deep_tower_is_read_in_linear_time() -> None:
    from lawful.verify.core.dag import read_mlp

    count = 30_000
    tower = {"weights": [[[0.5]]] * count, "biases": [None] * count, "slopes": [0.0] * (count - 1)}
    assert len(read_mlp(tower).hidden) == count - 1


def test_a_residual_is_not_negative() -> None:
    proof = saved(real("rebalance"))
    proof["except"] = list(range(3))
    with pytest.raises(CertificateError, match="negative"):
        verify(proof | {"residual": -1.0})


def test_output_biases_absorb_constants_when_neurons_are_reversed() -> None:
    """`Σ a_j w_j = 0` suffices to reverse a set of neurons: the terms `a_j b_j` move into the output's bias."""
    network = Mlp([[[-1.0, 0.0], [1.0, -1.0], [1.0, 0.0]], [[-1.0, 1.0, -1.0]]], [[0.0, -1.0, 1.0], [0.0]])
    found = identifiable(network)
    assert found.identifiable is False
    proof = saved(of_identifiable(network, found))
    assert verify(proof, network).facts["identifiable"] is False
    lie = proof | {"identifiable": True, "other": None, "witness": None}
    lie = {key: value for key, value in lie.items() if key not in ("twins", "complete")}
    with pytest.raises(CertificateError, match="reversed together"):
        verify(lie)


def test_the_same_parameters_reordered_and_rescaled_prove_nothing() -> None:
    proof = saved(real("identifiable"), identifiable=False)
    tower = proof["network"]
    rows = [
        [[*map(str, map(Fraction, row)), str(Fraction(bias))] for row, bias in zip(layer, biases, strict=True)]
        for layer, biases in zip(tower["weights"], tower["biases"], strict=True)
    ]
    first = [[str(2 * Fraction(entry)) for entry in row] for row in rows[0]][::-1]
    last = [[str(Fraction(row[1]) / 2), str(Fraction(row[0]) / 2), row[2]] for row in rows[1]]
    steps = [{"do": "reorder", "layer": 1, "order": [1, 0]}, {"do": "rescale", "layer": 1, "factors": [2.0, 2.0]}]
    witness = {"first": steps, "second": [], "ending": "weights"}
    with pytest.raises(CertificateError, match="no reordering and rescaling"):
        verify(proof | {"other": [first, last], "witness": witness})


def test_every_answer_about_identifiability_is_certified() -> None:
    """Random small networks with ties and zeros: what the maker decides, the verifier confirms."""
    rng = np.random.default_rng(1)
    answers = set()
    for _ in range(60):
        widths = rng.integers(1, 4, size=rng.integers(3, 5)).tolist()
        weights = [rng.integers(-1, 2, size=(b, a)).astype(float) for a, b in pairwise(widths)]
        network = Mlp(weights, [rng.integers(-1, 2, size=b).astype(float) for b in widths[1:]])
        found = identifiable(network)
        if found.identifiable is not None and "face each other" not in found.reasons[0]:
            assert verify(saved(of_identifiable(network, found)), network).facts["identifiable"] is found.identifiable
            answers.add(found.identifiable)
    assert answers == {True, False}


def test_a_region_more_or_less_is_refused() -> None:
    proof = saved(real("regions"))
    for change in (-1, 1):
        with pytest.raises(CertificateError):
            verify(proof | {"regions": proof["regions"] + change})
    with pytest.raises(REFUSED):
        verify(proof | {"regions": proof["regions"] - 1, "points": proof["points"][:-1]})


def test_what_it_is_about_is_told_for_data_and_leaky_networks(tmp_path: Path) -> None:
    """Arrays, in any number type; another number is noticed."""
    proof = saved(real("separation"))
    points, labels = np.array(proof["points"]), np.array(proof["labels"])
    assert verify(proof, (points, labels)).given == (0,)
    with pytest.raises(CertificateError, match="not about"):
        verify(proof, (points + 1, labels))
    proof = saved(real("geodesic"))
    network = LeakyResNet(proof["weights"], proof["effective_depth"], proof["steps"], softness=proof["softness"])
    data = np.array(proof["inputs"]), np.array(proof["targets"])
    assert verify(proof, network, data).given == (0, 1)
    with pytest.raises(CertificateError, match="not about"):
        verify(proof, LeakyResNet(2 * network.weights, 2.0, proof["steps"], softness=0.1))
    file = tmp_path / "proof.json"
    file.write_text(json.dumps(proof), encoding="utf-8")
    assert verify(file).statement == verify(str(file)).statement == verify(proof).statement
    with pytest.raises(NotACertificate, match="regular"):
        verify(Path("/dev/null"))
