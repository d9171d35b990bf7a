"""Monitors in the loops that people run: each reads the laws of the plain loop, or says in one warning why not."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from monitored import Words, mlp
from torch import nn
from torch.utils.checkpoint import checkpoint

from lawful.training.monitor.lightning import MonitorHooks
from lawful.training.monitor.monitor import Monitor, read_records
from lawful.training.monitor.trainer import trainer_callback
from lawful.training.monitor.wrappers import unwrap

LAWS = 26  # of `Words`, called plainly in float32
IDS = torch.randint(9, (8, 5), generator=torch.Generator().manual_seed(4))
X = torch.randn(16, 3, generator=torch.Generator().manual_seed(5))


@contextmanager
def silence() -> Iterator[None]:
    """No warning may come."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        yield


def words_loss(found: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(found.float().flatten(0, 1), IDS.flatten())


def run(
    monitored: nn.Module,
    loss: Callable[[], torch.Tensor],
    *,
    steps: int = 3,
    optimizer: torch.optim.Optimizer | None = None,
    **options: Any,
) -> Monitor:
    optimizer = torch.optim.SGD(monitored.parameters(), 0.05) if optimizer is None else optimizer
    with Monitor(monitored, every=1, live=False, **options) as monitor:
        for _ in range(steps):
            optimizer.zero_grad()
            value = loss()
            value.backward()
            optimizer.step()
            monitor.step(value)
    return monitor


def plain() -> Monitor:
    model = Words()
    return run(model, lambda: words_loss(model(IDS)))


def autocast() -> Monitor:
    model = Words()

    def loss() -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return words_loss(model(IDS))

    return run(model, loss)


class Inside(Words):
    """Autocast in the forward pass itself, as `accelerate` puts it there."""

    @torch.autocast("cpu", dtype=torch.bfloat16)  # type: ignore[untyped-decorator]
    def forward(self, ids: torch.Tensor, labels: torch.Tensor | None = None) -> torch.Tensor:
        return super().forward(ids)


def autocast_inside() -> Monitor:
    model = Inside()
    return run(model, lambda: words_loss(model(IDS)))


def bfloat16() -> Monitor:
    model = Words().bfloat16()
    return run(model, lambda: words_loss(model(IDS)))


class Root(nn.Module):
    """Never called itself."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net


def a_part() -> Monitor:
    root = Root(Words())
    return run(root, lambda: words_loss(root.net(IDS)))


def accumulation() -> Monitor:
    model = Words()
    return run(model, lambda: sum((words_loss(model(IDS)) / 4 for _ in range(4)), torch.zeros(())))


def batches_of_one() -> Monitor:
    model = Words()
    return run(model, lambda: sum((model(row[None]).float().square().mean() for row in IDS[:3]), torch.zeros(())))


def recomputation() -> Monitor:
    """A backward pass that calls a part of the model again is no loop that calls it."""

    class Saving(Words):
        def forward(self, ids: torch.Tensor, labels: torch.Tensor | None = None) -> torch.Tensor:
            x = self.token(ids)
            x = x + self.mix(x, x, x, need_weights=False)[0]
            return self.head(checkpoint(self.norm, x, use_reentrant=False))

    model = Saving()
    return run(model, lambda: words_loss(model(IDS)))


def nested_call() -> Monitor:
    @dataclass
    class Answer:
        logits: torch.Tensor
        note: str

    class Nested(Words):
        def forward(self, batch: dict[str, Any], flags: None = None) -> Answer:  # type: ignore[override]
            return Answer(super().forward(batch["text"]["ids"]), "fine")

    model = Nested()
    return run(model, lambda: words_loss(model({"text": {"ids": IDS}, "name": "one"}, None).logits))


def two_groups() -> Monitor:
    """The usual groups with and without decay: one rate."""
    model = Words()
    decayed = [value for value in model.parameters() if value.ndim > 1]
    rest = [value for value in model.parameters() if value.ndim < 2]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}]
    return run(model, lambda: words_loss(model(IDS)), optimizer=torch.optim.AdamW(groups, 1e-3))


LOOPS = (plain, autocast, autocast_inside, bfloat16, a_part, accumulation, batches_of_one, recomputation, nested_call,
         two_groups)  # fmt: skip


@pytest.mark.parametrize("loop", LOOPS)
def test_a_loop_is_read_as_the_plain_one_is(loop: Callable[[], Monitor]) -> None:
    with silence():
        monitor = loop()
    found = monitor.records[-1]["laws"]
    assert (found["laws"], found["of"]) == (LAWS, LAWS)
    assert found["checked"]
    assert found["parts"] == (["net"] if loop is a_part else [""])
    assert 0 < found["relative"] < (0.5 if loop is two_groups else 0.05)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("way", ["wrapped", "in place", "beside"])
def test_compiled_models_are_read_and_compiled_once(backend: str, way: str) -> None:
    from torch._dynamo.utils import counters

    torch._dynamo.reset()
    counters.clear()
    model = mlp()
    if way == "in place":
        model.compile(backend=backend, fullgraph=True)
    called = torch.compile(model, backend=backend, fullgraph=True) if way != "in place" else model
    with pytest.warns(UserWarning, match="torch.compile") as said:
        monitor = run(called if way == "wrapped" else model, lambda: called(X).square().mean(), steps=12)
    assert [str(warning.message) for warning in said if issubclass(warning.category, UserWarning)] == [
        "Sequential: dead and linear units of 0, 2 are not counted: they are computed inside torch.compile"
    ]
    assert counters["stats"]["unique_graphs"] == 1
    first, last = monitor.records[0], monitor.records[-1]
    assert last["laws"]["laws"] == last["laws"]["of"] == 14
    assert last["laws"]["drift"] == pytest.approx(last["drift"], rel=1e-9)  # both since the same start
    assert last["drift"] > first["drift"] == 0.0
    assert last["unchecked"] == []
    assert last["dead"] is last["linear"] is None
    torch._dynamo.reset()


def test_a_part_that_is_compiled_apart_is_said_not_to_be_read() -> None:
    torch._dynamo.reset()
    root, beside = Root(Words()), nn.Sequential(nn.Linear(9, 4), nn.ReLU(), nn.Linear(4, 9))
    root.add_module("beside", beside)
    called = torch.compile(root.net, backend="eager")
    with pytest.warns(
        UserWarning, match="structural laws of net.token.weight and 7 other.* inside torch.compile"
    ) as said:
        monitor = run(root, lambda: words_loss(beside(called(IDS))))
    assert len(said) == 1
    assert monitor.records[-1]["dead"] is not None
    assert monitor.records[-1]["laws"]["parts"] == ["beside"]
    assert monitor.records[-1]["laws"]["laws"] == 4
    torch._dynamo.reset()


DISTRIBUTED = """
import os, sys, torch
import torch.distributed as dist
from torch import nn
from lawful.training.monitor.monitor import Monitor
rank, port, folder = int(sys.argv[1]), sys.argv[2], sys.argv[3]
dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
torch.manual_seed(0)
model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1)))
torch.manual_seed(1 + rank)
x, y = torch.randn(8, 3), torch.randn(8, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.05)
with Monitor(model, every=2, live=False, file=os.path.join(folder, f"{rank}.jsonl")) as monitor:
    for _ in range(4):
        optimizer.zero_grad()
        loss = (model(x) - y).square().mean()
        loss.backward()
        optimizer.step()
        monitor.step(loss)
dist.destroy_process_group()
"""


def test_two_processes_train_one_model(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "error::UserWarning:lawful"}
    command = [sys.executable, "-c", DISTRIBUTED]
    both = [
        subprocess.Popen([*command, str(rank), port, str(tmp_path)], env=environment, stderr=subprocess.PIPE, text=True)
        for rank in (0, 1)
    ]
    for process in both:
        error = process.communicate(timeout=300)[1]
        assert process.returncode == 0, error
        assert "UserWarning" not in error
    records = [read_records(tmp_path / f"{rank}.jsonl") for rank in (0, 1)]
    for rows in records:
        assert [row["step"] for row in rows] == [0, 2, 4]
        assert rows[-1]["laws"]["laws"] == 8
        assert rows[-1]["unchecked"] == []
        assert rows[-1]["rank"] == 8
        assert 0 < rows[-1]["laws"]["drift"] < 0.1
    assert records[0][-1]["laws"] == records[1][-1]["laws"]  # one model
    assert records[0][-1]["loss"] != records[1][-1]["loss"]  # other data


def test_wrappers_are_looked_through() -> None:
    model = mlp()
    assert unwrap(nn.DataParallel(torch.compile(model, backend="eager"))) is model


def test_a_run_with_nan_is_said_to_be_lost_once(tmp_path: Path) -> None:
    """max(0.0, nan) is 0.0: the drift of a lost run was none."""
    model, file = mlp(), tmp_path / "run.jsonl"
    broken = False

    def loss() -> torch.Tensor:
        if broken:
            with torch.no_grad():
                model[2].weight[1, 2] = float("nan")
        return model(X).square().mean()

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        optimizer = torch.optim.SGD(model.parameters(), 0.01)
        with Monitor(model, every=1, live=False, file=file) as monitor:
            for step in range(5):
                broken = step >= 2
                optimizer.zero_grad()
                value = loss()
                value.backward()
                optimizer.step()
                monitor.step(value)
    messages = [str(warning.message) for warning in said if issubclass(warning.category, UserWarning)]
    assert len(messages) == 1
    assert "the run is lost: at step 3" in messages[0]
    fine, lost = monitor.records[2], monitor.records[-1]
    assert fine["nonfinite"] == []
    assert fine["rank"] == 14
    assert {"2.weight"} < set(lost["nonfinite"])
    assert all(np.isnan(value) for value in (lost["drift"], lost["laws"]["drift"], lost["laws"]["relative"]))
    assert all(np.isnan(value) for value in lost["laws"]["by_group"].values())
    assert lost["rank"] is lost["dead"] is lost["linear"] is None
    stored = [json.loads(text, parse_constant=pytest.fail) for text in file.read_text().splitlines()]
    assert stored[-1]["drift"] is stored[-1]["laws"]["drift"] is stored[-1]["loss"] is None
    with pytest.warns(UserWarning, match="lost"), Monitor(model, file=file, live=False) as again:
        assert again.steps == 5


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_weights_that_are_lost_at_the_start(value: float) -> None:
    model = mlp()
    with torch.no_grad():
        model[0].bias[0] = value
    with pytest.warns(UserWarning, match="the run is lost: at step 0 0.bias has NaN or infinite") as said:
        monitor = run(model, lambda: model(X).square().mean(), steps=2)
    assert not any("follow the gradient" in str(warning.message) for warning in said)
    assert monitor.records[-1]["rank"] is None


def test_steps_that_a_scaler_skips_move_nothing() -> None:
    """As `GradScaler` does: gradients that overflow are thrown away. The run is not lost."""
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    with silence(), Monitor(model, every=1, live=False) as monitor:
        for step in range(4):
            optimizer.zero_grad()
            loss = model(X).square().mean() * (float("inf") if step % 2 else 1.0)
            loss.backward()
            if all(bool(torch.isfinite(value.grad).all()) for value in model.parameters()):
                optimizer.step()
            monitor.step(loss)
    drifts = [record["laws"]["drift"] if "laws" in record else 0.0 for record in monitor.records]
    assert drifts[2] == drifts[1] < drifts[3] == drifts[4]
    assert monitor.records[2]["loss"] == float("inf")
    assert monitor.records[2]["nonfinite"] == []


def test_dead_units_are_those_of_all_accumulated_batches() -> None:
    model = mlp()
    with torch.no_grad():
        model[0].weight.zero_()
        model[0].weight[0, 0] = 1.0  # on for the first half, off for the second
        model[0].bias.fill_(1.0)
        model[0].bias[0] = 0.0
    halves = torch.zeros(4, 3), torch.zeros(4, 3)
    halves[0][:, 0], halves[1][:, 0] = 1.0, -1.0
    with Monitor(model[:3], every=1, live=False) as monitor:
        for half in halves:
            model[:3](half).sum().backward()
        monitor.step()
    assert monitor.records[-1]["dead"] == 0
    assert monitor.records[-1]["linear"] == 7


def test_frozen_parameters_have_no_laws() -> None:
    model = mlp()
    model[0].requires_grad_(False)
    with silence():
        monitor = run(model, lambda: model(X).square().mean())
    assert monitor.records[-1]["laws"]["laws"] == 6
    assert list(monitor.records[-1]["balances"]) == ["2"]


def test_laws_that_tie_two_rates_are_not_watched() -> None:
    """Σ in² − Σ out² moves by −2η₁⟨in, g⟩ + 2η₂⟨out, g⟩ in a step: not zero to first order."""
    model = mlp()
    groups = [{"params": model[0].parameters(), "lr": 0.01}, {"params": list(model[2:].parameters())}]
    optimizer = torch.optim.SGD(groups, 0.1)
    torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.0)  # a warmup: all rates are 0 in the first step
    with pytest.warns(UserWarning, match="at different rates") as said:
        monitor = run(model, lambda: model(X).square().mean(), optimizer=optimizer)
    assert len(said) == 2
    assert monitor.records[-1]["laws"]["laws"] == 6
    assert list(monitor.records[-1]["balances"]) == ["2"]
    half = mlp()
    with pytest.warns(UserWarning, match="at different rates"):
        run(half, lambda: half(X).square().mean(), optimizer=torch.optim.SGD(half[2:].parameters(), 0.1))


def test_rates_that_a_schedule_parts_later_end_the_laws_between_them() -> None:
    """Both groups move alike at first; from the third step on one of them is twenty times as fast."""
    model = mlp()
    optimizer = torch.optim.SGD([{"params": model[0].parameters()}, {"params": list(model[2:].parameters())}], 1e-3)

    def loss() -> torch.Tensor:
        optimizer.param_groups[1]["lr"] *= 20.0 if len(taken) == 2 else 1.0
        taken.append(1)
        return model(X).square().mean()

    taken: list[int] = []
    with pytest.warns(UserWarning, match="at different rates"):
        monitor = run(model, loss, optimizer=optimizer, steps=6)
    assert [record["laws"]["laws"] for record in monitor.records[1:]] == [14, 14, 6, 6, 6, 6]
    assert list(monitor.records[-1]["balances"]) == ["2"]
    assert monitor.records[-1]["drift"] < 1e-4  # of second order in the rate, 0.02

    both = mlp()
    plain = torch.optim.SGD([{"params": both[0].parameters()}, {"params": list(both[2:].parameters())}], 1e-3)
    decay = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(plain, 2)
    with silence():  # a schedule that moves all groups alike, restarts included
        monitor = run(both, lambda: (decay.step(), both(X).square().mean())[1], optimizer=plain, steps=6)
    assert monitor.records[-1]["laws"]["laws"] == 14


def test_weights_that_are_frozen_later_end_their_laws() -> None:
    model = mlp()

    def loss() -> torch.Tensor:
        model[0].weight.requires_grad_(len(taken) < 2)
        taken.append(1)
        return model(X).square().mean()

    taken: list[int] = []
    with pytest.warns(UserWarning, match="were frozen meanwhile"):
        monitor = run(model, loss, steps=5)
    assert [record["laws"]["laws"] for record in monitor.records[1:]] == [14, 14, 6, 6, 6]


def test_weights_that_two_parts_run_are_not_watched() -> None:
    """What leaves the whole unchanged changes its first layer, and the loop uses that, too."""
    model = mlp()
    with pytest.warns(UserWarning, match="runs its weights in"):
        monitor = run(model, lambda: model(X).square().mean() + model[0](X).square().mean())
    assert list(monitor.records[-1]["balances"]) == ["2"]
    assert monitor.records[-1]["laws"]["laws"] == 6


def test_parts_that_are_called_one_by_one_are_each_read() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder, self.decoder = mlp()[:3], nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 1))

    model = Two()
    with silence():
        monitor = run(model, lambda: model.decoder(torch.tanh(model.encoder(X))).square().mean())
    found = monitor.records[-1]["laws"]
    assert found["parts"] == ["encoder", "decoder"]
    assert found["laws"] == 12
    assert found["drift"] == pytest.approx(monitor.records[-1]["drift"])


def test_what_cannot_be_read_is_said_though_its_parts_are_watched() -> None:
    class Choosy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = mlp()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.body(x if float(x.detach().sum()) > -1e9 else -x)

    model = Choosy()
    with pytest.warns(
        UserWarning, match="structural laws of the model are watched in body alone: torch.export"
    ) as said:
        monitor = run(model, lambda: model(X).square().mean())
    assert len(said) == 1
    assert monitor.records[-1]["drift"] > 0
    silent = mlp()
    with pytest.warns(UserWarning, match="nothing that has it was called with gradients"), Monitor(silent) as monitor:
        monitor.step()


def test_a_lightning_loop_with_accumulation() -> None:
    """`global_step` of the trainer counts steps of the optimiser; batches come twice as often."""

    class Task(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = Words()

    task, trainer = Task(), types.SimpleNamespace(global_step=0, is_global_zero=True)
    callback = MonitorHooks(every=1, live=False)
    optimizer = torch.optim.SGD(task.parameters(), 0.05)
    with silence():
        callback.on_fit_start(trainer, task)
        for batch in range(6):
            loss = words_loss(task.net(IDS)) / 2
            loss.backward()
            if batch % 2:
                optimizer.step()
                optimizer.zero_grad()
                trainer.global_step += 1
            callback.on_train_batch_end(trainer, task, {"loss": loss}, None, batch)
        callback.on_fit_end(trainer, task)
    assert callback.monitor is not None
    assert [record["step"] for record in callback.monitor.records] == [0, 1, 2, 3]
    assert callback.monitor.records[-1]["laws"]["laws"] == LAWS


@pytest.mark.filterwarnings("ignore::UserWarning:transformers", "ignore::UserWarning:accelerate")
def test_a_hugging_face_run_in_bfloat16_has_the_laws_of_the_plain_one(tmp_path: Path) -> None:
    """A GPT-2 of `transformers`, driven by its Trainer, with `accelerate`'s autocast inside `forward`."""
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    config = transformers.GPT2Config(n_layer=1, n_head=2, n_embd=8, vocab_size=20, n_positions=8, bos_token_id=0,
                                     eos_token_id=0)  # fmt: skip
    rows = [{"input_ids": IDS[number] % 20, "labels": IDS[number] % 20} for number in range(8)]
    counts = []
    for low in (False, True):
        settings = transformers.TrainingArguments(
            output_dir=str(tmp_path / str(low)), max_steps=2, per_device_train_batch_size=2, learning_rate=0.1,
            gradient_accumulation_steps=2, bf16=low, optim="sgd", save_strategy="no", report_to=[], disable_tqdm=True,
            use_cpu=True,
        )  # fmt: skip
        callback = trainer_callback(every=1, live=False)
        torch.manual_seed(0)
        model = transformers.GPT2LMHeadModel(config)
        transformers.Trainer(model=model, args=settings, train_dataset=rows, callbacks=[callback]).train()
        last = callback.monitor.records[-1]
        assert [record["step"] for record in callback.monitor.records] == [0, 1, 2]
        assert last["laws"]["checked"]
        assert 0 < last["laws"]["relative"] < 0.1
        counts.append(last["laws"]["laws"])
    assert counts[0] == counts[1] > 50
