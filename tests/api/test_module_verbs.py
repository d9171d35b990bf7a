"""Verbs in Python take modules that are no graphs of scalar weights, as the command line does."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import lawful as package
from lawful.api.audit import Audit
from lawful.errors import LawfulError
from lawful.pruning.channels import ChannelPruning
from lawful.pruning.neurons.prune import Pruning
from lawful.sources.summary import TensorSummary


@pytest.fixture(scope="module")
def images() -> nn.Module:
    """Two convolutions, the first with a channel that nobody reads."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Conv2d(4, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(48, 2))
    with torch.no_grad():
        module[2].weight[:, 1] = 0.0
    return module.eval()


@pytest.fixture(scope="module")
def gated() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(3, 6), nn.LayerNorm(6), nn.GELU(), nn.Linear(6, 2))


def test_channels_are_pruned(images: nn.Module) -> None:
    found = package.prune(images, input=(1, 8, 8))
    assert isinstance(found, ChannelPruning)
    assert (found.channels_before, found.channels_after) == (7, 6)
    batch = torch.randn(4, 1, 8, 8)
    assert torch.allclose(images(batch), found.module(batch), atol=1e-5)
    assert package.prune(images, input="1,8,8").channels_after == 6  # type: ignore[union-attr]
    with pytest.raises(LawfulError, match="tolerance"):
        package.prune(images, input=(1, 8, 8), tolerance=0.1)
    with pytest.raises(LawfulError, match="size"):
        package.prune(images)
    layers = package.prune(nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1)), tolerance=0.1)
    assert isinstance(layers, Pruning)


def test_an_input_that_the_first_layer_states_need_not_be_given(gated: nn.Module) -> None:
    found, told = package.prune(gated), package.prune(gated, input=(3,))
    assert isinstance(found, ChannelPruning)
    assert isinstance(told, ChannelPruning)
    assert (found.channels_before, found.removed) == (told.channels_before, told.removed)


def test_token_models_are_pruned() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Embedding(7, 4), nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3))
    with torch.no_grad():
        module[3].weight[:, 2] = 0.0
    found = package.prune(module, input="6:int")
    assert isinstance(found, ChannelPruning)
    assert (2, "silent") in [(gone.channel, gone.kind) for gone in found.removed]


def test_modules_are_audited_and_shown(images: nn.Module, gated: nn.Module, tmp_path: Path) -> None:
    found = package.audit(images, input=(1, 8, 8))
    assert isinstance(found, Audit)
    assert found.symmetries is not None
    assert len(found.symmetries.laws) == len(package.symmetries(images, (1, 8, 8)).laws)
    assert package.audit(gated).symmetries is not None
    assert isinstance(package.audit(nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))), Audit)
    shown = package.show(gated)
    assert isinstance(shown, TensorSummary)
    assert shown.parameters == sum(each.numel() for each in gated.parameters())
    assert "LayerNorm" in shown.reason
    assert "0.weight" in str(shown)
    torch.save({"q": torch.ones(3, 3), "k": torch.ones(3, 3), "v": torch.ones(3, 3)}, tmp_path / "loose.pt")
    loose = package.show(tmp_path / "loose.pt")
    assert isinstance(loose, TensorSummary)
    assert [each.name for each in loose.tensors] == ["q", "k", "v"]


def test_paths_hashes_and_standard_members_of_modules(images: nn.Module, gated: nn.Module) -> None:
    straight = package.path(images, images, input=(1, 8, 8))
    assert type(straight).__name__ in ("WeightPath", "Unsettled")  # entries outside balances may obey other laws
    assert len(package.fingerprint([images, images], input=(1, 8, 8)).groups) == 1
    assert package.canonical(gated, input=(3,)).to_dict()["verdict"] == "equal"
    assert package.regions("2-4-1 relu bias", "0:1,-1:1").complete


def test_an_example_of_one_sample_stands_for_its_size(tmp_path: Path) -> None:
    torch.manual_seed(2)
    module = nn.Sequential(nn.Conv1d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(6, 2)).eval()
    example, size = torch.zeros(1, 1, 5), (1, 5)
    for verb in (package.laws, package.identifiable, package.show):
        assert verb(module, input=example).to_dict() == verb(module, input=size).to_dict()
    assert package.same(module, module, input=example).verdict == "equal"
    assert package.distance(module, module, "-1,1", input=example, within=0.0).status == "proved"
    package.convert(module, tmp_path / "conv.onnx", input=example)
    unrolled = package.open(module, input_shape=size)
    assert package.same(unrolled, tmp_path / "conv.onnx").verdict == "equal"
    ids = nn.Sequential(nn.Embedding(5, 3), nn.Linear(3, 2))
    assert package.laws(ids, input=torch.zeros(1, 4, dtype=torch.int64)).laws == package.laws(ids, input="4:int").laws
