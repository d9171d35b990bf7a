"""One open checkpoint in the place of another: its weights aligned, under the names and in the types of its file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from lawful.checkpoints.align.lazy_tensors import (
    MadeTensors,
    fold_clusters,
    working_types,
)
from lawful.checkpoints.compare.entries import WeightComparison, compare
from lawful.checkpoints.opening import CheckpointPair
from lawful.checkpoints.rewrite.folds import PART, undo_folds
from lawful.errors import Unsupported
from lawful.result import Shown


@dataclass(frozen=True, eq=False)
class Aligned(Shown):
    """B in A's place: `weights` under the names of B's file, in its type of numbers, and what is left between them."""

    weights: Mapping[str, torch.Tensor]
    comparison: WeightComparison
    before: float  # ‖B − A‖/‖A‖ over all parameters
    after: float


def align_pair(pair: CheckpointPair) -> Aligned:
    """Align two checkpoints that are open already; the weights of a large module are made when they are asked for."""
    one, two = pair.first.state, pair.second.state
    comparison = compare(pair.architecture, one, two)
    parameters = set(dict(pair.architecture.module.named_parameters()))
    keys = written_names(pair)
    near = bring_into_place(pair, comparison)
    before = after = size = 0.0
    for cluster in dict.fromkeys(fold_clusters(one, pair.architecture.folds).values()):
        for name in cluster.names:
            if name in parameters:
                before += _square_apart(two[name], one[name])
                after += _square_apart(near[name], one[name])
                size += _square_apart(one[name])
    names = {key: name for name, key in keys.items()}
    weights = MadeTensors(names, lambda key: {key: near[names[key]].to(two[names[key]].dtype)})
    shown = weights if pair.architecture.large else dict(weights)
    return Aligned(shown, comparison, *((off / size) ** 0.5 if size else 0.0 for off in (before, after)))


def bring_into_place(pair: CheckpointPair, comparison: WeightComparison) -> MadeTensors:
    """B's tensors in A's place by the names of the module, with folds undone as A has them; made when asked for."""
    one, two = pair.first.state, pair.second.state
    clusters, kinds = fold_clusters(one, pair.architecture.folds), working_types(one, two)

    def make(name: str) -> dict[str, torch.Tensor]:
        cluster = clusters[name]
        if not cluster.folds:
            return {name: comparison.aligned[name]}
        single = any(kinds.get(member) == torch.float32 for member in cluster.names)
        kind = torch.float32 if single else torch.float64
        like = {member: one[member].to(kind) for member in cluster.names}
        return undo_folds(
            {member: comparison.aligned[member].to(kind) for member in cluster.names}, cluster.folds, like
        )

    return MadeTensors(one, make)


def _square_apart(one: torch.Tensor, two: torch.Tensor | None = None) -> float:
    """`‖one − two‖²`, or `‖one‖²`, part by part: large tensors are not widened as a whole."""
    total = 0.0
    others = None if two is None else torch.split(two.reshape(-1), PART)
    for number, part in enumerate(torch.split(one.reshape(-1), PART)):
        apart = part.double() if others is None else part.double() - others[number].double()
        total += float(torch.linalg.vector_norm(apart)) ** 2
    return total


def written_names(pair: CheckpointPair) -> Mapping[str, str]:
    """The names under which B is written in A's place: those of its file, or A's if B is written in another way."""
    if not pair.rewritten:
        return pair.second.keys
    missing = [name for name, _ in pair.architecture.module.named_parameters() if name not in pair.first.keys]
    if missing:
        raise Unsupported(
            "B cannot be written in the form of A; A can be written in that of B: give them in that order"
        )
    return pair.first.keys
