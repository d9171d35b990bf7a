"""The verbs components, path and rebalance, and their certificates, as a user runs them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lawful import Architecture
from lawful.invariant_set import generic_point
from lawful.invariant_set.balance import balance
from lawful.sources.files import read, write

TOY = Path(__file__).parents[2] / "examples" / "data" / "toy.json"
Lawful = Callable[..., Any]


def saved(folder: Path, name: str, seed: int, text: str = "2-4-3-1", c: list[float] | None = None) -> Path:
    graph = Architecture.parse(text).to_dag()
    write(generic_point(graph, c or [1.0, 0.0, -1.0, 2.0, 1.0, 0.5, 2.0], seed=seed), folder / name)
    return folder / name


def test_components_of_the_toy_dag(lawful: Lawful) -> None:
    """P0 Figure 2d at θ_e = 1."""
    got = lawful("components", TOY, "--json").json
    assert got["connected"] is False
    assert got["log2_components"] == 1
    (lock,) = got["locked"]
    assert lock["edge"] == ["4", "5"]
    assert lock["sign"] == 1
    assert lock["barrier"] == pytest.approx(1)
    assert sorted(lock["certificate"]) == ["2", "3", "4"]
    assert sorted(got["free_bottlenecks"]) == [["3", "4"], ["x1", "2"]]
    assert got["balance"] == pytest.approx({"2": -5, "3": 1, "4": 3})
    assert got["tolerance"] == 0
    assert got["exact"] is True
    assert got["outputs"][0]["confined"] == "above"
    text = lawful("components", TOY).stdout
    assert text.startswith("disconnected: 2^1 = 2 components")
    assert max(map(len, text.splitlines())) <= 80


def test_another_balance_and_the_exact_mode(lawful: Lawful, tmp_path: Path) -> None:
    file = tmp_path / "c.json"
    file.write_text('{"2": -3, "3": 0.1, "4": "29/10"}')
    got = lawful("components", TOY, "--balance", file, "--exact", "--json").json
    assert got["connected"] is True
    assert got["tolerance"] == 0
    assert got["balance"] == {"2": "-3", "3": "1/10", "4": "29/10"}
    file.write_text("[-3.000001, 0.1, 2.9]")
    assert lawful("components", TOY, "--balance", file, "--json").json["log2_components"] == 1
    file.write_text("[1, 1]")
    assert lawful("components", "1-2-1", "--balance", file, "--json").json["locked"][0]["sign"] is None


def test_certificates_verify_and_tampered_ones_do_not(lawful: Lawful, tmp_path: Path) -> None:
    proof = tmp_path / "proof.json"
    for network in (TOY, "3-6-5-1 relu bias"):
        lawful("components", network, "--certificate", proof)
        assert lawful("verify", proof).stdout.startswith("verified: the invariant set")
    content = json.loads(proof.read_text())
    proof.write_text(json.dumps(content | {"log2_components": content["log2_components"] + 1}))
    assert "REJECTED" in lawful("verify", proof, code=1).stdout


def test_path_between_two_networks(lawful: Lawful, tmp_path: Path) -> None:
    first, second = saved(tmp_path, "a.npz", 1), saved(tmp_path, "b.npz", 2)
    got = lawful("path", first, second, "--json", "--points", 30, "--out", tmp_path / "path.npz").json
    assert got["connected"] is True
    assert got["max_residual"] < 1e-12
    points = np.load(tmp_path / "path.npz")
    graph = read(first).to_dag()
    assert points["theta"].shape == (30, graph.parameters)
    assert points["theta"][0] == pytest.approx(graph.theta)
    assert points["theta"][-1] == pytest.approx(read(second).to_dag().theta)
    for theta in points["theta"]:
        assert balance(graph.with_theta(theta)) == pytest.approx(balance(graph), abs=1e-12)


def test_no_path_between_components_or_invariant_sets(lawful: Lawful, tmp_path: Path) -> None:
    c = [1.0, 0.0, -1.0, 2.0, -1.0, -0.5, -2.0]
    graph = read(saved(tmp_path, "a.npz", 1, c=c)).to_dag()
    write(graph.with_theta(graph.theta * np.where(np.arange(graph.parameters) < 21, 1, -1)), tmp_path / "b.npz")
    got = lawful("path", tmp_path / "a.npz", tmp_path / "b.npz", "--json", code=1).json
    assert got["connected"] is False
    assert got["locked"] == [["h2.1", "y0"], ["h2.2", "y0"]]
    other = lawful("path", tmp_path / "a.npz", saved(tmp_path, "c.npz", 1), code=1).stdout
    assert "different invariant sets: 3 neurons" in other


def test_rebalance_writes_the_same_function(lawful: Lawful, tmp_path: Path) -> None:
    write(Architecture.parse("3-5-4-1 relu bias").initialise("uniform", seed=4), tmp_path / "a.safetensors")
    before = read(tmp_path / "a.safetensors")
    batch = np.random.default_rng(0).normal(size=(50, 3))
    wanted = tmp_path / "c.json"
    wanted.write_text(json.dumps([0.5] * 5 + [-0.25] * 4))
    for choice, expected in (("zero", [0.0] * 9), (wanted, [0.5] * 5 + [-0.25] * 4)):
        out = tmp_path / "out.safetensors"
        got = lawful("rebalance", tmp_path / "a.safetensors", "--balance", choice, "--out", out, "--json").json
        assert got["residual"] < 1e-14
        assert got["function_change"] < 1e-14
        assert got["reached"] is True
        after = read(out)
        assert type(after) is type(before)
        assert balance(after) == pytest.approx(expected, abs=1e-14)
        assert after.evaluate(batch) == pytest.approx(before.evaluate(batch))


def test_unlock_and_the_way_back(lawful: Lawful, tmp_path: Path) -> None:
    locked = saved(tmp_path, "a.npz", 1, c=[1.0, 0.0, -1.0, 2.0, -1.0, -0.5, -2.0])
    out = tmp_path / "free.npz"
    got = lawful("rebalance", locked, "--balance", "unlock", "--out", out, "--json").json
    assert (got["log2_components_before"], got["log2_components_after"]) == (3, 0)
    assert lawful("components", out, "--json").json["connected"] is True
    assert "locked weights: 3 before, 0 after" in lawful("rebalance", locked, "--balance", "unlock").stdout


MODULES = """
import torch
from torch import nn


def shared_kernel():
    model = nn.Sequential(nn.Conv1d(1, 1, 1), nn.ReLU(), nn.Flatten(), nn.Linear(2, 1)).double()
    with torch.no_grad():
        for part, value in zip(model.parameters(), ([1.0], [0.0], [2.0, -2.0], [0.0])):
            part.copy_(torch.tensor(value).reshape(part.shape))
    return model


class Skip(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.last = nn.Linear(2, 2), nn.Linear(2, 1)

    def forward(self, x):
        return self.last(x + self.inner(x).relu())


def frozen():
    model = plain()
    model[0].requires_grad_(False)
    return model


def twice():
    layer = nn.Linear(2, 2)
    return nn.Sequential(layer, nn.ReLU(), layer, nn.ReLU(), nn.Linear(2, 1))


def normed():
    return nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.ReLU(), nn.Linear(3, 1))


def everywhere():
    return nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(6, 1))


def plain():
    return nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Dropout(0.1), nn.Linear(3, 1))
"""


@pytest.mark.parametrize(
    ("name", "size", "balances", "code"),
    [
        ("shared_kernel", "1,2", 1, 0),
        ("Skip", "2", 0, 0),
        ("frozen", "2", 0, 0),
        ("twice", "2", 0, 0),
        ("normed", "2", 3, 3),  # the dead biases before batch normalisation are laws as well
        ("everywhere", "2,2", 3, 0),
    ],
)
def test_weights_that_are_not_one_number_an_edge_have_the_balances_of_their_module(
    lawful: Lawful, tmp_path: Path, name: str, size: str, balances: int, code: int
) -> None:
    """The first has f = 1, w = (2, −2): one law, not two, and w₂ does cross zero in training."""
    (tmp_path / f"entangled_{name}.py").write_text(MODULES)
    named = (f"entangled_{name}:{name}", "--input", size, "--json")
    got = lawful("components", *named, code=code, cwd=tmp_path).json
    assert len(got["balance"]) == balances
    assert got["locked"] == [] or name == "normed"
    assert lawful("rebalance", *named, cwd=tmp_path).json["reached"] is True


def test_a_chain_of_its_own_weights_is_not_refused(lawful: Lawful, tmp_path: Path) -> None:
    (tmp_path / "chains.py").write_text(MODULES)
    assert "connected" in lawful("components", "chains:plain", cwd=tmp_path).stdout


def test_onnx_files_likewise(lawful: Lawful, tmp_path: Path) -> None:
    import torch
    from torch import nn

    write(Architecture.parse("2-3-1 relu bias").initialise(), tmp_path / "plain.onnx")
    assert "connected" in lawful("components", tmp_path / "plain.onnx").stdout
    model = nn.Sequential(nn.Conv1d(1, 1, 1), nn.ReLU(), nn.Flatten(), nn.Linear(2, 1))
    torch.onnx.export(model, (torch.zeros(1, 1, 2),), tmp_path / "shared.onnx", dynamo=False)
    assert (
        "its 1 balance" in lawful("components", tmp_path / "shared.onnx").stdout
    )  # the kernel's, not one for each place
    assert lawful("rebalance", tmp_path / "shared.onnx", "--json").json["reached"] is True
    assert "differ" in lawful("path", tmp_path / "plain.onnx", tmp_path / "shared.onnx", code=2).stderr


def test_extreme_scales_and_stated_tolerances(lawful: Lawful, tmp_path: Path) -> None:
    file = tmp_path / "g.json"
    edges = [["a", "h", 0.0], ["a", "k", 1e200], ["h", "y", -1e200], ["k", "y", 1e200]]
    file.write_text(json.dumps({"inputs": ["a"], "outputs": ["y"], "edges": edges}))
    got = lawful("components", file, "--exact", "--json").json
    assert got["locked"][0]["barrier"] == 1e200
    assert got["locked"][0]["minimum"] == str(int(1e200) ** 2)
    assert lawful("components", file, "--json").json["locked"][0]["minimum"] == str(int(1e200) ** 2)
    assert "locked weight" in lawful("components", file).stdout
    file.write_text(json.dumps({"inputs": ["a"], "outputs": ["y"], "edges": [["a", "h", 1.0], ["h", "y", 1.0001]]}))
    got = lawful("components", file, "--tolerance", "0.01", "--json", code=3).json
    assert got["connected"] is None
    assert got["marginal"] == [["h", "y"]]
    assert lawful("components", file, "--tolerance", "0.01", code=3).stdout.splitlines()[1].startswith("undecided")


def test_an_unreachable_balance_is_a_definite_no(lawful: Lawful, tmp_path: Path) -> None:
    graph = Architecture.parse("1-2-1").to_dag().with_theta([0.0, 1.0, 1.0, 1.0])
    write(graph, tmp_path / "dead.npz")
    got = lawful("rebalance", tmp_path / "dead.npz", "--json", code=1).json
    assert got["unreachable"] == ["h1.0"]
    assert "out of reach for 1 neuron," in lawful("rebalance", tmp_path / "dead.npz", code=1).stdout


@pytest.mark.parametrize(
    ("arguments", "content", "words"),
    [
        (("components", TOY, "--balance", "c.json"), "[1, 2]", "one number per hidden node, 3 here, not 2"),
        (("components", TOY, "--balance", "c.json"), "[1, 2, NaN]", "not a finite number"),
        (("components", TOY, "--balance", "c.json"), '{"2": 1, "3": 1, "4": 1, "9": 1}', "not hidden nodes"),
        (("components", TOY, "--balance", "c.json"), "{", "not a JSON file"),
        (("components", TOY, "--balance", "c.json"), "3", "a balance is"),
        (("components", TOY, "--balance", "c.json"), "[1e999999999, 1, 1]", "not a finite number"),
        (("components", TOY, "--balance", "c.json"), '["1e999999999", 1, 1]', "not a finite number"),
        (("components", TOY, "--balance", "absent.json"), "", "absent.json is not a file"),
        (("components", TOY, "--tolerance", "-1"), "", "tolerance"),
        (("components", "c.json"), '{"inputs": ["a"], "outputs": ["y"], "edges": [["a", "y", 1], ["a", "h", 1]]}', "h"),
        (("rebalance", TOY, "--balance", "sideways"), "", "zero, unlock, or a JSON file"),
        (("path", TOY, "2-3-1"), "", "one graph"),
        (("path", TOY, "absent.json"), "", "absent.json"),
    ],
)
def test_bad_input_is_one_line(
    lawful: Lawful, tmp_path: Path, arguments: tuple[str, ...], content: str, words: str
) -> None:
    (tmp_path / "c.json").write_text(content)
    error = lawful(*arguments, code=2, cwd=tmp_path).stderr
    assert words in error
    assert len(error.strip().splitlines()) == 1
