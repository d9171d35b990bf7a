"""Checkpoints are loaded into the module that the user names, strictly and without rounding."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch

import lawful as package
from lawful.errors import InvalidNetwork, LawfulError
from lawful.network import Mlp

BATCH = np.random.default_rng(0).normal(size=(16, 3))
PREFIXES = ("", "module.", "_orig_mod.", "model.", "module._orig_mod.", "model.module.")


@pytest.mark.parametrize("prefix", PREFIXES)
def test_checkpoints_are_loaded_into_the_users_module(nets: Any, tmp_path: Path, prefix: str) -> None:
    net = nets.ActorCritic()
    state = {f"{prefix}{name}": tensor for name, tensor in net.state_dict().items()}
    torch.save(state, tmp_path / "a.pt")
    safetensors.torch.save_file(state, tmp_path / "a.safetensors")
    settings = {"lr": 0.1, "steps": [1, 2]}
    torch.save({"state_dict": state, "epoch": 2, "hyper_parameters": settings}, tmp_path / "a.ckpt")
    batch = np.random.default_rng(1).normal(size=(8, 4))
    expected = net.double()(torch.tensor(batch)).detach().numpy()
    for name in ("a.pt", "a.safetensors", "a.ckpt"):
        found = package.open(tmp_path / name, model="reading_nets:ActorCritic")
        assert np.abs(found.evaluate(batch) - expected).max() < 1e-12
        assert found.reading.assumed == ()
        said = " ".join(found.reading.ignored)
        assert (repr(prefix) in said) == bool(prefix)
        assert ("epoch" in said) == (name == "a.ckpt")
    assert np.abs(package.open(state, model=nets.ActorCritic).evaluate(batch) - expected).max() < 1e-12


def test_a_checkpoint_that_does_not_fit_is_refused_by_name(nets: Any, tmp_path: Path) -> None:
    state = nets.Net().state_dict()
    wrong: dict[str, Callable[[], dict[str, torch.Tensor]]] = {
        "the module has no extra": lambda: {**state, "extra": torch.ones(1)},
        "the checkpoint has no fc2.bias": lambda: {k: v for k, v in state.items() if k != "fc2.bias"},
        r"fc1.weight is \(5, 4\), and the module's is \(5, 3\)": lambda: {**state, "fc1.weight": torch.ones(5, 4)},
        "fc2.bias holds int64 numbers": lambda: {**state, "fc2.bias": torch.tensor([2**24 + 1, 1])},
    }
    for words, make in wrong.items():
        torch.save(make(), tmp_path / "a.pt")
        with pytest.raises(InvalidNetwork, match=words):
            package.open(tmp_path / "a.pt", model="reading_nets:Net")
    torch.save(state, tmp_path / "a.pt")
    for model, words in (
        ("reading_nets:broken", "no weights today"),
        ("reading_nets:absent", "cannot import"),
        ("nonsense", "is no factory"),
        ("reading_nets:torch", "not a factory"),
    ):
        with pytest.raises(LawfulError, match=words):
            package.open(tmp_path / "a.pt", model=model)


def test_a_tied_name_may_be_missing(nets: Any) -> None:
    net = nets.Tied()
    state = net.state_dict()
    del state["out.weight"]
    found = package.open(state, model=nets.Tied)
    expected = net.double()(torch.tensor(BATCH)).detach().numpy()
    assert np.abs(found.evaluate(BATCH) - expected).max() < 1e-12
    assert found.reading.entangled == ("into.weight is used more than once",)


def test_weights_in_float64_are_not_rounded_by_a_float32_module(nets: Any) -> None:
    state = {name: tensor.double() + 1e-12 for name, tensor in nets.Net().state_dict().items()}
    found = package.open(state, model=nets.Net)
    assert np.array_equal(found.weights[0], state["fc1.weight"].numpy())


def test_shards_with_an_index(nets: Any, tmp_path: Path) -> None:
    state = nets.Net().state_dict()
    parts = [("one.safetensors", ["fc1.weight", "fc1.bias"]), ("two.safetensors", ["fc2.weight", "fc2.bias"])]
    for name, keys in parts:
        safetensors.torch.save_file({key: state[key] for key in keys}, tmp_path / name)
    index = tmp_path / "model.safetensors.index.json"
    where = ", ".join(f'"{key}": "{name}"' for name, keys in parts for key in keys)
    index.write_text('{"metadata": {}, "weight_map": {' + where + "}}")
    for source in (index, tmp_path):
        found = package.open(source, model="reading_nets:Net")
        assert np.array_equal(found.weights[1], state["fc2.weight"].double().numpy())
    plain = package.open(index)
    assert np.array_equal(plain.weights[1], state["fc2.weight"].double().numpy())
    assert "ReLU between the layers fc1, fc2" in plain.reading.assumed[0]
    index.write_text('{"weight_map": {"fc1.weight": "../one.safetensors"}}')
    with pytest.raises(InvalidNetwork, match="not followed"):
        package.open(index, model="reading_nets:Net")


def test_one_name_of_a_shared_tensor_may_be_missing_but_not_differ(nets: Any, tmp_path: Path) -> None:
    """The module holds one tensor: of two in the file it would silently be the last."""
    module = nets.Net()
    module.fc3 = torch.nn.Linear(3, 5)
    module.fc3.weight = module.fc1.weight
    state = module.state_dict()
    for change in (lambda: None, lambda: state.pop("fc3.weight")):
        change()
        assert isinstance(package.open(state, model=lambda: copy.deepcopy(module)), Mlp)
    state["fc3.weight"] = state["fc1.weight"] + 1
    with pytest.raises(InvalidNetwork, match=r"one tensor for .*fc1.weight.*different numbers"):
        package.open(state, model=lambda: copy.deepcopy(module))
