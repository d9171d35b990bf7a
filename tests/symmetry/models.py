"""Small models of every kind of block, with the number of laws that theory (or an exact count) gives them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional


class Function(nn.Module):
    """Parameters and layers by name, and a function of them and the input."""

    def __init__(self, function: Callable[[Any, torch.Tensor], torch.Tensor], **parts: Any) -> None:
        super().__init__()
        self.function = function
        for name, part in parts.items():
            setattr(self, name, nn.Parameter(torch.randn(*part)) if isinstance(part, tuple) else part)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(self, x)


def plain(inputs: int, outputs: int) -> nn.Linear:
    return nn.Linear(inputs, outputs, bias=False)


class Attention(nn.Module):
    """One head with separate queries, keys, values and outputs, written out."""

    def __init__(self, width: int = 3, inner: int = 2, bias: bool = False) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(width, inner, bias=bias) for _ in range(3))
        self.o = plain(inner, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores = self.q(x) @ self.k(x).transpose(-1, -2) / math.sqrt(2)
        return self.o(scores.softmax(-1) @ self.v(x))


def rotated(x: torch.Tensor) -> torch.Tensor:
    """Rotary position embedding of (..., position, width)."""
    half = x.shape[-1] // 2
    places = torch.arange(x.shape[-2], device=x.device)[:, None]
    angles = places * 0.7 ** torch.arange(half, device=x.device)
    cos, sin = (torch.cat([part, part], -1).to(x.dtype) for part in (angles.cos(), angles.sin()))
    return x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin


class GptBlock(nn.Module):
    def __init__(self, width: int, heads: int, inner: int) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.qkv(self.first(x)).split(width, -1)
        q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2) for part in parts)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(functional.gelu(self.up(self.second(x))))


class Gpt(nn.Module):
    """GPT-2's shape: LayerNorm, biases, fused QKV, GELU, learned positions."""

    def __init__(self, vocabulary=5, length=3, width=4, heads=2, inner=3, layers=1, tied=True, real=False) -> None:
        super().__init__()
        self.token = plain(vocabulary, width) if real else nn.Embedding(vocabulary, width)
        self.position = nn.Parameter(torch.randn(length, width))
        self.blocks = nn.Sequential(*(GptBlock(width, heads, inner) for _ in range(layers)))
        self.last, self.head = nn.LayerNorm(width), plain(width, vocabulary)
        if tied:
            self.head.weight = self.token.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.last(self.blocks(self.token(x) + self.position)))


class LlamaBlock(nn.Module):
    def __init__(self, width: int, heads: int, groups: int, inner: int) -> None:
        super().__init__()
        self.heads, self.groups, self.head = heads, groups, width // heads
        self.first, self.second = nn.RMSNorm(width, eps=0.01), nn.RMSNorm(width, eps=0.01)
        self.q, self.out = plain(width, width), plain(width, width)
        self.k, self.v = plain(width, groups * self.head), plain(width, groups * self.head)
        self.gate, self.up, self.down = plain(width, inner), plain(width, inner), plain(inner, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        y = self.first(x)
        q = self.q(y).view(batch, length, self.heads, -1).transpose(1, 2)
        k, v = (part(y).view(batch, length, self.groups, -1).transpose(1, 2) for part in (self.k, self.v))
        k, v = (part.repeat_interleave(self.heads // self.groups, 1) for part in (rotated(k), v))
        y = functional.scaled_dot_product_attention(rotated(q), k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        y = self.second(x)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    """Llama's shape: RMSNorm, rotary positions, grouped queries, SwiGLU, no biases."""

    def __init__(self, vocabulary=5, width=4, heads=2, groups=1, inner=3, layers=1, tied=False) -> None:
        super().__init__()
        self.token = nn.Embedding(vocabulary, width)
        self.blocks = nn.Sequential(*(LlamaBlock(width, heads, groups, inner) for _ in range(layers)))
        self.last, self.head = nn.RMSNorm(width, eps=0.01), plain(width, vocabulary)
        if tied:
            self.head.weight = self.token.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.last(self.blocks(self.token(x))))


def rotary_head(width: int) -> nn.Module:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        return self.o(functional.scaled_dot_product_attention(rotated(self.q(x)), rotated(self.k(x)), self.v(x)))

    return Function(forward, q=plain(3, width), k=plain(3, width), v=plain(3, width), o=plain(width, 3))


def grouped_heads() -> nn.Module:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        q = self.q(x).unflatten(-1, (2, 2)).transpose(1, 2)
        k, v = (part(x).unsqueeze(1).expand(-1, 2, -1, -1) for part in (self.k, self.v))
        return self.o(functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))

    return Function(forward, q=plain(3, 4), k=plain(3, 2), v=plain(3, 2), o=plain(4, 3))


def gated(activation: Callable[[torch.Tensor], torch.Tensor]) -> nn.Module:
    parts = {"a": nn.Linear(3, 4), "b": nn.Linear(3, 4), "c": nn.Linear(4, 2)}
    return Function(lambda self, x: self.c(activation(self.a(x)) * self.b(x)), **parts)


def layer_norm_block() -> nn.Module:
    """theory: 3 (rows of e) + 4 (gain and next layer) + 4 + 3."""
    return Function(
        lambda self, x: self.o(self.n((h := self.e(x)) + self.b(functional.gelu(self.a(self.m(h)))))),
        e=plain(3, 4), m=nn.LayerNorm(4), a=plain(4, 3), b=plain(3, 4), n=nn.LayerNorm(4), o=plain(4, 2),
    )  # fmt: skip


def residual() -> nn.Module:
    return Function(
        lambda self, x: self.o(functional.relu((h := self.e(x)) + self.b(functional.relu(self.a(h))))),
        e=plain(3, 3), a=plain(3, 4), b=plain(4, 3), o=plain(3, 2),
    )  # fmt: skip


S, L = nn.Sequential, nn.Linear
Model = tuple[Callable[[], nn.Module], Any, int]
THEORY: dict[str, Model] = {
    "attention k(k+1)": (Attention, (4, 3), 6),
    "attention with biases": (lambda: Attention(bias=True), (4, 3), 8),
    "rotary head of 2": (lambda: rotary_head(2), (4, 3), 4),
    "rotary head of 4": (lambda: rotary_head(4), (5, 3), 12),
    "two heads on one": (grouped_heads, (4, 3), 6),
    "SwiGLU": (lambda: gated(functional.silu), (3,), 4),
    "ReLU squared": (lambda: Function(lambda s, x: s.b(functional.relu(s.a(x)) ** 2), a=L(3, 4), b=L(4, 2)), (3,), 4),
    "tied and linear": (lambda: Function(lambda s, x: x @ s.e @ s.a.T @ s.e.T, e=(3, 3), a=(3, 3)), (3,), 6),
    "residual MLP": (residual, (3,), 7),
    "LayerNorm block": (layer_norm_block, (3,), 14),
    "depthwise": (
        lambda: S(nn.Conv1d(2, 3, 1, bias=False), nn.ReLU(), nn.Conv1d(3, 3, 2, groups=3, bias=False), nn.ReLU(),
                  nn.Conv1d(3, 2, 1, bias=False)), (2, 6), 6,
    ),
    "GPT tied": (Gpt, "3:int", 36),
    "GPT untied, real inputs": (lambda: Gpt(tied=False, real=True), (3, 5), 45),
    "GPT untied": (lambda: Gpt(tied=False), "3:int", 48),
    "Llama untied": (Llama, "4:int", 19),
    "Llama tied": (lambda: Llama(tied=True), "4:int", 15),
}  # fmt: skip
RULES: dict[str, Model] = {
    "linear": (lambda: S(plain(3, 2), plain(2, 3)), (3,), 3),
    "ReLU": (lambda: S(L(3, 4), nn.ReLU(), L(4, 2)), (3,), 4),
    "leaky ReLU": (lambda: S(L(3, 4), nn.LeakyReLU(), L(4, 2)), (3,), 4),
    "GELU": (lambda: S(L(3, 4), nn.GELU(), L(4, 2)), (3,), 0),
    "bilinear gate": (lambda: gated(lambda x: x), (3,), 8),
    "ReGLU": (lambda: gated(functional.relu), (3,), 8),
    "width one": (lambda: S(L(3, 1), nn.ReLU(), L(1, 2)), (3,), 1),
    "all of width one": (lambda: S(L(1, 1), nn.ReLU(), L(1, 1), nn.ReLU(), L(1, 1)), (1,), 2),
    "convolution": (lambda: S(nn.Conv1d(1, 2, 3), nn.ReLU(), nn.Conv1d(2, 1, 3)), (1, 8), 2),
    "groups": (
        lambda: S(nn.Conv1d(2, 4, 1), nn.ReLU(), nn.Conv1d(4, 6, 2, groups=2), nn.ReLU(), nn.Conv1d(6, 2, 1)),
        (2, 6),
        10,
    ),
    "linear groups": (
        lambda: S(nn.Conv1d(2, 4, 1, bias=False), nn.Conv1d(4, 2, 2, groups=2, bias=False)), (2, 6), 6
    ),
    "transposed convolution": (lambda: S(nn.Conv1d(2, 3, 1), nn.ReLU(), nn.ConvTranspose1d(3, 2, 2)), (2, 6), 3),
    "transposed groups": (
        lambda: S(nn.Conv1d(2, 4, 1), nn.ReLU(), nn.ConvTranspose1d(4, 4, 2, groups=2)), (2, 6), 4
    ),
    "max pooling and flattening": (
        lambda: S(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), L(12, 2)), (1, 6, 6), 3
    ),
    "average pooling, no kink": (
        lambda: S(nn.Conv1d(2, 2, 2, bias=False), nn.AvgPool1d(2), nn.Conv1d(2, 2, 1, bias=False)), (2, 7), 3
    ),
    "batch norm": (
        lambda: S(nn.Conv1d(2, 3, 2), nn.BatchNorm1d(3), nn.ReLU(), nn.Conv1d(3, 2, 1)), (2, 6), 6
    ),
    "a trained number": (
        lambda: Function(lambda s, x: x + s.c * s.b(functional.relu(s.a(x))), a=L(3, 4), b=L(4, 3), c=(1,)),
        (3,),
        5,
    ),
    "two biases": (lambda: Function(lambda s, x: (s.a(x) + s.b + s.c).tanh(), a=plain(3, 2), b=(2,), c=(2,)), (3,), 2),
    "layer scale": (
        lambda: Function(lambda s, x: x + s.g * s.b(functional.gelu(s.a(x))), a=L(3, 4), b=L(4, 3), g=(3,)), (3,), 3
    ),
    "low rank beside": (
        lambda: Function(lambda s, x: (s.w(x) + s.b(s.a(x))).tanh(), w=plain(3, 3), a=plain(3, 2), b=plain(2, 3)),
        (3,),
        3,
    ),
    "experts": (lambda: Function(lambda s, x: (x[:, None] @ s.a) @ s.b, a=(2, 3, 2), b=(2, 2, 3)), (4, 3), 6),
    "group norm": (
        lambda: S(nn.Conv1d(2, 4, 2), nn.GroupNorm(2, 4), nn.GELU(), nn.Conv1d(4, 2, 1)), (2, 5), 2
    ),
    "RMSNorm of a product": (
        lambda: Function(lambda s, x: s.o(s.n(s.a(x))), a=plain(3, 4), n=nn.RMSNorm(4, eps=0.01), o=plain(4, 2)),
        (3,),
        4,
    ),
    "PReLU": (lambda: S(L(3, 4), nn.PReLU(), L(4, 2)), (3,), 4),
    "heads of width one": (
        lambda: Function(
            lambda s, x: s.o((s.q(x).transpose(-1, -2)[..., None] * s.k(x).transpose(-1, -2)[..., None, :])
                             .softmax(-1).matmul(s.v(x).transpose(-1, -2)[..., None])[..., 0].transpose(-1, -2)),
            q=plain(3, 2), k=plain(3, 2), v=plain(3, 2), o=plain(2, 3)), (4, 3), 4,
    ),
}  # fmt: skip


def last_state(layer: nn.Module) -> nn.Module:
    return Function(lambda self, x: self.read(self.layer(x)[0]), layer=layer, read=nn.Linear(2, 1))


RULES |= {
    "LSTM": (lambda: last_state(nn.LSTM(2, 2, batch_first=True)), (3, 2), 8),
    "GRU": (lambda: last_state(nn.GRU(2, 2, batch_first=True)), (3, 2), 4),
    "table before a GRU": (
        lambda: S(nn.Embedding(5, 2), Function(lambda s, x: s.g(x)[0], g=nn.GRU(2, 2, batch_first=True, bias=False))),
        "3:int",
        3,
    ),
    "tanh recurrence": (lambda: last_state(nn.RNN(2, 2, batch_first=True)), (3, 2), 2),
    "ReLU recurrence": (lambda: last_state(nn.RNN(2, 2, batch_first=True, nonlinearity="relu")), (3, 2), 4),
}


def skip(inner: nn.Module) -> nn.Module:
    return Function(lambda self, x: x + self.inner(x), inner=inner)


def linear_heads() -> nn.Module:
    """Two heads without a softmax: products of queries, keys and values."""

    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (part(x).unflatten(-1, (2, 1)).transpose(1, 2) for part in (self.q, self.k, self.v))
        return self.o((q @ k.transpose(-1, -2) @ v).transpose(1, 2).flatten(2))

    return Function(forward, q=plain(3, 2), k=plain(3, 2), v=plain(3, 2), o=plain(2, 3))


def unnormed_end() -> nn.Module:
    """A stream that a layer normalisation and a bare linear map read: its mean is a space of its own."""
    block = S(nn.LayerNorm(3, eps=0.05), L(3, 2), nn.GELU(), L(2, 3))
    return S(plain(2, 3), skip(block), L(3, 2))


RULES |= {
    "skip around a linear map": (lambda: S(plain(2, 3), skip(L(3, 3)), plain(3, 2)), (2,), 12),
    "skip around a gain": (lambda: S(L(2, 3), skip(Function(lambda s, x: x * s.g, g=(3,))), L(3, 2)), (2,), 6),
    "reader of a bare norm": (lambda: S(plain(2, 3), nn.LayerNorm(3, 0.05, False), L(3, 2), nn.GELU()), (2,), 4),
    "heads without softmax": (linear_heads, (4, 3), 6),
    "head without softmax": (
        lambda: Function(lambda s, x: s.o((s.q(x) @ s.k(x).transpose(-1, -2)) @ s.v(x)),
                         q=plain(3, 2), k=plain(3, 2), v=plain(3, 2), o=plain(2, 3)), (4, 3), 7,
    ),
    "mean of a stream": (unnormed_end, (2,), 4),
    "two maps of one value": (
        lambda: Function(lambda s, x: (s.a(x) + 2 * s.b(x)).tanh(), a=L(3, 2), b=plain(3, 2)), (3,), 6
    ),
    "two kernels of one value": (
        lambda: Function(lambda s, x: (s.a(x) - s.b(x)).tanh(), a=nn.Conv1d(2, 2, 2), b=nn.Conv1d(2, 2, 2)), (2, 4), 10
    ),
    "two tables of one id": (
        lambda: Function(lambda s, x: (s.a(x) + s.b(x)).tanh(), a=nn.Embedding(5, 2), b=nn.Embedding(5, 2)), "3:int", 10
    ),
    "halves of one map": (
        lambda: Function(lambda s, x: ((y := s.a(x))[..., :3] + y[..., 3:].flip(-1)).tanh(), a=plain(3, 6)), (3,), 9
    ),
    "weight norm before a linear map": (
        lambda: S(nn.utils.parametrizations.weight_norm(plain(3, 2)), plain(2, 2)), (3,), 4
    ),
    "rows divided by their length": (
        lambda: Function(lambda s, x: s.b(functional.linear(x, s.w / s.w.norm(dim=1, keepdim=True))),
                         w=(2, 3), b=plain(2, 2)), (3,), 2,
    ),
    "channels that nothing reads": (
        lambda: Function(lambda s, x: s.b((x * s.g + s.c)[..., 1:2]), g=(2,), c=(2,), b=plain(1, 2)), (2,), 3
    ),
    "columns of a table that nothing reads": (
        lambda: Function(lambda s, x: s.b(s.e(x)[..., 1:]), e=nn.Embedding(5, 4), b=plain(3, 2)), "3:int", 11
    ),
}  # fmt: skip


def centred_gain() -> nn.Module:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        y = self.a(x)
        return self.o(y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 0.01) * (1 + self.g))

    return Function(forward, a=plain(3, 4), g=(4,), o=plain(4, 2))


def folded(make: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    """Batch normalisation in eval mode for good, with statistics of its own."""

    def made() -> nn.Module:
        module = make()
        for part in module.modules():
            if isinstance(part, nn.BatchNorm1d):
                part.running_mean.normal_()
                part.running_var.uniform_(0.5, 2)
        return module

    return made


RULES |= {"gain about one": (centred_gain, (3,), 4)}
EVAL: dict[str, Model] = {
    "bias before batch norm": (
        folded(lambda: S(L(3, 4), nn.BatchNorm1d(4), nn.ReLU(), L(4, 2))), (3,), 8
    ),
    "no bias before batch norm": (
        folded(lambda: S(plain(3, 4), nn.BatchNorm1d(4), nn.ReLU(), L(4, 2))), (3,), 4
    ),
}  # fmt: skip
