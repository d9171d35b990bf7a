"""The audit's page in a real browser, with hostile names in the network."""

from __future__ import annotations

import importlib
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import in_process
from page_checklist import faults
from safetensors.torch import save_file

from lawful import Dag
from lawful.api.audit import audit
from lawful.formats.queries.data import Data
from lawful.network import Architecture, Mlp, Role
from lawful.report.audit.audit_page import audit_page
from lawful.sources.files import write

HOSTILE = '"><script>window.hacked = true</script>'


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The toy of P0 Figure 2d with a locked edge and a hostile name."""
    names = ("a", "b", "2", "3", HOSTILE, "5")
    roles = [Role.INPUT, Role.INPUT, Role.HIDDEN, Role.HIDDEN, Role.HIDDEN, Role.OUTPUT]
    dag = Dag(names, roles, [0, 2, 2, 1, 3, 4], [2, 3, 4, 3, 4, 5], [1.0, 3**0.5, 3**0.5, 0.5, 1.5, 1.5])
    data = Data(np.random.default_rng(0).normal(size=(20, 2)))
    path = tmp_path_factory.mktemp("page") / "audit.html"
    path.write_text(audit_page(audit(dag, source=HOSTILE, data=data)), encoding="utf-8")
    return path


@pytest.mark.parametrize("width", [320, 768, 1280])
def test_it_renders_at_every_width_in_both_schemes(
    page_file: Path, visit: Callable[..., Any], poor_contrast: Callable[[Any], list[str]], width: int
) -> None:
    for dark in (False, True):
        page = visit(page_file, width=width, dark=dark)
        assert page.locator("h2").count() >= 5
        assert poor_contrast(page) == []
        assert page.evaluate("window.hacked") is None


def test_pointing_and_tabbing_tell_about_a_neuron(page_file: Path, visit: Callable[..., Any]) -> None:
    page = visit(page_file)
    page.locator("svg.graph g[tabindex]").first.hover()
    assert "2: balance −5" in page.locator("output").first.inner_text()
    page.locator("svg.graph g[tabindex]").nth(2).focus()
    note = page.locator("output").first.inner_text()
    assert "sign-locked" in note
    assert HOSTILE in note


def test_the_locked_weight_is_in_the_table(page_file: Path, visit: Callable[..., Any]) -> None:
    page = visit(page_file)
    page.locator("#locked-weights > summary").click()
    cells = page.locator("#locked-weights tbody tr").first.locator("td").all_inner_texts()
    assert cells[:2] == [f"{HOSTILE} → 5", "+"]
    assert float(cells[3]) == pytest.approx(1.0)  # √(2 − 1), P0 Figure 2d


def test_it_prints(page_file: Path, visit: Callable[..., Any]) -> None:
    page = visit(page_file)
    page.emulate_media(media="print")
    assert not page.locator("nav").is_visible()
    assert page.locator("h1").first.is_visible()


PARTS = """
import torch
from torch import nn

def convolutions():
    return nn.Sequential(
        nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16, 2)
    )

class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(5, 8)
        self.blocks = nn.ModuleList(nn.TransformerEncoderLayer(8, 2, 12, batch_first=True) for _ in range(2))
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        x = self.embed(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)

def attention():
    torch.manual_seed(0)
    return Attention()
"""


def idle_network() -> Mlp:
    """25 inputs, 6 hidden neurons, of which 4 lead nowhere."""
    network = Architecture.parse("25-6-3 relu bias").initialise(seed=0)
    last = network.weights[1].copy()
    last[:, 2:] = 0
    return Mlp([network.weights[0], last], list(network.biases))


NAMED: dict[str, tuple[str, ...]] = {
    "perceptron": ("net.safetensors", "--activation", "relu"),
    "random": ("2-3-4-1 relu bias", "--seed", "3"),
    "locked": ("3-4-1-1 relu",),
    "convolutions": ("conv.safetensors", "--model", "parts_to_audit:convolutions", "--input", "1,6,6"),
    "transformer": ("parts_to_audit:attention", "--input", "4:int"),
}
TITLES = ["What can go", "What training conserves", "What is locked", "Which other weights are this function"]


@pytest.mark.parametrize("kind", list(NAMED))
def test_every_command_works_as_printed_and_every_kind_has_one_form(
    kind: str, lawful: Any, tmp_path: Path, visit: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "parts_to_audit.py").write_text(PARTS, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    write(idle_network(), Path("net.safetensors"))
    if kind == "convolutions":
        save_file(importlib.import_module("parts_to_audit").convolutions().state_dict(), "conv.safetensors")
    lawful("audit", *NAMED[kind], "--html", "audit.html")
    page = visit(tmp_path / "audit.html")
    topics = page.locator("section.a h2 small").all_inner_texts()
    assert topics[:4] == TITLES
    assert 1 <= page.locator(".do li").count() <= 3
    commands = list(dict.fromkeys(page.locator("code").all_text_contents()))
    for command in commands:
        words = shlex.split(command)
        assert words[0] == "lawful"
        assert words[1] == "verify" or all(word in words for word in NAMED[kind] if "seed" not in word), command
        done = in_process(*words[1:])
        assert done.returncode in (0, 1, 3), (command, done)  # a yes, a no, or undecided; never bad input
        if words[1] == "verify":
            assert done.returncode == 0, (command, done)


def test_the_page_says_what_the_subcommands_say(lawful: Any, tmp_path: Path, visit: Callable[..., Any]) -> None:
    file = tmp_path / "net.safetensors"
    write(idle_network(), file)
    lawful("audit", file, "--activation", "relu", "--html", tmp_path / "audit.html")
    page = visit(tmp_path / "audit.html")
    pruned = lawful("prune", file, "--activation", "relu", "--json").json
    removed = pruned["neurons_before"] - pruned["neurons_after"]
    assert page.inner_text("h1") == f"{removed} of 6 hidden neurons can go. Take them out."
    assert f"{lawful('laws', file, '--activation', 'relu', '--json').json['laws']} independent" in page.inner_text(
        "main"
    )
    assert "assumed: relu" not in page.content().lower()
    page.get_by_text("After: 2").click()
    assert page.locator(".tile:visible").count() == 2
    assert "floating point 0" in page.inner_text(".stage")


@pytest.mark.parametrize("text", ["1-1-1 relu", "2-1 relu", "3-2 linear", "1-2-1 leaky_relu(0.1) bias"])
def test_the_smallest_networks_have_a_page(lawful: Any, tmp_path: Path, visit: Callable[..., Any], text: str) -> None:
    lawful("audit", text, "--html", tmp_path / "audit.html")
    page = visit(tmp_path / "audit.html", width=320)
    assert page.locator("h1").inner_text()


@pytest.mark.parametrize("scale", [0.0, 1e-9, 1e9])
def test_weights_of_any_size_have_a_page(tmp_path: Path, visit: Callable[..., Any], scale: float) -> None:
    network = Architecture.parse("2-3-1 relu bias").initialise(seed=0)
    file = tmp_path / "audit.html"
    file.write_text(audit_page(audit(network.with_theta(scale * network.theta))), encoding="utf-8")
    page = visit(file)
    assert not [fault for fault in faults(page) if "broken" in fault]
