"""Programs for exact arithmetic: no quotient is rounded, nothing is shifted, functions are elementary."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from lawful.program import Program
from lawful.program.builder import Builder
from lawful.program.domains.evaluate import evaluate
from lawful.program.frontends.torch_export import read_module
from lawful.program.frontends.torch_function import read_function
from lawful.program.passes.core import lower
from lawful.program.table import OPERATORS

ELEMENTARY = sorted(name for name, each in OPERATORS.items() if each.elementary is not None)
LEFT = {"exp", "log", "erf", "sin", "cos", "power", "where", "gt", "cast"}


@pytest.mark.parametrize("name", ELEMENTARY)
def test_elementary_forms_are_the_functions(name: str) -> None:
    b = Builder()
    x = b.input("x", (9,))
    two = name == "pow"
    program = b.finish([b.elementwise(name, x, b.add(x, 1.0)) if two else b.function(name, x)])
    core = lower(program, exact=True)
    assert {node.op for node in core.nodes if node.family.value in ("elementwise", "comparison", "choice")} <= LEFT
    shift = {"acosh": 2.0, "pow": 1.0}.get(name, 0.0)
    given = np.linspace(-0.9, 0.9, 9)[np.arange(9) != 4].repeat(2)[:9] + shift  # kinks are at 0
    np.testing.assert_allclose(evaluate(core, given)[0], evaluate(program, given)[0], rtol=1e-12, atol=1e-14)


def test_quotients_that_floats_round_stay() -> None:
    for exact, count, folded in ((True, 3.0, False), (True, 4.0, True), (False, 3.0, True)):
        b = Builder(exact=exact)
        x = b.input("x", (2,))
        program = b.finish([b.div(x, count)])
        assert (program.nodes[-1].op, "power" in {node.op for node in program.nodes}) == ("mul", not folded)
        np.testing.assert_allclose(evaluate(program, np.array([1.0, 2.0]))[0], np.array([1.0, 2.0]) / count)


def test_softmax_is_not_shifted() -> None:
    for function in (lambda held, x: (held["w"] * x).softmax(-1), lambda held, x: (held["w"] * x).log_softmax(-1)):
        program = read_function(function, {"w": torch.randn(3)}, [torch.zeros(3)])
        assert "amax" not in {node.op for node in lower(program, exact=True).nodes}
        assert "amax" in {node.op for node in lower(read_as_floats(function)).nodes}


def read_as_floats(function: Callable[..., torch.Tensor]) -> Program:
    class Held(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = torch.nn.Parameter(torch.randn(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return function({"w": self.w}, x)

    return read_module(Held(), [(2, 3)])


CALLS: dict[str, Callable[..., torch.Tensor]] = {
    "products of the first": lambda held, x: torch.cumprod(held["w"] * x, -1),
    "a bilinear form": lambda held, x: torch.nn.functional.bilinear(x, x, held["w"].expand(4, 3, 3)),
    "circular padding": lambda held, x: torch.nn.functional.pad((held["w"] * x)[:, None], (1, 2), mode="circular"),
    "mean random slopes": lambda held, x: torch.nn.functional.rrelu(held["w"] * x, training=False),
    "an early cutoff": lambda held, x: torch.nn.functional.softplus(held["w"] * x, 2.0, 1.0),
    "a cutoff": lambda held, x: torch.nn.functional.softplus(held["w"] * x * 40.0),
    "statistics of the batch": lambda held, x: torch.nn.functional.batch_norm(x, None, None, held["w"], None, True),
    "an assignment in place": lambda held, x: assigned(held["w"], x),
}


def assigned(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    whole = torch.zeros(2, 3, dtype=x.dtype)
    whole[:, 1:] = (w * x)[:, :2]
    whole += 1
    return whole


@pytest.mark.parametrize("name", CALLS)
def test_functions_are_read_as_they_run(name: str) -> None:
    torch.manual_seed(0)
    w, x = torch.randn(3, dtype=torch.float64), torch.randn(2, 3, dtype=torch.float64)
    program = lower(read_function(CALLS[name], {"w": w}, [x]), exact=True)
    assert program.opaque == []
    torch.testing.assert_close(evaluate(program, x)[0], CALLS[name]({"w": w}, x))
