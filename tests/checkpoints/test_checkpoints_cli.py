"""`lawful align` and `lawful same` on checkpoints, as users meet them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from checkpoints.models import make
from safetensors.torch import load_file, save_file

GPT = ("--model", "checkpoints.models:gpt", "--input", "3:int")
RESNET = ("--model", "checkpoints.models:resnet", "--input", "3,8,8")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for family in ("gpt", "resnet"):
        state = make(family).state_dict()
        save_file({name: tensor.contiguous() for name, tensor in state.items()}, tmp_path / f"{family}.safetensors")
    return tmp_path


@pytest.mark.parametrize(("family", "options"), [("gpt", GPT), ("resnet", RESNET)])
def test_a_disguise_is_made_aligned_found_equal_and_verified(
    lawful: Callable[..., Any], folder: Path, family: str, options: tuple[str, ...]
) -> None:
    a, b, c = f"{family}.safetensors", "b.safetensors", "c.safetensors"
    lawful("symmetries", a, *options, "--mode", "eval", "--no-check", "--apply", "3", "--out", b)
    found = lawful("align", a, b, *options, "--out", c, "--json").json
    assert found["before"] > 0.01
    assert found["after"] < 1e-6
    one, three = load_file(folder / a), load_file(folder / c)
    assert all((one[name] - three[name]).abs().max() < 1e-5 for name in one if one[name].is_floating_point())
    same = lawful("same", a, b, *options, "--certificate", "c.json", "--json").json
    assert (same["verdict"], same["certified"], same["within"]["kind"]) == ("equal", True, "sums")
    assert {"reason", "counterexample", "witness", "domain", "seconds", "tolerance", "method"} <= set(same)
    seen = lawful("verify", "c.json", a, b, "--json").json
    assert seen["valid"]
    assert seen["given"] == [0, 1]
    lawful("verify", "c.json", a, a, code=1)
    assert seen["facts"]["function"]
    bound = lawful("verify", "c.json", a, b, *options).stdout
    assert f"its program is the one that {options[1]} exports" in bound
    proof = json.loads((folder / "c.json").read_text())
    proof["program"]["outputs"] = proof["program"]["outputs"] * 2  # true of another program
    (folder / "other.json").write_text(json.dumps(proof))
    assert lawful("verify", "other.json", a, b).stdout.startswith("verified")
    refused = lawful("verify", "other.json", a, b, *options, code=1).stdout
    assert f"is not that of {options[1]}" in refused


def test_different_checkpoints_are_told_with_an_input(lawful: Callable[..., Any], folder: Path) -> None:
    state = load_file(folder / "gpt.safetensors")
    state["blocks.0.up.weight"][0, 0] *= 1.5
    save_file(state, folder / "b.safetensors")
    said = lawful("same", "gpt.safetensors", "b.safetensors", *GPT, code=1).stdout
    assert said.startswith("DIFFERENT")
    assert "blocks.0.up.weight" in said
    found = lawful("same", "gpt.safetensors", "b.safetensors", *GPT, "--json", code=1).json
    assert found["counterexample"]["gap"] > 30 * found["counterexample"]["rounding"]


def test_small_smooth_networks_are_compared(lawful: Callable[..., Any], folder: Path) -> None:
    import torch

    torch.manual_seed(0)
    state = {"0.weight": torch.randn(5, 3), "0.bias": torch.randn(5), "2.weight": torch.randn(2, 5)}
    save_file(state, folder / "a.safetensors")
    order = [4, 2, 0, 1, 3]
    turned = {"0.weight": -state["0.weight"][order], "0.bias": -state["0.bias"][order],
              "2.weight": -state["2.weight"][:, order]}  # fmt: skip
    save_file({name: tensor.contiguous() for name, tensor in turned.items()}, folder / "b.safetensors")
    found = lawful("same", "a.safetensors", "b.safetensors", "--activation", "tanh", "--json").json
    assert (found["verdict"], found["within"]["kind"]) == ("equal", "exactly")
    lawful("same", "a.safetensors", "b.safetensors", "--activation", "gelu", code=1)


def test_bad_checkpoints_are_one_line(lawful: Callable[..., Any], folder: Path) -> None:
    whole = (folder / "gpt.safetensors").read_bytes()
    (folder / "cut.safetensors").write_bytes(whole[: len(whole) // 2])
    for verb, other in (("same", "cut"), ("same", "resnet"), ("align", "missing")):
        said = lawful(verb, "gpt.safetensors", f"{other}.safetensors", *GPT, code=2).stderr
        assert len(said.splitlines()) == 1
        assert f"{other}.safetensors" in said
