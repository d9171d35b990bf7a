"""Channels of whole modules: what leaves, what must stay, and that the function is the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from pruned import kinds, lively, same
from torch import Tensor, nn
from torch.nn import functional

from lawful.errors import InvalidNetwork, Unsupported
from lawful.pruning.channels import prune_channels

IMAGE = [(2, 3, 12, 12)]


class Block(nn.Module):
    """A residual block with batch normalisation."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(width, inner, 3, padding=1, bias=False), nn.BatchNorm2d(inner)
        self.conv2, self.bn2 = nn.Conv2d(inner, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)

    def forward(self, x: Tensor) -> Tensor:
        inner = functional.relu(self.bn1(self.conv1(x)))
        return functional.relu(x + self.bn2(self.conv2(inner)))


class Residual(nn.Module):
    """A stem, two blocks on one stream, a head."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 6, 3, stride=2, padding=1), nn.BatchNorm2d(6)
        self.blocks = nn.Sequential(Block(6, 8), Block(6, 5))
        self.pool, self.head = nn.AdaptiveAvgPool2d(1), nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.max_pool2d(functional.relu(self.norm(self.stem(x))), 2)
        return self.head(torch.flatten(self.pool(self.blocks(x)), 1))


@torch.no_grad()
def test_residual_networks_with_normalisation() -> None:
    torch.manual_seed(0)
    model = lively(Residual())
    first = model.blocks[0]
    first.bn1.weight[:2] = 0.0  # constant after the normalisation...
    first.bn1.bias[:2] = -1.0  # ...and zero after the activation, so that padding does not matter
    first.conv1.weight[3] = first.conv1.weight[2]
    for tensor in (first.bn1.running_mean, first.bn1.running_var):
        tensor[3] = tensor[2]
    first.bn1.weight[3], first.bn1.bias[3] = 2 * first.bn1.weight[2], 2 * first.bn1.bias[2]
    model.blocks[1].conv2.weight[:, 4] = 0.0
    found = prune_channels(model, IMAGE)
    assert kinds(found) == {"constant": 2, "duplicate": 1, "silent": 1}
    assert {gone.layer for gone in found.removed} == {"blocks.0.conv1", "blocks.1.conv1"}
    assert type(found.module) is Residual
    assert found.module.blocks[0].conv1.out_channels == found.module.blocks[0].bn1.num_features == 5
    same(model, found, 3, 12, 12)
    assert model.blocks[0].conv1.out_channels == 8  # the user's module is as it was


@torch.no_grad()
def test_a_channel_of_the_stream_leaves_with_all_that_write_it() -> None:
    torch.manual_seed(1)
    model = lively(Residual())
    for norm in (model.norm, model.blocks[0].bn2, model.blocks[1].bn2):
        norm.weight[4] = 0.0
        norm.bias[4] = -0.5
    found = prune_channels(model, IMAGE)
    assert {(gone.layer, gone.channel) for gone in found.removed} >= {("stem", 4), ("blocks.0.conv2", 4)}
    assert found.module.head.in_features == 5
    same(model, found, 3, 12, 12)
    model.blocks[1].bn2.bias[4] = 0.5  # now it is 0.5 at the head, and zero for all padded readers before
    found = prune_channels(model, IMAGE)
    assert found.module.head.in_features == 5
    same(model, found, 3, 12, 12)
    model.blocks[0].bn2.bias[4] = 0.5  # a border of zeros would show
    assert not prune_channels(model, IMAGE).removed


@torch.no_grad()
def test_depthwise_concatenations_gates_and_smooth_activations() -> None:
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.expand, self.depth = nn.Conv2d(3, 6, 1), nn.Conv2d(6, 6, 3, padding=1, groups=6)
            self.side, self.gate = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(10, 10, 1)
            self.last, self.up, self.down = nn.Linear(10, 7), nn.Linear(7, 16), nn.Linear(16, 7)

        def forward(self, x: Tensor) -> Tensor:
            wide = torch.cat([functional.hardtanh(self.depth(self.expand(x)), 0.0, 6.0), self.side(x).relu()], 1)
            wide = wide * torch.sigmoid(self.gate(wide.mean((2, 3), keepdim=True)))
            x = self.last(wide.mean((2, 3)))
            return x + self.down(functional.gelu(self.up(x)))

    torch.manual_seed(2)
    model = Mixed().eval()
    model.depth.weight[1] = 0.0
    model.depth.bias[1] = -1.0  # clipped to zero: the gate does not matter
    model.side.weight[2], model.side.bias[2] = 0.0, 0.0
    model.up.weight[3], model.up.bias[3] = model.up.weight[8], model.up.bias[8]
    model.up.weight[4], model.up.bias[4] = 2 * model.up.weight[9], 2 * model.up.bias[9]  # not the same for a GELU
    model.down.weight[:, 15] = 0.0
    found = prune_channels(model, IMAGE)
    assert kinds(found) == {"constant": 4, "duplicate": 1, "silent": 1}  # each of two with the gate that it meets
    assert found.module.depth.groups == 5
    assert found.module.up.out_features == 14
    same(model, found, 3, 12, 12)


@torch.no_grad()
def test_constants_are_folded_into_biases_that_were_not_there() -> None:
    torch.manual_seed(3)
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 3, 3, bias=False), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(48, 2)
    )
    model[0].weight[2], model[0].bias[2] = 0.0, 0.7
    found = prune_channels(model, IMAGE)
    assert kinds(found) == {"constant": 1}
    assert found.module[2].bias is not None
    same(model, found, 3, 12, 12)
    padded = nn.Sequential(*model[:3], nn.AvgPool2d(2, padding=1), nn.Flatten(), nn.Linear(75, 2))
    padded[2].weight[1] = 0.0
    padded[2].bias = nn.Parameter(torch.tensor([0.1, 0.2, 0.3]))
    assert [(gone.layer, gone.kind) for gone in prune_channels(padded, IMAGE).removed] == [("0", "constant")]


@torch.no_grad()
def test_what_is_not_understood_is_left_alone() -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two, self.grouped = nn.Linear(6, 6), nn.Linear(6, 6), nn.Conv1d(6, 4, 1, groups=2)

        def forward(self, x: Tensor) -> Tensor:
            x = torch.softmax(self.one(x), -1)  # mixes channels
            x = self.two(self.two(x).relu()).relu()  # one layer twice
            return self.grouped(x[:, :, None])

    torch.manual_seed(4)
    model = Odd().eval()
    for part in (model.one, model.two):
        part.weight[1:3], part.bias[1:3] = 0.0, 0.0
    assert not prune_channels(model, [(2, 6)]).removed


@torch.no_grad()
def test_the_inner_width_of_a_transformers_block() -> None:
    torch.manual_seed(6)
    model = nn.TransformerEncoderLayer(8, 2, 12, activation="gelu", batch_first=True).eval()
    model.linear1.weight[2], model.linear1.bias[2] = model.linear1.weight[5], model.linear1.bias[5]
    model.linear2.weight[:, 7] = 0.0
    found = prune_channels(model, [(2, 5, 8)])
    assert kinds(found) == {"duplicate": 1, "silent": 1}
    assert found.module.linear2.in_features == 10
    same(model, found, 5, 8)


@torch.no_grad()
def test_whole_layers_keep_one_channel() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    model[0].weight.zero_()
    found = prune_channels(model, [(2, 3)])
    assert found.module[0].out_features == 1
    same(model, found, 3)


def test_masks_are_made_permanent_and_hooks_refused() -> None:
    torch.manual_seed(5)
    model = Residual().eval()
    nn.utils.prune.ln_structured(model.blocks[0].conv2, "weight", amount=3, n=2, dim=1)
    found = prune_channels(model, IMAGE)
    assert kinds(found) == {"silent": 3}
    assert "blocks.0.conv2: the mask of its weight was made permanent" in found.notes
    same(model, found, 3, 12, 12)
    model.head.register_forward_hook(lambda module, inputs, output: output + 1)
    with pytest.raises(Unsupported, match="forward hooks"):
        prune_channels(model, IMAGE)


@torch.no_grad()
def test_sizes_in_the_modules_own_code_and_bad_weights_are_refused() -> None:
    class Fixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Linear(3, 4), nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            hidden = self.one(x).relu()
            return self.two(hidden) * (4 / hidden.shape[1])

    model = Fixed()
    model.one.weight[1] = 0.0
    with pytest.raises(Unsupported, match="something else than its graph"):
        prune_channels(model, [(2, 3)])
    model.one.weight[0, 0] = float("nan")
    with pytest.raises(InvalidNetwork, match="not finite"):
        prune_channels(model, [(2, 3)])


MODULE = """
import torch
from torch import nn


def small():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(54, 3)
    )
    with torch.no_grad():
        model[1].weight[:2] = 0.0
    return model
"""


def test_the_command_line(lawful: Any, tmp_path: Path) -> None:
    from safetensors.torch import load_file

    (tmp_path / "pruned_modules.py").write_text(MODULE)
    out = tmp_path / "small.safetensors"
    options = ("prune", "pruned_modules:small", "--input", "1,8,8")
    got = lawful(*options, "--out", out, "--json", cwd=tmp_path).json
    assert (got["channels_before"], got["channels_after"]) == (6, 4)
    assert got["parameters_after"] < got["parameters_before"]
    assert got["removed"][0] == {"layer": "0", "channel": 0, "kind": "constant"}
    assert load_file(out)["0.weight"].shape == (4, 1, 3, 3)
    text = lawful(*options, cwd=tmp_path).stdout
    assert "2 of 6 hidden channels removed" in text
    assert "--input" in lawful("prune", "pruned_modules:small", code=2, cwd=tmp_path).stderr
    assert "--data" in lawful(*options, "--tolerance", "0.1", code=2, cwd=tmp_path).stderr
    assert ".safetensors" in lawful(*options, "--out", tmp_path / "a.json", code=2, cwd=tmp_path).stderr
