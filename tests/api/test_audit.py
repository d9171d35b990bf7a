"""The audit against the rooms it asks, on networks whose faults are planted."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest

from lawful import Architecture, LawfulError, Mlp
from lawful.api.audit import audit
from lawful.formats.queries.data import Data
from lawful.sources.files import read, write


@pytest.fixture
def faulty() -> Mlp:
    """3-5-4-1 with a silent neuron, a dead one, a duplicate, and output weights too large for their inputs."""
    rng = np.random.default_rng(0)
    w1, w2, w3 = rng.normal(size=(5, 3)), rng.normal(size=(4, 5)), 20.0 * rng.normal(size=(1, 4))
    b1, b2, b3 = rng.normal(size=5), rng.normal(size=4), rng.normal(size=1)
    w2[:, 0] = 0.0  # h1.0 speaks to nobody
    w1[2], b1[2] = 2.0 * w1[1], 2.0 * b1[1]  # h1.2 is twice h1.1
    w2[3], b2[3] = -np.abs(w2[3]), -1.0  # h2.3 never fires
    return Mlp([w1, w2, w3], [b1, b2, b3])


def test_planted_faults_are_found(faulty: Mlp) -> None:
    found = audit(faulty, source="net.pt")
    assert found.summary.dead == ("h2.3",)
    assert found.pruning.neurons_before - found.pruning.neurons_after == 3
    assert found.pruning.bound == 0.0
    assert found.components.log2_components == 4
    assert found.unlocked is not None
    assert found.laws is not None
    assert (found.laws.laws, found.laws.status) == (9, "proved")
    titles = [each.title for each in found.recommendations]
    assert any("remove 3 neurons" in title for title in titles)
    assert any("free 4 of 4" in title for title in titles)
    assert [each.share for each in found.recommendations] == sorted(
        (e.share for e in found.recommendations), reverse=True
    )
    assert len(found.recommendations) <= 5


def test_every_recommendation_does_what_it_says(faulty: Mlp, tmp_path: Path, lawful) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "net.safetensors"
    write(faulty, path)
    advice = lawful("audit", path, "--json").json["recommendations"]
    assert len(advice) >= 2
    batch = np.random.default_rng(1).normal(size=(200, 3))
    for each in advice:
        words = each["command"].split()
        lawful(*words[1:], cwd=tmp_path)
        result = read(tmp_path / words[words.index("--out") + 1])
        np.testing.assert_allclose(result.evaluate(batch), faulty.evaluate(batch), rtol=1e-9, atol=1e-9)
        after = audit(result, source="net.pt")
        assert each["title"] not in [again.title for again in after.recommendations]


def test_data_are_looked_at(faulty: Mlp) -> None:
    rng = np.random.default_rng(3)
    data = Data(rng.uniform(0.0, 0.1, size=(50, 3)), np.repeat([0.0, 1.0], 25))
    found = audit(faulty, data=data)
    assert [layer.width for layer in found.activity] == [5, 4]
    assert all(sum((t.untruncated, t.partially, t.fully)) == 25 for layer in found.activity for t in layer.truncated)
    assert found.box_pruning is not None
    assert found.box_pruning.neurons_after <= found.pruning.neurons_after
    assert found.data_laws is not None
    assert found.laws is not None
    assert found.data_laws.laws >= found.laws.laws


@pytest.mark.parametrize("effort", ["quick", "normal"])
def test_what_is_too_large_is_named(effort: str) -> None:
    network = Architecture.parse("900-7-4-2 relu bias").initialise(seed=0)
    found = audit(network, effort=effort)
    assert found.laws is None
    assert [part.part for part in found.skipped][:1] == ["proof that there are no other laws"]
    assert all(part.remedy for part in found.skipped)
    with pytest.raises(LawfulError, match="choose from"):
        audit(network, effort="lazy")


def test_networks_of_every_kind(network) -> None:  # type: ignore[no-untyped-def]
    found = audit(network)
    assert found.laws is not None
    assert len(found.balance) == found.summary.hidden


def test_the_command_line(tmp_path: Path, lawful) -> None:  # type: ignore[no-untyped-def]
    np.savez(tmp_path / "d.npz", x=np.random.default_rng(0).normal(size=(30, 4)), y=np.arange(30) % 2)
    page = tmp_path / "audit.html"
    got = lawful("audit", "4-6-1 relu bias", "--data", tmp_path / "d.npz", "--html", page, "--json").json
    assert got["summary"]["parameters"] == 37
    assert [count["level"] for count in got["laws"]] == ["phi", "near", "data"]
    assert len(got["data"]) == 1
    assert page.stat().st_size < 1_000_000
    text = lawful("audit", "4-6-1 relu bias", "--data", tmp_path / "d.npz").stdout
    assert "there are no others" in text
    assert max(len(line) for line in text.splitlines() if not line.startswith("    $ ")) <= 80
    assert "\x1b" not in text
    np.savez(tmp_path / "bad.npz", x=np.ones((3, 9)))
    assert "takes 4" in lawful("audit", "4-6-1 relu", "--data", tmp_path / "bad.npz", code=2).stderr
    assert "choose one" in lawful("audit", "4-6-1 relu", "--quick", "--full", code=2).stderr
    closed = tmp_path / "none" / "page.html"
    assert "its folder does not exist" in lawful("audit", "4-6-1 relu", "--html", closed, code=2).stderr


def test_a_hidden_hyperplane_is_one_dimension_of_freedom() -> None:
    """P4 Section 5: the second layer hides hyperplane 0, which translates."""
    hiding = Mlp([[[1.0, 0.2], [0.3, 1.0]], [[1.0, -1.5]], [[1.0]]], [[0.1, 0.7], [-1.0], [0.0]])
    found = audit(hiding)
    assert found.identifiability is not None
    assert found.identifiability.identifiable is False
    assert found.fiber_dimension == 1
    visible = audit(Mlp([[[1.0, 2.0], [0.5, -1.0]], [[1.0, 1.0]]], [[0.3, 0.1], [0.0]]))
    assert visible.fiber_dimension == 0


def test_shell_characters_in_a_name_are_quoted(faulty: Mlp) -> None:
    (command, *_) = [each.command for each in audit(faulty, source="a b; rm -rf x.pt").recommendations]
    shown = subprocess.run(
        ["sh", "-c", command.replace("lawful", "echo", 1)], capture_output=True, text=True, check=True
    )
    assert "a b; rm -rf x.pt" in shown.stdout
    assert json.dumps(shown.stdout)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of scipy's conjugate gradients, on the way to no answer
def test_weights_of_too_many_magnitudes_end_no_other_answer() -> None:
    """Newton's method finds no rescaling there that frees signs: that part is skipped, with the reason."""
    weights = [[[1.0], [2.0]], [[-1.0, 2.0**-40], [1.0, 2.0**31]], [[2.0, 2.0]]]
    found = audit(Mlp(weights, [[2.0**-39, 1.0], [1.0, 2.0], [2.0]], (0.0, 0.25)), effort="quick")
    assert found.unlocked is None
    assert any("magnitudes" in part.reason for part in found.skipped)
    assert found.pruning.decided is not None
