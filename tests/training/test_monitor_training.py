"""Monitors and flows state no law where training does not follow the gradient of what the module computes."""

from __future__ import annotations

import types
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from monitored import mlp, train
from torch import nn

from lawful import Unsupported, flow
from lawful.training.monitor.lightning import MonitorHooks
from lawful.training.monitor.monitor import Monitor, read_records
from lawful.training.monitor.watch import module_laws


class Still(nn.Sequential):
    """The first layer is computed without gradients while it trains."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.training):
            x = self[1](self[0](x))
        for part in self[2:]:
            x = part(x)
        return x


def still() -> nn.Module:
    return Still(*mlp())


def hooked_layer() -> nn.Module:
    model = mlp()
    model[2].register_full_backward_hook(lambda part, into, out: (3 * into[0],))
    return model


def hooked_weight() -> nn.Module:
    model = mlp()
    model[0].weight.register_hook(lambda slope: 2 * slope)
    return model


def hooked_afterwards() -> nn.Module:
    model = mlp()
    model[0].bias.register_post_accumulate_grad_hook(lambda weight: (weight.grad.zero_(), None)[1])
    return model


@pytest.mark.filterwarnings("ignore:balances of 0")
@pytest.mark.parametrize("make", [still, hooked_layer, hooked_weight, hooked_afterwards])
def test_a_joint_is_watched_only_if_training_keeps_it(make: Callable[[], nn.Module], tmp_path: Path) -> None:
    """The balances of the first hidden layer are not kept, those of the second are."""
    model = make()
    with Monitor(model, every=10, live=False, laws=False, file=tmp_path / "run.jsonl") as monitor:
        train(model, monitor, rate=1e-4)
    assert [joint.name for joint in monitor.parts.joints] == ["2"]
    assert [name for name, _ in monitor.parts.ignored] == ["0"]
    last = read_records(tmp_path / "run.jsonl")[-1]
    assert last["drift"] < 1e-6
    assert set(last["balances"]) == {"2"}
    assert last["unchecked"] == []


def test_structural_laws_are_dropped_too_and_said() -> None:
    model = hooked_layer()
    with pytest.warns(UserWarning, match="training does not follow the gradient"), Monitor(model, every=1) as monitor:
        train(model, monitor, steps=1)
    assert monitor.records[-1]["laws"]["laws"] == 6
    assert monitor.records[-1]["laws"]["of"] == 14


class Task(nn.Module):
    """A module whose `forward` is never called, as Lightning's are."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def training_step(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.body(x).square().mean()
        return found


@pytest.mark.parametrize(("body", "watched"), [(mlp, ["body.0", "body.2"]), (hooked_layer, ["body.2"])])
@pytest.mark.filterwarnings("ignore:balances of body.0")
def test_a_trainer_that_calls_parts_of_the_model(body: Callable[[], nn.Module], watched: list[str]) -> None:
    callback, trainer, model = MonitorHooks(every=1, live=False), types.SimpleNamespace(), Task(body())
    callback.on_fit_start(trainer, model)
    assert callback.monitor is not None
    assert callback.monitor.records[0]["balances"] == {}  # it waits for a batch
    with torch.no_grad():
        model.training_step(torch.randn(4, 3))  # a trial of the validation is no training
    loss = model.training_step(torch.randn(4, 3))
    callback.on_train_batch_end(trainer, model, {"loss": loss}, None, 0)
    callback.on_fit_end(trainer, model)
    assert [joint.name for joint in callback.monitor.parts.joints] == watched
    assert callback.monitor.records[-1]["unchecked"] == []


def test_flows_state_the_balances_that_remain_and_refuse_special_parameters() -> None:
    x, y = np.random.default_rng(0).normal(size=(12, 3)), np.ones((12, 1))
    assert module_laws(still(), x).names == tuple(f"2.{unit}" for unit in range(6))
    run = flow(still(), (x, y), until=0.2)
    assert run.law_names == module_laws(still(), x).names
    assert run.max_drift < 1e-9
    for make in (hooked_weight, hooked_afterwards):
        with pytest.raises(Unsupported, match="a hook may change the gradient of 0"):
            flow(make(), (x, y))
