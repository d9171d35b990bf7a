"""Evaluations of modules from recorded calls: the same numbers, and no recording where calls depend on values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from lawful.training import integrate
from lawful.training.problems.module_problem import ModuleProblem, _Tape

RNG = np.random.default_rng(5)


def convolutional() -> nn.Module:
    return nn.Sequential(
        nn.Unflatten(1, (1, 4, 4)), nn.Conv2d(1, 3, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(12, 5), nn.LeakyReLU(0.2), nn.LayerNorm(5), nn.Linear(5, 2),
    )  # fmt: skip


class Branching(nn.Module):
    """Which layer is used depends on the numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(16, 2), nn.Linear(16, 2)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.first(x) if self.first.weight.sum() > 0 else self.second(x)
        return found


class Residual(nn.Module):
    """A layer used twice, a frozen one, and a sum."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.out = nn.Linear(16, 16), nn.Linear(16, 2)
        self.out.bias.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        x = x + torch.relu(self.inner(x))
        found: Tensor = self.out(x + torch.relu(self.inner(x)).abs())
        return found


def made(module: nn.Module, loss: str = "mse") -> ModuleProblem:
    y = RNG.normal(size=(6, 2)) if loss == "mse" else RNG.integers(0, 2, 6 if loss == "ce" else (6, 2))
    return ModuleProblem(module, RNG.normal(size=(6, 16)), y, loss)


def taped(at: ModuleProblem) -> int:
    return sum(isinstance(tape, _Tape) for tape in at._tapes.values())


@pytest.mark.parametrize("make", [convolutional, Residual, lambda: nn.Linear(16, 2)])
@pytest.mark.parametrize("loss", ["mse", "bce", "ce"])
def test_a_recording_gives_the_same_numbers_elsewhere(make: type[nn.Module], loss: str) -> None:
    torch.manual_seed(0)
    at, direct = made(make(), loss), None
    gates = (at.evaluate(at.start).heights > 0).astype(float)
    for _ in range(4):
        at.evaluate(at.start, gates), at.heights(at.start, gates), at.evaluate(at.start)
        if len(gates):
            at.height_gradients(at.start, gates, [0])
    assert taped(at) == (4 if len(gates) else 3)
    theta = at.start + 0.3 * RNG.normal(size=len(at.start))
    half = gates.copy()
    half[: len(half) // 3] = 0.5
    for pattern in (None, half):
        direct = at.rows(np.arange(6))
        direct._tapes = {}
        one, other = at.evaluate(theta, pattern), direct.evaluate(theta, pattern)
        assert one.loss == pytest.approx(other.loss, rel=1e-13)
        for name in ("gradient", "heights", "pushes"):
            np.testing.assert_allclose(getattr(one, name), getattr(other, name), rtol=1e-11, atol=1e-14)
        np.testing.assert_allclose(at.heights(theta, pattern), other.heights, rtol=1e-12, atol=1e-15)
    if len(gates):
        direct._tapes = {}
        chosen = [0, len(gates) - 1]
        np.testing.assert_allclose(
            at.height_gradients(theta, half, chosen), direct.height_gradients(theta, half, chosen), atol=1e-14
        )


def test_what_depends_on_values_is_not_recorded() -> None:
    torch.manual_seed(1)
    at = made(Branching())
    for _ in range(5):
        at.evaluate(at.start)
    assert taped(at) == 0
    flipped = -at.start
    direct = at.rows(np.arange(6))
    direct._tapes = {}
    assert at.evaluate(flipped).loss == direct.evaluate(flipped).loss


def test_fewer_samples_have_their_own_recording() -> None:
    torch.manual_seed(2)
    at = made(convolutional())
    for _ in range(4):
        at.evaluate(at.start)
    few = at.rows(np.array([4, 1]))
    values = [few.evaluate(at.start) for _ in range(5)]
    assert all(value.loss == pytest.approx(values[0].loss, rel=1e-14) for value in values)
    assert few.label(few.heights(at.start).size - 1)[0] == 1
    other = at.rows(np.array([1, 4]))
    assert other.evaluate(at.start).loss == pytest.approx(values[0].loss, rel=1e-13)
    assert at.evaluate(at.start).heights.size == 3 * few.evaluate(at.start).heights.size


def test_results_do_not_share_memory() -> None:
    torch.manual_seed(3)
    at = made(nn.Linear(16, 2))
    first = [at.evaluate(at.start) for _ in range(5)][-1]
    kept = first.gradient.copy()
    at.evaluate(2 * at.start)
    np.testing.assert_array_equal(first.gradient, kept)


def test_a_flow_from_recordings_is_the_flow() -> None:
    torch.manual_seed(4)
    at = made(convolutional())
    slow = at.rows(np.arange(6))
    slow._tapes = _Never()
    one, other = integrate(at, 0.05), integrate(slow, 0.05)
    assert taped(at) > 0
    assert len(one.kinks) == len(other.kinks) > 0
    np.testing.assert_allclose(one.end, other.end, atol=1e-9)


class _Never(dict):  # type: ignore[type-arg]
    """Forgets how often it was asked."""

    def __setitem__(self, key: object, value: object) -> None:
        return


class Counting(nn.Module):
    """Keeps a number that grows with every call."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 2)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        found: Tensor = self.layer(x)
        return found


def test_a_buffer_that_changes_is_not_recorded() -> None:
    at = made(Counting())
    for _ in range(5):
        at.evaluate(at.start)
    assert taped(at) == 0


class Unbatched(torch.autograd.Function):
    """The identity, by code that PyTorch cannot run for several gradients at once."""

    @staticmethod
    def forward(context: Any, x: Tensor) -> Tensor:  # type: ignore[override]
        return x.clone()

    @staticmethod
    def backward(context: Any, slope: Tensor) -> Tensor:  # type: ignore[override]
        if slope.sum().item() > 1e30:
            raise AssertionError
        return slope


class Odd(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(16, 5), nn.Linear(5, 2)

    def forward(self, x: Tensor) -> Tensor:
        inner: Tensor = Unbatched.apply(self.first(x))
        found: Tensor = self.last(torch.relu(inner))
        return found


@pytest.mark.parametrize(("make", "together"), [(convolutional, True), (Residual, True), (Odd, False)])
def test_gradients_of_several_heights_are_those_of_each(make: type[nn.Module], together: bool) -> None:
    torch.manual_seed(3)
    at = made(make())
    gates = (at.heights(at.start) > 0).astype(float)
    chosen = RNG.choice(len(gates), 5, replace=False).tolist()
    for _ in range(4):  # before and after a recording
        theta = at.start + 0.1 * RNG.normal(size=len(at.start))
        single = [at.height_gradients(theta, gates, [gate])[0] for gate in chosen]
        np.testing.assert_allclose(at.height_gradients(theta, gates, chosen), single, atol=1e-13)
    assert at._together == together
