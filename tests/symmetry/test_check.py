"""Generators are held against gradients and against outputs; a false one is found."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from models import EVAL, RULES, THEORY, Gpt
from torch import nn

from lawful.errors import LawfulError
from lawful.program.frontends.export import export_module
from lawful.symmetry import symmetries
from lawful.symmetry.check import FalseSymmetry, check_symmetries
from lawful.symmetry.inputs import examples
from lawful.symmetry.laws.families import ColumnLaws, MatrixLaws, ScaleLaws, SumLaws
from lawful.symmetry.orbit import disguise
from lawful.symmetry.result import Space

SMALL = {**THEORY, **RULES}


def spoiled(space: Space) -> Space:
    """The same space with one thing wrong."""
    laws = space.laws
    if isinstance(laws, MatrixLaws):
        first = laws.members[0]
        return replace(space, laws=replace(laws, members=(replace(first, sign=-first.sign), *laws.members[1:])))
    if isinstance(laws, (ScaleLaws, SumLaws, ColumnLaws)):
        weights = laws.weights.copy()
        weights.data += np.random.default_rng(0).normal(size=weights.data.shape)
        return replace(space, laws=replace(laws, weights=weights))
    raise AssertionError(f"{type(laws).__name__} is not spoiled")


@pytest.mark.parametrize("name", ["GPT untied", "ReLU", "linear", "batch norm", "two biases", "groups"])
def test_a_false_generator_is_found(name: str) -> None:
    torch.manual_seed(0)
    make, given, _ = SMALL[name]
    module = make()
    found = symmetries(module, given)
    inputs = examples(module, given)
    exported = export_module(module, inputs, training=True)
    dead = {part.parameter for part in found.dead if part.entries == part.of or not part.unused}
    for place, space in enumerate(found.spaces):
        if space.group.startswith("O") or (space.group == "shifts" and set(space.parameters) <= dead):
            continue  # an entry that is dead by itself is dead with any weight
        spaces = (*found.spaces[:place], spoiled(space), *found.spaces[place + 1 :])
        with pytest.raises(FalseSymmetry, match="changes the function"):
            check_symmetries(replace(found, spaces=spaces), module, inputs, exported)


def test_laws_stay_along_training_and_their_derivatives_vanish_on_gradients() -> None:
    torch.manual_seed(0)
    module = Gpt(tied=False).double()
    found = symmetries(module, "3:int")
    ids, labels = torch.randint(5, (8, 3)), torch.randint(5, (8 * 3,))
    named = dict(module.named_parameters())
    start = found.laws.values(named)
    drifts = []
    for rate, steps in ((1e-2, 40), (5e-3, 80)):
        twin = Gpt(tied=False).double()
        twin.load_state_dict(module.state_dict())
        optimiser = torch.optim.SGD(twin.parameters(), lr=rate)
        for _ in range(steps):
            optimiser.zero_grad()
            nn.functional.cross_entropy(twin(ids).reshape(-1, 5), labels).backward()
            optimiser.step()
        moved = dict(twin.named_parameters())
        drifts.append(np.abs(found.laws.values(moved) - start).max())
        assert max(float((moved[name] - named[name]).abs().max().detach()) for name in named) > 0.05
    assert drifts[0] < 0.02
    assert drifts[1] < 0.7 * drifts[0]  # h² a step: half the step, half the drift over the same time


def test_laws_move_under_other_weights() -> None:
    """A law is not constant: weights moved at random change every one."""
    torch.manual_seed(0)
    module = Gpt(tied=False).double()
    found = symmetries(module, "3:int")
    named = {name: tensor.detach() for name, tensor in module.named_parameters()}
    other = {name: tensor + torch.randn_like(tensor) for name, tensor in named.items()}
    assert (np.abs(found.laws.values(other) - found.laws.values(named)) > 1e-9).all()


def test_gradients_are_those_of_the_values() -> None:
    torch.manual_seed(0)
    module = Gpt(tied=False).double()
    found = symmetries(module, "3:int")
    theta = {name: tensor.detach() for name, tensor in module.named_parameters()}
    step = {name: torch.randn_like(tensor) for name, tensor in theta.items()}
    flat = np.concatenate([step[name].reshape(-1).numpy() for name in found.shapes])
    ahead, behind = ({n: t + s * 1e-5 * step[n] for n, t in theta.items()} for s in (1, -1))
    slopes = (found.laws.values(ahead) - found.laws.values(behind)) / 2e-5
    np.testing.assert_allclose(found.laws.gradients(theta) @ flat, slopes, atol=1e-7)
    np.testing.assert_allclose(found.laws.along(theta, step), slopes, atol=1e-7)


def test_meta_modules_cannot_be_checked_or_moved() -> None:
    with torch.device("meta"):
        module = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    found = symmetries(module, (3,))
    assert found.checked is None
    assert len(found.laws) == 4
    with pytest.raises(LawfulError, match="meta"):
        symmetries(module, (3,), check=True)
    with pytest.raises(LawfulError, match="meta"):
        disguise(module, (3,), found)


@pytest.mark.parametrize("name", EVAL)
def test_batch_norm_in_eval_mode_has_laws_about_a_centre(name: str) -> None:
    """γ(Wx + b − μ)/σ + β: a scale acts on W and b − μ, another on γ, β and the next layer."""
    torch.manual_seed(0)
    make, given, expected = EVAL[name]
    module = make().double()
    found = symmetries(module, given, mode="eval")
    assert len(found.laws) == expected
    assert found.checked is not None
    assert disguise(module, given, found, seed=2).difference < 1e-10
    theta = {name: tensor.detach() for name, tensor in module.named_parameters()}
    assert np.linalg.matrix_rank(found.laws.gradients(theta)) == expected


def test_weights_that_are_nan_leave_the_symmetries_unchecked() -> None:
    """The group is that of the architecture; a check at weights that are lost is none, and says so."""
    module = nn.Sequential(nn.Linear(1, 1), nn.ReLU(), nn.Linear(1, 1))
    with torch.no_grad():
        module[0].weight.fill_(float("nan"))
    found = symmetries(module, (1,))
    assert (len(found.laws), found.checked) == (1, None)
    assert "not checked, its gradients at random weights are not finite" in found.noted


class Saturated(nn.Module):
    """Two classes of which one is all but certain: gradients behind the softmax are little more than rounding.

    The large entries of `far` make the terms of others look large enough to be known.
    """

    def __init__(self, gap: float) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(3, 4), nn.Linear(4, 2)
        with torch.no_grad():
            self.last.bias.copy_(torch.tensor([gap, 0.0]))
        self.far = nn.Parameter(1e4 + torch.randn(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.last((self.first(x) + (self.far - 1e4)).relu())
        return logits.softmax(-1)


@pytest.mark.parametrize("gap", [5.0, 12.0, 15.0, 18.0, 21.0, 24.0, 40.0])
def test_rounding_behind_a_saturated_softmax_is_no_false_symmetry(gap: float) -> None:
    torch.manual_seed(0)
    module = Saturated(gap).double()
    for seed in range(6):
        found = symmetries(module, (3,), seed=seed)
        assert found.checked is not None or "not checked" in found.noted


@pytest.mark.parametrize("gap", [0.0, 5.0, 10.0])
def test_a_false_generator_is_found_before_a_softmax_saturates(gap: float) -> None:
    torch.manual_seed(0)
    module = Saturated(gap).double()
    found = symmetries(module, (3,))
    inputs = examples(module, (3,))
    exported = export_module(module, inputs, training=True)
    for space in found.spaces:
        if space.laws is not None:
            with pytest.raises(FalseSymmetry):
                check_symmetries(replace(found, spaces=(spoiled(space),)), module, inputs, exported)
