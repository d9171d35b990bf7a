"""Programs written as ONNX files: ONNX Runtime computes what the program does, and what ONNX cannot say is refused."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import torch
from program.models import make, run

from lawful.program import Builder, Program, Refused
from lawful.program.backends.onnx_file import write_onnx
from lawful.program.domains.evaluate import evaluate
from lawful.program.frontends.onnx import read_onnx
from lawful.program.frontends.torch_export import read_module
from lawful.program.operators.elementwise import leaky_relu
from lawful.program.table import OPERATORS, OperatorFamily

runtime = pytest.importorskip("onnxruntime")
# what no operator of ONNX says, alone or in a few: nothing may be added in silence
UNSAID = {"atan2", "erfc", "expm1", "floor_divide", "lgamma", "log1p", "remainder", "trunc_divide"}


def results(program: Program, *inputs: np.ndarray) -> list[np.ndarray]:
    model = write_onnx(program)
    onnx.checker.check_model(model)
    feeds = {}
    for node, x in zip(program.inputs, inputs, strict=True):
        feeds[node["name"]] = x.astype({"f": np.float32, "i": np.int64, "b": np.bool_}[node.kind])
    options = runtime.SessionOptions()
    options.log_severity_level = 3
    return runtime.InferenceSession(model.SerializeToString(), options).run(None, feeds)


@pytest.mark.parametrize("name", ["mlp", "lenet", "attention", "resnet18", "mobilenet_v3", "swin", "gpt2", "llama"])
def test_a_model_and_its_file_compute_the_same(name: str) -> None:
    module, x = make(name)
    program = read_module(module, [x])
    theirs = results(program, x.numpy())[0]
    wanted = run(module, x).numpy()
    assert theirs.shape == wanted.shape
    assert np.abs(theirs - wanted).max() <= 1e-4 * np.abs(wanted).max()


@pytest.mark.parametrize("name", ["mlp", "lenet"])
def test_a_file_that_is_read_again_is_the_program(name: str) -> None:
    """Layers are written as layers, with the names of their weights."""
    module, x = make(name)
    program = read_module(module.float(), [x.float()])
    again = read_onnx(write_onnx(program))
    assert again.text() == program.text()
    assert set(again.parameters) == set(dict(module.named_parameters()))


def unary() -> list[str]:
    return [
        name
        for name, each in OPERATORS.items()
        if each.family is OperatorFamily.ELEMENTWISE and not each.attributes and each.shape is None
    ]


@pytest.mark.parametrize("name", unary())
def test_an_operator_is_written_or_refused_by_name(name: str) -> None:
    b = Builder()
    x, y = b.input("x", (2, 3)), b.input("y", (2, 3))
    rng = np.random.default_rng(0)
    one, two = (rng.uniform(0.1, 0.9, (2, 3)).astype(np.float32) for _ in range(2))
    one = one + 1 if name == "acosh" else one
    pair = name in ("pow", "atan2", "fmod", "remainder", "floor_divide", "trunc_divide")
    program = b.finish([b.add(b.elementwise(name, x, *([y] if pair else [])), b.mul(y, 0.5))])
    if name in UNSAID:
        with pytest.raises(Refused, match=name):
            write_onnx(program)
        return
    np.testing.assert_allclose(results(program, one, two)[0], evaluate(program, one, two)[0], rtol=1e-5, atol=1e-6)


def test_reductions_sorting_choices_and_movements() -> None:
    b = Builder()
    x, y = b.input("x", (2, 6)), b.input("y", (2, 6))
    at = b.input("at", (2, 2), "i")
    less = b.elementwise("lt", x, y)
    outputs = [
        *(b.apply(name, (x,), axes=(1,)) for name in ("sum", "amax", "amin", "prod")),
        *(b.apply(name, (less,), axes=(1,)) for name in ("any", "all")),
        *(b.apply(name, (x,), axis=1) for name in ("argmax", "argmin", "softmax")),
        *(b.apply(name, (x,), axis=1, descending=down) for name in ("sorted", "argsort") for down in (False, True)),
        b.apply("gather", (x, at), axis=1),
        b.apply("lookup", (x, at), axis=1),
        b.apply("normalise", (x,), axes=(0,), centre=True, epsilon=0.25),
        b.apply("normalise", (x,), axes=(1,), centre=False, epsilon=0.25),
        b.elementwise("where", less, x, y),
        b.elementwise("ne", x, y),
        b.slice(x, 1, slice(None, None, -2)),
        b.permute(b.reshape(x, (2, 3, 2)), (2, 0, 1)),
        b.pick(x, 1, np.array([-1, 0, 3, 3, -1]), fill=7.0),
        leaky_relu(b, x, 0.1),
        b.contract("ab,ab->a", x, y),
    ]
    program = b.finish(outputs)
    rng = np.random.default_rng(1)
    given = [*(rng.normal(size=(2, 6)).astype(np.float32) for _ in range(2)), rng.integers(0, 6, (2, 2))]
    for ours, theirs in zip(evaluate(program, *given), results(program, *given), strict=True):
        np.testing.assert_allclose(theirs, ours, rtol=1e-5, atol=1e-6)


def test_an_opaque_call_is_refused_by_name() -> None:
    class Opaque(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.linalg.det(x)

    with pytest.raises(Refused, match="det"):
        write_onnx(read_module(Opaque(), [torch.eye(3)]))
