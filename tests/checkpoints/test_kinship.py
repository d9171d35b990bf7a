"""Copies, children and strangers of a small language model that is trained here."""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import cache

import pytest
import torch
from checkpoints.conftest import disguise, narrow
from symmetry.models import Gpt
from torch import nn
from torch.nn import functional

from lawful.checkpoints.opening import CheckpointPair, open_checkpoints
from lawful.checkpoints.relations.kinship import Kinship, _levels, kinship

TOKENS, LENGTH = 48, 8


def chain(generator: torch.Generator, count: int) -> torch.Tensor:
    """Sentences of a fixed random Markov chain."""
    table = torch.softmax(2.5 * torch.randn(TOKENS, TOKENS, generator=torch.Generator().manual_seed(7)), -1)
    words = [torch.randint(0, TOKENS, (count,), generator=generator)]
    for _ in range(LENGTH):
        words.append(torch.multinomial(table[words[-1]], 1, generator=generator)[:, 0])
    return torch.stack(words, 1)


def train(module: nn.Module, seed: int, steps: int, rate: float = 3e-3) -> nn.Module:
    generator = torch.Generator().manual_seed(seed)
    optimiser = torch.optim.AdamW(module.parameters(), rate)
    for _ in range(steps):
        words = chain(generator, 24)
        loss = functional.cross_entropy(module(words[:, :-1]).flatten(0, 1), words[:, 1:].flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return module.eval()


def fresh(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return Gpt(TOKENS, LENGTH, 24, 3, 48, 2, tied=False)


@cache
def parent() -> nn.Module:
    return train(fresh(0), 0, 80)


@cache
def opened() -> CheckpointPair:
    """The parent beside itself: the architecture is read once."""
    return open_checkpoints(parent(), parent(), input=torch.zeros(2, LENGTH, dtype=torch.int64))


def related(second: dict[str, torch.Tensor], disguised: bool = False) -> Kinship:
    state = opened().second.state | second
    hidden = narrow(disguise(opened().architecture, state, 4), torch.float32) if disguised else state
    return kinship(replace(opened(), second=replace(opened().second, state=hidden)))


def state(module: nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor.detach().clone() for name, tensor in module.state_dict().items()}


def test_a_fine_tuned_child_is_found_and_alike_in_other_coordinates() -> None:
    """A symmetry takes the places away, and with them the only exact evidence: networks may learn the same weights."""
    child = state(train(copy.deepcopy(parent()), 9, 20, 1e-3))
    found, hidden = related(child), related(child, disguised=True)
    assert (found.relation, found.word) == ("child", "fine-tuned")
    assert found.lineage.p_value < 1e-20
    assert found.lineage.effect > 0.9
    assert (hidden.relation, hidden.lineage.found) == ("undecided", "alike")
    for each in (found, hidden):
        assert each.lineage.is_alike
        assert each.share > 0.9
        assert each.null < 0.3


@pytest.mark.parametrize("seed", range(1, 3))
def test_strangers_are_strangers(seed: int) -> None:
    found = related(state(train(fresh(seed), seed, 80)))
    assert (found.relation, found.word) == ("stranger", "no relation found")
    assert found.share < 0.25
    assert found.lineage.p_value > 1e-3
    assert not found.lineage.is_alike


def test_a_copy_is_a_copy() -> None:
    assert related(state(parent()), disguised=True).relation == "copy"


def test_low_rank_pruned_and_quantised_children_are_named() -> None:
    weights = state(parent())
    torch.manual_seed(3)
    step = torch.randn(48, 3) @ torch.randn(3, 24)
    name = "blocks.0.up.weight"
    tuned = {**weights, name: weights[name] + 0.05 * weights[name].norm() / step.norm() * step}
    for disguised in (False, True):
        found = related(tuned, disguised)
        assert (found.relation, found.lineage.found) == ("child", "shared")
        assert next(each for each in found.changes if each.tensor == name).rank == 3
    least = weights[name].abs().flatten().kthvalue(115)[0]
    found = related({**weights, name: weights[name] * (weights[name].abs() > least)})
    assert found.relation == "child"
    assert [(each.tensor, round(each.zeroed, 2)) for each in found.changes] == [(name, 0.10)]
    grid = weights[name].abs().amax(1, keepdim=True) / 127
    found = related({**weights, name: torch.round(weights[name] / grid) * grid})
    assert [(each.tensor, each.levels) for each in found.changes] == [(name, 127)]


def test_far_relatives_are_told_by_what_they_hold_of_each_other() -> None:
    """All have A's start. B = A + something new holds all of A; two that each learnt something of their own do not."""
    generator = torch.Generator().manual_seed(0)

    def learnt(size: float) -> dict[str, torch.Tensor]:
        found = {}
        for k, (name, tensor) in enumerate(own.items()):
            noise = torch.randn(tensor.shape, generator=generator)
            amount = size * (1 + k % 3) if tensor.ndim > 1 else 0.0
            found[name] = amount * tensor.norm() / noise.norm() * noise
        return found

    own = state(parent())
    child, mine, theirs = learnt(0.4), learnt(0.4), learnt(0.4)
    far = related({name: tensor + child[name] for name, tensor in own.items()})
    assert (far.relation, "long training from A" in far.reason) == ("relative", True)
    one, two = ({name: tensor + new[name] for name, tensor in own.items()} for new in (mine, theirs))
    first, second = (replace(opened().first, state=each) for each in (one, two))
    sibling = kinship(replace(opened(), first=first, second=second))
    assert sibling.relation == "sibling", sibling
    assert "each lacks" in sibling.reason
    before = related({name: fresh(0).state_dict()[name] for name in own})
    assert before.relation in ("child", "relative")


def test_the_rank_of_a_trained_low_rank_change_is_its_rank() -> None:
    """Of most such changes one or two singular values hold nearly all; in disguise other tensors stay as they are."""
    weights, name = state(parent()), "blocks.0.out.weight"
    rows, columns = (torch.linalg.qr(torch.randn(24, 4, generator=torch.Generator().manual_seed(k)))[0] for k in (1, 2))
    step = rows * torch.tensor([1.0, 0.3, 0.03, 0.01]) @ columns.T
    tuned = {**weights, name: weights[name] + 0.1 * weights[name].norm() * step}
    for disguised in (False, True):
        ranks = {each.tensor: each.rank for each in related(tuned, disguised).changes if each.rank is not None}
        assert ranks == {name: 4}, disguised


def test_one_start_is_seen_where_alignment_loses_it() -> None:
    """Both went far from the weights with which they began, each with something of its own."""
    own, other = state(parent()), state(train(fresh(1), 1, 20))
    generator = torch.Generator().manual_seed(0)
    start = {name: 0.35 * torch.randn(tensor.shape, generator=generator) * tensor.std() for name, tensor in own.items()}
    one, two = ({name: each[name] + start[name] for name in own if own[name].ndim > 1} for each in (own, other))
    first, second = (replace(opened().first, state=opened().first.state | each) for each in (one, two))
    found = kinship(replace(opened(), first=first, second=second))
    assert found.relation == "undecided"
    assert "begun alike" in found.reason


def test_what_strangers_share_is_said() -> None:
    other, own = state(train(fresh(1), 1, 20)), state(parent())
    mixed = {name: tensor if name.startswith("blocks.") else own[name] for name, tensor in other.items()}
    found = related(mixed)
    assert found.relation == "undecided"
    assert "token.weight" in found.reason
    changed = {name: tensor if name.startswith("blocks.1.") else own[name] for name, tensor in other.items()}
    found = related(changed)
    assert found.relation in ("child", "relative", "undecided")
    assert all(each.tensor.startswith("blocks.1.") for each in found.changes)


def test_numbers_rounded_or_on_grids_are_named() -> None:
    weights = state(parent())
    found = related({name: tensor.bfloat16().float() for name, tensor in weights.items()})
    assert found.relation == "child"
    assert {each.rounded for each in found.changes} == {"bfloat16"}
    name = "blocks.0.down.weight"
    groups = torch.cat([weights[name], weights[name].flip(1)[:, :16]], 1).reshape(-1, 32)
    low, step = groups.amin(1, keepdim=True), (groups.amax(1, keepdim=True) - groups.amin(1, keepdim=True)) / 15
    grid = (low + step * ((groups - low) / step).round()).reshape(24, 64)
    assert _levels(grid) == 16
    assert _levels(groups.reshape(24, 64)) is None


def test_a_copy_with_other_settings_is_a_copy_of_weights() -> None:
    words = ("layer_types is full in A, sliding in B",)
    found = kinship(replace(opened(), architecture=replace(opened().architecture, unsettled=words)))
    assert (found.relation, found.settings) == ("copy of weights", words)
    assert found.to_dict()["verdict"] == "undecided"
    assert "layer_types is full in A" in str(found)
