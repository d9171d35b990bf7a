"""Small models of the families that people compare, with weights that are nowhere special."""

from __future__ import annotations

from collections.abc import Callable

import torch
from symmetry.models import Gpt, Llama
from torch import nn
from torch.nn import functional


class ResidualBlock(nn.Module):
    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.a = nn.Conv2d(width, inner, 3, padding=1, bias=False)
        self.b = nn.Conv2d(inner, width, 3, padding=1)
        self.n, self.m = nn.BatchNorm2d(inner), nn.BatchNorm2d(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x + self.m(self.b(torch.relu(self.n(self.a(x))))))


class ResidualNetwork(nn.Module):
    """A stem, two stages with a strided projection between them, a linear head on averages."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 6, 3, padding=1, bias=False), nn.BatchNorm2d(6)
        self.first = ResidualBlock(6, 5)
        self.down = nn.Conv2d(6, 8, 1, stride=2)
        self.second = ResidualBlock(8, 9)
        self.head = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(torch.relu(self.norm(self.stem(x))))
        return self.head(self.second(torch.relu(self.down(x))).mean((2, 3)))


class Transformer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.first(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.down(functional.gelu(self.up(self.second(x))))


class VisionTransformer(nn.Module):
    """Patches, a class token, learned positions, PyTorch's own attention."""

    def __init__(self, width: int = 12, heads: int = 2, layers: int = 2) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, width, 4, 4)
        self.token, self.place = nn.Parameter(torch.zeros(1, 1, width)), nn.Parameter(torch.zeros(1, 5, width))
        self.blocks = nn.Sequential(*(Transformer(width, heads) for _ in range(layers)))
        self.last, self.head = nn.LayerNorm(width), nn.Linear(width, 7)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.place
        return self.head(self.last(self.blocks(x))[:, 0])


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 7), nn.ReLU(), nn.Linear(7, 6), nn.Tanh(), nn.Linear(6, 5), nn.GELU(),
                         nn.Linear(5, 2))  # fmt: skip


FAMILIES: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "mlp": (mlp, "3"),
    "resnet": (ResidualNetwork, "3,8,8"),
    "gpt": (lambda: Gpt(40, 3, 8, 2, 12, 2, tied=False), "3:int"),
    "gpt-tied": (lambda: Gpt(40, 3, 8, 2, 12, 2, tied=True), "3:int"),
    "llama": (lambda: Llama(40, 16, 4, 2, 12, 2), "3:int"),
    "llama-tied": (lambda: Llama(40, 16, 4, 2, 12, 2, tied=True), "3:int"),
    "vit": (VisionTransformer, "3,8,8"),
}


def make(family: str, seed: int = 0) -> nn.Module:
    """A model of a family: gains, offsets and statistics are random too."""
    torch.manual_seed(seed)
    module = FAMILIES[family][0]().eval()
    with torch.no_grad():
        for tensor in module.parameters():
            if tensor.ndim == 1 or tensor.shape[0] == 1:
                tensor.add_(0.2 * torch.randn_like(tensor))
        for name, buffer in module.named_buffers():
            if "running" in name:
                buffer.add_(0.3 * torch.rand_like(buffer))
    return module


def gpt() -> nn.Module:
    """For the command line: `checkpoints.models:gpt`."""
    return make("gpt")


def resnet() -> nn.Module:
    """For the command line."""
    return make("resnet")


def deep() -> nn.Module:
    """A language model of four blocks, for the command line."""
    torch.manual_seed(0)
    return Gpt(40, 3, 16, 2, 24, 4, tied=False).eval()


def cut() -> nn.Module:
    """Blocks 0 and 2 of it."""
    found, whole = Gpt(40, 3, 16, 2, 24, 2, tied=False).eval(), deep().state_dict()
    state = {name: whole[name.replace("blocks.1.", "blocks.2.")] for name in found.state_dict()}
    found.load_state_dict(state)
    return found


def wider() -> nn.Module:
    """The same with more tokens and more units of a layer."""
    torch.manual_seed(0)
    return Gpt(44, 3, 16, 2, 32, 4, tied=False).eval()
