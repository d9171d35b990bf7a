"""What is written in other words is the same program."""

from __future__ import annotations

import random

import pytest
import torch
from program.spellings import NOTHING, WAYS, Spelled, Written

from lawful.program import Program
from lawful.program.domains.evaluate import evaluate
from lawful.program.frontends.torch_export import read_module

X = torch.randn(2, 5, generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def plain() -> Program:
    return read_module(Spelled("none"), [(2, 5)])


@pytest.mark.parametrize("name", NOTHING)
def test_a_call_that_does_nothing_is_nothing(name: str, plain: Program) -> None:
    module = Spelled(name)
    program = read_module(module, [(2, 5)])
    assert program.text() == plain.text()
    assert program.digest() == plain.digest()
    torch.testing.assert_close(evaluate(program, X, real=torch.float32)[0], module(X))


@pytest.mark.parametrize("way", WAYS)
def test_layers_written_out_are_the_same_program(way: str, plain: Program) -> None:
    assert read_module(Written(way), [(2, 5)]).text() == plain.text()


def test_walks_of_calls_that_do_nothing_are_nothing(plain: Program) -> None:
    rng = random.Random(0)  # noqa: S311
    quiet = [name for name in NOTHING if name != "clamp_min"]
    for _ in range(4):
        walk = [NOTHING[name] for name in rng.sample(quiet, 6)]
        module = Spelled("none")
        hook = module.b.register_forward_pre_hook(lambda _, given, walk=walk: (_apply(walk, given[0]),))
        assert read_module(module, [(2, 5)]).digest() == plain.digest()
        hook.remove()


def _apply(walk: list, h: torch.Tensor) -> torch.Tensor:
    for call in walk:
        h = call(h)
    return h


def test_other_functions_are_other_programs(plain: Program) -> None:
    class Shifted(Spelled):
        def forward(self, x):
            return self.b(torch.relu(self.a(x)) + 1e-9)

    class Prefix(Spelled):
        def forward(self, x):
            return self.b(torch.relu(self.a(x)).roll(1, 1))

    for other in (Shifted("none"), Prefix("none")):
        assert read_module(other, [(2, 5)]).digest() != plain.digest()


def test_ties_are_one_node() -> None:
    tied = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU(), torch.nn.Linear(3, 3))
    tied[2].weight = tied[0].weight
    assert set(read_module(tied, [(2, 3)]).parameters) == {"0.weight", "0.bias", "2.bias"}
