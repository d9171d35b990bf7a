"""Modules whose training does not follow the gradient of what they compute: nothing is said of it from the function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from models import Function
from torch import nn

from lawful import components, same, singular
from lawful.errors import Unsupported
from lawful.symmetry import symmetries


class Net(nn.Module):
    """Two layers, with `between` applied to the hidden values."""

    def __init__(self, between: Callable[[torch.Tensor], torch.Tensor], heavy: float = 1.0) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b = nn.Linear(3, 1, bias=False), nn.Linear(1, 2, bias=False)
        self.between = between
        with torch.no_grad():
            self.a.weight.fill_(0.1)
            self.b.weight.fill_(heavy)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(self.between(torch.relu(self.a(x))))


class Tripled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 1.0

    @staticmethod
    def backward(ctx: Any, slope: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return 3 * slope


def without_gradient(x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return x * 2.0


@pytest.mark.parametrize("between", [torch.Tensor.detach, without_gradient], ids=["detach", "no_grad"])
def test_what_is_detached_never_moves_and_what_reads_it_is_free(between: Callable[[Any], Any]) -> None:
    """Read as a function, ‖a‖² − b² would be kept and lock a weight; training moves b alone."""
    module = Net(between)
    found = symmetries(module, (3,))
    assert len(found.laws) == 3
    assert [(part.parameter, part.entries) for part in found.dead] == [("a.weight", 3)]
    answer = components(module, input=(3,))
    assert not answer.locked
    assert answer.beyond
    with pytest.raises(Unsupported):
        singular(module)


def test_a_reader_of_detached_values_crosses_zero() -> None:
    """Plain descent takes b through zero and leaves a where it is."""
    cut = Net(torch.Tensor.detach, 3.0)
    x = torch.rand(16, 3)
    for _ in range(400):
        (slope,) = torch.autograd.grad(((cut(x) + 5) ** 2).mean(), [cut.b.weight])
        with torch.no_grad():
            cut.b.weight -= slope
    assert (cut.b.weight < 0).all()
    assert (cut.a.weight == 0.1).all()


def test_a_backward_pass_of_ones_own_is_refused() -> None:
    module = Net(Tripled.apply)
    for ask in (symmetries, components):
        with pytest.raises(Unsupported, match="does not follow the gradient"):
            ask(module, input=(3,))


def test_hooks_of_parameters_are_refused_where_training_is_asked_about() -> None:
    module = Net(torch.relu)
    module.a.weight.register_hook(lambda slope: 2 * slope)
    for ask in (symmetries, components):
        with pytest.raises(Unsupported, match=r"hook may change the gradient of a\.weight"):
            ask(module, input=(3,))
    assert same(module, module, input=(3,)).verdict == "equal"


def test_parameters_that_share_memory_are_refused() -> None:
    """A step moves both by both gradients, and no balance between them is kept; parts of one buffer are apart."""
    module = nn.Sequential(nn.Linear(4, 4, bias=False), nn.ReLU(), nn.Linear(4, 4, bias=False))
    module[2].weight = nn.Parameter(module[0].weight.data.T)
    with pytest.raises(Unsupported, match=r"0\.weight and 2\.weight share memory"):
        symmetries(module, (4,))
    with pytest.raises(Unsupported, match="share memory"):
        components(module, input=(4,))
    flat = torch.randn(32)
    module[0].weight, module[2].weight = (nn.Parameter(part.view(4, 4)) for part in flat.split(16))
    assert len(symmetries(module, (4,)).laws) == 4


def test_random_modules_are_no_two_functions() -> None:
    """Dropout that is always on: two runs differ, which is no witness that two networks do."""
    one, two = (Net(lambda x: nn.functional.dropout(x, 0.5, training=True)) for _ in range(2))
    with torch.no_grad():
        two.a.weight *= 2
        two.b.weight /= 2
    with pytest.raises(Unsupported, match="draws random numbers"):
        same(one, two, input=(3,))


def padded_table(row: float) -> nn.Sequential:
    module = nn.Sequential(nn.Embedding(7, 4, padding_idx=0), nn.Linear(4, 3))
    with torch.no_grad():
        module[0].weight[0] = row
    return module


def test_a_padded_row_of_zeros_fits_every_linear_gauge() -> None:
    found = symmetries(padded_table(0.0), "6:int")
    assert (found.dimension, len(found.laws)) == (16, 10)
    assert found.checked is not None


def test_a_padded_row_of_numbers_does_not_move_and_pins_its_space() -> None:
    """EᵀE grows by what training makes of the other rows alone, and the reader's balance by all of them."""
    found = symmetries(padded_table(0.5), "6:int")
    assert len(found.laws) == 0
    assert found.checked is not None


def test_a_padded_row_that_another_reader_trains_pins_its_space() -> None:
    table = nn.Embedding(7, 4, padding_idx=0)
    module = Function(lambda self, x: self.table(x) @ self.map @ self.table.weight.T, table=table)
    module.map = nn.Parameter(torch.randn(4, 4))
    assert symmetries(module, "6:int").dimension == 0


def test_a_padded_row_of_numbers_pins_attention_without_softmax() -> None:
    """Entry by entry, too: columns of the table have scales against the readers, which its row would break."""
    module = Function(
        lambda self, x: self.q(h := self.table(x)) @ self.k(h).mT @ self.v(h),
        table=padded_table(0.5)[0],
        **{name: nn.Linear(4, 3, bias=False) for name in "qkv"},
    )
    found = symmetries(module, "6:int")
    assert found.checked is not None
    assert not any("table.weight" in space.parameters for space in found.spaces)


def test_gradients_divided_by_frequency_are_refused_unchecked_too() -> None:
    module = nn.Sequential(nn.Embedding(7, 4, scale_grad_by_freq=True), nn.Linear(4, 3))
    for check in (True, False):
        with pytest.raises(Unsupported, match="scale_grad_by_freq"):
            symmetries(module, "6:int", check=check)


def test_a_module_that_changes_its_own_weights_is_refused() -> None:
    """Read as detached, a table with a largest norm was said to keep each of its entries."""
    module = nn.Sequential(nn.Embedding(7, 4, max_norm=1.0), nn.Linear(4, 3))
    with pytest.raises(Unsupported, match=r"changes 0\.weight while it computes"):
        symmetries(module, "6:int")
