"""What verbs print of modules fits the same schemas as what they print of networks of layers."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from command_line import in_process
from torch import nn

from .test_schema import checked

FACTORY = """
import torch
from torch import nn

def images():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 3, 3), nn.ReLU(), nn.Flatten(),
                         nn.Linear(12, 2)).eval()

def gated(width=6):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, width), nn.LayerNorm(width), nn.GELU(), nn.Linear(width, 2))

def wider():
    return gated(8)
"""
IMAGES, GATED = ("odd_nets:images", "--input", "1,6,6"), ("odd_nets:gated", "--input", "3")
LINES = [
    *((verb, *IMAGES) for verb in ("components", "prune", "symmetries")),
    *((verb, *GATED) for verb in ("audit", "canonical", "fingerprint", "laws", "rebalance", "show")),
    *((verb, "a.pt", "b.pt", "--model", *GATED) for verb in ("align", "diff", "merge", "path", "same")),
    ("diff", "a.pt", "wide.pt", "--model", "odd_nets:gated", "--model-b", "odd_nets:wider", "--input", "3"),
    ("rebalance", *GATED, "--objective", "range"),
]  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "odd_nets.py").write_text(FACTORY)
    for name, width, shift in (("a", 6, 0.0), ("b", 6, 0.01), ("wide", 8, 0.0)):
        torch.manual_seed(0)
        layers = nn.Sequential(nn.Linear(3, width), nn.LayerNorm(width), nn.GELU(), nn.Linear(width, 2))
        torch.save({key: value + shift for key, value in layers.state_dict().items()}, tmp_path / f"{name}.pt")
    return tmp_path


@pytest.mark.parametrize("line", LINES, ids=" ".join)
def test_answers_about_modules_fit_their_schemas(folder: Path, line: tuple[str, ...]) -> None:
    found = in_process(*line, "--json", cwd=folder).json
    assert "hint" not in found, found
    checked(line[0], found)
