"""Small modules with known numbers of laws, beyond multilayer perceptrons."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn


class Attention(nn.Module):
    """One head of self-attention with separate queries, keys, values and outputs of inner width k."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(width, inner, bias=False) for _ in range(3))
        self.output = nn.Linear(inner, width, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Tokens (batch, length, width)."""
        scores = torch.softmax(self.query(tokens) @ self.key(tokens).transpose(-1, -2), dim=-1)
        found: torch.Tensor = self.output(scores @ self.value(tokens))
        return found


class Residual(nn.Module):
    """A residual block with its own hidden layer, then a readout."""

    def __init__(self, width: int, hidden: int, outputs: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, width))
        self.readout = nn.Linear(width, outputs)

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        """Inputs (batch, width)."""
        found: torch.Tensor = self.readout(batch + self.inner(batch))
        return found


def convolutions() -> nn.Module:
    """Two convolutions: the oracle with 2 laws."""
    return nn.Sequential(nn.Conv1d(1, 2, 3), nn.ReLU(), nn.Conv1d(2, 1, 3))


def convolutions_and_readout() -> nn.Module:
    """Three plus four inner channels; the last ones are read through a flattening."""
    convolution = [nn.Conv2d(2, 3, 3, padding=1), nn.ReLU(), nn.Conv2d(3, 4, 3), nn.ReLU()]
    return nn.Sequential(*convolution, nn.Flatten(), nn.Linear(16, 3))


def smooth(activation: Callable[[], nn.Module]) -> nn.Module:
    """A perceptron with a smooth activation: no laws."""
    return nn.Sequential(nn.Linear(3, 4), activation(), nn.Linear(4, 2))


def normalised() -> nn.Module:
    """A layer norm hides the mean of what enters (4 laws) and is balanced against what follows (4 laws)."""
    return nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.ReLU(), nn.Linear(4, 2))


def batch_normalised() -> nn.Module:
    """Batch norm with frozen statistics is one more diagonal layer: 4 laws before it and 4 after."""
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2))


# name: factory, input size without the batch, number of laws
EXAMPLES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], int]] = {
    "attention, inner width 2": (lambda: Attention(3, 2), (4, 3), 6),
    "attention, inner width 3": (lambda: Attention(4, 3), (5, 4), 12),
    "two convolutions": (convolutions, (1, 10), 2),
    "two convolutions and a readout": (convolutions_and_readout, (2, 4, 4), 7),
    "residual block": (lambda: Residual(3, 4, 2), (3,), 4),
    "layer norm": (normalised, (3,), 8),
    "batch norm": (batch_normalised, (3,), 8),
    "tanh": (lambda: smooth(nn.Tanh), (3,), 0),
    "GELU": (lambda: smooth(nn.GELU), (3,), 0),
    "SiLU": (lambda: smooth(nn.SiLU), (3,), 0),
}
