"""Weight decay: every homogeneous law decays at a rate of its own, and there are no other laws."""

from __future__ import annotations

from copy import deepcopy

import numpy as np
import pytest
import torch

from lawful.conservation import count_laws
from lawful.conservation.certificate import certificate
from lawful.errors import CertificateError, LawfulError
from lawful.network import Architecture, Dag, Role
from lawful.network.dynamics import GradientFlow, HeavyBall
from lawful.verify import verify

DECAY = GradientFlow(decay=0.25)


def _detour() -> Dag:
    """A linear neuron beside a direct edge."""
    roles = [Role.INPUT, Role.HIDDEN, Role.OUTPUT]
    return Dag(("x", "h", "y"), roles, [0, 1, 0], [1, 2, 2], [1.0, 0.5, 2.0], slopes=[0.0, 1.0, 0.0])


@pytest.mark.parametrize("text", ["3-4-2 relu bias", "3-3-2 linear bias", "2-3-2-2 linear", "1-2-2-1 linear"])
def test_weight_decay_leaves_as_many_laws(text):
    """The drift is one direction more in one dimension more: laws of degree d become e^(dλt) h."""
    plain, count = count_laws(text), count_laws(text, flow=DECAY)
    assert (count.laws, count.status) == (plain.laws, "proved")
    assert count.states == count.parameters + 1
    assert verify(certificate(count)).facts["laws"] == plain.laws


def test_a_detour_is_lost():
    """(p + q) e^(−s) is not homogeneous: pq and s have different degrees, and weight decay breaks it."""
    dag = _detour()
    assert count_laws(dag).laws == 2
    count = count_laws(dag, flow=DECAY)
    assert (count.laws, count.status) == (1, "proved")
    assert verify(certificate(count)).facts["laws"] == 1


def test_balances_decay_along_a_real_run():
    """Against a run of the flow itself: c(t) = e^(−2λt) c(0)."""
    network = Architecture.parse("2-3-1 relu bias").initialise(seed=3).to_dag()
    count = count_laws(network, level="near", flow=DECAY)
    x, y, theta, step = np.array([[1.0, -0.5], [0.3, 2.0]]), np.array([[1.0], [-2.0]]), network.theta, 1e-3

    def motion(at):
        eye = np.eye(len(at)) * 1e-6
        loss = [[((network.with_theta(at + s * e).evaluate(x) - y) ** 2).sum() for s in (1, -1)] for e in eye]
        return -np.array([(a - b) / 2e-6 for a, b in loss]) - 0.25 * at

    before = count.known.values(theta)
    for _ in range(200):
        one = motion(theta)
        theta = theta + step * motion(theta + step / 2 * one)
    assert np.abs(theta - network.theta).max() > 0.05
    assert np.allclose(count.known.values(theta), before * np.exp(-2 * 0.25 * 0.2), atol=1e-5)


def test_modules():
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Conv1d(1, 2, 2), torch.nn.ReLU(), torch.nn.Conv1d(2, 1, 2))
    count = count_laws(module, input_shape=(1, 4), flow=DECAY)
    assert (count.laws, count.status, count.states) == (2, "proved", count.parameters + 1)
    proof = certificate(count)
    assert verify(proof).facts["decay"] == 0.25
    proof["known"][0].append([[0], "1"])
    with pytest.raises(CertificateError):
        verify(proof)


def test_forged_certificates_fail():
    proof = certificate(count_laws("1-2-2-1 linear", flow=DECAY))
    for change in ({"decay": -0.25}, {"decay": 0.5, "name": "gradient"}, {"name": "gradient"}):
        forged = deepcopy(proof)
        forged["flow"] |= change
        with pytest.raises(LawfulError):
            verify(forged)
    detour = _detour()
    forged = certificate(count_laws(detour, flow=DECAY))
    source, sink, inner = detour.index["x"], detour.index["y"], [detour.index["h"]]
    forged |= {"laws": 2, "known": [["part", source, sink, inner]]}
    with pytest.raises(CertificateError, match="different lengths"):
        verify(forged)


def test_command_line(lawful):
    found = lawful("laws", "3-4-2 relu bias", "--decay", "0.1", "--json", "--all").json
    assert (found["laws"], found["flow"], found["states"]) == (4, "gradient with weight decay 0.1", 27)
    assert {law["degree"] for law in found["explicit"]} == {2}
    assert "e^(2λt) times each of" in lawful("laws", "3-4-2 relu bias", "--decay", "0.1").stdout
    assert "choose one" in lawful("laws", "3-4-2 relu", "--decay", "0.1", "--momentum", code=2).stderr
    lawful("laws", "3-4-2 relu", "--decay", "-1", code=2)


def test_friction_that_changes_is_refused():
    with pytest.raises(LawfulError, match="GradientFlow"):
        count_laws("2-2-1 relu", flow=HeavyBall(lambda t: 3 / t))
