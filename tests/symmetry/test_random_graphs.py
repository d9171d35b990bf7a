"""Random graphs of operators: laws and permutations that are stated of them are true, whatever meets whatever."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from effort import trials
from test_permutations import shuffled
from torch import nn
from torch.nn import functional

from lawful.errors import Unsupported
from lawful.symmetry import symmetries

SHAPE = (3, 4)  # places and channels
Step = Callable[..., torch.Tensor]
# Of the input x, two values h and g, and a weight of the size that is named (None: without one)
STEPS: dict[str, tuple[tuple[int, ...] | None, Step]] = {
    "linear": ((4, 4), lambda x, h, g, w: h @ w),
    "linear again": ((4, 4), lambda x, h, g, w: g @ w),
    "bias": ((4,), lambda x, h, g, w: h + w),
    "gain": ((4,), lambda x, h, g, w: h * w),
    "gain of an exponential": ((4,), lambda x, h, g, w: h * w.exp()),
    "sign of a weight": ((4, 4), lambda x, h, g, w: h @ w.sign()),
    "columns of length 1": ((4, 4), lambda x, h, g, w: h @ (w / w.norm(dim=0, keepdim=True))),
    "relu of a weight": ((4, 4), lambda x, h, g, w: h @ torch.relu(w)),
    "places": ((4, 4), lambda x, h, g, w: h + w[:3]),
    "mixed places": ((3, 3), lambda x, h, g, w: torch.einsum("st,btc->bsc", w, h)),
    "joined": ((8, 4), lambda x, h, g, w: torch.cat([h, g], -1) @ w),
    "convolution": ((4, 4, 2), lambda x, h, g, w: functional.conv1d(functional.pad(h.mT, (1, 0)), w).mT),
    "gated": ((4, 8), lambda x, h, g, w: functional.glu(h @ w)),
    "softmax beside a weight": ((4,), lambda x, h, g, w: torch.stack([h, w.expand_as(h)]).softmax(0)[0]),
    "relu": (None, lambda x, h, g: torch.relu(h)),
    "abs": (None, lambda x, h, g: h.abs()),
    "tanh": (None, lambda x, h, g: torch.tanh(h)),
    "square": (None, lambda x, h, g: h * h),
    "softmax": (None, lambda x, h, g: h.softmax(-1)),
    "softmax of places": (None, lambda x, h, g: h.softmax(1)),
    "softmax of pairs": (None, lambda x, h, g: h.unflatten(-1, (2, 2)).softmax(-1).flatten(-2)),
    "norm": (None, lambda x, h, g: functional.layer_norm(h, (4,))),
    "norm of places": (None, lambda x, h, g: functional.layer_norm(h.mT, (3,)).mT),
    "rms": (None, lambda x, h, g: functional.rms_norm(h, (4,), None, 1e-6)),
    "centred": (None, lambda x, h, g: h - h.mean(1, keepdim=True)),
    "sum": (None, lambda x, h, g: h + g),
    "product": (None, lambda x, h, g: h * g),
    "quotient": (None, lambda x, h, g: h / (1 + g.abs())),
    "maximum": (None, lambda x, h, g: torch.maximum(h, g)),
    "by data": (None, lambda x, h, g: torch.where(x[..., :1] > 0, h, g)),
    "by sign": (None, lambda x, h, g: torch.where(h > 0, g, h)),
    "attention": (None, lambda x, h, g: (h @ g.mT / 2).softmax(-1) @ h),
    "attention without softmax": (None, lambda x, h, g: (h @ g.mT) @ h),
    "cumulative": (None, lambda x, h, g: h.cumsum(1)),
    "rolled": (None, lambda x, h, g: h.roll(1, -1)),
    "flipped": (None, lambda x, h, g: h.flip(-1)),
    "halves": (None, lambda x, h, g: torch.cat([h[..., :2], g[..., :2]], -1)),
    "detached": (None, lambda x, h, g: h.detach() + g),
    "mean": (None, lambda x, h, g: h.mean(1, keepdim=True) + g),
    "sorted": (None, lambda x, h, g: h.sort(1)[0]),
    "pooled": (None, lambda x, h, g: functional.max_pool1d(h.mT, 2, 1, 1)[..., :3].mT),
}


class RandomGraph(nn.Module):
    """Two to seven steps, each of values before it; a step may use a weight that another one has, or its transpose."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        choose = random.Random(seed)  # noqa: S311
        torch.manual_seed(seed)
        self.weights, self.steps = nn.ParameterList(), list[tuple[str, int, int, int | None, bool]]()
        for number in range(choose.randint(2, 7)):
            name = choose.choice([*STEPS, *["linear"] * 4])
            size, place = STEPS[name][0], None
            used = [k for k, weight in enumerate(self.weights) if tuple(weight.shape) == size]
            if size is not None:
                place = choose.choice(used) if used and choose.random() < 0.2 else self.add_weight(*size)
            turned = size == (4, 4) and choose.random() < 0.1
            self.steps.append((name, choose.randint(0, number), choose.randint(0, number), place, turned))
        self.end = self.add_weight(4, 2)

    def add_weight(self, *size: int) -> int:
        self.weights.append(nn.Parameter(0.7 * torch.randn(*size)))
        return len(self.weights) - 1

    def forward(self, x: torch.Tensor) -> Any:
        values = [x]
        for name, one, other, place, turned in self.steps:
            weight = [] if place is None else [self.weights[place].T if turned else self.weights[place]]
            values.append(STEPS[name][1](x, values[one], values[other], *weight))
        return (values[-2] + values[-1]) @ self.weights[self.end]


@pytest.mark.parametrize("seed", range(trials(12, 400)))
def test_what_is_stated_of_a_random_graph_is_true(seed: int) -> None:
    try:
        found = symmetries(RandomGraph(seed), SHAPE, mode="eval")  # raises if a generator fails, or a law counts twice
    except Unsupported:
        return
    if found.log10_discrete > 0:
        assert shuffled(RandomGraph(seed).double(), SHAPE, seed)[2] < 1e-8
