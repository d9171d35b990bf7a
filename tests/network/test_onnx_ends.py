"""Ends of ONNX files and modules that are cut off: left out of a comparison only where they are one."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from network.test_onnx_modules import FLOAT, numbers
from onnx import helper, numpy_helper
from torch import nn

import lawful as package
from lawful.errors import Unsupported
from lawful.program.builder import Builder
from lawful.program.passes.tail import split
from lawful.sources.modules.module_network import ModuleNetwork


def ended(constant: float, *kinds: str) -> Any:
    """A linear map, then operators, the last of which reads a constant."""
    names = ["z", *(f"t{place}" for place in range(len(kinds) - 1)), "y"]
    nodes = [helper.make_node("Gemm", ["x", "w"], ["z"], transB=1)]
    for place, kind in enumerate(kinds):
        operands = ["k", names[place]] if kind in ("Mul", "Sub") else [names[place]]
        nodes.append(helper.make_node(kind, operands, [names[place + 1]]))
    held = [numpy_helper.from_array(numbers(2, 3), "w"), numpy_helper.from_array(np.full(1, constant, np.float32), "k")]
    ends = [helper.make_tensor_value_info(name, FLOAT, ["batch", size]) for name, size in (("x", 3), ("y", 2))]
    return helper.make_model(
        helper.make_graph(nodes, "net", ends[:1], ends[1:], held),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )


def test_ends_that_differ_are_never_left_out_of_a_comparison() -> None:
    """Twice a sigmoid is not three times a sigmoid: what follows a tail belongs to the function."""
    assert package.same(ended(1.0, "Sigmoid"), ended(2.0, "Sigmoid")).verdict == "equal"
    assert package.same(ended(1.0, "Sub", "Sigmoid"), ended(1.0, "Sub", "Sigmoid")).verdict == "equal"
    assert package.same(ended(1.0, "Sigmoid", "Sub"), ended(1.0, "Sigmoid", "Sub")).verdict == "equal"
    with pytest.raises(Unsupported, match=r"sigmoid \(\w{32}\) at its end.*only equal ends can be left out"):
        package.same(ended(1.0, "Sigmoid", "Sub"), ended(1.0, "Sigmoid"))
    assert package.same(ended(1.0, "Sigmoid", "Sub"), ended(2.0, "Sigmoid", "Sub")).verdict == "different"
    with pytest.raises(Unsupported, match="softmax at its end, the second log_softmax"):
        package.same(ended(1.0, "Softmax"), ended(1.0, "LogSoftmax"))
    assert package.same(ended(2.0, "Sigmoid", "Mul"), ended(3.0, "Sigmoid", "Mul")).verdict == "different"


def test_ends_whose_hashes_begin_alike_are_two() -> None:
    """Two thresholds whose ends have 32 bits of their hashes in common."""

    def end(threshold: float) -> str:
        b = Builder()
        value = b.input("value", (1, 3))
        program = b.finish([b.elementwise("gt", b.function("sigmoid", value), threshold, kind="b")])
        parts = split(program, lambda node, _: node.op not in ("sigmoid", "gt"))
        assert isinstance(parts, tuple)
        assert parts[1] is not None
        return parts[1].words

    one, two = end(0.011412620544433594), end(0.01427459716796875)
    assert one[:21] == two[:21] == "sigmoid, gt (c4d806e6"
    assert one != two


def test_ends_of_modules_that_differ() -> None:
    torch.manual_seed(0)
    layer, plain = nn.Linear(3, 2), package.open
    assert package.same(nn.Sequential(layer, nn.Softmax(1)), nn.Sequential(layer, nn.Softmax(-1))).verdict == "equal"
    assert (
        package.same(nn.Sequential(layer, nn.Sigmoid(), nn.Flatten()), nn.Sequential(layer, nn.Sigmoid())).verdict
        == "equal"
    )
    with pytest.raises(Unsupported, match="sigmoid at its end, the second sigmoid, softmax"):
        package.same(nn.Sequential(layer, nn.Sigmoid()), nn.Sequential(layer, nn.Sigmoid(), nn.Softmax(1)))
    zeros = plain(nn.Sequential(layer, nn.LogSoftmax(1), nn.ReLU()))
    assert isinstance(zeros, ModuleNetwork)  # no end that can be left out: it is zero everywhere
    rows = nn.Sequential(nn.Linear(3, 4), nn.Unflatten(1, (2, 2)))
    with pytest.raises(Unsupported, match=r"softmax\(1, of 2×2\) at its end, the second softmax\(of 2×2\) at its end"):
        package.same(nn.Sequential(rows, nn.Softmax(1)), nn.Sequential(rows, nn.Softmax(2)))
    six = nn.Linear(3, 6)
    wide, tall = (nn.Sequential(six, nn.Unflatten(1, shape), nn.Softmax(-1)) for shape in ((2, 3), (3, 2)))
    with pytest.raises(Unsupported, match=r"softmax\(of 2×3\) at its end, the second softmax\(of 3×2\) at its end"):
        package.same(wide, tall)


def grouped(shape: list[int], kind: str, opset: int = 17, **settings: Any) -> Any:
    """A linear map to six numbers in a table of some shape, and an operator on it."""
    nodes = [
        helper.make_node("Gemm", ["x", "w"], ["z"], transB=1),
        helper.make_node("Reshape", ["z", "shape"], ["t"]),
        helper.make_node(kind, ["t"], ["y"], **settings),
    ]
    held = [numpy_helper.from_array(numbers(6, 3), "w"), numpy_helper.from_array(np.array([-1, *shape]), "shape")]
    ends = [helper.make_tensor_value_info(name, FLOAT, sizes) for name, sizes in (("x", ["batch", 3]), ("y", None))]
    return helper.make_model(
        helper.make_graph(nodes, "net", ends[:1], ends[1:], held),
        opset_imports=[helper.make_opsetid("", opset)],
        ir_version=8,
    )


@pytest.mark.parametrize("kind", ["Softmax", "ArgMax"])
def test_ends_over_tables_of_other_shapes_differ(kind: str) -> None:
    """Softmax over rows of three is not softmax over rows of two, nor is an older version's over the whole table."""
    assert package.same(grouped([2, 3], kind), grouped([2, 3], kind)).verdict == "equal"
    with pytest.raises(Unsupported, match="only equal ends can be left out"):
        package.same(grouped([2, 3], kind), grouped([3, 2], kind))
    if kind == "Softmax":
        with pytest.raises(Unsupported, match="only equal ends can be left out"):
            package.same(grouped([2, 3], kind, 11, axis=1), grouped([2, 3], kind, 13, axis=1))
        assert package.same(grouped([6], kind), grouped([6], kind, 11)).verdict == "equal"


def test_probabilities_of_a_smooth_classifier() -> None:
    """scikit-learn's default, a dictionary of probabilities beside a label, gives the probabilities."""
    neural = pytest.importorskip("sklearn.neural_network")
    tool = pytest.importorskip("skl2onnx")
    batch = np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32)
    model = neural.MLPClassifier((5,), activation="tanh", max_iter=5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(batch, np.array(["no", "yes"])[(batch[:, 0] > 0).astype(int)])
    found = package.open(tool.to_onnx(model, batch[:1]))
    assert isinstance(found, ModuleNetwork)
    assert np.allclose(found.evaluate(batch), model.predict_proba(batch), atol=1e-6)
    assert found.reading.ignored == (
        "output 'output_label' (labels)",
        "the names of classes in output 'output_probability' (ZipMap)",
    )
