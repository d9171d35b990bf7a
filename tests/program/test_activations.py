"""Activations that are written out: one node, and the same numbers."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

from lawful.program.domains.evaluate import evaluate
from lawful.program.frontends.torch_export import read_module
from lawful.program.passes.activations import FINITE, Ray, _write

Function = Callable[[torch.Tensor], torch.Tensor]


class Of(nn.Module):
    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)


SPELLINGS: dict[str, tuple[Function, Function]] = {
    "leaky by where": (lambda x: functional.leaky_relu(x, 0.25), lambda x: torch.where(x >= 0, x, 0.25 * x)),
    "leaky by maximum": (lambda x: functional.leaky_relu(x, 0.25), lambda x: torch.maximum(x, 0.25 * x)),
    "leaky by parts": (lambda x: functional.leaky_relu(x, 0.25), lambda x: x.clamp(min=0) + 0.25 * x.clamp(max=0)),
    "abs by where": (torch.abs, lambda x: torch.where(x < 0, -x, x)),
    "abs by sign": (torch.abs, lambda x: x * x.sign()),
    "abs by maximum": (torch.abs, lambda x: torch.maximum(x, -x)),
    "abs by relus": (torch.abs, lambda x: x.relu() + (-x).relu()),
    "sigmoid": (torch.sigmoid, lambda x: 1 / (1 + torch.exp(-x))),
    "silu": (functional.silu, lambda x: x / (1 + (-x).exp())),
    "softplus": (functional.softplus, lambda x: torch.log1p(x.exp())),
    "softplus by log": (functional.softplus, lambda x: torch.log(1 + x.exp())),
    "softmax": (lambda x: x.softmax(-1), lambda x: x.exp() / x.exp().sum(-1, keepdim=True)),
    "softmax, shifted": (
        lambda x: x.softmax(-1),
        lambda x: (e := (x - x.amax(-1, keepdim=True)).exp()) / e.sum(-1, keepdim=True),
    ),
    "softmax, divided later": (
        lambda x: x.softmax(0),
        lambda x: (e := torch.exp(x - x.max(0, keepdim=True).values)) * (1 / e.sum(0, keepdim=True)),
    ),
}


@pytest.mark.parametrize("name", SPELLINGS)
def test_what_is_written_out_is_one_program(name: str) -> None:
    plain, written = (read_module(Of(function), [(2, 5)]) for function in SPELLINGS[name])
    assert written.text() == plain.text()


@pytest.mark.parametrize("function", [lambda x: x + x.relu(), lambda x: torch.relu(x / 2)])
def test_what_says_it_best_stays(function: Function) -> None:
    """A residual stream beside its ReLU is two terms, and a factor before a ReLU belongs to the layer before it."""
    program = read_module(Of(function), [(2, 5)])
    assert sum(node.op == "relu" for node in program.nodes) == 1


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.where(x > 1, x, 0.0),
        lambda x: torch.where(x > 0, x, x.flip(1)),
        lambda x: x * (x.flip(1) > 0),
        lambda x: torch.maximum(x, 0.3 * x.flip(1)),
        lambda x: x.exp() / x.exp().sum(0, keepdim=True).flip(1),
        lambda x: x.exp() / (2 * x).exp().sum(1, keepdim=True),
        lambda x: 1 / (2 + torch.exp(-x)),
        lambda x: torch.where(x > 0, 2 * x, -3 * x) - x.abs(),
        lambda x: torch.where(-2 * x > 0, x, 0.0) + x.relu(),
        lambda x: (x.abs() - x).relu().abs() * (x < 0),
    ],
)
def test_the_numbers_stay(function: Function) -> None:
    x = torch.randn(2, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    torch.testing.assert_close(evaluate(read_module(Of(function), [x]), x)[0], function(x))


def test_that_values_are_finite_is_said() -> None:
    """`where(x > 0, x, 0)` is 0 at NaN, where ReLU is NaN."""
    assert FINITE in read_module(Of(lambda x: torch.where(x > 0, x, 0.0)), [(2, 3)]).notes
    assert FINITE not in read_module(Of(torch.relu), [(2, 3)]).notes


@settings(max_examples=40, deadline=None)
@given(slopes=st.tuples(*[st.fractions(-4, 4, max_denominator=8)] * 2))
def test_a_ray_is_written_with_its_slopes(slopes: tuple[Fraction, Fraction]) -> None:
    from lawful.program.builder import Builder

    b = Builder()
    made = _write(b, Ray(b.input("x", (2,)), *slopes))
    if made is None:
        assert slopes == (0, 0) or any(Fraction(float(each)) != each for each in slopes)
        return
    found = evaluate(b.finish([made]), torch.tensor([1.0, -1.0], dtype=torch.float64))[0]
    assert [Fraction(float(each)) for each in found] == [slopes[0], -slopes[1]]
