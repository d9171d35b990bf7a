"""A model with fewer blocks than another: which ones were kept, and how the rest is related.

Tensors of blocks are named by the number of their block, as in `h.3.up.weight`. If B has A's tensors with fewer such
numbers, any choice of A's blocks is a checkpoint of B's architecture. Every block of B is held against every block of
A, the blocks of A turned round by no place, by one, by two; what is nearest was kept, if the second is far behind.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median

import torch

from lawful.checkpoints.compare import compare
from lawful.checkpoints.kinship import KeptBlock, KeptBlocks, Kinship, kinship
from lawful.checkpoints.opening import ApartPair, CheckpointPair, OpenCheckpoint

BEHIND = 2.0  # times the distance of the nearest block that the second has to be away
BLOCK = re.compile(r"(.*?)\.(\d+)\.(.*)")


def depth_cut(pair: ApartPair, *, seed: int = 0) -> Kinship | None:
    """B's relation to A without the blocks that are gone; None if B is not A with fewer of them, or none stands out."""
    found = _container(pair.first.state, pair.second.state)
    if found is None:
        return None
    container, count, kept = found
    architecture = pair.architectures[1]
    apart: dict[tuple[int, int], float] = {}
    for turn in range(count):
        order = [(block + turn) % count for block in range(kept)]
        seen = compare(architecture, _chosen(pair.first, container, order).state, pair.second.state)
        for block, of in enumerate(order):
            prefix = f"{container}.{block}."
            apart[block, of] = median(
                each.relative
                for each in seen.distances
                if each.tensor.startswith(prefix) and pair.second.state[each.tensor].ndim > 1
            )
    blocks = []
    for block in range(kept):
        first, second, *_ = sorted((apart[block, of], of) for of in range(count))
        blocks.append(KeptBlock(block, first[1], first[0], second[0]))
    kept_of = [each.of for each in blocks]
    if kept_of != sorted(set(kept_of)) or any(each.second < BEHIND * each.distance for each in blocks):
        return None
    near = CheckpointPair(architecture, _chosen(pair.first, container, kept_of), pair.second)
    return replace(kinship(near, seed=seed), kept=KeptBlocks(container, count, tuple(blocks)))


def _container(first: Mapping[str, torch.Tensor], second: Mapping[str, torch.Tensor]) -> tuple[str, int, int] | None:
    """What holds the blocks, and how many A and B have; None unless B is A with fewer of them."""
    counts: list[dict[str, set[int]]] = []
    for state in (first, second):
        numbers: dict[str, set[int]] = defaultdict(set)
        for name in state:
            if (parts := BLOCK.fullmatch(name)) is not None:
                numbers[parts[1]].add(int(parts[2]))
        counts.append(numbers)
    fewer = [name for name in counts[1] if len(counts[1][name]) < len(counts[0].get(name, ()))]
    if len(fewer) != 1:
        return None
    (container,) = fewer
    sizes = [len(each[container]) for each in counts]
    if any(each[container] != set(range(size)) for each, size in zip(counts, sizes, strict=True)):
        return None
    gone = {f"{container}.{number}." for number in range(sizes[1], sizes[0])}
    left = {name: tensor.shape for name, tensor in first.items() if not name.startswith(tuple(gone))}
    alike = left == {name: tensor.shape for name, tensor in second.items()}
    return (container, sizes[0], sizes[1]) if alike and sizes[1] > 0 else None


def _chosen(first: OpenCheckpoint, container: str, order: Sequence[int]) -> OpenCheckpoint:
    """A checkpoint with some of its blocks, in some order."""
    state = {}
    for name, tensor in first.state.items():
        parts = BLOCK.fullmatch(name)
        if parts is None or parts[1] != container:
            state[name] = tensor
        elif int(parts[2]) < len(order):
            state[name] = first.state[f"{container}.{order[int(parts[2])]}.{parts[3]}"]
    return replace(first, state=state, keys={name: name for name in state}, made={}, stored=None)
