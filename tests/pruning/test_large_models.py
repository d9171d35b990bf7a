"""Models too large for a copy in float64 lose the same channels, and nothing of the given module is changed."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from lawful.pruning.channels import certificate, prune, prune_channels
from lawful.verify import verify


def planted() -> nn.Module:
    """A constant channel that must be folded, a silent one, a duplicate."""
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Conv2d(1, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Conv2d(6, 4, 1), nn.ReLU(), nn.Flatten(), nn.Linear(64, 2)
    ).eval()
    with torch.no_grad():
        module[1].weight[0] = 0.0
        module[1].bias[0] = 0.7
        module[3].weight[:, 2] = 0.0
        module[0].weight[4], module[0].bias[4] = module[0].weight[1], module[0].bias[1]
        for tensor in (module[1].weight, module[1].bias, module[1].running_mean, module[1].running_var):
            tensor[4] = tensor[1]
    return module


@pytest.mark.parametrize("limit", [0, 10**9])
def test_the_same_channels_leave_with_and_without_a_copy_in_float64(
    limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prune, "DOUBLED", limit)
    module = planted()
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    found = prune_channels(module, [(2, 1, 6, 6)], certified=True)
    assert [(gone.layer, gone.channel, gone.kind) for gone in found.removed] == [
        ("0", 0, "constant"), ("0", 2, "silent"), ("0", 4, "duplicate"),
    ]  # fmt: skip
    for name, tensor in module.state_dict().items():
        assert torch.equal(tensor, before[name]), name
    x = torch.randn(4, 1, 6, 6)
    torch.testing.assert_close(found.module(x), module(x), rtol=1e-4, atol=1e-5)
    assert all(tensor.dtype == torch.float32 for tensor in found.module.parameters())
    verify(certificate.certificate(found))


def test_tensors_of_the_result_are_its_own_where_they_were_cut() -> None:
    module = planted()
    found = prune_channels(module, [(2, 1, 6, 6)])
    with torch.no_grad():
        found.module[0].weight.zero_()
    assert module[0].weight.abs().sum() > 0
