"""Diffs of checkpoints that were made by known training: the step it infers is one that could have been used."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from lawful import Architecture, Dag, LawfulError, Mlp
from lawful.api.checkpoints.diff import diff
from lawful.formats.queries.data import Data
from lawful.sources.files import write


def trained(start: Mlp, data: Data, step: float, steps: int, decay: float = 0.0) -> Mlp:
    """Full-batch gradient descent on the mean squared error."""
    dag: Dag = start.to_dag()
    theta = torch.tensor(dag.theta.copy(), requires_grad=True)
    x, y = torch.tensor(data.x), torch.tensor(data.y)
    for _ in range(steps):
        loss = (dag.evaluate(x, theta)[:, 0] - y).square().mean()
        (gradient,) = torch.autograd.grad(loss, theta)
        theta = (theta - step * (gradient + decay * theta)).detach().requires_grad_()
    return start.with_theta(theta.detach().numpy())


@pytest.fixture(scope="module")
def problem() -> tuple[Mlp, Data]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 4))
    start = Architecture.parse("4-8-6-1 relu bias").initialise("he", seed=1)
    assert isinstance(start, Mlp)
    return start, Data(x, np.sin(x[:, 0]) + 0.3 * x[:, 1])


@pytest.mark.parametrize("step", [0.003, 0.01, 0.03])
def test_the_step_is_a_true_lower_bound_and_not_a_weak_one(problem: tuple[Mlp, Data], step: float) -> None:
    start, data = problem
    found = diff(start, trained(start, data, step, int(1.5 / step)), data=data)
    assert found.verdict.verdict == "different"
    assert found.step is not None
    assert step / 20 < found.step < 1.1 * step
    assert found.losses is not None
    assert found.losses[1] < found.losses[0]
    assert len(found.dimensions) == 2


def test_weight_decay_is_recognised(problem: tuple[Mlp, Data]) -> None:
    """Small steps with decay λ for time T multiply all balances by e^{−2λT}."""
    start, data = problem
    found = diff(start, trained(start, data, 0.002, 500, decay=0.3))
    assert found.decay == pytest.approx(np.exp(-2 * 0.3 * 1.0), rel=0.01)
    assert found.decay_residual < 0.05 * found.relative_drift


def test_rescaled_twins_are_the_same_function_with_other_laws(problem: tuple[Mlp, Data]) -> None:
    start, _ = problem
    twin = Mlp.from_dag(start.to_dag().rescaled(np.linspace(0.5, 2.0, 14)))
    found = diff(start, twin)
    assert found.verdict.verdict == "equal"
    assert found.relative_drift > 0.1
    assert found.flipped == ()


def test_deaths_and_crossings_are_named() -> None:
    before = Mlp([[[1.0], [-1.0]], [[1.0, 1.0], [1.0, -1.0]], [[3.0, 9.0]]], [None, [0.0, 0.0], None])
    after = Mlp([[[1.0], [-1.0]], [[-1.0, -1.0], [1.0, -1.0]], [[-3.0, 9.0]]], [None, [0.0, 0.0], None])
    found = diff(before, after)
    assert found.died == ("h2.0",)
    assert ("h2.0", "y0") in found.crossed


def test_the_command_line(problem: tuple[Mlp, Data], tmp_path: Path, lawful) -> None:  # type: ignore[no-untyped-def]
    start, data = problem
    write(start, tmp_path / "a.npz")
    write(trained(start, data, 0.01, 50), tmp_path / "b.npz")
    np.savez(tmp_path / "d.npz", x=data.x, y=data.y)
    got = lawful("diff", tmp_path / "a.npz", tmp_path / "b.npz", "--data", tmp_path / "d.npz", "--json").json
    assert got["verdict"] == "different"
    assert 0 < got["step"] < 0.011
    text = lawful("diff", tmp_path / "a.npz", tmp_path / "b.npz", "--data", tmp_path / "d.npz").stdout
    assert "step of at least" in text
    assert max(map(len, text.splitlines())) <= 80
    assert "one architecture" in lawful("diff", tmp_path / "a.npz", "4-7-6-1 relu bias", code=2).stderr
    with pytest.raises(LawfulError, match="mse, bce"):
        diff(start, start, data=data, loss="nonsense")
