"""Inputs that are ids: no count rests on real numbers in their place, which equal nothing they are compared with."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import lawful
from lawful.conservation import count_laws
from lawful.errors import Unsupported


class OneHot(nn.Module):
    """An embedding written as a comparison with all ids."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(5, 2))
        self.inner = nn.Linear(4, 3)
        self.outer = nn.Linear(3, 2)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        rows = torch.eq(ids[..., None], torch.arange(5)).to(self.table.dtype) @ self.table
        result: torch.Tensor = self.outer(self.inner(rows.flatten(1)).relu())
        return result


class Embedded(OneHot):
    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        rows = nn.functional.embedding(ids, self.table)
        result: torch.Tensor = self.outer(self.inner(rows.flatten(1)).relu())
        return result


class OneId(nn.Module):
    """Reads whether an id is 7; which others there are it does not show."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(2, 2)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.inner((ids == 7).to(self.inner.weight.dtype))
        return result


def test_ids_that_are_compared_are_counted_as_those_that_are_looked_up() -> None:
    torch.manual_seed(0)
    compared = OneHot()
    embedded = Embedded()
    embedded.load_state_dict(compared.state_dict())
    counts = [lawful.laws(module, input="2:int") for module in (compared, embedded)]
    assert counts[0].laws == counts[1].laws == 6
    assert counts[0].status in ("numerical", "proved")
    assert not any("never move" in word for word in counts[0].words)
    assert counts[0].assumed == ("its inputs are the ids from 0 to 4, with which it compares them",)
    assert not counts[1].assumed


def test_ids_of_no_known_vocabulary_are_refused() -> None:
    with pytest.raises(Unsupported, match="which ids OneId reads is not known"):
        lawful.laws(OneId(), input="2:int")
    with pytest.raises(Unsupported, match="which ids OneId reads is not known"):
        lawful.laws(OneId(), input=torch.zeros(1, 2, dtype=torch.int64))


def test_a_count_for_real_inputs_says_that_they_equal_nothing() -> None:
    count = count_laws(OneId(), input_shape=(2,))
    assert count.assumed == ("the module asks whether its inputs equal some numbers, and they equal none of them",)
    assert not count_laws(nn.Sequential(nn.Linear(2, 2), nn.Tanh()), input_shape=(2,)).assumed
