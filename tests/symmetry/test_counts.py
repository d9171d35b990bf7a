"""Numbers of laws: those of theory, and those of an independent count, rule by rule."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch
from closure import drawing, lie_laws
from models import RULES, THEORY, Function, Gpt, Llama
from torch import nn

from lawful.symmetry import Symmetries, symmetries
from lawful.symmetry.orbit import disguise
from reproduction.claims.symmetry_counts import BEYOND

SMALL = {**THEORY, **RULES}
UNCOUNTED = ("GPT", "Llama", "rotary head of 4", "weight norm")  # large, or without second derivatives in PyTorch
COUNTED = [name for name in SMALL if not name.startswith(UNCOUNTED)]


@cache
def read(name: str) -> tuple[nn.Module, Symmetries]:
    torch.manual_seed(0)
    make, given, _ = SMALL[name]
    module = make()
    return module, symmetries(module, given)


@pytest.mark.parametrize("name", SMALL)
def test_laws_are_those_of_theory_and_independent(name: str) -> None:
    expected = SMALL[name][2]
    module, found = read(name)
    assert len(found.laws) == expected
    assert found.checked is not None
    assert found.checked.worst < 1e-9
    assert found.pinned == ()
    gradients = found.laws.gradients({name: tensor.double() for name, tensor in module.named_parameters()})
    assert np.linalg.matrix_rank(gradients) == expected if expected else gradients.size == 0


@pytest.mark.parametrize("name", SMALL)
def test_finite_members_keep_the_outputs(name: str) -> None:
    _, given, expected = SMALL[name]
    module, found = read(name)
    twin = disguise(module, given, found, seed=3)
    assert twin.difference < 1e-10
    moved = any(not torch.equal(twin.weights[key], tensor) for key, tensor in module.state_dict().items())
    assert moved == bool(found.spaces) or expected == 0


@pytest.mark.parametrize("name", COUNTED)
def test_laws_are_all_there_are(name: str) -> None:
    """As many as the Lie closure leaves: gradients and their brackets reach every other direction."""
    torch.manual_seed(0)
    make, given, expected = SMALL[name]
    module = make()
    counts = []
    for seed in range(12):  # where a ReLU never switches more is conserved: look on
        counts.append(lie_laws(module, drawing(module, given), seed))
        if counts[-1] == expected:
            break
    assert min(counts) == expected


@pytest.mark.parametrize(("name", "expected"), [("GPT tied", 36), ("Llama untied", 19)])
def test_whole_models_against_the_lie_closure(name: str, expected: int) -> None:
    torch.manual_seed(0)
    make, given, _ = THEORY[name]
    module = make()
    assert lie_laws(module, drawing(module, given)) == expected


@pytest.mark.parametrize("name", BEYOND)
def test_claimed_counts_are_those_of_the_lie_closure(name: str) -> None:
    torch.manual_seed(0)
    make, given, expected = BEYOND[name]
    assert lie_laws(make(), drawing(make(), given)) == expected


def test_gpt2_small_by_shape() -> None:
    """theory: h·d_h(d_h+1) + 3d + (d+1) + (ff+1) a layer, plus T: 673,816."""
    with torch.device("meta"):
        module = Gpt(50257, 128, 768, 12, 3072, layers=2)
    per_layer = 12 * 64 * 65 + 3 * 768 + 769 + 3073
    assert len(symmetries(module, "128:int").laws) == 2 * per_layer + 128
    assert 12 * per_layer + 1024 == 673_816


def test_llama_by_shape() -> None:
    """theory: kv·d_h/2 + kv·d_h(d_h+1)/2 + 2d + ff a layer, plus d if untied."""
    with torch.device("meta"):
        module = Llama(32000, 1024, 8, 2, 2816, layers=2)
    per_layer = 2 * 64 + 2 * 128 * 129 // 2 + 2 * 1024 + 2816
    assert len(symmetries(module, "16:int").laws) == 2 * per_layer + 1024


def test_rows_that_the_example_does_not_read_are_not_called_dead() -> None:
    """A position table is longer than the example: nothing is said of the rest."""
    module = Function(
        lambda self, x: self.o(self.n(self.t(x) + self.p(torch.arange(x.shape[1])))),
        t=nn.Embedding(5, 4), p=nn.Embedding(9, 4), n=nn.LayerNorm(4), o=nn.Linear(4, 5),
    )  # fmt: skip
    short, whole = symmetries(module, "3:int"), symmetries(module, "9:int")
    assert short.dead == ()
    assert len(whole.laws) - len(short.laws) == 6
    assert "24 entries of p.weight are not read" in short.noted
    assert "not read" not in whole.noted
