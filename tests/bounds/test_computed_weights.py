"""Weights that are not in the file: what is read of batch normalisation and pooling, against the file in fractions."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from lawful import check, distance
from lawful.bounds.layers import exact_outputs, layers_of
from lawful.network.reading import COMPUTED
from lawful.sources.opening import open_graph

EPSILON = 1e-5
SIDE = 3  # of the image; kernels are 2×2


def _save(path: Path, nodes: list[onnx.NodeProto], tensors: dict[str, np.ndarray], outputs: int) -> Path:
    held = [numpy_helper.from_array(np.asarray(value, np.float32), name) for name, value in tensors.items()]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, SIDE, SIDE])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, outputs])
    graph = helper.make_graph(nodes, "g", [x], [y], held)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)]), path)
    return path


def _convolution(folder: Path, seed: int, kept: bool) -> Path:
    """A convolution of two channels and its batch normalisation, as a node or in the weights, as exporters write it."""
    rng = np.random.default_rng(seed)
    names = ("W", "b", "gain", "shift", "mean", "variance", "D", "e")
    shapes = ((2, 1, 2, 2), (2,), (2,), (2,), (2,), (2,), (2, 8), (2,))
    held = {name: rng.normal(size=shape).astype(np.float32) for name, shape in zip(names, shapes, strict=True)}
    held["variance"] = np.abs(held["variance"]) + np.float32(0.1)
    statistics = [held.pop(name) for name in names[2:6]]
    nodes = [helper.make_node("Conv", ["x", "W", "b"], ["c"])]
    if kept:
        held |= dict(zip(names[2:6], statistics, strict=True))
        nodes.append(helper.make_node("BatchNormalization", ["c", *names[2:6]], ["n"], epsilon=EPSILON))
    else:
        gain, shift, mean, variance = statistics
        scale = gain / np.sqrt(variance + np.float32(EPSILON))
        held["W"], held["b"] = held["W"] * scale[:, None, None, None], (held["b"] - mean) * scale + shift
    nodes += [
        helper.make_node("Relu", ["n" if kept else "c"], ["r"]),
        helper.make_node("Flatten", ["r"], ["f"]),
        helper.make_node("Gemm", ["f", "D", "e"], ["y"], transB=1),
    ]
    return _save(folder / f"{seed}{kept}.onnx", nodes, held, 2)


def _from_the_file(path: Path, x: list[Fraction]) -> list[Fraction]:
    """The outputs by the file's own numbers; a root to 60 digits."""
    held = {each.name: numpy_helper.to_array(each).astype(float).tolist() for each in onnx.load(path).graph.initializer}
    image = [x[SIDE * row : SIDE * row + SIDE] for row in range(SIDE)]
    hidden = []
    for channel, (weight, bias) in enumerate(zip(held["W"], held["b"], strict=True)):
        for row in range(2):
            for column in range(2):
                cells = [(i, j) for i in range(2) for j in range(2)]
                value = Fraction(bias) + sum(Fraction(weight[0][i][j]) * image[row + i][column + j] for i, j in cells)
                if "gain" in held:
                    gain, shift, mean, variance = (
                        Fraction(held[name][channel]) for name in ("gain", "shift", "mean", "variance")
                    )
                    spread = variance + Fraction(float(np.float32(EPSILON)))
                    with localcontext(prec=60):
                        root = Fraction((Decimal(spread.numerator) / Decimal(spread.denominator)).sqrt())
                    value = (value - mean) * gain / root + shift
                hidden.append(max(value, Fraction(0)))
    return [
        Fraction(bias) + sum(Fraction(w) * h for w, h in zip(row, hidden, strict=True))
        for row, bias in zip(held["D"], held["e"], strict=True)
    ]


@pytest.mark.parametrize("seed", range(6))
def test_numbers_of_the_file_are_read_exactly(tmp_path: Path, seed: int) -> None:
    x = [Fraction(float(value)) for value in np.random.default_rng(seed).normal(size=SIDE * SIDE)]
    fused, kept = _convolution(tmp_path, seed, kept=False), _convolution(tmp_path, seed, kept=True)
    assert list(exact_outputs(layers_of(open_graph(fused)), x)) == _from_the_file(fused, x)
    pairs = zip(exact_outputs(layers_of(open_graph(kept)), x), _from_the_file(kept, x), strict=True)
    assert max(abs(one - other) for one, other in pairs) < 1e-13  # a root is no double


def _pooling(folder: Path, kernel: int) -> Path:
    nodes = [
        helper.make_node("Conv", ["x", "W"], ["c"]),
        helper.make_node("AveragePool", ["c"], ["p"], kernel_shape=[kernel, kernel], strides=[kernel, kernel]),
        helper.make_node("Flatten", ["p"], ["y"]),
    ]
    return _save(folder / f"pool{kernel}.onnx", nodes, {"W": np.ones((1, 1, 1, 1))}, 1)


def test_answers_say_that_weights_were_rounded_in_reading(lawful: Callable[..., Any], tmp_path: Path) -> None:
    kept, fused = _convolution(tmp_path, 0, kept=True), _convolution(tmp_path, 0, kept=False)
    ninths, quarters = _pooling(tmp_path, 3), _pooling(tmp_path, 2)
    for path, rounded in ((kept, True), (fused, False), (ninths, True), (quarters, False)):
        assert (COMPUTED in distance(path, path, "-1,1").reading.assumed) == rounded, path
        question = check(path, monotone="+0", box="0,1", output=0)
        assert (COMPUTED in question.reading.assumed) == rounded, path
        file = tmp_path / "question.vnnlib"
        outputs = 2 if path in (kept, fused) else 1
        lines = [f"(declare-const X_{i} Real)(assert (>= X_{i} 0))(assert (<= X_{i} 1))" for i in range(SIDE * SIDE)]
        lines += [f"(declare-const Y_{i} Real)" for i in range(outputs)]
        file.write_text("\n".join([*lines, "(assert (>= Y_0 1000))"]))
        assert (COMPUTED in check(path, file).reading.assumed) == rounded, path
        printed = lawful("check", path, file, "--json", code=0).json
        assert (COMPUTED in printed["reading"]["assumed"]) == rounded, path


def test_a_network_that_ignores_its_input_is_answered(lawful: Callable[..., Any], tmp_path: Path) -> None:
    file = tmp_path / "question.vnnlib"
    lines = [f"(declare-const X_{i} Real)(assert (>= X_{i} 0))(assert (<= X_{i} 1))" for i in range(SIDE * SIDE)]
    held = {"c": np.array([[1.0, 2.0]])}
    path = _save(tmp_path / "constant.onnx", [helper.make_node("Add", ["c", "c"], ["y"])], held, 2)
    for bound, code in ((1.5, 1), (2.5, 0)):
        file.write_text(
            "\n".join([*lines, f"(declare-const Y_0 Real)(declare-const Y_1 Real)(assert (>= Y_0 {bound}))"])
        )
        lawful("check", path, file, "--certificate", tmp_path / "proof.json", code=code)
        lawful("verify", tmp_path / "proof.json", path, "--drop-useless", code=0)
    other = _save(tmp_path / "other.onnx", [helper.make_node("Identity", ["c"], ["y"])], held, 2)
    assert float(distance(path, other, "-1,1").lower) == 2
    assert check(path, monotone="+0,-1", box="-1,1").status == "holds"
    assert "does not come from its input" in lawful("laws", path, code=2).stderr
