"""Runs that would not end: the work is bounded by evaluations, and the answer is undecided."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from command_line import in_process

from lawful.papers.truncation.clusters import synthetic
from lawful.papers.truncation.flow.boundary import smooth_passage
from lawful.papers.truncation.flow.field import Composed, Maps, Separated
from lawful.papers.truncation.flow.integrate import integrate


def test_a_flow_that_crawls_ends_undecided(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Rates grow with the square of the data's size: far from 1, an explicit method takes millions of tiny steps."""
    monkeypatch.setattr("lawful.papers.truncation.flow.integrate.MOST", 400)
    rng = np.random.default_rng(0)
    points, labels = 300.0 * rng.normal(size=(12, 3)), rng.integers(0, 2, 12)
    field = Composed(points, rng.normal(size=(2, 3))[labels], np.full(12, 1 / 12))
    start = Maps(0.5 * rng.normal(size=(2, 3)), np.array([np.linalg.qr(rng.normal(size=(3, 3)))[0] for _ in range(2)]))
    run = integrate(field, start, np.linspace(0.0, 10.0, 11))
    assert run.halted is not None
    assert "evaluated 400 times and no sign changed" in run.halted
    assert 400 < run.evaluations < 40_000
    assert run.times.tolist() == [0.0]  # what was reached is kept
    data = synthetic(3, 10, 0.1)
    np.savez(tmp_path / "far.npz", x=1e4 * data.points, y=data.labels)
    ends = in_process("truncation-flow", "--data", tmp_path / "far.npz", "--general", "--json")
    assert ends.returncode == 3
    assert "too stiff" in ends.json["halted"]


def test_a_rounded_passage_that_does_not_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    field = Separated(np.array([[-1.0, -1.0], [1.0, 0.5]]), np.array([2.0, 2.0]))
    start = Maps(np.zeros((1, 2)), np.eye(2)[None])
    assert smooth_passage(field, start, 0.0, 0.2) is not None
    monkeypatch.setattr("lawful.papers.truncation.flow.boundary.MOST_EVALUATIONS", 3)
    assert smooth_passage(field, start, 0.0, 0.2) is None
