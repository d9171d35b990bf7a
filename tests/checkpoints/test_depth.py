"""Models with fewer blocks, or of other sizes, held against each other."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from checkpoints.conftest import disguise, narrow
from checkpoints.models import cut, deep

from lawful.checkpoints.opening import ApartPair, open_both, open_checkpoints
from lawful.checkpoints.relations.block_matching import other_depth, other_order
from lawful.checkpoints.relations.kinship import kinship

TOKENS = ("--input", "3:int")
DEEP, CUT, WIDER = (f"checkpoints.models:{name}" for name in ("deep", "cut", "wider"))


def test_the_blocks_that_were_kept_are_found_in_a_disguise_too() -> None:
    pair = open_both(deep(), cut(), input="3:int")
    assert isinstance(pair, ApartPair)
    hidden = narrow(disguise(pair.architectures[1], pair.second.state, 3), torch.float32)
    found = other_depth(replace(pair, second=replace(pair.second, state=hidden)))
    assert found is not None
    assert found.kept is not None
    assert [each.of for each in found.kept.blocks] == [0, 2]
    assert all(each.distance < 0.2 < 0.8 < each.second for each in found.kept.blocks)
    assert found.relation == "copy"


def test_a_stranger_with_fewer_blocks_kept_none() -> None:
    other = cut()
    torch.manual_seed(9)
    with torch.no_grad():
        for tensor in other.parameters():
            tensor.copy_(torch.randn_like(tensor) * tensor.std() if tensor.ndim > 1 else tensor)
    pair = open_both(deep(), other, input="3:int")
    assert isinstance(pair, ApartPair)
    assert other_depth(pair) is None


def _with_blocks(order: list[int]) -> dict[str, torch.Tensor]:
    """A state of `deep` with its blocks in some order."""
    whole = deep().state_dict()
    found = {name: tensor for name, tensor in whole.items() if not name.startswith("blocks.")}
    for place, number in enumerate(order):
        within = f"blocks.{number}."
        found |= {f"blocks.{place}.{name.removeprefix(within)}": tensor for name, tensor in whole.items()
                  if name.startswith(within)}  # fmt: skip
    return found


def test_blocks_in_another_order_are_no_stranger() -> None:
    """Layer by layer nothing agrees; the blocks are A's own all the same."""
    same = open_checkpoints(deep(), deep(), input="3:int")
    for order in ([1, 2, 3, 0], [0, 1, 1, 3]):
        pair = replace(same, second=replace(same.second, state=_with_blocks(order)))
        alone = kinship(pair)
        assert alone.relation != "stranger"
        found = other_order(pair, alone)
        assert found is not None
        assert found.kept is not None
        assert [each.of for each in found.kept.blocks] == order
        assert found.relation == "copy"
    assert other_order(same, kinship(same)) is None


def test_a_model_made_deeper_of_its_own_blocks() -> None:
    pair = open_both(cut(), deep(), input="3:int")
    assert isinstance(pair, ApartPair)
    state = {name: tensor.clone() for name, tensor in pair.second.state.items()}
    for name, tensor in pair.first.state.items():
        for place, number in enumerate((0, 1, 0, 1)):
            if name.startswith(f"blocks.{number}."):
                state[name.replace(f"blocks.{number}.", f"blocks.{place}.")] = tensor
    found = other_depth(replace(pair, second=replace(pair.second, state=state)))
    assert found is not None
    assert found.kept is not None
    assert [each.of for each in found.kept.blocks] == [0, 1, 0, 1]
    assert found.relation == "copy"


def test_the_command_line_names_blocks_and_sizes(lawful: Callable[..., Any]) -> None:
    got = lawful("diff", DEEP, CUT, *TOKENS, "--json").json
    assert got["relation"] == "copy"
    assert got["verdict"] == "undecided"
    assert [each["of"] for each in got["depth_cut"]["kept"]] == [0, 2]
    assert "2 blocks, made of the 4 blocks of A's blocks: 0, 2" in " ".join(
        lawful("diff", DEEP, CUT, *TOKENS).stdout.split()
    )
    apart = lawful("diff", DEEP, WIDER, *TOKENS, "--json").json
    assert {"name": "blocks.0.up.weight", "sizes": [[24], [32]]} in apart["spaces_apart"]
    assert {"name": "token.weight", "sizes": [[40, 16], [44, 16]]} in apart["sizes_apart"]
    assert "24 in A, 32 in B" in lawful("diff", DEEP, WIDER, *TOKENS).stdout


def test_what_grew_from_zero_is_measured_beside_its_layer() -> None:
    """Biases that start at zero have no size of their own: their changes are relative to their layer."""
    parent = deep()
    with torch.no_grad():
        for name, tensor in parent.named_parameters():
            if name.endswith("bias"):
                tensor.zero_()
    child = copy.deepcopy(parent)
    torch.manual_seed(1)
    with torch.no_grad():
        for tensor in child.parameters():
            tensor.add_(0.01 * torch.randn_like(tensor))
    found = kinship(open_checkpoints(parent, child, input="3:int"))
    assert found.relation == "child"
    grown = {each.tensor: each for each in found.verdict.comparison.distances if each.beside is not None}
    assert grown["blocks.0.up.bias"].beside == "blocks.0.up"
    assert all(each.relative < 0.2 for each in grown.values())
