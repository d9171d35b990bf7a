"""Models with fewer blocks, or of other sizes, held against each other."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from checkpoints.conftest import disguise, narrow
from checkpoints.models import cut, deep

from lawful.checkpoints.depth import depth_cut
from lawful.checkpoints.kinship import kinship
from lawful.checkpoints.opening import ApartPair, open_both, open_checkpoints

TOKENS = ("--input", "3:int")
DEEP, CUT, WIDER = (f"checkpoints.models:{name}" for name in ("deep", "cut", "wider"))


def test_the_blocks_that_were_kept_are_found_in_a_disguise_too() -> None:
    pair = open_both(deep(), cut(), input="3:int")
    assert isinstance(pair, ApartPair)
    hidden = narrow(disguise(pair.architectures[1], pair.second.state, 3), torch.float32)
    found = depth_cut(replace(pair, second=replace(pair.second, state=hidden)))
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
    assert depth_cut(pair) is None


def test_the_command_line_names_blocks_and_sizes(lawful: Callable[..., Any]) -> None:
    got = lawful("diff", DEEP, CUT, *TOKENS, "--json").json
    assert got["relation"] == "copy"
    assert [each["of"] for each in got["depth_cut"]["kept"]] == [0, 2]
    assert "2 of the 4 blocks of A's blocks: 0, 2" in " ".join(lawful("diff", DEEP, CUT, *TOKENS).stdout.split())
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
