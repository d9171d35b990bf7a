"""Disguises come back: every family, every kind of symmetry."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from checkpoints.conftest import architecture, disguise, narrow, wide
from checkpoints.models import FAMILIES, make
from torch import nn

from lawful import align
from lawful.checkpoints.compare.decide import same_checkpoints
from lawful.checkpoints.compare.entries import compare
from lawful.checkpoints.group.spaces import HeadSpace, MatrixBlock, UnitSpace
from lawful.checkpoints.read_architecture import read_architecture
from lawful.checkpoints.rewrite.folds import apply_folds, undo_folds
from lawful.errors import InvalidNetwork, Unsupported
from lawful.symmetry import symmetries
from lawful.symmetry.orbit import disguise as orbit_disguise


def kinds(family: str) -> set[str]:
    found = set()
    for space in architecture(family).group.spaces:
        if isinstance(space, HeadSpace):
            found |= {f"{block.kind} heads" for block in space.heads[0]} | ({"grouped"} if space.copies > 1 else set())
        elif isinstance(space, MatrixBlock):
            found.add(space.kind)
        elif isinstance(space, UnitSpace):
            found.add(f"units{'+scales' if space.scales else ''}{'+signs' if space.signed else ''}")
    return found


@pytest.mark.parametrize(
    ("family", "expected"),
    [
        ("mlp", {"units+scales", "units+signs", "units"}),  # ReLU, tanh, GELU
        ("resnet", {"units+scales"}),
        ("gpt", {"O fixing 1", "GL heads", "units"}),
        ("gpt-tied", {"units", "GL heads"}),
        ("llama", {"O", "rotary heads", "GL heads", "grouped", "units+scales+signs"}),
        ("llama-tied", {"units+signs", "rotary heads", "GL heads", "grouped", "units+scales+signs"}),
        ("vit", {"O fixing 1", "GL heads", "units"}),
    ],
)
def test_the_group_is_that_of_the_table(family: str, expected: set[str]) -> None:
    """Which symmetries each operation leaves, and what a tied head with a gain takes away."""
    assert kinds(family) == expected
    assert architecture(family).notes == ()


@pytest.mark.parametrize("family", FAMILIES)
def test_disguises_come_back(family: str) -> None:
    """Five here; the claim `p4-scaled-disguises` tries twenty."""
    found = architecture(family)
    state = found.state()
    for seed in range(5):
        result = compare(found, wide(state), disguise(found, state, seed))
        assert max(each.relative for each in result.distances) < 1e-10


@pytest.mark.parametrize("family", FAMILIES)
def test_members_of_the_orbit_that_the_symmetries_verb_makes_come_back(family: str) -> None:
    module, size = make(family), FAMILIES[family][1]
    read = symmetries(module, size, mode="eval", check=False)
    for seed in range(2):
        twin = orbit_disguise(module, size, read, seed=seed)
        result = align(module, dict(twin.weights), input=size)
        assert result.before > 0.01
        assert result.after < 1e-6
        assert result.comparison.fits


@pytest.mark.parametrize("family", FAMILIES)
def test_the_aligned_checkpoint_computes_what_b_computed(family: str) -> None:
    found = architecture(family)
    inputs = found.draw_inputs(1)
    other = make(family, seed=5)
    hidden = disguise(found, {name: t.detach() for name, t in (*other.named_parameters(), *other.named_buffers())}, 3)
    result = compare(found, found.state(), hidden)
    state = undo_folds(result.aligned, found.folds, wide(found.state()))
    for one, two in zip(found.outputs(hidden, inputs), found.outputs(state, inputs), strict=True):
        assert torch.allclose(one, two, rtol=1e-7, atol=1e-9)


def test_folds_and_their_undoing_keep_the_function() -> None:
    for family in ("resnet", "gpt", "llama", "vit"):
        found = architecture(family)
        state, inputs = wide(found.state()), found.draw_inputs(0)
        folded = apply_folds(state, found.folds)
        back = undo_folds(folded, found.folds, state)
        before = found.outputs(state, inputs)[0]
        assert torch.allclose(found.outputs(folded, inputs)[0], before, atol=1e-12)
        assert all(torch.allclose(back[name], state[name], atol=1e-12) for name in found.group.shapes)


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
def test_scales_of_any_size_come_back(scale: float) -> None:
    found = architecture("mlp")
    hidden = disguise(found, found.state(), 4)
    hidden["0.weight"] *= scale
    hidden["0.bias"] *= scale
    hidden["2.weight"] /= scale
    assert compare(found, found.state(), hidden).fits


def test_duplicates_zero_rows_and_dead_units_come_back() -> None:
    module = make("mlp")
    with torch.no_grad():
        module[0].weight[3] = module[0].weight[1]  # tied rows that differ in their outputs
        module[0].bias[3] = module[0].bias[1]
        module[0].weight[5], module[0].bias[5] = 0, 0  # a zero row
        module[2].weight[:, 6] = 0  # a unit that nobody reads
        module[2].weight[4], module[2].bias[4] = module[2].weight[2], module[2].bias[2]  # a true duplicate
        module[4].weight[:, 4] = module[4].weight[:, 2]
    found = read_architecture(module, "3")
    for seed in range(3):
        verdict = same_checkpoints(found, found.state(), disguise(found, found.state(), seed))
        assert verdict.verdict in ("equal", "undecided")  # never different
        assert verdict.verdict == "equal" or "0.weight" in verdict.reason or "2.weight" in verdict.reason


def test_rank_deficient_heads_never_make_a_copy_different() -> None:
    module = make("gpt")
    with torch.no_grad():
        module.blocks[0].qkv.weight[16:20] = 0  # the values of one head
        module.blocks[0].qkv.bias[16:20] = 0
    found = read_architecture(module, "3:int")
    assert same_checkpoints(found, found.state(), disguise(found, found.state(), 1)).verdict != "different"


def test_nan_missing_extra_and_integer_tensors_are_named() -> None:
    module = make("mlp")
    good = dict(module.state_dict())
    bad = {**good, "2.weight": good["2.weight"].clone()}
    bad["2.weight"][0, 0] = float("nan")
    with pytest.raises(InvalidNetwork, match=r"2\.weight holds NaN"):
        align(module, bad, input="3")
    with pytest.raises(InvalidNetwork, match=r"has no 4\.bias"):
        align(module, {name: t for name, t in good.items() if name != "4.bias"}, input="3")
    with pytest.raises(InvalidNetwork, match="module has no extra"):
        align(module, {**good, "extra": torch.zeros(2)}, input="3")
    with pytest.raises(InvalidNetwork, match=r"0\.weight is \(5, 3\)"):
        align(module, {**good, "0.weight": torch.zeros(5, 3)}, input="3")
    with pytest.raises(Unsupported, match="int8"):
        align(module, {**good, "0.weight": torch.zeros(7, 3, dtype=torch.int8)}, input="3")
    assumed = align(good, good)  # weights alone are layers of ReLU, as for `same`, and that is said
    assert assumed.after == 0.0
    assert "ReLU" in str([reading.assumed for reading in assumed.readings])


def test_a_space_that_only_looks_symmetric_is_not_used() -> None:
    """Fixed, uneven numbers after a layer: its units may not change places, whatever was read."""

    class Uneven(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(3, 4), nn.Linear(4, 2)
            self.register_buffer("uneven", torch.tensor([1.0, 2.0, 3.0, 4.0]))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.b(torch.tanh(self.a(x)) * self.uneven)

    torch.manual_seed(0)
    module = Uneven()
    found = read_architecture(module, "3")
    turned = dict(module.state_dict())
    order = torch.tensor([1, 0, 3, 2])
    turned = {**turned, "a.weight": turned["a.weight"][order], "a.bias": turned["a.bias"][order],
              "b.weight": turned["b.weight"][:, order]}  # fmt: skip
    verdict = same_checkpoints(found, found.state(), {**found.state(), **narrow(turned, torch.float32)})
    assert verdict.verdict == "different"
    assert np.isfinite(verdict.replay.gap)
