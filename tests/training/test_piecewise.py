"""Kinks of other functions than ReLU: located, or said not to be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from lawful import Unsupported
from lawful.training import integrate, problem
from lawful.training.problems.module_problem import ModuleProblem
from lawful.training.problems.piecewise import LOCATED, rewritten

X = torch.linspace(-8.0, 8.0, 2 * 3 * 4 * 6, dtype=torch.float64).flip(0).reshape(2, 3, 4, 6)[:, :, [2, 0, 3, 1]]
Y = X.roll(1, -1)
CALLS: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = [
    (torch.relu, (X,), {}),
    (functional.leaky_relu, (X,), {"negative_slope": 0.3, "inplace": False}),
    (torch.prelu, (X, torch.tensor([0.1, 0.2, 0.3], dtype=torch.float64)), {}),
    (torch.prelu, (X, torch.tensor([0.4], dtype=torch.float64)), {}),
    (torch.prelu, (X[0, 0, 0], torch.tensor([0.4], dtype=torch.float64)), {}),
    (torch.Tensor.abs, (X,), {}),
    (torch.clamp, (X, -1, 2), {}),
    (torch.Tensor.clamp, (X,), {"max": 1.5}),
    (torch.Tensor.clamp, (X,), {"min": Y}),
    (torch.clamp_max, (X, 0.5), {}),
    (torch.clamp_min, (X, 0.5), {}),
    (functional.hardtanh, (X,), {"min_val": -2.0, "max_val": 0.5, "inplace": False}),
    (functional.relu6, (X,), {}),
    (functional.hardsigmoid, (X,), {}),
    (functional.hardswish, (X,), {}),
    (functional.elu, (X, 0.7), {}),
    (functional.celu, (X, 0.7), {}),
    (functional.selu, (X,), {}),
    (functional.softshrink, (X, 1.0), {}),
    (torch.maximum, (X, Y), {}),
    (torch.minimum, (X, Y), {}),
    (torch.max, (X, Y), {}),
    (torch.min, (X,), {"other": Y}),
    (torch.amax, (X, (1, -1)), {}),
    (torch.amin, (X,), {"dim": 2, "keepdim": True}),
    (torch.amax, (X,), {}),
    (functional.max_pool1d, (X[0], 2), {"stride": 3}),
    (functional.max_pool2d, (X, (2, 3)), {"stride": 1, "padding": 0, "ceil_mode": False}),
    (functional.max_pool2d, (X[0],), {"kernel_size": 2}),
]


@pytest.mark.parametrize(("function", "arguments", "options"), CALLS)
def test_a_rewriting_is_the_function(function: Any, arguments: Any, options: dict[str, Any]) -> None:
    found = rewritten(function, arguments, options, lambda name: functional_leaky)
    assert found is not None
    torch.testing.assert_close(found, function(*arguments, **options), rtol=1e-13, atol=1e-13)


def functional_leaky(height: torch.Tensor, slope: float = 0.0) -> torch.Tensor:
    return torch.where(height > 0, height, slope * height)


def test_every_rewriting_is_tried() -> None:
    assert {LOCATED[function][0] for function, _, _ in CALLS} == {name for name, _ in LOCATED.values()}


@pytest.mark.parametrize(
    ("function", "arguments", "options"),
    [
        (torch.tanh, (X,), {}),
        (torch.max, (X,), {"dim": 1}),
        (functional.max_pool2d, (X, 2), {"padding": 1}),
        (functional.max_pool2d, (X, 2), {"return_indices": True}),
        (torch.abs, (torch.arange(-3, 3),), {}),
    ],
)
def test_what_is_not_rewritten(function: Any, arguments: Any, options: dict[str, Any]) -> None:
    assert rewritten(function, arguments, options, lambda name: functional_leaky) is None


def between(activation: nn.Module, seed: int = 3) -> ModuleProblem:
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    module = nn.Sequential(nn.Linear(2, 6), activation, nn.Linear(6, 1)).double()
    with torch.no_grad():
        module[0].weight *= 2
    return ModuleProblem(module, rng.normal(size=(6, 2)), rng.normal(size=(6, 1)))


class Shaped(nn.Module):
    def __init__(self, *parts: nn.Module) -> None:
        super().__init__()
        self.parts = nn.Sequential(*parts)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.parts(x[:, None])[:, 0].repeat(1, 2)


@pytest.mark.parametrize(
    ("activation", "name", "seed", "time"),
    [
        (nn.Hardtanh(-0.7, 0.7), "hardtanh", 2, 4.0),
        (nn.SELU(), "selu", 1, 4.0),
        (Shaped(nn.MaxPool1d(2)), "max_pool1d", 1, 2.0),
    ],
)
def test_order_is_kept_across_other_kinks(activation: nn.Module, name: str, seed: int, time: float) -> None:
    """Of DOP853's dense output: 7 across kinks that are located, far less across those that are not."""
    at = between(activation, seed)
    true = integrate(at, time, snapshots=2, relative=1e-12, absolute=1e-14)
    assert at.unlocated == ()
    assert true.kinks
    assert all(kink.neuron.startswith(name) for kink in true.kinks)

    def error(steps: int, locate: bool) -> float:
        loose: dict[str, Any] = {"relative": 1e3, "absolute": 1e3, "locate_kinks": locate, "snapshots": 2}
        return float(np.abs(integrate(at, time, max_step=time / steps, **loose).end - true.end).max())

    coarse, fine = error(8, True), error(16, True)
    assert np.log2(coarse / fine) > 5
    assert error(16, False) > 1e3 * fine


def test_kinks_of_a_loss_are_located() -> None:
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    at = problem(
        nn.Linear(3, 1), rng.normal(size=(5, 3)), rng.normal(size=(5, 1)), lambda out, y: (out - y).abs().mean()
    )
    flow = integrate(at, 3.0, snapshots=5)
    assert {kink.neuron[:3] for kink in flow.kinks} == {"abs"}
    assert (np.diff(flow.losses) < 1e-12).all()


class Switch(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * (x > 0)


@pytest.mark.parametrize(
    ("activation", "names"),
    [
        (nn.Tanh(), ()),
        (nn.Threshold(0.1, 0.0), ("threshold",)),
        (Switch(), ("gt",)),
        (Shaped(nn.AdaptiveMaxPool1d(3)), ("adaptive_max_pool1d",)),
        (Shaped(nn.MaxPool1d(3, padding=1, stride=2)), ("max_pool1d",)),
    ],
)
def test_other_kinks_are_named(activation: nn.Module, names: tuple[str, ...]) -> None:
    assert between(activation).unlocated == names


class InPlace(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        torch.relu_(x)
        return x


def test_a_change_in_place_that_would_be_lost_is_refused() -> None:
    with pytest.raises(Unsupported, match="in place"):
        between(InPlace())
    assert between(nn.ReLU(inplace=True)).unlocated == ()
