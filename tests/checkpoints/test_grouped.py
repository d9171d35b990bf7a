"""Groups of convolutions and norms that change places as wholes, with channels that do inside of each."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from checkpoints.test_architectures import compared, drawn, moved
from torch import nn

from lawful.checkpoints.align.lazy_tensors import folded_tensors
from lawful.checkpoints.compare.decide import same_checkpoints
from lawful.checkpoints.group.axis_actions import frames
from lawful.checkpoints.group.axis_actions import move_tensors as acted
from lawful.checkpoints.group.random_members import draw, random_member
from lawful.checkpoints.group.spaces import GroupedUnits, identity, inverse, then
from lawful.checkpoints.identity.orbit_hash import orbit_hash
from lawful.checkpoints.identity.sketch import sketch
from lawful.checkpoints.opening import OpenCheckpoint
from lawful.checkpoints.read_architecture import read_architecture
from lawful.checkpoints.representative import represent
from lawful.checkpoints.rewrite.folds import State

GROUPS = torch.tensor([2, 0, 1])


class Grouped(nn.Module):
    """Two grouped convolutions in a row, between mixtures of all channels."""

    def __init__(self, *, norm: int = 0, shuffled: bool = False) -> None:
        super().__init__()
        self.widen, self.norm = nn.Conv2d(3, 6, 1, bias=False), nn.BatchNorm2d(6)
        self.first, self.second = nn.Conv2d(6, 9, 3, padding=1, groups=3), nn.Conv2d(9, 6, 1, groups=3)
        self.between = nn.GroupNorm(norm, 9) if norm else nn.Identity()
        self.narrow, self.shuffled = nn.Conv2d(6, 4, 1), shuffled

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.between(self.first(torch.relu(self.norm(self.widen(x)))))
        x = x.unflatten(1, (3, 3)).transpose(1, 2).flatten(1, 2) if self.shuffled else x
        return self.narrow(torch.relu(self.second(torch.relu(x)))).mean((2, 3))


def in_groups(groups: torch.Tensor, size: int) -> torch.Tensor:
    return torch.cat([group * size + torch.randperm(size) for group in groups])


def exchange(state: State, groups: torch.Tensor = GROUPS, *, scaled: bool = False) -> None:
    """By hand: what each group reads is a column of its own rows."""
    read, between, written = (in_groups(groups, size) for size in (2, 3, 2))
    moved(state, read, ("widen.weight", 0), *((f"norm.{name}", 0) for name in ("weight", "bias", "running_mean",
                                                                              "running_var")))  # fmt: skip
    moved(state, between, ("first.weight", 0), ("first.bias", 0))
    if "between.weight" in state:
        moved(state, between, ("between.weight", 0), ("between.bias", 0))
    moved(state, written, ("second.weight", 0), ("second.bias", 0), ("narrow.weight", 1))
    for name, order, size in (("first.weight", read, 2), ("second.weight", between, 3)):
        blocks = state[name].clone().chunk(3)
        inside = [order[k * size : (k + 1) * size] % size for k in range(3)]
        state[name] = torch.cat([block[:, own] for block, own in zip(blocks, inside, strict=True)])
    if scaled:
        by = torch.exp(torch.randn(9))
        state["first.weight"] *= by[:, None, None, None]
        state["first.bias"] *= by
        state["second.weight"] /= by.reshape(3, 1, 3).expand(3, 2, 3).reshape(6, 3, 1, 1)


def changed(module: nn.Module, change: Callable[[State], None]) -> str:
    found = read_architecture(drawn(module), (3, 4, 4))
    other = found.state()
    change(other)
    return same_checkpoints(found, found.state(), other).verdict


@pytest.mark.parametrize("scaled", [False, True])
def test_groups_of_a_convolution_change_places_with_channels_inside(scaled: bool) -> None:
    torch.manual_seed(0)
    found = compared(drawn(Grouped()), lambda state: exchange(state, scaled=scaled), "3,4,4")
    assert found.verdict == "equal"
    assert found.within == ("copy by weights" if scaled else "exactly")


def test_groups_of_a_norm_change_places() -> None:
    torch.manual_seed(1)
    assert compared(drawn(Grouped(norm=3)), exchange, "3,4,4").verdict == "equal"


def test_a_group_that_changes_places_without_what_it_reads_is_no_copy() -> None:
    torch.manual_seed(2)

    def change(state: State) -> None:
        moved(state, in_groups(GROUPS, 3), ("first.weight", 0), ("first.bias", 0))

    assert changed(Grouped(), change) == "different"


def test_channels_never_leave_their_group() -> None:
    torch.manual_seed(3)

    def change(state: State) -> None:
        moved(state, torch.randperm(9), ("first.weight", 0), ("first.bias", 0))

    assert changed(Grouped(), change) == "different"


def test_groups_that_a_shuffle_divides_again_do_not_change_places_as_wholes() -> None:
    torch.manual_seed(4)
    assert changed(Grouped(shuffled=True), exchange) == "different"


def test_members_compose_and_come_back() -> None:
    found = read_architecture(Grouped().eval(), (3, 4, 4))
    (number,) = (n for n, space in enumerate(found.group.spaces) if isinstance(space, GroupedUnits))
    one, two = (draw(found.group, np.random.default_rng(seed))[number] for seed in (1, 2))
    state = {name: tensor.double() for name, tensor in found.state().items() if name in found.group.shapes}
    step = acted(state, frames(found.group, {number: one}))
    at_once = acted(state, frames(found.group, {number: then(one, two)}))
    after = acted(step, frames(found.group, {number: two}))
    back = acted(after, frames(found.group, {number: then(one, two)}), back=True)
    again = acted(step, frames(found.group, {number: inverse(one)}))
    for name, tensor in state.items():
        assert torch.allclose(after[name], at_once[name])
        assert torch.allclose(back[name], tensor)
        assert torch.allclose(again[name], tensor)
    still = frames(found.group, {number: identity(found.group.spaces[number])})
    assert all(torch.equal(tensor, state[name]) for name, tensor in acted(state, still).items())


def test_hash_and_sketch_do_not_see_the_order_of_groups() -> None:
    torch.manual_seed(5)
    net = drawn(nn.Sequential(nn.Conv2d(3, 6, 1), nn.GroupNorm(3, 6), nn.GELU(), nn.Conv2d(6, 2, 1)))
    state = {name: tensor.detach().clone() for name, tensor in net.state_dict().items()}
    other, torn = dict(state), dict(state)
    axes = [("0.weight", 0), ("0.bias", 0), ("1.weight", 0), ("1.bias", 0), ("3.weight", 1)]
    moved(other, in_groups(GROUPS, 2), *axes)
    moved(torn, torch.tensor([0, 2, 1, 3, 4, 5]), *axes)
    found = read_architecture(net, (3, 4, 4), folding="statistics")
    hashes = [orbit_hash(found, each).hash for each in (state, other, torn)]
    assert hashes[0] == hashes[1] != hashes[2]
    assert hashes[0] is not None
    read = read_architecture(net, (3, 4, 4))
    assert np.abs(sketch(read, state) - sketch(read, other)).max() < 1e-5


def test_the_standard_place_says_that_groups_stay() -> None:
    torch.manual_seed(6)
    net = drawn(Grouped())
    state = dict(net.state_dict())
    found = represent(OpenCheckpoint(state, {name: name for name in state}, "net"), net, "canonical", input=(3, 4, 4))
    assert found.verdict.verdict == "equal"
    assert any("groups are left in their order" in note for note in found.notes)


def test_a_convolution_that_makes_several_channels_of_each_is_read() -> None:
    torch.manual_seed(7)
    net = nn.Sequential(nn.Conv2d(3, 4, 1), nn.SiLU(), nn.Conv2d(4, 8, 1, groups=4), nn.SiLU(), nn.Conv2d(8, 2, 1))

    def change(state: State) -> None:
        order = torch.randperm(4)
        wide = torch.stack([2 * order, 2 * order + 1], 1).flatten()
        moved(state, order, ("0.weight", 0), ("0.bias", 0))
        moved(state, wide, ("2.weight", 0), ("2.bias", 0), ("4.weight", 1))

    assert compared(drawn(net), change, "3,4,4").verdict != "different"


def test_scales_of_what_groups_read_and_write_are_told_one_after_the_other() -> None:
    """Two stages of ResNeXt: everything is right once each space was seen, before all are seen again."""
    from torchvision.models.resnet import Bottleneck, ResNet

    torch.manual_seed(0)
    whole = ResNet(Bottleneck, [1, 1, 1, 1], groups=4, width_per_group=4)
    parts = whole.conv1, whole.bn1, nn.ReLU(), whole.layer1, whole.layer2
    found = read_architecture(
        drawn(nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 3))), (3, 8, 8)
    )
    assert sum(isinstance(space, GroupedUnits) for space in found.group.spaces) == 2
    state = found.state()
    other = random_member(found.group, folded_tensors(state, found.folds), 0)
    seen = same_checkpoints(found, state, {name: other[name].to(tensor.dtype) for name, tensor in state.items()})
    assert (seen.verdict, seen.comparison.alignment.passes) == ("equal", 1)
