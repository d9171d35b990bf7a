"""Modules whose pieces are polynomials: residues instead of balls, all polynomial laws, reductions, laws in words."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sympy
import torch
from torch import nn

from lawful import LawfulError, Unsupported, verify
from lawful.conservation import count_laws
from lawful.conservation.certificate import certificate
from lawful.conservation.closure.error_probability import directions
from lawful.conservation.closure.program_brackets import Sampled, is_polynomial, pieces
from lawful.conservation.known.module_polynomial import module_logarithmic_laws, module_polynomial_laws
from lawful.conservation.known.polynomial import polynomial_laws
from lawful.conservation.programs.module_function import probe
from lawful.conservation.rank_proof import program_of
from lawful.conservation.reduction import reduce_module
from lawful.conservation.wording import ModuleWording
from lawful.exact import PRIME, to_residues


class Bilinear(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.pair, self.last = nn.Bilinear(2, 2, 3), nn.Linear(3, 2)

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        return self.last(self.pair(batch, batch))


class Gated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up, self.down = nn.Linear(3, 2), nn.Linear(3, 2), nn.Linear(2, 2)

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        return self.down(torch.relu(self.gate(batch)) * self.up(batch))


def tower() -> nn.Module:
    """Pooling after ReLU: in a window of inactive neurons every entry is the largest."""
    return nn.Sequential(nn.Conv1d(1, 2, 2), nn.ReLU(), nn.MaxPool1d(2), nn.Conv1d(2, 2, 2), nn.ReLU(), nn.Flatten())


MODULES = {  # laws counted by closure with reverse over reverse derivatives
    "convolutions": (lambda: nn.Sequential(nn.Conv1d(1, 2, 2), nn.ReLU(), nn.Conv1d(2, 1, 2)), (1, 4), "train", 2),
    "pooling": (
        lambda: nn.Sequential(nn.Conv1d(1, 2, 2), nn.MaxPool1d(2), nn.AvgPool1d(2), nn.Conv1d(2, 1, 1)),
        (1, 6),
        "train",
        2,
    ),
    "tower": (lambda: nn.Sequential(*tower(), nn.Linear(2, 2)), (1, 5), "train", 4),
    "gated": (Gated, (3,), "train", 4),
    "bilinear": (Bilinear, (2,), "train", 9),
    "batch norm": (
        lambda: nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3, affine=False), nn.Linear(3, 2)),
        (3,),
        "eval",
        6,
    ),
}


def made(name: str) -> tuple[nn.Module, tuple[int, ...], str, int]:
    torch.manual_seed(0)
    make, shape, mode, laws = MODULES[name]
    return make(), shape, mode, laws


@pytest.mark.parametrize("name", MODULES)
def test_polynomial_modules_are_counted_and_proved_in_exact_arithmetic(name: str) -> None:
    module, shape, mode, laws = made(name)
    count = count_laws(module, input_shape=shape, mode=mode)
    assert (count.laws, count.independent, count.status, count.arithmetic) == (laws, laws, "proved", "exact")
    assert verify(certificate(count)).facts["laws"] == laws


@pytest.mark.parametrize("name", MODULES)
def test_all_laws_of_degree_two(name: str) -> None:
    """Every one is conserved by PyTorch's own gradients, and none is missing."""
    module, shape, mode, laws = made(name)
    found = module_polynomial_laws(module, shape, mode=mode)
    assert found.independent == laws
    case = probe(module, shape, mode=mode)
    theta = case.theta(3, 1.0)
    inputs, weights, _ = case.draw(5, 6)
    for law in found.laws:
        slope = law.gradient(theta.numpy())
        for batch, ends in zip(inputs, weights, strict=True):
            field = torch.func.grad(case.value)(theta, batch, ends).numpy()
            assert abs(slope @ field) < 1e-9 * np.linalg.norm(slope) * np.linalg.norm(field)


def test_a_perceptron_as_a_module_has_the_laws_of_its_graph() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 2))
    found = module_polynomial_laws(module, (2,), degree=2)
    assert (len(found), found.independent) == (len(polynomial_laws("2-3-2 relu bias")), 3)


def test_residues_agree_with_floats() -> None:
    """At whole numbers a bracket is a whole number, and its residue is the residue of what float64 computes."""
    torch.manual_seed(0)
    case = probe(nn.Sequential(nn.Conv1d(1, 2, 2), nn.ReLU(), nn.MaxPool1d(2), nn.Conv1d(2, 1, 1)), (1, 5))
    program = program_of(case)
    assert is_polynomial(program)
    rng = np.random.default_rng(0)
    theta = 2.0 * rng.integers(-5, 6, size=program.parameters) + 1
    inputs = rng.integers(-9, 10, size=(4, program.inputs)) + 0.5
    weights = rng.integers(-3, 4, size=(4, program.outputs)).astype(float)
    gates = pieces(program, theta, inputs)
    assert gates is not None
    words = np.array([[0, 1, 2], [3, 1, 0]])
    exact = Sampled(program, to_residues(theta), to_residues(inputs), to_residues(weights), gates).brackets(words)
    rough = Sampled(program, theta, inputs, weights).brackets(words)
    assert (np.asarray(exact) == to_residues(np.round(rough * 2**6) / 2**6)).all()
    assert (np.asarray(exact) < PRIME).all()


def test_signs_that_rounding_could_change_are_not_told() -> None:
    case = probe(nn.Sequential(nn.Conv1d(1, 1, 2, bias=False), nn.ReLU(), nn.Conv1d(1, 1, 1)), (1, 2))
    program = program_of(case)
    assert pieces(program, np.array([1.0, -1.0, 1.0, 0.0]), np.array([[1.0, 1.0]])) is None
    assert pieces(program, np.array([1.0, -1.0, 1.0, 0.0]), np.array([[1.0, 1.0 - 2.0**-50]])) is None
    assert pieces(program, np.array([1.0, -1.0, 1.0, 0.0]), np.array([[1.0, 0.5]])) is not None


def test_what_is_refused() -> None:
    smooth = nn.Sequential(nn.Linear(2, 2), nn.GELU(), nn.Linear(2, 1))
    with pytest.raises(Unsupported, match="has erf"):
        module_polynomial_laws(smooth, (2,))
    with pytest.raises(Unsupported, match="polynomial"):
        reduce_module(smooth, (2,))
    with pytest.raises(LawfulError, match="at least 1"):
        module_polynomial_laws(Bilinear(), (2,), degree=0)
    with pytest.raises(Unsupported, match="lower the degree"):
        module_polynomial_laws(Bilinear(), (2,), degree=9)


def test_reductions() -> None:
    """One hidden layer of gated neurons is involutive (P1 Proposition 3.8), a linear one of width two is not."""
    torch.manual_seed(0)
    found = reduce_module(nn.Sequential(nn.Conv1d(1, 2, 2), nn.ReLU(), nn.Conv1d(2, 1, 1)), (1, 3))
    assert found.involutive
    assert found.metric is None
    linear = reduce_module(nn.Sequential(nn.Conv1d(2, 2, 1), nn.Conv1d(2, 2, 1)), (2, 2))
    assert not linear.involutive
    one = reduce_module(nn.Sequential(nn.Conv1d(1, 1, 2, bias=False), nn.Conv1d(1, 1, 1, bias=False)), (1, 3))
    assert (one.involutive, one.dimension, one.rank) == (True, 2, 2)
    assert one.metric is not None
    assert np.allclose(one.metric, one.metric.T)


def test_words_and_expressions() -> None:
    wording = ModuleWording([("a.weight", (2, 2)), ("scale", ())])
    law = count_laws("2-2-1 relu").known.laws[0]
    assert wording.weight(3) == "a.weight[1,1]"
    assert wording.weight(4) == "scale"
    half = type(law)("polynomial", (), {(3, 4): Fraction(-1, 2), (0,): Fraction(2)})
    assert wording.law(half) == "− 1/2·a.weight[1,1]·scale + 2·a.weight[0,0]"
    names = sympy.symbols("pa_weight_1_1 pscale pa_weight_0_0")
    assert sympy.sympify(wording.expression(half)) == -names[0] * names[1] / 2 + 2 * names[2]
    assert wording.latex(half).count(r"\mathtt") == 3


class _Products(nn.Module):
    """`x·(ab + ac + bc)`: one field, so two laws, of which logarithms name one."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = (nn.Parameter(torch.ones(1)) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * (self.a * self.b + self.a * self.c + self.b * self.c)


def test_laws_without_a_form_come_with_a_probability() -> None:
    count = count_laws(_Products(), input_shape=(1,))
    assert (count.laws, count.status, count.dimensions, count.arithmetic) == (2, "numerical", (1, 1), "exact")
    assert count.error is not None
    assert 0 < count.error < 1e-30
    found = module_logarithmic_laws(_Products(), (1,))
    wording = ModuleWording(found.places)
    assert [law.words(wording) for law in found.laws] == ["log|a[0] − b[0]| − log|b[0] − c[0]|"]
    theta, moves = np.array([0.3, -0.7, 1.1]), np.array([0.4, 1.4, -0.4])  # and the sums of the two others
    assert abs(found.laws[0].gradient(theta) @ moves) < 1e-12


def test_probabilities_need_a_polynomial_and_another_prime_gives_the_same_directions() -> None:
    module = nn.Sequential(nn.Conv1d(1, 2, 2, bias=False), nn.Conv1d(2, 1, 2, bias=False))
    program = program_of(probe(module, (1, 4)))
    assert directions(program, 4, 0, 0) == ((3, 4), 0.0)
    assert directions(program, 5, 0, 0)[0] == (3, 4, 4)
    kinked = nn.Sequential(nn.Conv1d(1, 2, 2), nn.ReLU(), nn.Conv1d(2, 1, 2))
    assert directions(program_of(probe(kinked, (1, 4))), 9, 0, 0) is None


CODE = """
import torch
from torch import nn
def make():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv1d(1, 2, 2), nn.ReLU(), nn.Conv1d(2, 1, 2))
"""


def test_the_command_line(lawful: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "small_convolution.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    ask = ("laws", "small_convolution:make", "--input", "1,4", "--degree", 2)
    shown = lawful(*ask, "--reduction").stdout
    assert "Polynomial laws of degree at most 2: 2, 2 independent" in shown
    assert "0.weight[0,0,0]² + 0.weight[0,0,1]² + 0.bias[0]² − 2.weight[0,0,0]² − 2.weight[0,0,1]²" in shown
    assert "closed under brackets" in shown
    found = lawful(*ask, "--json", "--all", "--out", "laws.json").json
    listed = json.loads(Path("laws.json").read_text())["laws"]
    assert found["polynomial"]["count"] == 2
    assert [law["words"] for law in found["explicit"]] == [law["words"] for law in listed]
    assert all("0.weight" in law["words"] for law in found["explicit"])
