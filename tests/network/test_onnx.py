"""ONNX graphs from elsewhere compute the same function, against ONNX's own reference implementation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from lawful.errors import LawfulError, Unsupported
from lawful.network import Dag, Mlp
from lawful.sources.files import read
from lawful.sources.onnx.reader import load

RNG = np.random.default_rng(0)


def model(
    nodes: list[Any], tensors: dict[str, np.ndarray], shape: list[Any], kind: int = TensorProto.DOUBLE, opset: int = 18
) -> onnx.ModelProto:
    """A model whose input is x and whose output is y."""
    graph = helper.make_graph(
        nodes,
        "test",
        [helper.make_tensor_value_info("x", kind, shape)],
        [helper.make_tensor_value_info("y", kind, None)],
        [numpy_helper.from_array(array, name) for name, array in tensors.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def node(operator: str, inputs: str, output: str, **options: Any) -> onnx.NodeProto:
    return helper.make_node(operator, inputs.split(",") if inputs else [], [output], name=f"n_{output}", **options)


def normal(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape)


def positive(*shape: int) -> np.ndarray:
    return RNG.uniform(0.5, 2.0, size=shape)


CASES: dict[str, tuple[onnx.ModelProto, tuple[int, ...]]] = {
    "gemm chain": (
        model(
            [
                node("Gemm", "x,a,b", "h", transB=1, alpha=0.5, beta=2.0),
                node("Relu", "h", "r"),
                node("Gemm", "r,c", "y"),
            ],
            {"a": normal(4, 3), "b": normal(4), "c": normal(4, 2)},
            ["N", 3],
        ),
        (3,),
    ),
    "matmul and add": (
        model(
            [
                node("MatMul", "x,a", "m"),
                node("Add", "b,m", "h"),
                node("LeakyRelu", "h", "r", alpha=0.25),
                node("MatMul", "r,c", "o"),
                node("Sub", "o,d", "y"),
            ],
            {"a": normal(3, 4), "b": normal(4), "c": normal(4, 2), "d": normal(1, 2)},
            ["N", 3],
        ),
        (3,),
    ),
    "residual": (
        model(
            [
                node("Gemm", "x,a", "h", transB=1),
                node("Relu", "h", "r"),
                node("Gemm", "r,b", "s", transB=1),
                node("Add", "s,x", "t"),
                node("Relu", "t", "u"),
                node("Sum", "u,r,t", "v"),
                node("Gemm", "v,c", "y"),
            ],
            {"a": normal(3, 3), "b": normal(3, 3), "c": normal(3, 2)},
            ["N", 3],
        ),
        (3,),
    ),
    "convolution": (
        model(
            [
                node("Conv", "x,k,b", "c", pads=[1, 0, 0, 1], strides=[2, 1], dilations=[1, 2], group=2),
                node("BatchNormalization", "c,s,o,m,v", "n", epsilon=0.01),
                node("Relu", "n", "r"),
                node("AveragePool", "r", "p", kernel_shape=[2, 2], strides=[1, 2], pads=[1, 0, 0, 1]),
                node("Flatten", "p", "f"),
                node("Gemm", "f,w", "y", transB=1),
            ],
            {
                "k": normal(4, 1, 3, 2),
                "b": normal(4),
                "s": normal(4),
                "o": normal(4),
                "m": normal(4),
                "v": positive(4),
                "w": normal(2, 36),
            },
            ["N", 2, 6, 7],
        ),
        (2, 6, 7),
    ),
    "same padding": (
        model(
            [
                node("Conv", "x,k", "c", auto_pad="SAME_UPPER", strides=[2, 2]),
                node("Relu", "c", "r"),
                node("Conv", "r,l", "d", auto_pad="SAME_LOWER"),
                node("GlobalAveragePool", "d", "y"),
            ],
            {"k": normal(3, 1, 2, 3), "l": normal(2, 3, 2, 2)},
            [1, 1, 5, 6],
        ),
        (1, 5, 6),
    ),
    "counted padding": (
        model(
            [
                node("AveragePool", "x", "p", kernel_shape=[3], strides=[2], pads=[1, 1], count_include_pad=1),
                node("PRelu", "p,s", "y"),
            ],
            {"s": normal(2, 1)},
            ["N", 2, 8],
        ),
        (2, 8),
    ),
    "shapes": (
        model(
            [
                node("Transpose", "x", "t", perm=[0, 2, 1]),
                node("Constant", "", "shape", value_ints=[0, -1]),
                node("Reshape", "t,shape", "f"),
                node("Dropout", "f,ratio,training", "d"),
                node("Identity", "d", "i"),
                node("Mul", "i,factor", "m"),
                node("Div", "m,two", "q"),
                node("Neg", "q", "g"),
                node("MatMul", "g,w", "y"),
            ],
            {
                "ratio": np.array(0.5, np.float32),
                "training": np.array(False),
                "factor": normal(6),
                "two": np.array([2.0]),
                "w": normal(6, 2),
            },
            ["N", 2, 3],
        ),
        (2, 3),
    ),
    "computed sizes": (  # x.view(x.size(0), -1), as PyTorch exports it
        model(
            [
                node("Shape", "x", "all"),
                node("Constant", "", "zero", value_int=0),
                node("Gather", "all,zero", "batch", axis=0),
                node("Unsqueeze", "batch,first", "one"),
                node("Concat", "one,rest", "shape", axis=0),
                node("Reshape", "x,shape", "f"),
                node("MatMul", "f,w", "y"),
            ],
            {"first": np.array([0]), "rest": np.array([-1]), "w": normal(6, 2)},
            ["N", 2, 3],
        ),
        (2, 3),
    ),
    "sizes in part, means and axes": (  # as PyTorch's dynamo exporter writes them
        model(
            [
                node("Shape", "x", "batch", start=0, end=1),
                node("Concat", "batch,rest", "shape", axis=0),
                node("Reshape", "x,shape", "f"),
                node("ReduceMean", "f,last", "m", keepdims=1),
                node("Squeeze", "m,last", "n"),
                node("Unsqueeze", "n,second", "o"),
                node("ReduceMean", "o,second", "p", keepdims=0),
                node("ReduceMean", "p,none", "q", keepdims=0, noop_with_empty_axes=1),
                node("MatMul", "q,w", "y"),
            ],
            {
                "rest": np.array([2, 6]), "last": np.array([-1]), "second": np.array([1]), "w": normal(2, 3),
                "none": np.zeros(0, dtype=np.int64),
            },
            ["N", 2, 2, 3],
        ),
        (2, 2, 3),
    ),
    "means and axes as attributes": (
        model(
            [
                node("ReduceMean", "x", "m", axes=[2, 3]),
                node("Squeeze", "m", "n", axes=[2, 3]),
                node("MatMul", "n,w", "y"),
            ],
            {"w": normal(2, 3)}, ["N", 2, 2, 3], opset=12,
        ),
        (2, 2, 3),
    ),
    "batched matmul": (
        model([node("MatMul", "x,a", "h"), node("Relu", "h", "y")], {"a": normal(3, 2)}, ["N", 4, 3]),
        (4, 3),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_graphs_become_the_same_function(name: str, tmp_path: Path) -> None:
    made, shape = CASES[name]
    onnx.save(made, tmp_path / "net.onnx")
    network = read(tmp_path / "net.onnx")
    for sample in RNG.normal(size=(8, 1, *shape)):  # one by one: some graphs fix the batch to 1
        (expected,) = ReferenceEvaluator(made).run(None, {"x": sample})
        found = network.evaluate(sample.reshape(1, -1))
        assert np.abs(found - expected.reshape(1, -1)).max() <= 1e-13 * max(1.0, np.abs(expected).max())


def test_chains_are_mlps_and_residuals_are_graphs(tmp_path: Path) -> None:
    for name, kind in (("gemm chain", Mlp), ("matmul and add", Mlp), ("residual", Dag)):
        onnx.save(CASES[name][0], tmp_path / "net.onnx")
        assert isinstance(read(tmp_path / "net.onnx"), kind)


@pytest.mark.parametrize("kind", [np.float16, np.float32])
def test_single_precision_weights_are_read_exactly(kind: type, tmp_path: Path) -> None:
    weight = normal(2, 3).astype(kind)
    made = model([node("MatMul", "x,a", "y")], {"a": weight.T}, ["N", 3], TensorProto.FLOAT)
    onnx.save(made, tmp_path / "net.onnx")
    network = read(tmp_path / "net.onnx")
    assert isinstance(network, Mlp)
    assert (network.weights[0] == weight).all()


def test_weights_in_a_file_beside_it_are_read(tmp_path: Path) -> None:
    made, shape = CASES["gemm chain"]
    twin = onnx.ModelProto()
    twin.CopyFrom(made)
    onnx.save(twin, tmp_path / "net.onnx", save_as_external_data=True, location="net.data", size_threshold=0)
    assert (tmp_path / "net.data").stat().st_size > 0
    batch = RNG.normal(size=(8, *shape))
    (expected,) = ReferenceEvaluator(made).run(None, {"x": batch})
    assert np.abs(read(tmp_path / "net.onnx").evaluate(batch) - expected).max() < 1e-14


def test_the_input_size_can_be_given(tmp_path: Path) -> None:
    made = model([node("Conv", "x,k", "y")], {"k": normal(1, 1, 2, 2)}, ["N", 1, "H", "W"])
    onnx.save(made, tmp_path / "net.onnx")
    with pytest.raises(Unsupported, match="--input"):
        read(tmp_path / "net.onnx")
    assert len(read(tmp_path / "net.onnx", input_shape=(1, 3, 4)).to_dag().outputs) == 6
    with pytest.raises(LawfulError, match="its input is 1×\\?×\\?, not 2×3×4"):
        read(tmp_path / "net.onnx", input_shape=(2, 3, 4))


REFUSED: dict[str, tuple[onnx.ModelProto, str]] = {
    "tanh": (model([node("Tanh", "x", "y")], {}, ["N", 3]), r"node 'n_y' \(Tanh\): is not supported; give"),
    "softmax inside": (
        model([node("Softmax", "x", "s"), node("MatMul", "s,a", "y")], {"a": normal(3, 2)}, ["N", 3]),
        r"\(Softmax\): is supported at the end of a network alone",
    ),
    "gate": (
        model([node("Sigmoid", "x", "s"), node("Mul", "x,s", "y")], {}, ["N", 3]),
        r"\(Sigmoid\): is supported at the end",
    ),
    "bomb": (
        model([node("ConstantOfShape", "s", "c"), node("Add", "x,c", "y")], {"s": np.array([10**5, 10**5])}, ["N", 3]),
        "claims shape \\(100000, 100000\\)",
    ),
    "size as a number": (
        model(
            [node("Shape", "x", "s"), node("Gather", "s,i", "n"), node("Mul", "x,n", "y")], {"i": np.array(0)}, ["N", 3]
        ),
        "computes with the size of the batch|type int64",
    ),
    "foreign": (
        model([helper.make_node("Relu", ["x"], ["y"], domain="my.own")], {}, ["N", 3]),
        r"node 'y' \(Relu\): is not supported",
    ),
    "cycle": (
        model([node("Add", "x,b", "a"), node("Relu", "a", "b"), node("Relu", "b", "y")], {}, ["N", 3]),
        r"reads 'b' before it is computed",
    ),
    "twice": (model([node("Relu", "x", "y"), node("Relu", "x", "y")], {}, ["N", 3]), r"computes 'y', which exists"),
    "product": (model([node("Mul", "x,x", "y")], {}, ["N", 3]), "multiplies two tensors"),
    "shape": (
        model([node("MatMul", "x,a", "y")], {"a": normal(4, 2)}, ["N", 3]),
        r"\(MatMul\): .*a contraction .*\(4, 2\)",
    ),
    "bias": (
        model([node("Gemm", "x,a,b", "y")], {"a": normal(3, 2), "b": normal(3)}, ["N", 3]),
        r"\(Gemm\) is used in an unsupported way \(shape mismatch",
    ),
    "nan": (
        model([node("MatMul", "x,a", "y")], {"a": np.array([[np.nan]])}, ["N", 1]),
        r"\(MatMul\): a\[0, 0\] is not finite",
    ),
    "training": (
        model([node("Dropout", "x,r,t", "y")], {"r": np.array(0.5), "t": np.array(True)}, ["N", 3]),
        "Dropout in training",
    ),
    "no output": (model([node("Relu", "x", "z")], {}, ["N", 3]), "does not come from its input"),
    "mixing the batch": (
        model([node("Reshape", "x,s", "y")], {"s": np.array([-1, 2])}, ["N", 3]),
        "does not keep the batch apart",
    ),
    "complex": (model([node("MatMul", "x,a", "y")], {"a": np.ones((3, 1), complex)}, ["N", 3]), "complex128"),
    "mean over the batch": (
        model([node("ReduceMean", "x", "y")], {}, ["N", 3]),
        "over axes \\[0, 1\\], which are the batch's too",
    ),
    "squeezed too far": (
        model([node("Squeeze", "x,a", "y")], {"a": np.array([1])}, ["N", 3]),
        r"a reshape of \[2, 3\] to \[2\]",
    ),
    "axis before the batch": (
        model([node("Unsqueeze", "x,a", "y")], {"a": np.array([0])}, ["N", 3]),
        "keep the batch apart",
    ),
    "vector": (model([node("Relu", "x", "y")], {}, ["N"]), "left open"),
    "odd options": (model([node("Conv", "x,k", "y", strides=[1])], {"k": normal(1, 1, 2, 2)}, ["N", 1, 3, 3]), "Conv"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_other_graphs_are_refused_in_one_line(name: str, tmp_path: Path) -> None:
    made, words = REFUSED[name]
    onnx.save(made, tmp_path / "net.onnx")
    with pytest.raises(LawfulError, match=words) as caught:
        read(tmp_path / "net.onnx")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("kind", "options"), [("LeakyRelu", {"alpha": 0.01}), ("HardSigmoid", {"alpha": 0.2})])
def test_settings_left_out_are_those_of_the_standard(kind: str, options: dict[str, float], tmp_path: Path) -> None:
    """ONNX's settings are in single precision, written down or not."""
    tensors, found = {"a": normal(3, 2), "b": normal(2, 1)}, []
    for number, given in enumerate(({}, options)):
        nodes = [node("MatMul", "x,a", "h"), node(kind, "h", "r", **given), node("MatMul", "r,b", "y")]
        onnx.save(model(nodes, tensors, ["N", 3]), tmp_path / f"{number}.onnx")
        found.append(read(tmp_path / f"{number}.onnx").to_dag())
    assert np.array_equal(found[0].slopes, found[1].slopes)
    assert np.array_equal(found[0].theta, found[1].theta)


def test_whole_numbers_are_not_computed_with(tmp_path: Path) -> None:
    """A quotient of integers is rounded, and their sums overflow: only the inputs are numbers like others."""
    tensors = {"three": np.array([3]), "a": normal(2, 2).astype(np.float32)}
    cast = [node("Cast", "q", "f", to=TensorProto.FLOAT), node("MatMul", "f,a", "y")]
    onnx.save(model([node("Div", "x,three", "q"), *cast], tensors, ["N", 2], TensorProto.INT64), tmp_path / "d.onnx")
    with pytest.raises(Unsupported, match="whole numbers"):
        load(tmp_path / "d.onnx")
    onnx.save(model([node("Identity", "x", "q"), *cast], tensors, ["N", 2], TensorProto.INT64), tmp_path / "i.onnx")
    told = load(tmp_path / "i.onnx").reading
    assert told is not None
    assert any("whole numbers" in said for said in told.assumed)
