"""Any module becomes an ONNX file of its own layers, that ONNX Runtime computes at any number of samples."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from torch import nn

import lawful
from lawful.errors import LawfulError, Unsupported

runtime = pytest.importorskip("onnxruntime")


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6)
        self.inner, self.head = nn.Conv2d(6, 6, 3, padding=1, groups=2), nn.Linear(6, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        x = x + self.inner(self.norm(x).relu())
        return self.head(nn.functional.adaptive_avg_pool2d(x, 1).flatten(1))


class Tokens(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.first = nn.Embedding(11, 8), nn.Parameter(torch.randn(1, 1, 8))
        self.block = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        tokens = self.table(ids)
        return self.block(torch.cat([self.first.expand(len(ids), -1, -1), tokens], 1))[:, 0]


class NamedLikeItsInput(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.input = nn.Parameter(torch.randn(3))

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return torch.tanh(input * self.input)


class AcrossSamples(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sort(0).values.flatten()[: len(x) // 2 + 1].tanh()


MODULES = {
    "convolutions": (lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.GELU(), nn.Flatten(), nn.Linear(144, 2)), "3,8,8"),
    "residual": (Residual, "3,8,8"),
    "transformer": (Tokens, "7:int"),
    "softmax at the end": (lambda: nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2), nn.Softmax(1)), "3"),
    "a parameter with the name of the input": (NamedLikeItsInput, "3"),
    "recurrent": (lambda: nn.GRU(3, 4, batch_first=True), "5,3"),
}


def outputs(path: Path, x: torch.Tensor) -> np.ndarray:
    session = runtime.InferenceSession(path.read_bytes())
    found: np.ndarray = session.run(None, {session.get_inputs()[0].name: x.numpy()})[0]
    return found


@pytest.mark.parametrize("name", MODULES)
def test_runtime_computes_what_the_module_does(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    make, size = MODULES[name]
    module, out = make().eval(), tmp_path / "net.onnx"
    written = lawful.convert(module, out, input=size)
    assert not written.note
    onnx.checker.check_model(onnx.load(out), full_check=True)
    for samples in (1, 2, 7):
        shape = [samples, *(int(each) for each in size.removesuffix(":int").split(","))]
        x = torch.randint(0, 11, shape) if size.endswith("int") else torch.randn(shape)
        with torch.no_grad():
            wanted = module(x)
        wanted = wanted[0] if isinstance(wanted, tuple) else wanted
        np.testing.assert_allclose(outputs(out, x), wanted.numpy(), rtol=1e-4, atol=1e-5)


def test_weights_keep_names_sizes_and_numbers(tmp_path: Path) -> None:
    module, out = Residual().eval(), tmp_path / "net.onnx"
    lawful.convert(module, out, input="3,8,8")
    held = {each.name: onnx.numpy_helper.to_array(each) for each in onnx.load(out).graph.initializer}
    for name, weight in module.named_parameters():
        np.testing.assert_array_equal(held[name], weight.detach().numpy())


def test_a_file_for_one_sample_says_so(tmp_path: Path) -> None:
    """Nodes that depend on the number of samples in another way than along a line are written for one."""
    written = lawful.convert(AcrossSamples(), tmp_path / "net.onnx", input="4")
    assert "one sample" in written.note
    assert "one sample" in str(written)
    x = torch.randn(1, 4)
    np.testing.assert_allclose(outputs(tmp_path / "net.onnx", x), AcrossSamples()(x).numpy(), rtol=1e-5)


@pytest.mark.parametrize(("dtype", "largest"), [("float64", 0.0), ("float16", 2.0**-11)])
def test_another_type_states_its_rounding(dtype: str, largest: float, tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    written = lawful.convert(module, tmp_path / "net.onnx", dtype=dtype, input="3")
    assert written.dtype == dtype
    assert written.relative <= largest
    assert bool(written.rounding) == bool(largest)


def test_what_cannot_be_written_leaves_no_file(tmp_path: Path) -> None:
    class Determinant(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.linalg.det(x)

    broken = nn.Sequential(nn.Linear(3, 2), nn.Tanh())
    broken[0].weight.data[0, 0] = torch.nan
    huge = nn.Sequential(nn.Linear(3, 2), nn.Tanh())
    huge[0].weight.data[0, 0] = 1e9
    for module, size, dtype, words in (
        (Determinant(), "3,3", None, "det"),
        (broken, "3", None, "NaN"),
        (huge, "3", "float16", "float64"),
        (nn.Sequential(nn.Linear(3, 2), nn.Tanh()), "3", "int8", "float32"),
    ):
        with pytest.raises(LawfulError, match=words):
            lawful.convert(module, tmp_path / "net.onnx", dtype=dtype, input=size)
        assert not list(tmp_path.iterdir())


def test_other_formats_still_need_a_graph(tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match="graph of scalar weights"):
        lawful.convert(nn.Sequential(nn.Linear(3, 2), nn.Tanh(), nn.Linear(2, 1)), tmp_path / "n.npz", input="3")


def test_a_changed_network_is_written_as_it_is(tmp_path: Path) -> None:
    """Not as the module that it was read from."""
    module = nn.Sequential(nn.Conv1d(1, 2, 2), nn.ReLU(), nn.Flatten(), nn.Linear(6, 1))
    graph = lawful.open(module, input_shape=(1, 4))
    doubled = graph.with_theta(2 * graph.theta)
    lawful.convert(doubled, tmp_path / "net.onnx", input="4")
    x = np.random.default_rng(0).normal(size=(3, 4))
    np.testing.assert_allclose(lawful.open(tmp_path / "net.onnx").evaluate(x), doubled.evaluate(x), rtol=1e-6)


def test_laws_of_a_file_of_ids_are_those_of_its_module(tmp_path: Path) -> None:
    """The file states that its input holds ids, and how many: nobody has to say it again."""
    table = nn.Sequential(nn.Embedding(5, 2), nn.Flatten(), nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 1))
    lawful.convert(table, tmp_path / "net.onnx", input="2:int")
    wanted = lawful.laws(table, input="2:int")
    found = lawful.laws(tmp_path / "net.onnx")
    assert (found.laws, found.parameters) == (wanted.laws, wanted.parameters)
