"""What all verbs have in common: how a network is named, how a loss is named, how a mistake is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
import typer
from command_line import in_process
from torch import nn

from lawful.cli import app

VERBS: dict[str, Any] = dict(typer.main.get_command(app).commands)  # type: ignore[attr-defined]
NETWORKS = ("network", "first", "second", "start", "stop", "networks", "files", "source")
READING = ("--model", "--activation", "--order", "--input")


def options(verb: str) -> set[str]:
    return {name for parameter in VERBS[verb].params for name in parameter.opts}


def takes_network(verb: str) -> bool:
    arguments = {each.name for each in VERBS[verb].params if each.param_type_name == "argument"}
    return bool(arguments & set(NETWORKS))


def test_verbs_that_take_a_network_say_how_to_read_it() -> None:
    taking = [verb for verb in VERBS if takes_network(verb)]
    assert len(taking) > 20
    assert {verb: sorted(set(READING) - options(verb)) for verb in taking if set(READING) - options(verb)} == {}


@pytest.mark.parametrize("verb", VERBS)
def test_mistakes_of_usage_are_one_object_with_json(lawful: Any, verb: str) -> None:
    for arguments in (("--no-such-option",), ("--seed", "not-a-number", "x", "y")):
        run = lawful(verb, *arguments, "--json", code=2)
        assert set(json.loads(run.stdout)) == {"error", "hint", "exit"}
        assert json.loads(run.stdout)["exit"] == 2


FACTORY = """
from torch import nn

def make():
    return nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))

def smooth():
    return nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1))
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "verb_nets.py").write_text(FACTORY)
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    safetensors.torch.save_file(net.state_dict(), tmp_path / "a.safetensors")
    rows = np.random.default_rng(0).normal(size=(6, 3)).round(3)
    (tmp_path / "d.csv").write_text("a,b,y\n" + "\n".join(",".join(map(str, row)) for row in rows) + "\n")
    (tmp_path / "s.vnnlib").write_text(
        "".join(f"(declare-const {name} Real)\n" for name in ("X_0", "X_1", "Y_0"))
        + "".join(f"(assert (<= X_{k} 1.0))\n(assert (>= X_{k} 0.0))\n" for k in (0, 1))
        + "(assert (>= Y_0 100.0))\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


ANSWERS: dict[str, tuple[str, ...]] = {
    "show": ("a.safetensors",),
    "convert": ("a.safetensors", "b.json"),
    "laws": ("a.safetensors",),
    "symmetries": ("a.safetensors", "--input", "2"),
    "components": ("a.safetensors",),
    "path": ("a.safetensors", "a.safetensors"),
    "rebalance": ("a.safetensors",),
    "singular": ("a.safetensors",),
    "prune": ("a.safetensors",),
    "flow": ("a.safetensors", "--data", "d.csv", "--until", "0.1"),
    "compare": ("a.safetensors", "--data", "d.csv", "--until", "0.1", "--optimizers", "sgd:0.1"),
    "truncate": ("a.safetensors", "--clusters", "2,5,0.1"),
    "bottleneck": ("a.safetensors", "--data", "d.csv", "--blocks", "0,1,2"),
    "same": ("a.safetensors", "a.safetensors"),
    "align": ("a.safetensors", "a.safetensors", "--input", "2"),
    "merge": ("a.safetensors", "a.safetensors", "--input", "2"),
    "fiber": ("a.safetensors",),
    "identifiable": ("a.safetensors",),
    "regions": ("a.safetensors",),
    "canonical": ("a.safetensors",),
    "fingerprint": ("a.safetensors",),
    "distance": ("a.safetensors", "a.safetensors", "--box=0,1"),
    "check": ("a.safetensors", "s.vnnlib"),
    "audit": ("a.safetensors", "--quick"),
    "diff": ("a.safetensors", "a.safetensors"),
    "explore": ("a.safetensors", "--html", "page.html"),
}


@pytest.mark.parametrize("verb", ANSWERS)
def test_what_is_assumed_is_said_and_goes_away_when_told(folder: Path, verb: str) -> None:
    """Weights alone do not name their activation: that is assumed, unless the user or the module says it."""
    guessed = in_process(verb, *ANSWERS[verb], "--json").json["reading"]["assumed"]
    assert len(guessed) == 1
    assert guessed[0].startswith("ReLU between the layers")
    assert "assumed: ReLU between the layers" in in_process(verb, *ANSWERS[verb]).stdout
    for told in (("--activation", "relu"), ("--model", "verb_nets:make")):
        assert in_process(verb, *ANSWERS[verb], *told, "--json").json["reading"]["assumed"] == []
        assert "assumed:" not in in_process(verb, *ANSWERS[verb], *told).stdout


def test_every_verb_that_takes_a_network_is_asked() -> None:
    assert {verb for verb in VERBS if takes_network(verb)} - {"verify"} <= set(ANSWERS)


@pytest.mark.parametrize("verb", [verb for verb in VERBS if "--loss" in options(verb)])
def test_losses_have_one_vocabulary(lawful: Any, folder: Path, verb: str) -> None:
    data = () if verb == "laws" else ("--data", "d.csv")
    arguments = [each for each in ANSWERS[verb] if each not in ("--data", "d.csv")]
    wrong = lawful(verb, *arguments, *data, "--loss", "hinge", code=2).stderr
    assert "mse" in wrong
    assert "cross-entropy" in wrong
    for name in ("mse", "squared", "MSE"):
        lawful(verb, *arguments, *data, "--loss", name, code=0)


def test_verbs_about_graphs_say_what_prevents_one_and_what_works(lawful: Any, folder: Path) -> None:
    assert "no balances" in lawful("singular", "verb_nets:smooth", code=2).stderr
    for verb in ("fiber", "regions", "identifiable"):
        run = lawful(verb, "verb_nets:smooth", code=2)
        assert "tanh" in run.stderr.lower()
        assert "laws" in run.stderr
    for verb in ("canonical", "fingerprint"):  # these know the symmetries of any module
        lawful(verb, "verb_nets:smooth", code=0)


def test_the_mode_of_normalisation_is_said_where_it_was_not_chosen(folder: Path) -> None:
    text = "\n\ndef normed():\n    parts = nn.Linear(2, 3), nn.BatchNorm1d(3), nn.ReLU(), nn.Linear(3, 1)\n"
    (folder / "verb_normed.py").write_text("from torch import nn" + text + "    return nn.Sequential(*parts)\n")
    for verb, words in (("laws", "train mode"), ("symmetries", "train mode"), ("show", "eval mode")):
        more = ["--input", "2"] if verb == "symmetries" else []
        assumed = in_process(verb, "verb_normed:normed", *more, "--json").json["reading"]["assumed"]
        assert len(assumed) == 1
        assert words in assumed[0]
        if verb != "show":
            told = in_process(verb, "verb_normed:normed", *more, "--mode", "eval", "--json").json
            assert told["reading"]["assumed"] == []


def test_random_weights_are_said_where_the_answer_rests_on_them() -> None:
    assert in_process("laws", "2-3-1 relu", "--json").json["reading"]["assumed"] == []
    near = in_process("laws", "2-3-1 relu", "--near", "--json").json["reading"]["assumed"]
    assert [each[:14] for each in near] == ["random weights"]
