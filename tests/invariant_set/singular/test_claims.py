"""Training code of the claims of this room against the plain one; every claim runs in tests/api."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from lawful.errors import LawfulError
from lawful.invariant_set.singular.laplacian import dag_edge_weights
from lawful.network import Architecture
from reproduction import singular_runs
from reproduction.claims import singular_training


@pytest.mark.parametrize("text", ["5-4-1 relu", "5-4-3-1 leaky_relu(0.1) bias", "5-4-3-4-1 relu bias skip(1,2)"])
def test_batched_networks_are_the_plain_ones(text: str) -> None:
    architecture = Architecture.parse(text)
    dag = architecture.to_dag()
    rng = np.random.default_rng(0)
    theta, inputs = rng.normal(size=(3, dag.parameters)), rng.normal(size=(6, 5))
    found = singular_runs.outputs(architecture, torch.tensor(theta), torch.tensor(inputs)).numpy()
    labels, leaf = torch.tensor(rng.integers(0, 2, 6).astype(float)), torch.tensor(theta, requires_grad=True)
    logits = singular_runs.outputs(architecture, leaf, torch.tensor(inputs))[..., 0]
    loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, labels.expand_as(logits), reduction="none")
    (slope,) = torch.autograd.grad(loss.mean(dim=1).sum(), leaf)
    assert np.allclose(singular_runs._gradient(architecture, leaf.detach(), torch.tensor(inputs), labels), slope)
    omega = singular_runs._omega(torch.tensor(theta), torch.tensor(dag.hidden_incidence.toarray())).numpy()
    for run in range(3):
        one = dag.with_theta(theta[run])
        assert np.allclose(found[run], one.evaluate(inputs))
        assert np.allclose(omega[run], dag_edge_weights(one, floor=singular_runs.FLOOR).values)


def test_the_null_model_against_chance() -> None:
    """P0 Figure 12: drop edges at random and count neurons that lose all of them."""
    rng = np.random.default_rng(0)
    lost = (rng.random((20_000, 6, 3)) < 0.7).all(axis=2).sum(axis=1)
    expected = singular_training.at_least(0.7**3, 6)
    assert np.allclose([(lost >= k).mean() for k in range(7)], expected, atol=0.02)


def test_given_features_are_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "mine.npz", features=rng.normal(size=(50, 4)), labels=rng.integers(0, 2, 50))
    monkeypatch.setenv("LAWFUL_FEATURES", str(tmp_path / "mine.npz"))
    (task,) = singular_training.feature_tasks()
    assert task.name.endswith("mine.npz")
    assert task.data.train.shape == (35, 4)
    np.savez(tmp_path / "mine.npz", other=np.zeros(3))
    with pytest.raises(LawfulError, match="features and labels"):
        singular_training.feature_tasks()
