"""Operations that proofs cover, each inside a small module whose laws are known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from lawful import verify
from lawful.conservation import count_laws
from lawful.conservation.certificate import certificate


class Between(nn.Module):
    """Two layers with a function between them."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        super().__init__()
        self.first, self.last, self.function = nn.Linear(2, 3), nn.Linear(3, 2), function

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        return self.last(self.function(self.first(batch)))


FUNCTIONS: dict[str, tuple[Callable[[Any], Any], int]] = {
    "a condition as a factor": (lambda z: z * (z > 0), 3),
    "a condition as numbers": (lambda z: z * (z > 0).detach().double(), 3),
    "filled where a condition holds": (lambda z: z.masked_fill(z < 0, 0.0), 3),
    "evaluated random slopes": (lambda z: functional.rrelu(z, training=False), 3),
    "products of the first": (lambda z: torch.cumprod(z, -1), 3),
    "a product": (lambda z: torch.cat([z.prod(-1, keepdim=True), z[:, 1:]], -1), 3),
    "a logarithm of a sum": (lambda z: torch.cat([z.logsumexp(-1, keepdim=True), z[:, 1:]], -1), 0),
    "a broken power": (lambda z: (1 + z**2) ** 1.25, 0),
    "a hyperbolic sine": (torch.sinh, 0),
    "a root of two squares": (lambda z: torch.hypot(z, torch.ones_like(z)), 0),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_between_two_layers(name: str) -> None:
    function, laws = FUNCTIONS[name]
    torch.manual_seed(0)
    count = count_laws(Between(function), input_shape=(2,))
    assert (count.laws, count.status) == (laws, "proved")


IMAGES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "circular padding": (
        lambda: nn.Sequential(nn.Conv1d(1, 2, 3, padding=1, padding_mode="circular"), nn.ReLU(), nn.Conv1d(2, 1, 1)),
        (1, 5),
    ),
    "interpolation": (
        lambda: nn.Sequential(
            nn.Conv2d(1, 2, 2), nn.ReLU(), nn.Upsample(scale_factor=2, mode="bilinear"), nn.Conv2d(2, 1, 1)
        ),
        (1, 3, 3),
    ),
    "adaptive maxima": (
        lambda: nn.Sequential(nn.Conv2d(1, 2, 2), nn.AdaptiveMaxPool2d((2, 1)), nn.Flatten(), nn.Linear(4, 2)),
        (1, 4, 3),
    ),
    "maxima in space": (
        lambda: nn.Sequential(nn.Conv3d(1, 2, (1, 1, 2)), nn.MaxPool3d(2), nn.Flatten(), nn.Linear(4, 1)),
        (1, 2, 2, 5),
    ),
}


@pytest.mark.parametrize("name", IMAGES)
def test_two_channels_keep_their_balance(name: str) -> None:
    make, shape = IMAGES[name]
    torch.manual_seed(0)
    count = count_laws(make(), input_shape=shape)
    assert (count.laws, count.status) == (2, "proved")
    assert verify(certificate(count)).facts["laws"] == 2


class Untied(nn.Module):
    """Three tokens: near most weights few of the ReLUs' pieces occur, and one more function is conserved."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.up, self.down = nn.Embedding(3, 2), nn.Linear(2, 3), nn.Linear(3, 2)
        self.head = nn.Linear(2, 3, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        stream = self.table(tokens)
        return self.head(stream + self.down(torch.relu(self.up(stream))))


def test_rare_pieces_are_looked_for() -> None:
    """Six laws hold at all weights; at the first points that were looked at a seventh had no explicit form."""
    torch.manual_seed(0)
    count = count_laws(Untied(), input_shape=(2,))
    assert (count.laws, count.status, count.claim) == (6, "proved", "somewhere")


def test_a_piece_that_few_inputs_meet_is_proved() -> None:
    """Fields of single inputs see all pieces too, if there are enough of them."""

    class Dense(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c = nn.Linear(2, 2), nn.Linear(4, 2), nn.Linear(6, 1)

        def forward(self, batch: torch.Tensor) -> torch.Tensor:
            first = torch.cat([batch, torch.relu(self.a(batch))], -1)
            return self.c(torch.cat([first, torch.relu(self.b(first))], -1))

    torch.manual_seed(0)
    count = count_laws(Dense(), input_shape=(2,))
    assert (count.laws, count.status) == (4, "proved")
