"""One first-layer neuron, facing neurons, and small integer networks by function (P4 Theorem 5, Definition 22)."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from effort import trials
from fibers.small_networks import (
    SHAPES,
    by_function,
    check_canonical,
    check_identifiable,
    integers,
    layers_of,
    line_function,
)

import lawful as package
from lawful import Mlp, write
from lawful.errors import CertificateError, LawfulError
from lawful.fibers import Stack
from lawful.fibers.deep.bottleneck import identifiable_volume
from lawful.fibers.deep.identifiability import certificate, identifiable
from lawful.fibers.deep.single_neuron import as_one_layer, reverse
from lawful.fibers.fingerprint import canonical, fingerprint
from lawful.fibers.same import same
from lawful.fibers.shallow.normal_form import difference_form
from lawful.fibers.shallow.roles import role_assignments
from lawful.fibers.summary import describe_fiber
from lawful.fibers.verdict import certificate as of_same
from lawful.verify import verify
from reproduction.claims import fibers_small_widths
from reproduction.formulas import sampled_volume

RAMP = Mlp([[[1.0]], [[-1.0]], [[1.0]]], [[0.0], [1.0], [0.0]])
TWIN = Mlp([[[-1.0]], [[-1.0]], [[-1.0]]], [[1.0], [1.0], [1.0]])
ROWS, BIASES = [[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], [0.0, 0.0, -1.0, 0.0]
FACING = Mlp([ROWS, [[1.0, 2.0, 1.0, 2.0], [3.0, -1.0, 5.0, -1.0]]], [BIASES, [0.0, 0.0]])


def test_a_ramp_is_drawn_from_either_end() -> None:
    """An erratum to P4 Theorem 5: for n1 = 1 and rows (−, +) the first layer can be reversed."""
    assert same(RAMP, TWIN, exact=True).verdict == "equal"
    for one, other in ((RAMP, TWIN), (TWIN, RAMP)):
        found = identifiable(one)
        assert (found.identifiable, found.count) == (False, 2)
        assert same(found.twins[0].to_mlp(), other, exact=True).verdict == "equal"
        assert verify(certificate(one, found)).facts["complete"] is True
        summary = describe_fiber(one).summary
        assert (summary.dimension, summary.components, summary.count) == (0, 2, 2)
    samples = describe_fiber(RAMP).sample(2, 0)
    assert [same(RAMP, samples[0]).verdict, same(RAMP, samples[1], exact=True).verdict] == ["equal", "equal"]
    assert samples[1].weights[0][0, 0] < 0
    assert fingerprint(RAMP).hash == fingerprint(TWIN).hash
    assert np.allclose(canonical(RAMP).network.theta, canonical(TWIN).network.theta)
    assert canonical(RAMP).complete


def test_the_volume_of_one_neuron() -> None:
    assert [identifiable_volume(1, second) for second in (1, 2, 3)] == [0, Fraction(1, 8), Fraction(3, 32)]
    assert abs(sampled_volume(1, 2, 40_000) - 0.125) < 0.01


def test_a_forged_yes_for_one_neuron_is_rejected() -> None:
    mixed = Mlp([[[1.0]], [[1.0], [-1.0]], [[1.0, 2.0]]], [[0.0], [-1.0, 3.0], [0.0]])
    proof = certificate(mixed, identifiable(mixed))
    assert verify(proof).facts == {"identifiable": True, "among": "all parameters of its shape"}
    forged = certificate(RAMP, identifiable(RAMP)) | {"identifiable": True}
    del forged["twins"], forged["complete"]
    with pytest.raises(CertificateError, match="can be reversed"):
        verify(forged)


def test_a_pair_that_faces_moves_to_another_hyperplane() -> None:
    """P4 Definition 22: roles other than the present ones; the numbers are known."""
    other = Mlp(
        [[[1.0, 0.0], [-1.0, -1.0], [0.0, 1.0], [0.0, -1.0]], [[3.0, 2.0, 3.0, -2.0], [2.0, -1.0, 4.0, 1.0]]],
        [[0.0, 0.0, -1.0, 1.0], [2.0, -1.0]],
    )
    assert same(FACING, other, exact=True).verdict == "equal"
    for network in (FACING, other):
        found = identifiable(network)
        assert (found.identifiable, found.count, len(found.twins)) == (False, 2, 1)
        assert same(network, found.twins[0].to_mlp(), exact=True).verdict == "equal"
        assert describe_fiber(network).summary.count == 2
    proof = certificate(FACING, identifiable(FACING))
    assert "exactly 1 other" in verify(proof).statement
    assert np.allclose(canonical(FACING).network.theta, canonical(other).network.theta)


@pytest.mark.parametrize("forge", ["doubled", "itself", "other", "complete"])
def test_forged_twins_are_rejected(forge: str) -> None:
    proof = deepcopy(certificate(FACING, identifiable(FACING)))
    twin = proof["twins"][0]
    if forge == "doubled":
        proof["twins"].append(deepcopy(twin))
    if forge == "itself":
        rows = [np.column_stack([w, b]) for w, b in zip(FACING.weights, FACING.biases, strict=True)]
        twin["other"] = [[[str(Fraction(q)) for q in row] for row in table] for table in rows]
        twin["witness"]["groups"] = [[[0, 0], [0, 1], [1, 0], [1, 1]], [[0, 2], [1, 2]], [[0, 3], [1, 3]]]
    if forge == "other":
        twin["other"][1][0][0] = "7"
    if forge == "complete":  # three hyperplanes of one input: more ways than one to share out the linear part
        line = Mlp([[[1.0], [-1.0], [1.0]], [[1.0, 3.0, 1.0]]], [[1.0, -1.0, 0.5], [0.0]])
        found = identifiable(line)
        assert found.identifiable is False
        proof = certificate(line, found)
        proof = {key: value for key, value in proof.items() if key not in ("other", "witness", "twins", "complete")}
        proof |= {"other": None, "witness": None, "twins": [], "complete": True}
    with pytest.raises(CertificateError):
        verify(proof)


@pytest.mark.parametrize("seed", range(trials(10, 30)))
def test_every_assignment_of_roles_is_the_same_function(seed: int) -> None:
    rng = np.random.default_rng(seed)
    inputs, hidden, outputs = (int(k) for k in rng.integers((1, 1, 1), (4, 6, 3)))
    rows, bias = rng.integers(-1, 2, size=(hidden, inputs)) * 1.0, rng.integers(-1, 2, size=hidden) * 1.0
    if hidden > 1:
        rows[1], bias[1] = -rows[0], -bias[0]
    stack = Stack.of(Mlp([rows, rng.integers(-2, 3, size=(outputs, hidden)) * 1.0], [bias, np.zeros(outputs)]))
    roles = role_assignments(stack)
    assert roles.found
    for assignment in roles.found[:20]:
        member = roles.member(assignment)
        assert member.widths == stack.widths
        assert difference_form(stack, member, None, 0.0).residual == 0


@pytest.mark.parametrize("name", ["1-1-1", "1-1-1-1"])
def test_small_networks_by_function(name: str) -> None:
    shape, values = SHAPES[name]
    deep = len(shape) == 4  # fewer values where there are more of them: zeros are searched in one hidden layer
    small = [tuple(v for v in part if abs(v) < 2 and (v or not deep or k % 2 == 1)) for k, part in enumerate(values)]
    groups = by_function(integers(shape, *small))
    assert check_identifiable(groups)["no"] > 0
    assert check_canonical(groups)["complete"] > 0


@pytest.mark.parametrize("seed", range(trials(7, 20)))
def test_ramps_of_any_signs(seed: int) -> None:
    """Reversal and the form with one hidden layer, against exact functions of one input."""
    rng = np.random.default_rng(seed)
    width = int(rng.integers(1, 4))
    second, bias = rng.integers(-2, 3, size=(width, 1)) * 1.0, rng.integers(-2, 3, size=width) * 1.0
    out = rng.integers(-2, 3, size=(2, width)) * 1.0
    stack = Stack.of(Mlp([[[-2.0]], second, out], [[1.0], bias, [0.0, 0.0]]), exact=True)
    assert line_function(layers_of(as_one_layer(stack))) == line_function(layers_of(stack))
    falling = Stack.of(Mlp([[[-2.0]], -np.abs(second) - 1, out], [[1.0], np.abs(bias) + 1, [0.0, 0.0]]), exact=True)
    twin = reverse(falling)
    assert line_function(layers_of(twin)) == line_function(layers_of(falling))
    assert twin.exact_outputs([0.3]) == falling.exact_outputs([0.3])
    with pytest.raises(LawfulError):
        reverse(Stack.of(Mlp([[[1.0]], [[1.0]], [[1.0]]], [[0.0], [-1.0], [0.0]])))


def test_a_difference_thinner_than_floats_is_found_and_certified(lawful: Callable[..., Any], tmp_path: Path) -> None:
    """A tent of width 2^-60 beside 1/3: no float lies inside, a fraction does."""
    tiny = 2.0**-60
    tent = Mlp([[[3.0]], [[1.0], [1.0], [1.0]], [[1.0, -2.0, 1.0]]], [[-1.0], [0.0, -tiny, -2 * tiny], [0.0]])
    flat = Mlp([[[1.0]], [[1.0]], [[0.0]]], [[0.0], [0.0], [0.0]])
    found = same(tent, flat, exact=True)
    assert found.verdict == "different"
    exact = found.counterexample.exact
    assert 0 < exact[0] - Fraction(1, 3) < Fraction(2) ** -59
    proof = of_same(found, tent, flat)
    assert verify(proof).facts["verdict"] == "different"
    proof["counterexample"]["input"] = ["1/3"]
    with pytest.raises(CertificateError, match="do not differ"):
        verify(proof)
    write(tent, tmp_path / "tent.json")
    write(flat, tmp_path / "flat.json")
    result = json.loads(
        lawful("same", tmp_path / "tent.json", tmp_path / "flat.json", "--exact", "--json", code=1).stdout
    )
    assert Fraction(result["counterexample"]["exact_input"][0]) == exact[0]


@pytest.mark.parametrize("options", [{"sample": 4, "out": "x"}, {"activation": "tanh"}, {"domain": "orthant"}])
def test_no_option_is_ignored(options: dict[str, Any]) -> None:
    with pytest.raises((TypeError, LawfulError)):
        package.fiber(RAMP, **options)


def test_the_claims_fail_when_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    assert fibers_small_widths.width_one.run(False).holds
    assert fibers_small_widths.facing.run(False).holds
    monkeypatch.setattr(fibers_small_widths, "identifiable_volume", lambda first, second: Fraction(1, 2) ** second)
    assert not fibers_small_widths.width_one.run(False).holds
    wrong = [[1.0, 2.0, 1.0, 2.0], [3.0, -1.0, 5.0, -1.5]]
    monkeypatch.setattr(fibers_small_widths, "OUTPUTS", wrong)
    assert not fibers_small_widths.facing.run(False).holds


@pytest.mark.parametrize("slope", [0.0, 0.25, 1.0])
@pytest.mark.parametrize("bias", [-1.0, 0.0, 1.0])
@pytest.mark.parametrize("other", [0.0, 1.0])
def test_a_constant_neuron_of_any_slope_is_free(slope: float, bias: float, other: float) -> None:
    """Its bias moves away from zero; a leaky one had an answer without evidence, or none."""
    network = Mlp([[[0.0], [other]], [[1.0, -2.0]]], [[bias, 1.0], [1.0]], slope)
    found = identifiable(network)
    assert found.identifiable is False
    assert verify(certificate(network, found)).facts["identifiable"] is False
