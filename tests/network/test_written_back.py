"""What was read is written as it was: names, types, metadata, nodes; and the tool that made it reads it again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import safetensors
import safetensors.torch
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn

import lawful as package
from lawful.errors import Unsupported
from lawful.network import Mlp
from lawful.sources.files import read, write
from lawful.sources.modules.module_network import ModuleNetwork
from lawful.sources.opening import open_graph

RNG = np.random.default_rng(5)
BATCH = RNG.normal(size=(9, 4)).astype(np.float32)


def run(model: Path | onnx.ModelProto, batch: np.ndarray) -> list[np.ndarray]:
    onnxruntime = pytest.importorskip("onnxruntime")
    source = str(model) if isinstance(model, Path) else model.SerializeToString()
    session = onnxruntime.InferenceSession(source, providers=["CPUExecutionProvider"])
    found = session.run(None, {session.get_inputs()[0].name: batch})
    return [each for each in found if isinstance(each, np.ndarray)]


def tensor(name: str, *shape: int) -> Any:
    return numpy_helper.from_array(RNG.normal(size=shape).astype(np.float32), name)


def classifier(opset: int) -> onnx.ModelProto:
    """A Gemm with its matrix turned, a MatMul with a bias of one row, a softmax and a label behind it."""
    nodes = [
        helper.make_node("Gemm", ["pixels", "w0", "b0"], ["z0"], name="first", transB=1),
        helper.make_node("Relu", ["z0"], ["h0"], name="kink"),
        helper.make_node("MatMul", ["h0", "w1"], ["m1"], name="second"),
        helper.make_node("Add", ["m1", "b1"], ["logits"], name="shift"),
        helper.make_node("Softmax", ["logits"], ["odds"], name="soft", axis=-1),
        helper.make_node("ArgMax", ["odds"], ["label"], name="pick", axis=1, keepdims=0),
    ]
    ends = [
        helper.make_tensor_value_info("odds", TensorProto.FLOAT, ["n", 3]),
        helper.make_tensor_value_info("label", TensorProto.INT64, ["n"]),
    ]
    held = [tensor("w0", 6, 4), tensor("b0", 6), tensor("w1", 6, 3), tensor("b1", 1, 3)]
    first = helper.make_tensor_value_info("pixels", TensorProto.FLOAT, ["n", 4])
    graph = helper.make_graph(nodes, "mine", [first], ends, held, doc_string="a note")
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=opsets, producer_name="somebody", ir_version=8)


def described(model: onnx.ModelProto) -> Any:
    graph = model.graph
    return (
        [(node.name, node.op_type, list(node.input), list(node.output)) for node in graph.node],
        [(entry.name, entry.data_type, len(entry.dims)) for entry in graph.initializer],
        [str(entry) for entry in (*graph.input, *graph.output)],
        [(entry.domain, entry.version) for entry in model.opset_import],
        (model.producer_name, graph.name, graph.doc_string, model.ir_version),
    )


@pytest.mark.parametrize("opset", [13, 18])
def test_an_onnx_model_keeps_all_but_its_numbers(opset: int, tmp_path: Path) -> None:
    onnx.save(classifier(opset), tmp_path / "a.onnx")
    done = package.rebalance(tmp_path / "a.onnx")
    found = open_graph(tmp_path / "a.onnx")
    assert isinstance(found, Mlp)
    write(found.with_theta(done.dag.theta), tmp_path / "b.onnx")
    before, after = onnx.load(tmp_path / "a.onnx"), onnx.load(tmp_path / "b.onnx")
    assert described(after) == described(before)
    assert (tmp_path / "b.onnx").stat().st_size == (tmp_path / "a.onnx").stat().st_size
    weights = [numpy_helper.to_array(model.graph.initializer[0]) for model in (before, after)]
    assert np.abs(weights[0] - weights[1]).max() > 1e-3
    (odds, label), (same_odds, same_label) = (run(tmp_path / f"{name}.onnx", BATCH) for name in "ab")
    assert np.abs(odds - same_odds).max() < 1e-5
    assert (label == same_label).all()


def test_a_pruned_onnx_model_keeps_its_nodes_and_shrinks(tmp_path: Path) -> None:
    model = classifier(17)
    dead = numpy_helper.to_array(model.graph.initializer[0]).copy()
    dead[2:4], bias = 0.0, numpy_helper.to_array(model.graph.initializer[1]).copy()
    bias[2:4] = -1.0
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(dead, "w0"))
    model.graph.initializer[1].CopyFrom(numpy_helper.from_array(bias, "b0"))
    onnx.save(model, tmp_path / "a.onnx")
    small = package.prune(tmp_path / "a.onnx").network
    write(small, tmp_path / "b.onnx")
    after = onnx.load(tmp_path / "b.onnx")
    assert described(after) == described(model)
    assert list(after.graph.initializer[0].dims) == [4, 4]
    assert np.abs(run(tmp_path / "b.onnx", BATCH)[0] - run(tmp_path / "a.onnx", BATCH)[0]).max() < 1e-6


def test_a_bias_that_the_model_lacked_joins_its_gemm(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Gemm", ["x", "w0"], ["z"]),
        helper.make_node("Relu", ["z"], ["h"]),
        helper.make_node("Gemm", ["h", "w1"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", size]) for name, size in (("x", 4), ("y", 2))]
    graph = helper.make_graph(nodes, "plain", ends[:1], ends[1:], [tensor("w0", 4, 5), tensor("w1", 5, 2)])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "a.onnx")
    found = read(tmp_path / "a.onnx")
    assert isinstance(found, Mlp)
    moved = Mlp(found.weights, [np.ones(5), None], found.slopes, found.reading)
    write(moved, tmp_path / "b.onnx")
    assert [node.op_type for node in onnx.load(tmp_path / "b.onnx").graph.node] == ["Gemm", "Relu", "Gemm"]
    assert np.abs(run(tmp_path / "b.onnx", BATCH)[0] - moved.evaluate(BATCH)).max() < 1e-5


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dynamo", [False, True], ids=["script", "dynamo"])
def test_files_of_both_exporters_are_written_back(dynamo: bool, tmp_path: Path) -> None:
    pytest.importorskip("onnxscript")
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 5), nn.LeakyReLU(0.25), nn.Linear(5, 3)).eval()
    options: dict[str, Any] = {"dynamo": dynamo, "verbose": False}
    if dynamo:
        options |= {"dynamic_shapes": ({0: torch.export.Dim("batch", min=2)},), "external_data": False}
    else:
        options |= {"dynamic_axes": {"x": {0: "batch"}}}
    torch.onnx.export(module, (torch.zeros(2, 4),), str(tmp_path / "a.onnx"), input_names=["x"], **options)
    done = package.rebalance(tmp_path / "a.onnx")
    write(read(tmp_path / "a.onnx").with_theta(done.dag.theta), tmp_path / "b.onnx")
    before, after = onnx.load(tmp_path / "a.onnx"), onnx.load(tmp_path / "b.onnx")
    assert described(after) == described(before)
    assert np.abs(run(tmp_path / "b.onnx", BATCH)[0] - run(tmp_path / "a.onnx", BATCH)[0]).max() < 1e-5
    assert (tmp_path / "b.onnx").stat().st_size <= (tmp_path / "a.onnx").stat().st_size


def test_a_graph_that_shares_weights_is_not_blown_up(tmp_path: Path) -> None:
    """Unrolled, a convolution has an edge for every place: the file would be many times larger than it was."""
    weight = tensor("k", 2, 1, 3, 3)
    node = helper.make_node("Conv", ["x", "k"], ["c"], pads=[1, 1, 1, 1])
    rest = [helper.make_node("Relu", ["c"], ["r"]), helper.make_node("Flatten", ["r"], ["y"])]
    ends = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 1, 12, 12]),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 288]),
    ]
    graph = helper.make_graph([node, *rest], "conv", ends[:1], ends[1:], [weight])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "a.onnx")
    found = open_graph(tmp_path / "a.onnx")
    with pytest.raises(Unsupported, match=r"would take .* bytes where its source took"):
        write(found, tmp_path / "b.onnx")
    assert not (tmp_path / "b.onnx").exists()
    write(found, tmp_path / "b.npz")
    write(found, tmp_path / "b.onnx", dtype="float32")


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(4, 5), nn.Linear(5, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc2(torch.relu(self.fc1(x)))


@pytest.mark.parametrize("kind", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_safetensors_keep_metadata_names_types_and_size(kind: torch.dtype, tmp_path: Path) -> None:
    net = Net().to(kind)
    texts = {"format": "pt", "author": "somebody"}
    safetensors.torch.save_file(net.state_dict(), tmp_path / "a.safetensors", metadata=texts)
    found = read(tmp_path / "a.safetensors")
    assert write(found, tmp_path / "b.safetensors").rounding == 0.0
    with safetensors.safe_open(tmp_path / "b.safetensors", "pt") as stream:
        assert stream.metadata() == texts
    state = safetensors.torch.load_file(tmp_path / "b.safetensors")
    Net().to(kind).load_state_dict(state, strict=True)
    assert {each.dtype for each in state.values()} == {kind}
    assert (tmp_path / "b.safetensors").stat().st_size <= (tmp_path / "a.safetensors").stat().st_size


def test_casts_that_round_are_an_assumption(tmp_path: Path) -> None:
    class Half(Net):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.fc2(torch.relu(self.fc1(x)).to(torch.bfloat16).float())

    rounds = package.open(Half())
    assert rounds.reading is not None
    assert isinstance(rounds, ModuleNetwork) or rounds.reading.assumed == ("casts to bfloat16 inside round nothing",)
    wide = package.open(Net())
    assert wide.reading is not None
    assert wide.reading.assumed == ()
    nodes = [
        helper.make_node("Cast", ["x"], ["c"], to=TensorProto.FLOAT16),
        helper.make_node("Cast", ["c"], ["d"], to=TensorProto.FLOAT),
        helper.make_node("MatMul", ["d", "w"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", size]) for name, size in (("x", 4), ("y", 2))]
    graph = helper.make_graph(nodes, "cast", ends[:1], ends[1:], [tensor("w", 4, 2)])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    told = package.open(made).reading
    assert told is not None
    assert told.assumed == ("casts to float16 inside round nothing",)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("scaled", [False, True])
def test_a_regressor_with_several_targets(scaled: bool) -> None:
    """skl2onnx stacks the targets of all samples at the end; that is cut off and said."""
    skl2onnx = pytest.importorskip("skl2onnx")
    from sklearn.neural_network import MLPRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import MinMaxScaler

    x = RNG.normal(size=(40, 4))
    net = MLPRegressor(hidden_layer_sizes=(6,), max_iter=15, random_state=0)
    model = (make_pipeline(MinMaxScaler(), net) if scaled else net).fit(x, x[:, :3])
    found = package.open(skl2onnx.to_onnx(model, x[:1].astype(np.float32)))
    assert found.reading is not None
    assert "reshape to [-1, 1] at the end is cut off" in found.reading.assumed[0]
    assert np.abs(found.evaluate(x) - model.predict(x)).max() < 1e-5


def test_weights_inside_branches_are_written_back(tmp_path: Path) -> None:
    """A condition that a constant decides: the weights stand in the graphs inside its node."""

    from lawful.sources.checkpoints.save import write_weights
    from lawful.sources.opening import open_module

    rng = np.random.default_rng(0)

    def branch(name: str, size: tuple[int, int]) -> Any:
        weight = numpy_helper.from_array(rng.normal(size=size).astype(np.float32), f"{name}.weight")
        out = helper.make_tensor_value_info(f"{name}.y", TensorProto.FLOAT, None)
        nodes = [
            helper.make_node("MatMul", ["x", f"{name}.weight"], [f"{name}.h"]),
            helper.make_node("Tanh", [f"{name}.h"], [f"{name}.y"]),
        ]
        return helper.make_graph(nodes, name, [], [out], [weight])

    node = helper.make_node("If", ["yes"], ["y"], then_branch=branch("one", (3, 4)), else_branch=branch("two", (3, 4)))
    graph = helper.make_graph(
        [node],
        "branches",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4])],
        [numpy_helper.from_array(np.array(True), "yes")],
    )
    path = tmp_path / "branches.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), str(path))
    module = open_module(path).module
    state = {name: 2 * tensor for name, tensor in module.state_dict().items()}
    assert "one.weight" in state
    write_weights(state, tmp_path / "twice.onnx", like=path)
    again = open_module(tmp_path / "twice.onnx").module
    assert all(torch.equal(again.state_dict()[name], tensor) for name, tensor in state.items())
