"""The audit of modules that are no graph of scalar weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from lawful import LawfulError
from lawful.api.module_audit import audit_module
from lawful.report.audit.audit import audit_text
from lawful.report.audit.audit_page import audit_page

MODULES = """
import torch
from torch import nn
def convolutional():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 2))
def frozen():
    module = convolutional()
    module[0].requires_grad_(False)
    return module
"""


def attention() -> nn.Module:
    torch.manual_seed(0)
    return nn.TransformerEncoderLayer(4, 2, 8, 0.0, batch_first=True)


def test_an_attention_block() -> None:
    """Key biases are dead; GL spaces and shifts go beyond balances."""
    found = audit_module(attention(), (3, 4), source="block")
    assert [(part.parameter, part.entries) for part in found.symmetries.dead] == [("self_attn.in_proj_bias", 4)]
    assert found.components is not None
    assert found.components.beyond
    assert found.singularity is not None
    assert found.singularity.rank == len(found.components.dag.hidden)
    text = audit_text(found)
    assert "4 entries are dead" in text
    assert max(map(len, text.splitlines())) <= 100
    assert found.to_dict()["where"]["connected"] is None


def test_text_from_outside_is_escaped() -> None:
    page = audit_page(audit_module(attention(), (3, 4), source="<b>x</b>"))
    assert "<b>x</b>" not in page
    assert "Dead parameters" in page


def test_what_is_too_large_is_said() -> None:
    found = audit_module(nn.Sequential(nn.Linear(800, 700), nn.LayerNorm(700)), (800,), effort="quick")
    assert found.components is None
    assert found.skipped[0].part == "where training can go"
    with pytest.raises(LawfulError, match="effort"):
        audit_module(attention(), (3, 4), effort="all")


def test_from_the_command_line(lawful: Any, tmp_path: Path) -> None:
    (tmp_path / "audited_modules.py").write_text(MODULES)
    named = ("audit", "audited_modules:convolutional", "--input", "1,8,8")
    got = lawful(*named, "--html", "page.html", "--json", cwd=tmp_path).json
    assert got["dead"]["count"] == 4  # biases before batch normalisation
    assert got["laws"][0]["status"] == "at least"
    assert got["where"]["balances"] == 4
    assert got["rank"] == 4
    assert "--input 1,8,8" in got["recommendations"][0]["command"]
    assert "Batch" not in (tmp_path / "page.html").read_text()[:15]
    assert "balances" in lawful(*named, cwd=tmp_path).stdout
    still = lawful("audit", "audited_modules:frozen", "--input", "1,8,8", "--json", cwd=tmp_path).json
    assert still["summary"]["frozen"] == 40


def test_channels_that_change_nothing_come_first() -> None:
    """What `prune` would remove is the finding: an audit that left it out advised to drop biases instead."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 2)).eval()
    with torch.no_grad():
        net[4].weight[:, :36] = 0
    found = audit_module(net, (1, 8, 8), source="nets:net", asked="nets:net --input 1,8,8")
    assert found.recommendations[0].command.startswith("lawful prune nets:net --input 1,8,8 ")
    assert found.to_dict()["removable_channels"] == 1
    page = audit_page(found)
    assert "<h1><em>1 of 4</em> hidden channels can go. Take it out.</h1>" in page
    assert "1 of 4 hidden channels can go and nothing changes for any input" in " ".join(audit_text(found).split())
