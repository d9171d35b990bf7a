"""Modules of a user, in a file that can be imported."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

FACTORIES = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(3, 5), nn.Linear(5, 2)

    def forward(self, x):
        return self.fc2(torch.relu(self.fc1(x)))


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))
        self.critic = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))

    def forward(self, x):
        return torch.cat([self.actor(x), self.critic(x)], 1)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.into, self.out = nn.Linear(3, 3), nn.Linear(3, 3)
        self.out.weight = self.into.weight

    def forward(self, x):
        return self.out(torch.relu(self.into(x)))


def conv():
    return nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8, 2))


def broken():
    raise ValueError("no weights today")
"""


@pytest.fixture
def nets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "reading_nets.py").write_text(FACTORIES)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.modules.pop("reading_nets", None)
    import reading_nets  # type: ignore[import-not-found]

    yield reading_nets
    sys.modules.pop("reading_nets", None)
