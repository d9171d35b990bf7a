"""Maps in and out that are learned with a penalty."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lawful.errors import LawfulError
from lawful.papers.leaky import LeakyResNet, solve, teacher, trace
from lawful.papers.leaky.solver.learned_maps import MappedObjective, solve_with_maps

TRAIN, _ = teacher((4, 2, 3), 25)


def network(seed: int = 0) -> LeakyResNet:
    return LeakyResNet.random(
        width=7, layers=5, effective_depth=1.5, inputs=4, outputs=3, softness=0.05, seed=seed
    )  # fmt: skip


def test_the_gradient_is_autograds() -> None:
    start = network()
    objective = MappedObjective(start, TRAIN, 0.03, 0.07)
    rng = np.random.default_rng(0)
    point = objective.start + 0.1 * rng.normal(size=len(objective.start))
    value, gradient = objective(point)
    weights, into, out = (torch.tensor(part, requires_grad=True) for part in objective.split(point))
    other = LeakyResNet(
        weights.detach() / torch.tensor(objective.path.roots), 1.5, into=into.detach(), out=out.detach(), softness=0.05
    )
    state = into @ torch.tensor(TRAIN.inputs.T.copy())
    from lawful.papers.leaky.model import rectify

    for step, weight, root in zip(other.steps, weights, torch.tensor(objective.path.roots), strict=True):
        lifted = torch.cat([rectify(state, 0.05), torch.ones(1, len(TRAIN), dtype=torch.float64)])
        state = (1 - step * 1.5) * state + step * ((weight / root) @ lifted)
    error = (out @ state - torch.tensor(TRAIN.targets.T.copy())).square().sum() / len(TRAIN)
    cost = error + 0.03 / 3.0 * weights.square().sum() + 0.035 * (into.square().sum() + out.square().sum())
    expected = torch.autograd.grad(cost, [weights, into, out])
    assert value == pytest.approx(cost.item(), rel=1e-12)
    np.testing.assert_allclose(gradient, np.concatenate([each.numpy().ravel() for each in expected]), atol=1e-11)


def test_learning_the_maps_lowers_the_cost_and_keeps_the_geodesic() -> None:
    fixed = solve(network(), TRAIN, 0.03, tolerance=1e-2)
    found = solve_with_maps(fixed.network, TRAIN, 0.03, 0.01, tolerance=3e-3)
    assert found.converged
    before, _ = MappedObjective(fixed.network, TRAIN, 0.03, 0.01)(
        MappedObjective(fixed.network, TRAIN, 0.03, 0.01).start
    )
    assert found.cost < before
    assert trace(found.network, TRAIN, 0.03).stationarity <= 3e-3 * 1.001  # by the path's own definition
    assert found.network.out is not None
    A = trace(found.network, TRAIN, 0.03).states[-1]
    out = found.network.out.detach().numpy()
    residual = out @ A - TRAIN.targets.T
    decay = -2 / len(TRAIN) * residual @ A.T  # where the map out rests, its penalty balances the data
    assert np.linalg.norm(decay - 0.01 * out) <= 4e-3 * np.linalg.norm(0.01 * out)


@pytest.mark.parametrize("penalty", [0.0, -1.0, np.nan, np.inf])
def test_a_penalty_is_needed(penalty: float) -> None:
    with pytest.raises(LawfulError, match="penalty"):
        solve_with_maps(network(), TRAIN, 0.03, penalty)


ARGUMENTS = (
    "leaky", "--teacher", "4-2-3", "--depth", "5", "--width", "7", "--samples", "25", "--effective-depth", "1,1.5",
    "--softness", "0.05", "--ridge", "0.03", "--tolerance", "0.05", "--maps", "learned", "--penalty", "0.02",
)  # fmt: skip


def test_command_line(lawful: Callable[..., Any], tmp_path: Path) -> None:
    folder = str(tmp_path / "run")
    ran = lawful(*ARGUMENTS, "--out", folder, "--html", str(tmp_path / "page.html"), "--json", code=0)
    networks = json.loads(ran.stdout)["networks"]
    assert [each["converged"] for each in networks] == [True, True]
    assert json.loads((tmp_path / "run" / "run.json").read_text())["maps"] == "learned"
    with np.load(tmp_path / "run" / "depth-1.npz") as file:
        into = file["into"]
    assert np.abs(into.T @ into - np.eye(4)).max() > 1e-3  # no longer the orthonormal columns of the start
    assert "Effective depth 1.5" in (tmp_path / "page.html").read_text()
    again = lawful(*ARGUMENTS, "--out", folder, "--json", code=0)
    assert json.loads(again.stdout)["networks"] == networks
    lawful(*ARGUMENTS[:-2], "--penalty", "0.5", "--out", folder, code=2)


@pytest.mark.parametrize(
    "wrong", [("--maps", "other"), ("--maps", "learned", "--penalty", "0"), ("--maps", "fixed", "--penalty", "1"),
              ("--maps", "learned", "--method", "paper")],
)  # fmt: skip
def test_bad_input(wrong: tuple[str, ...], lawful: Callable[..., Any], tmp_path: Path) -> None:
    ran = lawful(*ARGUMENTS[:-4], *wrong, "--out", str(tmp_path / "run"), code=2)
    assert ran.stderr.startswith("lawful: ")
    assert ran.stderr.count("\n") == 1
    assert not (tmp_path / "run").exists()
