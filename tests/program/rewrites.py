"""Networks whose every call is drawn from the ways in which people write it.

`IDEAS` has the spellings of each idea (a linear map, attention, a norm, ...). A network is written with a
pen; a seeded pen draws a spelling at each call, so one seed is one way of writing all of it.
The first spelling of each idea is the plain one.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

Spelling = Callable[..., Any]


def _assign(h: Tensor) -> Tensor:
    out = torch.empty_like(h)
    out[..., :1] = h[..., :1]
    out[..., 1:] = h[..., 1:]
    return out


NOTHING: dict[str, Spelling] = {
    "none": lambda h: h,
    "clone": lambda h: h.clone(),
    "contiguous": lambda h: h.contiguous(),
    "unsqueeze and squeeze": lambda h: h.unsqueeze(1).squeeze(1),
    "transpose twice": lambda h: h.transpose(0, -1).transpose(-1, 0),
    "cat of parts": lambda h: torch.cat([h[..., :1], h[..., 1:]], -1),
    "flip twice": lambda h: h.flip(-1).flip(-1),
    "roll there and back": lambda h: h.roll(1, -1).roll(-1, -1),
    "plus 0": lambda h: 0.0 + h,
    "times 1": lambda h: h * torch.ones(h.shape[-1], dtype=h.dtype),
    "over 1": lambda h: h / 1.0,
    "minus minus": lambda h: -(h.neg()),
    "halves": lambda h: 0.5 * h + 0.5 * h,
    "double of half": lambda h: (h * 2) * 0.5,
    "flatten and view": lambda h: h.flatten().view(h.shape),
    "assigned in parts": _assign,
    "padded and cut": lambda h: functional.pad(h, (1, 2))[..., 1:-2],
    "gather": lambda h: torch.gather(h, -1, torch.arange(h.shape[-1]).expand(h.shape)),
    "stack and select": lambda h: torch.stack([h, h * 2], 1)[:, 0],
    "repeat and first": lambda h: h.repeat(2, *(1,) * (h.dim() - 1))[: h.shape[0]],
    "dropout in evaluation": lambda h: functional.dropout(h, 0.3, False),
    "where": lambda h: torch.where(torch.ones_like(h, dtype=torch.bool), h, -h),
    "masked by nothing": lambda h: h.masked_fill(torch.zeros_like(h, dtype=torch.bool), 3.0),
    "identity": lambda h: h @ torch.eye(h.shape[-1], dtype=h.dtype),
    "sum of one": lambda h: h.unsqueeze(-1).sum(-1),
    "mean of two": lambda h: torch.stack([h, h]).mean(0),
}
LINEAR: dict[str, Spelling] = {
    "linear": lambda x, w, b: functional.linear(x, w, b),
    "matmul": lambda x, w, b: x @ w.T + b,
    "from the left": lambda x, w, b: (w @ x.transpose(-1, -2)).transpose(-1, -2) + b,
    "einsum": lambda x, w, b: b + torch.einsum("...i,oi->...o", x, w),
    "flat rows": lambda x, w, b: torch.addmm(b, x.reshape(-1, x.shape[-1]), w.t()).view(*x.shape[:-1], -1),
    "sum of products": lambda x, w, b: (x.unsqueeze(-2) * w).sum(-1) + b,
    "tensordot": lambda x, w, b: torch.tensordot(x, w, dims=([-1], [1])) + b,
    "in two halves": lambda x, w, b: torch.cat(
        [functional.linear(x, w[:2], b[:2]), functional.linear(x, w[2:], b[2:])], -1
    ),
    "sum of two inputs": lambda x, w, b: (
        functional.linear(x[..., :2], w[:, :2]) + functional.linear(x[..., 2:], w[:, 2:], b)
    ),
    "bias in the matrix": lambda x, w, b: (
        torch.cat([x, torch.ones_like(x[..., :1])], -1) @ torch.cat([w, b[:, None]], 1).T
    ),
    "convolution of width 1": lambda x, w, b: functional.conv1d(x.reshape(-1, x.shape[-1], 1), w[..., None], b).view(
        *x.shape[:-1], -1
    ),
    "bmm": lambda x, w, b: torch.bmm(x.reshape(1, -1, x.shape[-1]), w.t()[None]).view(*x.shape[:-1], -1) + b,
    "bias twice half": lambda x, w, b: functional.linear(x, w, b / 2) + b / 2,
}
RELU: dict[str, Spelling] = {
    "relu": torch.relu,
    "clamp": lambda h: h.clamp(min=0),
    "maximum": lambda h: torch.maximum(h, torch.zeros(())),
    "half of a sum": lambda h: (h + h.abs()) / 2,
    "half of a sum times": lambda h: 0.5 * (h.abs() + h),
    "masked": lambda h: h * (h > 0),
    "where": lambda h: torch.where(h > 0, h, 0.0),
    "threshold": lambda h: functional.threshold(h, 0.0, 0.0),
    "minus the minimum": lambda h: -torch.clamp(-h, max=0),
    "less its minimum": lambda h: h - h.clamp(max=0),
    "leaky": lambda h: functional.leaky_relu(h, 0.0),
    "prelu": lambda h: functional.prelu(h, torch.zeros(1, dtype=h.dtype)),
    "hardtanh": lambda h: functional.hardtanh(h, 0.0, float("inf")),
    "heaviside": lambda h: h * torch.heaviside(h, torch.zeros((), dtype=h.dtype)),
    "in parts": lambda h: torch.cat([p.relu() for p in h.split([1, h.shape[-1] - 1], -1)], -1),
}
SIGMOID: dict[str, Spelling] = {
    "sigmoid": torch.sigmoid,
    "written out": lambda h: 1 / (1 + torch.exp(-h)),
    "reciprocal": lambda h: (1 + (-h).exp()).reciprocal(),
    "by tanh": lambda h: 0.5 * (torch.tanh(0.5 * h) + 1),
    "of a softmax": lambda h: torch.softmax(torch.stack([h, torch.zeros_like(h)]), 0)[0],
    "quotient": lambda h: torch.exp(h) / (torch.exp(h) + 1),
    "one less": lambda h: 1 - torch.sigmoid(-h),
}
SILU: dict[str, Spelling] = {
    "silu": functional.silu,
    "product": lambda h: h * torch.sigmoid(h),
    "quotient": lambda h: h / (1 + torch.exp(-h)),
    "swapped": lambda h: torch.sigmoid(h) * h,
}
TANH: dict[str, Spelling] = {
    "tanh": torch.tanh,
    "by sigmoid": lambda h: 2 * torch.sigmoid(2 * h) - 1,
    "by exponentials": lambda h: (h.exp() - (-h).exp()) / (h.exp() + (-h).exp()),
    "by sinh": lambda h: h.sinh() / h.cosh(),
    "minus": lambda h: -torch.tanh(-h),
}
GELU: dict[str, Spelling] = {
    "gelu": functional.gelu,
    "by erf": lambda h: 0.5 * h * (1 + torch.erf(h / 2**0.5)),
    "by erf, halves": lambda h: h * (torch.erf(h * 0.5**0.5) + 1) * 0.5,
    "by erfc": lambda h: h * torch.erfc(-h * 0.5**0.5) / 2,
    "by ndtr": lambda h: h * torch.special.ndtr(h),
}
SOFTMAX: dict[str, Spelling] = {
    "softmax": lambda s: torch.softmax(s, -1),
    "written out": lambda s: s.exp() / s.exp().sum(-1, keepdim=True),
    "less its maximum": lambda s: (e := torch.exp(s - s.amax(-1, keepdim=True))) / e.sum(-1, keepdim=True),
    "of the logarithm": lambda s: torch.log_softmax(s, -1).exp(),
    "less logsumexp": lambda s: torch.exp(s - torch.logsumexp(s, -1, keepdim=True)),
    "along another axis": lambda s: torch.softmax(s.transpose(-1, -2), -2).transpose(-1, -2),
}
LAYER_NORM: dict[str, Spelling] = {
    "layer_norm": lambda x, g, b: functional.layer_norm(x, x.shape[-1:], g, b, 2**-16),
    "written out": lambda x, g, b: (
        g * ((c := x - x.mean(-1, keepdim=True)) / (c.pow(2).mean(-1, keepdim=True) + 2**-16).sqrt()) + b
    ),
    "by var": lambda x, g, b: (
        (x - x.mean(-1, keepdim=True)) * torch.rsqrt(x.var(-1, unbiased=False, keepdim=True) + 2**-16) * g + b
    ),
    "by var_mean": lambda x, g, b: (
        (lambda v, m: (x - m) / torch.sqrt(v + 2**-16))(*torch.var_mean(x, -1, correction=0, keepdim=True)) * g + b
    ),
    "affine apart": lambda x, g, b: functional.layer_norm(x, x.shape[-1:], None, None, 2**-16) * g + b,
    "sum of squares": lambda x, g, b: (
        (c := x - x.sum(-1, keepdim=True) / x.shape[-1])
        * ((c * c).sum(-1, keepdim=True) / x.shape[-1] + 2**-16) ** -0.5
        * g
        + b
    ),
    "moments": lambda x, g, b: (
        (x - x.mean(-1, keepdim=True))
        / torch.sqrt((x * x).mean(-1, keepdim=True) - x.mean(-1, keepdim=True) ** 2 + 2**-16)
        * g
        + b
    ),
    "group norm": lambda x, g, b: functional.group_norm(x.reshape(-1, x.shape[-1]), 1, g, b, 2**-16).view(x.shape),
}
RMS_NORM: dict[str, Spelling] = {
    "rms_norm": lambda x, g: functional.rms_norm(x, x.shape[-1:], g, 2**-16),
    "written out": lambda x, g: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 2**-16) * g,
    "gain first": lambda x, g: g * (x / torch.sqrt((x * x).mean(-1, keepdim=True) + 2**-16)),
    "sum of squares": lambda x, g: g * x / ((x**2).sum(-1, keepdim=True) / x.shape[-1] + 2**-16) ** 0.5,
    "square": lambda x, g: x.square().mean(-1, keepdim=True).add(2**-16).rsqrt().mul(x) * g,
    "einsum": lambda x, g: x / (torch.einsum("...i,...i->...", x, x)[..., None] / x.shape[-1] + 2**-16).sqrt() * g,
    "norm": lambda x, g: (
        x / torch.sqrt(torch.linalg.vector_norm(x, dim=-1, keepdim=True) ** 2 / x.shape[-1] + 2**-16) * g
    ),
}


def _heads(t: Tensor, n: int) -> Tensor:
    return t.unflatten(-1, (n, -1)).transpose(1, 2)


def _merge(t: Tensor) -> Tensor:
    return t.transpose(1, 2).flatten(2)


def _loop(q: Tensor, k: Tensor, v: Tensor, n: int, s: Spelling) -> Tensor:
    parts = zip(q.chunk(n, -1), k.chunk(n, -1), v.chunk(n, -1), strict=True)
    return torch.cat([s((a @ b.mT) / a.shape[-1] ** 0.5) @ c for a, b, c in parts], -1)


ATTENTION: dict[str, Spelling] = {
    "fused": lambda q, k, v, n, s: _merge(
        functional.scaled_dot_product_attention(_heads(q, n), _heads(k, n), _heads(v, n))
    ),
    "written out": lambda q, k, v, n, s: _merge(
        s(_heads(q, n) @ _heads(k, n).transpose(-1, -2) / (q.shape[-1] // n) ** 0.5) @ _heads(v, n)
    ),
    "queries scaled": lambda q, k, v, n, s: _merge(
        s((_heads(q, n) * (q.shape[-1] // n) ** -0.5) @ _heads(k, n).mT) @ _heads(v, n)
    ),
    "einsum": lambda q, k, v, n, s: torch.einsum(
        "bhqk,bkhd->bqhd",
        s(
            torch.einsum("bqhd,bkhd->bhqk", q.unflatten(-1, (n, -1)), k.unflatten(-1, (n, -1)))
            * (q.shape[-1] // n) ** -0.5
        ),
        v.unflatten(-1, (n, -1)),
    ).flatten(2),
    "head by head": _loop,
    "baddbmm": lambda q, k, v, n, s: _merge(
        torch.bmm(
            s(
                torch.baddbmm(
                    torch.zeros(q.shape[0] * n, q.shape[1], q.shape[1], dtype=q.dtype),
                    _heads(q, n).flatten(0, 1),
                    _heads(k, n).flatten(0, 1).mT,
                    beta=0,
                    alpha=(q.shape[-1] // n) ** -0.5,
                )
            ),
            _heads(v, n).flatten(0, 1),
        ).unflatten(0, (q.shape[0], n))
    ),
    "scores transposed": lambda q, k, v, n, s: _merge(
        s((_heads(k, n) @ _heads(q, n).mT).mT / (q.shape[-1] // n) ** 0.5) @ _heads(v, n)
    ),
    "keys by values": lambda q, k, v, n, s: _merge(
        (_heads(v, n).mT @ s(_heads(q, n) @ _heads(k, n).mT / (q.shape[-1] // n) ** 0.5).mT).mT
    ),
}
# Queries, keys and values of one weight
PROJECTED: dict[str, Spelling] = {
    "apart": lambda x, w, b, say: [say("linear", x, *each) for each in zip(w.chunk(3), b.chunk(3), strict=True)],
    "in one": lambda x, w, b, say: say("linear", x, w, b).chunk(3, -1),
    "in one, split": lambda x, w, b, say: say("linear", x, w, b).split(x.shape[-1], -1),
    "in one, unflattened": lambda x, w, b, say: say("linear", x, w, b).unflatten(-1, (3, -1)).unbind(-2),
    "in one, permuted": lambda x, w, b, say: say("linear", x, w, b).unflatten(-1, (3, -1)).permute(2, 0, 1, 3),
}
CONVOLUTION: dict[str, Spelling] = {
    "padding": lambda x, w, b: functional.conv2d(x, w, b, padding=1),
    "same": lambda x, w, b: functional.conv2d(x, w, b, padding="same"),
    "padded before": lambda x, w, b: functional.conv2d(functional.pad(x, (1, 1, 1, 1)), w, b),
    "bias after": lambda x, w, b: functional.conv2d(x, w, padding=1) + b[:, None, None],
    "unfolded": lambda x, w, b: (w.flatten(1) @ functional.unfold(x, 3, padding=1) + b[:, None]).view(
        len(x), -1, *x.shape[2:]
    ),
    "zeros at the border": lambda x, w, b: functional.conv2d(
        torch.cat([torch.zeros_like(x[..., :1]), x, torch.zeros_like(x[..., :1])], -1), w, b, padding=(1, 0)
    ),
    "channels last": lambda x, w, b: functional.conv2d(x.to(memory_format=torch.channels_last), w, b, padding=1),
    "larger and cut": lambda x, w, b: functional.conv2d(x, w, b, padding=2)[..., 1:-1, 1:-1],
    "in halves": lambda x, w, b: torch.cat(
        [functional.conv2d(x, w[:1], b[:1], padding=1), functional.conv2d(x, w[1:], b[1:], padding=1)], 1
    ),
}
BATCH_NORM: dict[str, Spelling] = {
    "batch_norm": lambda x, m, v, g, b: functional.batch_norm(x, m, v, g, b, False, 0.1, 2**-16),
    "written out": lambda x, m, v, g, b: (
        (x - m[:, None, None]) / (v[:, None, None] + 2**-16).sqrt() * g[:, None, None] + b[:, None, None]
    ),
    "affine apart": lambda x, m, v, g, b: (
        functional.batch_norm(x, m, v, None, None, False, 0.1, 2**-16) * g[:, None, None] + b[:, None, None]
    ),
    "rsqrt": lambda x, m, v, g, b: ((x.movedim(1, -1) - m) * torch.rsqrt(v + 2**-16) * g + b).movedim(-1, 1),
    "scale and shift": lambda x, m, v, g, b: (
        x * (s := g * torch.rsqrt(v + 2**-16)).view(1, -1, 1, 1) + (b - m * s).view(1, -1, 1, 1)
    ),
}
MAX_POOL: dict[str, Spelling] = {
    "max_pool": lambda x: functional.max_pool2d(x, 2),
    "adaptive": lambda x: functional.adaptive_max_pool2d(x, (x.shape[2] // 2, x.shape[3] // 2)),
    "reshape": lambda x: x.unflatten(3, (-1, 2)).unflatten(2, (-1, 2)).amax((3, 5)),
    "four slices": lambda x: torch.maximum(
        torch.maximum(x[..., ::2, ::2], x[..., ::2, 1::2]), torch.maximum(x[..., 1::2, ::2], x[..., 1::2, 1::2])
    ),
    "unfolded": lambda x: (
        functional.unfold(x, 2, stride=2)
        .view(len(x), x.shape[1], 4, -1)
        .amax(2)
        .view(len(x), x.shape[1], x.shape[2] // 2, -1)
    ),
    "rows then columns": lambda x: functional.max_pool2d(functional.max_pool2d(x, (1, 2)), (2, 1)),
    "minus the least": lambda x: -functional.max_pool2d(x, 2).neg().clone(),
}
MEAN_POOL: dict[str, Spelling] = {
    "mean": lambda x: x.mean((2, 3)),
    "adaptive": lambda x: functional.adaptive_avg_pool2d(x, 1).flatten(1),
    "avg_pool": lambda x: functional.avg_pool2d(x, x.shape[2:]).squeeze(-1).squeeze(-1),
    "of means": lambda x: x.mean(3).mean(2),
    "flattened": lambda x: x.flatten(2).mean(-1),
    "sum": lambda x: x.sum((-1, -2)) / (x.shape[2] * x.shape[3]),
    "einsum": lambda x: torch.einsum("nchw->nc", x) / (x.shape[2] * x.shape[3]),
    "matrix": lambda x: (
        x.flatten(2) @ torch.full((x.shape[2] * x.shape[3],), 1 / (x.shape[2] * x.shape[3]), dtype=x.dtype)
    ),
}
GATED: dict[str, Spelling] = {
    "glu": lambda h, s: functional.glu(h, -1),
    "chunks": lambda h, s: (p := h.chunk(2, -1))[0] * s(p[1]),
    "slices": lambda h, s: s(h[..., h.shape[-1] // 2 :]) * h[..., : h.shape[-1] // 2],
    "unbind": lambda h, s: (p := h.unflatten(-1, (2, -1)).unbind(-2))[0] * s(p[1]),
}


def _gru(x: Tensor, h: Tensor, wi: Tensor, wh: Tensor, bi: Tensor, bh: Tensor, say: Pen) -> Tensor:
    a, b = say("linear", x, wi, bi), say("linear", h, wh, bh)
    (ar, az, an), (br, bz, bn) = a.chunk(3, -1), b.chunk(3, -1)
    r, z = say("sigmoid", ar + br), say("sigmoid", az + bz)
    n = say("tanh", an + r * bn)
    return say("mix", z, h, n)


GRU: dict[str, Spelling] = {
    "gru_cell": lambda x, h, wi, wh, bi, bh, say: torch.gru_cell(x, h, wi, wh, bi, bh),
    "written out": _gru,
    "by gates": lambda x, h, wi, wh, bi, bh, say: _gru_by_gates(x, h, wi, wh, bi, bh, say),
}
MIX: dict[str, Spelling] = {
    "difference": lambda z, h, n: n + z * (h - n),
    "sum": lambda z, h, n: (1 - z) * n + z * h,
    "lerp": lambda z, h, n: torch.lerp(n, h, z),
    "swapped": lambda z, h, n: h * z + n - n * z,
}


def _gru_by_gates(x: Tensor, h: Tensor, wi: Tensor, wh: Tensor, bi: Tensor, bh: Tensor, say: Pen) -> Tensor:
    k = h.shape[-1]
    r = say("sigmoid", functional.linear(x, wi[:k], bi[:k]) + functional.linear(h, wh[:k], bh[:k]))
    z = say(
        "sigmoid",
        functional.linear(x, wi[k : 2 * k]) + functional.linear(h, wh[k : 2 * k]) + bi[k : 2 * k] + bh[k : 2 * k],
    )
    n = say("tanh", functional.linear(x, wi[2 * k :], bi[2 * k :]) + r * functional.linear(h, wh[2 * k :], bh[2 * k :]))
    return say("mix", z, h, n)


def _scan_written(a: Tensor, u: Tensor) -> Tensor:
    h, states = torch.zeros_like(u[:, 0]), []
    for step in range(u.shape[1]):
        h = a[:, step] * h + u[:, step]
        states.append(h)
    return torch.stack(states, 1)


def _scan_filled(a: Tensor, u: Tensor) -> Tensor:
    states = torch.zeros_like(u)
    states[:, 0] = u[:, 0]
    for step in range(1, u.shape[1]):
        states[:, step] = torch.addcmul(u[:, step], states[:, step - 1], a[:, step])
    return states


def _scan_unbound(a: Tensor, u: Tensor) -> Tensor:
    states = [u[:, :1]]
    for factor, term in zip(a.unbind(1)[1:], u.unbind(1)[1:], strict=True):
        states.append(term.unsqueeze(1) + states[-1] * factor[:, None])
    return torch.cat(states, 1)


SCAN: dict[str, Spelling] = {"loop": _scan_written, "filled": _scan_filled, "unbound": _scan_unbound}
RESIDUAL: dict[str, Spelling] = {
    "sum": lambda x, y: x + y,
    "swapped": lambda x, y: y + x,
    "add": lambda x, y: torch.add(x, y, alpha=1),
    "stack": lambda x, y: torch.stack([x, y]).sum(0),
    "difference": lambda x, y: x - (-y),
}
IDEAS: dict[str, dict[str, Spelling]] = {
    "nothing": NOTHING, "linear": LINEAR, "relu": RELU, "sigmoid": SIGMOID, "silu": SILU, "tanh": TANH, "gelu": GELU,
    "softmax": SOFTMAX, "layer_norm": LAYER_NORM, "rms_norm": RMS_NORM, "attention": ATTENTION,
    "projected": PROJECTED, "convolution": CONVOLUTION, "batch_norm": BATCH_NORM, "max_pool": MAX_POOL,
    "mean_pool": MEAN_POOL, "gated": GATED, "gru": GRU, "mix": MIX, "scan": SCAN, "residual": RESIDUAL,
}  # fmt: skip


class Pen:
    """Writes each idea in a spelling that it draws, or in the one that it is told; the plain one otherwise."""

    def __init__(self, seed: int | None = None, only: dict[str, str] | None = None) -> None:
        self.seed, self.only = seed, only or {}
        self.start()

    def start(self) -> None:
        """The same spellings again, for the next run of the network."""
        self.rng = random.Random(self.seed)  # noqa: S311
        self.drawn: list[str] = []

    def __call__(self, idea: str, *operands: Any) -> Any:
        spellings = IDEAS[idea]
        name = next(iter(spellings))
        if idea in self.only:
            name = self.only[idea]
        elif self.seed is not None:
            name = self.rng.choice(list(spellings))
        self.drawn.append(f"{idea}: {name}")
        if idea in ("projected", "put together", "gru"):
            operands = (*operands, self)
        if idea == "attention":
            operands = (*operands, lambda scores: self("softmax", scores))
        if idea == "gated":
            operands = (*operands, lambda gate: self("sigmoid", gate))
        return spellings[name](*operands)


class Network(nn.Module):
    """A network that is written with a pen."""

    shape: tuple[int, ...] = (2, 5)

    def __init__(self, pen: Pen | None = None) -> None:
        super().__init__()
        self.pen = pen or Pen()
        torch.manual_seed(0)
        self.build()
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.add_(0.3 * torch.randn_like(parameter))
        self.eval()

    def build(self) -> None:
        raise NotImplementedError

    def write(self, x: Tensor, say: Pen) -> Tensor:
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        self.pen.start()
        return self.write(x, self.pen)


def _vector(size: int) -> nn.Parameter:
    return nn.Parameter(torch.ones(size))


class Perceptron(Network):
    def build(self) -> None:
        self.a, self.b, self.c = nn.Linear(5, 6), nn.Linear(6, 4), nn.Linear(4, 3)

    def write(self, x: Tensor, say: Pen) -> Tensor:
        x = say("nothing", say("relu", say("linear", x, self.a.weight, self.a.bias)))
        x = say("relu", say("nothing", say("linear", x, self.b.weight, self.b.bias)))
        return say("linear", x, self.c.weight, self.c.bias)


class Convolutions(Network):
    shape = (2, 2, 4, 4)

    def build(self) -> None:
        self.a, self.b, self.norm, self.c = nn.Conv2d(2, 4, 3), nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 3)
        self.norm.running_var.fill_(2.0)
        self.norm.running_mean.fill_(0.25)

    def write(self, x: Tensor, say: Pen) -> Tensor:
        n = self.norm
        x = say("convolution", x, self.a.weight, self.a.bias)
        x = say("relu", say("batch_norm", x, n.running_mean, n.running_var, n.weight, n.bias))
        x = say("nothing", say("max_pool", x))
        x = say("residual", x, say("relu", say("convolution", x, self.b.weight, self.b.bias)))
        return say("linear", say("mean_pool", x), self.c.weight, self.c.bias)


class Block(Network):
    """A transformer's block: norm, attention, residual, norm, MLP, residual."""

    shape = (2, 3, 8)

    def build(self) -> None:
        self.w, self.v = nn.Parameter(torch.zeros(24, 8)), nn.Parameter(torch.zeros(24))
        self.out, self.up, self.down = nn.Linear(8, 8), nn.Linear(8, 6), nn.Linear(6, 8)
        self.norm, self.g = nn.LayerNorm(8), _vector(8)

    def write(self, x: Tensor, say: Pen) -> Tensor:
        h = say("layer_norm", x, self.norm.weight, self.norm.bias)
        q, k, v = say("projected", h, self.w, self.v)
        h = say("linear", say("attention", q, k, say("nothing", v), 2), self.out.weight, self.out.bias)
        x = say("residual", x, h)
        h = say("linear", say("rms_norm", x, self.g), self.up.weight, self.up.bias)
        return say("residual", x, say("linear", say("gelu", h), self.down.weight, self.down.bias))


PUT_TOGETHER: dict[str, Spelling] = {
    "apart": lambda x, w, b, say: [say("linear", x, *each) for each in zip(w, b, strict=True)],
    "concatenated": lambda x, w, b, say: functional.linear(x, torch.cat(w), torch.cat(b)).chunk(3, -1),
    "queries apart": lambda x, w, b, say: [
        say("linear", x, w[0], b[0]),
        *functional.linear(x, torch.cat(w[1:]), torch.cat(b[1:])).split(x.shape[-1], -1),
    ],
    "stacked": lambda x, w, b, say: torch.einsum("btd,zod->zbto", x, torch.stack(w)) + torch.stack(b)[:, None, None],
    "transposed": lambda x, w, b, say: (x @ torch.cat([each.T for each in w], 1) + torch.cat(b)).chunk(3, -1),
    "unflattened": lambda x, w, b, say: (
        functional.linear(x, torch.cat(w), torch.cat(b)).unflatten(-1, (3, -1)).unbind(-2)
    ),
}
IDEAS["put together"] = PUT_TOGETHER


class Attention(Network):
    """Attention whose queries, keys and values have weights of their own."""

    shape = (2, 3, 8)

    def build(self) -> None:
        self.q, self.k, self.v, self.out = (nn.Linear(8, 8) for _ in range(4))

    def write(self, x: Tensor, say: Pen) -> Tensor:
        parts = self.q, self.k, self.v
        q, k, v = say("put together", x, [each.weight for each in parts], [each.bias for each in parts])
        return say("linear", say("attention", q, k, v, 2), self.out.weight, self.out.bias)


class Gates(Network):
    """A gated linear unit, then a gated MLP with SiLU."""

    def build(self) -> None:
        self.a, self.g, self.u, self.d = nn.Linear(5, 8), nn.Linear(4, 6), nn.Linear(4, 6), nn.Linear(6, 3)

    def write(self, x: Tensor, say: Pen) -> Tensor:
        x = say("nothing", say("gated", say("linear", x, self.a.weight, self.a.bias)))
        g = say("silu", say("linear", x, self.g.weight, self.g.bias))
        return say("linear", g * say("linear", x, self.u.weight, self.u.bias), self.d.weight, self.d.bias)


class Recurrent(Network):
    shape = (2, 3, 4)

    def build(self) -> None:
        self.cell, self.out = nn.GRUCell(4, 3), nn.Linear(3, 2)

    def write(self, x: Tensor, say: Pen) -> Tensor:
        h, c = torch.zeros(x.shape[0], 3, dtype=x.dtype), self.cell
        for step in range(x.shape[1]):
            h = say("gru", x[:, step], h, c.weight_ih, c.weight_hh, c.bias_ih, c.bias_hh)
        return say("linear", h, self.out.weight, self.out.bias)


class Scan(Network):
    """A selective state space: gates of decay, a scan, a gated output."""

    shape = (2, 3, 4)

    def build(self) -> None:
        self.a, self.u, self.z, self.out = nn.Linear(4, 5), nn.Linear(4, 5), nn.Linear(4, 5), nn.Linear(5, 4)
        self.skip = _vector(5)

    def write(self, x: Tensor, say: Pen) -> Tensor:
        u = say("linear", x, self.u.weight, self.u.bias)
        h = say("scan", say("sigmoid", say("linear", x, self.a.weight, self.a.bias)), u)
        y = say("residual", h, u * self.skip)
        y = y * say("silu", say("linear", x, self.z.weight, self.z.bias))
        return say("linear", say("nothing", y), self.out.weight, self.out.bias)


NETWORKS: dict[str, type[Network]] = {
    each.__name__: each for each in (Perceptron, Convolutions, Block, Attention, Gates, Recurrent, Scan)
}


WRITTEN_OUT = {"gru": "written out", "attention": "written out", "gated": "chunks"}  # so that what is inside shows


def ideas_of(network: type[Network]) -> list[str]:
    """The ideas that a network writes down, those inside its cells too."""
    pen = Pen(only=WRITTEN_OUT)
    network(pen)(torch.zeros(network.shape))
    return sorted({name.split(":")[0] for name in pen.drawn})
