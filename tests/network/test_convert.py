"""`lawful convert` as a user runs it: from every source to every format, the function stays."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from command_line import Run, in_process

from lawful.network import Architecture
from lawful.sources.files import read

LAWFUL = Path(sys.executable).with_name("lawful")
MODULE = """
import torch
from torch import nn

def make():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 2, 2), nn.ReLU(), nn.Flatten(), nn.Linear(18, 3))

def saturating():
    return nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 1))
"""


def lawful(*words: object, folder: Path) -> Run:
    return in_process(*words, cwd=folder)


def test_a_chain_of_conversions_ends_where_it_began(tmp_path: Path) -> None:
    text = "3-4-4-2 leaky_relu(0.125) bias skip(1,2)"
    names = ["a.json", "b.safetensors", "c.onnx", "d.npz"]
    source: object = text
    for name in names:
        done = lawful("convert", source, name, "--seed", 7, folder=tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
        assumed, *lines = ["", *done.stdout.splitlines()][-2:]
        assert assumed == (
            "assumed: random weights: PyTorch's default initialisation, seed 7" if source == text else ""
        )
        assert lines[0].startswith(f"{name}: Dag(inputs=3, hidden=8, outputs=2")
        source = name
    first = Architecture.parse(text).initialise(seed=7)
    batch = np.random.default_rng(0).normal(size=(50, 3))
    assert np.abs(read(tmp_path / names[-1]).evaluate(batch) - first.evaluate(batch)).max() < 1e-14


def test_a_module_is_converted_and_json_has_the_documented_keys(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MODULE)
    done = lawful("convert", "mine:make", "net.pt", "--input", "1,4,4", "--json", folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    said = json.loads(done.stdout)
    assert (said["written"], said["parameters"]) == ("net.pt", 18 * 5 + 19 * 3)
    assert said["stored"] == {"path": "net.pt", "dtype": "float64", "rounding": 0.0, "relative": 0.0}
    assert (said["reading"]["format"], said["reading"]["assumed"]) == ("module", [])
    assert said["reading"]["layers"][0] == {"name": "0.weight", "dtype": "float32", "shape": [2, 1, 2, 2]}
    assert len(read(tmp_path / "net.pt").to_dag().inputs) == 16


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("mine:saturating", "out.npz"), "layer '1' (Tanh), tanh: is not supported; supported are Linear"),
        (("mine:make", "out.npz"), "--input"),
        (("absent.json", "out.npz"), "no such file"),
    ],
)
def test_refusals_are_one_line_and_write_nothing(words: tuple[str, ...], said: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MODULE)
    done = lawful("convert", *words, folder=tmp_path)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert said in done.stderr
    assert not (tmp_path / "out.npz").exists()


@pytest.mark.parametrize("ending", [".pt", ".safetensors"])
def test_every_verb_that_writes_gives_back_names_and_types(ending: str, tmp_path: Path) -> None:
    """A float32 checkpoint of fc1 and fc2 loads back strictly after each verb; pruning may change its sizes."""
    import safetensors.torch
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc1, self.fc2 = nn.Linear(3, 5), nn.Linear(5, 2)

    torch.manual_seed(0)
    first = Net().state_dict()
    first["fc1.weight"][2] = 0.0  # a neuron that pruning removes
    path = tmp_path / f"a checkpoint é{ending}"
    if ending == ".pt":
        torch.save(first, path)
    else:
        safetensors.torch.save_file(first, path)
    for words in (
        ["convert", path],
        ["rebalance", path, "--out"],
        ["prune", path, "--out"],
        ["canonical", path, "--out"],
    ):
        out = tmp_path / f"out{ending}"
        done = lawful(*words, out, folder=tmp_path)
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("assumed: ReLU between the layers fc1, fc2")
        state = torch.load(out, weights_only=True) if ending == ".pt" else safetensors.torch.load_file(out)
        assert {tensor.dtype for tensor in state.values()} == {torch.float32}
        assert list(state) == list(first) or ending == ".safetensors"
        assert set(state) == set(first)
        if words[0] in ("convert", "rebalance"):
            Net().load_state_dict(state, strict=True)
        if words[0] == "rebalance":
            assert "stored as float32" in done.stdout
        if words[0] == "prune":
            assert state["fc1.weight"].shape == (4, 3)


def test_a_large_checkpoint_is_shown_without_being_read(tmp_path: Path) -> None:
    """Two gigabytes of a file with holes: only its header is looked at."""
    header = json.dumps({"blocks.0.q.weight": {"dtype": "F32", "shape": [2**14, 2**15], "data_offsets": [0, 2**31]}})
    path = tmp_path / "large.safetensors"
    with path.open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header.encode())
        file.truncate(8 + len(header) + 2**31)
    said = json.loads(lawful("show", path, "--json", folder=tmp_path).stdout)
    assert said["parameters"] == 2**29
    assert said["reading"]["layers"][0]["shape"] == [2**14, 2**15]


def test_json_says_what_was_assumed_in_every_verb(tmp_path: Path) -> None:
    np.savez(tmp_path / "net.npz", **{"fc1.weight": np.eye(3)[:2], "fc2.weight": np.ones((1, 2))})
    for verb in ("show", "laws", "components", "prune", "rebalance", "fingerprint"):
        said = json.loads(lawful(verb, "net.npz", "--json", folder=tmp_path).stdout)["reading"]
        assert "ReLU" in said["assumed"][0], verb
        said = json.loads(lawful(verb, "net.npz", "--activation", "relu", "--json", folder=tmp_path).stdout)["reading"]
        assert said["assumed"] == [], verb
    said = json.loads(lawful("same", "net.npz", "net.npz", "--json", folder=tmp_path).stdout)
    assert "ReLU" in said["reading"]["assumed"][0]
    assert len(said["readings"]) == 2
