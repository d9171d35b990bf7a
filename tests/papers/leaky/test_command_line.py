"""`lawful leaky` and `lawful bottleneck` as a user meets them."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lawful.api.training.leaky_runs as runs
from lawful.api.training.leaky_files import load_network, load_task, read_run
from lawful.api.training.leaky_runs import LeakyPlan, run_leaky
from lawful.errors import LawfulError
from lawful.papers.leaky import energies, trace
from lawful.report.training.leaky import run_text

SMALL = (
    "--teacher", "5-2-5", "--depth", 14, "--width", 8, "--samples", 25, "--ridge", 0.08, "--tolerance", 0.009,
)  # fmt: skip
KEYS = {"hamiltonian", "bottleneck_rank", "coi_min", "stationarity", "kinetic", "steps"}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, lawful: Any) -> Path:
    folder = tmp_path_factory.mktemp("leaky") / "run"
    done = lawful("leaky", *SMALL, "--effective-depth", "3,6", "--out", folder, "--json").json
    assert done["converged"]
    assert [network["effective_depth"] for network in done["networks"]] == [3, 6]
    return folder


def test_finished_parts_are_not_computed_again(run: Path, lawful: Any) -> None:
    before = {path.name: path.stat().st_mtime_ns for path in run.iterdir()}
    text = lawful("leaky", *SMALL, "--effective-depth", "3,6", "--out", run).stdout
    assert "2 networks, 2 are geodesics" in text
    assert {path.name: path.stat().st_mtime_ns for path in run.iterdir()} == before
    with pytest.raises(LawfulError, match="holds another run"):
        run_leaky(LeakyPlan("5-2-5", samples=25, layers=14, width=9, ridge=0.08), (3.0,), run)


def test_energies_of_a_run_with_a_certificate(run: Path, lawful: Any, tmp_path: Path) -> None:
    file = tmp_path / "geodesic.json"
    found = lawful("bottleneck", run, "--json", "--figure", tmp_path / "f.svg", "--save", file).json
    assert found.keys() >= KEYS
    assert found["hamiltonian"].keys() >= {"p", "values", "median", "min", "max"}
    assert found["hamiltonian"]["min"] <= found["hamiltonian"]["median"] <= found["hamiltonian"]["max"]
    assert len(found["steps"]) == len(found["kinetic"]) == len(found["hamiltonian"]["p"]) == 14
    assert sum(found["steps"]) == pytest.approx(1.0)
    assert [entry["effective_depth"] for entry in found["depths"]] == [3, 6]
    assert found["stationarity"] <= 0.009
    assert (tmp_path / "f.svg").stat().st_size > 1000
    assert lawful("verify", file).stdout.startswith("verified")
    broken = json.loads(file.read_text())
    broken["stationarity"] = [0.0, broken["stationarity"][0] / 2]
    file.write_text(json.dumps(broken))
    assert "REJECTED" in lawful("verify", file, code=1).stdout


def test_text_says_the_answer_first_and_fits(run: Path) -> None:
    ridge, networks = read_run(run)
    task = load_task(run / "train.npz")
    found = [energies(trace(network, task, ridge)) for network, _ in networks]
    text = run_text(found)
    assert text.startswith("bottleneck rank about")
    assert all(len(line) <= 80 for line in text.splitlines())
    assert "stationarity" in text


def test_a_negative_estimate_is_not_called_a_rank(run: Path) -> None:
    ridge, networks = read_run(run)
    found = energies(trace(next(networks)[0], load_task(run / "train.npz"), ridge))
    shallow = replace(found, rank=np.full_like(found.rank, -1.31), stationarity=1e-3)
    text = run_text([shallow])
    assert text.startswith("too shallow for a bottleneck rank: -2H/L is -1.31 at depth")
    assert "larger --effective-depth" in text


def test_no_rank_without_stationarity_and_a_run_can_be_taken_up_again(lawful: Any, tmp_path: Path) -> None:
    asked = ("leaky", *SMALL, "--effective-depth", "3", "--out", tmp_path / "short")
    short = lawful(*asked, "--evaluations", 30, "--json", code=3).json["networks"][0]
    assert not short["converged"]
    text = lawful("bottleneck", tmp_path / "short", "--save", tmp_path / "proof.json", code=3)
    assert text.stdout.startswith("no bottleneck rank: at depth 3 the path is stationary to")
    assert "not written" in text.stderr
    assert not (tmp_path / "proof.json").exists()
    assert lawful("bottleneck", tmp_path / "short", "--json", code=3).json["bottleneck_rank"] is None
    longer = lawful(*asked, "--evaluations", 4000, "--json").json["networks"][0]
    assert longer["converged"]
    assert longer["evaluations"] > short["evaluations"]
    assert longer["cost"] < short["cost"]


def test_single_network_file_and_data(run: Path, lawful: Any) -> None:
    file = run / "depth-6.npz"
    found = lawful("bottleneck", file, "--data", run / "train.npz", "--ridge", 0.08, "--json").json
    assert found["stationarity"] <= 0.009


def test_any_other_network(lawful: Any, tmp_path: Path) -> None:
    np.savez(tmp_path / "data.npz", x=np.random.default_rng(0).normal(size=(30, 3)))
    (tmp_path / "mine.py").write_text(
        "import torch\n"
        "class Block(torch.nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.inner = torch.nn.Linear(5, 5)\n"
        "    def forward(self, x):\n"
        "        return x + self.inner(x.relu())\n"
        "def make():\n"
        "    torch.manual_seed(0)\n"
        "    return torch.nn.Sequential(torch.nn.Linear(3, 5), Block(), Block(), torch.nn.Linear(5, 1))\n"
    )
    found = lawful("bottleneck", "mine:make", "--data", "data.npz", "--json", cwd=tmp_path).json
    assert found.keys() >= KEYS
    assert found["hamiltonian"] is None
    assert [block["name"] for block in found["blocks"]] == ["1", "2"]
    text = lawful("bottleneck", "3-4-4-4-2 relu bias", "--data", "data.npz", cwd=tmp_path).stdout
    assert text.splitlines()[0].startswith("assumed: random weights")
    assert text.splitlines()[1].startswith("narrowest after block")
    assert "Does not" in text
    assert all(len(line) <= 80 for line in text.splitlines())
    (tmp_path / "narrow.csv").write_text("a,b\n1,2\n3,4\n")
    assert "does not run" in lawful("bottleneck", "mine:make", "--data", "narrow.csv", cwd=tmp_path, code=2).stderr
    assert "--data" in lawful("bottleneck", "3-4-2 relu", code=2).stderr


@pytest.mark.parametrize(
    ("changes", "depths", "word"),
    [
        ({"teacher": "5"}, (3.0,), "20-5-20"),
        ({}, (-1.0,), "positive"),
        ({}, (60.0,), "below"),
        ({"width": 2}, (3.0,), "width"),
        ({"steps": "odd"}, (3.0,), "adaptive"),
        ({"method": "magic"}, (3.0,), "solver or paper"),
        ({"ridge": -1.0}, (3.0,), "ridge"),
        ({"ridge": float("inf")}, (3.0,), "ridge"),
        ({"tolerance": float("nan")}, (3.0,), "tolerance"),
        ({"evaluations": 0}, (3.0,), "at least 2"),
    ],
)
def test_bad_plans_are_refused_before_anything_is_written(
    changes: dict[str, Any], depths: tuple[float, ...], word: str, tmp_path: Path
) -> None:
    with pytest.raises(LawfulError, match=word):
        run_leaky(LeakyPlan(**({"teacher": "5-2-5"} | changes)), depths, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_bad_input_is_one_line(lawful: Any, tmp_path: Path) -> None:
    message = lawful("leaky", *SMALL, "--effective-depth", "x", "--out", tmp_path / "run", code=2).stderr
    assert "3,5,7,11" in message
    assert len(message.strip().splitlines()) == 1


def test_damaged_runs_are_refused(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(LawfulError, match="JSON"):
        read_run(tmp_path)
    (tmp_path / "run.json").write_text('{"kind": "other"}')
    with pytest.raises(LawfulError, match="describe"):
        read_run(tmp_path)
    (tmp_path / "run.json").write_text('{"kind": "leaky run", "ridge": 0.1}')
    with pytest.raises(LawfulError, match="finished"):
        read_run(tmp_path)


def test_unconverged_is_undecided(tmp_path: Path, lawful: Any) -> None:
    done = lawful(
        "leaky", *SMALL, "--effective-depth", 3, "--evaluations", 20, "--out", tmp_path / "run", "--json", code=3
    ).json
    assert not done["converged"]


@pytest.mark.parametrize("maps", [{}, {"maps": "learned", "penalty": 0.08}, {"method": "paper"}])
def test_a_killed_run_goes_on_to_the_same_bytes(tmp_path: Path, maps: dict[str, Any]) -> None:
    """Interrupted at every fourth checkpoint or so, on coarse grids as well, it ends where the whole run ends."""
    plan = LeakyPlan(
        "5-2-5", samples=25, layers=14, width=8, ridge=0.08, tolerance=1e-4, evaluations=900, grids=2, **maps
    )
    whole = run_leaky(plan, (3.0, 5.0), tmp_path / "whole")
    broken, stops, written = tmp_path / "broken", 0, runs.write_arrays

    def write(path: Path, arrays: dict[str, Any]) -> None:
        nonlocal stops
        written(path, arrays)
        stops += ".part" in path.name
        if ".part" in path.name and stops % 4 == 2:
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs, "write_arrays", write)
        ticks = iter(range(10**6))  # a clock that goes on by a second whenever it is looked at
        patch.setattr(runs.time, "thread_time", lambda: float(next(ticks)))
        for _ in range(60):
            with suppress(KeyboardInterrupt):
                again = run_leaky(plan, (3.0, 5.0), broken)
                break
    assert stops > 4
    for name in ("depth-3", "depth-5"):
        assert (broken / f"{name}.npz").read_bytes() == (tmp_path / "whole" / f"{name}.npz").read_bytes()
        assert not list(broken.glob(f"{name}.part*"))
    assert sum(each["seconds"] for each in again) >= stops  # of all sessions, not of the last one
    assert [{**each, "seconds": 0} for each in again] == [{**each, "seconds": 0} for each in whole]


def test_side_by_side_gives_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two effective depths start from the same path; threads change nothing, and stop when one of them is stopped."""
    plan, depths = LeakyPlan("5-2-5", samples=20, layers=12, width=8, ridge=0.08, evaluations=150), (2.0, 4.0, 5.0)
    run_leaky(plan, depths, tmp_path / "one")
    monkeypatch.setattr(runs, "LARGE", 1)
    monkeypatch.setattr(runs.os, "cpu_count", lambda: 3)
    run_leaky(plan, depths, tmp_path / "three")
    for depth in depths:
        first, second = ((tmp_path / each / f"depth-{depth:g}.npz").read_bytes() for each in ("one", "three"))
        assert first == second

    def stop(depth: float, progress: Any) -> None:
        if depth == 4.0:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_leaky(plan, depths, tmp_path / "stopped", stop)
    assert not (tmp_path / "stopped" / "depth-4.json").exists()


def test_an_interrupted_run_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    plan = LeakyPlan("5-2-5", samples=25, layers=14, width=8, ridge=0.08, tolerance=0.05, evaluations=900)

    def stop_soon(_depth: float, progress: Any) -> None:
        if progress.evaluations > 100:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_leaky(plan, (3.0,), tmp_path, stop_soon)
    assert (tmp_path / "depth-3.part.npz").exists()
    assert not (tmp_path / "depth-3.json").exists()
    later: list[int] = []
    (summary,) = run_leaky(plan, (3.0,), tmp_path, lambda _depth, progress: later.append(progress.evaluations))
    assert min(later) > 50
    assert summary["converged"]
    assert not (tmp_path / "depth-3.part.npz").exists()
    ridge, networks = read_run(tmp_path)
    assert ridge == 0.08
    ((network, _),) = list(networks)
    assert network.effective_depth == 3
    with pytest.raises(LawfulError, match="Leaky"):
        load_network(tmp_path / "train.npz")


def test_the_papers_recipe_runs(tmp_path: Path) -> None:
    plan = LeakyPlan("4-2-4", samples=20, layers=8, width=6, ridge=0.08, method="paper", evaluations=60)
    (summary,) = run_leaky(plan, (2.0,), tmp_path)
    assert summary["evaluations"] == 60


def test_a_page_draws_no_hamiltonian_of_a_path_that_is_not_stationary(tmp_path: Path) -> None:
    from lawful.papers.leaky import energies, trace
    from lawful.report.training.leaky import depth_figure

    plan = LeakyPlan("5-2-5", samples=25, layers=8, width=8, ridge=0.08, tolerance=0.05, evaluations=60)
    run_leaky(plan, (3.0,), tmp_path)
    ridge, networks = read_run(tmp_path)
    found = energies(trace(next(networks)[0], load_task(tmp_path / "train.npz"), ridge))
    assert not found.trusted
    figure = depth_figure([found])
    assert all(series.label != "-2H/L̃" for panel in figure.panels for series in panel.series)
    assert "no Hamiltonian here" in figure.caption
