"""A model whose blocks are not those of another, one by one: some gone, repeated, or in another order.

Tensors of blocks are named by the number of their block, as in `h.3.up.weight`. If B has A's tensors with other such
numbers, any choice of A's blocks is a checkpoint of B's architecture. Sketches of blocks tell which block of A each
block of B is (`block_likeness.py`), and the rest is about A with these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch

from lawful.checkpoints.opening import ApartPair, CheckpointPair, OpenCheckpoint
from lawful.checkpoints.relations.block_likeness import BLOCK, block_likeness, numbered
from lawful.checkpoints.relations.kinship import KeptBlock, KeptBlocks, Kinship, kinship
from lawful.types import Floats

STRANGE = 0.5  # share of units whose partners agree, below which blocks may be others
ALIKE, BEHIND = 0.5, 2.0  # likeness from which blocks are one, and how many times that of the second it has to be


def other_depth(pair: ApartPair, *, seed: int = 0) -> Kinship | None:
    """B's relation to A with the blocks that B has; None if they differ in anything else, or no block stands out."""
    found = _container(pair.first.state, pair.second.state)
    if found is None:
        return None
    container, count, kept = found
    rounds = -(-count // kept)
    choices = [[(start * kept + place) % count for place in range(kept)] for start in range(rounds)]
    states = [_chosen(pair.first, container, order).state for order in choices]
    alike = block_likeness(pair.architectures[1], container, states, pair.second.state, kept)[:, :count]
    blocks = _told(alike)
    if blocks is None:
        return None
    near = CheckpointPair(
        pair.architectures[1], _chosen(pair.first, container, [each.of for each in blocks]), pair.second
    )
    return replace(kinship(near, seed=seed), kept=KeptBlocks(container, count, blocks))


def other_order(pair: CheckpointPair, found: Kinship, *, seed: int = 0) -> Kinship | None:
    """If B has A's blocks in another order (or some twice): the relation to A with its blocks like that."""
    strange = [each.space for each in found.agreements if each.share < STRANGE]
    first = pair.first.state
    for container, numbers in numbered(first).items():
        kinds = [_kinds(first, container, number) for number in sorted(numbers)]
        alike = numbers == set(range(len(numbers))) and all(each == kinds[0] for each in kinds)
        if not alike or len(numbers) < 2 or not any(name.startswith(f"{container}.") for name in strange):
            continue
        blocks = _told(block_likeness(pair.architecture, container, [first], pair.second.state, len(numbers)))
        if blocks is None or all(each.block == each.of for each in blocks):
            continue
        near = replace(pair, first=_chosen(pair.first, container, [each.of for each in blocks]))
        again = kinship(near, seed=seed)
        if again.relation == "copy" or (again.lineage is not None and again.lineage.found not in ("none", "undecided")):
            return replace(again, kept=KeptBlocks(container, len(numbers), blocks))
    return None


def _told(alike: Floats) -> tuple[KeptBlock, ...] | None:
    """For each block of B the one of A, if it stands out; distances are 1 − likeness."""
    blocks = []
    for block, row in enumerate(alike):
        order = np.argsort(-row, kind="stable")
        best, second = float(row[order[0]]), float(row[order[1]]) if len(order) > 1 else 0.0
        if best < ALIKE or best < BEHIND * second:
            return None
        blocks.append(KeptBlock(block, int(order[0]), 1 - best, 1 - second))
    return tuple(blocks)


def _kinds(state: Mapping[str, torch.Tensor], container: str, number: int) -> dict[str, torch.Size]:
    """The tensors of a block by their names in it."""
    within = f"{container}.{number}."
    return {name.removeprefix(within): tensor.shape for name, tensor in state.items() if name.startswith(within)}


def _container(first: Mapping[str, torch.Tensor], second: Mapping[str, torch.Tensor]) -> tuple[str, int, int] | None:
    """What holds the blocks, and how many A and B have; None unless B is A with fewer or more of them."""
    one, two = numbered(first), numbered(second)
    other = [name for name in two if len(two[name]) != len(one.get(name, two[name]))]
    if len(other) != 1:
        return None
    (container,) = other
    sizes = [len(each[container]) for each in (one, two)]
    if any(each[container] != set(range(size)) for each, size in zip((one, two), sizes, strict=True)):
        return None
    shorter, longer = sorted((first, second), key=len)
    gone = tuple(f"{container}.{number}." for number in range(min(sizes), max(sizes)))
    left = {name: tensor.shape for name, tensor in longer.items() if not name.startswith(gone)}
    alike = left == {name: tensor.shape for name, tensor in shorter.items()}
    kinds = [_kinds(longer, container, number) for number in range(max(sizes))]
    return (container, sizes[0], sizes[1]) if alike and all(each == kinds[0] for each in kinds) else None


def _chosen(first: OpenCheckpoint, container: str, order: Sequence[int]) -> OpenCheckpoint:
    """A checkpoint with some of its blocks, in some order."""
    state: dict[str, torch.Tensor] = {}
    for name, tensor in first.state.items():
        parts = BLOCK.fullmatch(name)
        if parts is None or parts[1] != container:
            state[name] = tensor
        elif not int(parts[2]):
            state |= {f"{container}.{place}.{parts[3]}": first.state[f"{container}.{number}.{parts[3]}"]
                      for place, number in enumerate(order)}  # fmt: skip
    return replace(first, state=state, keys={name: name for name in state}, made={}, stored=None)
