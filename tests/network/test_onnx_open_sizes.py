"""ONNX files that leave sizes open: usual ones are chosen and said, and outputs are those of ONNX Runtime there."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from lawful.errors import LawfulError  # noqa: E402
from lawful.sources.onnx.network import size_candidates  # noqa: E402
from lawful.sources.opening import open_module  # noqa: E402

RNG = np.random.default_rng(0)


def held(**arrays: np.ndarray) -> list:
    return [numpy_helper.from_array(np.asarray(each), name) for name, each in arrays.items()]


def save(path: Path, nodes: list, inputs: list, output: str, tensors: list) -> Path:
    out = helper.make_tensor_value_info(output, TensorProto.FLOAT, None)
    made = helper.make_graph(nodes, "g", inputs, [out], tensors)
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path.write_bytes(model.SerializeToString())
    return path


def value(name: str, kind: int, *shape: str | int) -> object:
    return helper.make_tensor_value_info(name, kind, list(shape))


def picture(path: Path) -> Path:
    """A convolution of stride 32: pictures of 8 by 8 are too small for it."""
    weight = RNG.normal(size=(4, 3, 32, 32)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["h"], strides=[32, 32]),
        helper.make_node("Tanh", ["h"], ["t"]),
        helper.make_node("GlobalAveragePool", ["t"], ["y"]),
    ]
    return save(path, nodes, [value("x", TensorProto.FLOAT, "N", 3, "H", "W")], "y", held(w=weight))


def voice(path: Path) -> Path:
    """A state with samples along its second axis, and a sampling rate that decides a branch, as in voice detectors."""
    taken = [helper.make_node("MatMul", ["x", "a"], ["z"])], [helper.make_node("MatMul", ["x", "b"], ["z"])]
    ends = [value("z", TensorProto.FLOAT, "n", 2)]
    branches = [helper.make_graph(each, name, [], ends) for each, name in zip(taken, ("fast", "slow"), strict=True)]
    nodes = [
        helper.make_node("Equal", ["sr", "rate"], ["c"]),
        helper.make_node("If", ["c"], ["f"], then_branch=branches[0], else_branch=branches[1]),
        helper.make_node("ReduceSum", ["state", "first"], ["s"], keepdims=0),
        helper.make_node("Add", ["f", "s"], ["g"]),
        helper.make_node("Tanh", ["g"], ["y"]),
    ]
    inputs = [
        value("x", TensorProto.FLOAT, "n", 64),
        value("state", TensorProto.FLOAT, 2, "n", 2),
        value("sr", TensorProto.INT64),
    ]
    matrices = {name: RNG.normal(size=(64, 2)).astype(np.float32) for name in "ab"}
    tensors = held(**matrices, rate=np.int64(16_000), first=np.array([0], dtype=np.int64))
    return save(path, nodes, inputs, "y", tensors)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (picture, ["the open size of its input 'x' is taken as 3×64×64: --input gives another"]),
        (voice, ["its input 'sr' is taken as 16000"]),
    ],
)
def test_sizes_are_chosen_said_and_evaluated_like_the_runtime(tmp_path: Path, make, said: list[str]) -> None:
    runtime = pytest.importorskip("onnxruntime")
    path = make(tmp_path / "a.onnx")
    module = open_module(str(path)).module
    assert [words for words in module.reading.assumed if words in said] == said
    given = []
    for size in module.input_sizes:
        shape = size if module.bare else (1, *size)
        given.append(RNG.normal(size=shape).astype(np.float32))
    fed = dict(zip(module.inputs, given, strict=True)) | dict(module.values)
    (wanted,) = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, fed)
    (found,) = module._run([torch.from_numpy(each) for each in given])
    assert np.abs(found.detach().numpy() - wanted).max() <= 1e-5 * np.abs(wanted).max()


def test_a_size_that_is_given_is_the_one(tmp_path: Path) -> None:
    found = open_module(str(picture(tmp_path / "a.onnx")), input_shape=(3, 96, 32))
    assert found.module.input_sizes == ((3, 96, 32),)
    assert not any("--input" in words for words in found.reading.assumed)


def test_what_no_size_can_change_is_said_at_once(tmp_path: Path) -> None:
    nodes = [helper.make_node("StringNormalizer", ["x"], ["y"])]
    path = save(tmp_path / "a.onnx", nodes, [value("x", TensorProto.FLOAT, "N", "L")], "y", [])
    with pytest.raises(LawfulError, match="StringNormalizer"):
        open_module(str(path))


def test_axes_of_one_name_have_one_size() -> None:
    stated = {"x": ((None, 4), "f", ("n", "")), "y": ((None, None), "i", ("m", "n"))}
    for sizes, values in size_candidates(stated):
        assert sizes["x"][0] == sizes["y"][1]
        assert not values


def test_a_size_that_a_window_does_not_fit_into_is_passed_over() -> None:
    """A kernel of 512 entries does not fit into the lengths that are tried first."""
    kernel = numpy_helper.from_array(np.ones((1, 1, 512), np.float32), "k")
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 1, "t"]) for name in ("x", "y")]
    made = helper.make_graph([helper.make_node("Conv", ["x", "k"], ["y"])], "g", ends[:1], ends[1:], [kernel])
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    sizes = open_module(model).module.input_sizes
    assert sizes[0][-1] >= 512


@pytest.mark.parametrize("mixes", [False, True])
def test_a_first_axis_of_several_counts_samples_only_if_it_can(tmp_path: Path, mixes: bool) -> None:
    """Rows that are mixed, or each multiplied by numbers of its own, are no samples of one network."""
    numbers = np.random.default_rng(0).normal(size=(3, 3) if mixes else (3, 2)).astype(np.float32)
    first = helper.make_node(*(("MatMul", ["w", "x"], ["h"]) if mixes else ("Mul", ["x", "w"], ["h"])))
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [3, 2]) for name in "xy"]
    graph = helper.make_graph(
        [first, helper.make_node("Tanh", ["h"], ["y"])],
        "g",
        ends[:1],
        ends[1:],
        [numpy_helper.from_array(numbers, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / "rows.onnx")
    network = open_module(tmp_path / "rows.onnx")
    assert network.module.bare
    x = np.random.default_rng(1).normal(size=(4, 3, 2))
    wanted = np.tanh(numbers.astype(np.float64) @ x if mixes else numbers.astype(np.float64) * x)
    assert np.allclose(network.evaluate(x), wanted)


def test_loops_are_written_out_up_to_a_number_of_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Loops in loops would be met after minutes only."""
    from lawful.program.frontends import onnx as frontend

    kinds = {"s": (TensorProto.FLOAT, [1, 4]), "i": (TensorProto.INT64, []), "c": (TensorProto.BOOL, [])}
    kinds |= {"r": kinds["s"], "d": kinds["c"], "x": kinds["s"], "y": kinds["s"]}
    infos = {name: helper.make_tensor_value_info(name, *kind) for name, kind in kinds.items()}
    steps = [helper.make_node("Identity", ["c"], ["d"]), helper.make_node("Sigmoid", ["s"], ["r"])]
    body = helper.make_graph(steps, "b", [infos["i"], infos["c"], infos["s"]], [infos["d"], infos["r"]])
    stored = [numpy_helper.from_array(np.int64(100), "n"), numpy_helper.from_array(np.array(True), "t")]
    loop = helper.make_node("Loop", ["n", "t", "x"], ["y"], body=body)
    graph = helper.make_graph([loop], "g", [infos["x"]], [infos["y"]], stored)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "a.onnx")
    assert open_module(tmp_path / "a.onnx").parameters == 0
    monkeypatch.setattr(frontend, "MOST_CALLS", 150)
    with pytest.raises(LawfulError, match="more than 150 calls once its loops"):
        open_module(tmp_path / "a.onnx")
