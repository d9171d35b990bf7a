"""Every law that is stated of a module is held against real gradients of it, in the mode that the answer names.

The module is copied, put into that mode and differentiated by autograd as a training loop would, with PyTorch's own
random numbers: nothing of the code that counts is used. A law h is conserved if ⟨∇h, ∇loss⟩ = 0 for every draw.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from lawful.laws import count_laws

STEPS = 6  # batches, draws and output gradients for each module
ROUNDING = 1e-9


class Written(nn.Module):
    """Layers and what forward makes of them."""

    def __init__(self, forward: Callable, *layers: nn.Module) -> None:
        super().__init__()
        self.call, self.layers = forward, nn.ModuleList(layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.call(self, x, *self.layers)


def bare(*sizes: int) -> list[nn.Module]:
    return [nn.Linear(a, b, bias=False) for a, b in zip(sizes, sizes[1:], strict=False)]


def frozen(module: nn.Module, name: str) -> nn.Module:
    module.get_parameter(name).requires_grad_(False)
    return module


def tied() -> nn.Module:
    module = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Dropout(0.3), nn.Linear(3, 3, bias=False))
    module[2].weight = module[0].weight
    return module


def stochastic_depth(self: Written, x: torch.Tensor, first: nn.Module, second: nn.Module) -> torch.Tensor:
    kept = torch.empty((len(x), 1), dtype=x.dtype).bernoulli_(0.8).div_(0.8) if self.training else 1.0
    return x + kept * second(first(x))


def branch(self: Written, x: torch.Tensor, first: nn.Module, second: nn.Module) -> torch.Tensor:
    return second(torch.tanh(first(x)) if self.training else first(x))


def noisy(self: Written, x: torch.Tensor, first: nn.Module, second: nn.Module) -> torch.Tensor:
    hidden = first(x)
    return second(hidden + torch.randn_like(hidden) if self.training else hidden)


def dropped_weights(self: Written, x: torch.Tensor, first: nn.Module, second: nn.Module) -> torch.Tensor:
    weight = functional.dropout(second.weight, 0.5, self.training)
    return functional.linear(first(x), weight)


def compared(self: Written, x: torch.Tensor, first: nn.Module, second: nn.Module) -> torch.Tensor:
    hidden = first(x)
    return second(hidden * (torch.rand(hidden.shape) < 0.5) if self.training else hidden)


def detached(self: Written, x: torch.Tensor, first: nn.Module, second: nn.Module) -> torch.Tensor:
    return second(first(x)) + first(x).detach()[:, :2]


def without_gradients(self: Written, x: torch.Tensor, first: nn.Module, second: nn.Module) -> torch.Tensor:
    with torch.no_grad():
        scale = first(x).abs().sum()
    return second(first(x)) * scale


# The number of laws where it is known: a dropout mask is a gate, so a linear layer before it keeps its balances alone
MODULES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], int | None]] = {
    "dropout": (lambda: nn.Sequential(*bare(3, 4), nn.Dropout(0.5), *bare(4, 2)), (3,), 4),
    "dropout on inputs": (lambda: nn.Sequential(nn.Dropout(0.5), *bare(3, 2, 2)), (3,), 3),
    "dropout on outputs": (lambda: nn.Sequential(*bare(3, 2, 2), nn.Dropout(0.5)), (3,), 3),
    "dropout after ReLU": (lambda: nn.Sequential(*bare(3, 3), nn.ReLU(), nn.Dropout(0.5), *bare(3, 2)), (3,), 3),
    "dropout that is off": (lambda: nn.Sequential(*bare(3, 2), nn.Dropout(0.0), *bare(2, 2)), (3,), 3),
    "dropout of everything": (lambda: nn.Sequential(*bare(2, 2), nn.Dropout(1.0), nn.Linear(2, 2)), (2,), 8),
    "dropout in place": (lambda: nn.Sequential(*bare(3, 3), nn.Dropout(0.4, inplace=True), *bare(3, 2)), (3,), 3),
    "alpha dropout": (lambda: nn.Sequential(*bare(3, 3), nn.AlphaDropout(0.4), *bare(3, 2)), (3,), None),
    "channels": (
        lambda: nn.Sequential(nn.Conv1d(1, 2, 2, bias=False), nn.Dropout1d(0.5), nn.Conv1d(2, 1, 1, bias=False)),
        (1, 3),
        2,
    ),
    "rrelu": (lambda: nn.Sequential(*bare(3, 2), nn.RReLU(), *bare(2, 2)), (3,), 2),
    "stochastic depth": (lambda: Written(stochastic_depth, *bare(3, 2, 3)), (3,), 3),
    "functional dropout": (
        lambda: Written(lambda s, x, a, b: b(functional.dropout(a(x), 0.5, s.training)), *bare(3, 3, 2)),
        (3,),
        3,
    ),
    "dropped weights": (lambda: Written(dropped_weights, *bare(3, 2, 2)), (3,), None),
    "a mask by comparison": (lambda: Written(compared, *bare(3, 3, 2)), (3,), 3),
    "noise": (lambda: Written(noisy, *bare(3, 3, 2)), (3,), None),
    "a branch on training": (lambda: Written(branch, *bare(3, 3, 2)), (3,), 0),
    "batch norm": (lambda: nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.ReLU(), nn.Linear(2, 1)), (2,), None),
    "frozen": (lambda: frozen(nn.Sequential(*bare(3, 3), nn.Dropout(0.5), *bare(3, 2)), "0.weight"), (3,), 0),
    "tied": (tied, (3,), 0),
    "weight norm": (
        lambda: nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(2, 2)), nn.Dropout(0.5), nn.Linear(2, 1)),
        (2,),
        None,
    ),
    "spectral norm": (
        lambda: nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(2, 2)), nn.Linear(2, 2)),
        (2,),
        None,
    ),
    "attention": (
        lambda: Written(
            lambda s, x, a: a(x, x, x, need_weights=False)[0],
            nn.MultiheadAttention(2, 1, dropout=0.3, batch_first=True),
        ),
        (2, 2),
        None,
    ),
    "detached": (lambda: Written(detached, *bare(3, 3, 2)), (3,), None),
    "without gradients": (lambda: Written(without_gradients, *bare(3, 3, 2)), (3,), None),
}


def real_gradients(module: nn.Module, shape: tuple[int, ...], mode: str) -> list[np.ndarray]:
    """Gradients of random losses on random batches, as a training loop takes them."""
    twin = copy.deepcopy(module).double().train(mode == "train")
    torch.manual_seed(7)
    found = []
    for _ in range(STEPS):
        output = twin(torch.randn(5, *shape, dtype=torch.float64))
        twin.zero_grad()
        if output.requires_grad:
            output.backward(torch.randn_like(output))
        trained = [value for value in twin.parameters() if value.requires_grad]
        parts = [torch.zeros_like(value) if value.grad is None else value.grad for value in trained]
        found.append(torch.cat([part.flatten() for part in parts]).numpy())
    return found


def broken_laws(count, module: nn.Module, shape: tuple[int, ...], mode: str) -> int:
    """How many of the stated laws a real gradient moves."""
    theta = torch.cat([value.detach().double().flatten() for value in module.parameters() if value.requires_grad])
    slopes = count.known.gradients(theta.numpy())
    moved = np.zeros(len(slopes), dtype=bool)
    for gradient in real_gradients(module, shape, mode):
        size = np.linalg.norm(slopes, axis=1) * np.linalg.norm(gradient)
        moved |= np.abs(slopes @ gradient) > ROUNDING * np.maximum(size, 1e-300)
    return int(moved.sum())


@pytest.mark.parametrize("name", MODULES)
def test_no_stated_law_is_moved_by_a_real_gradient(name: str) -> None:
    make, shape, known = MODULES[name]
    torch.manual_seed(0)
    module = make()
    count = count_laws(module, input_shape=shape)
    assert known is None or count.laws == known
    assert broken_laws(count, module, shape, "train") == 0


def test_the_check_finds_laws_of_the_other_mode() -> None:
    """10 laws of eval mode, of which masks break 6 (`Linear, Dropout(.5), Linear`, 3-4-2)."""
    torch.manual_seed(0)
    module = MODULES["dropout"][0]()
    count = count_laws(module, input_shape=(3,), mode="eval")
    assert (count.laws, count.mode) == (10, "eval") and any("eval mode" in each for each in count.reading.assumed)
    assert broken_laws(count, module, (3,), "eval") == 0
    assert broken_laws(count, module, (3,), "train") == 6
