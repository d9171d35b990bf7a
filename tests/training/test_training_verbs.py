"""The verbs in Python do what they are told, or refuse: no argument is accepted and ignored."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from torch import nn

import lawful
from lawful import LawfulError
from lawful.network.dynamics import Metric
from lawful.training import GradientFlow, HeavyBall, Riemannian

X = np.random.default_rng(0).normal(size=(8, 2))
Y = X[:, :1]


def test_decay_is_subtracted_from_the_drift() -> None:
    """Along the flow with decay a balance is c(0) e^(−2λt)."""
    run = lawful.flow("2-3-1 relu", (X, Y), dynamics=GradientFlow(decay=0.3), until=0.5)
    assert run.max_drift < 1e-9
    assert np.abs(run.laws[-1] - run.laws[0]).max() > 1e-3


@pytest.mark.parametrize("wrap", [lambda metric: metric, Riemannian])
def test_under_a_metric_the_laws_that_survive_are_watched(wrap: object) -> None:
    """With M the same at all weights of a neuron its balance survives; with M doubled on one side it does not."""
    even = wrap(Metric(np.full(9, 2.0)))  # type: ignore[operator]
    run = lawful.flow("2-3-1 relu", (X, Y), dynamics=even, until=0.5)
    assert len(run.law_names) == 3
    assert run.max_drift < 1e-9
    uneven = wrap(Metric(np.r_[np.full(6, 2.0), np.ones(3)]))  # type: ignore[operator]
    other = lawful.flow("2-3-1 relu", (X, Y), dynamics=uneven, until=0.5)
    assert other.max_drift < 1e-9
    assert other.singular_values is None
    own = lawful.flow("2-3-1 relu", (X, Y), dynamics=Riemannian(lambda theta: 1 + theta**2), until=0.5)
    assert own.law_names == ()


def test_a_heavy_ball_is_said_to_be_one() -> None:
    run = lawful.flow("2-3-1 relu", (X, Y), dynamics=HeavyBall(0.5), until=0.5)
    assert run.about["dynamics"] == "heavy-ball"
    assert "a heavy ball need not keep them" in str(run)


@pytest.mark.parametrize(
    "options",
    [{"snapshots": 1}, {"project": True, "dynamics": HeavyBall(0.5)}, {"project": True, "dynamics": GradientFlow(0.1)},
     {"until": 0.0}, {"until": np.nan}, {"loss": "hinge"}, {"tolerance": 0.0}, {"tolerance": np.nan},
     {"tolerance": -1.0}, {"max_evaluations": 0}],
)  # fmt: skip
def test_what_a_flow_cannot_do_is_refused(options: dict[str, object]) -> None:
    with pytest.raises(LawfulError):
        lawful.flow("2-3-1 relu", (X, Y), **options)


@pytest.mark.parametrize(
    "options",
    [{"dynamics": "heavy-ball", "decay": 0.1}, {"friction": 2.0}, {"dynamics": HeavyBall(0.5), "friction": 2.0},
     {"dynamics": GradientFlow(), "decay": 0.1}, {"dynamics": HeavyBall(), "metric": Metric(np.ones(9))},
     {"dynamics": "heavy-ball", "metric": Metric(np.ones(9))}, {"decay": 0.1, "metric": Metric(np.ones(9))}],
)  # fmt: skip
def test_options_of_other_dynamics_are_not_ignored(options: dict[str, object]) -> None:
    """A heavy ball took a weight decay, and said nothing of it."""
    with pytest.raises(LawfulError, match=r"leave|have their own"):
        lawful.flow("2-3-1 relu", (X, Y), **options)


def test_a_run_in_python_is_stored_and_certified(tmp_path: Path) -> None:
    run = lawful.flow("2-3-1 relu", (X, Y), until=0.3, snapshots=4, out=tmp_path / "run")
    stored = lawful.drift(tmp_path / "run")
    np.testing.assert_array_equal(stored.trajectory.theta, run.trajectory.theta)
    assert (stored.about["network"], stored.about["data"]) == ("2-3-1 relu", "given")
    assert lawful.verify(run.certificate()).kind == "flow"
    with pytest.raises(LawfulError, match="exists already"):
        lawful.flow("2-3-1 relu", (X, Y), out=tmp_path / "run")
    with pytest.raises(LawfulError, match="not for heavy balls"):
        lawful.flow("2-3-1 relu", (X, Y), dynamics="heavy-ball", until=0.1).certificate()


def test_a_module_is_not_projected() -> None:
    module = nn.Sequential(nn.Linear(2, 3), nn.LayerNorm(3), nn.ReLU(), nn.Linear(3, 1))
    with pytest.raises(LawfulError, match="project"):
        lawful.flow(module, (X, Y), project=True)
