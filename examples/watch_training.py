"""What happens to the laws while my own PyTorch model trains?

A monitor records balances, the rank of J, dead and linear neurons every k steps, for each part of the model that it
understands, and says which parts it does not.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from torch import nn

from lawful.training.monitor.monitor import Monitor, line, read_records


class Block(nn.Module):
    """A residual block with a normalisation: only the two layers inside have balance laws."""

    def __init__(self) -> None:
        super().__init__()
        self.inside = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16))
        self.norm = nn.LayerNorm(16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`x + inside(norm(x))`."""
        return x + self.inside(self.norm(x))  # type: ignore[no-any-return]


def run() -> float:
    """Train for 200 steps and print the records; return the last drift."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 16), Block(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.02)
    x = torch.randn(64, 4)
    y = x.prod(dim=1, keepdim=True)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "training.jsonl"
        with Monitor(model, every=50, file=file, live=False) as monitor:
            for _ in range(200):
                loss = (model(x) - y).square().mean()
                optimizer.zero_grad()
                torch.autograd.backward(loss)
                optimizer.step()
                monitor.step(loss)
            print(monitor.parts)
        for record in read_records(file):
            print(line(record))
    assert [record["step"] for record in monitor.records] == [0, 50, 100, 150, 200]
    assert monitor.parts.chains == (("1.norm", "1.inside.0", "1.inside.2"),)
    drift: float = monitor.records[-1]["drift"]
    assert 0.0 < drift < 0.1
    return drift


if __name__ == "__main__":
    run()
