"""Files whose weights lie beside them, as PyTorch's newer exporter writes them, are pruned as others are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch
from command_line import in_process

import lawful


def test_weights_beside_the_file_are_pruned(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = torch.nn.Sequential(
        torch.nn.Conv2d(2, 4, 3), torch.nn.ReLU(), torch.nn.Conv2d(4, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(),
        torch.nn.Linear(16, 3),
    )  # fmt: skip
    with torch.no_grad():
        module[0].weight[1].zero_()
        module[0].bias[1] = -1.0  # a channel that never fires
    torch.onnx.export(module, (torch.zeros(1, 2, 6, 6),), tmp_path / "inside.onnx", dynamo=False)
    model = onnx.load(tmp_path / "inside.onnx")
    onnx.save(model, tmp_path / "beside.onnx", save_as_external_data=True, location="beside.data", size_threshold=0)
    found = {name: lawful.prune(tmp_path / f"{name}.onnx") for name in ("inside", "beside")}
    assert found["inside"].parameters_after == found["beside"].parameters_after < found["beside"].parameters_before
    assert in_process("prune", "beside.onnx", "--out", "small.onnx", cwd=tmp_path).returncode == 0
    x = np.random.default_rng(0).normal(size=(1, 2, 6, 6)).astype(np.float32)
    old, new = (
        onnxruntime.InferenceSession(str(tmp_path / f"{name}.onnx"), providers=["CPUExecutionProvider"])
        for name in ("beside", "small")
    )
    outputs = [session.run(None, {session.get_inputs()[0].name: x})[0] for session in (old, new)]
    assert np.allclose(*outputs, atol=1e-5)
