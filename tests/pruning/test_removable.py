"""Which single neurons can go: decided against plain enumeration, certified either way, and forged."""

from __future__ import annotations

import json
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from degenerate_networks import agree, describe, networks, without

from lawful import verify
from lawful.errors import CertificateError, LawfulError
from lawful.network import Architecture, Mlp
from lawful.pruning.neurons.certificate import certificate as pruning_certificate
from lawful.pruning.neurons.prune import prune
from lawful.pruning.removable import decide
from lawful.pruning.removable.activity import settle
from lawful.pruning.removable.certificate import certificate
from lawful.pruning.removable.decide import Need, Question, decide_neurons
from lawful.pruning.removable.level_set import level_set
from lawful.pruning.removable.smallest import smallest_equivalent
from lawful.sources.files import write
from lawful.sources.summary import summarise


def unseen() -> Mlp:
    """relu(x) − relu(x − 1) is at most 1, so the first neuron of layer 2 is dead, and no interval tells."""
    return Mlp([[[1.0], [1.0]], [[1.0, -1.0], [1.0, 1.0]], [[1.0, 1.0]]], [[0.0, -1.0], [-1.5, -0.5], [0.0]])


def answers(network: Mlp) -> dict[tuple[int, int], bool | None]:
    return {(each.layer, each.neuron): each.removable for each in decide_neurons(network, seconds=20.0)}


def test_a_neuron_that_no_rule_removes_goes() -> None:
    assert prune(unseen()).neurons_after == 4
    found = prune(unseen(), decide=20.0)
    assert [stage.removed for stage in found.stages] == [("h2.0",)]
    assert found.decided is not None
    assert found.decided.complete
    assert agree(unseen(), found.network)  # type: ignore[arg-type]
    verify(pruning_certificate(found), found.original, found.network)


def test_the_command_line_says_what_was_decided(tmp_path: Path, lawful: Any) -> None:
    write(unseen(), tmp_path / "net.npz")
    assert "dead neurons (0 for every input): 1 (h2.0)" in lawful("show", tmp_path / "net.npz").stdout
    wasted = " ".join(lawful("audit", tmp_path / "net.npz").stdout.split())
    assert "1 of 4 hidden neurons can go" in wasted
    assert "No neuron can be removed" not in wasted
    saved, small = tmp_path / "need.json", tmp_path / "small.npz"
    got = lawful("prune", tmp_path / "net.npz", "--smallest", "--needed", saved, "--out", small, "--json").json
    assert got["decided"] == {"complete": True, "needed": ["h2.1", "h1.1", "h1.0"], "undecided": {}}
    assert got["smallest_equivalent"] == {"lower": 2, "upper": 3, "exact": False}
    assert "3 are needed" in lawful("verify", saved, small).stdout
    undecided = lawful("prune", tmp_path / "net.npz", "--decide", "0", "--json").json
    assert undecided["decided"] is None
    assert "layered" in lawful("prune", "2-2-2-1 relu skip(0,2)", "--needed", saved, code=2).stderr


def test_every_small_stand_in_is_found() -> None:
    """All stand-ins with coefficients in −1, 0, 1, 2 and constants in halves: none keeps a needed neuron's function."""
    seen = set()
    for network in networks(24, seed=20, widths=((1, 2, 1), (1, 2, 2, 1), (1, 2, 1, 1))):
        for (layer, neuron), answer in answers(network).items():
            seen.add(answer)
            if answer is not False:
                continue
            for chosen in product((-1, 0, 1, 2), repeat=network.widths[layer] - 1):
                for constant in (Fraction(k, 2) for k in range(-4, 5)):
                    other = without(network, layer - 1, neuron, chosen, constant)
                    assert not agree(network, other), describe(network)
    assert {True, False} <= seen


def test_removable_ones_are_the_same_function() -> None:
    for network in networks(24, seed=21, widths=((1, 2, 1), (2, 2, 1), (1, 2, 2, 1))):
        for each in decide_neurons(network, seconds=20.0):
            if each.removable:
                factors = [f for k, f in enumerate(each.evidence.coefficients) if k != each.neuron]  # type: ignore[union-attr]
                if all(f.denominator == 1 for f in factors):
                    chosen = tuple(int(f) for f in factors)
                    other = without(network, each.layer - 1, each.neuron, chosen, each.evidence.constant)  # type: ignore[union-attr]
                    assert agree(network, other)


def test_scales_do_not_matter() -> None:
    for scale in (1e-9, 1e9):
        weights, biases = [w.copy() for w in unseen().weights], [b.copy() for b in unseen().biases]  # type: ignore[union-attr]
        weights[0], biases[0] = weights[0] * scale, biases[0] * scale
        weights[1] = weights[1] / scale
        found = answers(Mlp(weights, biases))
        assert found[2, 0] in (True, None)  # 1/scale is rounded: the dead neuron may come alive
        assert found[2, 1] is False


def test_level_sets_are_those_of_a_grid() -> None:
    """The outputs at value − t, on a grid of t, are the present ones exactly in the intervals."""
    for network in networks(12, seed=22, widths=((1, 2, 2, 1), (1, 1, 2, 1, 1))):
        question = Question(network, 0.0)
        for point in question.pool[::17]:
            parts = level_set(question.stack, 0, 0, question.sums(point)[1])
            column = question.stack.weights[1][:, 0]
            base = tail(network, [float(v) for v in _fractions(question.sums(point)[1])])
            for k in range(-12, 13):
                t = Fraction(k, 4)
                moved = [
                    v - t * w for v, w in zip(_fractions(question.sums(point)[1]), _fractions(column), strict=True)
                ]
                inside = any(part.contains(_rational(t)) for part in parts)
                assert inside == (tail(network, [float(v) for v in moved]) == base)


def tail(network: Mlp, sums: list[float]) -> list[float]:
    """The outputs from the sums of the second layer; small dyadic numbers, so floats are exact."""
    values = np.maximum(sums, 0.0)
    for weight, bias in zip(network.weights[2:-1], network.biases[2:-1], strict=True):
        values = np.maximum(weight @ values + bias, 0.0)
    return (network.weights[-1] @ values + network.biases[-1]).tolist()  # type: ignore[no-any-return]


def _fractions(values: Any) -> list[Fraction]:
    return [Fraction(int(v.p), int(v.q)) for v in values]


def _rational(value: Fraction) -> Any:
    return decide.flint.fmpq(value.numerator, value.denominator)


def test_what_is_too_large_is_undecided() -> None:
    wide = Architecture.parse("2-65-1 relu bias").initialise(seed=0)
    assert {each.removable for each in decide_neurons(wide)} == {None}
    assert {each.removable for each in decide_neurons(unseen(), seconds=1e-9)} == {None}
    found = prune(wide, decide=1.0)
    assert found.decided is not None
    assert not found.decided.complete


def test_forged_certificates_are_refused() -> None:
    network = unseen()
    proof = json.loads(json.dumps(certificate(network, decide_neurons(network, seconds=20.0))))
    assert verify(proof, network).facts["removable"] == [(2, 0)]
    needed = next(each for each in proof["neurons"] if each["answer"] == "needed")
    stand_in = next(each for each in proof["neurons"] if each["answer"] == "removable")
    forged = [
        {**stand_in, "layer": 2, "neuron": 1},
        {**stand_in, "layer": 1, "neuron": 0},
        {**stand_in, "constant": "1"},
        {**stand_in, "coefficients": ["0", "1"]},
        {**stand_in, "decisions": stand_in["decisions"][:-1]},
        {**needed, "layer": 2, "neuron": 0},
        {**needed, "points": []},
        {**needed, "points": needed["points"][:1]},
        {**needed, "cases": [["end", ["0"] * len(needed["points"])]]},
        {**needed, "cases": []},
    ]
    for neuron in forged:
        with pytest.raises(LawfulError):
            verify(proof | {"neurons": [neuron]})
    with pytest.raises(CertificateError, match="twice"):
        verify(proof | {"neurons": [needed, needed]})


def test_cases_are_certified() -> None:
    """Outputs that are not monotone in a neuron allow several of its values: level sets with gaps, and cases."""
    kinds = set()
    for network in networks(16, seed=23, widths=((1, 2, 2, 1), (2, 3, 2, 1))):
        found = decide_neurons(network, seconds=20.0)
        verify(json.loads(json.dumps(certificate(network, found))), network)
        kinds |= {each.evidence.case is None for each in found if isinstance(each.evidence, Need)}
    assert kinds == {True, False}


def test_dead_and_linear_are_decided_or_left_open() -> None:
    found = settle(summarise(unseen()), unseen(), seconds=20.0)
    assert (found.dead, found.linear, found.undecided) == (("h2.0",), (), ())
    wide = Architecture.parse("3-40-40-1 relu bias").initialise(seed=0)
    assert len(settle(summarise(wide), wide).undecided or ()) > 0
    ramp = Mlp([[[1.0], [-1.0]], [[1.0, 1.0]], [[1.0]]], [[0.0, 0.0], [-0.0], [0.0]])  # |x| is never negative
    assert settle(summarise(ramp), ramp).linear == ("h2.0",)


@pytest.mark.parametrize(
    ("weights", "biases", "fewest"),
    [
        ([[[1.0], [-1.0]], [[1.0, -1.0]]], [[0.0, 0.0], [0.0]], 2),  # x itself: a pair
        ([[[1.0], [-1.0], [1.0]], [[1.0, -1.0, 1.0]]], [[0.0, 0.0, -1.0], [0.0]], 2),  # x + relu(x − 1)
        ([[[1.0], [1.0]], [[1.0, 1.0]]], [[0.0, 0.0], [0.0]], 1),
        ([[[0.0], [0.0]], [[1.0, 1.0]]], [[1.0, 2.0], [0.0]], 0),
        ([np.vstack([np.eye(2), -np.eye(2)]), np.hstack([np.eye(2), -np.eye(2)])], [None, None], 4),  # the identity
        ([[[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]], [[1.0, -1.0, 1.0]]], [[0.0, 0.0, 0.0], [0.0]], 3),
    ],
)
def test_the_fewest_neurons_of_one_hidden_layer(weights: Any, biases: Any, fewest: int) -> None:
    found = smallest_equivalent(Mlp(weights, biases))
    assert (found.lower, found.exact) == (fewest, True)


def test_an_exact_input_of_a_region_excludes_a_stand_in() -> None:
    """The walk through regions answers with fractions: no float near them is needed."""
    weights = [[[1.0, 0.2], [0.3, 1.0]], [[1.0, -1.5], [-2.0, 1.1]], [[1.0, 3.0]]]
    found = prune(Mlp(weights, [[0.1, 0.7], [-1.0, 1.0], [0.0]]), decide=20.0).decided
    assert found is not None
    assert found.complete
    assert len(found.needed) == 4


@pytest.mark.parametrize(
    ("network", "dead"),
    [
        (Mlp([[[0.0]], [[1.0]]], [None, None], 0.25), ("h1.0",)),  # leaky, and reads nothing
        (Mlp([[[1.0], [1.0]], [[1.0, -1.0]], [[1.0]]], [None, None, None], [0.0, 1.0]), ("h2.0",)),  # linear, cancels
        # relu(x) − relu(x − 1) is at most 1, so h2.0 is 0, and with it h3.0, of which intervals know that it is linear
        (
            Mlp([[[1.0], [1.0]], [[1.0, -1.0]], [[1.0]], [[1.0]]], [[0.0, -1.0], [-1.5], [0.0], [0.0]]),
            ("h2.0", "h3.0"),
        ),
        (Mlp([[[0.0]], [[1.0]]], [[5e-324], None]), ()),  # the least positive constant
    ],
)
def test_a_neuron_that_is_always_zero_is_dead_whatever_its_activation(network: Mlp, dead: tuple[str, ...]) -> None:
    summary = settle(summarise(network), network, seconds=20.0)
    assert summary.dead == dead
    assert summary.undecided == ()
    assert not set(summary.linear or ()) & set(dead)
    assert not set(summarise(network).dead or ()) - set(dead)
