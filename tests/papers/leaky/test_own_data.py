"""Geodesics of the user's own data, several seeds, and grids that get finer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lawful.api.training.leaky_files import load_network, load_task
from lawful.api.training.leaky_runs import LeakyPlan, run_leaky
from lawful.errors import LawfulError
from lawful.papers.leaky import LeakyResNet, change_grid, energies, irregular, solve, teacher, trace

SIZE = ("--depth", "8", "--width", "8", "--tolerance", "0.03", "--evaluations", "600")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 4))
    np.savez(tmp_path / "own.npz", x=x, y=np.maximum(x @ rng.normal(size=(4, 2)), 0) @ rng.normal(size=(2, 3)))
    return tmp_path / "own.npz"


def test_own_data_with_seeds_and_grids(data: Path, lawful: Any, tmp_path: Path) -> None:
    words = ("leaky", "--data", data, *SIZE, "--effective-depth", "2", "--grids", "2", "--seeds", "2", "--out")
    found = lawful(*words, tmp_path / "run", "--json").json
    assert found["converged"]
    assert len(found["networks"]) == 2
    (spread,) = found["spread"]
    costs = [each["cost"] for each in found["networks"]]
    assert spread["mean_cost"] == pytest.approx(np.mean(costs))
    assert spread["standard_deviation"] == pytest.approx(np.std(costs, ddof=1))
    task = load_task(tmp_path / "run" / "seed-1" / "train.npz")
    np.testing.assert_allclose(task.targets.std(axis=0), 1.0)
    assert lawful(*words, tmp_path / "run", "--json").json == found  # nothing is trained again
    assert "2 seeds, 2 of 2 networks are geodesics" in lawful(*words, tmp_path / "run").stdout


def test_scales_of_columns_change_nothing(data: Path, lawful: Any, tmp_path: Path) -> None:
    arrays = np.load(data)
    np.savez(tmp_path / "scaled.npz", x=arrays["x"] * [2.0**30, 1, 1, 2.0**-30], y=arrays["y"] * 2.0**20)
    first, second = (
        lawful("leaky", "--data", file, *SIZE, "--effective-depth", "2", "--out", tmp_path / file.stem, "--json").json
        for file in (data, tmp_path / "scaled.npz")
    )
    assert first["networks"][0]["cost"] == pytest.approx(second["networks"][0]["cost"], rel=1e-9)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ((), "give either --teacher"),
        (("--teacher", "4-2-4", "--data", "own.npz"), "give either --teacher"),
        (("--teacher", "4-2-4", "--seeds", "0"), "--seeds takes 1 to 100"),
        (("--teacher", "4-2-4", "--grids", "5"), "5 grids need at least"),
        (("--data", "own.npz", "--classes"), "--classes needs labels"),
        (("--data", "one.npz", "--classes"), "one class only"),
        (("--data", "bare.npz"), "needs targets"),
        (("--data", "nan.npz"), "not finite"),
        (("--data", "own.npz", "--width", "3"), "smaller than the data's 4"),
    ],
)
def test_bad_input_is_refused(
    words: tuple[str, ...], reason: str, data: Path, lawful: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez("one.npz", x=np.ones((3, 2)), y=np.zeros(3, dtype=int))
    np.savez("bare.npz", x=np.ones((3, 2)))
    np.savez("nan.npz", x=np.full((3, 2), np.nan), y=np.zeros((3, 1)))
    said = lawful("leaky", *SIZE, *words, "--effective-depth", "2", "--out", "never", code=2)
    assert reason in said.stderr
    assert not (tmp_path / "never").exists()


def test_a_refined_geodesic_is_a_better_start_than_a_random_one() -> None:
    train, _ = teacher((5, 2, 5), 40)
    start = LeakyResNet.random(width=8, layers=6, effective_depth=2.0, inputs=5, outputs=5, softness=0.01)
    coarse = solve(start, train, 0.05, tolerance=0.03, evaluations=800)
    fine = change_grid(coarse.network, 12, train)
    assert fine.layers == 12
    assert float(fine.steps.sum()) == pytest.approx(1.0)
    random = LeakyResNet.random(width=8, layers=12, effective_depth=2.0, inputs=5, outputs=5, softness=0.01)
    warm, cold = (solve(each, train, 0.05, tolerance=0.3, evaluations=800) for each in (fine, random))
    assert warm.evaluations < cold.evaluations
    assert warm.history[0].cost < 0.3 * cold.history[0].cost
    again = change_grid(fine, 6, train)  # and back: every second layer's representation
    ends = trace(fine, train, 0.05).states[-1], trace(again, train, 0.05).states[-1]
    assert np.linalg.norm(ends[1] - ends[0]) < 0.1 * np.linalg.norm(ends[0])
    assert change_grid(fine, 12, train) is fine
    with pytest.raises(LawfulError, match="as many steps"):
        change_grid(fine, 6, train, np.full(5, 0.2))


def test_deeper_networks_are_found_on_coarse_grids_first_and_every_grid_keeps_its_rule(tmp_path: Path) -> None:
    """A grid on which a layer would forget its input is left out: 8 layers at effective depth 6 were too few."""
    plan = LeakyPlan("4-2-4", 20, 16, 6, "irregular", 0.5, 0.05, tolerance=0.1, evaluations=400, grids=3)
    assert [plan.layer_counts(depth) for depth in (2.0, 3.0, 6.0, 12.0)] == [(4, 8, 16), (8, 16), (16,), (16,)]
    heard: dict[float, list[int]] = {}
    run_leaky(
        plan, (2.0, 6.0), tmp_path / "run", lambda depth, entry: heard.setdefault(depth, []).append(entry.evaluations)
    )
    for depth in (2, 6):
        found = load_network(tmp_path / "run" / f"depth-{depth}.npz")
        np.testing.assert_allclose(found.steps.numpy(), irregular(16, 0.5), rtol=1e-12)
        assert (found.steps * depth).max().item() < 1
    assert sum(np.diff(heard[2.0]) < 0) == 2  # two changes of grid
    assert sum(np.diff(heard[6.0]) < 0) == 0


def test_headline_and_certificate_are_one_number() -> None:
    train, _ = teacher((4, 2, 4), 20)
    start = LeakyResNet.random(width=6, layers=6, effective_depth=2.0, inputs=4, outputs=4, softness=0.01)
    found = energies(trace(solve(start, train, 0.05, tolerance=0.05, evaluations=300).network, train, 0.05))
    assert found.bottleneck_rank == float(np.median(found.rank))  # the certificate encloses every one of `rank`
