"""Frozen, tied, parametrised, unused and oddly used parameters; inputs that do not fit."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from models import Function, plain
from torch import nn
from torch.nn import functional
from torch.nn.utils import parametrizations, prune

from lawful import Architecture, LawfulError, Unsupported
from lawful.symmetry import symmetries


def relu_net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))


def test_a_frozen_layer_pins_what_it_writes() -> None:
    module = relu_net()
    module[0].weight.requires_grad_(False)
    found = symmetries(module, (3,))
    assert len(found.laws) == 0
    assert found.parameters == 4 + 8 + 2


def test_a_frozen_bias_pins_its_units() -> None:
    module = relu_net()
    module[0].bias.requires_grad_(False)
    assert len(symmetries(module, (3,)).laws) == 0


def test_tied_layers_share_their_scales() -> None:
    """x → W relu(W x): scales of the input are pinned, and so those of the hidden units."""
    module = nn.Sequential(plain(3, 3), nn.ReLU(), plain(3, 3))
    module[2].weight = module[0].weight
    assert len(symmetries(module, (3,)).laws) == 0


def test_a_layer_used_twice_shares_its_scales() -> None:
    """relu(L relu(L x)): the input pins L's columns, these its rows. (Rows come first, their pin by way of a dual.)"""
    for bias in (True, False):
        layer = nn.Linear(3, 3, bias=bias)
        module = nn.Sequential(layer, nn.ReLU(), layer, nn.ReLU(), nn.Linear(3, 1))
        assert len(symmetries(module, (3,)).laws) == 0


def test_weight_norm() -> None:
    """W = g v/‖v‖: the length of each row of v is conserved, and g is balanced against what reads it."""
    module = nn.Sequential(parametrizations.weight_norm(nn.Linear(3, 4)), nn.ReLU(), nn.Linear(4, 2))
    found = symmetries(module, (3,))
    assert len(found.laws) == 8
    assert found.checked is not None
    assert found.pinned == ()


def test_spectral_norms_are_followed_and_leave_nothing() -> None:
    module = nn.Sequential(parametrizations.spectral_norm(nn.Linear(3, 4)), nn.ReLU(), nn.Linear(4, 2))
    found = symmetries(module, (3,))
    assert len(found.laws) == 0
    assert found.checked is not None


def test_instance_norm_hides_biases() -> None:
    module = nn.Sequential(nn.Conv2d(2, 3, 2), nn.InstanceNorm2d(3, affine=True), nn.ReLU(), nn.Conv2d(3, 2, 1))
    found = symmetries(module, (2, 5, 5))
    assert sum(part.entries for part in found.dead) == 3
    assert len(found.laws) == 6


def test_entries_behind_a_pruning_mask_are_dead() -> None:
    module = relu_net()
    prune.l1_unstructured(module[0], "weight", 0.5)
    found = symmetries(module, (3,))
    assert found.checked is not None
    assert [(part.parameter, part.entries) for part in found.dead] == [("0.weight_orig", 6)]
    assert len(found.laws) == 4 + 6


def test_quantised_layers_are_refused() -> None:
    class Packed(nn.Linear):
        pass

    Packed.__module__ = "torch.ao.nn.quantized.dynamic.modules.linear"
    with pytest.raises(Unsupported, match="1 is quantised"):
        symmetries(nn.Sequential(nn.ReLU(), Packed(3, 2)), (3,))


class Dropping(nn.Module):
    """Leaves its middle out at random, in training."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(3, 4), nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.relu(self.a(x))
        if self.training and torch.rand(()) < 0.5:
            return self.c(h)
        return self.c(torch.relu(self.b(h)))


def test_random_branches_are_read_in_eval_mode_and_said() -> None:
    found = symmetries(Dropping(), (3,))
    assert found.mode == "eval"
    assert "train mode cannot be read" in found.noted
    assert "torch.rand(()) < 0.5" in found.noted


def test_unused_parameters_are_dead() -> None:
    module = Function(lambda self, x: self.a(x), a=nn.Linear(3, 2), b=nn.Linear(3, 5))
    found = symmetries(module, (3,))
    assert {(part.parameter, part.entries, part.unused) for part in found.dead} == {
        ("b.weight", 15, True),
        ("b.bias", 5, True),
    }
    assert len(found.laws) == 20


class Sometimes(nn.Module):
    """Stochastic depth: a branch that a coin switches on, for each sample."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(3, 4), nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.a(x)
        if self.training:
            noise = torch.empty(len(x), 1, dtype=x.dtype, device=x.device).bernoulli_(0.01)
            return self.c(h + torch.tanh(self.b(h)) * noise)
        return self.c(h + torch.tanh(self.b(h)))


def test_what_a_coin_switches_off_is_not_dead() -> None:
    """The coin is not thrown while reading: a branch that happens to be off is not said to be zero."""
    for _ in range(3):
        found = symmetries(Sometimes(), (3,), check=False)
        assert found.dead == ()
        assert not any("b.weight" in space.parameters for space in found.spaces if space.group == "shifts")


def test_an_unknown_operation_pins_and_is_named() -> None:
    module = Function(lambda self, x: self.b(torch.special.bessel_j0(self.a(x))), a=nn.Linear(3, 4), b=nn.Linear(4, 2))
    found = symmetries(module, (3,))
    assert len(found.laws) == 0
    assert [part.operation for part in found.pinned] == ["special_bessel_j0"]
    assert found.pinned[0].parameters == ("a.weight", "a.bias")
    assert found.pinned[0].share == pytest.approx(16 / 26)


def test_detached_values_count_as_data() -> None:
    """y = b(relu(a x)) + detach(...): training sees no gradient through it."""
    module = Function(
        lambda self, x: self.b(h := functional.relu(self.a(x))) * self.c(h.detach()).detach(),
        a=nn.Linear(3, 4), b=nn.Linear(4, 2), c=nn.Linear(4, 2),
    )  # fmt: skip
    assert len(symmetries(module, (3,), check=False).laws) >= 4


def test_dropout_leaves_diagonals_in_training_and_everything_in_eval() -> None:
    module = nn.Sequential(plain(3, 2), nn.Dropout(0.5), plain(2, 3))
    train, evaluated = (symmetries(module, (3,), mode=mode) for mode in ("train", "eval"))
    assert (len(train.laws), len(evaluated.laws)) == (2, 3)
    assert "dropout" in train.noted
    assert (train.mode, evaluated.mode) == ("train", "eval")


def test_batch_norm_modes_differ() -> None:
    module = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2))
    train, evaluated = (symmetries(module, (3,), mode=mode) for mode in ("train", "eval"))
    assert sum(part.entries for part in train.dead) == 4
    assert len(train.laws) == 8
    assert not evaluated.dead
    assert not module.training or all(part.training for part in module.modules())


class TwoInputs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = plain(3, 4), nn.Embedding(6, 4), plain(4, 2)

    def forward(self, x: torch.Tensor, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = functional.relu(self.a(x) + self.b(ids)[:, 0])
        return self.c(hidden), hidden.sum()


def test_several_inputs_and_outputs() -> None:
    found = symmetries(TwoInputs(), ["3", "1:int"])
    assert len(found.laws) == 0  # the sum of the hidden units is an output: nothing moves
    assert found.checked is not None


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("3:3", "an input size is like"),
        ("3;3", "too many positional arguments"),
        ((0, 3), "positive"),
        (torch.zeros(0, 3, 4), "at least one sample"),
        (torch.tensor(1.0), "at least one sample"),
        (3.5, "an input is a tensor"),
        (None, "unknown"),
    ],
)
def test_bad_inputs_are_named(given: Any, words: str) -> None:
    module = nn.Sequential(nn.Conv1d(3, 2, 1))
    with pytest.raises(LawfulError, match=words):
        symmetries(module, given)


def test_an_example_of_one_sample_says_as_much_as_its_size() -> None:
    module = nn.Sequential(plain(3, 4), nn.ReLU(), plain(4, 2))
    one, sized = symmetries(module, torch.ones(1, 3)), symmetries(module, (3,))
    assert one.to_dict() | {"seconds": 0} == sized.to_dict() | {"seconds": 0}


def test_a_size_with_its_batch_is_refused_with_what_the_module_was_given() -> None:
    with pytest.raises(Unsupported, match=r"given 2×1×3×8×8, batch first"):
        symmetries(nn.Sequential(nn.Conv2d(3, 2, 1)), (1, 3, 8, 8))


class Branching(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = plain(3, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.a(x) if x.sum() > 0 else x[:, :2]


def test_control_flow_is_refused_with_its_line() -> None:
    with pytest.raises(Unsupported, match=r"Branching, test_attacks.py line \d+: return self.a\(x\) if"):
        symmetries(Branching(), (3,))


def test_networks_are_read_too() -> None:
    assert len(symmetries(Architecture.parse("3-4-5-2 relu bias")).laws) == 9
    assert len(symmetries(Architecture.parse("6-5-6 linear")).laws) == 15
    with pytest.raises(Unsupported, match="Dag"):
        symmetries(Architecture.parse("3-4-5-2 relu skip(0,2)"))


@pytest.mark.parametrize("scale", [1e-9, 1e9])
def test_scales_change_nothing(scale: float) -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 5), nn.LayerNorm(5), nn.Linear(5, 2))
    expected = len(symmetries(module, (3,)).laws)
    with torch.no_grad():
        module[0].weight *= scale
        module[2].weight /= scale
    assert len(symmetries(module, (3,)).laws) == expected


class Gram(nn.Module):
    """Products of two values, and a layer that nothing reads."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.unread = nn.Linear(4, 5, bias=False), nn.Linear(4, 5, bias=False), nn.Linear(2, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.a(x)) @ self.b(x).transpose(-1, -2)


def test_entries_that_nothing_reads_are_counted_once_beside_products_of_values() -> None:
    """`relu(A x) · B y`: 5 scales move A against B; each of the 9 numbers that nothing reads is a law of its own."""
    found = symmetries(Gram(), (5, 4))
    assert found.checked is not None
    assert len(found.laws) == 5 + 9


def test_attention_with_a_table_of_biases_does_not_see_biases_of_keys() -> None:
    """Scores that a mask may leave out are compared with −∞, which no shift of all scores of a row changes."""

    class Biased(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.query, self.key, self.value = (nn.Linear(4, 4) for _ in range(3))
            self.places = nn.Parameter(torch.randn(2, 5, 5))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            q, k, v = (f(x).unflatten(-1, (2, 2)).transpose(1, 2) for f in (self.query, self.key, self.value))
            return functional.scaled_dot_product_attention(q, k, v, self.places).transpose(1, 2)

    found = symmetries(Biased(), (5, 4))
    assert [(part.parameter, part.entries) for part in found.dead] == [("key.bias", 4)]


def test_a_sort_passes_no_permutations() -> None:
    """The order of what is sorted is gone: the columns that read it must not be permuted with the rows before it."""

    class Sorted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up, self.down = nn.Linear(3, 4), nn.Linear(4, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.down(self.up(x).sort(-1).values)

    assert symmetries(Sorted(), (3,)).log10_discrete == 0


def test_a_constant_behind_a_factor_is_not_absorbed_by_the_bias() -> None:
    """`k (W x + b) + c`: scaling W and b alone would scale c too, and the bias would have to take up c / k."""

    class Affine(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Linear(3, 4), nn.Linear(4, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.two(self.one(x) * 0.45 - 0.07)

    assert symmetries(Affine(), (3,)).checked.worst < 1e-6


def test_a_constant_behind_a_swap_of_two_equal_halves_is_not_absorbed_in_their_old_order() -> None:
    """`roll(cat([u, u]) + b, 2) + c`: the labels of u look the same after the swap, but c meets the other half of b."""

    class Swapped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up, self.bias = nn.Parameter(torch.randn(2, 3)), nn.Parameter(torch.randn(4))
            self.down = nn.Linear(4, 2)
            self.register_buffer("held", torch.arange(1.0, 5.0))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            h = torch.cat([x @ self.up.T, x @ self.up.T], -1) + self.bias
            return self.down(torch.relu(h.roll(2, -1) + self.held))

    assert symmetries(Swapped(), (3,)).checked.worst < 1e-6


def test_what_is_multiplied_by_zero_is_not_read() -> None:
    """Its axes were free one by one: 19 laws, of which 16 were independent, of 40 that there are."""
    module = Function(lambda self, x: self.b(torch.relu(self.a(x)) * 0.0), a=nn.Linear(6, 4), b=nn.Linear(4, 3))
    found = symmetries(module, (6,))
    assert len(found.laws) == found.dimension == 24 + 4 + 12
    kernel = Function(lambda self, x: self.b(self.a(x) * 0.0), a=nn.Conv1d(2, 3, 1), b=nn.Conv1d(3, 2, 2))
    assert len(symmetries(kernel, (2, 5)).laws) == 6 + 3 + 12


@pytest.mark.parametrize("rule", [torch.sign, lambda w: w / w.abs(), lambda w: (w > 0).to(w.dtype)])
def test_a_scale_of_rows_and_columns_counts_once(rule: Any) -> None:
    """All rows of a weight whose size nobody sees make the same scale as all columns: 8 laws were stated, of 7."""
    module = Function(lambda self, x: torch.relu(x @ rule(self.a.weight)) @ self.b.weight, a=plain(4, 4), b=plain(2, 4))
    found = symmetries(module, (4,))
    assert len(found.laws) == found.dimension == 7
    assert found.checked is not None
