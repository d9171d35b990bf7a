"""The claims of this room, their descent code against automatic differentiation, and MNIST's file format."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from lawful import Architecture, Dag, LawfulError, Mlp
from reproduction.claim import Verdict
from reproduction.claims import components_training, find
from reproduction.claims.descent import dag_gradient, gradient, squared

IDS = (
    "p0-network-flow",
    "p0-orbit-once",
    "p0-nonempty",
    "p0-edge-criterion",
    "p0-theorem-1",
    "p0-components",
    "p0-corollary-1",
    "p0-corollary-2",
    "p0-lemma-1-cases",
    "p0-toy-dag",
    "p0-figure-8",
    "p0-figure-9",
)


def test_every_claim_is_registered() -> None:
    assert [find(id).paper for id in IDS] == ["P0"] * len(IDS)


def test_the_printed_sum_of_the_toy_dag_fails() -> None:
    """P0 Section 3.2 prints θ_e² − 4."""
    claim = find("p0-toy-dag")
    outcome = claim.run(False)
    assert outcome.printed_holds is False
    assert claim.verdict(outcome) is Verdict.CORRECTED
    assert outcome.figure is not None


def test_gradients_agree_with_automatic_differentiation() -> None:
    import torch

    mlp = Architecture.parse("3-5-4-2 leaky_relu(0.2)").initialise(seed=1)
    assert isinstance(mlp, Mlp)
    dag = mlp.to_dag()
    rng = np.random.default_rng(0)
    inputs, targets = rng.normal(size=(20, 3)), rng.integers(0, 2, (20, 2)).astype(float)
    theta = torch.tensor(dag.theta.copy(), requires_grad=True)
    outputs = dag.evaluate(torch.tensor(inputs), theta)
    reference = torch.nn.MSELoss()
    expected = reference(outputs, torch.tensor(targets))
    (slope,) = torch.autograd.grad(expected, theta)
    value, matrices = gradient(mlp, inputs, targets, squared)
    assert value == pytest.approx(expected.item())
    assert np.concatenate([matrix.ravel() for matrix in matrices]) == pytest.approx(slope.numpy())
    for graph in (dag, Architecture.parse("3-5-4-2 relu skip(0,1)").initialise(seed=2)):
        assert isinstance(graph, Dag)
        theta = torch.tensor(graph.theta.copy(), requires_grad=True)
        expected = reference(graph.evaluate(torch.tensor(inputs), theta), torch.tensor(targets))
        (slope,) = torch.autograd.grad(expected, theta)
        assert dag_gradient(graph, graph.theta, inputs, targets, squared)[1] == pytest.approx(slope.numpy())


def test_mnist_files_are_read_when_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    images, labels = rng.integers(0, 256, (6, 28, 28), dtype=np.uint8), np.arange(6, dtype=np.uint8)
    header = bytes([0, 0, 8, 3]) + np.array([6, 28, 28], ">u4").tobytes()
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(header + images.tobytes()))
    label_file = tmp_path / "train-labels-idx1-ubyte"
    monkeypatch.setenv("LAWFUL_MNIST", str(tmp_path))
    with pytest.raises(LawfulError, match="has no train-labels"):
        components_training._digits(None, 10)
    label_file.write_bytes(b"\x00\x00\x08\x01" + np.array([6], ">u4").tobytes() + labels.tobytes())
    inputs, targets, source = components_training._digits(None, 10)
    assert source == "MNIST"
    assert inputs.shape == (6, 784)
    assert targets.sum() == 1
    assert sorted(inputs.sum(axis=1)) == pytest.approx(sorted(images.reshape(6, -1).sum(axis=1) / 255))
    label_file.write_bytes(b"\x00\x00\x08\x01")
    with pytest.raises(LawfulError, match="not one of MNIST's files"):
        components_training._digits(None, 10)
