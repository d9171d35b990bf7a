"""Symmetries of modules: reading graphs at size, values of all laws, and what a monitor costs."""

from __future__ import annotations

import time
from collections.abc import Iterator

import torch
from torch import nn

from benchmarks.harness import Row, best_of
from lawful.symmetry import symmetries
from lawful.training.monitor.watch import LawWatch


class Block(nn.Module):
    """A pre-norm transformer block in GPT-2's shape."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.first, self.second, self.heads = nn.LayerNorm(width), nn.LayerNorm(width), heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Attention, then an MLP, each beside the stream."""
        parts = self.qkv(self.first(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        y = nn.functional.scaled_dot_product_attention(parts[0], parts[1], parts[2], is_causal=True)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        found: torch.Tensor = x + self.down(nn.functional.gelu(self.up(self.second(x))))
        return found


class Transformer(nn.Module):
    """Token and position embeddings, blocks, a tied head."""

    def __init__(self, vocabulary: int, length: int, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.token, self.place = nn.Embedding(vocabulary, width), nn.Parameter(torch.zeros(length, width))
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.token.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits."""
        found: torch.Tensor = self.head(self.norm(self.blocks(self.token(x) + self.place)))
        return found


def rows() -> Iterator[Row]:
    """GPT-2 small and a billion parameters by shape; then values and a monitor at ten million, with weights."""
    for name, sizes in (
        ("GPT-2 small, 124 M", (50257, 1024, 768, 12, 12)),
        ("1.3 B transformer", (50257, 128, 2048, 16, 24)),
    ):
        with torch.device("meta"):
            module = Transformer(*sizes)
        found = symmetries(module, f"{sizes[1]}:int")
        seconds = best_of(lambda module=module, n=sizes[1]: symmetries(module, f"{n}:int"), 1)  # type: ignore[misc]
        yield Row(f"symmetries of {name}, by shape", seconds, note=f"{len(found.laws):,} laws")
    module = Transformer(2000, 64, 320, 5, 7)
    parameters = sum(tensor.numel() for tensor in module.parameters())
    watch = LawWatch(module, (torch.zeros(2, 64, dtype=torch.int64),))
    measuring = best_of(lambda: watch.measure(module), 2)
    step = _step(module)
    yield Row(
        f"drift of all laws, {parameters / 1e6:.0f} M parameters", measuring,
        note=f"{watch.count:,} laws; every 100 steps {measuring / (100 * step):.2%} of training",
    )  # fmt: skip


def _step(module: nn.Module) -> float:
    """Seconds of one training step on 16 sequences."""
    ids = torch.randint(2000, (16, 64))
    optimiser = torch.optim.SGD(module.parameters(), 0.01)
    times = []
    for _ in range(3):
        begin = time.perf_counter()
        optimiser.zero_grad()
        loss = nn.functional.cross_entropy(module(ids).flatten(0, 1), ids.flatten())
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        times.append(time.perf_counter() - begin)
    return min(times)
