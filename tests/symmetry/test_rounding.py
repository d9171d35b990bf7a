"""Gradients that are nothing but rounding refute no symmetry, and a wrong one is still refuted beside them."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from lawful.errors import Unsupported
from lawful.invariant_set import components
from lawful.symmetry import symmetries
from lawful.symmetry.check import FalseSymmetry, check_symmetries, random_point
from lawful.symmetry.inputs import examples
from lawful.symmetry.module_symmetries import export_for


@pytest.mark.parametrize("width", [1, 2])
def test_a_normalised_column_has_no_slope(width: int) -> None:
    """w/|w| of one number is its sign: the direction of `weight_norm(Linear(1, n))` never moves."""
    torch.manual_seed(0)
    module = nn.utils.parametrizations.weight_norm(nn.Linear(width, 3))
    found = components(module, input=(width,))
    assert found.log2_components == (3 if width == 1 else 0)


class Saturated(nn.Module):
    """A classifier whose softmax is sure, computed in single precision as ONNX files may ask."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale, self.hidden, self.last = scale, nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = (self.scale * torch.relu(self.hidden(x))).to(torch.float32)
        return torch.softmax(hidden @ self.last.weight.to(torch.float32).T + self.last.bias, -1)


@pytest.mark.parametrize("scale", [1.0, 300.0, 1e9])
def test_a_saturated_softmax_is_blind_to_shifts(scale: float) -> None:
    """Sums over the two classes are kept, also where p(1 − p) is lost in float32."""
    torch.manual_seed(0)
    found = symmetries(Saturated(scale), (3,))
    shifts = [space for space in found.spaces if space.group == "shifts"]
    assert sum(space.count for space in shifts) == 5
    assert (found.checked is not None) or "lost in rounding" in found.noted


def test_a_false_symmetry_is_still_seen() -> None:
    """The balances of a ReLU layer, claimed of a tanh layer."""
    torch.manual_seed(0)
    make = lambda act: nn.Sequential(nn.Linear(3, 4), act, nn.Linear(4, 2), nn.Softmax(-1))  # noqa: E731
    claimed = symmetries(make(nn.ReLU()), (3,), check=False)
    module = make(nn.Tanh())
    inputs = examples(module, (3,))
    exported, _, _ = export_for(module, inputs, None, "train")
    with pytest.raises(FalseSymmetry):
        check_symmetries(claimed, module, inputs, exported)


def test_slopes_below_rounding_are_none() -> None:
    torch.manual_seed(0)
    module = Saturated(1e9)
    inputs = examples(module, (3,))
    exported, mode, _ = export_for(module, inputs, None, "train")
    _, slope = random_point(module, inputs, exported, mode, torch.Generator().manual_seed(0), low=True)
    assert not any(each.any() for each in slope.values())


class Branch(nn.Module):
    """Another activation in training."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(2, 1), nn.Linear(1, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.first(x)
        return self.second(torch.tanh(hidden) if self.training else torch.relu(hidden))


def test_components_are_those_of_train_mode() -> None:
    """A tanh neuron has no balance, so nothing is locked, though eval mode would lock its outgoing weight."""
    torch.manual_seed(0)
    module = Branch()
    with torch.no_grad():
        module.second.weight.fill_(9.0)
    found = components(module, input=(2,))
    assert not found.locked
    with torch.no_grad():
        plain = nn.Sequential(nn.Linear(2, 1), nn.ReLU(), nn.Linear(1, 1))
        plain[2].weight.fill_(9.0)
    assert components(plain).locked


def test_a_train_mode_that_cannot_be_read_has_no_components() -> None:
    class Fails(Branch):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if self.training and float(x.sum()) > 1e9:
                return self.first(x)
            return self.second(torch.sigmoid(self.first(x)))

    with pytest.raises(Unsupported, match="train mode cannot be read"):
        components(Fails(), input=(2,))
