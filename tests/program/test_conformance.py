"""A slice of the samples that PyTorch and ONNX test themselves with; `python -m benchmarks.operators` runs them all."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

# one or two of each family
ATEN = {"add", "clamp", "nn.functional.gelu", "cumsum", "index_put", "scatter_add", "var", "nn.functional.avg_pool2d",
        "nn.functional.layer_norm", "einsum", "nn.functional.conv_transpose2d", "roll", "topk"}  # fmt: skip
ONNX = {"Add", "AveragePool", "BatchNormalization", "BitwiseNot", "Clip", "Conv", "ConvTranspose", "CumSum",
        "DepthToSpace", "Einsum", "GRU",
        "Gather",
        "GatherND", "Gemm", "LSTM", "LayerNormalization", "MaxPool", "Mod", "OneHot", "Pad", "ReduceL2", "Resize",
        "STFT", "ScatterND", "Slice", "Softmax", "Split", "TopK", "Where"}  # fmt: skip


@pytest.fixture(scope="module")
def operators() -> ModuleType:
    path = Path(__file__).parents[2] / "benchmarks" / "operators.py"
    spec = importlib.util.spec_from_file_location("operator_conformance", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_samples_of_pytorch(operators: ModuleType) -> None:
    totals, names, wrong = operators.summary(operators.aten_cases(ATEN, samples=2))
    assert wrong == []
    assert {name.partition(".")[0] if name not in ATEN else name for name in names} - {"var", "einsum"} <= ATEN | {"nn"}
    assert totals["agrees"] >= 20


def test_nodes_of_onnx(operators: ModuleType) -> None:
    totals, names, wrong = operators.summary(operators.onnx_cases(ONNX))
    assert wrong == []
    assert set(names) == ONNX
    assert totals["agrees"] >= 250
