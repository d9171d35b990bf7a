"""Every stated bound against search: gradients and random inputs stay below it, at any scale, in float32 too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import lawful
from lawful.errors import LawfulError
from lawful.network import Mlp
from lawful.pruning.neurons.prune import prune as prune_neurons
from tests.pruning.test_job import Residual, made


class Pooled(nn.Module):
    """Convolutions with batch normalisation, a pool between, a Linear layer on what is left."""

    def __init__(self, pool: nn.Module) -> None:
        super().__init__()
        self.a, self.norm, self.pool, self.b = nn.Conv2d(1, 5, 3, 1, 1), nn.BatchNorm2d(5), pool, nn.Conv2d(5, 4, 2)
        self.out = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.b(self.pool(self.norm(self.a(x)).relu())).relu().flatten(1))


NETWORKS: dict[str, Any] = {
    "residual": (Residual, (1, 5, 5)),
    "maximum": (lambda: Pooled(nn.MaxPool2d(2)), (1, 4, 4)),
    "average": (lambda: Pooled(nn.AvgPool2d(2)), (1, 4, 4)),
    "layers": (lambda: nn.Sequential(nn.Linear(6, 14), nn.ReLU(), nn.Linear(14, 9), nn.ReLU(), nn.Linear(9, 3)), (6,)),
}


def largest_change(one: Any, two: Any, low: torch.Tensor, high: torch.Tensor, steps: int = 30) -> float:
    """The largest change of an output that is found: random inputs, corners, and ascent from them, in float64."""
    generator = torch.Generator().manual_seed(0)
    starts = [torch.rand(low.shape, generator=generator, dtype=low.dtype) for _ in range(4)]
    worst = 0.0
    for share in (*starts, starts[0].round(), starts[1].round()):
        x = (low + (high - low) * share).requires_grad_()
        for step in range(steps):
            gaps = (one(x) - two(x)).abs().amax(1)
            worst = max(worst, float(gaps.detach().max()))
            (slope,) = torch.autograd.grad(gaps.sum(), x)
            x = torch.minimum(torch.maximum(x + (high - low) / (5 + step) * slope.sign(), low), high).detach()
            x.requires_grad_()
    return worst


def rows(size: tuple[int, ...], count: int = 14, scale: float = 1.0) -> np.ndarray:
    return np.random.default_rng(3).normal(size=(count, *size)) * scale


def boxes(x: np.ndarray, radius: float) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.tensor(x - radius), torch.tensor(x + radius)


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
@pytest.mark.parametrize("name", NETWORKS)
def test_around_samples_at_any_scale(name: str, scale: float) -> None:
    """Inputs in other units, with first weights to match, move outputs as before; so do the bounds."""
    kind, size = NETWORKS[name]
    module = made(kind)
    first = next(part for part in module.modules() if isinstance(part, (nn.Conv2d, nn.Linear)))
    with torch.no_grad():
        first.weight.div_(scale)
    x, radius = rows(size, scale=scale), 0.02 * scale
    found = lawful.prune(module, input=size, data=x, tolerance=0.3, relative=True, around=radius, **_layered(name))
    low, high = boxes(x, radius)
    stated = max(found.bounds)
    seen = largest_change(made_again(module), _smaller(found), low, high)
    assert seen <= stated
    assert stated <= 0.3 * np.ptp(module.double()(torch.tensor(x)).detach().numpy(), axis=0).max() * (1 + 1e-6)


def _layered(name: str) -> dict[str, Any]:
    return {"seconds": 20.0} if name == "layers" else {}


def made_again(module: nn.Module) -> nn.Module:
    import copy

    return copy.deepcopy(module).double()


def _smaller(found: Any) -> Any:
    if isinstance(found.network if hasattr(found, "network") else None, Mlp):
        return lambda x: _run(found.network, x)
    return found.module.double()


def _run(network: Mlp, x: torch.Tensor) -> torch.Tensor:
    """A network of layers, with gradients."""
    for number, (weight, bias) in enumerate(zip(network.weights, network.biases, strict=True)):
        x = x @ torch.tensor(weight).T + torch.tensor(bias)
        x = x.relu() if number < len(network.weights) - 1 else x
    return x


@pytest.mark.parametrize("name", ["residual", "maximum", "average"])
def test_a_box_of_one_point_and_a_flat_box(name: str) -> None:
    kind, size = NETWORKS[name]
    x = rows(size)
    point = x[0].ravel()
    for low, high in ((point, point), (point, point + 0.2 * (np.arange(point.size) == 3))):
        found = lawful.prune(made(kind), input=size, data=x, tolerance=0.5, box=(low, high))
        corners = [torch.tensor(side.reshape(1, *size)) for side in (low, high)]
        seen = largest_change(made(kind).double(), found.module.double(), *corners)
        assert found.bounds is not None
        assert seen <= max(found.bounds) <= 0.5


def test_the_file_in_its_own_type_stays_below_the_bound_and_its_rounding() -> None:
    """What runs is float32: its outputs are those of real numbers to 1e-5 here, far below what is stated."""
    x = rows((1, 5, 5))
    found = lawful.prune(made(Residual), input=(1, 5, 5), data=x, tolerance=0.5, around=0.02)
    batch = torch.tensor(x, dtype=torch.float32)
    gap = float((made(Residual)(batch) - found.module.float()(batch)).abs().max().detach())
    assert gap <= max(found.bounds) + 1e-5


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
def test_neurons_on_a_box_and_to_a_number(scale: float) -> None:
    rng = np.random.default_rng(0)
    network = Mlp(
        [rng.normal(size=(10, 4)) / scale, rng.normal(size=(7, 10)), rng.normal(size=(2, 7))],
        [rng.normal(size=10), rng.normal(size=7), rng.normal(size=2)],
    )
    side = np.full(4, 0.5 * scale)
    low, high = torch.tensor(-side)[None].repeat(60, 1), torch.tensor(side)[None].repeat(60, 1)
    for options in ({"tolerance": 0.05, "relative": True}, {"keep": 9}):
        found = prune_neurons(network, box=(-side, side), **options)  # type: ignore[arg-type]
        assert found.neurons_after < 17
        seen = largest_change(lambda x: _run(network, x), lambda x, at=found: _run(at.network, x), low, high)
        assert seen <= max(found.bounds) + 1e-13  # float64 evaluates outputs of size 10 to 1e-14


def test_data_of_one_row() -> None:
    """One sample cannot both repair and measure; a bound around it holds whatever repaired."""
    one = rows((1, 5, 5), 1)
    with pytest.raises(LawfulError, match="too few"):
        lawful.prune(made(Residual), input=(1, 5, 5), data=one, tolerance=0.5)
    certified = lawful.prune(made(Residual), input=(1, 5, 5), data=one, tolerance=0.5, around=0.01)
    low, high = boxes(np.repeat(one, 40, 0), 0.01)
    assert largest_change(made(Residual).double(), certified.module.double(), low, high) <= max(certified.bounds)
    network = lawful.open(made(NETWORKS["layers"][0]))
    x = rows((6,), 1)
    found = lawful.prune(network, data=x, tolerance=0.2, around=0.05)
    low, high = boxes(np.repeat(x, 40, 0), 0.05)
    assert isinstance(network, Mlp)
    assert largest_change(lambda x: _run(network, x), lambda x: _run(found.network, x), low, high) <= max(found.bounds)
