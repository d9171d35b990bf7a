"""ONNX files as PyTorch's two exporters, scikit-learn's and Keras-style converters make them, against onnxruntime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn

import lawful as package
from lawful.errors import Unsupported
from lawful.network import Dag, Mlp
from lawful.sources.opening import open_free, open_graph

onnxruntime = pytest.importorskip("onnxruntime")
RNG = np.random.default_rng(0)


def run(path: Path | onnx.ModelProto, batch: np.ndarray, output: int = 0) -> np.ndarray:
    """What onnxruntime makes of a batch, one row for each sample."""
    source = str(path) if isinstance(path, Path) else path.SerializeToString()
    session = onnxruntime.InferenceSession(source, providers=["CPUExecutionProvider"])
    entry = session.get_inputs()[0]
    kind = np.float64 if "double" in entry.type else np.float32
    fixed = not entry.shape or isinstance(entry.shape[0], int)
    if fixed:
        rows = [session.run(None, {entry.name: row.reshape(entry.shape).astype(kind)})[output] for row in batch]
        return np.stack([np.asarray(row).ravel() for row in rows])
    found = session.run(None, {entry.name: batch.astype(kind)})[output]
    return np.asarray(found).reshape(len(batch), -1)


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(1, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4)
        self.one, self.two = nn.Conv2d(4, 4, 3, padding=1, groups=2), nn.Conv2d(4, 4, 1)
        self.head = nn.Linear(4 * 3 * 3, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.norm(self.stem(x)))
        x = nn.functional.relu6(self.one(x)) + self.two(x)
        x = nn.functional.max_pool2d(nn.functional.hardtanh(x, -0.7, 0.9), 2)
        a, b = x.split(2, 1)
        x = torch.cat([b, nn.functional.leaky_relu(a, 0.2)], 1)
        return self.head(x.view(x.size(0), -1)).clamp(min=-0.5)


MODULES: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
    "mlp": (nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Dropout(), nn.Linear(6, 3)), (4,)),
    "prelu": (nn.Sequential(nn.Flatten(), nn.Linear(4, 6), nn.PReLU(6), nn.BatchNorm1d(6), nn.Linear(6, 2)), (2, 2)),
    "residual": (Residual(), (1, 6, 6)),
    "conv1d": (nn.Sequential(nn.Conv1d(2, 3, 3), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten()), (2, 7)),
    "conv3d": (
        nn.Sequential(nn.Conv3d(1, 2, 2), nn.ReLU(), nn.AvgPool3d(2), nn.Flatten(), nn.Linear(2, 2)),
        (1, 3, 3, 3),
    ),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dynamo", [False, True], ids=["script", "dynamo"])
@pytest.mark.parametrize("name", MODULES)
def test_both_exporters_of_pytorch(name: str, dynamo: bool, tmp_path: Path) -> None:
    pytest.importorskip("onnxscript")
    torch.manual_seed(0)
    module, shape = MODULES[name]
    for part in module.modules():
        if isinstance(part, nn.modules.batchnorm._BatchNorm):
            nn.init.uniform_(part.running_mean)
            nn.init.uniform_(part.running_var, 0.5, 2.0)
    path = tmp_path / "net.onnx"
    example = torch.zeros(2, *shape)
    dynamic: dict[str, Any] = (
        {"dynamic_shapes": ({0: torch.export.Dim("batch", min=2)},)}
        if dynamo
        else {"dynamic_axes": {"x": {0: "batch"}}}
    )
    torch.onnx.export(module.eval(), (example,), str(path), dynamo=dynamo, input_names=["x"], verbose=False, **dynamic)
    found = open_graph(path)
    batch = RNG.normal(size=(8, *shape))
    expected = module.double()(torch.tensor(batch)).detach().numpy().reshape(8, -1)
    module.float()
    assert np.abs(found.evaluate(batch.reshape(8, -1)) - expected).max() < 1e-5
    assert np.abs(run(path, batch) - expected).max() < 1e-4  # the oracle itself
    assert found.reading is not None
    assert found.reading.assumed == ()
    if name == "mlp":
        assert isinstance(found, Mlp)
        assert found.reading.entangled == ()
        assert open_free(path).parameters == 4 * 6 + 6 + 6 * 3 + 3
    elif name in ("residual", "conv1d", "conv3d"):
        with pytest.raises(Unsupported, match="unrolled"):
            open_free(path)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("kind", ["binary", "classes", "regressor"])
def test_scikit_learn(kind: str, scaled: bool) -> None:
    skl2onnx = pytest.importorskip("skl2onnx")
    from sklearn.neural_network import MLPClassifier, MLPRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    x = RNG.normal(size=(60, 4)) * [1.0, 10.0, 0.1, 3.0]
    y: Any = {
        "binary": (x[:, 0] > 0).astype(int),
        "classes": np.digitize(x[:, 0], [-0.5, 0.5]),
        "regressor": x[:, 0] - x[:, 2],
    }[kind]
    make = MLPClassifier if kind in ("binary", "classes") else MLPRegressor
    net = make(hidden_layer_sizes=(6, 5), max_iter=20, random_state=0)
    model = (make_pipeline(StandardScaler(), net) if scaled else net).fit(x, y)
    exported = skl2onnx.to_onnx(
        model, x[:1].astype(np.float32), options={"zipmap": False} if make is MLPClassifier else None
    )
    found = open_graph(exported)
    assert found.reading is not None
    inputs = (x - model[0].mean_) / model[0].scale_ if scaled else x
    hidden = inputs
    for weight, bias in zip(net.coefs_[:-1], net.intercepts_[:-1], strict=True):
        hidden = np.maximum(hidden @ weight + bias, 0)
    expected = hidden @ net.coefs_[-1] + net.intercepts_[-1]
    assert np.abs(found.evaluate(x) - expected).max() < 1e-4 * max(1.0, np.abs(expected).max())
    if make is MLPClassifier:
        assert "cut off" in found.reading.assumed[0]
        assert any("label" in part for part in found.reading.ignored)
        logits = found.evaluate(x)
        labels = logits.argmax(1) if kind == "classes" else (logits[:, 0] > 0).astype(int)
        assert (labels == model.predict(x)).mean() > 0.98
    else:
        assert found.reading.assumed == ()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["columns", "linear", "principal", "clipped"])
def test_other_pipelines_of_scikit_learn(kind: str) -> None:
    """Columns that are scaled differently, linear models, projections, scalers that clip."""
    skl2onnx = pytest.importorskip("skl2onnx")
    from sklearn.compose import ColumnTransformer
    from sklearn.decomposition import PCA
    from sklearn.linear_model import Ridge
    from sklearn.neural_network import MLPRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import MinMaxScaler, StandardScaler

    x = RNG.normal(size=(60, 4)).astype(np.float32)
    net = MLPRegressor(hidden_layer_sizes=(6,), max_iter=20, random_state=0)
    parts = [("standard", StandardScaler(), [3, 0]), ("between", MinMaxScaler(), [1])]
    model = {
        "columns": make_pipeline(ColumnTransformer(parts, remainder="passthrough"), net),
        "linear": make_pipeline(StandardScaler(), Ridge()),
        "principal": make_pipeline(PCA(2), net),
        "clipped": make_pipeline(MinMaxScaler(clip=True), net),
    }[kind].fit(x, x[:, 0] - x[:, 2] ** 2)
    found = open_graph(skl2onnx.to_onnx(model, x[:1]))
    points = 3 * RNG.normal(size=(50, 4)).astype(np.float32)
    assert np.abs(found.evaluate(points)[:, 0] - model.predict(points)).max() < 1e-5
    assert found.reading is not None
    assert found.reading.assumed == ()


@pytest.mark.filterwarnings("ignore")
def test_a_pipeline_is_pruned_with_its_scaler_folded_in(lawful: Any, tmp_path: Path) -> None:
    skl2onnx, runtime = pytest.importorskip("skl2onnx"), pytest.importorskip("onnxruntime")
    from sklearn.neural_network import MLPRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    x = RNG.normal(size=(60, 4)).astype(np.float32)
    net = MLPRegressor(hidden_layer_sizes=(8,), max_iter=20, random_state=0)
    model = make_pipeline(StandardScaler(), net).fit(x, x[:, 0])
    net.coefs_[1][2:4] = 0.0
    onnx.save(skl2onnx.to_onnx(model, x[:1]), tmp_path / "a.onnx")
    said = lawful("prune", tmp_path / "a.onnx", "--out", tmp_path / "b.onnx", "--json").json
    assert (said["neurons_before"], said["neurons_after"]) == (8, 6)
    before, after = (runtime.InferenceSession(tmp_path / name) for name in ("a.onnx", "b.onnx"))
    one, two = (each.run(None, {each.get_inputs()[0].name: x})[0].ravel() for each in (before, after))
    assert np.abs(one - two).max() < 1e-5


def test_a_batch_of_fixed_size_is_said(tmp_path: Path) -> None:
    """A first axis of size 3 could also be part of one sample."""
    module = torch.nn.Sequential(torch.nn.Linear(4, 2), torch.nn.ReLU(), torch.nn.Linear(2, 1)).eval()
    for batch, assumed in ((3, ("the first axis of the input, of size 3, counts samples",)), (1, ())):
        torch.onnx.export(module, (torch.zeros(batch, 4),), tmp_path / "a.onnx", dynamo=False)
        found = open_graph(tmp_path / "a.onnx")
        assert found.reading is not None
        assert found.reading.assumed == assumed
        assert len(found.to_dag().inputs) == 4


def keras_like() -> onnx.ModelProto:
    """What tf2onnx makes of a small Keras network: pictures last, transposes around convolutions."""
    tensors = {
        "k": RNG.normal(size=(3, 2, 3, 3)).astype(np.float32),
        "b": RNG.normal(size=3).astype(np.float32),
        "w": RNG.normal(size=(3 * 2 * 2, 4)).astype(np.float32),
        "c": RNG.normal(size=4).astype(np.float32),
        "s": np.array([-1, 12]),
    }
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], perm=[0, 3, 1, 2]),
        helper.make_node("Conv", ["t", "k", "b"], ["v"], kernel_shape=[3, 3], auto_pad="SAME_UPPER"),
        helper.make_node("Relu", ["v"], ["r"]),
        helper.make_node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2], auto_pad="VALID"),
        helper.make_node("Transpose", ["p"], ["q"], perm=[0, 2, 3, 1]),
        helper.make_node("Reshape", ["q", "s"], ["f"]),
        helper.make_node("MatMul", ["f", "w"], ["m"]),
        helper.make_node("Add", ["m", "c"], ["l"]),
        helper.make_node("Softmax", ["l"], ["y"]),
    ]
    return _model(nodes, tensors, ["N", 5, 4, 2], ["N", 4])


def _model(nodes: list[Any], tensors: dict[str, np.ndarray], shape: list[Any], result: list[Any]) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "test",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, result)],
        [numpy_helper.from_array(array, name) for name, array in tensors.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_pictures_with_channels_last() -> None:
    made = keras_like()
    found = open_graph(made)
    batch = RNG.normal(size=(6, 5, 4, 2))
    logits = found.evaluate(batch.reshape(6, -1))
    softmax = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    assert np.abs(softmax - run(made, batch)).max() < 1e-5
    assert found.reading is not None
    assert (found.reading.tail, found.reading.ignored) == ("softmax", ())


@pytest.mark.parametrize("shape", [[4], [1, 4], [4, 1], [1, 1, 4], [1, 1, 1, 4]], ids=str)
def test_inputs_without_a_batch(shape: list[int]) -> None:
    """One sample, as verification benchmarks have it: a vector, a row, a column, or more ones."""
    weight, bias = RNG.normal(size=(3, 4)).astype(np.float32), RNG.normal(size=3).astype(np.float32)
    if shape == [4, 1]:
        nodes = [helper.make_node("MatMul", ["w", "x"], ["m"]), helper.make_node("Add", ["m", "b"], ["a"])]
        tensors = {"w": weight, "b": bias[:, None], "v": RNG.normal(size=(2, 3)).astype(np.float32)}
        nodes += [helper.make_node("Relu", ["a"], ["r"]), helper.make_node("MatMul", ["v", "r"], ["y"])]
    else:
        flat = (
            [helper.make_node("Flatten", ["x"], ["f"])]
            if len(shape) > 1
            else [helper.make_node("Identity", ["x"], ["f"])]
        )
        nodes = [*flat, helper.make_node("MatMul", ["f", "w"], ["m"]), helper.make_node("Add", ["m", "b"], ["a"])]
        tensors = {"w": weight.T.copy(), "b": bias, "v": RNG.normal(size=(3, 2)).astype(np.float32)}
        nodes += [helper.make_node("Relu", ["a"], ["r"]), helper.make_node("MatMul", ["r", "v"], ["y"])]
    made = _model(nodes, tensors, shape, None)  # type: ignore[arg-type]
    found = open_graph(made)
    assert isinstance(found, Mlp)
    batch = RNG.normal(size=(5, 4))
    assert np.abs(found.evaluate(batch) - run(made, batch)).max() < 1e-5
    assert found.widths == (4, 3, 2)


def test_every_other_operator() -> None:
    """Clip, PRelu, Slice, Split, Concat, Pad, Gather, Max, Min, ReduceSum and shapes that are computed."""
    tensors = {
        "lo": np.array(-0.5, np.float32), "hi": np.array(0.75, np.float32), "slope": np.array([0.3], np.float32),
        "st": np.array([1]), "en": np.array([5]), "ax": np.array([1]), "i": np.array([2, 0]),
        "pads": np.array([0, 1, 0, 0]), "fill": np.array(0.2, np.float32), "c": RNG.normal(size=4).astype(np.float32),
        "zero": np.array([0]), "one": np.array([1]), "two": np.array([2]), "minus": np.array([-1]),
        "k": np.array([2, 4]),
    }  # fmt: skip
    nodes = [
        helper.make_node("Clip", ["x", "lo", "hi"], ["a"]),
        helper.make_node("Slice", ["a", "st", "en", "ax"], ["b"]),
        helper.make_node("PRelu", ["b", "slope"], ["p"]),
        helper.make_node("Split", ["x", "k"], ["s1", "s2"], axis=1),
        helper.make_node("Max", ["s2", "p"], ["m"]),
        helper.make_node("Min", ["m", "c"], ["n"]),
        helper.make_node("Gather", ["x", "i"], ["g"], axis=1),
        helper.make_node("Concat", ["n", "g", "s1"], ["q"], axis=1),
        helper.make_node("Pad", ["q", "pads", "fill"], ["w"]),
        helper.make_node("Shape", ["w"], ["sh"]),
        helper.make_node("Slice", ["sh", "zero", "one"], ["n0"]),
        helper.make_node("Concat", ["n0", "minus", "one"], ["target"], axis=0),
        helper.make_node("Reshape", ["w", "target"], ["r"]),
        helper.make_node("Abs", ["r"], ["ab"]),
        helper.make_node("ReduceSum", ["ab", "two"], ["y"], keepdims=0),
    ]
    made = _model(nodes, tensors, ["N", 6], None)  # type: ignore[arg-type]
    found = package.open(made)
    batch = RNG.normal(size=(7, 6))
    assert np.abs(found.evaluate(batch) - run(made, batch)).max() < 1e-6
    assert isinstance(found, Dag)


def test_what_was_read_from_onnx_is_written_as_it_was(tmp_path: Path) -> None:
    weight = {"w": RNG.normal(size=(4, 3)).astype(np.float32), "v": RNG.normal(size=(3, 2)).astype(np.float32)}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"]),
        helper.make_node("Relu", ["m"], ["r"]),
        helper.make_node("MatMul", ["r", "v"], ["y"]),
    ]
    made = _model(nodes, weight, ["N", 4], ["N", 2])
    onnx.save(made, tmp_path / "a.onnx")
    found = open_graph(tmp_path / "a.onnx")
    written = package.write(found, tmp_path / "b.onnx")
    assert (written.dtype, written.rounding) == ("float32", 0.0)
    again = onnx.load(tmp_path / "b.onnx")
    assert again.graph.input[0].name == "x"
    assert again.graph.output[0].name == "y"
    batch = RNG.normal(size=(5, 4))
    assert np.abs(run(tmp_path / "b.onnx", batch) - run(made, batch)).max() < 1e-6
    assert (tmp_path / "b.onnx").stat().st_size < 1.5 * (tmp_path / "a.onnx").stat().st_size + 200
