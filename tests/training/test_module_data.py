"""Flows of modules that take token ids, or samples with several axes, in Python and from files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from monitored import Words
from torch import nn

from lawful import LawfulError, flow
from lawful.formats.queries.data import read_data

IDS = np.random.default_rng(0).integers(9, size=(4, 3))


def test_tokens_flow_and_keep_the_laws_of_attention_and_norms() -> None:
    run = flow(Words(), (IDS, IDS), loss="ce", until=0.5, snapshots=3)
    assert any(name.startswith("mix.") for name in run.law_names)
    assert run.max_drift < 1e-9
    first, last = run.trajectory.losses[[0, -1]]
    logits = Words().double()(torch.as_tensor(IDS))
    assert first == pytest.approx(
        nn.functional.cross_entropy(logits.flatten(0, 1), torch.as_tensor(IDS).ravel()).item()
    )
    assert last < first


def test_samples_keep_their_axes(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv1d(2, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(9, 2))
    x, y = np.random.default_rng(0).normal(size=(6, 2, 5)), np.arange(6) % 2
    run = flow(model, (x, y), loss="ce", until=0.5, snapshots=3)
    assert run.law_names == ("0.0", "0.1", "0.2")
    assert run.max_drift < 1e-9
    np.savez(tmp_path / "x.npz", x=x, y=y)
    again = flow(model, str(tmp_path / "x.npz"), loss="ce", until=0.5, snapshots=3)
    assert np.array_equal(again.trajectory.theta, run.trajectory.theta)
    with pytest.raises(LawfulError, match="10 numbers do not fit"):
        read_data(tmp_path / "x.npz").reshape((3, 4))


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (IDS + 100, IDS, "index out of range"),
        (IDS + 0.5, IDS, "takes tokens, so x must be whole numbers"),
        (IDS, IDS[:, :2], "one class number per sample"),
        (IDS, None, "needs targets"),
    ],
)
def test_tokens_that_do_not_fit_are_named(x: np.ndarray, y: np.ndarray | None, message: str) -> None:
    with pytest.raises(LawfulError, match=message):
        flow(Words(), x if y is None else (x, y), loss="ce")
