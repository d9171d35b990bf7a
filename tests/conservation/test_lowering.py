"""Operations of modules as steps of a program: sums in order, orders, padded windows; a wrong rule is noticed."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from lawful import Unsupported, verify
from lawful.conservation import count_laws
from lawful.conservation.certificate import certificate
from lawful.conservation.programs.module_function import probe
from lawful.conservation.rank_proof import program_of
from lawful.program.table import ATEN, Entry


class Ordered(nn.Module):
    """Sorted and cumulated features, variances, extremes and padded windows."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(3, 4)
        self.image = nn.Conv2d(1, 1, 2)

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        features = self.a(batch)
        ordered = features.sort(dim=1, descending=True).values
        image = self.image(batch[:, None])
        pools = [
            nn.functional.max_pool2d(image, 2, 1, padding=1),
            nn.functional.avg_pool2d(image, 2, padding=1),
            nn.functional.avg_pool2d(image, 2, padding=1, count_include_pad=False),
        ]
        parts = [
            ordered, features.topk(2).values, features.cumsum(1), features.std(1), features.var(2, correction=0),
            features.amin(2), features.min(1).values, features.min(2).values, torch.minimum(features, ordered),
            features.expm1(), features.square().log1p(), features * features.sign(), *pools,
        ]  # fmt: skip
        return torch.cat([part.flatten(1) for part in parts], dim=1)


def test_steps_have_the_gradients_of_the_module() -> None:
    """`program_of` compares them, at a random point."""
    torch.manual_seed(0)
    program = program_of(probe(Ordered(), (3, 3)))
    assert {"choose", "matmul", "log", "exp", "rsqrt"} <= {step.kind for step in program.steps}


def test_a_rule_that_is_wrong_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    right = ATEN["cumsum"].build
    monkeypatch.setitem(ATEN, "cumsum", Entry(lambda b, x, dim: b.neg(right(b, x, dim))))
    with pytest.raises(Unsupported, match="other gradients"):
        program_of(probe(Ordered(), (3, 3)))


def test_the_two_largest_features_are_proved() -> None:
    """Two of three features share their scale, and no two of them more: one law."""

    class Largest(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(3, 3), nn.Linear(2, 1)

        def forward(self, batch: torch.Tensor) -> torch.Tensor:
            return self.b(self.a(batch).topk(2).values)

    torch.manual_seed(0)
    count = count_laws(Largest(), input_shape=(3,))
    assert (count.laws, count.status) == (1, "proved")
    found: Any = verify(certificate(count))
    assert "1" in str(found)


def test_no_power_and_long_orders_are_left_numerical() -> None:
    class Odd(nn.Module):
        def __init__(self, how: str) -> None:
            super().__init__()
            self.a, self.how = nn.Linear(2, 17 if how == "sort" else 2), how

        def forward(self, batch: torch.Tensor) -> torch.Tensor:
            return self.a(batch).sort().values if self.how == "sort" else self.a(batch) ** 0 + self.a(batch)

    for how in ("sort", "power"):
        with pytest.raises(Unsupported, match="no proof covers"):
            program_of(probe(Odd(how), (2,)))
