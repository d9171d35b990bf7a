"""Gradients of batch norms in programs: PyTorch mixes up entries where they come back transposed to a batch of one."""

from __future__ import annotations

from typing import Any, cast

import pytest
import torch

from lawful.program.backends.calls import Call
from lawful.program.backends.torch_calls import _batch_norm


@pytest.mark.parametrize("samples", [1, 2])
def test_gradients_that_come_back_transposed_keep_their_places(samples: int) -> None:
    torch.manual_seed(0)
    shape = (samples, 5, 1, 8)
    x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    mean, variance, scale, shift = (torch.rand(5, dtype=torch.float64) + 0.5 for _ in range(4))
    run = _batch_norm(cast("Call", {"epsilon": 1e-5}))
    out: Any = run(x, mean, variance, scale, shift)
    assert torch.allclose(out, torch.nn.functional.batch_norm(x, mean, variance, scale, shift, eps=1e-5))
    weights = torch.randn(shape, dtype=torch.float64)
    transposed = weights.squeeze(2).permute(0, 2, 1).contiguous().permute(0, 2, 1).reshape(shape)
    (slope,) = torch.autograd.grad(out, x, transposed)
    expected = weights * (scale / (variance + 1e-5).sqrt())[None, :, None, None]
    assert torch.allclose(slope, expected, rtol=1e-12)
