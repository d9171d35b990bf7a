"""Folders of smaller networks: their config.json is for the weights in them, or is not there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import lawful
from lawful.sources.checkpoints.load import let_torchvision_load
from tests.command_line import in_process

TOKENS = torch.arange(12).reshape(2, 6)


def saved(name: str, folder: Path) -> Any:
    """A tiny model with random weights, in whose layers one group of heads and three neurons are silent."""
    transformers = pytest.importorskip("transformers")
    let_torchvision_load()
    torch.manual_seed(0)
    if name == "llama":
        model = transformers.LlamaForCausalLM(
            transformers.LlamaConfig(
                vocab_size=16, hidden_size=16, intermediate_size=12, num_hidden_layers=2, num_attention_heads=4,
                num_key_value_heads=2, max_position_embeddings=16,
            )
        )  # fmt: skip
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight.data[:, 8:] = 0.0
            layer.mlp.down_proj.weight.data[:, [1, 3, 5]] = 0.0
    else:
        model = transformers.GPT2LMHeadModel(
            transformers.GPT2Config(
                vocab_size=16, n_positions=8, n_embd=8, n_layer=3, n_head=2, bos_token_id=1, eos_token_id=1
            )
        )
        for block in model.transformer.h:
            block.mlp.c_proj.weight.data[[1, 3, 5]] = 0.0
    model.save_pretrained(folder)
    return model.eval()


def loaded(model: Any, folder: Path) -> torch.Tensor:
    """What `transformers` makes of a folder: no tensor is missing or of another size."""
    found, info = type(model).from_pretrained(folder, output_loading_info=True, local_files_only=True)
    assert not any(info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    return outputs(found)


@torch.no_grad()
def outputs(model: Any) -> torch.Tensor:
    found = model.eval()(TOKENS)
    return found if isinstance(found, torch.Tensor) else found[0]


def settings(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "config.json").read_text(encoding="utf-8")))


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("llama", {"num_attention_heads": 2, "num_key_value_heads": 1, "intermediate_size": 9}),
        ("gpt2", {"n_inner": 29}),
    ],
)
@pytest.mark.parametrize("stated", [True, False])
def test_exact_pruning_writes_a_folder_that_loads(
    name: str, sizes: dict[str, int], stated: bool, tmp_path: Path
) -> None:
    folder, out = tmp_path / "net", tmp_path / "out"
    model = saved(name, folder)
    if not stated:  # older files leave out what follows from other entries
        old = {key: value for key, value in settings(folder).items() if key not in ("head_dim", "n_inner")}
        (folder / "config.json").write_text(json.dumps(old), encoding="utf-8")
    run = in_process("prune", folder, "--out", out, "--json")
    assert run.returncode == 0, run.stderr
    before, after = settings(folder), settings(out)
    changed = {key: value for key, value in after.items() if before.get(key) != value}
    assert changed.pop("head_dim", 4) == 4
    assert changed == sizes
    assert any("from_pretrained loads it" in note for note in run.json["notes"])
    assert torch.allclose(loaded(model, out), outputs(model), atol=1e-6)


def test_a_target_that_takes_a_block_writes_a_folder_that_loads(tmp_path: Path) -> None:
    folder, out, data = tmp_path / "net", tmp_path / "out", tmp_path / "data.npz"
    model = saved("gpt2", folder)
    with torch.no_grad():
        for part in (model.transformer.h[1].mlp, model.transformer.h[1].attn):
            part.c_proj.weight.mul_(1e-4)
    model.save_pretrained(folder)
    np.savez(data, x=np.random.default_rng(0).integers(0, 16, (60, 6)))
    options = ("--input", "6:int", "--target", "params:0.66", "--data", data, "--out", out, "--json")
    run = in_process("prune", folder, *options)
    assert run.returncode == 0, run.stderr
    assert (settings(out)["n_layer"], settings(out)["n_inner"]) == (2, 29)
    same = lawful.prune(folder, input="6:int", target="params:0.66", data=data)
    assert torch.allclose(loaded(model, out), outputs(same.module), atol=1e-6)
    assert not torch.equal(outputs(same.module), outputs(model))


def test_even_sizes_have_a_config(tmp_path: Path) -> None:
    """A target alone takes other numbers of neurons from each layer; `--even` what one config.json can say."""
    folder, out, data = tmp_path / "net", tmp_path / "out", tmp_path / "data.npz"
    model = saved("llama", folder)
    with torch.no_grad():
        model.model.layers[1].mlp.down_proj.weight.mul_(1e-3)  # neurons that a target takes first
    model.save_pretrained(folder)
    np.savez(data, x=np.random.default_rng(0).integers(0, 16, (60, 6)))
    options = ("--input", "6:int", "--target", "params:0.65", "--data", data, "--no-blocks", "--out", out, "--json")
    uneven = in_process("prune", folder, *options)
    assert any("--even" in note for note in uneven.json["notes"]), uneven.json["sizes"]
    run = in_process("prune", folder, *options[:-2], tmp_path / "even", "--json", "--even")
    assert run.returncode == 0, run.stderr
    sizes = [site["after"] for site in run.json["sizes"] if "mlp" in site["name"]]
    assert len(sizes) == 2
    assert len(set(sizes)) == 1
    assert settings(tmp_path / "even")["intermediate_size"] == sizes[0]
    same = lawful.prune(folder, input="6:int", target="params:0.65", data=data, blocks=False, even=True)
    assert torch.allclose(loaded(model, tmp_path / "even"), outputs(same.module), atol=1e-6)


def test_layers_of_other_sizes_have_no_config(tmp_path: Path) -> None:
    folder, out = tmp_path / "net", tmp_path / "out"
    model = saved("llama", folder)
    model.model.layers[0].mlp.down_proj.weight.data[:, 7] = 0.0
    model.save_pretrained(folder)
    run = in_process("prune", folder, "--out", out)
    assert run.returncode == 0, run.stderr
    assert "has no config.json, so from_pretrained does not load it" in " ".join(run.stdout.split())
    assert not (out / "config.json").exists()
    assert (out / "generation_config.json").exists()


def test_a_folder_of_which_nothing_leaves_keeps_its_config(tmp_path: Path) -> None:
    folder, out = tmp_path / "net", tmp_path / "out"
    model = saved("gpt2", folder)
    for block in model.transformer.h:
        torch.nn.init.normal_(block.mlp.c_proj.weight)
    model.save_pretrained(folder)
    run = in_process("prune", folder, "--out", out)
    assert run.returncode == 0, run.stderr
    assert (out / "config.json").read_bytes() == (folder / "config.json").read_bytes()
