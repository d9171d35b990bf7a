"""Monitors: what they understand, what they record, and that records survive a kill."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from lawful import Architecture, LawfulError, Mlp, Unsupported
from lawful.flow import balances, singular_values
from lawful.flow.lightning import lightning_callback
from lawful.flow.monitor import Monitor, chain_network, line, read_records
from lawful.flow.parts import understand
from lawful.network.modules.convert import to_module


def train(
    model: nn.Module, monitor: Monitor | None = None, steps: int = 30, rate: float = 0.05, width: int = 3
) -> None:
    torch.manual_seed(0)
    x, y = torch.randn(16, width), torch.randn(16, 1)
    optimizer = torch.optim.SGD(model.parameters(), rate)
    for _ in range(steps):
        loss = (model(x) - y).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if monitor is not None:
            monitor.step(loss)


def mlp() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 1))


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.enter, self.leave = nn.Linear(3, 4), nn.Linear(4, 1)
        self.inner = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 4))
        self.norm = nn.LayerNorm(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.relu(self.enter(x))
        return self.leave(self.norm(h + self.inner(h)))


class Branching(nn.Module):
    """Cannot be traced: looks at its data."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x if x.sum() > 0 else -x)


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.shared, self.last = nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.first(x))
        x = torch.relu(self.shared(torch.relu(self.shared(x))))
        return self.last(x)


def convolutional() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv1d(1, 4, 3, padding=1), nn.ReLU(), nn.MaxPool1d(2), nn.Conv1d(4, 5, 3, padding=1), nn.LeakyReLU(),
        nn.Flatten(), nn.Linear(5 * 4, 1),
    )  # fmt: skip


def frozen() -> nn.Sequential:
    model = mlp()
    model[0].requires_grad_(False)
    return model


def tied() -> nn.Sequential:
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 1))
    model[2].weight = model[0].weight
    return model


@pytest.mark.parametrize(
    ("make", "chains", "ignored"),
    [
        (mlp, (("0", "2", "4"),), {}),
        (
            Residual,
            (("inner.0", "inner.2"),),
            {"enter": "used in 2 places", "norm": "LayerNorm", "leave": "not joined"},
        ),
        (Branching, (("body.0", "body.2"),), {"body.4": "not joined"}),
        (Twice, (), {"first": "reader shared is used twice", "shared": "used twice", "last": "not joined"}),
        (convolutional, (("0", "3", "6"),), {}),
        (frozen, (("2", "4"),), {"0": "frozen"}),
        (tied, (), {"0": "shares", "2": "shares", "4": "not joined"}),
        (lambda: nn.LSTM(3, 4), (), {"": "LSTM"}),
    ],
)
def test_parts_are_understood_or_named(
    make: Callable[[], nn.Module], chains: tuple[tuple[str, ...], ...], ignored: dict[str, str]
) -> None:
    parts = understand(make())
    assert parts.chains == chains
    found = dict(parts.ignored)
    assert set(found) == set(ignored)
    for name, words in ignored.items():
        assert words in found[name]
    assert str(parts)


@pytest.mark.parametrize(
    ("make", "shape"), [(mlp, (16, 3)), (Residual, (16, 3)), (Branching, (16, 3)), (convolutional, (16, 1, 8))]
)
def test_every_joint_obeys_its_law(make: Callable[[], nn.Module], shape: tuple[int, ...]) -> None:
    """d/dt of a balance under the flow is −2⟨in, g_in⟩ + 2⟨out, g_out⟩: zero at every joint we claim to understand."""
    torch.manual_seed(0)
    model = make().double()
    model(torch.randn(shape, dtype=torch.float64)).square().sum().backward()
    for joint in understand(model).joints:
        below, above = joint.below, joint.above
        into = (below.weight * below.weight.grad).flatten(1).sum(1) + below.bias * below.bias.grad
        out = (above.weight * above.weight.grad).reshape(len(above.weight), joint.units, -1).sum((0, 2))
        assert (into - out).abs().max() < 1e-10
        assert into.abs().max() > 1e-3


def test_balances_and_rank_are_those_of_the_network() -> None:
    network = Architecture.parse("3-8-6-1 relu bias").initialise(seed=0)
    assert isinstance(network, Mlp)
    with Monitor(to_module(network).double()) as monitor:
        record = monitor.records[0]
    found = np.concatenate([np.array(values) for values in record["balances"].values()])
    np.testing.assert_allclose(found, balances(network).values(network.theta), rtol=1e-7, atol=1e-9)
    assert record["rank"] == 14
    chain = chain_network(monitor.model, monitor.parts.chains[0], monitor.parts.joints)
    assert chain is not None
    np.testing.assert_array_equal(chain.theta, network.theta)


@pytest.mark.parametrize("cut", [[(1, 0)], [(1, 0), (2, 1)], [(1, 2), (1, 3), (2, 0), (2, 5)]])
@pytest.mark.parametrize("together", [False, True])
def test_rank_drops_with_neurons_cut_off(cut: list[tuple[int, int]], together: bool) -> None:
    """P0 Theorem 2, against the singular values; `together` keeps the edges among the cut neurons."""
    network = Architecture.parse("3-8-6-1 relu bias").initialise(seed=0)
    dag = network.to_dag()
    nodes = np.isin(np.arange(len(dag.names)), [dag.index[f"h{layer}.{neuron}"] for layer, neuron in cut])
    touched = nodes[dag.tails] ^ nodes[dag.heads] if together else nodes[dag.tails] | nodes[dag.heads]
    theta = np.where(touched, 0.0, dag.theta)
    values = singular_values(network, theta)
    assert isinstance(network, Mlp)
    with Monitor(to_module(network.with_theta(theta)).double()) as monitor:
        assert monitor.records[0]["rank"] == int((values > 1e-7 * values[0]).sum()) < 14


def test_dead_and_linear_neurons_are_counted_on_the_batch() -> None:
    model = mlp()
    with torch.no_grad():
        model[0].bias[:2] = -100.0  # dead
        model[0].bias[2:5] = 100.0  # linear
    with Monitor(model, every=1) as monitor:
        model(torch.randn(16, 3))
        monitor.step()
        activations = torch.relu(model[0](torch.randn(1, 3)))
    record = monitor.records[-1]
    assert activations[0, :2].sum() == 0
    assert record["dead"] >= 2
    assert record["linear"] >= 3
    assert not model[0]._forward_hooks


def test_records_come_every_k_steps_with_drift_and_quantities(tmp_path: Path) -> None:
    model = mlp()
    file = tmp_path / "run.jsonl"
    squares = {"norm2": lambda theta: float(theta @ theta), "two": lambda theta: theta[:2]}
    with Monitor(model, every=10, file=file, quantities=squares, locked=lambda network: network.widths[-1]) as monitor:
        train(model, monitor, 35)
    assert [record["step"] for record in monitor.records] == [0, 10, 20, 30]
    assert monitor.records[0]["drift"] == 0.0
    assert 0 < monitor.records[-1]["drift"] < 1.0
    assert monitor.records[-1]["locked"] == 1
    assert monitor.records[-1]["quantities"]["norm2"] > 0
    assert len(monitor.records[-1]["quantities"]["two"]) == 2
    assert read_records(file) == json.loads(json.dumps(monitor.records))
    start = json.loads(file.read_text().splitlines()[0])
    assert start["kind"] == "start"
    assert start["chains"] == [["0", "2", "4"]]
    for record in monitor.records:
        assert len(line(record)) < 100


def test_drift_is_the_predicted_one() -> None:
    """Gradient descent moves every balance by η² c(g) a step."""
    model = mlp().double()
    torch.manual_seed(0)
    x, y = torch.randn(16, 3, dtype=torch.float64), torch.randn(16, 1, dtype=torch.float64)
    with Monitor(model, every=1) as monitor:
        expected = {name: np.array(values) for name, values in monitor.records[0]["balances"].items()}
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for _ in range(5):
            optimizer.zero_grad()
            (model(x) - y).square().mean().backward()
            for joint in monitor.parts.joints:
                into = joint.below.weight.grad.square().sum(1) + joint.below.bias.grad.square()
                expected[joint.name] += 0.01 * (into - joint.above.weight.grad.square().sum(0)).numpy()
            optimizer.step()
            monitor.step()
    for name, values in monitor.records[-1]["balances"].items():
        np.testing.assert_allclose(values, expected[name], atol=1e-8)


def test_the_trained_model_is_untouched() -> None:
    plain, watched = mlp(), mlp()
    train(plain)
    with Monitor(watched, every=3) as monitor:
        train(watched, monitor)
    for first, second in zip(plain.parameters(), watched.parameters(), strict=True):
        assert torch.equal(first, second)


KILLED = """
import sys, torch
from torch import nn
from lawful.flow.monitor import Monitor
model = nn.Sequential(nn.Linear(3, 50), nn.ReLU(), nn.Linear(50, 1))
with Monitor(model, every=1, file=sys.argv[1], live=False) as monitor:
    while True:
        loss = model(torch.randn(4, 3)).square().mean()
        loss.backward()
        monitor.step(loss)
        print(monitor.steps, flush=True)
"""


def test_records_survive_kill_9(tmp_path: Path) -> None:
    file = tmp_path / "run.jsonl"
    child = subprocess.Popen([sys.executable, "-c", KILLED, str(file)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    last = 0
    for text in child.stdout:
        last = int(text)
        if last >= 200:
            child.send_signal(signal.SIGKILL)
            break
    rest = child.stdout.read()
    child.wait(timeout=60)
    last = int(rest.split()[-1]) if rest.split() else last
    found = [record["step"] for record in read_records(file)]
    assert found[: last + 1] == list(range(last + 1))
    with file.open("a") as out:
        out.write('{"kind": "record", "step": 10')  # as if killed in the middle of a line
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 1))
    with Monitor(model, every=1, file=file, live=False) as monitor:
        monitor.step()
    again = [record["step"] for record in read_records(file)]
    assert again == [*found, 0, 1]


def test_the_live_line_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with Monitor(mlp(), every=1, live=True) as monitor:
        monitor.step(torch.tensor(0.25))
    shown = capsys.readouterr().err
    assert shown.count("\n") == 1
    assert "step 1  loss 0.25  drift 0  rank 14/14" in shown


def test_bad_requests_are_refused(tmp_path: Path) -> None:
    with pytest.raises(LawfulError, match="at least 1"):
        Monitor(mlp(), every=0)
    with pytest.raises(OSError, match="absent"), Monitor(mlp(), file=tmp_path / "absent" / "run.jsonl"):
        pass


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


def test_lightning_is_optional(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("lightning", "lightning.pytorch", "pytorch_lightning"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(Unsupported, match="lawful\\[lightning\\]"):
        lightning_callback()


def test_laws_and_locks_found_elsewhere_can_be_watched() -> None:
    from lawful.components import components
    from lawful.laws import known_laws

    network = Architecture.parse("3-4-1 relu bias").initialise(seed=0)
    assert isinstance(network, Mlp)
    laws = known_laws(network.to_dag())
    locked = len(components(network).locked)
    with Monitor(
        to_module(network).double(),
        quantities={"laws": laws.values},
        locked=lambda chain: len(components(chain).locked),
    ) as monitor:
        record = monitor.records[0]
    assert record["locked"] == locked
    np.testing.assert_allclose(record["quantities"]["laws"], laws.values(network.theta))


class Words(nn.Module):
    """A small language model: nothing that two layers and a ReLU explain."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.token, self.norm = nn.Embedding(9, 4), nn.LayerNorm(4)
        self.mix = nn.MultiheadAttention(4, 2, batch_first=True)
        self.head = nn.Linear(4, 9, bias=False)

    def forward(self, ids: torch.Tensor, labels: torch.Tensor | None = None) -> torch.Tensor:
        x = self.token(ids)
        x = x + self.mix(x, x, x, need_weights=False)[0]
        return self.head(self.norm(x))


def train_words(model: nn.Module, monitor: Monitor, steps: int, rate: float = 0.05) -> None:
    torch.manual_seed(4)
    ids = torch.randint(9, (8, 5))
    optimizer = torch.optim.SGD(model.parameters(), rate)
    for _ in range(steps):
        loss = nn.functional.cross_entropy(model(ids).flatten(0, 1), ids.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        monitor.step(loss)


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


def test_sinks_get_every_record() -> None:
    from lawful.flow.sinks import to_tensorboard, to_wandb

    seen: list[Any] = []
    writer = types.SimpleNamespace(add_scalar=lambda *scalar: seen.append(scalar))
    run = types.SimpleNamespace(log=lambda values, step: seen.append((step, sorted(values))))
    with Monitor(mlp(), every=1, live=False, sinks=[to_tensorboard(writer), to_wandb(run)]) as monitor:
        monitor.step(0.5)
    assert ("lawful/loss", 0.5, 1) in seen
    assert any(entry[0] == 1 and "lawful/drift" in entry[1] for entry in seen if len(entry) == 2)


def test_a_hugging_face_trainer_can_drive_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A trainer that calls the events in its order, on a stand-in for its callback class."""
    from lawful.flow.trainer import trainer_callback

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
    assert callback.monitor.records[-1]["loss"] == 0.5
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(Unsupported, match="transformers"):
        trainer_callback()


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
