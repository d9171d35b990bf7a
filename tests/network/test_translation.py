"""Folders whose names or layout `transformers` translates when it loads: read, and written back as they were."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import lawful as package
from lawful.errors import InvalidNetwork, LawfulError
from lawful.sources.checkpoints.save import write_weights
from lawful.sources.checkpoints.translation import Translation
from lawful.sources.modules.module_network import ModuleNetwork

State = dict[str, torch.Tensor]
SMALL = {"hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 2, "num_attention_heads": 2}
PICTURES = {"image_size": 8, "patch_size": 4, **SMALL}
TOKENS = {"vocab_size": 12, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2}


def saved(transformers: Any, name: str, folder: Path) -> Any:
    """A small model of a family with random numbers everywhere, saved by its library."""
    torch.manual_seed(0)
    experts = {"num_local_experts": 2, "num_key_value_heads": 1, **SMALL, **TOKENS}
    made = {
        "vit": lambda: transformers.ViTForImageClassification(transformers.ViTConfig(**PICTURES)),
        "deit": lambda: transformers.DeiTForImageClassification(transformers.DeiTConfig(**PICTURES)),
        "neox": lambda: transformers.GPTNeoXForCausalLM(transformers.GPTNeoXConfig(**SMALL, **TOKENS)),
        "mixtral": lambda: transformers.MixtralForCausalLM(transformers.MixtralConfig(**experts)),
        "bert": lambda: transformers.BertForMaskedLM(transformers.BertConfig(**SMALL, **TOKENS)),
        "gpt2": lambda: transformers.GPT2LMHeadModel(
            transformers.GPT2Config(n_embd=8, n_layer=1, n_head=2, n_positions=16, **TOKENS)
        ),
    }[name]().eval()
    with torch.no_grad():
        for tensor in made.parameters():
            tensor.copy_(0.3 * torch.randn_like(tensor))
    made.save_pretrained(folder)
    return made


def inputs(name: str) -> torch.Tensor:
    return torch.randn(2, 3, 8, 8) if name in ("vit", "deit") else torch.arange(8).reshape(2, 4)


@pytest.mark.parametrize("name", ["vit", "deit", "neox", "mixtral"])
def test_what_is_written_has_the_names_of_the_file(name: str, tmp_path: Path) -> None:
    """Halved weights come back under the same names, types and shapes, and the library loads them to the same model."""
    transformers = pytest.importorskip("transformers")
    made = saved(transformers, name, tmp_path / "net")
    before = load_file(tmp_path / "net/model.safetensors")
    assert set(before) - set(made.state_dict()), "the library translates nothing of this family any more"
    found = package.open(tmp_path / "net")
    assert isinstance(found, ModuleNetwork)
    assert found.reading.assumed == ()
    halved = {key: tensor / 2 for key, tensor in found.module.state_dict().items()}
    write_weights(halved, tmp_path / "out", like=tmp_path / "net")
    after = load_file(tmp_path / "out/model.safetensors")
    assert list(after) == list(before)
    assert all(torch.equal(after[key], before[key] / 2) for key in before)
    assert all(after[key].dtype == before[key].dtype for key in before)
    again, report = type(made).from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not any(report.values())
    made.load_state_dict(halved)
    batch = inputs(name)
    with torch.no_grad():
        assert torch.equal(again.eval()(batch)[0], made(batch)[0])
    assert all(torch.equal(tensor, again.state_dict()[key]) for key, tensor in made.state_dict().items())


def test_a_moved_vision_transformer_is_the_same_function(tmp_path: Path, lawful: Any) -> None:
    """From the command line: another member of the orbit, loaded by the library, recognised as a copy, re-checked."""
    transformers = pytest.importorskip("transformers")
    saved(transformers, "vit", tmp_path / "net").double().save_pretrained(tmp_path / "net")
    folder, out, proof = tmp_path / "net", tmp_path / "out", tmp_path / "proof.json"
    lawful("symmetries", folder, "--apply", "3", "--out", out, "--no-check")
    one, two = (transformers.ViTForImageClassification.from_pretrained(each).eval() for each in (folder, out))
    pictures = inputs("vit").double()
    with torch.no_grad():
        assert torch.allclose(one(pictures)[0], two(pictures)[0], atol=1e-12)
    assert not torch.equal(one.vit.layers[0].attention.q_proj.weight, two.vit.layers[0].attention.q_proj.weight)
    assert lawful("same", folder, out, "--certificate", proof, code=0).stdout.startswith("EQUAL")
    assert "verified" in lawful("verify", proof, folder, out, code=0).stdout


def older_gpt2(state: State) -> State:
    """As the first GPT-2 files are: without a prefix, with the masks of attention."""
    masks = {"h.0.attn.bias": torch.ones(16, 16).tril().reshape(1, 1, 16, 16)}
    return {name.removeprefix("transformer."): tensor for name, tensor in state.items()} | masks


def older_bert(state: State) -> State:
    named = ((name.replace("Norm.weight", "Norm.gamma"), tensor) for name, tensor in state.items())
    return {name.replace("Norm.bias", "Norm.beta"): tensor for name, tensor in named}


@pytest.mark.parametrize(("name", "older"), [("gpt2", older_gpt2), ("bert", older_bert), ("bert", dict)])
def test_older_names(name: str, older: Callable[[State], State], tmp_path: Path) -> None:
    """What the module does not use stays as it was; what it holds under two names is written once."""
    transformers = pytest.importorskip("transformers")
    made = saved(transformers, name, tmp_path / "net")
    before = older(load_file(tmp_path / "net/model.safetensors"))
    save_file(before, tmp_path / "net/model.safetensors", {"format": "pt"})
    found = package.open(tmp_path / "net")
    assert isinstance(found, ModuleNetwork)
    assert all(torch.equal(tensor, found.module.state_dict()[key]) for key, tensor in made.state_dict().items())
    unused = tuple(each for each in found.reading.ignored if each.endswith("(not used)"))
    assert unused == (("h.0.attn.bias (not used)",) if name == "gpt2" else ())
    halved = {key: tensor / 2 for key, tensor in found.module.state_dict().items()}
    write_weights(halved, tmp_path / "out", like=tmp_path / "net")
    after = load_file(tmp_path / "out/model.safetensors")
    factors = {key: 1.0 if key == "h.0.attn.bias" else 0.5 for key in before}
    assert set(after) == set(before)
    assert all(torch.equal(after[key], before[key] * factors[key]) for key in before)


def test_numbers_keep_the_type_of_the_file(tmp_path: Path) -> None:
    """The settings may name a coarser type: no number is rounded when it is read."""
    transformers = pytest.importorskip("transformers")
    made = saved(transformers, "vit", tmp_path)
    settings = (tmp_path / "config.json").read_text()
    assert '"dtype": "float32"' in settings
    (tmp_path / "config.json").write_text(settings.replace('"float32"', '"bfloat16"'))
    found = package.open(tmp_path)
    assert isinstance(found, ModuleNetwork)
    assert all(torch.equal(tensor, found.module.state_dict()[key]) for key, tensor in made.state_dict().items())


def test_a_tensor_too_many_is_named(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    saved(transformers, "vit", tmp_path)
    state = load_file(tmp_path / "model.safetensors") | {"vit.other": torch.ones(3)}
    save_file(state, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(InvalidNetwork, match=r"has no place for vit\.other"):
        package.open(tmp_path)


def stacked() -> Translation:
    """Two rows of the file are one matrix of the module, turned; a third has another type."""
    stored = {"a": torch.tensor([1.0, 2.0]), "b": torch.tensor([3.0, 4.0]), "c": torch.ones(2, dtype=torch.float64)}
    return Translation({"w": torch.tensor([[0, 2], [1, 3]]), "v": torch.tensor([4, 5])}, stored, {})


def test_both_ways() -> None:
    made = stacked().state()
    assert made["w"].tolist() == [[1, 3], [2, 4]]
    assert (made["w"].dtype, made["v"].dtype) == (torch.float32, torch.float64)
    back = stacked().back({"w": 2 * made["w"], "v": torch.zeros(3)})
    assert [back[name].tolist() for name in "abc"] == [[2, 4], [6, 8], [0, 0, 0]]
    assert back["c"].dtype == torch.float64


def test_what_has_no_place_is_refused() -> None:
    with pytest.raises(LawfulError, match="w changed its size, and lies in several tensors"):
        stacked().back({"w": torch.zeros(1, 2)})
    with pytest.raises(LawfulError, match="extra is new"):
        stacked().back({"extra": torch.zeros(2)})
    twice = Translation({"w": torch.tensor([0, 1]), "v": torch.tensor([0, 1])}, {"a": torch.ones(2)}, {})
    with pytest.raises(LawfulError, match="now differ"):
        twice.back({"w": torch.zeros(2), "v": torch.ones(2)})
