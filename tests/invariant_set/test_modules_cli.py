"""`lawful components` and `rebalance` of modules."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

FACTORIES = """
import torch
from torch import nn
class Skipping(nn.Module):
    def __init__(self):
        super().__init__()
        self.e, self.a, self.b, self.o = (nn.Linear(*s, bias=False) for s in ((2, 1), (1, 4), (4, 1), (1, 1)))
    def forward(self, x):
        h = torch.relu(self.e(x))
        return self.o(torch.relu(h + self.b(torch.relu(self.a(h)))))
def skipping():
    torch.manual_seed(0)
    module = Skipping()
    with torch.no_grad():
        module.o.weight *= 20
    return module
def heavier():
    module = skipping()
    with torch.no_grad():
        module.o.weight *= 1.5
    return module
def attention():
    torch.manual_seed(0)
    return nn.TransformerEncoderLayer(4, 2, 8, 0.0, batch_first=True)
def words():
    torch.manual_seed(0)
    return nn.Sequential(nn.Embedding(5, 4), nn.RMSNorm(4), nn.Linear(4, 5, bias=False))
"""


@pytest.fixture
def factories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "places.py").write_text(FACTORIES)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_components_and_rebalance_of_a_module(lawful: Any, factories: Path) -> None:
    got = lawful("components", "places:skipping", "--input", "2", "--json").json
    assert got["connected"] is False
    assert "o.weight[0, 0]" in {lock["entry"] for lock in got["locked"]}
    assert got["beyond"] == []
    text = lawful("components", "places:skipping", "--input", "2").stdout
    assert "o.weight[0, 0]" in text
    done = lawful("rebalance", "places:skipping", "--input", "2", "--balance", "unlock", "--out", "free.safetensors",
                  "--json").json  # fmt: skip
    assert done["log2_components_before"] > 0
    assert done["log2_components_after"] == 0
    assert done["function_change"] < 1e-12
    again = lawful("components", "free.safetensors", "--model", "places:skipping", "--input", "2", "--json").json
    assert all(lock["barrier"] < 1e-3 for lock in again["locked"])  # a balance of 0 is met to float32
    path = lawful("path", "free.safetensors", "free.safetensors", "--model", "places:skipping", "--input", "2",
                  "--json").json  # fmt: skip
    assert path["connected"] is True


def test_other_laws_leave_the_question_open(lawful: Any, factories: Path) -> None:
    got = lawful("components", "places:attention", "--input", "3,4", "--json", code=3).json
    assert got["connected"] is None
    assert got["beyond"]
    words = lawful("components", "places:words", "--input", "3:int", "--json", code=0).json
    assert all("1.weight" in lock["entry"] for lock in words["locked"])


def test_certificates_of_modules_are_verified_with_their_weights(lawful: Any, factories: Path) -> None:
    lawful("components", "places:skipping", "--input", "2", "--certificate", "locks.json")
    told = lawful("verify", "locks.json", "places:skipping", "--input", "2").stdout
    assert "connected components" in told
    assert "not checked here" in told
    lawful("verify", "locks.json", "places:words", "--input", "3:int", code=1)
    ends = ("places:skipping", "places:heavier")
    lawful("path", *ends, "--input", "2", "--certificate", "apart.json", code=1)
    assert "their balances differ" in lawful("verify", "apart.json", *ends, "--input", "2").stdout
    lawful("path", *ends, "--input", "2", "--tolerance", "1e9", "--certificate", "way.json")
    assert lawful("verify", "way.json", "--json").json["facts"]["joined"] is True
