"""The instruments on other people's networks."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from lawful.errors import Unsupported
from lawful.leaky import identity_cost, read_blocks, stable_rank


class Residual(nn.Module):
    def __init__(self, width: int, size: float) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.ReLU(), nn.Linear(width, width, bias=False))
        with torch.no_grad():
            self.inner[1].weight.copy_(size * torch.eye(width))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.inner(x)


class Projection(nn.Module):
    """Keeps two coordinates: a bottleneck of known dimension."""

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.tensor([1.0, 1.0] + [0.0] * (x.shape[1] - 2), dtype=x.dtype)


def network() -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(3, 6), Residual(6, 0.1), Residual(6, 1.0), Projection(), Residual(6, 0.1), nn.Linear(6, 2)
    ).double()


def test_blocks_are_found_and_measured() -> None:
    torch.manual_seed(0)
    net, x = network(), torch.randn(40, 3, dtype=torch.float64)
    found = read_blocks(net, x)
    assert found.names == ("1", "2", "3", "4")
    assert found.narrowest in ("3", "4")
    assert found.stable_rank[2] <= 2 + 1e-9
    with torch.no_grad():
        states = [net[: k + 1](x).T.numpy() for k in range(5)]
    np.testing.assert_allclose(found.stable_rank, [stable_rank(state) for state in states[1:]], rtol=1e-9)
    moves = [np.linalg.norm(b - a) / np.linalg.norm(b) for a, b in pairwise(states)]
    np.testing.assert_allclose(found.distance, moves, rtol=1e-9)
    assert found.suggested_steps.sum() == pytest.approx(1.0)
    assert np.argmax(found.suggested_steps) == np.argmin(found.distance)


def test_named_blocks_tuples_and_convolutions() -> None:
    net = nn.Sequential(nn.Conv2d(1, 3, 3, padding=1), nn.Conv2d(3, 3, 3, padding=1), nn.Flatten())
    found = read_blocks(net, torch.randn(5, 1, 4, 4), blocks=["1"])
    assert found.names == ("1",)
    assert found.width == 48
    with pytest.raises(Unsupported, match="no block"):
        read_blocks(net, torch.randn(5, 1, 4, 4), blocks=["7"])
    with pytest.raises(Unsupported, match="name the blocks"):
        read_blocks(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)), torch.randn(5, 3))


def test_reading_leaves_the_network_as_it_was() -> None:
    net = network().train()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    read_blocks(net, torch.randn(10, 3, dtype=torch.float64))
    assert net.training
    assert all(torch.equal(before[name], value) for name, value in net.state_dict().items())
    assert not any(part._forward_hooks for part in net.modules())


def test_stable_cost_approaches_the_exact_one() -> None:
    net = nn.Sequential(nn.Identity(), Residual(6, 0.5)).double()
    x = torch.rand(4, 6, dtype=torch.float64)
    found = read_blocks(net, x, blocks=["1"], gamma_ratio=1e-12)
    with torch.no_grad():
        exact = identity_cost(net(x).T.numpy()).value
    assert found.coi[0] == pytest.approx(exact, rel=1e-4)
