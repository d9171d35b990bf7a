"""Models to be monitored, and plain loops that train them."""

from __future__ import annotations

import warnings

import torch
from torch import nn

from lawful.training.monitor.monitor import Monitor
from lawful.training.monitor.parts import Parts


def understand(model: nn.Module, shape: tuple[int, ...]) -> Parts:
    """What a monitor knows of a model after a batch of this size."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with Monitor(model, live=False) as monitor:
            tensors = list(model.parameters())
            model(torch.randn(shape, dtype=tensors[0].dtype))
            monitor.step()
    return monitor.parts


def train(
    model: nn.Module, monitor: Monitor | None = None, steps: int = 30, rate: float = 0.05, width: int = 3
) -> None:
    torch.manual_seed(0)
    x, y = torch.randn(16, width), torch.randn(16, 1)
    optimizer = torch.optim.SGD(model.parameters(), rate)
    for _ in range(steps):
        loss = (model(x) - y).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if monitor is not None:
            monitor.step(loss)


def mlp() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 1))


class Words(nn.Module):
    """A small language model: nothing that two layers and a ReLU explain."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.token, self.norm = nn.Embedding(9, 4), nn.LayerNorm(4)
        self.mix = nn.MultiheadAttention(4, 2, batch_first=True)
        self.head = nn.Linear(4, 9, bias=False)

    def forward(self, ids: torch.Tensor, labels: torch.Tensor | None = None) -> torch.Tensor:
        x = self.token(ids)
        x = x + self.mix(x, x, x, need_weights=False)[0]
        return self.head(self.norm(x))


def train_words(model: nn.Module, monitor: Monitor, steps: int, rate: float = 0.05) -> None:
    torch.manual_seed(4)
    ids = torch.randint(9, (8, 5))
    optimizer = torch.optim.SGD(model.parameters(), rate)
    for _ in range(steps):
        loss = nn.functional.cross_entropy(model(ids).flatten(0, 1), ids.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        monitor.step(loss)
