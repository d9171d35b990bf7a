"""Claims about numbers of laws that the graph of a block gives away: attention, rotary, gated units, whole models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from lawful.symmetry import symmetries
from reproduction.claim import Outcome, Size, claim
from reproduction.claims.extremes import largest


class _Heads(nn.Module):
    """Self-attention: h heads on g groups of keys and values, with or without biases and rotary positions."""

    def __init__(
        self, width: int, heads: int, groups: int, inner: int, bias: bool = False, rotary: bool = False
    ) -> None:
        super().__init__()
        self.heads, self.groups, self.rotary = heads, groups, rotary
        self.q, self.o = nn.Linear(width, heads * inner, bias=bias), nn.Linear(heads * inner, width, bias=False)
        self.k, self.v = (nn.Linear(width, groups * inner, bias=bias) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q = self.q(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        k, v = (part(x).unflatten(-1, (self.groups, -1)).transpose(1, 2) for part in (self.k, self.v))
        if self.rotary:
            q, k = _rotated(q), _rotated(k)
        k, v = (part.repeat_interleave(self.heads // self.groups, 1) for part in (k, v))
        found: torch.Tensor = self.o(functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return found


def _rotated(x: torch.Tensor) -> torch.Tensor:
    half = x.shape[-1] // 2
    angles = torch.arange(x.shape[-2], device=x.device)[:, None] * 0.7 ** torch.arange(half, device=x.device)
    cos, sin = (torch.cat([part, part], -1).to(x.dtype) for part in (angles.cos(), angles.sin()))
    return x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin


class _Gated(nn.Module):
    def __init__(self, activation: Callable[[torch.Tensor], torch.Tensor], gates: bool = True) -> None:
        super().__init__()
        self.a, self.c, self.activation = nn.Linear(3, 4), nn.Linear(4, 2), activation
        self.b = nn.Linear(3, 4) if gates else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner = self.activation(self.a(x))
        found: torch.Tensor = self.c(inner if self.b is None else inner * self.b(x))
        return found


class _Gpt(nn.Module):
    """GPT-2's shape: layer norms, biases, fused queries, keys and values, GELU, learned positions."""

    def __init__(self, v: int, t: int, d: int, h: int, ff: int, layers: int, tied: bool) -> None:
        super().__init__()
        self.token, self.place = nn.Embedding(v, d), nn.Parameter(torch.randn(t, d))
        self.blocks = nn.Sequential(*(_Block(d, h, ff) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, v, bias=False)
        if tied:
            self.head.weight = self.token.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.head(self.norm(self.blocks(self.token(x) + self.place)))
        return found


def gpt_shape(tokens: int, length: int, width: int, heads: int, units: int, layers: int) -> nn.Module:
    """A small GPT with a head of its own."""
    return _Gpt(tokens, length, width, heads, units, layers, tied=False)


class _Block(nn.Module):
    def __init__(self, d: int, h: int, ff: int) -> None:
        super().__init__()
        self.heads, self.first, self.second = h, nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.out, self.up, self.down = (
            nn.Linear(d, 3 * d),
            nn.Linear(d, d),
            nn.Linear(d, ff),
            nn.Linear(ff, d),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = self.qkv(self.first(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        y = functional.scaled_dot_product_attention(parts[0], parts[1], parts[2], is_causal=True)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        found: torch.Tensor = x + self.down(functional.gelu(self.up(self.second(x))))
        return found


class _Llama(nn.Module):
    """Llama's shape: RMS norms, rotary positions, grouped queries, SwiGLU, no biases."""

    def __init__(self, v: int, d: int, h: int, kv: int, ff: int, layers: int, tied: bool) -> None:
        super().__init__()
        self.token, self.norm, self.head = nn.Embedding(v, d), nn.RMSNorm(d, eps=0.01), nn.Linear(d, v, bias=False)
        self.mixers = nn.ModuleList(_Heads(d, h, kv, d // h, rotary=True) for _ in range(layers))
        self.norms = nn.ModuleList(nn.RMSNorm(d, eps=0.01) for _ in range(2 * layers))
        self.gates, self.ups = (nn.ModuleList(nn.Linear(d, ff, bias=False) for _ in range(layers)) for _ in range(2))
        self.downs = nn.ModuleList(nn.Linear(ff, d, bias=False) for _ in range(layers))
        if tied:
            self.head.weight = self.token.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.token(x)
        for n, (mix, gate, up, down) in enumerate(zip(self.mixers, self.gates, self.ups, self.downs, strict=True)):
            x = x + mix(self.norms[2 * n](x))
            y = self.norms[2 * n + 1](x)
            x = x + down(functional.silu(gate(y)) * up(y))
        found: torch.Tensor = self.head(self.norm(x))
        return found


class _Opt(nn.Module):
    """OPT's shape: biases on queries, keys and values, a ReLU block, and positions that start at the third row."""

    def __init__(self, v: int, t: int, d: int, h: int, ff: int) -> None:
        super().__init__()
        self.heads, self.token, self.place = h, nn.Embedding(v, d), nn.Embedding(t + 2, d)
        self.first, self.second, self.norm = (nn.LayerNorm(d) for _ in range(3))
        self.q, self.k, self.v, self.o = (nn.Linear(d, d) for _ in range(4))
        self.up, self.down = nn.Linear(d, ff), nn.Linear(ff, d)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.token(x) + self.place(torch.arange(x.shape[1], device=x.device) + 2)
        y = self.first(x)
        q, k, v = (part(y).unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in (self.q, self.k, self.v))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(y.transpose(1, 2).flatten(2))
        x = x + self.down(torch.relu(self.up(self.second(x))))
        return functional.linear(self.norm(x), self.token.weight)


class _LinearHeads(nn.Module):
    """Attention without a softmax."""

    def __init__(self, width: int, heads: int, inner: int) -> None:
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v = (nn.Linear(width, heads * inner, bias=False) for _ in range(3))
        self.o = nn.Linear(heads * inner, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (part(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in (self.q, self.k, self.v))
        found: torch.Tensor = self.o((q @ k.transpose(-1, -2) @ v).transpose(1, 2).flatten(2))
        return found


class _Halves(nn.Module):
    """A map whose two halves are added, one of them in reverse: weights of one half can move against the other's."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(3, 6, bias=False), nn.Linear(3, 2, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.a(x)
        found: torch.Tensor = self.b(y[..., :3] + y[..., 3:].flip(-1))
        return found


BEYOND: dict[str, tuple[Callable[[], nn.Module], Any, int]] = {
    "OPT's shape": (lambda: _Opt(5, 3, 4, 2, 3), "3:int", 39 + 8),  # 8 entries of positions that no input reads
    "a head without softmax": (lambda: _LinearHeads(3, 1, 2), (4, 3), 7),
    "two heads without softmax": (lambda: _LinearHeads(3, 2, 1), (4, 3), 6),
    "halves of one map": (_Halves, (3,), 15),
}
BLOCKS: dict[str, tuple[Callable[[], nn.Module], Any, int]] = {
    "attention, k(k+1), k = 2": (lambda: _Heads(3, 1, 1, 2), (4, 3), 6),
    "attention, k(k+1), k = 3": (lambda: _Heads(4, 1, 1, 3), (5, 4), 12),
    "attention with biases, k more": (lambda: _Heads(3, 1, 1, 2, bias=True), (4, 3), 8),
    "rotary head of 2": (lambda: _Heads(3, 1, 1, 2, rotary=True), (4, 3), 4),
    "rotary head of 4": (lambda: _Heads(3, 1, 1, 4, rotary=True), (5, 3), 12),
    "two heads on one group": (lambda: _Heads(3, 2, 1, 2), (4, 3), 6),
    "SwiGLU, one a unit": (lambda: _Gated(functional.silu), (3,), 4),
    "bilinear gate, two a unit": (lambda: _Gated(lambda x: x), (3,), 8),
    "ReLU squared, one a unit": (lambda: _Gated(lambda x: torch.relu(x) ** 2, gates=False), (3,), 4),
    "GPT-2's shape, tied": (lambda: _Gpt(5, 3, 4, 2, 3, 1, True), "3:int", 36),
    "GPT-2's shape, untied": (lambda: _Gpt(5, 3, 4, 2, 3, 1, False), "3:int", 48),
    "Llama's shape, untied": (lambda: _Llama(5, 4, 2, 1, 3, 1, False), "4:int", 19),
    "Llama's shape, tied": (lambda: _Llama(5, 4, 2, 1, 3, 1, True), "4:int", 15),
}


def gpt_laws(t: int, d: int, h: int, ff: int, layers: int) -> int:
    """`h d_h(d_h+1) + 3d + (d+1) + (ff+1)` a layer, plus t: GPT-2's shape with a tied head.

    >>> gpt_laws(1024, 768, 12, 3072, 12)
    673816
    """
    return layers * (h * (d // h) * (d // h + 1) + 3 * d + (d + 1) + (ff + 1)) + t


@claim(
    "p1-structural-counts",
    "Section 3 and Example 3.6, on attention, gated and normalised blocks",
    "attention of inner width k has k(k+1) laws, and k more with biases; a rotary head of width d has d/2 + d(d+1)/2; "
    "grouped heads share theirs; SwiGLU has one a unit; GPT-2's and Llama's shapes have the sums of their parts",
    size=Size("13 blocks, GPT-2's shape at width 48", "13 blocks, GPT-2's own shape", "beyond the paper"),
    criterion="ours: the statement is not in the paper",
)
def structural_counts(full: bool) -> Outcome:
    """Read each from its graph, hold every generator against gradients, and count at the size of GPT-2 by shape."""
    counts, worst = {}, 0.0
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        for name, (make, given, _) in BLOCKS.items():
            found = symmetries(make(), given)
            counts[name] = len(found.laws)
            worst = largest(worst, 1.0 if found.checked is None else found.checked.worst)
    sizes = (50257, 1024, 768, 12, 3072, 12) if full else (300, 16, 48, 4, 96, 2)
    with torch.device("meta"):
        large = _Gpt(*sizes, True)
    by_shape = len(symmetries(large, f"{sizes[1]}:int").laws)
    expected = gpt_laws(sizes[1], sizes[2], sizes[3], sizes[4], sizes[5])
    holds = all(counts[name] == laws for name, (_, _, laws) in BLOCKS.items()) and by_shape == expected
    return Outcome(
        holds and worst < 1e-9, {**counts, "by shape": by_shape, "expected": expected, "worst generator": worst}
    )


@claim(
    "p1-structural-shifts-and-numbers",
    "Section 3, beyond groups that act on single axes",
    "a head without softmax has one law more than its two spaces, for the free number of its scores; two weights that "
    "read one value conserve their difference, entry by entry; OPT's shape has GPT-2's laws and one for each ReLU",
    size=Size("4 blocks", "4 blocks", "beyond the paper"),
    criterion="ours: the statement is not in the paper",
)
def structural_shifts(full: bool) -> Outcome:
    """Read each from its graph; the counts are those of the Lie closure."""
    counts, worst = {}, 0.0
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        for name, (make, given, _) in BEYOND.items():
            found = symmetries(make(), given)
            counts[name] = len(found.laws)
            worst = largest(worst, 1.0 if found.checked is None else found.checked.worst)
    holds = all(counts[name] == laws for name, (_, _, laws) in BEYOND.items())
    return Outcome(holds and worst < 1e-9, {**counts, "worst generator": worst})


CLAIMS = (structural_counts, structural_shifts)
