"""Networks of zero loss in single precision, and on a line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import sklearn.datasets
import torch

from lawful.papers.truncation.clusters import Clusters, synthetic
from lawful.papers.truncation.construction import (
    NotSeparable,
    ZeroLoss,
    caps,
    network_with_caps,
    zero_loss_network,
)


def timestamps(spread: float) -> Clusters:
    """Three clusters of the plane and a column of milliseconds since 1970."""
    data = synthetic(3, 8, 0.3, seed=1)
    late = 1.7e12 + spread * data.points[:, :1]
    return Clusters(np.c_[late, data.points[:, 1:]], data.labels)


@pytest.mark.parametrize("spread", [1e5, 1e8])
def test_timestamps_survive_single_precision(spread: float) -> None:
    """The first layer takes the floor away in exact arithmetic; without it the loss was 0.6 and more."""
    data = timestamps(spread)
    built = zero_loss_network(data)
    assert isinstance(built, ZeroLoss)
    assert built.loss < 1e-18
    assert built.loss_single < 1e-9
    values = torch.tensor(data.points.astype(np.float32))
    for number, (weight, bias) in enumerate(zip(built.network.weights, built.network.biases, strict=True), 1):
        layer = (torch.tensor(each, dtype=torch.float32) for each in (weight, bias))
        values = torch.nn.functional.linear(values, *layer)
        values = values.relu() if number < len(built.network.weights) else values
    np.testing.assert_allclose(values.numpy(), np.eye(3)[data.labels], atol=1e-3)


def test_rows_that_single_precision_cannot_tell_apart_are_named(lawful: Any, tmp_path: Path) -> None:
    x = np.array([[1.7e12, 0.0], [1.7e12 + 1e6, 0.0], [1.7e12 + 3.0, 0.0]])
    built = zero_loss_network(Clusters(x, [0, 0, 1]), np.eye(2))
    assert isinstance(built, NotSeparable)  # between them
    built = zero_loss_network(Clusters(x, [0, 1, 0]))
    assert isinstance(built, ZeroLoss)
    assert built.blurred is None
    built = zero_loss_network(Clusters(x, [0, 1, 2]))
    assert isinstance(built, ZeroLoss)
    assert built.loss < 1e-12
    assert built.blurred == (0, 2)
    np.savez(tmp_path / "data.npz", x=x, y=[0, 1, 2])
    said = lawful("separate", "--data", tmp_path / "data.npz", code=1).stdout
    assert "rows 0 and 2 of two clusters are one point" in said


@pytest.mark.parametrize("count", [3, 6])
def test_intervals_on_a_line_are_bent_apart(count: int) -> None:
    """In one dimension only the two outer clusters can be parted; a wider first layer makes edges of a convex curve."""
    rng = np.random.default_rng(count)
    labels = np.repeat(rng.permutation(count), 4)
    data = Clusters((np.repeat(np.arange(count), 4) + 0.8 * rng.random(4 * count))[:, None], labels)
    built = zero_loss_network(data)
    assert isinstance(built, ZeroLoss)
    assert built.bent == count
    assert built.loss < 1e-15
    assert built.loss_single < 1e-6
    np.testing.assert_allclose(built.network.evaluate(data.points), np.eye(count)[labels], atol=1e-6)
    mixed = zero_loss_network(Clusters([[0.0], [1.0], [2.0], [3.0]], [0, 1, 0, 2]))
    assert isinstance(mixed, NotSeparable)


@pytest.mark.parametrize("name", ["moons", "circles", "xor", "iris"])
def test_what_no_order_parts_is_bent_by_a_wider_first_layer(name: str, lawful: Any, tmp_path: Path) -> None:
    if name == "iris":
        x, y = sklearn.datasets.load_iris(return_X_y=True)
    elif name == "xor":
        x = np.random.default_rng(0).uniform(-1, 1, size=(60, 2))
        y = (x[:, 0] * x[:, 1] > 0).astype(int)
    else:
        make = getattr(sklearn.datasets, f"make_{name}")
        x, y = make(120, noise=0.05, random_state=0) if name == "moons" else make(120, factor=0.5, random_state=0)
    np.savez(tmp_path / "data.npz", x=x, y=y)
    said = lawful(
        "separate", "--data", tmp_path / "data.npz", "--network", tmp_path / "n.safetensors", "--json", code=1
    )
    assert said.json["blocked"]
    assert said.json["network"]["bent"] > 1
    layers = safetensors.torch.load_file(tmp_path / "n.safetensors")
    for kind in (torch.float64, torch.float32):
        values = torch.tensor(x, dtype=kind)
        for number in range(0, len(layers), 2):
            weight, bias = (layers[f"{number}.{part}"].to(kind) for part in ("weight", "bias"))
            values = torch.nn.functional.linear(values.relu() if number else values, weight, bias)
        np.testing.assert_allclose(values.numpy(), np.eye(y.max() + 1)[y], atol=1e-3)


def test_one_point_in_two_clusters_cannot_be_bent_apart() -> None:
    assert network_with_caps(Clusters([[0.0, 1.0], [0.0, 1.0], [2.0, 1.0]], [0, 1, 1])) is None


def test_neighbouring_floats_are_not_cut_apart() -> None:
    """Nothing lies between them, so no cap has a finite slope there (it was one of infinite weights)."""
    with np.errstate(divide="raise"):
        assert caps(np.array([[0.0], [np.nextafter(0.0, 1.0)]]), np.array([0, 1])) is None
