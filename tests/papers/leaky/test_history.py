"""Residual streams over training."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from lawful.errors import LawfulError
from lawful.papers.leaky import BlockWatch, read_blocks
from lawful.papers.leaky.streams.history import BlockHooks, BlockTrainerHooks, history

FACTORY = """
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 6))
    def forward(self, x):
        return x + self.inner(x)

def make():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 6), Block(), Block(), nn.Linear(6, 2))
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module, three checkpoints of it whose names do not sort like their steps, and data."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "streams.py").write_text(FACTORY)
    monkeypatch.syspath_prepend(tmp_path)
    sys.modules.pop("streams", None)
    model = __import__("streams").make()
    (tmp_path / "checkpoints").mkdir()
    for step in (0, 20, 100):
        torch.save(model.state_dict(), tmp_path / "checkpoints" / f"step-{step}.pt")
        with torch.no_grad():
            model[1].inner[2].weight.mul_(3.0)
    np.savez(tmp_path / "data.npz", x=np.random.default_rng(0).normal(size=(30, 3)))
    return tmp_path


def test_checkpoints_in_order_with_a_page(folder: Path, lawful: Any) -> None:
    words = ["bottleneck", folder / "checkpoints", "--model", "streams:make", "--data", folder / "data.npz"]
    found = json.loads(lawful(*words, "--json").stdout)
    assert found["steps"] == [0, 20, 100]
    moved = found["distance"][0]
    assert moved == sorted(moved)  # the first block's weights grow
    assert len(found["checkpoints"]) == 3
    text = lawful(*words, "--html", folder / "page.html").stdout
    assert text.startswith("effective dimension of 2 blocks at 3 checkpoints")
    page = (folder / "page.html").read_text()
    assert page.count("<svg") >= 6
    single = json.loads(lawful("bottleneck", folder / "checkpoints" / "step-100.pt", *words[2:], "--json").stdout)
    assert single["blocks"] == found["checkpoints"][2]["blocks"]


def test_bad_folders(folder: Path, lawful: Any) -> None:
    (folder / "empty").mkdir()
    said = lawful("bottleneck", folder / "empty", "--model", "streams:make", "--data", folder / "data.npz", code=2)
    assert "no checkpoints" in said.stderr
    said = lawful("bottleneck", "streams:make", "--input", "4", "--data", folder / "data.npz", code=2)
    assert "does not fit the 3 columns" in said.stderr


def test_tokens_are_whole_numbers(folder: Path, lawful: Any) -> None:
    (folder / "words.py").write_text(
        FACTORY.replace("nn.Linear(3, 6), Block()", "nn.Embedding(5, 6), Block()").replace("def make", "def tokens")
    )
    sys.modules.pop("words", None)
    np.savez(folder / "tokens.npz", x=np.random.default_rng(0).integers(0, 5, size=(8, 4)))
    np.savez(folder / "halves.npz", x=np.full((8, 4), 0.5))
    found = lawful("bottleneck", "words:tokens", "--data", folder / "tokens.npz", "--json").json
    assert found["samples"] == 32
    said = lawful("bottleneck", "words:tokens", "--data", folder / "halves.npz", code=2)
    assert "must be whole numbers" in said.stderr
    np.savez(folder / "beyond.npz", x=np.full((8, 4), 7))
    assert "does not run" in lawful("bottleneck", "words:tokens", "--data", folder / "beyond.npz", code=2).stderr


def test_live_by_both_trainers(folder: Path) -> None:
    model, x = __import__("streams").make(), torch.randn(12, 3)
    for hooks in (BlockHooks, BlockTrainerHooks):
        watch = BlockWatch(x, every=2)
        callback: Any = hooks(watch)
        state = SimpleNamespace(is_world_process_zero=True)
        if hooks is BlockHooks:
            callback.on_fit_start(state, model)
        else:
            callback.on_train_begin(None, state, None, model=model)
        for step in range(5):
            if hooks is BlockHooks:
                callback.on_train_batch_end(state, model, None, None, step)
            else:
                callback.on_step_end(None, state, None, model=model)
        assert watch.history.steps == (0, 2, 4)
        assert watch.history.table("coi").shape == (2, 3)
    with pytest.raises(LawfulError, match="every 1, 2"):
        BlockWatch(x, every=0)


def test_batches_of_accumulated_gradients_are_no_steps(folder: Path) -> None:
    """Lightning calls at every batch, and counts steps of the optimiser; a resumed run starts where it was."""
    model, x = __import__("streams").make(), torch.randn(12, 3)
    watch = BlockWatch(x, every=2)
    hooks, trainer = BlockHooks(watch), SimpleNamespace(is_global_zero=True, global_step=10)
    hooks.on_fit_start(trainer, model)
    for batch in range(12):  # three batches a step
        trainer.global_step = 10 + (batch + 1) // 3
        hooks.on_train_batch_end(trainer, model, None, None, batch)
    assert watch.history.steps == (10, 12, 14)


def test_networks_with_other_blocks_make_no_history(folder: Path) -> None:
    x = torch.randn(12, 3)
    model = __import__("streams").make()
    shorter = nn.Sequential(*list(model)[:2], model[3])
    with pytest.raises(LawfulError, match="different blocks"):
        history([(0, read_blocks(model, x)), (1, read_blocks(shorter, x))])
