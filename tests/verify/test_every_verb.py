"""Every verb with a definite answer saves a certificate that verifies for what it was asked, or says it has none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from command_line import in_process

from lawful.cli import app
from lawful.cli.evidence import NONE, PLAIN, option_of
from lawful.network import Architecture, Mlp
from lawful.sources.files import write

COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """A network, one of the same function, one with other signs, and data."""
    rng = np.random.default_rng(0)
    first, second = rng.normal(size=(3, 2)), rng.normal(size=(1, 3))
    bias = rng.normal(size=3)
    turned = Mlp([first[::-1], second[:, ::-1]], [bias[::-1], [0.25]])
    networks = {"a": Mlp([first, second], [bias, [0.25]]), "b": turned, "c": Mlp([-first, second], [-bias, [0.25]])}
    for name, network in networks.items():
        write(network, tmp_path / f"{name}.json")
    x = np.concatenate([rng.normal(size=(4, 2)), 6 + rng.normal(size=(4, 2))])
    np.savez(tmp_path / "d.npz", x=x, y=np.repeat([0, 1], 4))
    np.savez(tmp_path / "t.npz", x=x, y=x[:, :1])
    return {path.stem: str(path) for path in tmp_path.iterdir()}


# verb: its arguments, and what the certificate is about; {a} is a file
ANSWERS: dict[str, tuple[list[str], list[str]]] = {
    "laws": (["{a}", "--near"], ["{a}"]),
    "components": (["{a}"], ["{a}"]),
    "path": (["{a}", "{c}"], ["{a}", "{c}"]),
    "rebalance": (["{a}"], ["{a}"]),
    "singular": (["{a}", "--exist"], ["{a}"]),
    "prune": (["{a}"], ["{a}"]),
    "same": (["{a}", "{b}"], ["{a}", "{b}"]),
    "distance": (["{a}", "{c}", "--box=-1,1", "--seconds", "2"], ["{a}", "{c}"]),
    "identifiable": (["{a}"], ["{a}"]),
    "regions": (["{a}"], ["{a}"]),
    "canonical": (["{a}"], ["{a}"]),
    "flow": (["{a}", "--data", "{t}", "--until", "0.1"], ["{a}", "{t}"]),
    "separate": (["--data", "{d}"], ["{d}"]),
}
ELSEWHERE = {"bottleneck", "check"}  # shown in the tests of their own rooms


def test_every_verb_is_one_of_three() -> None:
    for name, command in COMMANDS.items():
        if option_of(command) is None:
            assert (name in NONE) is not (name in PLAIN), f"{name}: say in cli/evidence.py why nothing certifies it"


def test_every_verb_with_a_certificate_is_tried_here() -> None:
    certifying = {name for name, command in COMMANDS.items() if option_of(command) is not None and name not in NONE}
    assert certifying - ELSEWHERE <= set(ANSWERS)


@pytest.mark.parametrize("verb", ANSWERS)
def test_a_definite_answer_has_a_certificate(verb: str, files: dict[str, str], tmp_path: Path, lawful: Any) -> None:
    proof = tmp_path / "proof.json"
    arguments, about = ([text.format(**files) for text in texts] for texts in ANSWERS[verb])
    option = option_of(COMMANDS[verb])
    done = in_process(verb, *arguments, option, proof, "--json")
    assert done.returncode in (0, 1), done.stderr
    assert "lawful verify" in done.json["evidence"]
    assert f"lawful verify {proof}" in done.stderr
    checked = lawful("verify", proof, *about, "--json").json
    assert checked["valid"]
    assert len(set(checked["given"])) == len(about)
    lawful("verify", proof, "5-4-3 relu", code=1)


@pytest.mark.parametrize("verb", ["fiber", "fingerprint"])
def test_an_answer_without_one_says_so(verb: str, files: dict[str, str], lawful: Any) -> None:
    assert lawful(verb, files["a"], "--json").json["certified"] is False
    assert f"not certified: {NONE[verb]}" in lawful(verb, files["a"]).stderr


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_rounded_standard_member_is_certified_as_it_was_stored(dtype: str, tmp_path: Path, lawful: Any) -> None:
    """The certificate is about the file that was written, not about numbers that nobody has."""
    source, out, proof = (tmp_path / name for name in ("a.safetensors", "o.safetensors", "proof.json"))
    write(Architecture.parse("2-5-4-1 relu bias").initialise(seed=0), source, dtype=dtype)
    assert "stored as" in lawful("canonical", source, "--out", out, "--certificate", proof).stdout
    checked = lawful("verify", proof, source, out, "--json").json
    assert len(set(checked["given"])) == 2
    assert not checked["statement"].endswith("exactly")


@pytest.mark.parametrize("verb", ["rebalance"])
def test_a_rounded_file_that_is_not_certified_is_said_not_to_be(verb: str, tmp_path: Path, lawful: Any) -> None:
    source, out, proof = (tmp_path / name for name in ("a.safetensors", "o.safetensors", "proof.json"))
    write(Architecture.parse("2-5-4-1 relu bias").initialise(seed=0), source, dtype="float32")
    said = lawful(verb, source, "--out", out, "--certificate", proof).stdout
    assert f"not certified: {out}" in said
    lawful("verify", proof, source)
    lawful("verify", proof, source, out, code=1)
