"""ONNX files that are no graph of scalar weights open as modules; the oracle is ONNX Runtime."""

from __future__ import annotations

import copy
import io
import logging
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from torch import nn

import lawful as package
from lawful.errors import InvalidNetwork, Unsupported
from lawful.sources.modules.module_network import ModuleNetwork
from lawful.sources.onnx.module import OnnxModule

Floats = NDArray[Any]
FLOAT, INT = TensorProto.FLOAT, TensorProto.INT64


class Attending(nn.Module):
    """A transformer block with a token of its own, read from its stream."""

    def __init__(self) -> None:
        super().__init__()
        self.enter, self.token = nn.Linear(3, 8), nn.Parameter(torch.zeros(1, 1, 8))
        self.block = nn.TransformerEncoderLayer(8, 2, 12, activation="gelu", batch_first=True, norm_first=True)
        self.leave = nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        stream = torch.cat([self.token.expand(x.shape[0], -1, -1), self.enter(x)], 1)
        return self.leave(self.block(stream)[:, 0])  # type: ignore[no-any-return]


class Joined(nn.Module):
    """Two inputs, two outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c, self.d = nn.Linear(3, 5), nn.Linear(2, 5), nn.Linear(5, 2), nn.Linear(5, 1)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = torch.tanh(self.a(x) + self.b(y))
        return self.c(hidden), self.d(hidden)


class Worded(nn.Module):
    """Token ids in, with places."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(7, 4), nn.Parameter(torch.zeros(5, 4))
        self.out = nn.Sequential(nn.LayerNorm(4), nn.Linear(4, 6), nn.SiLU(), nn.Linear(6, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.words(x) + self.places)  # type: ignore[no-any-return]


def bent(activation: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Linear(3, 6), activation, nn.Linear(6, 5), activation, nn.Linear(5, 1))


MODELS: dict[str, tuple[Callable[[], nn.Module], list[Any]]] = {
    "tanh": (lambda: bent(nn.Tanh()), [(3,)]),
    "gelu": (lambda: bent(nn.GELU()), [(3,)]),
    "hardswish": (lambda: bent(nn.Hardswish()), [(3,)]),
    "convolutions": (
        lambda: nn.Sequential(
            nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.SiLU(), nn.MaxPool2d(2), nn.Conv2d(4, 4, 3, groups=2),
            nn.GroupNorm(2, 4), nn.Softplus(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2),
        ),
        [(2, 8, 8)],
    ),
    "attending": (Attending, [(4, 3)]),
    "joined": (Joined, [(3,), (2,)]),
    "worded": (Worded, ["5:int"]),
}  # fmt: skip


def inputs_of(sizes: list[Any], batch: int) -> tuple[torch.Tensor, ...]:
    torch.manual_seed(1)
    return tuple(
        torch.randint(0, 7, (batch, int(size.removesuffix(":int"))))
        if isinstance(size, str)
        else torch.randn(batch, *size)
        for size in sizes
    )


def made(name: str) -> nn.Module:
    """A model with random numbers everywhere, so that no two tensors are equal."""
    torch.manual_seed(0)
    module = MODELS[name][0]().eval()
    with torch.no_grad():
        for tensor in module.parameters():
            tensor.copy_(0.4 * torch.randn_like(tensor))
    return module


def exported(name: str, exporter: str, *, fixed: bool) -> Any:
    """The model in ONNX, by one of PyTorch's exporters, for one sample or for any number."""
    module, sizes = made(name), MODELS[name][1]
    examples, names = inputs_of(sizes, 1 if fixed else 2), [f"x{number}" for number in range(len(sizes))]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if exporter == "dynamo":
            logging.disable(logging.WARNING)
            open_ends = None if fixed else tuple({0: torch.export.Dim("batch", min=1, max=64)} for _ in sizes)
            program = torch.onnx.export(
                module, examples, dynamo=True, input_names=names, dynamic_shapes=open_ends, verbose=False
            )
            logging.disable(logging.NOTSET)
            assert program is not None
            return program.model_proto
        buffer = io.BytesIO()
        axes = None if fixed else {each: {0: "batch"} for each in names}
        torch.onnx.export(module, examples, buffer, dynamo=False, input_names=names, dynamic_axes=axes)  # type: ignore[arg-type]
    return onnx.load_model_from_string(buffer.getvalue())


def runtime(model: Any, inputs: tuple[torch.Tensor, ...]) -> list[Floats]:
    session = onnxruntime.InferenceSession(model.SerializeToString())
    names = [entry.name for entry in session.get_inputs()]
    return list(session.run(None, {name: each.numpy() for name, each in zip(names, inputs, strict=True)}))


def outputs(module: nn.Module, inputs: tuple[torch.Tensor, ...]) -> list[Floats]:
    with torch.no_grad():
        found = module(*inputs)
    return [each.numpy() for each in (found if isinstance(found, tuple) else (found,))]


def agree(ours: list[Floats], theirs: list[Floats], tolerance: float = 1e-5) -> None:
    for one, two in zip(ours, theirs, strict=True):
        assert one.shape == two.shape
        assert np.allclose(one, two, rtol=tolerance, atol=tolerance)


CASES = [(name, "script", False) for name in MODELS]
CASES += [(name, "script", True) for name in ("tanh", "convolutions", "attending", "worded")]
CASES += [("attending", "dynamo", False), ("convolutions", "dynamo", True)]


@pytest.mark.parametrize(("name", "exporter", "fixed"), CASES)
def test_a_file_is_the_module_that_it_was(name: str, exporter: str, fixed: bool) -> None:
    """Same outputs as ONNX Runtime for the file's own batch and sample by sample; as many parameters as the module."""
    model, sizes = exported(name, exporter, fixed=fixed), MODELS[name][1]
    found = package.open(model)
    assert isinstance(found, ModuleNetwork)
    assert found.reading.format == "onnx"
    assert found.reading.assumed == ()
    own = inputs_of(sizes, 1 if fixed else 4)
    agree(outputs(found.module, own), runtime(model, own))
    many = inputs_of(sizes, 3)
    apart = [runtime(model, tuple(each[k : k + 1] for each in many)) for k in range(3)]
    agree(outputs(found.module, many), [np.concatenate(parts) for parts in zip(*apart, strict=True)])
    original = made(name)
    folded = sum(part.weight.numel() * 2 for part in original.modules() if isinstance(part, nn.BatchNorm2d))
    assert found.parameters == sum(tensor.numel() for tensor in original.parameters()) - folded
    assert isinstance(found.module, OnnxModule)
    assert found.module.input_sizes == tuple(sizes)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("onnx")
    for name in ("tanh", "attending", "joined"):
        onnx.save(exported(name, "script", fixed=False), folder / f"{name}.onnx")
    return folder


@pytest.mark.parametrize("name", ["attending", "joined"])
def test_changed_weights_go_into_the_same_file(name: str, files: Path, tmp_path: Path, lawful: Any) -> None:
    """Another member of the orbit: nodes, names, types and sizes stay, ONNX Runtime computes the same."""
    source, out = files / f"{name}.onnx", tmp_path / "moved.onnx"
    lawful("symmetries", source, "--apply", "3", "--out", out)
    before, after = onnx.load(source), onnx.load(out)
    onnx.checker.check_model(after)
    assert out.stat().st_size <= source.stat().st_size
    assert after.graph.node == before.graph.node
    described = [
        [(each.name, each.data_type, list(each.dims)) for each in model.graph.initializer] for model in (before, after)
    ]
    assert described[0] == described[1]
    numbers = [[numpy_helper.to_array(each) for each in model.graph.initializer] for model in (before, after)]
    assert any(not np.array_equal(one, two) for one, two in zip(*numbers, strict=True))
    batch = inputs_of(MODELS[name][1], 4)
    agree(runtime(after, batch), runtime(before, batch), 1e-4)


def test_verbs_answer_as_for_the_module(files: Path, tmp_path: Path, lawful: Any) -> None:
    """Laws, balances and equality of a file are those of the module that was exported."""
    two = files / "joined.onnx"
    assert lawful("laws", two, "--json").json["laws"] == 5  # the shifts of two biases that are added
    assert lawful("show", two).stdout.startswith("OnnxModule(53 parameters)")
    lawful("symmetries", two, "--apply", "1", "--out", tmp_path / "moved.onnx")
    proof = tmp_path / "proof.json"
    assert "EQUAL" in lawful("same", two, tmp_path / "moved.onnx", "--certificate", proof, code=0).stdout
    assert "verified" in lawful("verify", proof, two, tmp_path / "moved.onnx", code=0).stdout
    assert "COPY" in lawful("diff", two, tmp_path / "moved.onnx").stdout
    assert package.align(two, tmp_path / "moved.onnx").after < 1e-6
    count = package.count_laws(files / "tanh.onnx")
    assert (count.laws, count.status) == (0, "proved")
    pruned = lawful("prune", files / "tanh.onnx", "--json").json
    assert pruned["reading"]["format"] == "onnx"


def test_what_needs_a_graph_says_what_prevents_it(files: Path, lawful: Any) -> None:
    said = lawful("regions", files / "tanh.onnx", code=2).stderr
    assert "(Tanh) is not piecewise linear" in said
    assert "there are: show, laws, symmetries, components, rebalance" in said
    said = lawful("regions", files / "joined.onnx", code=2).stderr
    assert "2 inputs and 2 outputs" in said


def test_a_convolution_trains_with_its_own_weights(tmp_path: Path, lawful: Any) -> None:
    """The graph of a convolution repeats its weights; laws are those of the kernel: one for each hidden channel."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(module, (torch.randn(1, 1, 4, 4),), str(tmp_path / "net.onnx"), dynamo=False)
    assert lawful("laws", tmp_path / "net.onnx", "--json").json["laws"] == 2
    lawful("rebalance", tmp_path / "net.onnx", "--out", tmp_path / "even.onnx")
    held = {each.name: numpy_helper.to_array(each) for each in onnx.load(tmp_path / "even.onnx").graph.initializer}
    entering = (held["0.weight"] ** 2).sum((1, 2, 3)) + held["0.bias"] ** 2
    leaving = (held["3.weight"].reshape(2, 2, 4) ** 2).sum((0, 2))
    assert np.allclose(entering, leaving, rtol=1e-4)


# Operators one by one

X = (2, 4, 6)
PICTURE = (2, 4, 6, 6)


def graph(nodes: list[Any], shape: tuple[int, ...], held: dict[str, Floats], opset: int = 17) -> Any:
    """Nodes between a matrix product and the end, so that the file needs a module: a tanh comes first."""
    weight = np.random.default_rng(0).normal(size=(shape[-1], shape[-1])).astype(np.float32)
    first = [helper.make_node("MatMul", ["x", "w"], ["z"]), helper.make_node("Tanh", ["z"], ["h"])]
    tensors = [numpy_helper.from_array(array, name) for name, array in {"w": weight, **held}.items()]
    ends = helper.make_tensor_value_info("x", FLOAT, ["batch", *shape[1:]]), helper.make_empty_tensor_value_info("y")
    ends[1].type.tensor_type.elem_type = FLOAT
    made = helper.make_graph([*first, *nodes], "net", [ends[0]], [ends[1]], tensors)
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def numbers(*shape: int) -> Floats:
    return np.random.default_rng(len(shape)).normal(size=shape).astype(np.float32)


def whole(*values: int) -> Floats:
    return np.array(values, dtype=np.int64)


OPERATORS: dict[str, tuple[str, tuple[int, ...], dict[str, Floats], dict[str, Any]]] = {
    "Conv 1d": ("Conv", X, {"k": numbers(6, 2, 3), "b": numbers(6)}, {"group": 2, "pads": [1, 0], "strides": [2]}),
    "Conv same": ("Conv", PICTURE, {"k": numbers(3, 4, 2, 2)}, {"auto_pad": "SAME_LOWER"}),
    "Conv holes": ("Conv", PICTURE, {"k": numbers(3, 4, 2, 2)}, {"dilations": [2, 1], "pads": [1, 1, 1, 1]}),
    "ConvTranspose": ("ConvTranspose", PICTURE, {"k": numbers(4, 3, 3, 3)}, {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
    "Gemm": ("MatMul", X, {"k": numbers(6, 3)}, {}),
    "MaxPool": ("MaxPool", PICTURE, {}, {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [0, 0, 1, 1]}),
    "MaxPool up": ("MaxPool", PICTURE, {}, {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}),
    "AveragePool": ("AveragePool", PICTURE, {}, {"kernel_shape": [3, 2], "pads": [1, 0, 1, 1]}),
    "AveragePool all": ("AveragePool", PICTURE, {}, {"kernel_shape": [2, 2], "pads": [1] * 4, "count_include_pad": 1}),
    "GlobalMaxPool": ("GlobalMaxPool", PICTURE, {}, {}),
    "LayerNormalization": ("LayerNormalization", X, {"g": numbers(6), "b": numbers(6)}, {"epsilon": 1e-3}),
    "InstanceNormalization": ("InstanceNormalization", X, {"g": numbers(4), "b": numbers(4)}, {}),
    "BatchNormalization": (
        "BatchNormalization", X, {"g": numbers(4), "b": numbers(4), "m": numbers(4), "v": numbers(4) ** 2}, {},
    ),
    "PRelu channels": ("PRelu", X, {"s": numbers(4, 1)}, {}),
    "PRelu last": ("PRelu", X, {"s": numbers(6)}, {}),
    "Slice": ("Slice", X, {"a": whole(-1), "e": whole(-100), "x1": whole(2), "t": whole(-2)}, {}),
    "Gather": ("Gather", X, {"i": np.array([[0, -1], [2, 2]])}, {"axis": 2}),
    "Reshape": ("Reshape", X, {"s": whole(0, -1, 2)}, {}),
    "Transpose": ("Transpose", X, {}, {"perm": [0, 2, 1]}),
    "Flatten": ("Flatten", PICTURE, {}, {"axis": 1}),
    "Unsqueeze": ("Unsqueeze", X, {"a": whole(-1, 1)}, {}),
    "Expand": ("Expand", X, {"s": whole(3, 1, 4, 6)[1:]}, {}),
    "Tile": ("Tile", X, {"r": whole(1, 2, 1)}, {}),
    "Pad": ("Pad", X, {"p": whole(0, 1, 0, 0, 0, 2), "v": np.full((), 0.5, np.float32)}, {}),
    "Clip": ("Clip", X, {"low": np.full((), -0.2, np.float32)}, {}),
    "Pow": ("Pow", X, {"k": np.full((), 3.0, np.float32)}, {}),
    "Div": ("Div", X, {"k": numbers(6)}, {}),
    "Max": ("Max", X, {"k": numbers(6)}, {}),
    "ReduceMean": ("ReduceMean", X, {}, {"axes": [-1], "keepdims": 0}),
    "ReduceL2": ("ReduceL2", X, {}, {"axes": [1]}),
    "Softmax": ("Softmax", X, {}, {"axis": 1}),
    **{
        kind: (kind, X, {}, {})
        for kind in ("Sigmoid", "Erf", "Softplus", "Softsign", "Elu", "Selu", "HardSwish", "HardSigmoid", "Celu",
                     "Exp", "Neg", "Abs", "Relu", "LeakyRelu", "ThresholdedRelu", "LogSoftmax", "Identity")
    },
}  # fmt: skip


@pytest.mark.parametrize("name", OPERATORS)
def test_an_operator(name: str) -> None:
    kind, shape, held, options = OPERATORS[name]
    model = graph([helper.make_node(kind, ["h", *held], ["y"], **options)], shape, held)
    found = package.open(model)
    if not isinstance(found, ModuleNetwork):  # a tail that is cut off leaves a graph; the module is still asked
        found = package.network.opening.open_module(model)
    batch = (torch.randn(3, *shape[1:]),)
    agree(outputs(found.module, batch), runtime(model, batch))
    assert found.reading.assumed == ()


def test_softmax_before_version_13_sees_a_matrix() -> None:
    model = graph([helper.make_node("Softmax", ["h"], ["s"]), helper.make_node("Tanh", ["s"], ["y"])], X, {}, opset=11)
    found = package.open(model)
    assert isinstance(found, ModuleNetwork)
    batch = (torch.randn(3, *X[1:]),)
    agree(outputs(found.module, batch), runtime(model, batch))


def test_weights_in_nodes_and_moved_weights() -> None:
    """A Constant node, a transposed matrix and a bias of one output are parameters; a half is none."""
    held = {"k": numbers(1, 6), "half": np.array([0.5], dtype=np.float32)}
    nodes = [
        helper.make_node("Transpose", ["k"], ["t"], perm=[1, 0]),
        helper.make_node("MatMul", ["h", "t"], ["m"]),
        helper.make_node("Constant", [], ["bias"], value=numpy_helper.from_array(numbers(1))),
        helper.make_node("Add", ["m", "bias"], ["a"]),
        helper.make_node("Mul", ["a", "half"], ["y"]),
    ]
    model = graph(nodes, (2, 6), held)
    found = package.open(model)
    assert isinstance(found, ModuleNetwork)
    assert {name for name, _ in found.module.named_parameters()} == {"w", "k", "bias"}
    batch = (torch.randn(3, 6),)
    agree(outputs(found.module, batch), runtime(model, batch))


def test_one_tensor_in_two_layers_is_said_of_training(lawful: Any, tmp_path: Path) -> None:
    nodes = [helper.make_node("MatMul", ["h", "w"], ["m"]), helper.make_node("Tanh", ["m"], ["y"])]
    onnx.save(graph(nodes, (2, 3), {}), tmp_path / "net.onnx")
    assert package.open(tmp_path / "net.onnx").reading.assumed == ()  # type: ignore[union-attr]
    answer = lawful("laws", tmp_path / "net.onnx", "--json").json
    assert answer["reading"]["assumed"] == [
        "w is one parameter wherever it is read (tools may store equal tensors once)"
    ]


def test_random_numbers_are_refused() -> None:
    model = graph(
        [helper.make_node("Bernoulli", ["h"], ["t"]), helper.make_node("MatMul", ["t", "w"], ["y"])], (2, 3), {}
    )
    with pytest.raises(Unsupported, match=r"\(Bernoulli\): is not supported, as it draws random numbers"):
        package.open(model)


def test_an_unknown_operator_pins_what_it_touches(tmp_path: Path, lawful: Any) -> None:
    """It is run by ONNX's reference and named with its share; the scales of the layers around it are found."""
    rng = np.random.default_rng(0)
    shapes = {"k": (4, 3, 3, 3), "l": (2, 4, 1, 1), "v": (18, 6), "u": (6, 3)}
    held = [numpy_helper.from_array(rng.normal(size=size).astype(np.float32), name) for name, size in shapes.items()]
    held.append(numpy_helper.from_array(rng.uniform(-1, 1, (1, 3, 3, 2)).astype(np.float32), "grid"))
    nodes = [
        helper.make_node("Conv", ["x", "k"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "l"], ["c"]),
        helper.make_node("GridSample", ["c", "grid"], ["d"], mode="cubic"),
        helper.make_node("Flatten", ["d"], ["e"]),
        helper.make_node("MatMul", ["e", "v"], ["f"]),
        helper.make_node("Relu", ["f"], ["g"]),
        helper.make_node("MatMul", ["g", "u"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info(*each) for each in (("x", 1, [1, 3, 7, 7]), ("y", 1, [1, 3]))]
    made = helper.make_graph(nodes, "g", ends[:1], ends[1:], held)
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    onnx.save(model, tmp_path / "net.onnx")
    x = rng.normal(size=(1, 3, 7, 7)).astype(np.float32)
    (wanted,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    found = package.open(tmp_path / "net.onnx")
    assert np.allclose(found.module(torch.from_numpy(x)).detach(), wanted, atol=1e-4)
    said = lawful("symmetries", tmp_path / "net.onnx", "--json").json
    assert sorted(space["size"] for space in said["spaces"]) == [4, 6]
    assert "GridSample" in str(said)
    assert "116 of 242 parameters feed it" in str(said["reading"])


def test_copies_in_other_types_read_their_own_programs() -> None:
    found = package.open(exported("convolutions", "script", fixed=False))
    assert isinstance(found, ModuleNetwork)
    module, (x,) = found.module, inputs_of([(2, 8, 8)], 3)
    twin = copy.deepcopy(module).double()
    assert isinstance(twin, OnnxModule)
    assert twin.programs == {}
    assert isinstance(module, OnnxModule)
    assert twin.graph is module.graph  # which holds the file's numbers: once for all copies
    twin.load_state_dict(module.state_dict())
    assert torch.allclose(twin(x.double()).float(), module(x), atol=1e-5)
    twin.train()(x.double()).sum().backward()
    assert all(tensor.grad is not None for tensor in twin.parameters())
    assert module.program([x]).digest() == twin.program([(3, 2, 8, 8)]).digest()


def test_training_inside_a_file_is_refused() -> None:
    held = {"ratio": np.full((), 0.5, np.float32), "training": np.full((), True)}
    with pytest.raises(Unsupported, match=r"\(Dropout\): Dropout in training"):
        package.open(graph([helper.make_node("Dropout", ["h", *held], ["y"])], (2, 3), held))


def test_graphs_that_mix_samples_have_none() -> None:
    """The first axis is one of the input, its size is chosen, and both are said."""
    model = graph([helper.make_node("ReduceMean", ["h"], ["y"], axes=[0], keepdims=1)], (2, 3), {})
    found = package.open(model)
    assert any("counts no samples" in words for words in found.reading.assumed)
    assert any("--input gives another" in words for words in found.reading.assumed)


# Files from strangers, and other forms of storage


@pytest.mark.parametrize(
    ("kind", "held", "words"),
    [
        ("Tile", {"r": whole(1, 10**9)}, r"\(Tile\) claims shape"),
        ("Pad", {"r": whole(0, 10**10, 0, 0)}, r"\(Pad\) claims shape"),
        ("Expand", {"r": whole(10**9, 1, 3)}, "more than the 50,000,000 numbers"),
    ],
)
def test_a_few_bytes_do_not_become_gigabytes(kind: str, held: dict[str, Floats], words: str) -> None:
    with pytest.raises(InvalidNetwork, match=words):
        package.open(graph([helper.make_node(kind, ["h", *held], ["y"])], (2, 3), held))


def test_weights_beside_the_file_are_written_into_it(tmp_path: Path, lawful: Any) -> None:
    source, out = tmp_path / "net.onnx", tmp_path / "out.onnx"
    model = exported("gelu", "script", fixed=False)
    batch = inputs_of([(3,)], 4)
    before = runtime(model, batch)
    onnx.save_model(model, source, save_as_external_data=True, location="net.data", size_threshold=0)
    assert (tmp_path / "net.data").exists()
    lawful("canonical", source, "--out", out)
    agree(runtime(onnx.load(out), batch), before)
    assert out.stat().st_size <= source.stat().st_size + (tmp_path / "net.data").stat().st_size + 1000


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-9), (np.float16, 2e-2)])
def test_other_types_of_numbers(dtype: Any, tolerance: float) -> None:
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    nodes = [helper.make_node("MatMul", ["x", "w"], ["z"]), helper.make_node("Sigmoid", ["z"], ["h"]),
             helper.make_node("MatMul", ["h", "w"], ["y"])]  # fmt: skip
    ends = [helper.make_tensor_value_info(name, kind, ["batch", 3]) for name in ("x", "y")]
    made = helper.make_graph(
        nodes, "net", ends[:1], ends[1:], [numpy_helper.from_array(numbers(3, 3).astype(dtype), "w")]
    )
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    found = package.open(model)
    assert isinstance(found, ModuleNetwork)
    assert found.reading.layers[0].dtype == np.dtype(dtype).name
    batch = np.random.default_rng(0).normal(size=(4, 3)).astype(dtype)
    wanted = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": batch})[0]
    agree([found.evaluate(batch.astype(np.float64))], [np.asarray(wanted, dtype=np.float64)], tolerance)


def test_a_pruned_file_keeps_its_nodes(tmp_path: Path, lawful: Any) -> None:
    """A duplicate and a silent neuron behind GELU go; input, output and open batch stay."""
    source, out = tmp_path / "net.onnx", tmp_path / "small.onnx"
    model = exported("gelu", "script", fixed=False)
    held = {each.name: each for each in model.graph.initializer}
    arrays = {name: numpy_helper.to_array(each).copy() for name, each in held.items()}
    arrays["0.weight"][1], arrays["0.bias"][1] = arrays["0.weight"][0], arrays["0.bias"][0]
    arrays["2.weight"][:, 3] = 0
    for name, array in arrays.items():
        held[name].CopyFrom(numpy_helper.from_array(array, name))
    onnx.save(model, source)
    lawful("prune", source, "--out", out)
    after = onnx.load(out)
    assert {each.name: list(each.dims) for each in after.graph.initializer}["0.weight"] == [4, 3]
    assert after.graph.node == model.graph.node
    batch = inputs_of([(3,)], 5)
    agree(runtime(after, batch), runtime(model, batch))


def test_a_glance_reads_the_program_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`show` computes nothing: no scalar graph is tried behind a curve, and one sample is read, not several."""
    from lawful.sources.onnx import module as onnx_module
    from lawful.sources.onnx import reader

    rng = np.random.default_rng(0)
    weights = {"w": (3, 4), "v": (4, 2)}
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["a"]),
            helper.make_node("Tanh", ["a"], ["h"]),
            helper.make_node("MatMul", ["h", "v"], ["y"]),
        ],
        "curved",
        [helper.make_tensor_value_info("x", FLOAT, [1, 3])],
        [helper.make_tensor_value_info("y", FLOAT, [1, 2])],
        [numpy_helper.from_array(rng.normal(size=size).astype(np.float32), name) for name, size in weights.items()],
    )
    path = tmp_path / "curved.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), str(path))
    calls = []
    for place in (onnx_module, reader):
        read = place.read_onnx
        monkeypatch.setattr(place, "read_onnx", lambda *a, r=read, **k: calls.append(a) or r(*a, **k))
    shown = package.show(path)
    assert "(Tanh) is not piecewise linear" in shown.reason
    assert len(calls) == 1
    batch = rng.normal(size=(5, 3)).astype(np.float32)
    assert package.open(path).evaluate(batch).shape == (5, 2)  # whoever computes has a module of any batch


@pytest.mark.parametrize("batch", [1, "n"])
def test_a_glance_runs_nothing_that_takes_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch: int | str
) -> None:
    from lawful.sources.onnx.module import OnnxModule

    rng = np.random.default_rng(0)
    kernels = dict.fromkeys(("k", "l"), (8, 8, 3, 3))
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["x", "k"], ["a"]),
            helper.make_node("Tanh", ["a"], ["h"]),
            helper.make_node("Conv", ["h", "l"], ["y"]),
        ],
        "wide",
        [helper.make_tensor_value_info("x", FLOAT, [batch, 8, 128, 128])],
        [helper.make_tensor_value_info("y", FLOAT, [batch, 8, 124, 124])],
        [numpy_helper.from_array(rng.normal(size=size).astype(np.float32), name) for name, size in kernels.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), str(tmp_path / "wide.onnx"))
    monkeypatch.setattr(OnnxModule, "_run", lambda *_: pytest.fail("it was run"))
    assert package.show(tmp_path / "wide.onnx").parameters == 2 * 8 * 8 * 9
