"""Models of torchvision, timm and transformers, with random weights: opened as modules, folders and shards."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import lawful as package
from lawful.errors import Unsupported
from lawful.network import Dag
from lawful.network.reading import IN_EVAL
from lawful.sources.modules.module_network import ModuleNetwork
from lawful.sources.opening import HIDDEN_STATES

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module", autouse=True)
def vision() -> Any:
    """torchvision, which timm and transformers import too.

    Its compiled operators (boxes of detectors) may be built for another PyTorch; they are not needed here.
    """
    names = ("nms", "qnms")
    missing = [name for name in names if not hasattr(torch.ops.torchvision, name)]
    library = torch.library.Library("torchvision", "FRAGMENT")
    try:
        return pytest.importorskip("torchvision")
    except RuntimeError:
        for name in missing:
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        return pytest.importorskip("torchvision")


MODELS: dict[str, tuple[Callable[[Any], Any], tuple[int, ...], str]] = {
    "resnet18": (lambda models: models.resnet18(num_classes=3), (3, 64, 64), "edges"),
    "vgg11": (lambda models: models.vgg11(num_classes=3), (3, 64, 64), "edges"),
    "mobilenet_v2": (lambda models: models.mobilenet_v2(num_classes=3, width_mult=0.1), (3, 4, 4), ""),
    "mobilenet_v3": (lambda models: models.mobilenet_v3_small(num_classes=3, width_mult=0.1), (3, 16, 16), "hardswish"),
    "vit": (lambda models: models.VisionTransformer(16, 8, 1, 2, 8, 16), (3, 16, 16), "layer_norm"),
}


@pytest.mark.parametrize("name", MODELS)
def test_torchvision(vision: Any, name: str) -> None:
    make, shape, obstacle = MODELS[name]
    torch.manual_seed(0)
    module = make(vision.models).eval()
    batch = np.random.default_rng(0).normal(size=(2, *shape))
    with torch.no_grad():
        expected = module(torch.tensor(batch, dtype=torch.float32)).numpy()
    found = package.open(module, input_shape=shape)
    assert found.reading is not None
    assert found.reading.assumed == ()
    if obstacle:
        assert isinstance(found, ModuleNetwork)
        assert obstacle in found.obstacle
        assert found.parameters == sum(part.numel() for part in module.parameters())
        with pytest.raises(Unsupported, match="For any module there are"):
            package.identifiable(found)
    else:
        assert isinstance(found, Dag)
    values = found.evaluate(batch if obstacle else batch.reshape(2, -1))
    assert np.abs(values - expected).max() < 1e-4 * max(1.0, np.abs(expected).max())


@pytest.mark.parametrize("name", ["vit_tiny_patch16_224", "test_resnet"])
def test_timm(vision: Any, name: str) -> None:
    timm = pytest.importorskip("timm")
    options = {"depth": 1, "img_size": 32} if name.startswith("vit") else {}
    module = timm.create_model(name, num_classes=3, **options).eval()
    found = package.open(module, input_shape=(3, 224, 224) if "resnet" in name else (3, 32, 32))
    assert isinstance(found, ModuleNetwork)
    assert found.obstacle


def small(transformers: Any, name: str) -> Any:
    """A tiny model of each family, with random weights."""
    tokens = {"vocab_size": 17, "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}
    llama = {"hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 2, "num_attention_heads": 2}
    torch.manual_seed(0)
    match name:
        case "gpt2":
            config = transformers.GPT2Config(n_embd=8, n_layer=2, n_head=2, n_positions=16, **tokens)
            return transformers.GPT2LMHeadModel(config)
        case "llama":
            config = transformers.LlamaConfig(num_key_value_heads=1, max_position_embeddings=16, **llama, **tokens)
            return transformers.LlamaForCausalLM(config)
        case "mistral":
            config = transformers.MistralConfig(num_key_value_heads=1, max_position_embeddings=16, **llama, **tokens)
            return transformers.MistralForCausalLM(config)
        case "bert":
            config = transformers.BertConfig(max_position_embeddings=16, **llama, **tokens)
            return transformers.BertForSequenceClassification(config)
        case "vit":
            config = transformers.ViTConfig(image_size=8, patch_size=4, **llama)
            return transformers.ViTForImageClassification(config)
    config = transformers.ResNetConfig(embedding_size=4, hidden_sizes=[4, 4], depths=[1, 1], layer_type="basic")
    return transformers.ResNetForImageClassification(config)


@pytest.mark.parametrize("sharded", [False, True], ids=["whole", "shards"])
@pytest.mark.parametrize("name", ["gpt2", "llama", "mistral", "bert", "vit", "resnet"])
def test_folders_of_hugging_face(name: str, sharded: bool, tmp_path: Path) -> None:
    """A folder is its model: every number that was saved is there, under the name that it had."""
    transformers = pytest.importorskip("transformers")
    made = small(transformers, name).eval()
    made.save_pretrained(tmp_path, **({"max_shard_size": "2KB"} if sharded else {}))
    assert (tmp_path / "model.safetensors.index.json").exists() == sharded
    found = package.open(tmp_path)
    assert isinstance(found, (ModuleNetwork, Dag))
    assert found.reading is not None
    assert found.reading.format == "safetensors"
    assert found.reading.assumed == ((IN_EVAL,) if name == "resnet" else ())  # no file says the mode
    inner = found.module if isinstance(found, ModuleNetwork) else found.reading.module
    saved = made.state_dict()
    state = inner.state_dict()
    assert set(state) == set(saved)
    assert all(torch.equal(state[key], saved[key]) for key in saved)


def test_a_copy_of_a_folder_computes_with_its_own_weights(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    small(transformers, "gpt2").eval().save_pretrained(tmp_path)
    found = package.open(tmp_path)
    assert isinstance(found, ModuleNetwork)
    twin = copy.deepcopy(found.module)
    tokens = torch.tensor([[1, 2, 3]])
    with torch.no_grad():
        before = found.module(tokens)
        for tensor in twin.parameters():
            tensor.mul_(0.5)
        assert torch.equal(found.module(tokens), before)
        assert not torch.allclose(twin(tokens), before)


@pytest.mark.parametrize("name", ["gpt2", "llama", "mistral", "bert", "vit"])
def test_folders_compute_what_they_did(name: str, tmp_path: Path, lawful: Any) -> None:
    """The first tensor that the model returns, and laws read from its graph."""
    transformers = pytest.importorskip("transformers")
    made = small(transformers, name).eval().double()
    made.save_pretrained(tmp_path)
    found = package.open(tmp_path)
    assert isinstance(found, ModuleNetwork)
    inputs = torch.randn(2, 3, 8, 8).double() if name == "vit" else torch.arange(8).reshape(2, 4)
    with torch.no_grad():
        assert torch.allclose(found.evaluate(inputs), made(inputs)[0], atol=1e-12)
    size = ["--input", "4:int"] if name == "bert" else []  # its config.json says what a model takes
    answer = lawful("symmetries", str(tmp_path), *size, "--json").json
    assert answer["reading"]["format"] == "safetensors"
    assert answer["laws"]


def test_a_folder_says_what_it_takes_and_which_output_is_meant(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    small(transformers, "vit").save_pretrained(tmp_path / "vit")
    assert package.audit(tmp_path / "vit").reading is not None
    assert "removed" in package.prune(tmp_path / "vit").to_dict()
    config = transformers.BertConfig(
        hidden_size=4, num_hidden_layers=1, num_attention_heads=1, intermediate_size=4, vocab_size=8
    )
    transformers.BertModel(config).save_pretrained(tmp_path / "bert")
    found = package.open(tmp_path / "bert")
    assert found.reading is not None
    assert found.reading.assumed == (HIDDEN_STATES,)
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(Unsupported, match=r"an adapter .* merge it"):
        package.open(tmp_path)
