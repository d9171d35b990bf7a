"""Modules to prune, and what is asked of every smaller one."""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from torch import nn

from lawful.pruning.channels import ChannelPruning


@torch.no_grad()
def lively(model: nn.Module, seed: int = 0) -> Any:
    """Statistics and gains away from their defaults."""
    generator = torch.Generator().manual_seed(seed)
    for part in model.modules():
        if isinstance(part, (nn.BatchNorm1d, nn.BatchNorm2d)):
            part.running_mean.normal_(generator=generator)  # type: ignore[union-attr]
            part.running_var.uniform_(0.5, 2.0, generator=generator)  # type: ignore[union-attr]
            if part.affine:
                part.weight.uniform_(0.5, 1.5, generator=generator)
                part.bias.normal_(generator=generator)
    return model.eval()


@torch.no_grad()
def same(model: nn.Module, found: ChannelPruning, *shape: int) -> None:
    """In float32, at another size of batch."""
    batch = torch.randn(5, *shape, generator=torch.Generator().manual_seed(9))
    one, two = model.eval()(batch), found.module.eval()(batch)
    assert torch.allclose(one, two, atol=1e-4 * float(one.abs().max()))
    assert found.compared <= 1e-9 * float(one.abs().max())
    assert sum(tensor.numel() for tensor in found.module.parameters()) == found.parameters_after


def kinds(found: ChannelPruning) -> Counter[str]:
    return Counter(gone.kind for gone in found.removed)
