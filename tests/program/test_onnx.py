"""ONNX files: the same programs as the modules that they come from; what is trained is decided by use."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from program.models import make, run

from lawful.errors import LawfulError
from lawful.program import Program, Refused
from lawful.program.domains.evaluate import evaluate
from lawful.program.domains.streamed import StreamedRun, evaluate_beside
from lawful.program.frontends.onnx import read_onnx
from lawful.program.frontends.torch_export import read_module


def exported(module: torch.nn.Module, x: torch.Tensor) -> Any:
    """By PyTorch's older exporter, which needs no other package and is quick."""
    held = io.BytesIO()
    torch.onnx.export(module, (x,), held, dynamo=False, do_constant_folding=False, input_names=["input"])
    return onnx.load_from_string(held.getvalue())


@pytest.mark.parametrize("name", ["mlp", "tanh", "linear", "lenet", "attention"])
def test_a_module_and_its_file_are_one_program(name: str) -> None:
    module, x = make(name)
    module, x = module.float(), x.float()
    whole, file = read_module(module, [x]), read_onnx(exported(module, x))
    assert file.opaque == []
    ours = evaluate(file, x.numpy())[0]
    np.testing.assert_allclose(ours, run(module, x).numpy(), rtol=1e-4, atol=1e-5)
    assert whole.text(False) == file.text(False)
    assert whole.digest(False) == file.digest(False)
    assert [node.shape for node in whole.parameters.values()] == [node.shape for node in file.parameters.values()]


def _model(nodes: list, weights: dict[str, np.ndarray], size: tuple[int, ...], opset: int = 17) -> Any:
    tensors = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, size)
    graph = helper.make_graph(nodes, "g", [x], [helper.make_empty_tensor_value_info("y")], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


def _read(nodes: list, weights: dict[str, np.ndarray], size: tuple[int, ...] = (2, 3), opset: int = 17) -> Program:
    return read_onnx(_model(nodes, weights, size, opset))


def test_what_is_trained_is_decided_by_use() -> None:
    """A scale of ones is trained although all its entries are equal; a mask with infinities is not."""
    ones, mask = np.ones(3, np.float32), np.array([0, -np.inf, 0], np.float32)
    norm = helper.make_node("LayerNormalization", ["x", "scale", "shift"], ["n"])
    masked = helper.make_node("Add", ["n", "mask"], ["m"])
    halved = helper.make_node("Mul", ["m", "half"], ["y"])
    weights = {"scale": ones, "shift": 0 * ones, "mask": mask, "half": np.float32([0.5])}
    program = _read([norm, masked, halved], weights)
    assert set(program.parameters) == {"scale", "shift"}
    # of width 1, and moved before it is used
    weights = {"w": np.ones((1, 3), np.float32), "c": np.zeros(1, np.float32)}
    turned = [helper.make_node("Transpose", ["w"], ["t"]), helper.make_node("MatMul", ["x", "t"], ["m"]),
              helper.make_node("Add", ["m", "c"], ["y"])]  # fmt: skip
    assert set(_read(turned, weights).parameters) == {"w", "c"}
    fixed = {"s": np.ones(3, np.float32), "m": np.ones(3, np.float32), "v": np.ones(3, np.float32)}
    batch = helper.make_node("BatchNormalization", ["x", "s", "m", "m", "v"], ["y"])
    program = _read([batch], fixed)
    assert set(program.parameters) == {"s", "m"}
    assert set(program.buffers) == {"v"}


def test_constants_of_nodes_are_weights_too() -> None:
    """Some tools keep all weights in `Constant` nodes."""
    weight = numpy_helper.from_array(np.ones((3, 2), np.float32))
    nodes = [helper.make_node("Constant", [], ["w"], value=weight), helper.make_node("MatMul", ["x", "w"], ["y"])]
    assert set(_read(nodes, {}).parameters) == {"w"}


def test_an_unknown_attribute_is_opaque_and_named() -> None:
    weights = {"w": np.ones((1, 12, 3), np.float32), "r": np.ones((1, 12, 3), np.float32)}
    node = helper.make_node("LSTM", ["x", "w", "r"], ["y"], hidden_size=3, clip=0.5)
    program = _read([node], weights, (2, 1, 3))
    assert program.opaque == ["LSTM"]
    assert any("LSTM" in note for note in program.notes)


def test_default_attributes_are_known() -> None:
    node = helper.make_node("LSTM", ["x", "w", "r"], ["y"], hidden_size=3, input_forget=0)
    weights = {"w": np.ones((1, 12, 3), np.float32), "r": np.ones((1, 12, 3), np.float32)}
    assert _read([node], weights, (2, 1, 3)).opaque == []


def test_opaque_calls_still_run() -> None:
    node = helper.make_node("Det", ["x"], ["y"])
    program = _read([node], {}, (2, 2))
    x = np.array([[1.0, 2.0], [3.0, 5.0]])
    assert program.opaque == ["Det"]
    np.testing.assert_allclose(evaluate(program, x)[0], -1.0, rtol=1e-6)


def test_known_conditions_are_taken() -> None:
    def branch(name: str, op: str) -> Any:
        return helper.make_graph(
            [helper.make_node(op, ["x"], [name])], name, [], [helper.make_empty_tensor_value_info(name)]
        )

    size = helper.make_node("Size", ["x"], ["n"])
    many = helper.make_node("Greater", ["n", "five"], ["c"])
    choose = helper.make_node("If", ["c"], ["y"], then_branch=branch("a", "Relu"), else_branch=branch("b", "Tanh"))
    weights = {"five": np.array(5)}
    assert [node.op for node in _read([size, many, choose], weights, (2, 3)).nodes] == ["input", "relu"]
    assert [node.op for node in _read([size, many, choose], weights, (1, 3)).nodes] == ["input", "tanh"]
    data = [
        helper.make_node("ReduceMax", ["x"], ["n"], keepdims=0),
        helper.make_node("Greater", ["n", "five"], ["c"]),
        choose,
    ]
    ops = [node.op for node in _read(data, {"five": np.array(5, np.float32)}).nodes]
    assert {"relu", "tanh", "where"} < set(ops)  # both, and a choice
    data[2] = helper.make_node("If", ["c"], ["y"], then_branch=branch("a", "Relu"), else_branch=branch("b", "Size"))
    with pytest.raises(Refused, match="condition that is data, between results of different sizes"):
        _read(data, {"five": np.array(5, np.float32)})


def test_open_sizes_must_be_given() -> None:
    model = _model([helper.make_node("Relu", ["x"], ["y"])], {}, ("n", 3))
    with pytest.raises(LawfulError, match="size of the input x"):
        read_onnx(model)
    assert read_onnx(model, {"x": (4, 3)}).outputs[0].shape == (4, 3)


def test_bits_are_those_of_the_file_s_types() -> None:
    """The opposite of 8 bits of zeros is 255, and -1 only where numbers have a sign."""
    x = helper.make_tensor_value_info("x", TensorProto.UINT8, (2,))
    nodes = [helper.make_node("BitwiseNot", ["x"], ["y"])]
    graph = helper.make_graph(nodes, "g", [x], [helper.make_empty_tensor_value_info("y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    program = read_onnx(model)
    assert evaluate(program, np.array([0, 7], np.uint8))[0].tolist() == [255, 248]
    assert evaluate(read_onnx(model, values={"x": np.array([0, 7], np.uint8)}))[0].tolist() == [255, 248]


def test_an_output_that_is_not_read_is_refused() -> None:
    """A second result that the table does not give is never left out in silence."""
    node = helper.make_node("BatchNormalization", ["x", "s", "s", "s", "s"], ["n", "y"])
    with pytest.raises(Refused, match="output 'y' is not computed"):
        _read([node], {"s": np.ones(3, np.float32)}, opset=9)


def test_a_sigmoid_has_all_its_digits_far_out() -> None:
    """ONNX Runtime's is 0 below -18 and off by 1e-7 before: a model that ends in one seems to differ by all of it."""
    runtime = pytest.importorskip("onnxruntime")
    model = _model([helper.make_node("Sigmoid", ["x"], ["y"])], {}, (1, 4))
    model.ir_version, model.graph.output[0].type.tensor_type.elem_type = 8, TensorProto.FLOAT
    x = np.array([[-30.0, -15.0, -12.5, 2.0]])
    ours = evaluate(read_onnx(model), x)[0]
    np.testing.assert_allclose(ours, 1 / (1 + np.exp(-x)), rtol=1e-14)
    theirs = runtime.InferenceSession(model.SerializeToString()).run(None, {"x": x.astype(np.float32)})[0]
    np.testing.assert_allclose(theirs, ours, rtol=0, atol=2e-7)


def test_opaque_calls_run_in_every_way_of_evaluating() -> None:
    """ONNX's reference computes arrays; those who ask with tensors get tensors."""
    program = _read([helper.make_node("Det", ["x"], ["y"])], {}, (2, 2))
    x = torch.tensor([[1.0, 2.0], [3.0, 5.0]])
    whole = evaluate(program, x)[0]
    (streamed,) = evaluate_beside(program, [StreamedRun({}, [x])])
    assert isinstance(whole, torch.Tensor)
    assert torch.allclose(whole, torch.tensor(-1.0).double())
    assert torch.allclose(streamed[0], whole)


def test_a_window_longer_than_its_axis_is_refused_at_this_size() -> None:
    """Else the size of a result would be negative, and what reads it would be blamed."""
    weight = onnx.numpy_helper.from_array(np.ones((2, 1, 5), dtype=np.float32), "w")
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Conv", ["x", "w"], ["h"]), onnx.helper.make_node("Transpose", ["h"], ["y"])],
        "short",
        [onnx.helper.make_tensor_value_info("x", 1, [1, 1, "n"])],
        [onnx.helper.make_tensor_value_info("y", 1, None)],
        [weight],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)])
    with pytest.raises(Refused, match=r"\(Conv\): a window is longer than what it slides over at this size"):
        read_onnx(model, {"x": (1, 1, 3)})
    assert read_onnx(model, {"x": (1, 1, 8)}).outputs[0].shape == (4, 2, 1)
