"""The claim about drift under steps h, h/2, h/4 holds of gradient descent, and would be refuted of anything else."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from reproduction.claims import symmetry_training


def small() -> nn.Module:
    """Scales, a matrix and shifts in one model."""
    layers = nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 3), nn.LayerNorm(3), nn.Linear(3, 3), nn.Linear(3, 2)
    return nn.Sequential(*layers)


@pytest.mark.parametrize("plain", [True, False])
def test_only_gradient_descent_confirms_the_claim(plain: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    batch = torch.randn(12, 3, dtype=torch.float64), torch.randint(2, (12,))
    for name in ("_digits", "_patches", "_text"):
        monkeypatch.setattr(symmetry_training, name, lambda: (small, batch))
    if not plain:
        momentum = lambda rate: lambda parameters: torch.optim.Adam(parameters, rate)  # noqa: E731
        monkeypatch.setattr(symmetry_training, "_descent", momentum)
    found = symmetry_training.structural_laws.run(False)
    assert found.holds is plain
