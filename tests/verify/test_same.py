"""The verifier accepts what `same` proves, and nothing that was tampered with."""

from __future__ import annotations

import copy
import json
from typing import Any

import numpy as np
import pytest
from forging import REFUSED, signed

from lawful import Mlp
from lawful.fibers.random_members import deepen, disguise, hiding_network, random_network
from lawful.fibers.same import same
from lawful.fibers.verdict import certificate
from lawful.verify import verify


def proof(first: Mlp, second: Mlp, **question: Any) -> dict[str, Any]:
    verdict = same(first, second, **question)
    saved: dict[str, Any] = json.loads(json.dumps(certificate(verdict, first, second)))
    return saved


def linear_head() -> Mlp:
    network = random_network(4, 3, 5, 2, seed=0)
    second, bias = network.weights[1].copy(), np.array(network.biases[1])
    second[0], bias[0] = np.abs(second[0]), 1.0
    return Mlp([network.weights[0], second, network.weights[2]], [network.biases[0], bias, network.biases[2]])


def shifted_head() -> Mlp:
    """The linear neuron's bias moved into the output."""
    network = linear_head()
    bias, last = np.array(network.biases[1]), np.array(network.biases[2])
    bias[0] += 2.0
    return Mlp(network.weights, [network.biases[0], bias, last - 2.0 * network.weights[2][:, 0]])


def cases() -> list[dict[str, Any]]:
    plain, hidden = random_network(4, 3, 3, 2, seed=1), hiding_network(4, 4, 1, 2, seed=1)
    double = plain.with_theta(plain.theta)
    return [
        proof(plain, disguise(plain)),
        proof(plain, double, exact=True),
        proof(hidden, disguise(hidden)),
        proof(linear_head(), disguise(shifted_head())),
        proof(plain, plain.with_theta(plain.theta * 1.01)),
        proof(plain, random_network(3, 2)),
        proof(random_network(3, 5, 2), disguise(random_network(3, 5, 2)), box=(-1.0, 1.0)),
    ]


def test_proofs_are_accepted() -> None:
    facts = [verify(saved).facts for saved in cases()]
    assert {found.get("by") for found in facts} >= {"weights", "normal form", None}
    assert any("sizes" in found for found in facts)


def test_a_changed_network_is_rejected() -> None:
    for saved in cases():
        if saved["verdict"] == "different":
            continue  # the input proves it whatever an inactive neuron weighs
        for network in (0, 1):
            for layer in range(len(saved["networks"][network]["weights"])):
                broken = copy.deepcopy(saved)
                broken["networks"][network]["weights"][layer][0][0] += 1e-3
                with pytest.raises(REFUSED):
                    verify(signed(broken))


def test_a_swapped_verdict_is_rejected() -> None:
    equal, different = cases()[0], cases()[4]
    for saved, other in ((equal, different), (different, equal)):
        broken = saved | {"verdict": other["verdict"]}
        with pytest.raises(REFUSED):
            verify(signed(broken))
    with pytest.raises(REFUSED, match="equal, different"):
        verify(equal | {"verdict": "undecided"})


def test_tampered_steps_are_rejected() -> None:
    hidden = cases()[2]
    for change in (
        lambda step: step.update(layer=7),
        lambda step: step.update(do="vanish"),
        lambda step: step.pop("layer"),
    ):
        broken = copy.deepcopy(hidden)
        change(broken["witness"]["second"][0])
        with pytest.raises(REFUSED):
            verify(signed(broken))
    broken = copy.deepcopy(hidden)
    moved = next(step for step in broken["witness"]["second"] if step["do"] == "translate")
    moved["shift"] += 0.5
    with pytest.raises(REFUSED):
        verify(signed(broken))


def test_groups_must_cancel() -> None:
    saved = cases()[3]
    assert saved["witness"]["ending"] == "normal form"
    for groups in (saved["witness"]["groups"][1:], [*saved["witness"]["groups"], [[0, 1]]], []):
        broken = copy.deepcopy(saved)
        broken["witness"]["groups"] = groups
        with pytest.raises(REFUSED):
            verify(signed(broken))


def test_a_counterexample_must_be_real_and_inside() -> None:
    plain = random_network(4, 3, 3, 2, seed=1)
    saved = proof(plain, plain.with_theta(plain.theta * 1.01), box=(-1.0, 1.0))
    verify(saved)
    broken = copy.deepcopy(saved)
    broken["counterexample"]["input"] = [3.0] * 4
    with pytest.raises(REFUSED, match="outside"):
        verify(signed(broken))
    broken = saved | {"networks": [saved["networks"][0]] * 2}
    with pytest.raises(REFUSED, match="outputs"):
        verify(signed(broken))


def test_a_proof_by_regions_is_replayed_in_rationals() -> None:
    network, deep = deepen(random_network(2, 3, 2, 1, seed=4))
    saved = proof(network, deep, exact=True)
    verify(saved)
    decisions = saved["witness"]["decisions"]
    one_sided = next(place for place, decision in enumerate(decisions) if decision != "both")
    flipped = ["off" if decisions[one_sided][0] == "on" else "on", decisions[one_sided][1]]
    for changed in (
        decisions[:-1],
        [*decisions, "both"],
        [*decisions[:one_sided], flipped, *decisions[one_sided + 1 :]],
        [*decisions[:one_sided], [decisions[one_sided][0], []], *decisions[one_sided + 1 :]],
        [],
    ):
        broken = copy.deepcopy(saved)
        broken["witness"]["decisions"] = changed
        with pytest.raises(REFUSED):
            verify(signed(broken))
    broken = copy.deepcopy(saved)
    broken["networks"][1]["weights"][1][0][1] += 1e-9
    with pytest.raises(REFUSED):
        verify(signed(broken))


def test_damaged_files_are_rejected() -> None:
    saved = cases()[0]
    for key in ("networks", "witness", "within", "verdict"):
        with pytest.raises(REFUSED):
            verify({name: value for name, value in saved.items() if name != key})
    for nonsense in (None, [], "x", [[1.0]]):
        with pytest.raises(REFUSED):
            verify(saved | {"networks": nonsense})
