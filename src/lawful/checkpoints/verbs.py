"""The verbs: align B to A, and decide whether they are the same function."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from lawful.checkpoints.compare import WeightComparison, compare
from lawful.checkpoints.folds import unfold
from lawful.checkpoints.opening import CheckpointPair, Model, Source, open_checkpoints
from lawful.checkpoints.same import CheckpointVerdict, same_checkpoints
from lawful.checkpoints.streamed import fold_clusters
from lawful.symmetry.inputs import Input


@dataclass(frozen=True, eq=False)
class Aligned:
    """B in A's place: `weights` under the names of B's file, in its type of numbers, and what is left between them."""

    weights: dict[str, torch.Tensor]
    comparison: WeightComparison
    before: float  # ‖B − A‖/‖A‖ over all parameters
    after: float


def align(
    first: Source, second: Source, *, model: Model | None = None, input: Input | Sequence[Input] | None = None
) -> Aligned:
    """The member of B's orbit that is nearest to A: the same function as B, with A's order of units, scales and axes.

    >>> from torch import nn
    >>> one = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    >>> turned = {"0.weight": 3 * one[0].weight.flip(0), "0.bias": 3 * one[0].bias.flip(0),
    ...           "2.weight": one[2].weight.flip(1) / 3, "2.bias": one[2].bias}
    >>> found = align(one, turned, input=(3,))
    >>> found.before > 0.5, found.after < 1e-6, torch.allclose(found.weights["0.weight"], one[0].weight)
    (True, True, True)
    """
    return align_pair(open_checkpoints(first, second, model=model, input=input))


def align_pair(pair: CheckpointPair) -> Aligned:
    """Align two checkpoints that are open already."""
    one, two = pair.first.state, pair.second.state
    found = compare(pair.architecture, one, two)
    parameters = set(dict(pair.architecture.module.named_parameters()))
    weights: dict[str, torch.Tensor] = {}
    before = after = size = 0.0
    for cluster in dict.fromkeys(fold_clusters(one, pair.architecture.folds).values()):
        like = {name: one[name].double() for name in cluster.names}
        near = unfold({name: found.aligned[name].double() for name in cluster.names}, cluster.folds, like)
        for name in cluster.names:
            if name in parameters:
                before += float((two[name].double() - like[name]).square().sum())
                after += float((near[name] - like[name]).square().sum())
                size += float(like[name].square().sum())
            if name in pair.second.keys:
                weights[pair.second.keys[name]] = near[name].to(two[name].dtype)
    weights = {key: weights[key] for key in pair.second.keys.values()}
    return Aligned(weights, found, *((off / size) ** 0.5 if size else 0.0 for off in (before, after)))


def same(
    first: Source,
    second: Source,
    *,
    model: Model | None = None,
    input: Input | Sequence[Input] | None = None,
    seed: int = 0,
) -> CheckpointVerdict:
    """Are two checkpoints of one architecture the same function?

    >>> from torch import nn
    >>> one = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    >>> turned = {"0.weight": -one[0].weight.flip(0), "0.bias": -one[0].bias.flip(0),
    ...           "2.weight": -one[2].weight.flip(1), "2.bias": one[2].bias}
    >>> found = same(one, turned, input=(3,))
    >>> found.verdict, found.within
    ('equal', 'exactly')
    """
    pair = open_checkpoints(first, second, model=model, input=input)
    return same_checkpoints(pair.architecture, pair.first.state, pair.second.state, seed=seed)
