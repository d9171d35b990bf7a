"""`lawful flow`, `drift` and `compare` as a user runs them."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lawful.cli import main

Lawful = Callable[..., Any]


@dataclass(frozen=True)
class Shown:
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        return json.loads(self.stdout)


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Lawful:
    """The command line in this process: quicker than a process of its own, which the first test below uses."""

    def run(*arguments: object, code: int = 0) -> Shown:
        monkeypatch.setattr(sys, "argv", ["lawful", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        shown = Shown(*capsys.readouterr())
        assert (ended.value.code or 0) == code, shown.stderr or shown.stdout
        return shown

    return run


@pytest.fixture
def data(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "data.npz", x=rng.normal(size=(10, 3)), y=rng.normal(size=(10, 2)))
    return tmp_path / "data.npz"


def test_the_end_of_a_flow_has_one_name_and_an_old_one(here: Lawful, data: Path) -> None:
    """`--time` means seconds in every other verb."""
    arguments = ("flow", "3-2 linear", "--data", data, "--json")
    new, old = here(*arguments, "--until", 0.1), here(*arguments, "--time", 0.1)
    assert new.json == old.json
    assert "old name of --until" in old.stderr
    assert "--until" not in new.stderr
    for verb in ("flow", "compare"):
        assert "give --until alone" in here(verb, "3-2 linear", "--until", 1, "--time", 1, code=2).stderr


def test_flow_drift_and_verify(lawful: Lawful, here: Lawful, tmp_path: Path, data: Path) -> None:
    run, proof = tmp_path / "run", tmp_path / "proof.json"
    arguments = (
        "flow",
        "3-5-2 relu bias",
        "--data",
        data,
        "--until",
        2,
        "--out",
        run,
        "--certificate",
        proof,
        "--json",
    )
    found = lawful(*arguments).json
    assert found["stop"] == {"reason": "time", "time": 2.0, "message": "reached t = 2"}
    assert found["parameters"] == 32
    assert found["laws"] == 5
    assert found["max_drift"] < 1e-9
    assert found["loss_end"] < found["loss_start"]
    assert set(found["kinks"]) == {"crossed", "pinned", "released"}
    assert "exists already" in here(*arguments, code=2).stderr
    drift = lawful("drift", run, "--json", "--plot", tmp_path / "drift.svg").json
    assert [row["law"] for row in drift["drift"]] == [f"h1.{number}" for number in range(5)]
    assert drift["rank"] == {"start": 5, "end": 5, "least": 5}
    assert len(drift["times"]) == len(drift["losses"]) == 101
    assert drift["locked"] == []
    assert (tmp_path / "drift.svg").read_text().startswith("<?xml")
    text = here("drift", run).stdout
    assert text.startswith("5 laws kept to")
    assert max(map(len, text.splitlines())) <= 80
    here("drift", run, "--tolerance", 1e-9)
    here("drift", run, "--tolerance", 0, code=1)
    assert lawful("verify", proof, "--json").json["valid"]
    broken = json.loads(proof.read_text())
    broken["losses"][1][0] = broken["losses"][1][1] * 1.001
    broken["losses"][1][1] = broken["losses"][1][0] + 1.0
    proof.write_text(json.dumps(broken))
    here("verify", proof, code=1)


def test_flow_from_a_config_file(here: Lawful, tmp_path: Path, data: Path) -> None:
    config = tmp_path / "flow.toml"
    lines = (
        'network = "3-4-2 linear"',
        'data = "data.npz"',
        "time = 3",
        'out = "run"',
        "stop_loss = 1.0",
        "decay = 0.1",
    )
    config.write_text("\n".join(lines))
    found = here("flow", config, "--json", "--stop-loss", 0.9).json
    assert found["stop"]["message"].startswith("loss fell below 0.9") or found["stop"]["reason"] == "time"
    assert found["decay"] == 0.1
    assert found["max_drift"] < 1e-9
    assert (tmp_path / "run" / "trajectory.npz").exists()
    for text, words in (("network = 3", "needs network"), ('network = "3-2"\nstep = 1', "unknown setting 'step'"),
                        ('network = "3-2"\ntime = "long"', "wrong type"), ("network = [", "not a TOML")):  # fmt: skip
        config.write_text(text)
        assert words in here("flow", config, code=2).stderr


def test_flow_from_csv_with_other_dynamics(here: Lawful, tmp_path: Path) -> None:
    table = tmp_path / "data.csv"
    rng = np.random.default_rng(0)
    rows = [f"{a},{b},{int(a > b)}" for a, b in rng.normal(size=(12, 2))]
    table.write_text("\n".join(["first,second,y", *rows]))
    ball = here("flow", "2-3-1 relu", "--data", table, "--loss", "bce", "--dynamics", "heavy-ball", "--json").json
    assert ball["dynamics"] == "heavy-ball"
    assert ball["max_drift"] > 1e-9
    held = here("flow", "2-3-2 relu", "--data", table, "--loss", "ce", "--project", "--json").json
    assert held["max_drift"] < 1e-12
    plain = here(
        "flow", "2-3-2 relu", "--data", table, "--loss", "ce", "--ignore-kinks", "--tolerance", 1e-3, "--until", 0.1
    ).stdout
    assert plain.splitlines()[1].startswith("done: reached t = 0.1")


def test_the_flow_of_a_metric(lawful: Lawful, here: Lawful, tmp_path: Path, data: Path) -> None:
    metric, run, proof = tmp_path / "m.npz", tmp_path / "run", tmp_path / "proof.json"
    np.savez(metric, m=np.linspace(0.5, 2.0, 32))
    arguments = ("flow", "3-5-2 relu bias", "--data", data, "--until", 2, "--metric", metric)
    found = lawful(*arguments, "--out", run, "--certificate", proof, "--json").json
    assert (found["laws"], found["metric"]) == (5, str(metric))
    assert found["max_drift"] < 1e-9
    said = here("verify", proof).stdout
    assert said.startswith("verified: at ")
    assert "the mse loss on 10 data" in said
    assert " goes from " in said
    text = here("drift", run).stdout
    assert text.startswith("5 laws under the metric kept to")
    assert "rank of J" not in text
    block = tmp_path / "block.json"
    block.write_text(json.dumps({"blocks": [{"weights": [0, 3], "matrix": [[2.0, 1.0], [1.0, 2.0]]}]}))
    proof.unlink()
    mixed = here(*arguments[:-1], block, "--certificate", proof, "--json").json
    assert mixed["laws"] == 4  # the block joins weights of two neurons: one combination of their balances is left
    assert mixed["max_drift"] < 1e-9
    here("verify", proof)
    np.savez(metric, m=np.ones(31))
    assert "31 entries for 32 parameters" in here(*arguments, code=2).stderr
    assert "leave out" in here(*arguments, "--decay", 0.1, code=2).stderr
    assert "plain gradient flow" in here(*arguments, "--project", code=2).stderr


def test_compare_measures_and_predicts(here: Lawful, tmp_path: Path, data: Path) -> None:
    methods = "flow,sgd:0.1,sgd:0.01,adam:0.01"
    arguments = ("compare", "3-5-2 relu bias", "--data", data, "--until", 2, "--optimizers", methods)
    found = here(*arguments, "--json", "--plot", tmp_path / "compare.svg").json
    flow, coarse, fine, adam = found["optimizers"]
    assert [row["optimizer"] for row in found["optimizers"]] == methods.split(",")
    assert flow["max_drift"] < 1e-9 < fine["max_drift"] < coarse["max_drift"] < adam["max_drift"]
    assert fine["predicted_drift"] == pytest.approx(fine["max_drift"], rel=0.1)
    assert fine["exact_error"] < 1e-12
    assert found["sgd_order"] == pytest.approx(1.0, abs=0.15)
    assert (tmp_path / "compare.svg").exists()
    text = here(*arguments).stdout
    assert max(map(len, text.splitlines())) <= 80
    here("compare", "3-5-2 linear", "--optimizers", "sgd:20", "--until", 400, "--data", data, "--json", code=1)


def test_compare_needs_no_data(here: Lawful) -> None:
    text = here("compare", "2-3-1 relu", "--optimizers", "flow,sgd:0.1", "--until", 0.5).stdout
    assert text.splitlines()[1].startswith("no data given")


RESIDUAL = """
import torch
from torch import nn
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(3, 2), nn.Linear(2, 3)
    def forward(self, x):
        return x + self.outer(torch.relu(self.inner(x)))
def residual():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 3), Block(), nn.Linear(3, 1))
def convolution():
    torch.manual_seed(0)
    return nn.Sequential(nn.Unflatten(1, (1, 2)), nn.Conv1d(1, 2, 2), nn.ReLU(), nn.Flatten(), nn.Linear(2, 1))
"""


@pytest.mark.parametrize(("factory", "laws"), [("residual", "1.inner"), ("convolution", "1")])
def test_modules_whose_graph_folds_weights_flow_and_keep_their_balances(
    here: Lawful, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, factory: str, laws: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folded.py").write_text(RESIDUAL)
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "d.npz", x=rng.normal(size=(6, 2)), y=rng.normal(size=(6, 1)))
    here("flow", f"folded:{factory}", "--data", "d.npz", "--until", 0.5, "--out", "run")
    found = here("drift", "run", "--json").json
    assert {row["law"] for row in found["drift"]} >= {f"{laws}.0", f"{laws}.1"}
    assert found["max_drift"] < 1e-9
    assert len(found["drift"]) == {"residual": 2 + 6, "convolution": 2}[factory]  # GL(3) acts on the residual stream


def test_a_module_that_is_no_network_flows(here: Lawful, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shop.py").write_text(
        "import torch\n"
        "def make():\n"
        "    torch.manual_seed(0)\n"
        "    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))\n"
    )
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "data.npz", x=rng.normal(size=(6, 3)), y=rng.normal(size=(6, 2)))
    found = here("flow", "shop:make", "--data", "data.npz", "--out", "run", "--json").json
    assert found["laws"] == 0
    assert found["loss_end"] < found["loss_start"]
    text = here("drift", "run").stdout
    assert text.startswith("no laws are known")
    assert "needs --data" in here("flow", "shop:make", code=2).stderr
    with (tmp_path / "shop.py").open("a") as file:
        file.write("def cut():\n    return torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Threshold(0.1, 0.1))\n")
    import shop

    importlib.reload(shop)
    cut = ("flow", "shop:cut", "--data", "data.npz", "--until", 0.01, "--tolerance", 1e-3)
    assert "kinks of threshold are not located" in here(*cut).stdout


def test_early_stops_have_their_exit_codes(here: Lawful, tmp_path: Path, data: Path) -> None:
    run = tmp_path / "run"
    stopped = here("flow", "3-5-2 relu", "--data", data, "--until", 50, "--max-evaluations", 50, "--out", run, code=3)
    assert stopped.stdout.splitlines()[1].startswith("STOPPED EARLY")
    assert here("drift", run, "--json").json["stop"]["reason"] == "evaluations"


def test_ctrl_c_saves_the_run(here: Lawful, tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def impatient(words: str, part: float) -> None:
        if part > 0.5:
            raise KeyboardInterrupt

    monkeypatch.setattr("lawful.cli.flow.bar", lambda name: nullcontext(impatient))
    run = tmp_path / "run"
    shown = here("flow", "3-5-2 relu bias", "--data", data, "--until", 2, "--out", run, code=130)
    assert "interrupted at t = 1" in shown.stdout
    found = here("drift", run, "--json").json
    assert found["stop"]["reason"] == "interrupted"
    assert 50 <= len(found["times"]) < 101


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("flow", "4-5-2 relu", "--data", "DATA"), "3 columns, but the network takes 4"),
        (("flow", "3-5-1 relu", "--data", "DATA"), "1 output, but the data have 2 targets"),
        (("flow", "3-5-2 relu", "--data", "DATA", "--loss", "bce"), "between 0 and 1"),
        (("flow", "3-5-2 relu", "--data", "DATA", "--loss", "ce"), "one class number per sample"),
        (("flow", "3-5-2 relu", "--data", "DATA", "--loss", "hinge"), "unknown loss"),
        (("flow", "3-5-2 relu", "--data", "absent.npz"), "absent.npz"),
        (("flow", "3-5-2 relu", "--until", "0"), "positive and finite"),
        (("flow", "3-5-2 relu", "--dynamics", "quantum"), "unknown dynamics"),
        (("flow", "3-5-2 relu", "--snapshots", "1"), "at least 2 snapshots"),
        (("flow", "3-5-2 relu", "--project", "--decay", "1"), "plain gradient flow"),
        (("flow", "3-5-2 relu", "--out", "absent/run"), "does not exist"),
        (("drift", "absent"), "no such run folder"),
        (("compare", "3-5-2 relu", "--optimizers", "lion:1"), "unknown optimizer"),
        (("compare", "3-5-2 relu", "--optimizers", ""), "at least one optimizer"),
        (("compare", "3-5-2 relu", "--optimizers", "flow", "--plot", "figure.gif"), "figures end in"),
    ],
)
def test_bad_input_is_one_line(
    here: Lawful, data: Path, arguments: tuple[str, ...], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(data.parent)
    shown = here(*(str(data) if part == "DATA" else part for part in arguments), code=2).stderr
    assert words in shown
    assert shown.count("\n") == 1


def test_data_without_targets_are_refused(here: Lawful, tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", x=np.ones((3, 2)))
    assert "has no targets" in here("flow", "2-3-1 relu", "--data", tmp_path / "x.npz", code=2).stderr
