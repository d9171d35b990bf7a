"""Operators of ONNX Runtime and quantised ones, held against ONNX Runtime itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime import InferenceSession, SessionOptions

from lawful.program.domains.evaluate import evaluate
from lawful.program.frontends.onnx import read_onnx
from lawful.program.frontends.onnx_quantised import lower_quantised

RNG = np.random.default_rng(0)


def real(*shape: int, scale: float = 1.0) -> Any:
    return (scale * RNG.normal(size=shape)).astype(np.float32)


def model(nodes: Sequence[Any], tensors: dict[str, Any], inputs: dict[str, Any], opset: int = 21) -> Any:
    """A model of these nodes, whose last one makes the output."""
    ends = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in inputs.items()
    ]
    last = [helper.make_empty_tensor_value_info(nodes[-1].output[0])]
    held = [numpy_helper.from_array(array, name) for name, array in tensors.items()]
    graph = helper.make_graph(list(nodes), "g", ends, last, held)
    domains = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=domains, ir_version=10)


def held_against_the_runtime(made: Any, inputs: dict[str, Any], tolerance: float = 2e-5, step: float = 0.0) -> Any:
    """The program, if its output is the runtime's; but for one in fifty entries, which may be a step apart."""
    options = SessionOptions()
    options.log_severity_level = 3
    (wanted,) = InferenceSession(made.SerializeToString(), options).run(None, inputs)
    copy = type(made)()
    copy.CopyFrom(made)
    program = read_onnx(lower_quantised(copy, numpy_helper.to_array), opaque=False)
    ours = evaluate(program, *(inputs[node["name"]] for node in program.inputs))
    ours = np.asarray(ours[0] if isinstance(ours, (list, tuple)) else ours)
    assert ours.shape == wanted.shape
    apart, most = np.abs(ours - wanted), tolerance * max(np.abs(wanted).max(), 1.0)
    assert apart.max() <= most + step
    assert (apart > most).mean() <= 0.02
    return program


def contributed(kind: str, names: Sequence[str], **attributes: Any) -> Any:
    return helper.make_node(kind, list(names), ["y"], domain="com.microsoft", **attributes)


X = real(2, 5, 8)
BLOCKS: dict[str, tuple[Any, dict[str, Any], dict[str, Any]]] = {
    "Gelu": (contributed("Gelu", ["x"]), {}, {"x": X}),
    "BiasGelu": (contributed("BiasGelu", ["x", "b"]), {"b": real(8)}, {"x": X}),
    "FastGelu": (contributed("FastGelu", ["x", "b"]), {"b": real(8)}, {"x": X}),
    "QuickGelu": (contributed("QuickGelu", ["x"], alpha=1.5), {}, {"x": X}),
    "FusedMatMul": (contributed("FusedMatMul", ["x", "w"], transB=1, alpha=0.5), {"w": real(3, 8)}, {"x": X}),
    "FusedGemm": (
        contributed("FusedGemm", ["x", "w", "b"], transB=1, activation="Relu"),
        {"w": real(3, 8), "b": real(3)},
        {"x": X[0]},
    ),
    "FusedConv": (
        contributed("FusedConv", ["x", "w", "b"], activation="Relu", pads=[1, 1, 1, 1]),
        {"w": real(4, 3, 3, 3), "b": real(4)},
        {"x": real(1, 3, 6, 6)},
    ),
    "SkipLayerNormalization": (
        contributed("SkipLayerNormalization", ["x", "s", "g", "b", "c"], epsilon=1e-5),
        {"g": real(8), "b": real(8), "c": real(8)},
        {"x": X, "s": real(2, 5, 8)},
    ),
    "SkipSimplifiedLayerNormalization": (
        contributed("SkipSimplifiedLayerNormalization", ["x", "s", "g"], epsilon=1e-5),
        {"g": real(8)},
        {"x": X, "s": real(2, 5, 8)},
    ),
    "SimplifiedLayerNormalization": (
        helper.make_node("SimplifiedLayerNormalization", ["x", "g"], ["y"], epsilon=1e-5),
        {"g": real(8)},
        {"x": X},
    ),
    "Attention": (
        contributed("Attention", ["x", "w", "b", "m"], num_heads=2),
        {"w": real(8, 24), "b": real(24)},
        {"x": X, "m": np.array([[1, 1, 1, 1, 0], [1, 1, 0, 0, 0]], np.int32)},
    ),
    "Attention, causal": (
        contributed("Attention", ["x", "w", "b"], num_heads=2, unidirectional=1),
        {"w": real(8, 24), "b": real(24)},
        {"x": X},
    ),
    "MultiHeadAttention": (
        contributed("MultiHeadAttention", ["x", "k", "v", "b"], num_heads=4),
        {"b": real(24)},
        {"x": X, "k": real(2, 7, 8), "v": real(2, 7, 8)},
    ),
    "RotaryEmbedding": (
        contributed("RotaryEmbedding", ["x", "p", "c", "s"]),
        {"c": real(9, 2), "s": real(9, 2), "p": np.array([[0, 1, 2, 3, 4], [2, 3, 4, 5, 6]])},
        {"x": X},
    ),
    "RotaryEmbedding, interleaved from an offset": (
        contributed("RotaryEmbedding", ["x", "p", "c", "s"], interleaved=1),
        {"c": real(9, 4), "s": real(9, 4), "p": np.array([3])},
        {"x": real(2, 2, 5, 8)},
    ),
    "EmbedLayerNormalization": (
        contributed("EmbedLayerNormalization", ["i", "k", "w", "p", "t", "g", "b"], epsilon=1e-5),
        {"w": real(11, 8), "p": real(6, 8), "t": real(2, 8), "g": real(8), "b": real(8)},
        {"i": np.array([[1, 2, 9], [0, 3, 4]], np.int32), "k": np.array([[0, 0, 1], [0, 1, 1]], np.int32)},
    ),
}


@pytest.mark.parametrize("name", BLOCKS)
def test_contributed_operators_are_what_the_runtime_computes(name: str) -> None:
    node, tensors, inputs = BLOCKS[name]
    if name in ("EmbedLayerNormalization",):
        node.output.extend(["count"])
    held_against_the_runtime(model([node], tensors, inputs), inputs)


def integers(*shape: int, kind: type = np.int8) -> Any:
    ends = np.iinfo(kind)
    return RNG.integers(ends.min, ends.max + 1, shape).astype(kind)


SCALE, ZERO = np.array(0.04, np.float32), np.array(3, np.int8)
ENDS = {"s": SCALE, "z": ZERO, "t": np.array(0.3, np.float32), "u": np.array(-7, np.int8)}


def ended(kind: str, names: Sequence[str], domain: str = "", **attributes: Any) -> list[Any]:
    """Rounded, through a quantised operator, and real again."""
    return [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node(kind, list(names), ["r"], domain=domain, **attributes),
        helper.make_node("DequantizeLinear", ["r", "t", "u"], ["y"]),
    ]


COLUMNS = {"w": integers(8, 3), "ws": np.array([0.02, 0.01, 0.03], np.float32), "wz": np.zeros(3, np.int8)}
KERNEL = {"w": integers(4, 3, 3, 3), "ws": np.full(4, 0.02, np.float32), "wz": np.zeros(4, np.int8)}
PICTURE, ROWS = real(1, 3, 6, 6), real(5, 8)
BITS = {
    "w": RNG.integers(0, 256, (3, 2, 8)).astype(np.uint8),
    "ws": real(6),
    "zp": np.array([[0x35], [0x97], [0x1F]], np.uint8),
}
QUANTISED: dict[str, tuple[list[Any], dict[str, Any], Any]] = {
    "QuantizeLinear": (
        [
            helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
            helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"]),
        ],
        ENDS,
        20 * ROWS,
    ),
    "QLinearConv": (
        ended("QLinearConv", ["q", "s", "z", "w", "ws", "wz", "t", "u", "b"], pads=[1, 1, 1, 1]),
        {**ENDS, **KERNEL, "b": RNG.integers(-900, 900, 4).astype(np.int32)},
        PICTURE,
    ),
    "QLinearMatMul": (ended("QLinearMatMul", ["q", "s", "z", "w", "ws", "wz", "t", "u"]), {**ENDS, **COLUMNS}, ROWS),
    "QLinearAdd": (
        ended("QLinearAdd", ["q", "s", "z", "w", "ws", "wz", "t", "u"], "com.microsoft"),
        {**ENDS, "w": integers(5, 8), "ws": SCALE, "wz": ZERO},
        ROWS,
    ),
    "QLinearSigmoid": (ended("QLinearSigmoid", ["q", "s", "z", "t", "u"], "com.microsoft"), ENDS, ROWS),
    "QLinearGlobalAveragePool": (
        ended("QLinearGlobalAveragePool", ["q", "s", "z", "t", "u"], "com.microsoft"),
        ENDS,
        PICTURE,
    ),
    "QLinearConcat": (
        ended("QLinearConcat", ["t", "u", "q", "s", "z", "w", "s", "z"], "com.microsoft", axis=1),
        {**ENDS, "w": integers(5, 2)},
        ROWS,
    ),
    "QGemm": (
        ended("QGemm", ["q", "s", "z", "w", "ws", "wz", "b", "t", "u"], "com.microsoft"),
        {**ENDS, **COLUMNS, "b": RNG.integers(-900, 900, 3).astype(np.int32)},
        ROWS,
    ),
    "QGemm of a turned matrix": (
        ended("QGemm", ["q", "s", "z", "v", "ws", "wz", "", "t", "u"], "com.microsoft", transB=1),
        {**ENDS, **COLUMNS, "v": integers(3, 8)},
        ROWS,
    ),
    "MatMulInteger": (
        [
            helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "qs", "qz"]),
            helper.make_node("MatMulInteger", ["q", "w", "qz", "wz"], ["i"]),
            helper.make_node("Cast", ["i"], ["f"], to=TensorProto.FLOAT),
            helper.make_node("Mul", ["f", "qs"], ["y"]),
        ],
        {"w": integers(8, 3), "wz": np.array(5, np.int8)},
        ROWS,
    ),
    "ConvInteger": (
        [
            helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "qs", "qz"]),
            helper.make_node("ConvInteger", ["q", "w", "qz", "wz"], ["i"], strides=[2, 2]),
            helper.make_node("Cast", ["i"], ["f"], to=TensorProto.FLOAT),
            helper.make_node("Mul", ["f", "qs"], ["y"]),
        ],
        {"w": integers(4, 3, 3, 3, kind=np.uint8), "wz": np.array(120, np.uint8)},
        PICTURE,
    ),
    "DynamicQuantizeMatMul": (
        [contributed("DynamicQuantizeMatMul", ["x", "w", "ws", "wz", "b"])],
        {**COLUMNS, "b": real(3)},
        ROWS,
    ),
    "MatMulNBits": (
        [contributed("MatMulNBits", ["x", "w", "ws"], K=32, N=3, bits=4, block_size=16)],
        BITS,
        real(5, 32),
    ),
    "MatMulNBits with zero points": (
        [contributed("MatMulNBits", ["x", "w", "ws", "zp"], K=32, N=3, bits=4, block_size=16)],
        BITS,
        real(5, 32),
    ),
    "DynamicQuantizeLSTM": (
        [contributed("DynamicQuantizeLSTM", ["x", "w", "r", *[""] * 5, "ws", "wz", "rs", "rz"], hidden_size=4)],
        {
            "w": integers(1, 8, 16),
            "r": integers(1, 4, 16),
            **{name: np.array([0.01], np.float32) for name in ("ws", "rs")},
            **{name: np.zeros(1, np.int8) for name in ("wz", "rz")},
        },
        real(3, 1, 8),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", QUANTISED)
def test_quantised_operators_are_what_the_runtime_computes(name: str) -> None:
    """To the last step of a rounding where a sum lies between two of them; a recurrence rounds once more inside."""
    nodes, tensors, x = QUANTISED[name]
    used = {each for node in nodes for each in node.input}
    made = model(nodes, {key: value for key, value in tensors.items() if key in used}, {"x": x})
    step = float(ENDS["t"]) if nodes[-1].input[1:2] == ["t"] else 0.0
    held_against_the_runtime(made, {"x": x}, 0.05 if "LSTM" in name else 2e-4, step)


def test_stored_integers_are_weights() -> None:
    nodes, tensors, x = QUANTISED["QLinearConv"]
    program = held_against_the_runtime(model(nodes, tensors, {"x": x}), {"x": x}, step=0.3)
    assert sorted(node.shape for node in program.parameters.values()) == [(4,), (4, 3, 3, 3)]


def test_lengths_of_a_recurrence_may_be_data() -> None:
    x, lengths = real(6, 3, 4), np.array([6, 2, 4], np.int32)
    for direction, ways in (("forward", 1), ("reverse", 1), ("bidirectional", 2)):
        node = helper.make_node("LSTM", ["x", "w", "r", "", "n"], ["y"], hidden_size=5, direction=direction)
        tensors = {"w": real(ways, 20, 4), "r": real(ways, 20, 5)}
        held_against_the_runtime(model([node], tensors, {"x": x, "n": lengths}), {"x": x, "n": lengths})


def branch(name: str, kind: str, constant: float) -> Any:
    tensor = numpy_helper.from_array(np.array(constant, np.float32), f"{name}.c")
    node = helper.make_node(kind, ["x", f"{name}.c"], [name])
    return helper.make_graph([node], name, [], [helper.make_empty_tensor_value_info(name)], [tensor])


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_condition_that_is_data_chooses_between_both_branches(sign: float) -> None:
    x = (sign * np.abs(real(3, 4))).astype(np.float32)
    nodes = [
        helper.make_node("ReduceSum", ["x"], ["s"], keepdims=0),
        helper.make_node("Greater", ["s", "o"], ["c"]),
        helper.make_node("If", ["c"], ["y"], then_branch=branch("a", "Mul", 2.0), else_branch=branch("b", "Sub", 1.0)),
    ]
    held_against_the_runtime(model(nodes, {"o": np.array(0.0, np.float32)}, {"x": x}), {"x": x})


def test_loops_and_scans_are_written_out() -> None:
    x = real(5, 4)
    value = helper.make_tensor_value_info
    body = helper.make_graph(
        [
            helper.make_node("MatMul", ["h", "w"], ["m"]),
            helper.make_node("Add", ["m", "e"], ["s"]),
            helper.make_node("Tanh", ["s"], ["n"]),
            helper.make_node("Identity", ["n"], ["out"]),
        ],
        "body",
        [value("h", 1, [4]), value("e", 1, [4])],
        [value("n", 1, [4]), value("out", 1, [4])],
    )
    scan = helper.make_node("Scan", ["h0", "x"], ["last", "y"], body=body, num_scan_inputs=1)
    scan.output[:] = ["y", "all"]
    tensors = {"h0": np.zeros(4, np.float32), "w": real(4, 4)}
    program = held_against_the_runtime(model([scan], tensors, {"x": x}), {"x": x})
    assert [node.shape for node in program.parameters.values()] == [(4, 4)]
    turn = helper.make_graph(
        [
            helper.make_node("Gather", ["x", "t"], ["e"]),
            helper.make_node("MatMul", ["h", "w"], ["m"]),
            helper.make_node("Add", ["m", "e"], ["n"]),
            helper.make_node("Identity", ["go"], ["on"]),
        ],
        "turn",
        [value("t", 7, []), value("go", 9, []), value("h", 1, [4])],
        [value("on", 9, []), value("n", 1, [4])],
    )
    loop = helper.make_node("Loop", ["k", "true", "h0"], ["y"], body=turn)
    more = {**tensors, "k": np.array(5), "true": np.array(True)}
    held_against_the_runtime(model([loop], more, {"x": x}), {"x": x})
