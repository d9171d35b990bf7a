"""`lawful symmetries` as users meet it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

MODELS = """
import torch
from torch import nn

def relu():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))

def words():
    torch.manual_seed(0)
    return nn.Sequential(nn.Embedding(7, 4), nn.LayerNorm(4), nn.Linear(4, 3))
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    name = f"models_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(MODELS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def models(folder: Path) -> str:
    return next(folder.glob("models_*.py")).stem


def test_json_has_the_documented_keys(lawful: Callable[..., Any], folder: Path) -> None:
    found = lawful("symmetries", f"{models(folder)}:words", "--input", "5:int", "--json").json
    assert set(found) >= {
        "spaces", "laws", "dead", "dimension", "log10_discrete", "pinned", "mode", "reading"
    }  # fmt: skip
    assert set(found["spaces"][0]) >= {"name", "size", "group", "laws", "parameters"}
    assert found["laws"] == 7 + 4 == sum(space["laws"] for space in found["spaces"])
    assert found["mode"] == "train"
    assert found["checked"]["worst"] < 1e-9


def test_text_names_group_and_parameters(lawful: Callable[..., Any]) -> None:
    text = lawful("symmetries", "3-4-2 relu bias").stdout
    assert text.startswith("4 conservation laws")
    assert "4 scales" in text
    assert "0.weight" in text


def test_a_disguise_in_the_same_format(lawful: Callable[..., Any], folder: Path) -> None:
    import importlib
    import sys

    sys.path.insert(0, str(folder))
    module = importlib.import_module(models(folder)).relu()
    save_file(module.state_dict(), folder / "a.safetensors")
    arguments = ("symmetries", "a.safetensors", "--model", f"{models(folder)}:relu", "--input", "3")
    found = lawful(*arguments, "--apply", 1, "--out", "b.safetensors", "--json").json
    assert found["applied"] < 1e-10
    moved = load_file(folder / "b.safetensors")
    assert {name: tuple(t.shape) for name, t in moved.items()} == {
        name: tuple(t.shape) for name, t in module.state_dict().items()
    }
    lawful("same", "a.safetensors", "b.safetensors", "--activation", "relu", code=0)
    assert "go together" in lawful(*arguments, "--apply", 1, code=2).stderr
    assert "same format" in lawful(*arguments, "--apply", 1, "--out", "b.pt", code=2).stderr


def test_values_are_written(lawful: Callable[..., Any], folder: Path) -> None:
    lawful("symmetries", f"{models(folder)}:relu", "--input", "3", "--values", "laws.npz")
    with np.load(folder / "laws.npz") as found:
        assert found["law00000"].shape == (4,)
        assert found["names"].tolist() == ["0.weight 0.bias 2.weight"]


def test_bad_usage(lawful: Callable[..., Any], folder: Path) -> None:
    assert "3,224,224" in lawful("symmetries", f"{models(folder)}:relu", "--input", "x", code=2).stderr
    assert "train or eval" in lawful("symmetries", "3-4-2 relu", "--mode", "both", code=2).stderr
    assert "does not fit" in _wrong_weights(lawful, folder)


def _wrong_weights(lawful: Callable[..., Any], folder: Path) -> str:
    import torch

    save_file({"other": torch.zeros(2)}, folder / "c.safetensors")
    return str(lawful("symmetries", "c.safetensors", "--model", f"{models(folder)}:relu", code=2).stderr)


ODD = """
import torch
from torch import nn
from torch.nn.utils import prune
class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.e, self.o, self.p = nn.Linear(3, 4), nn.Embedding(5, 4), nn.Linear(4, 2), nn.Linear(4, 1)
    def forward(self, x, ids):
        h = torch.relu(self.a(x) + self.e(ids).sum(1))
        return {"one": self.o(h), "more": (self.p(h),)}
class Open(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(1, 4)
    def forward(self, x):
        return self.a(x[x > 0].reshape(-1, 1))
def two():
    return Two()
def open_sizes():
    return Open()
def masked():
    module = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    prune.l1_unstructured(module[0], "weight", 0.5)
    return module
def packed():
    return torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2)), {nn.Linear})
"""


def test_odd_modules_are_read_or_refused(lawful: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "odd.py").write_text(ODD)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for given in (["--input", "3", "--input", "2:int"], ["--input", "3;2:int"]):
        assert lawful("symmetries", "odd:two", *given, "--json").json["laws"] >= 4
    assert "balances" in lawful("components", "odd:two", "--input", "3;2:int", code=3).stdout
    assert "sizes of numbers like" in lawful("laws", "odd:two", "--input", "3;2:int", code=2).stderr
    for verb in ("symmetries", "components"):
        assert "x[x > 0]" in lawful(verb, "odd:open_sizes", "--input", "3", code=2).stderr
        assert "quantised" in lawful(verb, "odd:packed", "--input", "3", code=2).stderr
    assert lawful("laws", "odd:masked", "--input", "3", "--json").json["laws"] == 10
    assert lawful("symmetries", "odd:masked", "--input", "3", "--json").json["laws"] == 10
