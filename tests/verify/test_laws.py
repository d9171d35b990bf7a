"""Certificates pass the separate verifier, and no broken one does."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from forging import REFUSED, signed

from lawful import Architecture, CertificateError, Mlp, Unsupported
from lawful.conservation import HeavyBall, LawCount, Metric, count_laws
from lawful.conservation.certificate import certificate
from lawful.network.digest import network_record
from lawful.verify import verify

BLOCK = Metric(blocks=((np.arange(3), np.array([[2.0, 0.5, 0.25], [0.5, 1.0, 0.5], [0.25, 0.5, 3.0]])),))


def always_on(last: float = 0.0) -> Mlp:
    """Second layer: a neuron that is always on, a dead one, another always on, one that is neither."""
    rng = np.random.default_rng(0)
    second = [[1, 2, 1.0], [-1, -1, -1], [1, 1, 1], [1, -1, 1]]
    return Mlp([rng.normal(size=(3, 3)), second, rng.normal(size=(2, 4))], [[0, 0.0, 0], [1, -1, 0.5, last], [0, 0]])


def saved(count: LawCount, **changes: Any) -> dict[str, Any]:
    """What a reader of the file gets; changes are signed again, so that only mathematics can reject them."""
    return signed(json.loads(json.dumps(certificate(count))) | changes)


@pytest.mark.parametrize(
    "text", ["3-3-3 linear", "2-3-2 relu", "4-5-4-3 relu bias", "6-5-6-4-3-6 linear", "2-3-3-2 linear bias skip(1,2)"]
)
def test_a_proof_passes(text: str) -> None:
    verify(saved(count_laws(text)))


def test_proofs_of_graphs_losses_flows_and_regions_pass(dag) -> None:  # type: ignore[no-untyped-def]
    verify(saved(count_laws(dag)))
    verify(saved(count_laws(dag, loss="cross-entropy")))


def test_proofs_of_other_flows_pass() -> None:
    for flow in (HeavyBall(), HeavyBall(0.5, True), HeavyBall(0.0, True), Metric(np.arange(1.0, 16.0)), BLOCK):
        verify(saved(count_laws("2-3-3 linear", flow=flow)))


def test_a_proof_under_a_metric_that_keeps_only_sums_passes() -> None:
    """The block joins weights of two neurons: of their two balances, one combination is left."""
    count = count_laws("2-3-2 relu bias", flow=BLOCK)
    assert {law.kind for law in count.known} == {"neuron", "combination"}
    assert (count.laws, count.status) == (2, "proved")
    verify(saved(count))


@pytest.mark.parametrize("flow", [BLOCK, Metric(np.arange(1.0, 13.0) / 7)])
def test_linear_laws_survive_every_metric(flow: Metric) -> None:
    """`⟨a, M∇f⟩ = 0` becomes `⟨M⁻¹a, θ⟩`: cross-entropy's sums and resting weights are kept."""
    count = count_laws("2-3-2 relu", loss="cross-entropy", flow=flow)
    assert count.status == "proved"
    assert sum(law.kind == "sum" for law in count.known) == 3
    verify(saved(count))


@pytest.mark.parametrize(
    ("flow", "words"),
    [
        ({"diagonal": [1.0] * 16}, "expected 17 entries"),
        ({"diagonal": [1.0] * 16 + [-1.0]}, "not symmetric and positive"),
        ({"blocks": [{"weights": [0, 0], "matrix": [[1.0, 0.0], [0.0, 1.0]]}]}, "twice"),
        ({"blocks": [{"weights": [0, 99], "matrix": [[1.0, 0.0], [0.0, 1.0]]}]}, "out of range"),
        ({"blocks": [{"weights": [0, 1], "matrix": [[1.0, 0.5], [0.0, 1.0]]}]}, "not symmetric"),
        ({"blocks": [{"weights": [0, 1], "matrix": [[1.0, 2.0], [2.0, 1.0]]}]}, "not symmetric and positive"),
        ({"blocks": [{"weights": [0, 1], "matrix": [[1.0]]}]}, "expected 2 entries"),
        ({"blocks": [{"weights": [0, 4], "matrix": [[2.0, 1.0], [1.0, 2.0]]}]}, "breaks the symmetry"),
        ({}, "diagonal or made of blocks"),
    ],
)
def test_a_metric_that_is_none_or_another_is_rejected(flow: dict[str, Any], words: str) -> None:
    count = count_laws("2-3-2 relu bias", flow=Metric(np.ones(17)))
    verify(saved(count))
    with pytest.raises(REFUSED, match=words):
        verify(saved(count, flow={"name": "metric", **flow}))


def test_a_proof_near_given_weights_passes() -> None:
    count = count_laws(always_on(), level="near")
    assert count.laws == 13  # 3 below, 6 resting weights, 3 for two linear neurons, 1
    verify(saved(count))


LINEAR = count_laws("3-3-3 linear bias")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"laws": 5}, "6 of the explicit laws are independent"),
        ({"laws": 7}, "6 of the explicit laws are independent"),
        ({"dimensions": [12, 17]}, "span 18 dimensions, not 17"),
        ({"dimensions": [12, 19]}, "span 18 dimensions, not 19"),
        ({"dimensions": [12]}, "expected 2 entries"),
        ({"brackets": [28, 3]}, "span"),
        ({"brackets": [28, 10**9]}, "out of range"),
        ({"prime": 8_388_592}, "not a prime"),
        ({"prime": 2**61 - 1}, "out of range"),
        ({"point": [0] * 24}, "0 of the explicit laws"),
        ({"point": [1] * 24}, "of the explicit laws"),
        ({"point": [1] * 23}, "expected"),
        ({"known": [["neuron", 3], ["neuron", 4], ["neuron", 5]]}, "3 of the explicit laws"),
        ({"known": [["neuron", 0]]}, "not a hidden neuron"),
        ({"known": [["pair", 3, 3]]}, "not two neurons"),
        ({"known": [["sum", 3]]}, "cross-entropy only"),
        ({"known": [["weight", 0, 3]]}, "nothing shows"),
        ({"known": [["rotation", 3, 4]]}, "momentum only"),
        ({"known": [["detour", 3]]}, "more than one edge"),
        ({"known": [["magic", 3]]}, "unknown kind"),
        ({"network": network_record(Architecture.parse("3-3-3 relu bias").to_dag())}, "do not act linearly alike"),
        ({"network": {"architecture": 5}}, "missing"),
        ({"network": {}}, "missing"),
        ({"loss": "cross-entropy"}, "span"),
        ({"loss": "hinge"}, "loss: expected one of"),
        ({"level": "magic"}, "level: expected one of"),
        ({"level": "near"}, "missing"),
        ({"flow": {"name": "magic"}}, "flow.name: expected one of"),
        ({"flow": {"name": "momentum", "friction": 1.0, "autonomous": True}}, "expected"),
        ({"parameters": 23}, "number of parameters"),
        ({"states": 25}, "number of states"),
    ],
)
def test_a_certificate_that_proves_something_else_is_rejected(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(REFUSED, match=words):
        verify(saved(LINEAR, **changes))


def test_other_random_brackets_prove_it_as_well() -> None:
    assert verify(saved(LINEAR, seed=5)).facts["laws"] == 6


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda body: body["fixed"].__setitem__(9, 1.0), "nothing shows that neuron 9"),
        (lambda body: body["inputs"].clear(), "no input"),
        (lambda body: body["inputs"][0].append(1.0), "expected 3 entries"),
        (lambda body: body["inputs"].__setitem__(slice(1, None), []), "span"),
        (lambda body: body["network"]["weights"].__setitem__(slice(12, 15), [-1.0, -2.0, -1.0]), "nothing shows"),
    ],
)
def test_a_region_that_is_not_so_is_rejected(change, words: str) -> None:  # type: ignore[no-untyped-def]
    body = saved(count_laws(always_on(), level="near"))
    change(body)
    with pytest.raises(REFUSED, match=words):
        verify(signed(body))


def test_only_proofs_have_certificates() -> None:
    network = Architecture.parse("2-3-1-4 relu bias").initialise(seed=0)
    count = count_laws(network, level="data", data=np.random.default_rng(1).normal(size=(2, 2)))
    assert count.status == "numerical"
    with pytest.raises(Unsupported, match="not proved"):
        certificate(count)


@pytest.mark.parametrize("samples", [12, 60])
def test_a_proof_for_one_data_set_passes(samples: int) -> None:
    data = np.random.default_rng(0).normal(size=(samples, 3))
    for loss in ("full", "cross-entropy"):
        count = count_laws(always_on(0.25), level="data", data=data, loss=loss)
        if count.proved:
            verify(saved(count))
    assert (
        count_laws(always_on(0.25), level="data", data=np.repeat(data, 2, axis=0)).laws
        == count_laws(always_on(0.25), level="data", data=data).laws
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda body: body["groups"].__setitem__(0, body["groups"][0] + 1), "different patterns"),
        (lambda body: body["groups"].pop(), "expected 60 entries"),
        (lambda body: body["fixed"].__setitem__(3, 1.0), "does not always have its gate"),
        (
            lambda body: (body["inputs"].__delitem__(slice(4, None)), body["groups"].__delitem__(slice(4, None))),
            "out of range|a group is empty|span",
        ),
    ],
)
def test_data_that_is_not_so_is_rejected(change, words: str) -> None:  # type: ignore[no-untyped-def]
    data = np.random.default_rng(0).normal(size=(60, 3))
    body = saved(count_laws(always_on(0.25), level="data", data=data))
    change(body)
    with pytest.raises(REFUSED, match=words):
        verify(signed(body))


def test_an_input_on_a_boundary_shows_no_pattern() -> None:
    """There ReLU has no derivative: the neuron reads 1·1 − 1 = 0."""
    network = Mlp([[[1.0]], [[1.0]]], [[-1.0], None])
    count = count_laws(network, level="near")
    with pytest.raises(CertificateError, match="boundary"):
        verify(saved(count, inputs=[[1.0], [2.0]]))


@pytest.mark.parametrize("switches", [[-1.0, 0.0], [-1.0, -8.0], [1.0, -4.5], [2.0, -3.0]])
def test_neurons_may_switch_anywhere(switches: list[float]) -> None:
    """Where the verifier looks for patterns a neuron may just switch: another point serves as well."""
    count = count_laws(Mlp([[[1.0], [1.0]], [[1.0, 2.0]]], [switches, [0.0]]), level="near")
    assert verify(saved(count)).facts["laws"] == 2
