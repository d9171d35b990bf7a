"""Files as tools write them: open sizes as -1, weights in nodes, shifts of shape (1, C, 1, 1)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import lawful
from lawful.errors import LawfulError


def write(path: Path, *, own_bias: bool) -> Path:
    """Conv (its bias inside, or added as (1, 4, 1, 1)), Relu, global mean, Gemm; the second channel is silent."""
    rng = np.random.default_rng(0)
    kernel, shift = rng.normal(size=(4, 3, 3, 3)), rng.normal(size=(1, 4, 1, 1))
    kernel[1], shift[0, 1] = 0.0, -1.0
    if own_bias:
        shift = shift.reshape(4)
    arrays = {"kernel": kernel, "shift": shift, "last": rng.normal(size=(2, 4))}
    held = [
        helper.make_node("Constant", [], [name], value=numpy_helper.from_array(array.astype(np.float32), name))
        for name, array in arrays.items()
    ]
    nodes = [
        helper.make_node("Conv", ["x", "kernel", *["shift"] * own_bias], ["c"], kernel_shape=[3, 3]),
        helper.make_node("Identity", ["c"], ["d"]) if own_bias else helper.make_node("Add", ["c", "shift"], ["d"]),
        helper.make_node("Relu", ["d"], ["e"]),
        helper.make_node("GlobalAveragePool", ["e"], ["f"]),
        helper.make_node("Flatten", ["f"], ["g"]),
        helper.make_node("Gemm", ["g", "last"], ["y"], transB=1),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [-1, 3, -1, -1])
    for size in (x.type.tensor_type.shape.dim[0], *x.type.tensor_type.shape.dim[2:]):
        size.dim_value = -1
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, 2])
    model = helper.make_model(
        helper.make_graph([*held, *nodes], "g", [x], [y]), opset_imports=[helper.make_opsetid("", 17)]
    )
    model.ir_version = 10
    onnx.save(model, path)
    return path


@pytest.mark.parametrize("input", [None, "3,7,9"])
def test_a_silent_channel_goes(tmp_path: Path, input: str | None) -> None:
    found = lawful.prune(write(tmp_path / "net.onnx", own_bias=True), input=input)
    assert (found.channels_before, found.channels_after) == (4, 3)
    assert found.parameters_before == 4 * 27 + 4 + 8
    assert found.compared < 1e-6


def test_a_shift_that_is_no_bias_of_a_layer_is_no_error(tmp_path: Path) -> None:
    found = lawful.prune(write(tmp_path / "net.onnx", own_bias=False))
    assert found.parameters_before == 4 * 27 + 4 + 8
    assert found.compared < 1e-6


def test_sizes_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    with pytest.raises(LawfulError, match="3 sizes beside the batch, and 1 were given"):
        lawful.prune(write(tmp_path / "net.onnx", own_bias=True), input="7")
