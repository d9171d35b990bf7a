"""Monitors: what they understand, what they record, and that records survive a kill."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from monitored import mlp, train, understand
from torch import nn

from lawful import Architecture, LawfulError, Mlp
from lawful.sources.modules.convert import to_module
from lawful.training import balances, singular_values
from lawful.training.monitor.monitor import Monitor, chain_network, line, read_records


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


class Normed(nn.Sequential):
    """A batch norm writes the channels that the second convolution reads."""

    def __init__(self) -> None:
        super().__init__(nn.Conv1d(1, 4, 3), nn.BatchNorm1d(4), nn.ReLU(), nn.Conv1d(4, 2, 3))


class ChannelsLast(nn.Module):
    """Flattened with channels last: the columns of a channel are not neighbours."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv1d(1, 3, 3), nn.Linear(3 * 6, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.last(torch.relu(self.first(x)).transpose(1, 2).flatten(1))
        return found


def alone() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 1), nn.ReLU(), nn.Linear(1, 2))


@pytest.mark.parametrize(
    ("make", "shape", "chains", "ignored"),
    [
        (mlp, (16, 3), (("0", "2", "4"),), {}),
        (Residual, (16, 3), (("norm", "leave"), ("inner.0", "inner.2")), {"enter": "no channels"}),
        (Branching, (16, 3), (("body.0", "body.2"),), {"body.4": "no channels"}),
        (Twice, (16, 3), (), dict.fromkeys(("first", "shared", "last"), "no channels")),
        (convolutional, (16, 1, 8), (("0", "3", "6"),), {}),
        (frozen, (16, 3), (("2", "4"),), {"0": "frozen"}),
        (tied, (16, 3), (), dict.fromkeys(("0", "2", "4"), "no channels")),
        (lambda: nn.LSTM(3, 4), (2, 5, 3), (), {"": "no channels"}),
        (lambda: nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True), (2, 5, 8),
         (("linear1", "linear2"),), dict.fromkeys(("self_attn", "self_attn.out_proj", "norm1", "norm2"), "channels")),
        (Normed, (4, 1, 9), (("1", "3"),), {"0": "no channels"}),
        (ChannelsLast, (4, 1, 8), (("first", "last"),), {}),
        (alone, (4, 3), (("0", "2"),), {}),
    ],
)  # fmt: skip
def test_layers_are_understood_or_named(
    make: Callable[[], nn.Module],
    shape: tuple[int, ...],
    chains: tuple[tuple[str, ...], ...],
    ignored: dict[str, str],
) -> None:
    parts = understand(make(), shape)
    assert parts.chains == chains
    found = dict(parts.ignored)
    assert set(found) == set(ignored)
    for name, words in ignored.items():
        assert words in found[name]
    assert str(parts)


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (mlp, (16, 3)), (Residual, (16, 3)), (Branching, (16, 3)), (convolutional, (16, 1, 8)), (Normed, (4, 1, 9)),
        (ChannelsLast, (4, 1, 8)), (alone, (16, 3)),
    ],
)  # fmt: skip
def test_every_joint_obeys_its_law(make: Callable[[], nn.Module], shape: tuple[int, ...]) -> None:
    """The derivative of `in² − out²` along the gradient, which is exact up to rounding: zero at every joint."""
    torch.manual_seed(0)
    model = make().double()
    with torch.no_grad():
        for value in model.parameters():
            value.add_(0.1 * torch.randn_like(value))
    joints = understand(model, shape).joints
    batch = torch.randn(shape, dtype=torch.float64)
    (model(batch) * torch.randn_like(model(batch))).sum().backward()
    assert joints
    for joint in joints:
        moved = []
        for step in (1.0, -1.0):  # sums of squares are quadratic, whose central differences are derivatives at any step
            with torch.no_grad():
                for value in model.parameters():
                    value.add_(value.grad, alpha=step)
            moved.append(joint.sides())
            with torch.no_grad():
                for value in model.parameters():
                    value.sub_(value.grad, alpha=step)
        into, out = ((ahead - behind) / 2 for ahead, behind in zip(*moved, strict=True))
        assert (into - out).abs().max() < 1e-10 * max(1.0, float(into.abs().max()))
        assert into.abs().max() > 1e-3


def test_slopes_of_activations_are_read_from_the_graph() -> None:
    """A leaky chain is handed on as leaky, not as ReLU."""
    model = nn.Sequential(nn.Linear(3, 4), nn.LeakyReLU(0.2), nn.Linear(4, 4), nn.Dropout(0.5), nn.Linear(4, 2))
    parts = understand(model, (4, 3))
    assert [joint.slope for joint in parts.joints] == [0.2, 1.0]
    chain = chain_network(model, parts.chains[0], parts.joints)
    assert chain is not None
    assert list(chain.slopes) == [0.2, 1.0]
    learned = nn.Sequential(nn.Linear(3, 4), nn.PReLU(), nn.Linear(4, 2))
    parts = understand(learned, (4, 3))
    assert [(joint.kinked, joint.slope) for joint in parts.joints] == [(True, None)]
    assert chain_network(learned, parts.chains[0], parts.joints) is None


def test_units_are_channels_also_where_inputs_are_sequences() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
    with torch.no_grad():
        model[0].bias[:] = torch.tensor([-100.0, -100.0, 100.0, 100.0])
    with Monitor(model, every=1, live=False) as monitor:
        model(torch.randn(2, 7, 3))
        monitor.step()
    assert (monitor.records[-1]["dead"], monitor.records[-1]["linear"]) == (2, 2)


def test_a_model_in_bfloat16_with_a_unit_cut_off_has_a_rank() -> None:
    model = mlp().bfloat16()
    with torch.no_grad():
        model[0].weight[0], model[0].bias[0], model[2].weight[:, 0] = 0, 0, 0
    with Monitor(model, live=False) as monitor:
        assert monitor.records[0]["rank"] == 13


def test_a_monitor_waits_for_the_first_batch() -> None:
    """What a convolution takes is not known before: then its balances are measured from their values at that time."""
    model = convolutional()
    with Monitor(model, every=1, live=False) as monitor:
        assert monitor.records[0]["balances"] == {}
        assert monitor.records[0]["drift"] is monitor.records[0]["rank"] is None
        assert "no batch has shown" in str(monitor.parts)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        model(torch.randn(16, 1, 8)).square().mean().backward()
        optimizer.step()
        monitor.step()
    last = monitor.records[-1]
    assert set(last["balances"]) == {"0", "3"}
    assert last["drift"] > 0
    assert last["hidden"] == last["rank"] == 9
    assert last["unchecked"] == []


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
from lawful.training.monitor.monitor import Monitor
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


def test_laws_and_locks_found_elsewhere_can_be_watched() -> None:
    from lawful.conservation import known_laws
    from lawful.invariant_set import components

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
