"""`lawful check --monotone`: exact kinks as an oracle, scales, evidence that fails when it is broken, misuse."""

from __future__ import annotations

import json
from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from effort import trials
from fibers.kinks import exact_kinks, exact_value

from lawful import Architecture, CertificateError, LawfulError, Mlp, write
from lawful import check as check_verb
from lawful.bounds.slopes import Growth
from lawful.fibers.monotone import certificate_of_monotone, check_monotone, read_directions
from lawful.verify import verify

UP, DOWN = Growth(0, rising=True), Growth(0, rising=False)


@pytest.mark.parametrize("seed", range(trials(8, 24)))
def test_one_input_against_exact_kinks(seed: int) -> None:
    rng = np.random.default_rng(seed)
    widths = [1, *rng.integers(1, 5, size=rng.integers(1, 4)), int(rng.integers(1, 3))]
    weights = [rng.integers(-2, 4, size=(m, n)).astype(float) for n, m in pairwise(widths)]
    biases = [rng.integers(-2, 3, size=m).astype(float) for m in widths[1:]]
    if seed % 3 == 0:  # another scale of the neurons changes nothing
        weights[0], biases[0], weights[1] = weights[0] * 2.0**-30, biases[0] * 2.0**-30, weights[1] * 2.0**30
    network = Mlp(weights, biases, [float(rng.choice([0, 0.1, 0.25]))] * (len(weights) - 1))
    values = [exact_value(network, kink) for kink in exact_kinks(network, Fraction(-2), Fraction(2))]
    for direction, sign in ((UP, 1), (DOWN, -1)):
        truth = all(sign * (b - a) >= 0 for one, two in pairwise(values) for a, b in zip(one, two, strict=True))
        found = check_monotone(network, ([-2.0], [2.0]), [direction], seconds=2.0)
        assert found.status == ("holds" if truth else "violated")
        verify(json.dumps(certificate_of_monotone(found, network)), network)


def test_weights_without_negative_signs_are_monotone_at_any_scale() -> None:
    rng = np.random.default_rng(0)
    for power in (-300, -9, 0, 9):
        weights = [rng.random((6, 4)) * 10.0**power, rng.random((5, 6)), rng.random((2, 5))]
        found = check_monotone(Mlp(weights), (-np.ones(4), np.ones(4)), [Growth(k, rising=True) for k in range(4)])
        assert (found.status, found.boxes) == ("holds", 1)
        assert (
            "never falls as inputs 0, 1, 2, 3 grows"
            in verify(json.dumps(certificate_of_monotone(found, Mlp(weights)))).statement
        )


def test_a_slope_that_underflows_is_not_called_nonnegative() -> None:
    network = Mlp([[[1e-200]], [[-1e-200]]])  # the slope -1e-400 is no float, and negative
    found = check_monotone(network, ([1.0], [2.0]), [UP], seconds=2.0)
    assert found.status == "violated"


FLAT = {  # slopes that are zero by cancellation, on a side of a kink, or everywhere
    "flat": Mlp([[[1.0, 0.0], [1.0, 1.0]], [[1.0, 0.0], [1.0, 0.0]], [[1.0, -1.0]]], [[0.5, 0.1], [0.0, 0.0], [0.0]]),
    "kink": Mlp([[[1.0, 1.0], [2.0, 2.0], [1.0, 0.0]], [[3.0, -1.5, 0.25]]], [[-1.0, -2.0, 0.0], [0.0]]),
    "edge": Mlp([[[1.0, 0.0], [1.0, 0.0]], [[1.0, -2.0]]], [[0.0, -1.0], [0.0]]),
    "leaky": Mlp([[[1.0, -1.0], [-1.0, 1.0]], [[1.0, 1.0], [1.0, 1.0]], [[1.0, -1.0]]], None, 0.25),
}


@pytest.mark.parametrize("name", FLAT)
def test_flat_slopes_and_kinks_are_decided_region_by_region(name: str) -> None:
    network = FLAT[name]
    found = check_monotone(network, ([-1.0, -0.25], [1.0, 1.0]), [UP], seconds=8.0)
    assert found.status == "holds"
    certificate = certificate_of_monotone(found, network)
    assert "never falls as input 0 grows" in verify(json.dumps(certificate), network).statement
    if found.regions:
        for broken in broken_walks(certificate):
            with pytest.raises(LawfulError):
                verify(json.dumps(broken), network)


def broken_walks(certificate: dict[str, Any]) -> list[dict[str, Any]]:
    """The same proof with a decision less, one too many, a wrong one; another leaf, a leaf twice, another question."""
    (walk,) = certificate["regions"]
    decisions = walk["decisions"]
    changed = [decisions[:-1], [*decisions, "both"], [["on", [0]], *decisions[1:]]]
    found = [certificate | {"regions": [walk | {"decisions": each}]} for each in changed]
    found += [certificate | {"regions": [walk, walk]}, certificate | {"regions": [walk | {"leaf": 1}]}]
    return [*found, certificate | {"regions": []}]


def test_fixed_inputs_are_numbers_and_skips_are_carried() -> None:
    found = check_monotone(FLAT["kink"], ([-1.0, 0.5], [1.0, 0.5]), [UP], seconds=2.0)
    assert found.status == "holds"
    assert found.regions
    verify(json.dumps(certificate_of_monotone(found, FLAT["kink"])), FLAT["kink"])
    graph = Architecture.parse("2-2-2-1 relu skip(0,2)").initialise(seed=1)
    weights = np.where(graph.heads == graph.outputs[0], 0.0, graph.theta)  # flat everywhere
    flat = graph.with_theta(weights)
    found = check_monotone(flat, (-np.ones(2), np.ones(2)), [UP, Growth(1, rising=False)], seconds=4.0)
    assert found.status == "holds"
    verify(json.dumps(certificate_of_monotone(found, flat)), flat)


@pytest.mark.parametrize("seed", range(3))
def test_boxes_that_splitting_leaves_open(seed: int) -> None:
    """Duplicates that cancel inside a larger network: regions of single leaves, or of the whole box, decide."""
    rng = np.random.default_rng(seed)
    weights = [rng.normal(size=(4, 2)), np.abs(rng.normal(size=(1, 4)))]
    weights[0][:, 0] = np.abs(weights[0][:, 0])
    twin = np.repeat(weights[0], 2, axis=0)
    outs = np.repeat(weights[1], 2, axis=1) * np.tile([2.0, -1.0], 4)  # each neuron twice: 2 - 1 = 1
    bias = np.repeat(rng.normal(size=4), 2)
    found = check_monotone(Mlp([twin, outs], [bias, [0.0]]), (-np.ones(2), np.ones(2)), [UP], seconds=2.0)
    assert found.status == "holds"


def test_boxes_are_split() -> None:
    network = Mlp([[[1.0, 0.0], [1.0, 1.0]], [[3.0, -2.0], [0.5, 1.0]], [[1.0, -1.0]]], [[0.0, 0.5], [0.0, 0.0], [0.0]])
    found = check_monotone(network, ([-1.0, -1.0], [1.0, 1.0]), [Growth(1, rising=False)], seconds=5.0)
    points = np.random.default_rng(0).uniform(-1, 1, (4000, 2))
    higher = points + np.array([0.0, 1e-3])
    falls = bool((network.evaluate(higher) <= network.evaluate(points) + 1e-12).all())
    assert found.status == ("holds" if falls else "violated")


def test_the_command_line(lawful: Callable[..., Any], tmp_path: Path) -> None:
    write(Mlp([[[1.0, -1.0], [1.0, 0.0]], [[1.0, 1.0], [1.0, -1.0]]]), tmp_path / "net.json")
    net, proof = tmp_path / "net.json", tmp_path / "proof.json"
    asked = ("check", net, "--box=-1,1", "--certificate", proof)
    said = lawful(*asked, "--monotone=+0,-1", "--output", 0, "--json").json
    assert (said["status"], said["monotone"], said["input"]) == ("holds", "+0,-1", None)
    assert (
        "output 0 never falls as input 0 grows and never rises as input 1 grows" in lawful("verify", proof, net).stdout
    )
    assert "HOLDS: output 0 is monotone in +0" in lawful(*asked, "--monotone=+0", "--output", 0).stdout
    said = lawful(*asked, "--monotone=+0", "--json", code=1).json
    assert said["violated_output"] == 1
    assert said["other_outputs"][1] < said["outputs"][1]
    assert said["other_input"][0] > said["input"][0]
    assert "output 1 falls somewhere" in lawful("verify", proof, net).stdout
    broken = json.loads(proof.read_text())
    broken["inputs"].reverse()
    with pytest.raises(CertificateError, match="larger"):
        verify(json.dumps(broken))
    assert check_verb(str(net), monotone="-1", box="-1,1", output=0).status == "holds"
    lawful("check", net, "--box=-1,1", "--monotone=+0", "--output", 0, "--seconds", 1)  # one box suffices


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "one of the two"),
        (["--monotone=+5", "--box=-1,1"], "inputs 0 to 1, not 5"),
        (["--monotone=up", "--box=-1,1"], "+0,-2"),
        (["--monotone=+0,-0", "--box=-1,1"], "twice"),
        (["--monotone=+0", "--box=0:0,-1:1"], "single number"),
        (["--monotone=+0", "--box=1,-1"], "lo <= hi"),
        (["--monotone=+0", "--box=-1,1", "--output", "7"], "outputs 0 to 1, not 7"),
        (["--monotone=+0", "--box=-1,1", "--seconds", "-1"], "positive number"),
    ],
)
def test_misuse(lawful: Callable[..., Any], tmp_path: Path, options: list[str], words: str) -> None:
    write(Mlp([[[1.0, -1.0]], [[1.0], [2.0]]]), tmp_path / "net.json")
    assert words in lawful("check", tmp_path / "net.json", *options, code=2).stderr


def test_directions_are_read() -> None:
    assert read_directions("-0", 1) == (DOWN,)
    with pytest.raises(LawfulError, match="at least one"):
        check_monotone(Mlp([[[1.0]], [[1.0]]]), ([0.0], [1.0]), [])
