"""ONNX files with integers for weights: read as the numbers that they stand for; roundings are said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from onnxruntime import InferenceSession

import lawful as package
from lawful import Mlp


def quantised(kind: type, opset: int, by_channel: bool) -> Any:
    """4-5-2 relu bias whose weights are all integers, with scales and zero points."""
    rng = np.random.default_rng(opset)
    sizes = (5,) if by_channel else ()
    low = 0 if kind is np.uint8 else -128
    tensors = {
        "w": rng.integers(low, low + 256, (5, 4)).astype(kind),
        "scales": (rng.random(sizes) * 0.01).astype(np.float32),
        "zeros": rng.integers(0, 100, sizes).astype(kind),
        "b": rng.integers(-5000, 5000, 5).astype(np.int32),
        "v": rng.integers(low, low + 256, (2, 5)).astype(kind),
        "small": np.array(1e-4, dtype=np.float32),
    }
    axis = {"axis": 0} if by_channel else {}
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "scales", "zeros"], ["first"], **axis),
        helper.make_node("DequantizeLinear", ["b", "small"], ["bias"]),
        helper.make_node("DequantizeLinear", ["v", "small"], ["second"]),
        helper.make_node("Gemm", ["x", "first", "bias"], ["z"], transB=1),
        helper.make_node("Relu", ["z"], ["h"]),
        helper.make_node("Gemm", ["h", "second"], ["y"], transB=1),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", size]) for name, size in (("x", 4), ("y", 2))]
    held = [numpy_helper.from_array(array, name) for name, array in tensors.items()]
    graph = helper.make_graph(nodes, "quantised", ends[:1], ends[1:], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


@pytest.mark.parametrize("kind", [np.int8, np.uint8])
@pytest.mark.parametrize("opset", [13, 19])
@pytest.mark.parametrize("by_channel", [False, True])
def test_integers_are_the_numbers_that_they_stand_for(kind: type, opset: int, by_channel: bool) -> None:
    model = quantised(kind, opset, by_channel)
    network = package.open(model)
    assert isinstance(network, Mlp)
    assert network.reading is not None
    assert not network.reading.entangled
    x = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
    (y,) = InferenceSession(model.SerializeToString()).run(None, {"x": x})
    assert np.allclose(network.evaluate(x), y, rtol=1e-4, atol=1e-5)
    held = {each.name: numpy_helper.to_array(each) for each in model.graph.initializer}
    scales, zeros = (held[name].reshape(-1, 1) if by_channel else held[name] for name in ("scales", "zeros"))
    expected = (held["w"].astype(np.float32) - zeros.astype(np.float32)) * scales
    assert np.array_equal(np.asarray(network.weights[0]), expected.astype(np.float64))


def test_what_is_written_computes_the_same(lawful: Any, tmp_path: Path) -> None:
    onnx.save(quantised(np.int8, 13, True), tmp_path / "net.onnx")
    lawful("prune", tmp_path / "net.onnx", "--out", tmp_path / "small.onnx")
    assert lawful("same", tmp_path / "net.onnx", tmp_path / "small.onnx", "--json").json["verdict"] == "equal"


def test_rounded_activations_are_computed_and_said(lawful: Any, tmp_path: Path) -> None:
    model = quantised(np.int8, 13, False)
    model.graph.node.insert(0, helper.make_node("QuantizeLinear", ["x", "scales", "zeros"], ["q"]))
    model.graph.node.insert(1, helper.make_node("DequantizeLinear", ["q", "scales", "zeros"], ["rounded"]))
    model.graph.node[5].input[0] = "rounded"
    onnx.save(model, tmp_path / "net.onnx")
    network = package.open(tmp_path / "net.onnx")
    x = np.random.default_rng(0).normal(scale=0.2, size=(6, 4)).astype(np.float32)
    (y,) = InferenceSession(model.SerializeToString()).run(None, {"x": x})
    assert np.allclose(network.module(torch.from_numpy(x)).detach(), y, rtol=1e-4, atol=1e-5)
    said = lawful("show", tmp_path / "net.onnx", "--json").json
    assert "rounded between layers" in str(said["reading"])


def test_a_factor_of_a_quantised_product_is_one_of_its_bias() -> None:
    """ONNX Runtime counts the bias of QGemm in alpha times the two scales."""
    rng = np.random.default_rng(0)
    x, matrix = rng.integers(0, 255, (3, 4)).astype(np.uint8), rng.integers(-127, 127, (4, 5)).astype(np.int8)
    bias = rng.integers(-3000, 3000, 5).astype(np.int32)
    stored = {"s": np.float32(0.02), "z": np.uint8(100), "B": matrix, "t": np.float32(0.03), "o": np.int8(0), "C": bias}
    ends = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, 4]),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, [3, 5]),
    ]
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["a"]),
        helper.make_node("QGemm", list("aszBtoC"), ["y"], domain="com.microsoft", alpha=2.0),
    ]
    tensors = [numpy_helper.from_array(array, name) for name, array in stored.items()]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(
        helper.make_graph(nodes, "g", ends[:1], ends[1:], tensors), opset_imports=opsets, ir_version=8
    )
    real = (x.astype(np.float32) - 100) * np.float32(0.02)
    session = InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    ours = package.open(model).evaluate(real)
    assert np.allclose(ours, session.run(None, {"x": real})[0], atol=1e-4)


def test_zero_points_of_the_first_factor_belong_to_its_rows() -> None:
    """By the text of MatMulInteger: M of them for a matrix of M rows."""
    rng = np.random.default_rng(0)
    first, second = rng.integers(0, 9, (4, 4)).astype(np.uint8), rng.integers(0, 9, (4, 2)).astype(np.uint8)
    zeros = np.arange(4, dtype=np.uint8)
    nodes = [
        helper.make_node("MatMulInteger", ["A", "B", "z"], ["i"]),
        helper.make_node("Cast", ["i"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("MatMul", ["x", "f"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, size]) for name, size in (("x", 4), ("y", 2))]
    tensors = [numpy_helper.from_array(array, name) for name, array in (("A", first), ("B", second), ("z", zeros))]
    model = helper.make_model(
        helper.make_graph(nodes, "g", ends[:1], ends[1:], tensors),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )
    x = rng.normal(size=(1, 4))
    wanted = x @ ((first.astype(float) - zeros[:, None]) @ second.astype(float))
    assert np.allclose(package.open(model).evaluate(x), wanted)
