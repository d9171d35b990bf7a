"""Run folders and certificates: round trips, damage, and a verifier that can fail."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lawful import Architecture, CertificateError, LawfulError, NotACertificate
from lawful.training import GradientFlow, HeavyBall, integrate, known_laws, problem, singular_values
from lawful.training.integration.runs import certificate, load, record, save
from lawful.verify import verify


def make(text: str = "3-5-2 relu bias", loss: str = "mse", decay: float = 0.0) -> tuple[Any, ...]:
    network = Architecture.parse(text).initialise(seed=0)
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(8, 3)), rng.normal(size=(8, 2))
    y = {"mse": y, "bce": (y > 0).astype(float), "ce": y.argmax(axis=1)}[loss]
    return network, x, y, integrate(problem(network, x, y, loss), 2.0, GradientFlow(decay), snapshots=11)


def test_a_run_reads_back_whole(tmp_path: Path) -> None:
    network, _, _, flow = make()
    run = record(flow, known_laws(network), network, {"loss": "mse", "decay": 0.0})
    save(run, tmp_path / "run")
    back = load(tmp_path / "run")
    for name in ("times", "theta", "losses", "gradient_norms", "kinks", "stop", "evaluations"):
        np.testing.assert_equal(getattr(back.trajectory, name), getattr(flow, name))
    assert back.law_names == run.law_names
    assert back.max_drift == run.max_drift < 1e-9
    assert back.ranks() == (5,) * 11
    assert back.network is not None
    np.testing.assert_array_equal(back.network.theta, network.theta)
    with pytest.raises(LawfulError, match="exists already"):
        save(run, tmp_path / "run")
    with pytest.raises(LawfulError, match="does not exist"):
        save(run, tmp_path / "absent" / "run")


def test_a_run_is_readable_without_this_package(tmp_path: Path) -> None:
    network, _, _, flow = make()
    save(record(flow, known_laws(network), network), tmp_path / "run")
    arrays = np.load(tmp_path / "run" / "trajectory.npz")
    assert {"times", "theta", "losses", "laws", "law_names", "kink_times", "singular_values"} <= set(arrays.files)
    words = json.loads((tmp_path / "run" / "run.json").read_text())
    assert words["stop"]["reason"] == "time"


def test_heavy_ball_runs_keep_their_velocity(tmp_path: Path) -> None:
    network, x, y, _ = make()
    flow = integrate(problem(network, x, y), 1.0, HeavyBall(), snapshots=3)
    save(record(flow, known_laws(network), network), tmp_path / "run")
    np.testing.assert_array_equal(load(tmp_path / "run").trajectory.velocity, flow.velocity)


def test_damaged_runs_are_refused(tmp_path: Path) -> None:
    network, _, _, flow = make()
    with pytest.raises(LawfulError, match="no such run folder"):
        load(tmp_path / "absent")
    save(record(flow, known_laws(network), network), tmp_path / "run")
    words, arrays = tmp_path / "run" / "run.json", tmp_path / "run" / "trajectory.npz"
    kept = words.read_text(), arrays.read_bytes()
    words.write_text("{}")
    with pytest.raises(LawfulError, match="not of format"):
        load(tmp_path / "run")
    words.write_text(kept[0])
    arrays.write_bytes(kept[1][:300])
    with pytest.raises(LawfulError, match="not a zip archive"):
        load(tmp_path / "run")
    np.savez(arrays, times=np.zeros(2))
    with pytest.raises(LawfulError, match="incomplete or damaged"):
        load(tmp_path / "run")


def test_singular_values_are_those_of_the_matrix() -> None:
    network = Architecture.parse("3-5-4-2 relu bias").initialise(seed=0)
    dense = 2.0 * network.to_dag().hidden_incidence.toarray() * network.theta
    np.testing.assert_allclose(
        singular_values(network, network.theta), np.linalg.svd(dense, compute_uv=False), atol=1e-12
    )


@pytest.mark.parametrize(("text", "loss", "decay"), [
    ("3-5-2 relu bias", "mse", 0.0), ("3-4-2 linear", "bce", 0.1), ("3-4-4-2 relu skip(1,2)", "ce", 0.0),
])  # fmt: skip
def test_certificates_verify_after_json(text: str, loss: str, decay: float) -> None:
    network, x, y, flow = make(text, loss, decay)
    verify(json.loads(json.dumps(certificate(network, x, y, loss, flow, decay))))


BREAKS = {
    "loss at snapshot 1": lambda given: given["losses"].__setitem__(1, [value + 1e-6 for value in given["losses"][1]]),
    "drifts by more": lambda given: given.update(drift=0.0),
    "'network' is missing": lambda given: given.pop("network"),
    "losses: expected 4": lambda given: given["losses"].pop(),
    "loss: expected one of": lambda given: given.update(loss="hinge"),
    "do not increase": lambda given: given["times"].reverse(),
    "x: expected 3": lambda given: given.update(x=[[1.0]] * 8),
    "wrong order": lambda given: given["losses"][0].reverse(),
    "not a JSON object": lambda given: given["losses"].__setitem__(0, [float("nan")] * 2),
    "not those of the networks": lambda given: given["about"].reverse(),
}


@pytest.mark.parametrize("words", BREAKS)
def test_broken_certificates_are_rejected(words: str) -> None:
    network, x, y, flow = make()
    given = copy.deepcopy(certificate(network, x, y, "mse", flow))
    assert verify(given, network.with_theta(flow.theta[-1])).given == (1,)
    BREAKS[words](given)
    with pytest.raises((CertificateError, NotACertificate), match=words):
        verify(given)


def test_heavy_balls_have_no_certificate() -> None:
    network, x, y, _ = make()
    flow = integrate(problem(network, x, y), 0.5, HeavyBall())
    with pytest.raises(LawfulError, match="not for heavy balls"):
        certificate(network, x, y, "mse", flow)
