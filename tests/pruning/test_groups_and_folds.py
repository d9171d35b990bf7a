"""Groups of convolutions leave whole or keep equally many; normalisations and unseen biases go where that is asked."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from forging import signed
from pruned import kinds, lively, same
from torch import Tensor, nn
from torch.nn import functional

from lawful import verify
from lawful.errors import CertificateError, NotACertificate
from lawful.pruning.channels import ChannelPruning, prune_channels
from lawful.pruning.channels.certificate import certificate
from lawful.pruning.channels.onnx_file import prune_onnx

IMAGE = [(2, 3, 8, 8)]


def grouped(seed: int = 0) -> Any:
    """A bottleneck with four groups, each of two channels in and three out."""
    torch.manual_seed(seed)
    return lively(
        nn.Sequential(
            nn.Conv2d(3, 8, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU(),
            nn.Conv2d(8, 12, 3, padding=1, groups=4, bias=False), nn.BatchNorm2d(12), nn.ReLU(), nn.Conv2d(12, 2, 1),
        )
    )  # fmt: skip


def verified(found: ChannelPruning, original: nn.Module) -> None:
    assert verify(certificate(found), original, found.module).given == (0, 1)


@torch.no_grad()
def test_a_group_that_nobody_hears_leaves_with_what_it_reads() -> None:
    model = grouped()
    model[6].weight[:, 3:6] = 0.0
    found = prune_channels(model, IMAGE)
    assert kinds(found) == {"silent": 5}
    assert (found.module[3].groups, found.module[3].weight.shape, found.module[0].out_channels) == (3, (9, 2, 3, 3), 6)
    same(model, found, 3, 8, 8)
    verified(found, model)


@torch.no_grad()
def test_dead_inputs_take_their_group_along() -> None:
    model = grouped()
    model[1].weight[4:6], model[1].bias[4:6] = 0.0, -1.0
    found = prune_channels(model, IMAGE)
    assert kinds(found) == {"constant": 5}
    assert found.module[3].groups == 3
    same(model, found, 3, 8, 8)
    verified(found, model)


@torch.no_grad()
def test_groups_that_stay_keep_equally_many() -> None:
    model = grouped()
    model[1].weight[[0, 3, 4]], model[1].bias[[0, 3, 4]] = 0.0, -1.0  # one input of three groups, none of the fourth
    model[6].weight[:, [0, 4, 5, 8, 9]] = 0.0  # outputs of all groups, two of the second
    found = prune_channels(model, IMAGE)
    assert kinds(found) == {"silent": 4}
    assert found.module[3].weight.shape == (8, 2, 3, 3)
    same(model, found, 3, 8, 8)
    verified(found, model)


@torch.no_grad()
def test_twins_of_other_groups_cannot_take_over() -> None:
    model = grouped()
    for one, two in ((0, 1), (2, 5)):  # of one group, and of two
        model[0].weight[one] = model[0].weight[two]
        for tensor in (model[1].weight, model[1].bias, model[1].running_mean, model[1].running_var):
            tensor[one] = tensor[two]
    assert not prune_channels(model, IMAGE).removed
    for one, two in ((3, 2), (5, 4), (7, 6)):  # now every group can spare one
        model[0].weight[one] = model[0].weight[two]
        for tensor in (model[1].weight, model[1].bias, model[1].running_mean, model[1].running_var):
            tensor[one] = tensor[two]
    found = prune_channels(model, IMAGE)
    assert kinds(found) == {"duplicate": 4}
    assert found.module[3].weight.shape == (12, 1, 3, 3)
    same(model, found, 3, 8, 8)
    verified(found, model)


@torch.no_grad()
def test_a_depthwise_layer_with_two_channels_for_each() -> None:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.Conv2d(4, 8, 3, groups=4), nn.ReLU(), nn.Conv2d(8, 2, 1))
    model[3].weight[:, 2:4] = 0.0
    found = prune_channels(model, IMAGE)
    assert (found.module[1].groups, found.module[1].out_channels) == (3, 6)
    same(model, found, 3, 8, 8)
    verified(found, model)


def forged(found: ChannelPruning) -> list[tuple[str, Callable[[dict[str, Any]], object]]]:
    """Changes after which a certificate of a grouped layer is false."""
    at = next(place for place, step in enumerate(certificate(found)["program"]) if "groups" in step)
    return [
        ("groups", lambda proof: proof["program"][at].update(groups=2)),
        ("groups", lambda proof: proof["program"][at].pop("groups")),
        ("gone", lambda proof: proof["gone"].pop()),
        ("gone", lambda proof: proof["gone"].clear()),
    ]


@torch.no_grad()
def test_forged_groups() -> None:
    model = grouped()
    model[6].weight[:, 3:6] = 0.0
    found = prune_channels(model, IMAGE)
    for _, edit in forged(found):
        proof = certificate(found)
        edit(proof)
        with pytest.raises((CertificateError, NotACertificate)):
            verify(signed(proof))


# Folding


class Attending(nn.Module):
    """One head of attention with layers of its own for queries, keys and values."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.last = (nn.Linear(4, 4) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        parts = (layer(x)[:, None] for layer in (self.query, self.key, self.value))
        return self.last(functional.scaled_dot_product_attention(*parts)[:, 0])


def folded(model: nn.Module, size: tuple[int, ...] = (2, 3, 8, 8)) -> ChannelPruning:
    found = prune_channels(model, [size], fold=True)
    same(model, found, *size[1:])
    verified(found, model)
    return found


def test_normalisations_go_into_layers_of_all_kinds() -> None:
    model = grouped()
    found = folded(model)
    assert [type(part).__name__ for part in found.module].count("Identity") == 2
    assert set(found.module.state_dict()) == {"0.weight", "0.bias", "3.weight", "3.bias", "6.weight", "6.bias"}
    assert found.parameters_after == found.parameters_before - 8 - 12  # a bias each for gains and shifts
    assert any("nn.Identity" in note for note in found.notes)
    torch.manual_seed(3)
    deep = nn.Sequential(
        nn.Conv2d(3, 4, 3, groups=1), nn.Conv2d(4, 4, 3, groups=4, bias=False), nn.BatchNorm2d(4, affine=False),
        nn.Flatten(), nn.Linear(64, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 2),
    )  # fmt: skip
    assert folded(lively(deep)).module[1].bias is not None


def test_a_layer_that_others_read_keeps_its_normalisation() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.norm, self.last = nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.Conv2d(4, 2, 1)

        def forward(self, x: Tensor) -> Tensor:
            x = self.one(x)
            return self.last(x + self.norm(x))

    torch.manual_seed(4)
    model = lively(Twice())
    assert "norm.weight" in folded(model).module.state_dict()


def test_a_bias_of_keys_goes_and_others_stay() -> None:
    torch.manual_seed(5)
    model = Attending().eval()
    found = folded(model, (2, 5, 4))
    assert found.module.key.bias is None
    assert found.module.query.bias is not None
    assert found.module.value.bias is not None
    assert found.parameters_after == found.parameters_before - 4


@pytest.mark.parametrize("which", ["weight", "bias", "norm", "dropped", "lost"])
def test_forged_folds(which: str) -> None:
    torch.manual_seed(6)
    model = nn.Sequential(nn.Conv1d(2, 3, 1), nn.BatchNorm1d(3), nn.ReLU(), nn.Conv1d(3, 2, 1)) if which != "dropped" \
        else Attending()  # fmt: skip
    size = (2, 5, 4) if which == "dropped" else (2, 2, 5)
    found = prune_channels(lively(model), [size], fold=True)
    with torch.no_grad():
        if which in ("weight", "bias"):
            getattr(found.module[0], which)[1] *= 1 + 2e-6
    proof = certificate(found)
    if which == "norm":
        proof["folded"] = []
    elif which == "dropped":
        name = "value.bias"
        proof["dropped"] = [step for step, each in enumerate(proof["program"]) if each["tensors"].get("bias") == name]
    elif which == "lost":
        proof["lost"] = ["1.weight"]
    with pytest.raises((CertificateError, NotACertificate)):
        verify(signed(proof))


def test_onnx_files_with_groups_and_folds() -> None:
    model = grouped()
    with torch.no_grad():
        model[6].weight[:, 3:6] = 0.0
    buffer = io.BytesIO()
    torch.onnx.export(
        model, (torch.zeros(1, 3, 8, 8),), buffer, dynamo=False, do_constant_folding=False,
        training=torch.onnx.TrainingMode.PRESERVE,
    )  # fmt: skip
    given = onnx.load_from_string(buffer.getvalue())
    batch = np.random.default_rng(0).normal(size=(1, 3, 8, 8)).astype(np.float32)
    wanted = _outputs(given, batch)
    plain, fewer = prune_onnx(given), prune_onnx(given, fold=True)
    assert plain.parameters_after > fewer.parameters_after
    assert {"BatchNormalization"} == {each.op_type for each in plain.model.graph.node} - {
        each.op_type for each in fewer.model.graph.node
    }
    for found in (plain, fewer):
        onnx.checker.check_model(found.model)
        assert np.allclose(_outputs(found.model, batch), wanted, atol=1e-5)
        assert len(found.model.SerializeToString()) < len(given.SerializeToString())


def _outputs(model: onnx.ModelProto, batch: Any) -> Any:
    session = onnxruntime.InferenceSession(model.SerializeToString())
    return session.run(None, {session.get_inputs()[0].name: batch})[0]


MODULE = """
import torch
from torch import nn


def small():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 2, 1))
"""


def test_the_command_line(lawful: Any, tmp_path: Path) -> None:
    (tmp_path / "folded_modules.py").write_text(MODULE)
    options = ("prune", "folded_modules:small", "--input", "1,8,8", "--verify")
    assert "--fold" in lawful(*options, cwd=tmp_path).stdout
    got = lawful(*options, "--fold", "--out", tmp_path / "a.safetensors", "--json", cwd=tmp_path).json
    assert got["parameters_before"] - got["parameters_after"] == 8
    assert got["verified"] is True
    assert "channel by channel" in lawful("prune", "2-3-1 relu", "--fold", code=2).stderr


@pytest.mark.parametrize("stored", [False, True])
def test_biases_before_instance_normalisations(stored: bool) -> None:
    """A mean takes a bias away; stored statistics do not, nor does a second reader."""
    torch.manual_seed(0)
    norm = nn.InstanceNorm2d(4, affine=True, track_running_stats=stored)
    model = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), norm, nn.ReLU(), nn.Conv2d(4, 2, 1)).eval()
    found = folded(model)
    assert (found.module[0].bias is None) is not stored
    assert found.module[3].bias is not None
    if not stored:
        assert "before an instance normalisation" in " ".join(found.notes)
        proof = certificate(found)
        step = next(each for each in proof["program"] if each["function"] == "instance_norm")
        step["function"] = "layer_norm"
        with pytest.raises(CertificateError):
            verify(proof)
