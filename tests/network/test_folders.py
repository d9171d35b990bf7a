"""Folders of transformers as people have them: other rotary embeddings, several inputs, no architecture named."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from command_line import in_process
from safetensors.torch import load_file, save_file

import lawful
from lawful.errors import LawfulError

pytestmark = pytest.mark.filterwarnings("ignore")
SIZES = {"vocab_size": 24, "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2,
         "max_position_embeddings": 32}  # fmt: skip
LONG = {"short_factor": [1.0, 1.5], "long_factor": [2.0, 3.0], "original_max_position_embeddings": 16}
SPEECH = {"vocab_size": 24, "d_model": 8, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2,
          "decoder_attention_heads": 2, "encoder_ffn_dim": 8, "decoder_ffn_dim": 8, "num_mel_bins": 4,
          "max_source_positions": 6, "max_target_positions": 8, "pad_token_id": 0, "bos_token_id": 1,
          "eos_token_id": 2, "decoder_start_token_id": 1}  # fmt: skip


@pytest.fixture(scope="module")
def transformers() -> Any:
    found = pytest.importorskip("transformers")
    from lawful.sources.checkpoints.load import let_torchvision_load

    let_torchvision_load()
    found.utils.logging.disable_progress_bar()
    torch.manual_seed(0)
    return found


def save(model: Any, folder: Path, **settings: Any) -> Path:
    """A folder of a model, with settings changed, or taken out where they are None."""
    model.eval().save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text()) | settings
    (folder / "config.json").write_text(json.dumps({key: value for key, value in config.items() if value is not None}))
    return folder


def change(folder: Path, name: str) -> Path:
    """A copy of a folder with another number in one of its tensors."""
    other = folder.with_name(f"{folder.name}-changed")
    shutil.copytree(folder, other)
    state = load_file(folder / "model.safetensors")
    state[name] = state[name].clone()
    state[name].view(-1)[0] += 0.5
    save_file(state, other / "model.safetensors", {"format": "pt"})
    return other


@pytest.mark.parametrize("rope", [{"rope_type": "dynamic", "factor": 2.0}, {"rope_type": "longrope", **LONG}])
def test_frequencies_depend_on_the_length_alone(transformers: Any, tmp_path: Path, rope: dict[str, Any]) -> None:
    """Whatever was computed before: a module of transformers keeps the frequencies of the longest input so far."""
    config = transformers.LlamaConfig(**SIZES, rope_parameters={"rope_theta": 100.0, **rope})
    folder = save(transformers.LlamaForCausalLM(config), tmp_path / "a")
    module = lawful.open(folder).module
    for length in (4, 48, 40, 4):
        tokens = torch.arange(length)[None] % 24
        for start in (0, 20):
            options = {"position_ids": torch.arange(start, start + length)[None]} if start else {}
            fresh = transformers.LlamaForCausalLM.from_pretrained(folder).eval()
            with torch.no_grad():
                assert torch.equal(module(tokens, **options), fresh(tokens, use_cache=False, **options).logits)
    for length in (4, 40):
        answer = lawful.symmetries(lawful.open(folder), input=f"{length}:int")
        assert "not checked" not in str(answer)
    assert in_process("same", folder, folder, "--input", "40:int").stdout.startswith("EQUAL exactly")
    other = change(folder, "model.layers.0.mlp.down_proj.weight")
    run = in_process("same", folder, other)
    assert (run.returncode, run.stdout[:9]) == (1, "DIFFERENT")


def test_equal_at_short_inputs_is_not_equal(transformers: Any, tmp_path: Path) -> None:
    """Short inputs see no difference of dynamic frequencies and plain ones: long ones do."""
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES))
    plain = save(model, tmp_path / "plain")
    scaled = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0}
    dynamic = save(model, tmp_path / "dynamic", rope_parameters=scaled)
    run = in_process("same", plain, dynamic)
    assert run.returncode == 1
    assert "an input of 33 tokens tells them apart" in run.stdout


def make_pair(transformers: Any, name: str) -> tuple[Any, str]:
    if name == "t5":
        sizes = {"vocab_size": 24, "d_model": 8, "d_kv": 4, "d_ff": 8, "num_layers": 1, "num_heads": 2}
        config = transformers.T5Config(**sizes, decoder_start_token_id=0)
        return transformers.T5ForConditionalGeneration(config), "decoder.block.0.layer.2.DenseReluDense.wo.weight"
    if name == "whisper":
        model = transformers.WhisperForConditionalGeneration(transformers.WhisperConfig(**SPEECH))
        return model, "model.decoder.layers.0.fc2.weight"
    text = SIZES | {"max_position_embeddings": 8, "bos_token_id": 1, "eos_token_id": 2}
    vision = {key: SIZES[key] for key in list(SIZES)[1:5]} | {"image_size": 4, "patch_size": 2}
    config = transformers.CLIPConfig(text_config=text, vision_config=vision, projection_dim=4)
    return transformers.CLIPModel(config), "vision_model.encoder.layers.0.mlp.fc2.weight"


@pytest.mark.parametrize("name", ["t5", "whisper", "clip"])
def test_two_networks_of_several_inputs_are_compared(transformers: Any, tmp_path: Path, name: str) -> None:
    model, tensor = make_pair(transformers, name)
    folder = save(model, tmp_path / "a")
    other = change(folder, tensor)
    assert in_process("same", folder, folder).stdout.startswith("EQUAL exactly")
    run = in_process("same", folder, other)
    assert (run.returncode, run.stdout[:9]) == (1, "DIFFERENT")
    assert tensor in run.stdout


def test_inputs_by_name(transformers: Any, tmp_path: Path) -> None:
    folder = save(make_pair(transformers, "t5")[0], tmp_path / "a")
    run = in_process("symmetries", folder, "--input", "input_ids=6:int,decoder_input_ids=3:int", "--json")
    assert run.returncode == 0, run.stderr
    assert "its inputs are input_ids, decoder_input_ids" in in_process("symmetries", folder, "--input", "x=3").stderr


def test_tensors_name_an_architecture_that_no_setting_names(transformers: Any, tmp_path: Path) -> None:
    config = transformers.LlamaConfig(**SIZES, tie_word_embeddings=True)
    headed = transformers.LlamaForCausalLM(config).eval()
    tokens = np.arange(4)[None]
    for model, name in ((headed, "LlamaForCausalLM"), (headed.model, "LlamaModel")):
        network = lawful.open(save(model, tmp_path / name, architectures=None))
        assert type(network.module).__name__ == name  # also where tied weights leave no tensor of the head
        assert any(name in words for words in network.reading.assumed)
        with torch.no_grad():
            assert torch.equal(network.module(torch.tensor(tokens)), model(torch.tensor(tokens))[0])


def test_architectures_with_the_same_tensors_are_asked_for(transformers: Any, tmp_path: Path) -> None:
    """With one label, BertForSequenceClassification and BertForMultipleChoice have the same tensors."""
    config = transformers.BertConfig(**SIZES, num_labels=1)
    folder = save(transformers.BertForSequenceClassification(config), tmp_path / "a", architectures=None)
    with pytest.raises(LawfulError, match=r"names no architecture.*BertForMultipleChoice.*add the right one"):
        lawful.open(folder)


def test_settings_that_transformers_refuses_are_said(transformers: Any, tmp_path: Path) -> None:
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES))
    folder = save(model, tmp_path / "a", rope_parameters={"rope_type": "longrope", "rope_theta": 10000.0})
    with pytest.raises(LawfulError, match=r"transformers refuses its config\.json.*factor"):
        lawful.open(folder)
    with pytest.raises(LawfulError, match=r"knows no model_type 'llamma'.*--model"):
        lawful.open(save(model, tmp_path / "b", model_type="llamma"))


def test_with_and_without_a_head_are_compared_by_the_part_that_both_have(transformers: Any, tmp_path: Path) -> None:
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES))
    headed, bare = save(model, tmp_path / "headed"), save(model.model, tmp_path / "bare")
    run = in_process("same", headed, bare)
    assert run.returncode == 2
    assert "AutoModel.from_pretrained(A).save_pretrained(FOLDER)" in run.stderr
    transformers.AutoModel.from_pretrained(headed).save_pretrained(tmp_path / "body")
    assert in_process("same", tmp_path / "body", bare).stdout.startswith("EQUAL exactly")
