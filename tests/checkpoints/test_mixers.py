"""Streams of mixers of tokens, and the inner channels of state spaces, change places."""

from __future__ import annotations

import torch
from checkpoints.test_architectures import compared, drawn, moved
from torch import nn
from torch.nn import functional

from lawful.checkpoints.rewrite.folds import State


class TokenMixer(nn.Module):
    """A stream whose tokens are mixed, channel by channel, and whose channels are mixed, token by token."""

    def __init__(self) -> None:
        super().__init__()
        self.widen, self.norm, self.last = nn.Linear(3, 6), nn.LayerNorm(6), nn.LayerNorm(6)
        self.tokens, self.back = nn.Linear(4, 5), nn.Linear(5, 4)
        self.channels, self.out = nn.Linear(6, 6), nn.Linear(6, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.widen(x)
        x = x + self.back(functional.gelu(self.tokens(self.norm(x).transpose(1, 2)))).transpose(1, 2)
        return self.out(self.last(x + self.channels(x)).mean(1))


def test_the_stream_of_a_mixer_of_tokens_changes_places() -> None:
    torch.manual_seed(13)

    def change(state: State) -> None:
        moved(state, torch.randperm(6), ("widen.weight", 0), ("widen.bias", 0), ("norm.weight", 0), ("norm.bias", 0),
              ("channels.weight", 0), ("channels.weight", 1), ("channels.bias", 0), ("last.weight", 0),
              ("last.bias", 0), ("out.weight", 1))  # fmt: skip
        moved(state, torch.randperm(5), ("tokens.weight", 0), ("tokens.bias", 0), ("back.weight", 1))

    verdict = compared(drawn(TokenMixer()), change, "4,3")
    assert (verdict.verdict, verdict.within) == ("equal", "exactly")


class StateSpace(nn.Module):
    """A selective recurrence over two steps, as Mamba writes it: the weight of its convolution is reshaped first."""

    def __init__(self) -> None:
        super().__init__()
        self.widen, self.convolve = nn.Linear(3, 12), nn.Conv1d(6, 6, 2, groups=6, padding=1)
        self.select, self.step = nn.Linear(6, 2 + 4 + 4, bias=False), nn.Linear(2, 6)
        self.decay, self.skip, self.out = nn.Parameter(torch.rand(6, 4)), nn.Parameter(torch.rand(6)), nn.Linear(6, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x, gate = self.widen(x).transpose(1, 2).chunk(2, 1)
        kernel = self.convolve.weight.squeeze(1).unsqueeze(1)
        x = functional.silu(functional.conv1d(x, kernel, self.convolve.bias, padding=1, groups=6)[..., :2])
        times, read, write = self.select(x.transpose(1, 2)).split([2, 4, 4], -1)
        step = functional.softplus(self.step(times)).transpose(1, 2)[..., None]
        kept, added = torch.exp(-self.decay.exp()[None, :, None] * step), step * read[:, None] * x[..., None]
        state = kept[:, :, 1] * added[:, :, 0] + added[:, :, 1]
        read_out = (state @ write[:, 1, :, None])[..., 0] + self.skip * x[..., 1]
        return self.out(read_out * functional.silu(gate[..., 1]))


def test_the_inner_channels_of_a_state_space_change_places() -> None:
    torch.manual_seed(14)

    def change(state: State) -> None:
        order = torch.randperm(6)
        moved(state, torch.cat([order, 6 + order]), ("widen.weight", 0), ("widen.bias", 0))
        moved(state, order, ("convolve.weight", 0), ("convolve.bias", 0), ("select.weight", 1), ("step.weight", 0),
              ("step.bias", 0), ("decay", 0), ("skip", 0), ("out.weight", 1))  # fmt: skip

    verdict = compared(drawn(StateSpace()), change, "2,3")
    assert (verdict.verdict, verdict.within) == ("equal", "exactly")
