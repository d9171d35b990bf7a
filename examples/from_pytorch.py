"""What network is my PyTorch module?

A module made of Linear, convolution, normalisation, pooling and (leaky) ReLU layers, with residual additions, is a
graph of neurons. `from_module` writes it out: convolutions become the sparse maps they are, batch normalisation folds
into the weights before it, and the function stays the same to round-off.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import nn

from lawful.sources.files import read, write
from lawful.sources.modules.convert import from_module


class Block(nn.Module):
    """A small residual network."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU())
        self.inner = nn.Conv2d(4, 4, 3, padding=1)
        self.head = nn.Sequential(nn.AvgPool2d(4), nn.Flatten(), nn.Linear(16, 10))

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Scores of an 8×8 image."""
        found = self.stem(image)
        scores: torch.Tensor = self.head(torch.relu(found + self.inner(found)))
        return scores


def run() -> float:
    """Convert a module, write it to a file, read it back; return the largest change of the output."""
    torch.manual_seed(0)
    module = Block().double().eval()
    network = from_module(module, (1, 8, 8))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "block.safetensors"
        write(network, path)
        again = read(path)
    images = torch.randn(100, 1, 8, 8, dtype=torch.float64)
    change = float(np.abs(module(images).detach().numpy() - again.evaluate(images.reshape(100, -1).numpy())).max())
    print(f"{network}: outputs differ by at most {change:.0e}")
    assert change < 1e-13
    return change


if __name__ == "__main__":
    run()
