"""Checkpoints in several files: read with their index, never one alone, and written back as they were."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import nn

import lawful as package
from lawful.errors import InvalidNetwork, LawfulError, Unsupported
from lawful.sources.checkpoints.save import write_weights
from lawful.sources.files import write

INDEX = "model.safetensors.index.json"
SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2))


def sharded(folder: Path, state: dict[str, torch.Tensor], prefix: str = "") -> Path:
    """A folder as Hugging Face makes it: two shards, an index, a configuration, a hidden file."""
    folder.mkdir()
    named = {f"{prefix}{name}": tensor for name, tensor in state.items()}
    names = list(named)
    homes = {name: SHARDS[number >= len(names) // 2] for number, name in enumerate(names)}
    for shard in SHARDS:
        part = {name: named[name] for name in names if homes[name] == shard}
        safetensors.torch.save_file(part, folder / shard, {"format": "pt"})
    (folder / INDEX).write_text(json.dumps({"metadata": {"total_size": 1, "note": "x"}, "weight_map": homes}))
    (folder / "config.json").write_text("{}")
    (folder / ".cache").write_text("")
    return folder


def held(folder: Path) -> dict[str, torch.Tensor]:
    """All tensors of the shards that the index names."""
    homes = json.loads((folder / INDEX).read_text())["weight_map"]
    found: dict[str, torch.Tensor] = {}
    for shard in set(homes.values()):
        part = safetensors.torch.load_file(folder / shard)
        assert {name for name, home in homes.items() if home == shard} == set(part)
        found |= part
    return found


def test_one_shard_alone_is_refused(tmp_path: Path) -> None:
    """Its layers would pass for a network."""
    folder = sharded(tmp_path / "net", net().state_dict())
    with pytest.raises(Unsupported, match=r"shard 1 of 2: give the index \(model.safetensors.index.json\)"):
        package.open(folder / SHARDS[0])
    with pytest.raises(Unsupported, match="shard 1 of 2"):
        package.open(folder / SHARDS[0], activation="tanh")


def test_a_missing_or_doubled_shard_is_named(tmp_path: Path) -> None:
    folder = sharded(tmp_path / "net", net().state_dict())
    index = json.loads((folder / INDEX).read_text())
    safetensors.torch.save_file(held(folder), folder / SHARDS[1])
    with pytest.raises(InvalidNetwork, match="in two shards"):
        package.open(folder / INDEX)
    (folder / SHARDS[1]).unlink()
    with pytest.raises(InvalidNetwork, match=r"00002-of-00002\.safetensors is missing"):
        package.open(folder / INDEX)
    index["weight_map"]["0.weight"] = "../other.safetensors"
    (folder / INDEX).write_text(json.dumps(index))
    with pytest.raises(InvalidNetwork, match="not followed"):
        package.open(folder / INDEX)


def test_a_chain_comes_back_as_the_same_shards(lawful: Any, tmp_path: Path) -> None:
    folder = sharded(tmp_path / "net", net().state_dict())
    options = ("--activation", "relu", "--out", tmp_path / "new")
    said = lawful("rebalance", folder / INDEX, *options, "--json").json
    assert said["stored"]["dtype"] == "float32"
    assert "each rounded by at most" in said["stored"]["note"]
    new = held(tmp_path / "new")
    twin = net()
    twin.load_state_dict(new, strict=True)
    batch = torch.randn(20, 3)
    assert torch.allclose(twin(batch), net()(batch), atol=1e-5)
    assert {name: tensor.dtype for name, tensor in new.items()} == dict.fromkeys(net().state_dict(), torch.float32)
    assert sorted(file.name for file in (tmp_path / "new").iterdir()) == sorted((*SHARDS, INDEX, "config.json"))
    index = json.loads((tmp_path / "new" / INDEX).read_text())
    assert index["metadata"] == {"total_size": 4 * (15 + 5 + 10 + 2), "note": "x"}
    with safetensors.safe_open(tmp_path / "new" / SHARDS[0], "pt") as file:
        assert file.metadata() == {"format": "pt"}
    assert not torch.equal(new["0.weight"], net().state_dict()["0.weight"])


@pytest.mark.parametrize("prefix", ["", "module.", "_orig_mod.module."])
def test_a_module_comes_back_under_the_names_of_its_folder(prefix: str, tmp_path: Path) -> None:
    state = {name: tensor.to(torch.bfloat16) for name, tensor in net().state_dict().items()}
    folder = sharded(tmp_path / "net", state, prefix)
    moved = {name: (2 * tensor).double() for name, tensor in state.items()}
    for source, out in ((folder, tmp_path / "a"), (folder / INDEX, tmp_path / "b")):
        write_weights(moved, out, like=source)
        found = held(out)
        assert list(found) == [f"{prefix}{name}" for name in state] or set(found) == {f"{prefix}{n}" for n in state}
        for name, tensor in state.items():
            assert torch.equal(found[f"{prefix}{name}"], 2 * tensor)
            assert found[f"{prefix}{name}"].dtype == torch.bfloat16
    with pytest.raises(LawfulError, match="exists already"):
        write_weights(moved, tmp_path / "a", like=folder)
    write_weights(moved, tmp_path / "one.safetensors", like=folder)
    assert set(safetensors.torch.load_file(tmp_path / "one.safetensors")) == {f"{prefix}{name}" for name in state}


@pytest.mark.parametrize("ending", [".pt", ".ckpt", ".bin", ".safetensors"])
def test_a_file_comes_back_under_its_own_names(ending: str, tmp_path: Path) -> None:
    state = {f"module.{name}": tensor.half() for name, tensor in net().state_dict().items()}
    source = tmp_path / f"a{ending}"
    safetensors.torch.save_file(state, source) if ending == ".safetensors" else torch.save(state, source)
    write_weights(net().double().state_dict(), tmp_path / f"b{ending}", like=source)
    load = safetensors.torch.load_file if ending == ".safetensors" else torch.load
    found = load(tmp_path / f"b{ending}")
    assert {name: tensor.dtype for name, tensor in found.items()} == dict.fromkeys(state, torch.float16)
    assert all(torch.equal(found[name], tensor) for name, tensor in state.items())
    opened = package.open(source, model=net)
    assert isinstance(opened, package.Mlp)
    assert [each.name for each in opened.reading.layers] == list(state)
    write(opened, tmp_path / f"c{ending}")
    assert list(load(tmp_path / f"c{ending}")) == list(state) or ending == ".safetensors"
    with pytest.raises(LawfulError, match="the same format"):
        write_weights(
            net().state_dict(), tmp_path / ("x.pt" if ending == ".safetensors" else "x.safetensors"), like=source
        )


def test_a_shared_tensor_that_is_stored_once_stays_so_and_a_new_bias_is_added(tmp_path: Path) -> None:
    tied = {"embed.weight": torch.randn(4, 3), "head.weight": torch.zeros(4, 3)}
    tied["head.weight"] = tied["embed.weight"]
    torch.save({"embed.weight": tied["embed.weight"]}, tmp_path / "a.pt")
    write_weights({**tied, "body.bias": torch.ones(2)}, tmp_path / "b.pt", like=tmp_path / "a.pt")
    assert set(torch.load(tmp_path / "b.pt")) == {"embed.weight", "body.bias"}
    with pytest.raises(LawfulError, match=r"embed.weight is none of the module's"):
        write_weights({"other": torch.ones(2)}, tmp_path / "c.pt", like=tmp_path / "a.pt")


def test_symmetries_of_a_folder_are_applied_to_a_folder(lawful: Any, tmp_path: Path) -> None:
    (tmp_path / "shard_nets.py").write_text(
        "from torch import nn\ndef net():\n    return nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2))\n"
    )
    folder = sharded(tmp_path / "net", net().state_dict(), "model.")
    options = ("--model", "shard_nets:net", "--input", "3", "--apply", "1", "--out", "new")
    lawful("symmetries", folder, *options, cwd=tmp_path)
    assert set(held(tmp_path / "new")) == {f"model.{name}" for name in net().state_dict()}
    changed = {name.removeprefix("model."): tensor for name, tensor in held(tmp_path / "new").items()}
    one, two = (nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2)) for _ in range(2))
    one.load_state_dict(net().state_dict())
    two.load_state_dict(changed, strict=True)
    batch = torch.randn(9, 3)
    assert torch.allclose(one(batch), two(batch), atol=1e-5)
    assert not np.allclose(one[0].weight.detach(), two[0].weight.detach())
