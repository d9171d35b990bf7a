"""Small models of many families, with random weights (also where libraries start with zeros or ones)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

TOKENS = torch.randint(0, 50, (2, 6), generator=torch.Generator().manual_seed(2))


def image(*shape: int) -> torch.Tensor:
    return torch.randn(2, *shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 3))


def tanh() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 3))


def linear() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 4), nn.Linear(4, 3))


def lenet() -> nn.Module:
    first = (nn.Conv2d(1, 4, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 6, 3), nn.ReLU(), nn.AvgPool2d(2))
    return nn.Sequential(*first, nn.Flatten(), nn.Linear(24, 8), nn.LeakyReLU(0.125), nn.Linear(8, 3))


class Attention(nn.Module):
    """One block: a norm, heads, a residual."""

    def __init__(self) -> None:
        super().__init__()
        # an epsilon that float32, in which files hold it, has too
        self.norm, self.qkv, self.out = nn.LayerNorm(8, 2**-16), nn.Linear(8, 24), nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (t.unflatten(-1, (2, 4)).transpose(1, 2) for t in self.qkv(self.norm(x)).chunk(3, -1))
        weights = torch.softmax(q @ k.transpose(-1, -2) * 0.5, -1)
        return x + self.out((weights @ v).transpose(1, 2).flatten(2))


def _torchvision(name: str, **settings: Any) -> nn.Module:
    import torchvision

    return getattr(torchvision.models, name)(num_classes=5, **settings)


def _swin() -> nn.Module:
    import torchvision

    return torchvision.models.SwinTransformer([4, 4], 8, [2, 2], [2, 4], [4, 4], num_classes=5)


def _vit() -> nn.Module:
    import torchvision

    return torchvision.models.VisionTransformer(32, 8, 2, 2, 32, 64, num_classes=5)


def _mixer() -> nn.Module:
    import timm

    return timm.models.mlp_mixer.MlpMixer(img_size=32, patch_size=8, num_blocks=2, embed_dim=24, num_classes=5)


def _language(model: str, config: str, **settings: Any) -> nn.Module:
    import transformers

    made = getattr(transformers, config)(bos_token_id=0, eos_token_id=1, pad_token_id=2, **settings)
    made._attn_implementation = "eager" if "Mamba" in model else "sdpa"
    return getattr(transformers, model)(made)


class EncoderDecoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        sizes = {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4, "vocab_size": 50}
        self.model = _language("T5ForConditionalGeneration", "T5Config", **sizes)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.model(input_ids=tokens, decoder_input_ids=tokens).logits


_WIDE = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
         "vocab_size": 50, "max_position_embeddings": 32}  # fmt: skip
FAMILIES: dict[str, tuple[Callable[[], nn.Module], torch.Tensor]] = {
    "mlp": (mlp, image(5)),
    "tanh": (tanh, image(5)),
    "linear": (linear, image(5)),
    "lenet": (lenet, image(1, 16, 16)),
    "attention": (Attention, image(6, 8)),
    "resnet18": (lambda: _torchvision("resnet18"), image(3, 32, 32)),
    "mobilenet_v3": (lambda: _torchvision("mobilenet_v3_small"), image(3, 32, 32)),
    "swin": (_swin, image(3, 32, 32)),
    "vit": (_vit, image(3, 32, 32)),
    "mixer": (_mixer, image(3, 32, 32)),
    "gpt2": (lambda: _language("GPT2LMHeadModel", "GPT2Config", n_embd=32, n_layer=2, n_head=4, vocab_size=50,
                               n_positions=16), TOKENS),
    "llama": (lambda: _language("LlamaForCausalLM", "LlamaConfig", num_key_value_heads=2, **_WIDE), TOKENS),
    "bert": (lambda: _language("BertForMaskedLM", "BertConfig", **_WIDE), TOKENS),
    "t5": (EncoderDecoder, TOKENS),
    "mamba": (lambda: _language("MambaForCausalLM", "MambaConfig", hidden_size=16, state_size=4, num_hidden_layers=2,
                                vocab_size=50, expand=2, conv_kernel=4, time_step_rank=2), TOKENS),
}  # fmt: skip


def make(name: str) -> tuple[nn.Module, torch.Tensor]:
    """A model in evaluation mode with weights that no layer starts with, and an input."""
    torch.manual_seed(0)
    build, x = FAMILIES[name]
    module = build().eval()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return (module.double() if x.is_floating_point() else module), x


def run(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        result = module(x)
    return result if isinstance(result, torch.Tensor) else result.logits
