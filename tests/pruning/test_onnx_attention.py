"""Attention inside ONNX files: heads and neurons leave, the nodes stay, and only the sizes they state change."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from pruned import kinds
from torch import nn

from lawful.api.prune import prune
from lawful.errors import CertificateError
from lawful.pruning.channels import prune_channels
from lawful.pruning.channels.certificate import certificate
from lawful.sources.opening import open as open_network
from lawful.verify import verify

WIDTH, HEADS, INNER = 12, 3, 4


def block(rng: np.random.Generator, name: str, hidden: int = 8) -> tuple[list[Any], dict[str, Any]]:
    """One block as files write it: packed queries, keys and values, a GELU by its error function."""
    held = {
        f"{name}.qkv": rng.normal(size=(WIDTH, 3 * WIDTH)),
        f"{name}.qkv.bias": rng.normal(size=3 * WIDTH),
        f"{name}.out": rng.normal(size=(WIDTH, WIDTH)),
        f"{name}.out.bias": rng.normal(size=WIDTH),
        f"{name}.up": rng.normal(size=(WIDTH, hidden)),
        f"{name}.up.bias": rng.normal(size=hidden),
        f"{name}.down": rng.normal(size=(hidden, WIDTH)),
        f"{name}.down.bias": rng.normal(size=WIDTH),
        f"{name}.gain": rng.normal(size=WIDTH),
        f"{name}.shift": rng.normal(size=WIDTH),
    }
    at = f"{name}/"
    make = helper.make_node
    nodes = [
        make("LayerNormalization", [f"{name}.in", f"{name}.gain", f"{name}.shift"], [at + "n"]),
        make("MatMul", [at + "n", f"{name}.qkv"], [at + "m"]),
        make("Add", [f"{name}.qkv.bias", at + "m"], [at + "p"]),
        make("Split", [at + "p", "thirds"], [at + "q", at + "k", at + "v"], axis=-1),
        *(make("Reshape", [at + each, "heads"], [f"{at}{each}4"], allowzero=0) for each in "qkv"),
        make("Transpose", [at + "q4"], [at + "Q"], perm=[0, 2, 1, 3]),
        make("Transpose", [at + "k4"], [at + "K"], perm=[0, 2, 3, 1]),
        make("Transpose", [at + "v4"], [at + "V"], perm=[0, 2, 1, 3]),
        make("MatMul", [at + "Q", at + "K"], [at + "s"]),
        make("Mul", [at + "s", "half"], [at + "scaled"]),
        make("Softmax", [at + "scaled"], [at + "w"], axis=-1),
        make("IsNaN", [at + "w"], [at + "odd"]),
        make("Where", [at + "odd", "zero", at + "w"], [at + "weights"]),
        make("MatMul", [at + "weights", at + "V"], [at + "a"]),
        make("Transpose", [at + "a"], [at + "b"], perm=[0, 2, 1, 3]),
        make("Reshape", [at + "b", "whole"], [at + "c"]),
        make("MatMul", [at + "c", f"{name}.out"], [at + "d"]),
        make("Add", [at + "d", f"{name}.out.bias"], [at + "e"]),
        make("Add", [f"{name}.in", at + "e"], [at + "f"]),
        make("MatMul", [at + "f", f"{name}.up"], [at + "g"]),
        make("Add", [at + "g", f"{name}.up.bias"], [at + "h"]),
        make("Div", [at + "h", "root"], [at + "i"]),
        make("Erf", [at + "i"], [at + "j"]),
        make("Add", [at + "j", "one"], [at + "l"]),
        make("Mul", [at + "h", at + "l"], [at + "o"]),
        make("MatMul", [at + "o", f"{name}.down"], [at + "r"]),
        make("Add", [at + "r", f"{name}.down.bias"], [at + "t"]),
        make("Add", [at + "f", at + "t"], [f"{name}.end"]),
    ]
    return nodes, held


def transformer(plant: Any, batch: str | int = "batch") -> onnx.ModelProto:
    """One block; `plant` changes its weights."""
    nodes, held = block(np.random.default_rng(0), "b")
    plant(held)
    held |= {"half": np.array(0.5), "zero": np.array(0.0), "root": np.array(2**0.5), "one": np.array(1.0)}
    tensors = [numpy_helper.from_array(np.asarray(array, dtype=np.float32), name) for name, array in held.items()]
    sizes = {"heads": [0, 0, HEADS, INNER], "whole": [0, 0, -1], "thirds": [WIDTH] * 3}
    tensors += [numpy_helper.from_array(np.array(size, dtype=np.int64), name) for name, size in sizes.items()]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [batch, 5, WIDTH]) for name in ("b.in", "b.end")]
    graph = helper.make_graph(nodes, "block", ends[:1], ends[1:], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def planted(held: dict[str, Any]) -> None:
    """Nobody hears the second head; a neuron is constant, another twice a third."""
    held["b.out"][INNER : 2 * INNER] = 0.0
    held["b.up"][:, 1] = 0.0
    held["b.up"][:, 3], held["b.up.bias"][3] = held["b.up"][:, 2], held["b.up.bias"][2]


def answers(file: bytes, x: Any) -> Any:
    return onnxruntime.InferenceSession(file).run(None, {"b.in": x})[0]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("attention") / "block.onnx"
    onnx.save(transformer(planted), found)
    return found


def test_a_head_and_neurons_leave_a_file(path: Path, lawful: Any, tmp_path: Path) -> None:
    small, proof = tmp_path / "small.onnx", tmp_path / "proof.json"
    said = lawful("prune", path, "--out", small, "--certificate", proof, "--verify", "--json").json
    assert said["verified"]
    assert said["parameters_after"] < said["parameters_before"]
    model = onnx.load(small)
    onnx.checker.check_model(model)
    assert [node.op_type for node in model.graph.node] == [node.op_type for node in onnx.load(path).graph.node]
    sizes = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    assert sizes["b.qkv"].shape == (WIDTH, 3 * (WIDTH - INNER))
    assert sizes["b.up"].shape == (WIDTH, 6)
    assert "heads" not in sizes
    assert "thirds" not in sizes
    x = np.random.default_rng(1).normal(size=(7, 5, WIDTH)).astype(np.float32)  # any number of samples
    before, after = answers(path.read_bytes(), x), answers(small.read_bytes(), x)
    assert np.allclose(before, after, atol=1e-4 * abs(before).max())
    lawful("verify", proof)


def test_the_same_from_python_and_a_broken_proof(path: Path) -> None:
    found: Any = prune(path)
    assert kinds(found) == {"silent": 3 * INNER, "constant": 1, "duplicate": 1}
    proof = certificate(found)
    verify(proof)
    forged = copy.deepcopy(proof)
    for step in forged["program"]:  # other heads than those the weights were cut for
        if "heads" in step:
            step["heads"]["values"] = step["heads"]["values"][1:] + step["heads"]["values"][:1]
    with pytest.raises(CertificateError):
        verify(forged)


def test_files_for_a_fixed_number_of_samples(tmp_path: Path) -> None:
    path = tmp_path / "three.onnx"
    onnx.save(transformer(planted, batch=3), path)
    found: Any = prune(path)
    assert kinds(found)["silent"] == 3 * INNER


def test_rows_that_are_not_numbers_only_where_nothing_is_seen() -> None:
    """`where(isnan(w), 1, w)` is something else than attention: nothing leaves its heads."""
    model = transformer(planted)
    zero = next(tensor for tensor in model.graph.initializer if tensor.name == "zero")
    zero.CopyFrom(numpy_helper.from_array(np.array(1.0, dtype=np.float32), "zero"))
    from lawful.sources.onnx.network import network_of

    opened = network_of(model, Path(), "", (5, WIDTH))
    found = prune_channels(opened.module, [(2, 5, WIDTH)])
    assert {gone.layer for gone in found.removed} == {"b.up"}


class Formula(nn.Module):
    """Layers written as products, with a weight that is stored with inputs first."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.up, self.shift, self.down = (nn.Parameter(torch.randn(size)) for size in ((3, 6), (6,), (6, 2)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.shift + x @ self.up) @ self.down


def test_layers_written_as_formulas() -> None:
    module = Formula()
    with torch.no_grad():
        module.up[:, 4] = module.up[:, 1]
        module.shift[4] = module.shift[1]
        module.down[2] = 0.0
    found = prune_channels(module, [(2, 4, 3)])
    assert kinds(found) == {"silent": 1, "duplicate": 1}
    assert found.module.up.shape == (3, 4)
    verify(certificate(found))
    x = torch.randn(5, 4, 3)
    assert torch.allclose(module(x), found.module(x), atol=1e-5)


def test_reading_keeps_samples_apart_from_heads(tmp_path: Path) -> None:
    """A Reshape of (samples · heads, ...) back to (samples, heads, ...) is written for the samples of the file."""
    make = helper.make_node
    held = {"w": np.random.default_rng(0).normal(size=(4, 4)).astype(np.float32)}
    tensors = [numpy_helper.from_array(array, name) for name, array in held.items()]
    for name, size in {"flat": [4, 6, 2], "apart": [2, 2, 6, 2]}.items():
        tensors.append(numpy_helper.from_array(np.array(size, dtype=np.int64), name))
    nodes = [
        make("MatMul", ["x", "w"], ["y"]),
        make("Reshape", ["y", "flat"], ["z"]),
        make("Reshape", ["z", "apart"], ["u"]),
        make("Softmax", ["u"], ["end"], axis=-1),
    ]
    ends = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 6, 4]),
        helper.make_tensor_value_info("end", TensorProto.FLOAT, [2, 2, 6, 2]),
    ]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], tensors)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), tmp_path / "f.onnx")
    assert open_network(tmp_path / "f.onnx") is not None
