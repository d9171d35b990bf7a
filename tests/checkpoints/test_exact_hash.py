"""One hash for each orbit: exact members share it, one unit in the last place does not."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from checkpoints.models import FAMILIES, make
from safetensors.torch import save_file
from torch import nn

import lawful
from lawful.checkpoints.architecture import CheckpointArchitecture
from lawful.checkpoints.group.axis_actions import frames, move_tensors
from lawful.checkpoints.group.spaces import (
    HeadsMove,
    HeadSpace,
    MatrixBlock,
    SpaceMove,
    UnitsMove,
    UnitSpace,
    identity,
    turning,
)
from lawful.checkpoints.identity.colour_refinement import NodeAxis, NumberTable, ProductTable, times_modulo
from lawful.checkpoints.identity.orbit_hash import _raw_group, orbit_hash
from lawful.checkpoints.read_architecture import read_architecture
from lawful.checkpoints.rewrite.folds import State
from lawful.errors import LawfulError


@cache
def read(family: str) -> CheckpointArchitecture:
    return read_architecture(make(family), FAMILIES[family][1], folding="statistics")


def wide(found: CheckpointArchitecture) -> State:
    return {name: tensor.double() if tensor.is_floating_point() else tensor for name, tensor in found.state().items()}


def turned(block: MatrixBlock, rng: np.random.Generator) -> np.ndarray:
    """A matrix that rounds nothing: a permutation with signs and powers of two, quarter turns of rotary pairs."""
    if block.kind == "GL":
        powers = np.exp2(rng.integers(-2, 3, block.size)) * rng.choice([-1, 1], block.size)
        return np.eye(block.size)[rng.permutation(block.size)] * powers
    if block.kind == "rotary":
        quarters = np.array([1, 1j, -1, -1j])[rng.integers(0, 4, len(block.pairs))]
        return turning(block, 2.0 ** rng.integers(-2, 3, len(block.pairs)) * quarters)
    return np.eye(block.size)


def exact_member(found: CheckpointArchitecture, state: State, seed: int) -> State:
    rng = np.random.default_rng(seed)
    group = replace(_raw_group(found), shapes={name: tuple(tensor.shape) for name, tensor in state.items()})
    moves: dict[int, SpaceMove] = {}
    for number, space in enumerate(group.spaces):
        base = identity(space)
        if isinstance(space, UnitSpace) and isinstance(base, UnitsMove):
            order = rng.permutation(space.size) if space.permutes else base.order
            signs = rng.choice([-1.0, 1.0], space.size) if space.signed else base.signs
            base = UnitsMove(order, np.exp2(rng.integers(-4, 5, (space.size, space.scales))), signs)
        elif isinstance(space, HeadSpace) and isinstance(base, HeadsMove):
            order = rng.permutation(len(space.heads)) if space.permutes else base.order
            copies = np.stack([rng.permutation(space.copies) for _ in order]) if space.permutes else base.copies
            base = HeadsMove(order, copies, tuple(tuple(turned(b, rng) for b in head) for head in space.heads))
        moves[number] = base
    acting = frames(group, moves)
    return {**state, **move_tensors(state, acting, list(dict.fromkeys(name for name, _ in acting)))}


@pytest.mark.parametrize("family", FAMILIES)
def test_exact_members_share_the_hash_and_nothing_else_does(family: str) -> None:
    found = read(family)
    state = wide(found)
    mark = orbit_hash(found, state).hash
    assert mark is not None
    inputs = found.draw_inputs(1)
    for seed in range(3):
        member = exact_member(found, state, seed)
        assert torch.allclose(found.outputs(member, inputs)[0], found.outputs(state, inputs)[0], rtol=0, atol=1e-9)
        assert any(not torch.equal(member[name], state[name]) for name in state)
        assert orbit_hash(found, member).hash == mark
    for name in list(found.group.shapes)[::3]:
        changed = {**state, name: state[name].clone()}
        flat = changed[name].view(-1)
        flat[-1] = np.nextafter(float(flat[-1]), 9.0)  # in the middle of a fused bias are those of keys: dead
        assert orbit_hash(found, changed).hash != mark, name


@pytest.mark.parametrize("scale", [2.0**-100, 2.0**100])
def test_scale_does_not_matter(scale: float) -> None:
    found = read("mlp")
    state = wide(found)
    other = {**state, "0.weight": state["0.weight"] * scale, "0.bias": state["0.bias"] * scale,
             "2.weight": state["2.weight"] / scale}  # fmt: skip
    assert orbit_hash(found, other).hash == orbit_hash(found, state).hash


def test_twins_and_dead_units_have_a_hash() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(3, 6), nn.ReLU(), nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 2)).double()
    with torch.no_grad():
        module[0].weight[1], module[0].bias[1] = module[0].weight[0], module[0].bias[0]
        module[2].weight[:, 1] = module[2].weight[:, 0]
        module[0].weight[4:], module[0].bias[4:], module[2].weight[:, 4:] = 0, 0, 0
    found = read_architecture(module, (3,), folding="statistics")
    mark = orbit_hash(found, wide(found))
    assert mark.hash is not None
    assert {orbit_hash(found, exact_member(found, wide(found), seed)).hash for seed in range(5)} == {mark.hash}


def test_ties_that_are_no_twins_are_told_apart_by_trying() -> None:
    """Weights of a cycle: every unit looks like every other, and no two of them can change places alone."""
    module = nn.Sequential(nn.Linear(1, 4), nn.ReLU(), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1)).double()
    shift = torch.roll(torch.eye(4), 1, 0)
    two_swaps = torch.eye(4)[[1, 0, 3, 2]]
    with torch.no_grad():
        for tensor in module.parameters():
            tensor.fill_(1.0)
        module[2].weight.copy_(torch.eye(4) + shift)
    found = read_architecture(module, (1,), folding="statistics")
    cycle = wide(found)
    mark = orbit_hash(found, cycle).hash
    assert mark is not None
    assert {orbit_hash(found, exact_member(found, cycle, seed)).hash for seed in range(6)} == {mark}
    squares = {**cycle, "2.weight": (torch.eye(4) + two_swaps).double()}  # the same degrees, another graph
    assert orbit_hash(found, squares).hash not in (None, mark)


def test_rotations_have_no_exact_hash_and_say_so() -> None:
    class Bare(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.n, self.b = nn.Linear(3, 6), nn.RMSNorm(6, elementwise_affine=False), nn.Linear(6, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.b(self.n(self.a(x)))

    found = read_architecture(Bare(), (3,), folding="statistics")
    mark = orbit_hash(found, wide(found))
    assert mark.hash is None
    assert "rotations act" in mark.reason


def test_another_activation_is_another_hash() -> None:
    torch.manual_seed(0)
    one = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    two = nn.Sequential(one[0], nn.GELU(), one[2])
    found = lawful.fingerprint([one, two], exact=True, input=(3,))
    assert found.fingerprints[0].hash != found.fingerprints[1].hash


def test_the_command_line_groups_copies(lawful: Any, tmp_path: Any) -> None:
    found = read("gpt")
    state = {name: tensor for name, tensor in wide(found).items() if name in dict(found.module.named_parameters())}
    files = [str(tmp_path / f"{name}.safetensors") for name in "abc"]
    other = {**state, "head.weight": state["head.weight"] * 1.0000001}
    for file, each in zip(files, (state, exact_member(found, state, 3), other), strict=True):
        save_file({name: tensor.contiguous() for name, tensor in each.items()}, file)
    run = lawful("fingerprint", *files, "--model", "checkpoints.models:gpt", "--input", "3:int", "--json", code=0)
    answer = json.loads(run.stdout)
    assert answer["groups"] == [files[:2], files[2:]]
    assert all(each["complete"] and each["fingerprint"].startswith("orbit:") for each in answer["files"])


def test_what_no_output_sees_is_not_hashed_and_shifts_are_named() -> None:
    found = read("gpt")
    state = dict(found.state())
    whole = orbit_hash(found, state)
    bias = "blocks.0.qkv.bias"  # of queries, keys and values
    for place, alike in ((0, False), (8, True), (15, True), (16, False)):
        other = state[bias].clone()
        other[place] += 1
        assert (orbit_hash(found, {**state, bias: other}).hash == whole.hash) == alike
    assert whole.dead == ("blocks.0.qkv.bias", "blocks.1.qkv.bias")
    assert "token.weight" in whole.shifted
    assert "not covered: shifts of token.weight" in whole.reason


def test_tensors_that_are_never_read_are_not_hashed() -> None:
    class Unread(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second, self.spare = nn.Linear(3, 4), nn.Linear(4, 2), nn.Linear(2, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.second(torch.relu(self.first(x)))

    found = read_architecture(Unread(), (3,), folding="statistics")
    whole = orbit_hash(found, found.state())
    assert whole.dead == ("spare.weight", "spare.bias")
    assert orbit_hash(found, {**found.state(), "spare.bias": torch.ones(2)}).hash == whole.hash
    assert orbit_hash(found, {**found.state(), "second.bias": torch.ones(2)}).hash != whole.hash


def test_products_of_residues_are_exact_however_many_are_added() -> None:
    prime = 8_388_593
    one, two = np.full((2, 300), prime - 1), np.full((300, 3), prime - 2)
    assert times_modulo(one, two, prime).tolist() == [[300 * 2 % prime] * 3] * 2


@pytest.mark.parametrize("family", ["gpt", "gpt-tied", "vit", "llama-tied"])
def test_products_that_are_not_multiplied_out_say_the_same(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Members share the hash; a number of a head changed, or two columns of one factor exchanged, does not."""
    monkeypatch.setattr("lawful.checkpoints.identity.orbit_hash.WRITTEN_OUT", 0)
    found = read(family)
    state = wide(found)
    mark = orbit_hash(found, state)
    assert mark.hash is not None, mark.reason
    for seed in (1, 2):
        assert orbit_hash(found, exact_member(found, state, seed)) == mark
    space = next(each for each in _raw_group(found).spaces if isinstance(each, HeadSpace))
    rows = next(r for block in space.heads[0] if block.kind == "GL" for r in block.members if state[r.tensor].ndim == 2)
    changed, swapped = state[rows.tensor].clone(), state[rows.tensor].clone()
    changed[1, 1] = np.nextafter(float(changed[1, 1]), 9.0)
    swapped[[0, 1]] = swapped[[1, 0]]
    for other in (changed, swapped):
        assert orbit_hash(found, {**state, rows.tensor: other}).hash not in (None, mark.hash)


def test_a_product_of_deficient_rank_is_not_guessed() -> None:
    """Its first columns and rows would not determine it."""
    axes = [NodeAxis(np.arange(size), np.zeros(size, dtype=np.int64)) for size in (1, 4, 4)]
    left, right = np.array([[[1, 2, 3, 4], [5, 6, 7, 8]]]), np.array([[[1, 0, 0, 0], [2, 0, 3, 4]]])
    table = ProductTable("of one head", [left], [right], (8_388_593,), axes, [False] * 3)
    with pytest.raises(LawfulError, match="deficient rank"):
        table.digest(hashlib.sha256(), [axis.nodes for axis in axes])


def test_products_are_what_they_are_multiplied_out() -> None:
    """Sums of rows, with and without squares, against the table of all entries."""
    rng = np.random.default_rng(0)
    prime = 8_388_593
    left, right = (rng.integers(0, prime, (3, 2, size)) for size in (5, 4))
    axes = [NodeAxis(np.arange(size), np.zeros(size, dtype=np.int64)) for size in (3, 5, 4)]
    table = ProductTable("heads", [left], [right], (prime,), axes, [False, True, True])
    whole = np.einsum("hdi,hdj->hij", left.astype(object), right.astype(object)) % prime
    weights = rng.integers(0, prime, 4)
    for squared in (False, True):
        sums = (whole ** (1 + squared) * weights).sum(axis=2) % prime
        dense = NumberTable("", sums[..., None].astype(np.int64), axes[:2], [False, False], np.array([prime]))
        assert np.array_equal(table._along(1, weights.astype(np.uint64), squared=squared), dense.prepare(blind=False))
    flipped = -np.ones(5)
    table.turn(1, flipped)
    assert np.array_equal(table.left[0], -left % prime)
    assert table.stays({0: np.arange(3)})
    assert not table.stays({2: np.array([1, 0, 2, 3])})
