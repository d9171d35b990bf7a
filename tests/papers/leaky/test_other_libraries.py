"""Blocks of other people's models, at tiny sizes: what is found, and in which dimension the neurons are."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lawful.errors import Unsupported
from lawful.papers.leaky import read_blocks

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


def transformer(kind: str, **sizes: Any) -> Callable[[], nn.Module]:
    """A tiny model of this kind, as a user has it: with its cache."""

    def make() -> nn.Module:
        library("torchvision")
        found = library("transformers")
        made: nn.Module = getattr(found, f"{kind}Model")(getattr(found, f"{kind}Config")(vocab_size=50, **sizes))
        return made

    return make


COMMON = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 40}
SHORT = {"n_embd": 24, "n_layer": 2, "n_head": 2, "n_positions": 16, "bos_token_id": 0, "eos_token_id": 0}
gptj = transformer("GPTJ", **SHORT, rotary_dim=4)  # attention and MLP side by side
neox = transformer("GPTNeoX", **COMMON)
roberta = transformer("Roberta", **COMMON)  # positions are computed from the tokens, too
cached = transformer("GPT2", **SHORT)
mamba = transformer("Mamba", hidden_size=24, num_hidden_layers=2, state_size=4)  # its stream is copied to float32
xlnet = transformer("XLNet", d_model=24, n_layer=2, n_head=2, d_inner=40)  # attention by einsum
fnet = transformer("FNet", **COMMON)  # Fourier transforms mix the tokens


def swin() -> nn.Module:
    made: nn.Module = library("timm").create_model(
        "swin_tiny_patch4_window7_224", img_size=32, window_size=4, embed_dim=12, depths=(1, 1), num_heads=(2, 2)
    )
    return made


def mixer() -> nn.Module:
    """Layers over tokens, and layers over channels."""
    made: nn.Module = library("timm.models.mlp_mixer").MlpMixer(
        img_size=32, patch_size=8, num_blocks=2, embed_dim=20, num_classes=3
    )
    return made


def resmlp() -> nn.Module:
    """The same without normalisations: gains tell the channels."""
    found = library("timm.models.mlp_mixer")
    made: nn.Module = found.MlpMixer(
        img_size=32, patch_size=8, num_blocks=2, embed_dim=20, num_classes=3, mlp_ratio=4,
        block_layer=found.ResBlock, norm_layer=found.Affine,
    )  # fmt: skip
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
        (gptj, tokens, [24] * 2, 48),
        (neox, tokens, [24] * 2, 48),
        (roberta, tokens, [24] * 4, 48),
        (cached, tokens, [24] * 4, 48),
        (mamba, lambda: tokens()[:, :5], [24] * 2, 20),
        (xlnet, tokens, [24] * 4, 48),
        (fnet, tokens, [24] * 4, 48),
        (swin, images, [12, 12, 24, 24], 3 * 64),
        (mixer, images, [20] * 4, 3 * 16),
        (resmlp, images, [20] * 4, 3 * 16),
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


def test_names_say_what_was_added() -> None:
    assert read_blocks(vit().eval(), images()).names[:2] == (
        "encoder.layers.encoder_layer_0.self_attention",
        "encoder.layers.encoder_layer_0.mlp",
    )
    assert read_blocks(gptj().eval(), tokens()).names == ("h.0", "h.1")


def test_normalisations_are_no_blocks() -> None:
    plain = nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6), nn.ReLU(), nn.Linear(6, 6), nn.Dropout(), nn.Linear(6, 2))
    assert read_blocks(plain, torch.randn(9, 4)).names == ("3",)
    with pytest.raises(Unsupported, match="no residual adds"):
        read_blocks(nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 2)), torch.randn(9, 4))


class Undecided(nn.Module):
    """A block whose path depends on its input: no graph."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.inner(x) if x.sum() > 0 else x - self.inner(x)


def test_a_module_without_a_graph_is_read_at_its_submodules_and_says_so(capfd: pytest.CaptureFixture[str]) -> None:
    net = nn.Sequential(nn.Linear(3, 4), Undecided(), Undecided(), nn.Linear(4, 2))
    found = read_blocks(net, torch.randn(20, 3))
    assert found.names == ("1", "2")
    assert "torch.export cannot read" in found.found_by
    with pytest.raises(Unsupported, match=r"torch\.export cannot read"):
        read_blocks(net, torch.randn(20, 5))
    assert capfd.readouterr() == ("", "")  # PyTorch's own complaints stay unheard


class Upwards(nn.Module):
    """Down, up again by a transposed convolution, and added, as in a U-Net."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.down, self.up = nn.Conv2d(3, 8, 1), nn.Conv2d(8, 16, 2, 2), nn.ConvTranspose2d(16, 8, 2, 2)

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x).relu()
        added: Tensor = y + self.up(self.down(y).relu())
        return added


def test_a_transposed_convolution_names_the_block_it_computed() -> None:
    found = read_blocks(Upwards(), torch.randn(4, 3, 6, 6))
    assert found.names == ("up",)
    assert [block.width for block in found.blocks] == [8]


class Added(nn.Module):
    """A stage that changes its width: the skip is projected, or only padded, or bent (and then no skip at all).

    Or both branches are affine, as two heads that are averaged: no block either.
    """

    def __init__(self, way: str) -> None:
        super().__init__()
        self.way, self.up, self.skip = way, nn.Linear(4, 6), nn.Linear(4, 6)

    def forward(self, x: Tensor) -> Tensor:
        y = self.up(x.relu())
        if self.way == "both":
            return self.up(x) + self.skip(x)
        if self.way == "padded":
            return y + torch.cat([x, torch.zeros_like(x[:, :2])], dim=1)
        return y + (self.skip(x) if self.way == "projected" else torch.tanh(self.skip(x)))


@pytest.mark.parametrize(("way", "projected"), [("projected", True), ("padded", True), ("bent", None), ("both", None)])
def test_a_projected_skip_is_affine(way: str, projected: bool | None) -> None:
    net = nn.Sequential(Added(way), nn.Linear(6, 6))
    found = read_blocks(net, torch.randn(20, 4))
    assert (found.found_by == "residual adds") is (projected is not None)
    if projected:
        assert [block.projected for block in found.blocks] == [True]
