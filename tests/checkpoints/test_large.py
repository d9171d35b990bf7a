"""What large modules need: tensors made one by one, graphs carried out call by call, modules without weights."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from checkpoints.conftest import architecture, disguise, narrow
from checkpoints.models import FAMILIES, make
from safetensors.torch import save_file

from lawful.checkpoints import architecture as reading
from lawful.checkpoints import streamed
from lawful.checkpoints.folds import fold
from lawful.checkpoints.opening import open_checkpoints
from lawful.checkpoints.replay import replay
from lawful.checkpoints.same import same_checkpoints
from lawful.checkpoints.streamed import MadeTensors, folded_tensors


@pytest.mark.parametrize("family", FAMILIES)
def test_the_graph_computes_what_the_module_computes(family: str) -> None:
    found = architecture(family)
    many = [found.draw_inputs(seed) for seed in range(2)]
    for inputs, outputs in zip(many, replay(found.exported, found.state(), many), strict=True):
        expected = found.outputs(found.state(), inputs)
        assert all(torch.allclose(one, two, rtol=1e-6) for one, two in zip(expected, outputs, strict=True))


@pytest.mark.parametrize("family", FAMILIES)
def test_clusters_fold_like_the_whole(family: str) -> None:
    found = architecture(family)
    state = {name: t.double() if t.is_floating_point() else t for name, t in found.state().items()}
    whole, parts = fold(state, found.folds), folded_tensors(state, found.folds)
    assert all(torch.equal(whole[name], parts[name]) for name in whole)


@pytest.mark.parametrize("family", ["gpt", "llama", "resnet"])
def test_large_modules_get_the_same_answers(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With every threshold of size at nothing: no tensor is kept, nothing is read from the module."""
    monkeypatch.setattr(reading, "MANY_NUMBERS", 0)
    monkeypatch.setattr(streamed, "KEPT", 0)
    monkeypatch.setattr(streamed, "MANY", 0)
    found = reading.read_architecture(make(family), FAMILIES[family][1])
    assert found.large
    assert found.notes == ()
    for kind in (torch.float32, torch.bfloat16):
        hidden = narrow(disguise(found, found.state(), 1), kind)
        assert same_checkpoints(found, found.state(), hidden).verdict == "equal"
    name = next(name for name, shape in found.group.shapes.items() if len(shape) > 1)
    hidden = narrow(disguise(found, found.state(), 1), torch.float32)
    hidden[name] = hidden[name] * 1.01
    assert same_checkpoints(found, found.state(), hidden).verdict == "different"


def test_made_tensors_are_kept_up_to_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streamed, "KEPT", 100)
    made: list[str] = []

    def make_one(name: str) -> dict[str, torch.Tensor]:
        made.append(name)
        return {name: torch.zeros(10)}

    tensors = MadeTensors("abc", make_one)
    for name in "aabbcc":
        assert tensors[name].shape == (10,)
    assert tensors["b"].shape == (10,)
    assert made == ["a", "b", "c"]
    assert tensors["a"].shape == (10,)  # was let go: two have room
    tensors.forget("a")
    assert tensors["a"].shape == (10,)
    assert made == ["a", "b", "c", "a", "a"]
    with pytest.raises(KeyError):
        tensors["d"]


def test_a_large_folder_of_hugging_face_is_read_without_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    transformers = pytest.importorskip("transformers")
    monkeypatch.setattr(reading, "MANY_NUMBERS", 0)
    monkeypatch.setattr("lawful.checkpoints.opening.MANY_NUMBERS", 0)
    settings = {"vocab_size": 60, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
                "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 32}  # fmt: skip
    config = transformers.LlamaConfig(**settings, architectures=["LlamaForCausalLM"])
    torch.manual_seed(0)
    module = transformers.LlamaForCausalLM(config)
    for name in ("a", "b"):
        module.save_pretrained(tmp_path / name)
    pair = open_checkpoints(tmp_path / "a", tmp_path / "b")
    assert pair.architecture.large
    hidden = disguise(pair.architecture, pair.first.state, 2)
    kept = {pair.first.keys[name]: tensor.bfloat16() for name, tensor in hidden.items() if name in pair.first.keys}
    save_file(kept, tmp_path / "b" / "model.safetensors")
    verdict = same_checkpoints(pair.architecture, pair.first.state, open_checkpoints(
        tmp_path / "a", tmp_path / "b").second.state)  # fmt: skip
    assert verdict.verdict == "equal"
