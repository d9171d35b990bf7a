"""Chains of layers: traps of padding, pooling and axes, and smaller networks written to files and read again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from lawful.network import Architecture, Mlp
from lawful.pruning.channels import ChannelPruning, prune_channels
from lawful.pruning.channels.certificate import certificate
from lawful.pruning.neurons.prune import prune
from lawful.sources.files import read, write
from lawful.sources.modules.convert import from_module, to_module
from lawful.verify import verify


def removed(model: nn.Module, *shape: int) -> dict[tuple[str, int], str]:
    """What goes; the smaller module computes the same, and its certificate is verified."""
    model = model.double()
    found: ChannelPruning = prune_channels(model, [(2, *shape)])
    torch.manual_seed(5)
    batch = torch.randn(20, *shape, dtype=torch.float64)
    assert float((model(batch) - found.module(batch)).abs().max()) < 1e-12
    assert verify(certificate(found)).facts["channels_after"] == found.channels_after
    return {(gone.layer, gone.channel): gone.kind for gone in found.removed}


def convolutional(padding: int = 0) -> nn.Sequential:
    torch.manual_seed(2)
    size = 6 + 4 * padding
    return nn.Sequential(
        nn.Conv2d(2, 5, 3, padding=padding), nn.ReLU(), nn.Conv2d(5, 4, 3, padding=padding), nn.LeakyReLU(0.1),
        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(4 * (size // 2) ** 2, 6), nn.ReLU(), nn.Linear(6, 3),
    ).double()  # fmt: skip


@torch.no_grad()
def test_channels_of_every_kind() -> None:
    model = convolutional()
    model[0].weight[1].zero_()  # constant, with a bias
    model[2].weight[:, 3].zero_()  # no weight reads channel 3
    model[0].weight[4], model[0].bias[4] = 2 * model[0].weight[0], 2 * model[0].bias[0]
    model[6].weight[2].zero_()
    gone = {("0", 1): "constant", ("0", 3): "silent", ("0", 4): "duplicate", ("6", 2): "constant"}
    assert removed(model, 2, 10, 10) == gone


@torch.no_grad()
def test_volumes() -> None:
    torch.manual_seed(3)
    model = nn.Sequential(
        nn.Conv3d(1, 4, 2), nn.ReLU(), nn.AvgPool3d(2), nn.Conv3d(4, 3, 1), nn.ReLU(), nn.Flatten(), nn.Linear(24, 2)
    )
    model[0].weight[1], model[0].bias[1] = 2 * model[0].weight[2], 2 * model[0].bias[2]
    model[3].weight[0].zero_()
    assert len(removed(model, 1, 5, 5, 5)) == 2


@torch.no_grad()
def test_zero_padding_keeps_a_constant_channel_but_not_a_zero_one() -> None:
    model = convolutional(padding=1)
    model[0].weight[1].zero_()
    model[0].bias[1] = 0.5
    assert removed(model, 2, 10, 10) == {}  # its border is not constant for the next layer
    model[0].bias[1] = -0.5
    assert removed(model, 2, 10, 10) == {("0", 1): "constant"}


@torch.no_grad()
def test_traps_of_chains() -> None:
    """Two activations in a row, a negative zero, a flattened sequence, a pool that takes channels for rows."""
    twice = nn.Sequential(nn.Linear(2, 3), nn.LeakyReLU(0.5), nn.ReLU(), nn.Linear(3, 1))
    twice[0].weight[1].zero_()
    twice[0].bias[1] = -2.0
    assert removed(twice, 2) == {("0", 1): "constant"}
    signed = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    signed[0].weight[1], signed[0].weight[2] = torch.tensor([1.0, -0.0]), torch.tensor([2.0, 0.0])
    signed[0].bias[1], signed[0].bias[2] = 1.0, 2.0
    assert list(removed(signed, 2).values()) == ["duplicate"]
    sequence = nn.Sequential(nn.Linear(2, 2), nn.Flatten(), nn.Linear(4, 1))
    sequence[2].weight[:, 2:] = 0.0  # not channel 1 of 2 but the second moment of time
    assert removed(sequence, 2, 2) == {}
    rows = nn.Sequential(nn.Conv1d(1, 2, 1), nn.MaxPool2d((3, 1), 1, (1, 0)), nn.Flatten(), nn.Linear(8, 1))
    rows[3].weight[:, 4:] = 0.0  # to MaxPool2d a batch of rows is one image, whose height are the channels
    assert removed(rows, 1, 4) == {}


class Doubled(nn.Linear):
    """A layer with code of its own."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return 2 * super().forward(input)


@torch.no_grad()
def test_code_of_a_layers_own_is_followed() -> None:
    model = nn.Sequential(Doubled(3, 4), nn.ReLU(), nn.Linear(4, 3))
    model[0].weight[1].zero_()
    assert removed(model, 3) == {("0", 1): "constant"}


@pytest.mark.parametrize("ending", [".safetensors", ".onnx", ".pt", ".npz", ".json"])
def test_the_smaller_network_survives_files(ending: str, tmp_path: Path) -> None:
    mlp = Architecture.parse("4-8-6-2 relu bias").initialise(seed=1)
    assert isinstance(mlp, Mlp)
    weights = [weight.copy() for weight in mlp.weights]
    weights[0][2] = 0.0
    pruning = prune(Mlp(weights, mlp.biases))
    assert pruning.neurons_after == 13
    write(pruning.network, tmp_path / f"small{ending}")
    batch = np.random.default_rng(0).normal(size=(50, 4))
    again = read(tmp_path / f"small{ending}")
    assert np.allclose(
        again.evaluate(batch), pruning.original.evaluate(batch), atol=1e-6 if ending == ".onnx" else 1e-12
    )
    module = to_module(pruning.network)
    assert module[0].out_features == 7
    found = module(torch.tensor(batch)).detach().numpy()
    assert np.allclose(found, pruning.original.evaluate(batch), atol=1e-12)


def test_a_convolution_as_a_graph() -> None:
    model = nn.Sequential(nn.Conv2d(1, 2, 2), nn.ReLU(), nn.Flatten(), nn.Linear(2 * 4, 2)).double()
    with torch.no_grad():
        model[0].weight[1].zero_()
    dag = from_module(model, (1, 3, 3), drop_useless=True)
    pruning = prune(dag)
    assert pruning.bound == 0.0
    assert pruning.neurons_after == 4
    batch = np.random.default_rng(0).normal(size=(30, 9))
    assert np.allclose(pruning.network.evaluate(batch), dag.evaluate(batch), atol=1e-12)
