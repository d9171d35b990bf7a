"""Modules that are no layers: fields that commute, scalars, weights in exponents, gates that random weights close."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from lawful.conservation import count_laws
from lawful.conservation.certificate import certificate
from lawful.verify import verify


class Formula(nn.Module):
    """A function of its own tensors."""

    def __init__(self, function: Callable, **parts: nn.Module | torch.Tensor) -> None:
        super().__init__()
        self.function = function
        for name, part in parts.items():
            setattr(self, name, part if isinstance(part, nn.Module) else nn.Parameter(part))

    def forward(self, x):
        return self.function(self, x)


def _far() -> nn.Module:
    module = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 2))
    with torch.no_grad():
        module[2].weight.mul_(1e9)
    return module


CASES: dict[str, tuple[Callable[[], nn.Module], int, int]] = {
    # all brackets of x(u² − v²) vanish: u_i v_i is conserved
    "squares": (lambda: Formula(lambda s, x: x * (s.u**2 - s.v**2), u=torch.randn(2), v=torch.randn(2)), 2, 2),
    # c² d in place of a weight: c² − 2d² for each of the four
    "powers": (lambda: Formula(lambda s, x: x @ (s.c**2 * s.d), c=torch.randn(2, 2), d=torch.randn(2, 2)), 2, 4),
    # a scale without axes against the layer before or behind it
    "scalar": (
        lambda: Formula(
            lambda s, x: s.b(s.t * torch.relu(s.a(x))), t=torch.tensor(0.7), a=nn.Linear(3, 3), b=nn.Linear(3, 2)
        ),
        3,
        4,
    ),
    # weights times e^c: c − |a|²/2, a polynomial that is not homogeneous
    "exponent": (
        lambda: Formula(lambda s, x: s.a(x) * s.c.exp(), a=nn.Linear(2, 2, bias=False), c=torch.randn(2)),
        2,
        2,
    ),
    # a softmax sums to 1: rows of the matrix behind it against its bias, columns of the one before it
    "softmax": (lambda: nn.Sequential(nn.Linear(2, 2), nn.Softmax(-1), nn.Linear(2, 2)), 2, 5),
    # grouped ReLU layers, one of width 2: at most random weights some channel is dead
    "depthwise": (
        lambda: nn.Sequential(
            nn.Flatten(),
            nn.Unflatten(1, (2, 4)),
            nn.Conv1d(2, 4, 2, groups=2),
            nn.ReLU(),
            nn.Conv1d(4, 2, 1, groups=2),
            nn.ReLU(),
            nn.Conv1d(2, 1, 1),
        ),
        8,
        6,
    ),
    "bounded": (lambda: nn.Sequential(nn.Linear(2, 3), nn.ReLU6(), nn.Linear(3, 2)), 2, 0),
    # tanh conserves nothing, however large its weights
    "far": (_far, 3, 0),
}


@pytest.mark.parametrize("name", CASES)
def test_counts_known_by_hand_are_proved(name):
    torch.manual_seed(0)
    make, inputs, laws = CASES[name]
    count = count_laws(make(), input_shape=(inputs,))
    assert (count.laws, count.status, count.reason) == (laws, "proved", "")
    assert verify(certificate(count)).facts["laws"] == laws


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.RNNBase], **options: str) -> None:
        super().__init__()
        self.inner = kind(2, 2, batch_first=True, **options)
        self.out = nn.Linear(2, 1)

    def forward(self, x):
        return self.out(self.inner(x)[0][:, -1])


@pytest.mark.parametrize(("kind", "laws"), [(nn.RNN, 2), (nn.GRU, 4), (nn.LSTM, 8)])
def test_recurrent_layers_are_proved(kind, laws):
    """Two biases that add up: their difference is conserved, for two gates of a GRU's three and all four of an LSTM."""
    torch.manual_seed(0)
    count = count_laws(Recurrent(kind), input_shape=(2, 2))
    assert (count.laws, count.status) == (laws, "proved")
    assert verify(certificate(count)).facts["laws"] == laws
