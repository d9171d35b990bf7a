"""Runs of hours are kept in the folder of the results, and taken up again."""

from __future__ import annotations

from pathlib import Path

import pytest

from lawful.api.training.leaky_runs import LeakyPlan
from reproduction.claims import leaky_steps, leaky_training
from reproduction.long_runs import keeping, long_run


def test_a_place_lasts_as_long_as_its_folder(tmp_path: Path) -> None:
    with keeping(tmp_path), long_run("run") as place:
        assert place == tmp_path / "run"
    with long_run("run") as place:
        place.mkdir()
    assert not place.exists()


def test_the_papers_figures_are_read_from_a_kept_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = LeakyPlan("4-2-4", 20, 8, 6, ridge=0.05, tolerance=0.1, evaluations=200, grids=2)
    monkeypatch.setattr(leaky_training, "PAPER_SIZE", small)
    monkeypatch.setattr(leaky_training, "PAPER_DEPTHS", (1.0, 2.0))
    with keeping(tmp_path):
        _, found = leaky_training._depths.__wrapped__(True)
        monkeypatch.setattr("lawful.api.training.leaky_runs._train", None)  # a second training would fail
        _, again = leaky_training._depths.__wrapped__(True)
    assert [each.effective_depth for each in found] == [1.0, 2.0]
    assert [each.bottleneck_rank for each in again] == [each.bottleneck_rank for each in found]
    assert (tmp_path / "p3-depths" / "depth-2.npz").is_file()


def test_every_network_of_figure_two_has_a_run_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaky_steps, "PAPER_LAYERS", (4,))
    monkeypatch.setattr(
        leaky_steps,
        "LeakyPlan",
        lambda teacher, **words: LeakyPlan("4-2-4", 20, width=6, **words | {"ridge": 0.05, "evaluations": 60}),
    )
    with keeping(tmp_path):
        runs = leaky_steps._rules.__wrapped__(True, 1)
    assert set(runs) == set(leaky_steps.RULES)
    for rule in leaky_steps.RULES:
        assert runs[rule][4][0].layers == 4
        assert (tmp_path / "p3-rules" / "teacher-1" / f"{rule}-4" / "depth-3.npz").is_file()
