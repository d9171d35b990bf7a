"""The verbs `singular` and `prune` as a user runs them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from command_line import Run, in_process

from lawful.errors import CertificateError, NotACertificate
from lawful.network import Architecture, Mlp
from lawful.sources.files import read, write
from lawful.verify import verify


def lawful(*arguments: object) -> Run:
    return in_process(*arguments)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    mlp = Architecture.parse("3-6-2 relu bias").initialise(seed=1)
    assert isinstance(mlp, Mlp)
    weights = [weight.copy() for weight in mlp.weights]
    weights[0][0], weights[1][:, 4] = 0.0, 0.0
    write(Mlp(weights, mlp.biases), tmp_path / "net.safetensors")
    return tmp_path / "net.safetensors"


def test_prune_writes_the_same_function(file: Path) -> None:
    out = file.with_name("small.safetensors")
    run = lawful("prune", file, "--out", out, "--verify", "--json")
    assert run.returncode == 0, run.stderr
    result = json.loads(run.stdout)
    assert {"neurons_before", "neurons_after", "parameters_before", "parameters_after", "max_output_change_bound",
            "measured_change", "rank"} <= set(result)  # fmt: skip
    assert (result["neurons_before"], result["neurons_after"], result["max_output_change_bound"]) == (6, 4, 0)
    assert result["verified"]
    assert result["measured_change"] < 1e-12
    batch = np.random.default_rng(0).normal(size=(20, 3))
    assert np.allclose(read(out).evaluate(batch), read(file).evaluate(batch), atol=1e-12)


def test_prune_speaks_to_people(file: Path) -> None:
    run = lawful("prune", file, "--box=-1,1", "--tolerance", 0.5)
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines()[0].endswith("parameters")
    assert "no output moves by more than" in run.stdout
    assert all(len(line) <= 80 for line in run.stdout.splitlines())


def test_singular_reports_rank_and_spectrum(file: Path) -> None:
    result = json.loads(lawful("singular", file, "--json").stdout)
    assert result["rank"] == result["rank_by_singular_values"] == 6
    assert len(result["singular_values"]) == 6
    text = lawful("singular", "3-4-2 relu", "--exist").stdout
    assert "regular: rank J = 4 of 4 hidden neurons" in text
    assert "singular points on H(c): no" in text


def test_exit_codes_and_messages(file: Path) -> None:
    assert lawful("singular", "2-40-40-1 relu", "--exist").returncode == 3
    for wrong in (("prune", file, "--box", "1"), ("prune", file, "--box=1,-1"), ("singular", file, "--tolerance=-1")):
        run = lawful(*wrong)
        assert run.returncode == 2, wrong
        assert run.stderr.startswith("lawful: ")
        assert len(run.stderr.splitlines()) == 1


def test_a_box_from_a_file(file: Path) -> None:
    np.savez(file.with_name("box.npz"), low=np.zeros(3), high=np.ones(3))
    result = json.loads(lawful("prune", file, "--box", file.with_name("box.npz"), "--json").stdout)
    assert result["box"] == [[0, 0, 0], [1, 1, 1]]


def test_a_saved_certificate_is_checked_again(file: Path) -> None:
    proof = file.with_name("proof.json")
    assert lawful("prune", file, "--box=-1,1", "--tolerance", 0.3, "--certificate", proof).returncode == 0
    checked = lawful("verify", proof)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert checked.stdout.startswith("verified: ")
    claim = json.loads(proof.read_text())
    wrong = [{"max_output_change_bound": 0.0}, {"neurons_after": 0}, {"box": None}, {"stages": claim["stages"][:1]}]
    moved = json.loads(proof.read_text())["stages"]
    moved[-1]["after"]["weights"][0] += 1e-3
    for change in (*wrong, {"stages": moved}, {"stages": 3}):
        with pytest.raises((CertificateError, NotACertificate)):
            verify(claim | change)
    proof.write_text(json.dumps(claim | wrong[0]))
    assert lawful("verify", proof).returncode == 1
