"""ONNX files with convolutions become smaller ONNX files: same nodes, same answers in another runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper
from torch import Tensor, nn

from lawful.errors import Unsupported
from lawful.pruning.channels.onnx_file import prune_onnx

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


class Stage(nn.Module):
    """Convolutions, normalisation, a residual sum, depthwise layers, a flattening."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(1, 6, 3, padding=1), nn.BatchNorm2d(6)
        self.inner, self.back = nn.Conv2d(6, 5, 3, padding=1, bias=False), nn.Conv2d(5, 6, 1)
        self.depth, self.head = nn.Conv2d(6, 6, 3, groups=6), nn.Linear(54, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.norm(self.stem(x)))
        x = nn.functional.max_pool2d(x + self.back(torch.sigmoid(self.inner(x))), 2)
        return self.head(nn.functional.leaky_relu(self.depth(x), 0.1)[:, :, :3, :3].flatten(1))


@torch.no_grad()
def exported(path: Path, dynamo: bool) -> None:
    torch.manual_seed(0)
    model = Stage().eval()
    model.norm.running_mean.normal_()
    model.norm.weight[1], model.norm.bias[1] = 0.0, -0.5
    model.back.weight[1], model.back.bias[1] = 0.0, 0.0
    model.inner.weight[3] = model.inner.weight[2]
    model.inner.weight[4] = 0.0  # sigmoid(0) = 1/2, which the next layer's bias takes over
    torch.onnx.export(model, (torch.zeros(1, 1, 10, 10),), path, dynamo=dynamo)


def outputs(model: onnx.ModelProto, batch: Any) -> Any:
    session = onnxruntime.InferenceSession(model.SerializeToString())
    return session.run(None, {session.get_inputs()[0].name: batch})[0]


@pytest.mark.parametrize("dynamo", [False, True])
def test_exported_files(dynamo: bool, tmp_path: Path) -> None:
    exported(tmp_path / "a.onnx", dynamo)
    model = onnx.load(tmp_path / "a.onnx")
    found = prune_onnx(model)
    onnx.checker.check_model(found.model)
    assert {(gone.layer.split(".")[-1], gone.kind) for gone in found.removed} >= {("inner", "constant")}
    assert found.channels_before - found.channels_after >= 2
    assert [node.op_type for node in found.model.graph.node] == [node.op_type for node in model.graph.node]
    batch = np.random.default_rng(1).normal(size=(1, 1, 10, 10)).astype(np.float32)
    assert np.allclose(outputs(model, batch), outputs(found.model, batch), atol=1e-5)
    assert found.parameters_after < found.parameters_before


def test_the_command_line(lawful: Any, tmp_path: Path) -> None:
    exported(tmp_path / "a.onnx", False)
    small, proof = tmp_path / "small.onnx", tmp_path / "proof.json"
    got = lawful("prune", tmp_path / "a.onnx", "--out", small, "--certificate", proof, "--verify", "--json").json
    assert got["verified"] is True
    assert got["parameters_after"] < got["parameters_before"]
    assert small.stat().st_size < (tmp_path / "a.onnx").stat().st_size
    assert "hidden channels of weights" in lawful("verify", proof, tmp_path / "a.onnx", small).stdout
    assert f"not about {small}" in lawful("verify", proof, small, small, code=1).stdout
    assert ".onnx" in lawful("prune", tmp_path / "a.onnx", "--out", tmp_path / "a.npz", code=2).stderr
    assert "--data" in lawful("prune", tmp_path / "a.onnx", "--tolerance", "1", code=2).stderr


def test_weights_that_two_nodes_share_and_quantised_files() -> None:
    weight = np.random.default_rng(0).normal(size=(2, 2, 1, 1)).astype(np.float32)
    weight[1] = 0.0
    initial = [onnx.numpy_helper.from_array(weight, "w")]
    sizes = [1, 2, 3, 3]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, sizes) for name in ("x", "y")]
    nodes = [helper.make_node("Conv", ["x", "w"], ["h"]), helper.make_node("Conv", ["h", "w"], ["y"])]
    model = helper.make_model(helper.make_graph(nodes, "g", ends[:1], ends[1:], initial))
    assert prune_onnx(model).removed == ()
    nodes.insert(1, helper.make_node("QuantizeLinear", ["h", "s", "z"], ["q"]))
    quantised = helper.make_model(helper.make_graph(nodes, "g", ends[:1], ends[1:], initial))
    with pytest.raises(Unsupported, match="quantised"):
        prune_onnx(quantised)
