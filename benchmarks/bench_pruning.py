"""Pruning whole networks: ResNet-18 with planted channels, a large perceptron, and other tools on the same."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator
from importlib import import_module
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.harness import Row
from lawful.network import Architecture
from lawful.pruning.channels import prune_channels
from lawful.pruning.neurons.prune import prune


class Block(nn.Module):
    """Two convolutions beside a residual connection."""

    def __init__(self, below: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(below, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width)
        self.short: nn.Module = nn.Identity()
        if stride > 1:
            self.short = nn.Sequential(nn.Conv2d(below, width, 1, stride, bias=False), nn.BatchNorm2d(width))

    def forward(self, x: Tensor) -> Tensor:
        """The sum of both ways."""
        inner = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        return torch.relu(inner + self.short(x))


def resnet18() -> nn.Sequential:
    """ResNet-18 with random weights, a quarter of each block's inner channels dead, an eighth duplicates."""
    torch.manual_seed(0)
    widths = (64, 64, 64, 128, 128, 256, 256, 512, 512)
    blocks = [Block(a, b, 2 if b > a else 1) for a, b in pairwise(widths)]
    stem = (nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
    model = nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000)).eval()
    with torch.no_grad():
        for block in blocks:
            width = len(block.conv1.weight)
            quarter, eighth = width // 4, width // 8
            block.bn1.weight[:quarter] = 0.0
            block.bn1.bias[:quarter] = -0.1
            half = width // 2
            block.conv1.weight[half : half + eighth] = block.conv1.weight[-eighth:]
    return model


def rows() -> Iterator[Row]:
    """One thread."""
    torch.set_num_threads(1)
    yield from channels()
    yield from perceptron()
    yield from others()


def channels() -> Iterator[Row]:
    """All planted channels of ResNet-18."""
    model = resnet18()
    started = time.process_time()
    found = prune_channels(model, [(2, 3, 64, 64)])
    note = (
        f"{found.channels_before} -> {found.channels_after} channels, {found.parameters_before:,} -> "
        f"{found.parameters_after:,} parameters, outputs differ by {found.compared:.1e}; goal 60 s"
    )
    yield Row("prune ResNet-18 with planted channels (processor time)", time.process_time() - started, note=note)


def perceptron() -> Iterator[Row]:
    """Linear relaxations of half a million weights."""
    network = Architecture((100, *[240] * 9, 10), bias=True).initialise(seed=1)
    started = time.process_time()
    found = prune(network, box=(0.0, 1.0))
    note = f"{found.neurons_before} -> {found.neurons_after} neurons, bound {found.bound:g}; goal 60 s"
    yield Row("prune 0.49 M weights on a box, relaxed (processor time)", time.process_time() - started, note=note)


def others() -> Iterator[Row]:
    """Torch-Pruning, which is told how many channels to keep, and torch-simplify, if they are installed."""
    batch = torch.randn(4, 3, 64, 64, generator=torch.Generator().manual_seed(1))
    model = resnet18()
    size = sum(p.numel() for p in prune_channels(model, [(2, 3, 64, 64)]).module.parameters())
    for name, tool in (("Torch-Pruning", _torch_pruning), ("torch-simplify", _simplify)):
        small: nn.Module = copy.deepcopy(model)
        started = time.process_time()
        try:
            small = tool(small, batch)
        except ImportError:
            continue
        except Exception as error:  # another tool's failure is a result
            yield Row(f"{name} on the same network", time.process_time() - started, note=f"fails: {str(error)[:80]}")
            continue
        spent = time.process_time() - started
        with torch.no_grad():
            expected, got = model(batch), small.eval()(batch)
        gap = float((expected - got).abs().max() / expected.abs().max())
        left = sum(p.numel() for p in small.parameters())
        yield Row(
            f"{name} on the same network",
            spent,
            note=f"{left:,} parameters ({size:,} here), outputs differ by {gap:.1e}",
        )


def _torch_pruning(model: nn.Module, batch: Tensor) -> nn.Module:
    torch_pruning = import_module("torch_pruning")
    kept = [part for part in model.modules() if isinstance(part, nn.Linear)]
    importance = torch_pruning.importance.BNScaleImportance()
    pruner: Any = torch_pruning.pruner.BNScalePruner(
        model, batch, importance=importance, pruning_ratio=0.25, ignored_layers=kept
    )
    pruner.step()
    return model


def _simplify(model: nn.Module, batch: Tensor) -> nn.Module:
    found: nn.Module = import_module("simplify").simplify(model, batch, fuse_bn=False)
    return found
