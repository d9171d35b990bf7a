"""Random stacks of blocks: everything stated is true, independent, and no more than the Lie closure leaves."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from closure import drawing, lie_laws
from effort import trials
from models import Function, rotated
from torch import nn
from torch.nn import functional

from lawful.symmetry import symmetries
from lawful.symmetry.orbit import disguise

ACTIVATIONS: tuple[Callable[[torch.Tensor], torch.Tensor], ...] = (
    functional.gelu, functional.silu, torch.tanh, torch.relu, torch.abs, lambda x: x, lambda x: x * x,
)  # fmt: skip


class Residual(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.inner(x)


class Heads(nn.Module):
    def __init__(self, width: int, heads: int, bias: bool, rotary: bool) -> None:
        super().__init__()
        self.heads, self.rotary = heads, rotary
        self.q, self.k, self.v = (nn.Linear(width, 4, bias=bias) for _ in range(3))
        self.o = nn.Linear(4, width, bias=bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = (part(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in (self.q, self.k, self.v))
        q, k, v = parts
        if self.rotary:
            q, k = rotated(q), rotated(k)
        return self.o(functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class Gated(nn.Module):
    def __init__(self, width: int, inner: int, bias: bool, activation: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(width, inner, bias=bias), nn.Linear(width, inner, bias=bias)
        self.c, self.activation = nn.Linear(inner, width, bias=bias), activation

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.c(self.activation(self.a(x)) * self.b(x))


def norm(choose: random.Random, width: int) -> nn.Module:
    affine = choose.random() < 0.7
    if choose.random() < 0.5:
        return nn.LayerNorm(width, eps=0.05, elementwise_affine=affine)
    return nn.RMSNorm(width, eps=0.05, elementwise_affine=affine)


def block(choose: random.Random, width: int) -> nn.Module:
    bias, inner, activation = choose.random() < 0.5, choose.choice([1, 2, 3]), choose.choice(ACTIVATIONS)
    kind = choose.choice(["mlp", "gated", "heads", "linear", "scale"])
    if kind == "mlp":
        middle = Function(lambda self, x: activation(x))
        return nn.Sequential(nn.Linear(width, inner, bias=bias), middle, nn.Linear(inner, width))
    if kind == "gated":
        return Gated(width, inner, bias, activation)
    if kind == "heads":
        return Heads(width, choose.choice([1, 2]), bias, choose.random() < 0.4)
    if kind == "linear":
        return nn.Linear(width, width, bias=bias)
    return Function(lambda self, x: x * self.g, g=(width,))


def random_module(seed: int) -> tuple[nn.Module, Any]:
    choose, width = random.Random(seed), 3  # noqa: S311
    torch.manual_seed(seed)
    words = choose.random() < 0.4
    parts: list[nn.Module] = [nn.Embedding(4, width) if words else nn.Linear(2, width, bias=choose.random() < 0.5)]
    if words and choose.random() < 0.5:
        parts.append(Function(lambda self, x: x + self.p, p=(3, width)))
    for _ in range(choose.choice([1, 2, 2, 3])):
        part = block(choose, width)
        if choose.random() < 0.5:
            part = nn.Sequential(norm(choose, width), part)
        parts.append(Residual(part) if choose.random() < 0.5 else part)
    if choose.random() < 0.5:
        parts.append(norm(choose, width))
    head = nn.Linear(width, 4 if words else 2, bias=choose.random() < 0.5)
    if words and choose.random() < 0.3:
        head.weight = parts[0].weight  # type: ignore[assignment]
    if choose.random() < 0.2:
        next(iter(parts[-1].parameters()), head.weight).requires_grad_(False)
    return nn.Sequential(*parts, head), "3:int" if words else (3, 2)


@pytest.mark.parametrize("seed", range(trials(8, 24)))
def test_what_is_stated_of_random_modules_is_true(seed: int) -> None:
    module, given = random_module(seed)
    found = symmetries(module, given)  # raises if a generator fails
    assert found.checked is not None
    assert disguise(module, given, found, seed=seed).difference < 1e-9
    theta = {name: tensor.detach().double() for name, tensor in module.named_parameters()}
    point = {name: tensor + 0.5 * torch.randn_like(tensor) for name, tensor in theta.items()}
    gradients = found.laws.gradients(point)
    assert np.linalg.matrix_rank(gradients, tol=1e-9) == len(found.laws)


@pytest.mark.parametrize("seed", [3, 4, 8, 11, 13, 20, 26, 31])
def test_the_lie_closure_leaves_at_least_as_many(seed: int) -> None:
    module, given = random_module(seed)
    stated = len(symmetries(module, given).laws)
    # rounding can only add to a rank: one point that leaves as many is enough
    assert any(lie_laws(module, drawing(module, given, 4), point, stated) >= stated for point in range(3))
