"""Attacks on what is said of blocks and of paths: singular values of the stream, and the stationarity itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch
from falsification import Trial
from torch import nn

from lawful.papers.leaky.model import LeakyResNet, TeacherTask
from lawful.papers.leaky.path import energies, trace
from lawful.papers.leaky.streams.instruments import read_blocks
from lawful.report.training.leaky import blocks_text, run_text


class Block(nn.Module):
    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.down, self.up = nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.up(torch.relu(self.down(x)))


def narrowest() -> Iterator[Trial]:
    """`‖A‖_*²/‖A‖_F²` of the stream after each block, by singular values."""
    for seed in range(2):
        torch.manual_seed(seed)
        net = nn.Sequential(
            nn.Linear(3, 5), *(Block(5, 1 + (seed + number) % 3) for number in range(3)), nn.Linear(5, 1)
        )
        with torch.no_grad():
            net[1 + seed % 3].up.weight.mul_(10.0)
        x = torch.randn(20, 3)
        text = blocks_text(read_blocks(net, x))
        dimensions, at = {}, x
        for name, part in net.named_children():
            at = part(at)
            if isinstance(part, Block):
                values = np.linalg.svd(at.detach().double().numpy(), compute_uv=False)
                dimensions[name] = values.sum() ** 2 / (values**2).sum()
        for name, dimension in dimensions.items():
            said = text.startswith(f"narrowest after block {name}:")
            yield Trial(f"seed {seed}, block {name}", said, bool(dimension == min(dimensions.values())))


def no_rank() -> Iterator[Trial]:
    rng = np.random.default_rng(0)
    task = TeacherTask(rng.normal(size=(6, 2)), rng.normal(size=(6, 2)))
    network = LeakyResNet.random(width=4, layers=3, inputs=2, outputs=2, effective_depth=2.0)
    found = energies(trace(network, task, 0.01))
    for stationarity in (found.stationarity, 0.5, 0.0101, 0.01, 0.0099, 1e-9, float("nan")):
        said = run_text([replace(found, stationarity=stationarity)]).startswith("no bottleneck rank")
        yield Trial(f"stationarity {stationarity}", said, not stationarity <= 0.01)


FALSIFIERS = {"leaky.narrowest": narrowest, "leaky.no_rank": no_rank}
