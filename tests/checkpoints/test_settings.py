"""Folders with the same numbers and other settings: equal only where a setting cannot matter at any length."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from command_line import in_process as lawful
from safetensors.torch import load_file, save_file

import lawful as api
from lawful.api.checkpoints.orbits import orbit_fingerprints
from lawful.checkpoints.rewrite.same_program import (
    INERT,
    describe,
    differing,
    differing_tokens,
    flatten,
    rounded_by_dtype,
    telling_lengths,
)
from lawful.cli.checkpoints import FloatTensors
from lawful.errors import CertificateError, Unsupported
from lawful.verify import verify
from lawful.verify.checkpoints.files import check_settings

TOKENS = {"vocab_size": 24, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
SIZES = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 4,
         "intermediate_size": 8, "max_position_embeddings": 40}  # fmt: skip


@pytest.fixture(scope="module")
def transformers() -> Any:
    found = pytest.importorskip("transformers")
    from lawful.sources.checkpoints.load import let_torchvision_load

    let_torchvision_load()
    found.utils.logging.disable_progress_bar()
    return found


@pytest.fixture(scope="module")
def windowed(transformers: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Qwen 3 of one layer, with a window of 12 tokens."""
    torch.manual_seed(0)
    window = {"sliding_window": 12, "use_sliding_window": True, "max_window_layers": 0}
    return _saved(
        transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**SIZES, **TOKENS, **window)), tmp_path_factory
    )


@pytest.fixture(scope="module")
def folder(transformers: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small ResNet."""
    torch.manual_seed(0)
    config = transformers.ResNetConfig(embedding_size=4, hidden_sizes=[4], depths=[1], layer_type="basic")
    config.image_size = 8
    return _saved(transformers.ResNetForImageClassification(config), tmp_path_factory)


def _saved(module: Any, factory: pytest.TempPathFactory) -> Path:
    with torch.no_grad():
        for tensor in module.parameters():
            tensor.add_(0.4 * torch.randn_like(tensor))
    path = factory.mktemp("settings") / "a"
    module.save_pretrained(path)
    return path


def changed(folder: Path, **settings: Any) -> Path:
    """The same numbers under other settings."""
    other = folder.parent / "-".join((*settings, str(len(list(folder.parent.iterdir())))))
    shutil.copytree(folder, other)
    written = json.loads((folder / "config.json").read_text()) | settings
    (other / "config.json").write_text(json.dumps(written))
    return other


def test_a_window_beyond_the_input_is_told_by_a_longer_one(transformers: Any, windowed: Path) -> None:
    """Full attention where the other has a window: the same up to 12 tokens, as the library itself says."""
    other = changed(windowed, layer_types=["full_attention"])
    models = [transformers.AutoModelForCausalLM.from_pretrained(each, dtype=torch.float64).eval()
              for each in (windowed, other)]  # fmt: skip
    gaps = []
    for tokens in (8, 30):
        x = torch.randint(24, (2, tokens), generator=torch.Generator().manual_seed(tokens))
        with torch.no_grad():
            a, b = (model(x).logits for model in models)
        gaps.append(float((a - b).abs().max() / a.abs().max()))
    assert gaps[0] < 1e-12 < 1e-3 < gaps[1]
    found = api.same(windowed, other)
    assert found.verdict == "different"
    assert not found
    assert "layer_types is ['sliding_attention'] in A, ['full_attention'] in B" in found.reason
    assert found.replay.inputs[0].shape[-1] > 12


def test_a_hash_knows_the_settings_that_only_longer_inputs_show(transformers: Any, windowed: Path) -> None:
    """A tensor for tensor copy whose window is another is another function, whatever the size of the example is."""
    wider, renamed = changed(windowed, layer_types=["full_attention"]), changed(windowed, use_cache=False)
    places = [windowed, wider, renamed]
    found = orbit_fingerprints(places, ["a", "wider", "renamed"])
    assert found.groups == (("a", "renamed"), ("wider",))
    models = [transformers.AutoModelForCausalLM.from_pretrained(path).eval() for path in places[:2]]
    assert orbit_fingerprints(models, ["a", "wider"], input="8:int").groups == (("a",), ("wider",))


def test_what_only_another_output_reads_is_not_passed_over(
    transformers: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """BERT's pooler is behind its second output; folders are compared by the first."""
    torch.manual_seed(0)
    sizes = {key: value for key, value in SIZES.items() if key not in ("num_key_value_heads", "head_dim")}
    one = _saved(transformers.BertModel(transformers.BertConfig(**sizes, **TOKENS)), tmp_path_factory)
    two, tensors = changed(one), load_file(one / "model.safetensors")
    save_file(tensors | {"pooler.dense.weight": 2 * tensors["pooler.dense.weight"]}, two / "model.safetensors",
              metadata={"format": "pt"})  # fmt: skip
    models = [transformers.BertModel.from_pretrained(path, dtype=torch.float64).eval() for path in (one, two)]
    with torch.no_grad():
        a, b = (model(torch.tensor([[5, 3, 6, 9, 7]])) for model in models)
    assert torch.equal(a[0], b[0])
    assert not torch.allclose(a[1], b[1])
    found = api.same(one, two)
    assert found.verdict == "undecided"
    assert "pooler.dense.weight" in found.reason
    assert api.same(one, changed(one)).verdict == "equal"
    assert orbit_fingerprints([one, two, changed(one)], ["a", "b", "c"]).groups == (("a", "c"), ("b",))


def test_a_symmetry_of_the_first_output_alone_is_none_of_the_folder(
    transformers: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Permuting the residual stream but not the pooler keeps what words BERT predicts, not what sentence comes next."""
    torch.manual_seed(0)
    sizes = {key: value for key, value in SIZES.items() if key not in ("num_key_value_heads", "head_dim")}
    one = _saved(transformers.BertForPreTraining(transformers.BertConfig(**sizes, **TOKENS)), tmp_path_factory)
    two, order = changed(one), torch.tensor([3, 0, 1, 2, 7, 4, 6, 5])
    tensors = load_file(one / "model.safetensors")
    for name, tensor in tensors.items():
        columns = "query", "key", "value", "intermediate.dense", "transform.dense", "decoder", "_embeddings"
        if "pooler" in name or "seq_relationship" in name:
            continue
        moved = tensor[:, order] if tensor.dim() == 2 and any(part in name for part in columns) else tensor
        if any(part in name for part in ("LayerNorm", "output.dense", "transform.dense")):
            moved = moved[order]
        tensors[name] = moved.contiguous()
    save_file(tensors, two / "model.safetensors", metadata={"format": "pt"})
    models = [transformers.BertForPreTraining.from_pretrained(path, dtype=torch.float64).eval() for path in (one, two)]
    with torch.no_grad():
        a, b = (model(torch.tensor([[5, 3, 6, 9, 7]])) for model in models)
    torch.testing.assert_close(a[0], b[0])
    assert not torch.allclose(a[1], b[1])
    found = api.same(one, two)
    assert found.verdict == "undecided"
    assert "pooler.dense.weight" in found.reason
    assert orbit_fingerprints([one, two, changed(one)], ["a", "b", "c"]).groups == (("a", "c"), ("b",))


def test_padding_that_ends_a_text_elsewhere(transformers: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A head for whole texts reads the last token that is no padding: random tokens hardly ever are."""
    torch.manual_seed(0)
    sizes = {"n_embd": 4, "n_layer": 1, "n_head": 1, "n_positions": 64}
    config = transformers.GPT2Config(**sizes, **TOKENS | {"vocab_size": 5_000})
    padded = _saved(transformers.GPT2ForSequenceClassification(config), tmp_path_factory)
    found = api.same(padded, changed(padded, pad_token_id=4_999))
    assert found.verdict == "different"
    assert set(found.replay.inputs[0][0, -2:].tolist()) <= {0, 4_999}
    assert api.same(padded, changed(padded, eos_token_id=4_999)).verdict == "equal"
    assert differing_tokens({"pad_token_id": None}, {"pad_token_id": -1, "eos_token_id": [3, 4]}) == [3, 4]


def test_a_token_that_only_the_pooled_output_reads(transformers: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    """CLIP pools at the end of the text: the first tensor it returns is the same for every number of that token."""
    torch.manual_seed(0)
    sizes = {key: value for key, value in SIZES.items() if key not in ("num_key_value_heads", "head_dim")}
    text = _saved(transformers.CLIPTextModel(transformers.CLIPTextConfig(**sizes, **TOKENS | {"eos_token_id": 9})),
                  tmp_path_factory)  # fmt: skip
    other = changed(text, eos_token_id=3)
    models = [transformers.CLIPTextModel.from_pretrained(each, dtype=torch.float64).eval() for each in (text, other)]
    with torch.no_grad():
        a, b = (model(torch.tensor([[5, 3, 6, 9, 7]])) for model in models)
    assert torch.equal(a[0], b[0])
    assert not torch.allclose(a[1], b[1])
    found = api.same(text, other)
    assert found.verdict == "undecided"
    assert "eos_token_id is 9 in A, 3 in B" in found.reason
    assert api.same(text, changed(text, bos_token_id=3)).verdict == "equal"


def test_settings_of_unknown_effect_leave_it_open(folder: Path) -> None:
    """`dtype` is how weights are loaded: bfloat16 rounds what is stored in float32."""
    other = changed(folder, my_note="x", dtype="bfloat16")
    found = lawful("same", folder, other, "--json")
    assert found.returncode == 3
    assert (found.json["verdict"], found.json["within"]) == ("undecided", None)
    assert "my_note is not set in A, x in B" in found.json["reason"]
    assert "A is loaded as it is stored, and B as bfloat16" in found.json["reason"]
    assert api.diff(folder, other).relation != "copy"
    with pytest.raises(Unsupported, match="my_note"):
        api.same(folder, other, exact=True)


def test_what_is_not_carried_out_is_not_passed_over(folder: Path) -> None:
    code, quantised = {"auto_map": {"AutoModel": "own.Own"}}, {"quantization_config": {"load_in_8bit": True}}
    own = changed(folder, **code, **quantised)
    found = api.same(own, own)
    assert found.verdict == "undecided"
    assert "its own code (auto_map) is not run" in found.reason
    assert "quantization_config is not carried out" in found.reason
    with pytest.raises(TypeError, match="neither true nor false"):
        bool(found)
    with pytest.raises(Unsupported, match="its own code"):
        api.same(own, own, exact=True)
    shown = lawful("same", folder, changed(folder, **code))
    assert shown.returncode == 3
    assert "its own code (auto_map) is not run" in " ".join(shown.stdout.split())


def test_of_several_files_of_weights_the_one_is_read_that_transformers_loads(transformers: Any, folder: Path) -> None:
    """Older weights beside newer ones, whole or in shards: `model.safetensors` goes before all others."""
    old = {key: 2 * tensor for key, tensor in transformers.AutoModelForImageClassification.from_pretrained(folder)
           .state_dict().items()}  # fmt: skip
    for index in (True, False):
        beside = changed(folder)
        torch.save(old, beside / ("pytorch_model-00001-of-00001.bin" if index else "pytorch_model.bin"))
        if index:
            homes = dict.fromkeys(old, "pytorch_model-00001-of-00001.bin")
            (beside / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": homes}))
        assert api.same(folder, beside).verdict == "equal"
    elsewhere = changed(folder, transformers_weights="other.safetensors")
    found = api.same(elsewhere, elsewhere)
    assert found.verdict == "undecided"
    assert "transformers_weights" in found.reason
    assert api.same(*2 * [changed(folder, transformers_weights="model.safetensors")]).verdict == "equal"


def test_an_architecture_is_never_replaced(folder: Path) -> None:
    found = lawful("same", folder, changed(folder, architectures=["OurOwnForCausalLM"]))
    assert found.returncode == 2
    assert "OurOwnForCausalLM" in found.stderr
    found = lawful("same", folder, changed(folder, architectures=["LlamaForCausalLM"]))
    assert found.returncode == 2
    assert "do not belong together" in found.stderr


def test_certificates_are_bound_to_the_settings(folder: Path, tmp_path: Path) -> None:
    """Settings without effect may differ, all others reject it; so do others than those it was made for."""
    copy, file = changed(folder, initializer_range=0.5, bos_token_id=3), tmp_path / "copy.json"
    found = lawful("same", folder, copy, "--certificate", file, "--json")
    assert (found.returncode, found.json["within"]["kind"]) == (0, "exactly")
    body = json.loads(file.read_text())
    said = verify(body, FloatTensors(folder), FloatTensors(copy)).statement
    assert "The settings of both folders are the same but for bos_token_id, initializer_range" in said
    other = changed(folder, hidden_act="relu", layer_type="other")
    with pytest.raises(CertificateError, match="the settings are not those"):
        verify(body, FloatTensors(folder), FloatTensors(other))
    for key, values in {"hidden_act": ["relu", "gelu"], "part": [{"window": 1}, {"window": 2}]}.items():
        one, two = (changed(folder, **{key: value}) for value in values)
        with pytest.raises(CertificateError, match=f"differ in {key}"):
            verify({**body, "settings": [None, None]}, FloatTensors(one), FloatTensors(two))
    for forged in ({**body, "settings": [None, None]}, {k: v for k, v in body.items() if k != "settings"}):
        with pytest.raises(CertificateError, match="differ in layer_type"):
            verify(forged, FloatTensors(folder), FloatTensors(other))
    own = changed(folder, auto_map={"AutoModel": "own.Own"})
    with pytest.raises(CertificateError, match="code of its own"):
        verify({**body, "settings": [None, None]}, FloatTensors(folder), FloatTensors(own))


@pytest.mark.parametrize("key", sorted({*INERT, "pad_token_id", "text_config"}))
def test_no_certificate_is_rejected_for_a_setting_without_effect(key: str) -> None:
    """Maker and verifier have a list each: what one takes for equal the other does not reject."""
    both = ({key: {"use_cache": 1}}, {key: {"use_cache": 2}}) if key == "text_config" else ({key: 1}, {key: 2})
    assert not differing(*(dict(flatten(each)) for each in both))
    accepted = check_settings(None, [SimpleNamespace(settings=each) for each in both])
    assert [name.partition(".")[0] for name in accepted["apart"]] == [key]


def fields(config: Any) -> Iterator[tuple[str, Any]]:
    """Each setting of a configuration with another value."""
    for key, value in config.to_dict().items():
        if isinstance(value, bool):
            yield key, not value
        elif isinstance(value, (int, float)):
            yield key, value + 1
        elif isinstance(value, str):
            yield key, f"{value}x"
        elif isinstance(value, list) and value:
            yield key, value[1:]
        elif isinstance(value, Mapping):
            yield key, {**value, "more": 1}


@pytest.mark.parametrize("family", ["Llama", "Qwen3", "Gemma2", "Mistral", "GPT2", "Bert", "GPTNeoX", "Mixtral"])
def test_every_field_is_compared_unless_it_is_listed(transformers: Any, family: str) -> None:
    config = getattr(transformers, f"{family}Config")()
    plain = config.to_dict()
    for key, value in fields(config):
        listed = key in INERT or key.endswith(("token_id", "token_ids")) or key in ("dtype", "torch_dtype")
        assert bool(differing(plain, plain | {key: value})) != listed, key


def test_lengths_that_may_tell() -> None:
    one = {"layer_types": ["a"], "sliding_window": 12, "vocab_size": 100, "hidden_size": 64}
    assert telling_lengths(one, one | {"layer_types": ["b"]}, 8) == [13]
    assert telling_lengths(one, one | {"hidden_size": 32}, 8) == [13, 33, 65]
    assert differing({"theta": 1}, {"theta": 1.0}) == {}
    assert differing({"on": 1}, {"on": True}) != {}
    assert rounded_by_dtype({"dtype": "bfloat16"}, {"w": torch.tensor([0.5])}) is None
    assert rounded_by_dtype({"dtype": "bfloat16"}, {"w": torch.tensor([0.1])}) == "bfloat16"


def stated_by_one(folder: Path, key: str) -> tuple[Path, Path]:
    """The same numbers, and a setting that the first does not state and the second states as null."""
    silent = changed(folder)
    written = json.loads((silent / "config.json").read_text())
    written.pop(key, None)
    (silent / "config.json").write_text(json.dumps(written))
    return silent, changed(silent, **{key: None})


def test_a_setting_that_is_not_stated_is_the_default_of_its_class(
    transformers: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A Mistral without `sliding_window` has one of 4096 tokens, and with null none; likewise Gemma's capped logits."""
    torch.manual_seed(0)
    sizes = SIZES | {"max_position_embeddings": 6_000}
    mistral = _saved(transformers.MistralForCausalLM(transformers.MistralConfig(**sizes, **TOKENS)), tmp_path_factory)
    silent, null = stated_by_one(mistral, "sliding_window")
    models = [transformers.AutoModelForCausalLM.from_pretrained(each, dtype=torch.float64).eval()
              for each in (silent, null)]  # fmt: skip
    tokens = torch.randint(24, (1, 4_200), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        a, b = (model(tokens).logits for model in models)
    assert float((a - b).abs().max()) > 1e-3
    found = api.same(silent, null)
    assert found.verdict == "undecided"
    assert "sliding_window is 4096 in A, null in B" in found.reason
    assert lawful("same", silent, null).returncode == 3
    assert api.diff(silent, null).relation != "copy"
    capped = transformers.Gemma2Config(**SIZES, **TOKENS, query_pre_attn_scalar=4)
    gemma = _saved(transformers.Gemma2ForCausalLM(capped), tmp_path_factory)
    assert api.same(*stated_by_one(gemma, "final_logit_softcapping")).verdict != "equal"


def test_null_is_what_is_not_stated_where_the_class_says_so(windowed: Path) -> None:
    """Both make the same `layer_types`, and `problem_type` is without effect; nobody knows what `my_note` is."""
    for key in ("layer_types", "problem_type", "rope_scaling"):
        assert api.same(*stated_by_one(windowed, key)).verdict == "equal", key
    found = api.same(*stated_by_one(windowed, "my_note"))
    assert found.verdict == "undecided"
    assert "my_note is not set in A, null in B" in found.reason


def test_what_only_the_second_folder_says_is_not_passed_over(folder: Path) -> None:
    """Equal settings, but the file of weights that they name is not the one that the second has."""
    first = changed(folder, transformers_weights="model.safetensors")
    second = changed(first)
    tensors = load_file(second / "model.safetensors")
    (second / "model.safetensors").unlink()
    torch.save(tensors, second / "pytorch_model.bin")
    found = api.same(first, second)
    assert found.verdict == "undecided"
    assert "transformers_weights" in found.reason


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ({"a.b": 1}, {"a": {"b": 1}}),
        ({"a": {"b.c": 1}}, {"a.b": {"c": 1}}),
        ({"window.use_cache": 1}, {"window.use_cache": 2}),
        ({"window.pad_token_id": 1}, {"window.pad_token_id": 2}),
        ({'"a.b"': 1}, {"a.b": 1}),
        ({"a": {}}, {"a": None}),
        ({"a": {}}, {}),
        ({"a": None}, {}),
        ({"a": {"b": None}}, {"a": {}}),
        ({"a": [{"b": None}]}, {"a": [{}]}),
        ({"a": ["x"] * 99}, {"a": ["x"] * 98 + ["y"]}),
        ({"a": ["x"] * 99}, {"a": ["x"] * 98}),
    ],
)
def test_settings_that_look_alike(one: dict[str, Any], two: dict[str, Any]) -> None:
    """Each setting has a path of its own, and its absence is no value; the verifier does not call them the same."""
    apart = differing(dict(flatten(one)), dict(flatten(two)))
    assert apart
    for words in describe(apart):
        a, b = words.partition(" in A, ")[0].split(" is ")[-1], words.partition(" in A, ")[2].removesuffix(" in B")
        assert a != b, words
    try:
        words = check_settings(None, [SimpleNamespace(settings=each) for each in (one, two)])
    except CertificateError:
        return
    assert "Both folders have the same settings" not in words


def test_long_lists_are_told_apart_by_the_entry() -> None:
    """What is cut short is not said to differ from itself."""
    one = {"layer_types": ["full_attention"] * 40, "names": ["x" * 30] * 3, "note": "a" * 80}
    two = {"layer_types": ["full_attention"] * 39 + ["none"], "names": ["x" * 30] * 4, "note": "a" * 79 + "b"}
    assert describe(differing(one, two)) == (
        "layer_types[39] is full_attention in A, none in B",
        "names has 3 entries in A, 4 in B",
        "note[79] is a in A, b in B",
    )
