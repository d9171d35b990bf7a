"""Channels that are cut into parts: packed gates, GLU, slices."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from pruned import kinds, same
from torch import Tensor, nn
from torch.nn import functional

from lawful import verify
from lawful.errors import CertificateError
from lawful.pruning.channels import ChannelPruning, prune_channels
from lawful.pruning.channels.certificate import certificate


class Packed(nn.Module):
    """Gates and values in one layer, as several language models have them."""

    def __init__(self, way: str = "chunk") -> None:
        super().__init__()
        torch.manual_seed(0)
        self.both, self.down, self.way = nn.Linear(4, 12), nn.Linear(6, 3), way

    def forward(self, x: Tensor) -> Tensor:
        found = self.both(x)
        if self.way == "split":
            gate, value = found.split(6, -1)  # a size of its own
        elif self.way == "slice":
            half = found.shape[-1] // 2
            gate, value = found[..., :half], found[..., half:]
        elif self.way == "tail":
            return self.down(torch.tanh(found[..., -6:]))
        else:
            gate, value = found.chunk(2, -1)
        return self.down(functional.silu(gate) * value)


@torch.no_grad()
def planted(way: str) -> Packed:
    model = Packed(way).eval()
    model.both.weight[2] = model.both.bias[2] = 0.0  # a gate that is shut
    model.both.weight[[5, 11]], model.both.bias[[5, 11]] = model.both.weight[[4, 10]], model.both.bias[[4, 10]]
    model.down.weight[:, 0] = 0.0
    return model


def pruned(model: nn.Module, *size: int) -> ChannelPruning:
    found = prune_channels(model, [(2, *size)])
    verify(certificate(found), model, found.module)
    same(model, found, *size)
    return found


@pytest.mark.parametrize("way", ["chunk", "slice"])
def test_packed_gates(way: str) -> None:
    found = pruned(planted(way), 5, 4)
    assert kinds(found) == {"constant": 2, "duplicate": 2, "silent": 2}
    assert (found.module.both.out_features, found.module.down.in_features) == (6, 3)


def test_parts_of_a_size_of_their_own_stay() -> None:
    """A split that says 6 would read others."""
    assert not pruned(planted("split"), 5, 4).removed


def test_what_no_part_takes_is_silent() -> None:
    """The last six of fewer than six are all of them."""
    found = pruned(planted("tail"), 5, 4)
    assert kinds(found) == {"silent": 7, "duplicate": 1}


@torch.no_grad()
def test_gated_linear_units() -> None:
    torch.manual_seed(0)
    model: Any = nn.Sequential(nn.Conv2d(2, 10, 1), nn.GLU(1), nn.Conv2d(5, 2, 1)).eval()
    model[0].weight[3] = model[0].bias[3] = 0.0
    model[2].weight[:, 1] = 0.0
    found = pruned(model, 2, 4, 4)
    assert kinds(found) == {"constant": 2, "silent": 2}
    assert found.module[0].out_channels == 6


def test_a_forged_part() -> None:
    proof = certificate(prune_channels(planted("chunk"), [(2, 5, 4)]))
    for start in (5.0, 7.0, -1.0, 0.5, "6"):
        forged = dict(proof, program=[dict(step) for step in proof["program"]])
        part = next(step for step in forged["program"] if step["kind"] == "part" and step["arguments"] == [6.0])
        part["arguments"] = [start]
        with pytest.raises(CertificateError):
            verify(forged)
