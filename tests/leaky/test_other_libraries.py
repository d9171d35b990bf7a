"""Blocks of other people's models, at tiny sizes: what is found, and in which dimension the neurons are."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lawful.leaky import read_blocks

OPERATORS = torch.library.Library("torchvision", "FRAGMENT")


def library(name: str) -> Any:
    """The library, or a skipped test. torchvision imports without its compiled operators if their names exist."""
    for operator in ("nms", "qnms"):
        with suppress(RuntimeError):
            if not hasattr(torch.ops.torchvision, operator):
                OPERATORS.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return pytest.importorskip(name)


def images() -> Tensor:
    return torch.randn(3, 3, 32, 32)


def tokens() -> Tensor:
    return torch.randint(0, 50, (4, 12))


def resnet18() -> nn.Module:
    made: nn.Module = library("torchvision.models").resnet18(num_classes=3)
    return made


def vit() -> nn.Module:
    made: nn.Module = library("torchvision.models").VisionTransformer(32, 8, 2, 2, 32, 64, num_classes=5)
    return made


def timm_vit() -> nn.Module:
    made: nn.Module = library("timm").create_model(
        "vit_tiny_patch16_224", img_size=32, patch_size=8, depth=2, embed_dim=24, num_heads=2, num_classes=3
    )
    return made


def convnext() -> nn.Module:
    made: nn.Module = library("timm").create_model(
        "convnext_atto", depths=(1, 1, 2, 1), dims=(8, 12, 16, 20), num_classes=3
    )
    return made


def gpt2() -> nn.Module:
    library("torchvision")
    found = library("transformers")
    made: nn.Module = found.GPT2LMHeadModel(
        found.GPT2Config(
            vocab_size=50, n_positions=16, n_embd=24, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0,
            use_cache=False,
        )
    )  # fmt: skip
    return made


def llama() -> nn.Module:
    library("torchvision")
    found = library("transformers")
    config = found.LlamaConfig(
        vocab_size=50, hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, max_position_embeddings=32, use_cache=False,
    )  # fmt: skip
    made: nn.Module = found.LlamaForCausalLM(config)
    return made


@pytest.mark.parametrize(
    ("make", "inputs", "widths", "samples"),
    [
        (resnet18, images, [64, 64, 128, 128, 256, 256, 512, 512], 3 * 64),
        (vit, images, [32] * 4, 3 * 17),
        (timm_vit, images, [24] * 4, 3 * 17),
        (convnext, images, [8, 12, 16, 16, 20], 3 * 64),
        (gpt2, tokens, [24] * 4, 48),
        (llama, tokens, [24] * 4, 48),
    ],
)
def test_blocks(
    make: Callable[[], nn.Module], inputs: Callable[[], Tensor], widths: list[int], samples: int
) -> None:  # fmt: skip
    torch.manual_seed(0)
    found = read_blocks(make().eval(), inputs())
    assert found.found_by == "residual adds"
    assert [block.width for block in found.blocks] == widths
    assert found.samples == samples
    assert len(set(found.names)) == len(widths)
    assert all(1 <= block.dimension <= block.width for block in found.blocks)
    if make is resnet18:
        assert [block.projected for block in found.blocks] == [False, False, True, False, True, False, True, False]
