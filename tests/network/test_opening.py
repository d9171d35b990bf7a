"""Anything a user has becomes a network that says how it was read; a guess that could be wrong is refused."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import safetensors.torch
import torch
from torch import nn

import lawful as package
from lawful.errors import InvalidNetwork, LawfulError, Unsupported
from lawful.network import Architecture, Dag, Mlp
from lawful.sources.files import read, write
from lawful.sources.modules.convert import to_module
from lawful.sources.modules.module_network import ModuleNetwork
from lawful.sources.opening import open_free, open_graph, open_trained

BATCH = np.random.default_rng(0).normal(size=(16, 3))


def all_sources(net: nn.Module, folder: Path) -> dict[str, Any]:
    """The same 3-5-2 network in every form that a user may have."""
    mlp = Mlp([net.fc1.weight.tolist(), net.fc2.weight.tolist()], [net.fc1.bias.tolist(), net.fc2.bias.tolist()])
    torch.save(net.state_dict(), folder / "net.pt")
    torch.save({"state_dict": net.state_dict(), "epoch": 1}, folder / "checkpoint")
    safetensors.torch.save_file(net.state_dict(), folder / "net.safetensors")
    for ending in (".npz", ".onnx", ".json"):
        write(mlp, folder / f"exact{ending}")
    return {
        "module": net,
        "state dict": net.state_dict(),
        "arrays": {name: tensor.numpy() for name, tensor in net.state_dict().items()},
        "mlp": mlp,
        "dag": mlp.to_dag(),
        "onnx model": onnx.load(folder / "exact.onnx"),
        "path": folder / "net.pt",
        "no ending": str(folder / "checkpoint"),
        "odd ending": str(_copied(folder / "net.pt", "weights.bin")),
        "safetensors": str(folder / "net.safetensors"),
        **{ending: str(folder / f"exact{ending}") for ending in (".npz", ".onnx", ".json")},
    }


def _copied(path: Path, name: str) -> Path:
    path.with_name(name).write_bytes(path.read_bytes())
    return path.with_name(name)


def test_every_source_is_the_same_network(nets: Any, tmp_path: Path) -> None:
    net = nets.Net()
    expected = net.double()(torch.tensor(BATCH)).detach().numpy()
    for name, source in all_sources(net.float(), tmp_path).items():
        found = package.open(source)
        assert isinstance(found, (Mlp, Dag)), name
        assert np.abs(found.evaluate(BATCH) - expected).max() < 1e-12, name
        assert found.reading is not None, name
        weights_alone = name in ("state dict", "arrays", "path", "no ending", "odd ending", "safetensors")
        assert bool(found.reading.assumed) == weights_alone, name
        if weights_alone:
            assert "ReLU between the layers fc1, fc2" in found.reading.assumed[0]
            assert open_graph(source, activation="relu").reading.assumed == ()  # type: ignore[union-attr]
            assert [each.name for each in found.reading.layers] == ["fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"]
            assert {each.dtype for each in found.reading.layers} == {"float32"}


def test_standard_input(nets: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for source in (tmp_path / "a.safetensors", tmp_path / "a.onnx", tmp_path / "a.json", tmp_path / "a.npz"):
        mlp = Mlp([[[1.0, 2.0]], [[3.0]]])
        write(mlp, source)
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(source.read_bytes())))
        found = package.open("-")
        assert np.array_equal(found.evaluate([[1.0, 1.0]]), [[9.0]])
        assert found.reading.source == "-"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
    with pytest.raises(InvalidNetwork, match="standard input is empty"):
        package.open("-")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"nonsense")))
    with pytest.raises(LawfulError, match="standard input: "):
        package.open("-")


def test_architectures_say_whether_they_name_the_activation() -> None:
    assert isinstance(package.open("3-4-2 relu"), Architecture)
    assert package.open("3-4-2 relu").reading.assumed == ()
    assert package.open("3-2").reading.assumed == ()  # no hidden neuron
    assert "ReLU" in package.open("3-4-2 bias").reading.assumed[0]
    assert "seed 5" in open_graph("3-4-2 relu", seed=5).reading.assumed[0]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "names",
    [
        {"actor.0": (8, 4), "actor.2": (4, 8), "critic.0": (8, 4), "critic.2": (1, 8)},  # fit as one chain by accident
        {"q": (8, 8), "k": (8, 8), "v": (8, 8), "o": (8, 8)},
        {"trunk": (8, 4), "policy": (8, 8), "value": (1, 8)},
        {"encoder": (2, 4), "decoder": (4, 2)},
        {"blocks.0.fc1": (4, 4), "blocks.0.fc2": (4, 4), "blocks.1.fc1": (4, 4), "blocks.1.fc2": (4, 4)},
    ],
    ids=["actor and critic", "attention", "two heads", "autoencoder", "blocks"],
)
def test_names_that_do_not_say_the_order_are_refused(names: dict[str, tuple[int, int]]) -> None:
    state = {f"{name}.weight": np.ones(shape) for name, shape in names.items()}
    with pytest.raises(InvalidNetwork, match=r"--order .* or --model"):
        package.open(state)


def test_the_users_order_is_checked() -> None:
    state = {"a.weight": np.ones((2, 3)), "b.weight": np.ones((1, 2))}
    assert package.open(state, order="a,b").widths == (3, 2, 1)
    assert package.open(state, order=["a.weight", "b"], activation="linear").reading.assumed == ()
    for order, words in (("b,a", "takes 3 inputs"), ("a", "leaves out b"), ("a,b,a", "twice"), ("a,c", "names 'c'")):
        with pytest.raises(LawfulError, match=words):
            package.open(state, order=order)


def test_a_tanh_checkpoint_is_a_module_and_not_a_graph(nets: Any) -> None:
    state = nets.Net().state_dict()
    found = package.open(state, activation="tanh")
    assert isinstance(found, ModuleNetwork)
    first, last = ((state[f"fc{n}.weight"].double(), state[f"fc{n}.bias"].double()) for n in (1, 2))
    hidden = torch.tanh(torch.tensor(BATCH) @ first[0].T + first[1])
    assert np.abs(found.evaluate(BATCH) - (hidden @ last[0].T + last[1]).numpy()).max() < 1e-12
    with pytest.raises(Unsupported, match=r"tanh is not piecewise linear\. For any module there are: show, laws"):
        found.to_dag()
    with pytest.raises(InvalidNetwork, match="activations are relu"):
        package.open(state, activation="nonsense")


def test_numbers_in_words_count_every_layer() -> None:
    """fc21 and fc22 are two heads of an autoencoder, not layers 21 and 22."""
    square = np.eye(3)
    for names in (("fc1", "fc21", "fc22", "fc3"), ("l1", "l3")):
        with pytest.raises(InvalidNetwork, match="do not say how"):
            package.open({f"{name}.weight": square for name in names})
    for names in (("0", "3"), ("net.1", "net.4", "net.12"), ("fc9", "fc10", "fc11")):
        found = package.open({f"{name}.weight": square for name in names}, activation="relu")
        assert [each.name for each in found.reading.layers] == [f"{name}.weight" for name in names]
        assert found.reading.assumed == ()
    blocks = package.open({f"blocks.{number}.fc.weight": square for number in (0, 1)}, activation="relu")
    assert "no skips" in blocks.reading.assumed[0]


def test_one_layer_alone_is_assumed_to_be_all() -> None:
    assert "nothing before or after" in package.open({"weight": np.eye(2)}).reading.assumed[0]
    assert package.open({"weight": np.eye(2)}, activation="linear").reading.assumed == ()


def test_pickles_and_programs_are_refused_with_the_way_out(nets: Any, tmp_path: Path) -> None:
    torch.save(nets.Net(), tmp_path / "whole.pt")
    with pytest.raises(LawfulError, match=r"state_dict\(\)"):
        package.open(tmp_path / "whole.pt")
    torch.jit.script(nets.Net()).save(str(tmp_path / "script.pt"))
    with pytest.raises(InvalidNetwork, match=r"TorchScript is not read.*state_dict\(\)"):
        package.open(tmp_path / "script.pt")
    torch.save(nets.Net(), tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    with pytest.raises(LawfulError, match=r"state_dict\(\)"):
        package.open(tmp_path / "old.pt")
    (tmp_path / "model.h5").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(100))
    with pytest.raises(Unsupported, match="ONNX"):
        package.open(tmp_path / "model.h5")


def test_settings_of_a_trainer_are_inert(nets: Any, tmp_path: Path) -> None:
    import argparse

    state = nets.Net().state_dict()
    torch.save({"state_dict": state, "hyper_parameters": argparse.Namespace(lr=0.1)}, tmp_path / "a.ckpt")
    found = package.open(tmp_path / "a.ckpt")
    assert found.widths == (3, 5, 2)
    assert found.reading.ignored == ("hyper_parameters (beside the weights)",)


def test_what_trains_and_what_is_only_the_same_function(nets: Any) -> None:
    conv = nets.conv()
    found = package.open(conv, input_shape=(1, 6, 6))
    assert isinstance(found, Dag)
    assert any("conv2d" in reason for reason in found.reading.entangled)
    assert open_trained(conv, input_shape=(1, 6, 6)) is conv
    with pytest.raises(Unsupported, match="unrolled"):
        open_free(conv, input_shape=(1, 6, 6))
    net = nets.Net()
    assert open_free(net).reading.entangled == ()  # type: ignore[union-attr]
    net.fc1.weight.requires_grad_(False)
    with pytest.raises(Unsupported, match="do not train"):
        open_free(net)


def test_tails_are_cut_and_said() -> None:
    for tail, name in ((nn.Softmax(1), "softmax"), (nn.LogSoftmax(1), "log_softmax"), (nn.Sigmoid(), "sigmoid")):
        module = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2), tail)
        found = package.open(module)
        assert found.reading.tail == name
        assert found.reading.assumed == (f"{name} at the end is cut off: answers are about its input",)
        expected = module[:3].double()(torch.tensor(BATCH)).detach().numpy()
        assert np.abs(found.evaluate(BATCH) - expected).max() < 1e-12
    middle = nn.Sequential(nn.Linear(3, 4), nn.Softmax(1), nn.Linear(4, 2))
    assert isinstance(package.open(middle), ModuleNetwork)


def test_the_mode_of_normalisation_is_an_assumption() -> None:
    module = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 2))
    assert "eval mode" in package.open(module).reading.assumed[0]
    assert package.open(module.eval()).reading.assumed == ()


@pytest.mark.parametrize("source", [3, None, [1, 2], b"bytes", object()])
def test_other_things_are_refused(source: object) -> None:
    with pytest.raises(LawfulError, match="cannot read a"):
        package.open(source)


def test_options_that_mean_nothing_are_refused() -> None:
    for options, words in (({"activation": "relu"}, "--activation"), ({"order": "a"}, "--order")):
        for source in ("3-4-2 relu", nn.Linear(2, 1), to_module(Mlp([[[1.0]]]))):
            with pytest.raises(LawfulError, match=f"leave out {words}"):
                package.open(source, **options)


def test_nnet_files(tmp_path: Path) -> None:
    text = """// a comment
2,2,1,3
2,3,1
0
-1.0,-1.0
1.0,1.0
0.5,0.0,0.0
2.0,1.0,1.0
1.0,2.0
-1.0,0.5
0.0,1.0
0.1
0.2
-0.3
1.0,-1.0,2.0
0.25
"""
    (tmp_path / "a.nnet").write_text(text)
    found = package.open(tmp_path / "a.nnet")
    hidden = np.maximum(np.array([[1.0, 2.0], [-1.0, 0.5], [0.0, 1.0]]) @ [0.3, -0.2] + [0.1, 0.2, -0.3], 0)
    assert np.allclose(found.evaluate([[0.3, -0.2]]), hidden @ [1.0, -1.0, 2.0] + 0.25)
    assert "scaled" in found.reading.assumed[0]
    (tmp_path / "b.nnet").write_text(text.replace("0.5,0.0,0.0\n2.0,", "0.0,0.0,0.0\n1.0,"))
    assert package.open(tmp_path / "b.nnet").reading.assumed == ()
    for wrong in (text + "1.0\n", text.replace("2,3,1", "2,3,2"), text.replace("0.25", "x"), text[:-40]):
        (tmp_path / "c.nnet").write_text(wrong)
        with pytest.raises(InvalidNetwork):
            package.open(tmp_path / "c.nnet")


def test_what_was_read_is_written(nets: Any, tmp_path: Path) -> None:
    net = nets.Net()
    torch.save(net.state_dict(), tmp_path / "a.pt")
    safetensors.torch.save_file({k: v.bfloat16() for k, v in net.state_dict().items()}, tmp_path / "a.safetensors")
    for name, kind in (("a.pt", torch.float32), ("a.safetensors", torch.bfloat16)):
        found = read(tmp_path / name)
        written = write(found, tmp_path / f"b{Path(name).suffix}")
        assert (written.rounding, written.dtype) == (0.0, str(kind).removeprefix("torch."))
        path = tmp_path / f"b{Path(name).suffix}"
        state = torch.load(path, weights_only=True) if name == "a.pt" else safetensors.torch.load_file(path)
        assert {tensor.dtype for tensor in state.values()} == {kind}
        nets.Net().load_state_dict(state, strict=True)
        again = read(path)
        assert np.array_equal(again.theta, found.theta)
        assert again.reading is not None
        assert again.reading.assumed  # what was assumed does not become a fact by being written
        moved = found.with_theta(found.theta * (1 + 2**-30))
        assert 0 < write(moved, path).relative <= 2**-8
        assert path.stat().st_size <= (tmp_path / name).stat().st_size + 64


def test_numbers_that_do_not_fit_the_type_are_refused(tmp_path: Path) -> None:
    state = {"0.weight": np.full((1, 1), 6e4, dtype=np.float16)}
    np.savez(tmp_path / "a.npz", **state)
    found = read(tmp_path / "a.npz")
    with pytest.raises(LawfulError, match="float16 cannot hold"):
        write(found.with_theta([1e6]), tmp_path / "b.npz")
    assert write(found.with_theta([1e6]), tmp_path / "b.npz", dtype="float64").dtype == "float64"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_tied_layers_of_a_checkpoint_do_not_train_apart(dtype: torch.dtype, lawful: Any, tmp_path: Path) -> None:
    """PyTorch stores one tensor for both names: the function is known, laws of two free layers would be false."""
    torch.manual_seed(0)
    one = torch.randn(3, 3).to(dtype)
    torch.save({"0.weight": one, "2.weight": one}, tmp_path / "tied.pt")
    assert "0.weight and 2.weight are one tensor" in lawful("laws", tmp_path / "tied.pt", code=2).stderr
    assert "one tensor" in lawful("rebalance", tmp_path / "tied.pt", code=2).stderr
    assert "equal" in lawful("same", tmp_path / "tied.pt", tmp_path / "tied.pt").stdout.lower()
    with pytest.raises(Unsupported, match="are one tensor"):
        package.count_laws({"0.weight": one, "2.weight": one})
    torch.save({"0.weight": one, "2.weight": one.clone()}, tmp_path / "free.pt")
    assert lawful("laws", tmp_path / "free.pt", "--json").json["laws"] == 3
    halves = torch.randn(2, 3, 3)  # one storage, but two tensors
    torch.save({"0.weight": halves[0], "2.weight": halves[1]}, tmp_path / "halves.pt")
    assert lawful("laws", tmp_path / "halves.pt", "--json").json["laws"] == 3
