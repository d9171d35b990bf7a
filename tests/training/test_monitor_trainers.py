"""Monitors driven by trainers: Lightning, the Hugging Face Trainer (a real one too), and sinks for their records."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import pytest
import torch
from monitored import Words, mlp
from torch import nn

from lawful import Unsupported
from lawful.training.monitor.lightning import MonitorHooks, lightning_callback
from lawful.training.monitor.monitor import Monitor, read_records
from lawful.training.monitor.trainer import trainer_callback


def test_a_lightning_trainer_can_drive_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A trainer that calls the hooks in Lightning's order, on a stand-in for its Callback class."""

    class Callback:
        def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
            trainer.ready = True

    package = types.ModuleType("lightning.pytorch")
    package.Callback = Callback  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "lightning", types.ModuleType("lightning"))
    monkeypatch.setitem(sys.modules, "lightning.pytorch", package)
    callback = lightning_callback(every=2, file=tmp_path / "run.jsonl")
    assert isinstance(callback, Callback)
    trainer, model = types.SimpleNamespace(is_global_zero=True), mlp()
    callback.setup(trainer, model, "fit")
    callback.on_fit_start(trainer, model)
    for number in range(6):
        loss = model(torch.randn(4, 3)).square().mean()
        callback.on_train_batch_end(trainer, model, {"loss": loss}, None, number)
    callback.on_exception(trainer, model, KeyboardInterrupt())
    callback.on_fit_end(trainer, model)
    assert [record["step"] for record in read_records(tmp_path / "run.jsonl")] == [0, 2, 4, 6]


def test_lightning_divides_accumulated_losses() -> None:
    """What it hands over is each batch's share: a step's loss is their sum, not the last of them."""
    hooks, model = MonitorHooks(every=1, live=False), mlp()
    trainer = types.SimpleNamespace(is_global_zero=True, global_step=0)
    hooks.on_fit_start(trainer, model)
    for batch, loss in enumerate((0.25, 0.5, 0.125, 0.25)):
        trainer.global_step = (batch + 1) // 2
        hooks.on_train_batch_end(trainer, model, {"loss": torch.tensor(loss)}, None, batch)
    hooks.on_fit_end(trainer, model)
    assert hooks.monitor is not None
    assert [record["loss"] for record in hooks.monitor.records] == [None, 0.75, 0.375]


def test_lightning_is_optional(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("lightning", "lightning.pytorch", "pytorch_lightning"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(Unsupported, match="lawful\\[lightning\\]"):
        lightning_callback()


def test_sinks_get_every_record() -> None:
    from lawful.training.monitor.sinks import to_tensorboard, to_wandb

    seen: list[Any] = []
    writer = types.SimpleNamespace(add_scalar=lambda *scalar: seen.append(scalar))
    run = types.SimpleNamespace(log=lambda values, step: seen.append((step, sorted(values))))
    with Monitor(mlp(), every=1, live=False, sinks=[to_tensorboard(writer), to_wandb(run)]) as monitor:
        monitor.step(0.5)
    assert ("lawful/loss", 0.5, 1) in seen
    assert any(entry[0] == 1 and "lawful/drift" in entry[1] for entry in seen if len(entry) == 2)


def test_a_hugging_face_trainer_can_drive_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A trainer that calls the events in its order, on a stand-in for its callback class."""
    from lawful.training.monitor.trainer import trainer_callback

    package = types.ModuleType("transformers")
    package.TrainerCallback = type("TrainerCallback", (), {})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "transformers", package)
    callback, model = trainer_callback(every=2, live=False), Words()
    state = types.SimpleNamespace(is_world_process_zero=True, log_history=[{"loss": 0.5}])
    callback.on_train_begin(None, state, None, model=model)
    for _ in range(4):
        model(ids=torch.randint(9, (3, 5)), labels=torch.zeros(3))
        callback.on_step_end(None, state, None)
    callback.on_train_end(None, state, None)
    assert [record["step"] for record in callback.monitor.records] == [0, 2, 4]
    assert callback.monitor.records[-1]["laws"]["laws"] > 0
    assert callback.monitor.records[-1]["loss"] is None  # what is logged is of earlier steps
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(Unsupported, match="transformers"):
        trainer_callback()


class Scored(nn.Module):
    """A model as the Hugging Face Trainer wants it: it computes its own loss."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2))

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        logits = self.body(x)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


def test_total_drift_survives_a_real_run_that_goes_on_from_a_checkpoint(tmp_path: Path) -> None:
    """Twelve steps at once, and eight with a checkpoint after six from which a new process would go on."""
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    generator = torch.Generator().manual_seed(1)
    rows = [{"x": torch.randn(3, generator=generator), "labels": torch.tensor(number % 2)} for number in range(48)]

    def run(name: str, most: int, resume: str | None = None, accumulate: int = 1) -> list[Any]:
        settings = transformers.TrainingArguments(
            output_dir=str(tmp_path / name), max_steps=most, per_device_train_batch_size=8, learning_rate=0.3,
            optim="sgd", lr_scheduler_type="constant", save_steps=6, report_to=[], disable_tqdm=True, use_cpu=True,
            seed=0, logging_steps=1, gradient_accumulation_steps=accumulate,
        )  # fmt: skip
        callback = trainer_callback(every=2, file=tmp_path / f"{name}.jsonl", live=False)
        trainer = transformers.Trainer(model=Scored(), args=settings, train_dataset=rows, callbacks=[callback])
        trainer.train(resume_from_checkpoint=resume)
        logged = {entry["step"]: entry["loss"] for entry in trainer.state.log_history if "loss" in entry}
        for record in callback.monitor.records[1:]:
            assert record["loss"] == pytest.approx(logged[record["step"]], abs=1e-3)
        return list(callback.monitor.records)

    run("accumulated", 4, accumulate=2)
    whole = run("whole", 12)
    run("cut", 8)
    rest = run("cut", 12, str(tmp_path / "cut" / "checkpoint-6"))
    assert [record["step"] for record in rest[1:]] == [8, 10, 12]
    assert rest[-1]["laws"]["drift"] == pytest.approx(whole[-1]["laws"]["drift"], rel=1e-3)
    assert rest[-1]["laws"]["relative"] == pytest.approx(whole[-1]["laws"]["relative"], rel=1e-3)
    assert rest[-1]["laws"]["drift"] > whole[1]["laws"]["drift"] > 0
