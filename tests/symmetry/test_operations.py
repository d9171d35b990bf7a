"""Operations one by one, in the smallest modules that use them: all laws that the Lie closure leaves are stated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from closure import drawing, lie_laws
from models import Function
from torch import nn
from torch.nn import functional
from torch.nn.utils import parametrizations

from lawful import LawfulError
from lawful.symmetry import symmetries
from lawful.symmetry.orbit import disguise

Middle = Callable[[torch.Tensor], torch.Tensor]


def between(middle: Middle, inner: int = 2, read: int | None = None) -> nn.Module:
    """A linear layer, an operation, a linear layer."""
    layers = {"w": nn.Linear(3, inner), "o": nn.Linear(read or inner, 3)}
    return Function(lambda self, x: self.o(middle(self.w(x))), **layers)


def einsum_heads() -> nn.Module:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (torch.einsum("btd,dhk->bhtk", x, part) for part in (self.q, self.k, self.v))
        scores = torch.einsum("bhtk,bhsk->bhts", q, k).softmax(-1)
        return torch.einsum("bhts,bhsk,hkd->btd", scores, v, self.o)

    return Function(forward, q=(3, 2, 2), k=(3, 2, 2), v=(3, 2, 2), o=(2, 2, 3))


def turned(x: torch.Tensor) -> torch.Tensor:
    """Rotary positions as products of complex numbers."""
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
    angles = torch.arange(x.shape[1], dtype=x.dtype)[:, None] * torch.tensor([1.0, 0.3], dtype=x.dtype)
    return torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles)).flatten(-2)


def spectrum(h: torch.Tensor) -> torch.Tensor:
    return h + torch.fft.rfft(torch.relu(h), dim=1).abs().mean(1, keepdim=True)


def kept_as_data(self: Any, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        size = self.w(x).abs().mean(-1, keepdim=True)
    return self.o(torch.relu(self.w(x)) / (size + 1))


def own_norm(self: Any, x: torch.Tensor) -> torch.Tensor:
    h = self.w(x)
    return self.o(self.g * (h - h.mean(-1, keepdim=True)) / (h.std(-1, keepdim=True) + 0.1))


def scalar_gain() -> nn.Module:
    module = Function(lambda self, x: self.w(x) * self.g, w=nn.Linear(3, 3))
    module.g = nn.Parameter(torch.tensor(2.0))
    return module


MASK = torch.tensor([[1.0, 0, 1], [1, 1, 0], [0, 1, 1]])
SMALL: dict[str, Callable[[], nn.Module]] = {
    "gated linear unit": lambda: between(lambda h: functional.glu(h), 4, 2),
    "einsum": einsum_heads,
    "einsum of two weights": lambda: Function(
        lambda self, x: torch.einsum("btd,dhk,hke->bte", x, self.q, self.o), q=(3, 2, 2), o=(2, 2, 3)
    ),
    "clamp": lambda: between(lambda h: h.clamp(min=0)),
    "threshold": lambda: between(lambda h: functional.threshold(h, 0.0, 0.0)),
    "where": lambda: between(lambda h: torch.where(h > 0, h, 0.1 * h)),
    "sign": lambda: between(lambda h: h * torch.sign(h)),
    "largest of two": lambda: between(lambda h: torch.maximum(h[..., :2], h[..., 2:]), 4, 2),
    "largest of windows": lambda: between(lambda h: h.unflatten(-1, (2, 2)).max(-1).values, 4, 2),
    "largest over positions": lambda: between(lambda h: h + torch.relu(h).amax(1, keepdim=True)),
    "running sum": lambda: between(lambda h: torch.relu(h).cumsum(1)),
    "running sum of units": lambda: between(lambda h: torch.relu(h).cumsum(-1)),
    "Fourier transform": lambda: between(spectrum),
    "complex rotary": lambda: between(turned, 4),
    "known mask": lambda: Function(
        lambda self, x: torch.relu(x @ torch.tril(self.w)) @ (self.v * MASK), w=(3, 3), v=(3, 3)
    ),
    "centred weights": lambda: Function(
        lambda self, x: torch.tanh(functional.linear(x, self.w - self.w.mean(1, keepdim=True))), w=(3, 3)
    ),
    "layer norm written by hand": lambda: Function(own_norm, w=nn.Linear(3, 3), g=(3,), o=nn.Linear(3, 3)),
    "number": scalar_gain,
    "layer norm of the input": lambda: Function(
        lambda self, x: torch.tanh(self.w(functional.layer_norm(x, (3,)))), w=nn.Linear(3, 2)
    ),
}


@pytest.mark.parametrize("name", SMALL)
def test_laws_are_all_that_the_closure_leaves(name: str) -> None:
    torch.manual_seed(3)
    module = SMALL[name]()
    found = symmetries(module, (3, 3))
    assert found.pinned == ()
    assert found.checked is not None
    assert disguise(module, (3, 3), found).difference < 1e-9
    draw = drawing(module, (3, 3))
    counts = []
    for point in range(4):  # near points where a unit never switches more is conserved
        counts.append(
            1 if name == "gated linear unit" else lie_laws(module, draw, point, len(found.laws))
        )  # no forward mode for it
        if counts[-1] == len(found.laws):
            break
    assert min(counts) == len(found.laws) - (1 if name == "gated linear unit" else 0)


def test_what_runs_without_gradients_is_data() -> None:
    """Training sees `relu(Wx)/g` with g fixed: scales of the units are free, though g itself would see them."""
    torch.manual_seed(0)
    module = Function(kept_as_data, w=nn.Linear(3, 2), o=nn.Linear(2, 3))
    found = symmetries(module, (3, 3))
    assert len(found.laws) == 2
    assert found.checked is not None
    with pytest.raises(LawfulError, match="detaches"):
        disguise(module, (3, 3), found)


def test_a_quotient_by_what_is_detached_conserves_nothing() -> None:
    """`a x / a` would not see a; with the denominator under no_grad, training moves a, in train mode with norms too."""

    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            below = self.a * 1.0
        return self.n(x) * self.a / below

    module = Function(forward, a=(3,), n=nn.BatchNorm1d(3, affine=False))
    assert len(symmetries(module, (3,)).laws) == 0


@pytest.mark.parametrize("dim", [0, 1, None])
def test_weight_norm_along_any_axis(dim: int | None) -> None:
    """One length of v for each row or column is conserved, beside balances of g."""
    torch.manual_seed(0)
    layer = parametrizations.weight_norm(nn.Linear(3, 2), dim=dim)
    found = symmetries(nn.Sequential(layer, nn.ReLU(), nn.Linear(2, 3)), (3,))
    assert found.checked is not None
    assert len(found.laws) == {0: 2 + 2, 1: 3, None: 0}[dim]


def test_projected_recurrence_is_named() -> None:
    module = Function(lambda self, x: self.r(x)[0], r=nn.LSTM(3, 2, proj_size=1, batch_first=True))
    assert [part.operation for part in symmetries(module, (3, 3)).pinned] == ["lstm"]


def test_outputs_that_are_not_finite_are_said() -> None:
    module = Function(lambda self, x: torch.relu(x @ self.w) / torch.relu(x @ self.w).sum(-1, keepdim=True), w=(3, 2))
    with torch.no_grad():
        module.w.zero_()
    found = symmetries(module, (3,))
    with pytest.raises(LawfulError, match="not finite"):
        disguise(module, (3,), found)


def test_laws_are_counted_once() -> None:
    """A weight (d, h, k) read as d × (h, k): gauges of h and of k apart would share their common scale."""
    torch.manual_seed(0)
    module = Function(lambda self, x: x @ self.q.view(3, 4) @ self.o.view(4, 3), q=(3, 2, 2), o=(2, 2, 3))
    found = symmetries(module, (3,))
    point = {name: tensor.detach().double() for name, tensor in module.named_parameters()}
    assert np.linalg.matrix_rank(found.laws.gradients(point), tol=1e-9) == len(found.laws) == 10
