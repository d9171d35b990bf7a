"""Derivatives as programs, against PyTorch's forward mode and by symmetry; programs as modules."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from program.models import make, run
from program.test_traits import OPERATED
from torch import nn

from lawful.program import Builder, Refused
from lawful.program.backends.torch_module import ProgramModule
from lawful.program.domains.evaluate import evaluate
from lawful.program.frontends.torch_export import read_module
from lawful.program.passes.tangent import MARK, differentiate
from lawful.program.table import Operator

FUNCTIONS = [each for each in OPERATED if each.derivative is not None and not each.attributes]


@pytest.mark.parametrize("name", ["mlp", "lenet", "attention"])
def test_the_derivative_of_a_module_is_pytorchs(name: str) -> None:
    module, x = make(name)
    held = {key: value.detach() for key, value in module.named_parameters()}
    torch.manual_seed(1)
    way = {key: torch.randn_like(value) for key, value in held.items()}
    program = read_module(module, [x])
    moved = differentiate(program)
    directions = [way[node["name"].removeprefix(MARK)] for node in moved.inputs[len(program.inputs) :]]
    with torch.no_grad():
        ours = evaluate(moved, x, *directions)

    def call(tensors):
        return torch.func.functional_call(module, tensors, (x,))

    value, slope = torch.func.jvp(call, (held,), (way,))
    torch.testing.assert_close(ours[0], value, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(ours[1], slope, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("operator", FUNCTIONS, ids=lambda each: each.name)
def test_derivatives_of_functions(operator: Operator) -> None:
    b = Builder()
    x = b.input("x", (7,))
    program = differentiate(b.finish([b.function(operator.name, x)]), ["x"])
    at = np.array([-2.3, -0.7, -0.2, 0.4, 0.9, 1.7, 3.2])
    with np.errstate(all="ignore"):
        value, slope = evaluate(program, at, np.ones(7))
        ends = [evaluate(program, at + h, np.ones(7))[0] for h in (-1e-6, 1e-6)]
    numbers = np.isfinite(value)
    np.testing.assert_allclose(slope[numbers], (ends[1] - ends[0])[numbers] / 2e-6, rtol=1e-6, atol=1e-7)


def test_what_has_no_derivative_is_named() -> None:
    b = Builder()
    x = b.input("x", (2,))
    with pytest.raises(Refused, match="the derivative of lgamma"):
        differentiate(b.finish([b.function("lgamma", x)]), ["x"])


def test_choices_and_lookups_move_with_what_they_pick() -> None:
    class Picks(nn.Module):
        def forward(self, x):
            top, _ = x.sort(-1)
            return torch.maximum(top[:, :2], x[:, 1:]).amax(-1) + torch.where(x > 0, x * x, x).sum(-1)

    x, way = (torch.randn(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(k)) for k in (0, 1))
    program = differentiate(read_module(Picks(), [x]), ["x"])
    value, slope = torch.func.jvp(Picks(), (x,), (way,))
    ours = evaluate(program, x, way)
    torch.testing.assert_close(ours[0], value)
    torch.testing.assert_close(ours[1], slope)


@pytest.mark.parametrize("name", ["lenet", "attention", "gpt2"])
def test_a_program_is_a_module_again(name: str) -> None:
    module, x = make(name)
    program = read_module(module, [x])
    again = ProgramModule(program)
    with torch.no_grad():
        torch.testing.assert_close(again(x), run(module, x), rtol=1e-5, atol=1e-5)
    assert set(dict(again.named_parameters())) == set(dict(module.named_parameters()))
    if name == "attention":
        assert read_module(again, [x]).digest(False) == program.digest(False)
        again(x).sum().backward()
        module(x).sum().backward()
        for key, parameter in again.named_parameters():
            torch.testing.assert_close(parameter.grad, module.get_parameter(key).grad)
