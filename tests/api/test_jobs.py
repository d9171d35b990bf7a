"""Every job of the sweeps gives a flat row with the facts it names."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from lawful import LawfulError
from lawful.api.sweeps import JOBS, Task, plan_from
from lawful.api.sweeps.jobs import run_task
from lawful.network import Architecture
from lawful.sources.files import write

CASES = {
    "claim": ({"id": "p0-incidence"}, {"verdict": "confirmed", "paper": "P0"}),
    "count_laws": ({"architecture": "1-2-2-1 linear"}, {"laws": 7, "predicted": 7, "matches": True}),
    "training_laws": (
        {"architecture": "1-3-1 relu"},
        {"laws": 3, "fewest": 4, "witness": False, "always": [4, 5], "least": 4, "usual": 0.0},
    ),
    "components": ({"architecture": "3-4-1 relu", "scheme": "uniform", "seed": 2}, {"parameters": 16}),
    "train_and_prune": ({"strength": 0.015}, {"neurons_before": 32, "bound": 0.0}),
    "leaky": (
        {"teacher": "4-2-4", "effective_depth": 4.0, "layers": 12, "width": 8, "samples": 20},
        {"converged": True},
    ),
    "identifiable": ({"architecture": "4-3-3-1 relu bias", "seed": 1}, {}),
    "same": ({"architecture": "6-5-4-2 relu bias"}, {"copy": "equal", "changed": "different"}),
    "sketch": ({"file": "network.npz\t0\t0"}, {"blocks": 3}),
}


def test_every_job_has_a_case() -> None:
    assert set(CASES) == set(JOBS)


@pytest.mark.parametrize("job", CASES)
def test_the_job_gives_its_row_twice_the_same(job: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(Architecture.parse("4-3-2 relu bias").initialise(seed=0), tmp_path / "network.npz")
    inputs, expected = CASES[job]
    row, again = (run_task(Task(0, job, inputs)) for _ in range(2))  # type: ignore[arg-type]
    assert row == again
    assert expected.items() <= row.items()
    assert all(value is None or isinstance(value, (bool, int, float, str, list)) for value in row.values())


def test_a_network_with_skips_is_refused_where_layers_are_needed() -> None:
    with pytest.raises(LawfulError, match="without skips"):
        run_task(Task(0, "same", {"architecture": "2-2-2-1 relu skip(0,1)"}))


def test_the_atlas_in_small() -> None:
    """Every count is the predicted one, and proved, also where a part passes one number on."""
    table = tomllib.loads((Path(__file__).parents[2] / "examples" / "atlas.toml").read_text())
    table["grid"]["architecture"]["parameters"] = 11
    rows = [(task.inputs["architecture"], run_task(task)) for task in plan_from(table).tasks()]
    assert len(rows) > 300
    for name, row in rows:
        assert (row["matches"], row["status"]) == (True, "proved"), name
