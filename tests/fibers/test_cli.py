"""The verbs: exit codes, JSON keys, files, no traceback."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from command_line import ended, in_process

from lawful import Mlp
from lawful.cli import main
from lawful.fibers.random_members import deepen, disguise, hiding_network, random_network
from lawful.sources.files import write


def lawful(*arguments: object, code: int = 0) -> str:
    run = ended(in_process(*arguments), code)
    return run.stdout if code != 2 else run.stderr


def saved(network: Mlp, path: Path) -> Path:
    write(network, path)
    return path


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    network = hiding_network(4, 4, 3, 2, neuron=1, seed=0)
    return saved(network, tmp_path / "a.safetensors"), saved(disguise(network), tmp_path / "b.npz")


def test_equal_with_a_certificate(pair: tuple[Path, Path], tmp_path: Path) -> None:
    proof = tmp_path / "proof.json"
    found: dict[str, Any] = json.loads(lawful("same", *pair, "--certificate", proof, "--json"))
    assert found["verdict"] == "equal"
    assert {"verdict", "method", "witness", "counterexample", "tolerance", "seconds"} <= set(found)
    assert any(step["do"] == "translate" for step in found["witness"]["second"])
    assert "verified" in lawful("verify", proof)
    broken = json.loads(proof.read_text())
    broken["networks"][0]["biases"][0][0] += 0.1
    proof.write_text(json.dumps(broken))
    assert "REJECTED" in lawful("verify", proof, code=1)


def test_different(pair: tuple[Path, Path], tmp_path: Path) -> None:
    other = saved(random_network(4, 4, 3, 2, seed=5), tmp_path / "c.onnx")
    found = json.loads(lawful("same", pair[0], other, "--json", code=1))
    assert found["verdict"] == "different"
    assert len(found["counterexample"]["input"]) == 4
    assert len(found["counterexample"]["outputs"]) == 2
    assert "against" in lawful("same", pair[0], "3-2 relu", code=1)
    assert "DIFFERENT" in lawful("same", pair[0], other, "--box", "-1,1", "--exact", code=1)


def test_undecided(tmp_path: Path) -> None:
    network = random_network(6, 9, 8, 1, seed=4)
    network, deep = deepen(network)
    files = saved(network, tmp_path / "a.safetensors"), saved(deep, tmp_path / "b.safetensors")
    assert "UNDECIDED" in lawful("same", *files, "--seconds", 0.3, code=3)


def refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """The one line on stderr of a command that is bad input, in this process: starting many costs seconds."""
    monkeypatch.setattr(sys, "argv", ["lawful", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1
    return lines[0]


def test_bad_input(
    tmp_path: Path, pair: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def check(words: str, *arguments: object) -> None:
        assert words in refused(monkeypatch, capsys, *arguments)

    bad, tanh = tmp_path / "nan.json", tmp_path / "tanh.json"
    graph = {"inputs": ["a"], "outputs": ["y"], "edges": [["a", "h", 1.0], ["h", "y", 1.0]]}
    tanh.write_text(json.dumps(graph | {"activation": "tanh"}))
    bad.write_text(json.dumps(graph | {"edges": [["a", "h", float("nan")], ["h", "y", 1.0]]}))
    check("not a box", "same", *pair, "--box", "1")
    check("lo <= hi", "same", *pair, "--box", "1,-1")
    check("fixed coordinates", "regions", "2-3-1 relu", "--box", "0:1,0.5")
    check("2 inputs", "regions", "2-3-1 relu", "--box", "0:1,0:1,0:1")
    check("tolerance", "same", *pair, "--tolerance", "7")
    check("not both", "same", *pair, "--tolerance", "1e-3", "--exact")
    check("positive", "same", *pair, "--seconds", "0")
    check("absent", "same", pair[0], tmp_path / "absent.npz")
    check("", "same", bad, bad)
    check("tanh", "same", tanh, tanh)
    check("--sample", "fiber", pair[0], "--sample", 2)
    check("two inputs", "regions", "3-2-1 relu", "--svg", tmp_path / "x.svg")
    lawful("same", bad, bad, code=2)


def test_fiber_samples_are_the_same(pair: tuple[Path, Path], tmp_path: Path) -> None:
    found = json.loads(lawful("fiber", pair[0], "--sample", 3, "--out", tmp_path / "samples", "--json"))
    assert found["hidden"] == 1
    assert found["dimension"] == 1
    for file in found["samples"]:
        lawful("same", pair[0], file)


def test_identifiable(pair: tuple[Path, Path], tmp_path: Path) -> None:
    assert "hides hyperplane 1" in lawful("identifiable", pair[0], code=1)
    assert json.loads(lawful("identifiable", "8-6-5-2 relu bias", "--json"))["identifiable"] is True
    assert "bottleneck" in lawful("identifiable", "2-3-2-1 relu bias", "--seed", 3, code=3)
    zero = Mlp([[[1.0, 0.5], [0.3, 1.0]], [[1.0, 0.0], [-1.0, 2.0]], [[1.0, 1.0]]], [[0.1, 0.2], [1.0, -1.0], None])
    assert "is linear on the image" in lawful("identifiable", saved(zero, tmp_path / "z.npz"), code=1)


def test_regions(tmp_path: Path) -> None:
    picture = tmp_path / "regions.svg"
    found = json.loads(
        lawful("regions", "2-4-3-1 relu bias", "--box", "-3,3", "--facets", "--each", "--svg", picture, "--json")
    )
    assert found["complete"] is True
    assert len(found["each"]) == found["regions"]
    assert found["worst_imbalance"] < 1e-9
    assert picture.read_text().startswith("<?xml")
    assert "at least" in lawful("regions", "9-9-9-1 relu bias", "--seconds", 0.2, code=3)


def test_a_box_has_its_own_ends_for_every_input(tmp_path: Path) -> None:
    """`|x − 1| + |y − 1|` bends on two lines: a box sees both, one or none of them."""
    weights = [[[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]], [[1.0, 1.0, 1.0, 1.0]]]
    file = saved(Mlp(weights, [[-1.0, 1.0, -1.0, 1.0], [0.0]]), tmp_path / "bends.safetensors")
    proof = tmp_path / "regions.json"
    for box, count in (("0:2,0:2", 4), ("0:2,2:3", 2), ("2:3,-1:0.5", 1)):
        assert json.loads(lawful("regions", file, "--box", box, "--json", "--certificate", proof))["regions"] == count
        assert f"{count} region" in lawful("verify", proof)
    shifted = saved(Mlp([[[1.0, 0.0], [0.0, 1.0]], [[1.0, 1.0]]], [[-1.0, -1.0], [0.0]]), tmp_path / "half.safetensors")
    assert "EQUAL" in lawful("same", file, shifted, "--box", "1:2,1:3")
    assert "DIFFERENT" in lawful("same", file, shifted, "--box", "0:2,1:3", code=1)


def test_canonical_and_fingerprint(pair: tuple[Path, Path], tmp_path: Path) -> None:
    out = tmp_path / "canonical.safetensors"
    found = json.loads(lawful("canonical", pair[1], "--out", out, "--json"))
    assert found["complete"] is True
    lawful("same", pair[0], out)
    found = json.loads(lawful("fingerprint", *pair, out, "4-4-3-2 relu bias", "--json"))
    assert found["distinct"] == 2
    assert len({item["fingerprint"] for item in found["files"][:3]}) == 1


def test_equality_by_regions_is_certified(tmp_path: Path) -> None:
    """`a = relu(a − 1) − relu(1 − a) + 1`: one more layer changes nothing, but only the regions show it."""
    short, deep, proof = tmp_path / "short.json", tmp_path / "deep.json", tmp_path / "proof.json"
    for network, file in zip(deepen(random_network(2, 3, 2, 1, seed=4)), (short, deep), strict=True):
        write(network, file)
    found = json.loads(lawful("same", short, deep, "--certificate", proof, "--json"))
    assert (found["verdict"], found["within"], found["certified"]) == ("equal", {"kind": "exactly", "value": 0.0}, True)
    assert found["witness"]["regions"] > 1
    assert "verified" in lawful("verify", proof)


def test_checkpoints_of_a_module_are_compared(tmp_path: Path) -> None:
    """A convolutional tower with channels permuted and rescaled by powers of two is the same function, exactly."""
    import torch
    from safetensors.torch import save_file

    (tmp_path / "towers.py").write_text(
        "import torch\nfrom torch import nn\n"
        "def make():\n"
        "    torch.manual_seed(0)\n"
        "    return nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Conv2d(3, 2, 3), nn.ReLU(), nn.Flatten(),"
        " nn.Linear(8, 2))\n"
    )
    torch.manual_seed(0)
    module = torch.nn.Sequential(
        torch.nn.Conv2d(1, 3, 3), torch.nn.ReLU(), torch.nn.Conv2d(3, 2, 3), torch.nn.ReLU(), torch.nn.Flatten(),
        torch.nn.Linear(8, 2),
    )  # fmt: skip

    def save(name: str) -> Path:
        save_file({key: value.contiguous() for key, value in module.state_dict().items()}, tmp_path / name)
        return tmp_path / name

    first = save("a.safetensors")
    with torch.no_grad():
        order, scale = torch.tensor([2, 0, 1]), torch.tensor([0.5, 4.0, 2.0])
        module[0].weight.copy_(module[0].weight[order] * scale[:, None, None, None])
        module[0].bias.copy_(module[0].bias[order] * scale)
        module[2].weight.copy_(module[2].weight[:, order] / scale[None, :, None, None])
    second = save("b.safetensors")
    options = ("--model", "towers:make", "--input", "1,6,6", "--json")
    found = ended(in_process("same", first, second, *options, cwd=tmp_path), 0).json
    assert (found["verdict"], found["within"]["kind"]) == ("equal", "exactly")
    with torch.no_grad():
        module[5].bias[0] += 0.01
    moved = ended(in_process("same", first, save("c.safetensors"), *options, cwd=tmp_path), 1)
    assert moved.json["verdict"] == "different"
