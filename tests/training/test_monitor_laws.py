"""Monitors of structural laws: any module, restarts, models that nothing is understood of."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from monitored import Words, mlp, train, train_words, understand
from torch import nn

from lawful import Unsupported
from lawful.training.monitor.monitor import Monitor


def test_structural_laws_of_any_module_are_watched() -> None:
    drifts = []
    for rate, steps in ((0.1, 40), (0.05, 80)):
        model = Words().double()
        with Monitor(model, every=steps, live=False) as monitor:
            train_words(model, monitor, steps, rate)
        found = monitor.records[-1]["laws"]
        assert found["laws"] == found["of"] > 20
        assert set(found["by_group"]) == {"matrix", "scales", "shifts"}
        assert found["by_group"]["shifts"] < 1e-12  # linear laws are kept exactly by any step
        drifts.append(found["drift"])
    assert 0 < drifts[1] < 0.7 * drifts[0]
    model = Words()
    with Monitor(model, every=5, live=False, laws=4, input="5:int") as monitor:
        assert monitor.records[0]["laws"]["drift"] == 0.0
        assert 0 < monitor.records[0]["laws"]["laws"] < monitor.records[0]["laws"]["of"]


def test_drift_and_steps_survive_a_restart(tmp_path: Path) -> None:
    file, model = tmp_path / "run.jsonl", Words().double()
    with Monitor(model, every=10, file=file, live=False) as monitor:
        train_words(model, monitor, 20)
    before = monitor.records[-1]["laws"]["drift"]
    with Monitor(model, every=10, file=file, live=False) as monitor:
        train_words(model, monitor, 20)
    assert [record["step"] for record in monitor.records] == [20, 30, 40]
    assert monitor.records[-1]["laws"]["drift"] > before > 0
    small, file = mlp(), tmp_path / "small.jsonl"
    for steps in (10, 20):
        with Monitor(small, every=10, file=file, live=False) as monitor:
            train(small, monitor, 10)
        assert monitor.steps == steps
    whole = mlp()
    with Monitor(whole, every=10, live=False) as other:
        train(whole, other, 10)
        train(whole, other, 10)
    assert monitor.records[-1]["drift"] == pytest.approx(other.records[-1]["drift"], rel=1e-6)


class Blind(nn.Module):
    """Looks at its data, and has no two layers in a row."""

    def __init__(self) -> None:
        super().__init__()
        self.only = nn.Linear(3, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.only(x) if x.sum() > 0 else self.only(-x)


def test_a_blind_monitor_says_so() -> None:
    model = Blind()
    with pytest.warns(UserWarning, match="understands nothing of Blind"), Monitor(model, live=False):
        model(torch.ones(2, 3))
    with pytest.warns(UserWarning, match="understands nothing"), Monitor(Words(), live=False, laws=False):
        pass
    with pytest.raises(Unsupported, match="Blind"), Monitor(Blind(), live=False, input=(3,)):
        pass


def test_single_numbers_beside_a_batch_are_no_batch_of_one() -> None:
    """The Hugging Face Trainer passes the number of its items along."""

    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(3, 4), nn.Linear(4, 2)
            nn.init.zeros_(self.first.bias)

        def forward(self, x: torch.Tensor, items: torch.Tensor | None = None) -> torch.Tensor:
            found: torch.Tensor = self.last(torch.relu(self.first(x)))
            return found

    model = Counting()
    with Monitor(model, every=1) as monitor:
        model(x=torch.randn(5, 3), items=torch.tensor(5)).sum().backward()
        monitor.step()
    assert monitor.records[-1]["laws"]["laws"] == 4
    assert monitor.records[-1]["laws"]["relative"] < 1


def test_a_layer_whose_weight_is_read_elsewhere_has_no_balances() -> None:
    class Penalised(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.below, self.above = nn.Linear(2, 3), nn.Linear(3, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = self.above(self.below(x).relu()) * (1 + self.below.weight.square().sum())
            return found

    assert understand(Penalised(), (4, 2)).joints == ()
