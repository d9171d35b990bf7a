"""Checkpoints: a disguised copy read, aligned, decided; at the sizes that people have."""

from __future__ import annotations

import resource
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from torch import nn

from benchmarks.bench_symmetry import Transformer
from benchmarks.harness import Row, compare
from lawful.api.checkpoints.index import find, index_folder
from lawful.checkpoints.architecture import CheckpointArchitecture
from lawful.checkpoints.compare.decide import same_checkpoints
from lawful.checkpoints.group.axis_actions import frames, move_tensors
from lawful.checkpoints.group.random_members import draw
from lawful.checkpoints.identity.orbit_hash import orbit_hash
from lawful.checkpoints.opening import open_checkpoint
from lawful.checkpoints.read_architecture import read_architecture
from lawful.checkpoints.rewrite.folds import State, apply_folds

CHECKPOINTS = 1000


class Residual(nn.Module):
    """A basic block of ResNet."""

    def __init__(self, width: int, wide: int, stride: int) -> None:
        super().__init__()
        self.a, self.n = nn.Conv2d(width, wide, 3, stride, 1, bias=False), nn.BatchNorm2d(wide)
        self.b, self.m = nn.Conv2d(wide, wide, 3, 1, 1, bias=False), nn.BatchNorm2d(wide)
        self.down = (
            nn.Sequential(nn.Conv2d(width, wide, 1, stride, bias=False), nn.BatchNorm2d(wide))
            if stride > 1
            else nn.Identity()
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Two convolutions beside the stream."""
        y = self.m(self.b(torch.relu(self.n(self.a(x)))))
        return torch.relu(y + self.down(x))


def resnet18() -> nn.Module:
    """ResNet-18, 11.7 million parameters."""
    blocks, before = [], 64
    for width in (64, 128, 256, 512):
        blocks += [Residual(before, width, 1 if width == before else 2), Residual(width, width, 1)]
        before = width
    stem = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000))


def disguised(found: CheckpointArchitecture, seed: int) -> State:
    """A random member of the orbit, in float32."""
    wide = {name: tensor.double() if tensor.is_floating_point() else tensor for name, tensor in found.state().items()}
    state = apply_folds(wide, found.folds)
    state |= move_tensors(
        state, frames(found.group, draw(found.group, np.random.default_rng(seed))), list(found.group.shapes)
    )
    return {name: tensor.float() if tensor.is_floating_point() else tensor for name, tensor in state.items()}


def perceptron() -> nn.Module:
    """A small one, 6,834 parameters."""
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 18))


def indexed() -> Row:
    """A folder of small checkpoints, indexed and searched."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        for number in range(CHECKPOINTS):
            save_file(perceptron().state_dict(), place / f"{number}.safetensors")
        start, busy = time.perf_counter(), time.process_time()
        index_folder([place], place / "index.sqlite", model=perceptron, input=(64,))
        made = time.process_time() - busy
        found = find(place / "7.safetensors", place / "index.sqlite", model=perceptron, input=(64,))
        seconds, spent = time.perf_counter() - start, time.process_time() - busy
        words = f"{found.compared} compared; processor {made:.1f} + {spent - made:.1f} s"
        return Row(f"index {CHECKPOINTS} small checkpoints and search them", seconds, note=words)


def hashed() -> Row:
    """The exact hash of ResNet-18 beside reading its file and adding up all numbers."""
    module = resnet18().eval()
    found = read_architecture(module, "3,64,64", folding="statistics")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.safetensors"
        save_file(module.state_dict(), file)
        return compare(
            "exact hash of ResNet-18, 11.7 M, once it was read",
            lambda: orbit_hash(found, open_checkpoint(file, module).state),
            "reading its file and adding up all numbers",
            lambda: np.frombuffer(file.read_bytes()[-4 * (file.stat().st_size // 4) :], dtype=np.float32).sum(),
        )


def rows() -> Iterator[Row]:
    """A thousand small ones, ResNet-18 hashed and decided, a small and (last) the full GPT-2 shape."""
    torch.manual_seed(0)
    yield indexed()
    yield hashed()
    cases = (
        ("ResNet-18, 11.7 M", resnet18(), "3,64,64"),
        ("GPT-2 shape, 2 layers", Transformer(5000, 8, 768, 12, 2), "8:int"),
        ("GPT-2 small shape, 124 M", Transformer(50257, 8, 768, 12, 12), "8:int"),
    )
    for name, module, size in cases:
        start, busy = time.perf_counter(), time.process_time()
        found = read_architecture(module, size)
        read, read_busy = time.perf_counter() - start, time.process_time() - busy
        other = disguised(found, 1)
        start, busy = time.perf_counter(), time.process_time()
        verdict = same_checkpoints(found, found.state(), other)
        seconds, spent = time.perf_counter() - start, time.process_time() - busy
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        words = f"{verdict.verdict}; processor {read_busy:.0f} + {spent:.0f} s, peak {peak:.1f} GB"
        yield Row(f"read, align and decide a disguised {name}", read + seconds, note=words)
