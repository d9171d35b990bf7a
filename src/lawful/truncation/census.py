"""Which training points each layer of a network truncates, by class and coordinate (P2 Definition 2.1)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lawful.errors import LawfulError
from lawful.network import Dag, Mlp
from lawful.shown import Shown
from lawful.truncation.clusters import Clusters
from lawful.truncation.cumulative import Chain
from lawful.truncation.metrics import NeuralCollapse, collapse

Counts = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class LayerCensus:
    """One layer: rows are classes. `coordinates` counts the truncated points per class and coordinate, `sectors` the
    sectors (sign patterns) that hold data.

    A point is untruncated if every `a_r > 0`, fully truncated if every `a_r <= 0`, partially otherwise.
    """

    untruncated: Counts
    partial: Counts
    full: Counts
    coordinates: Counts
    sectors: int
    condition: float
    misalignment: float
    misaligned_move: float
    moved: float
    collapse: NeuralCollapse | None


@dataclass(frozen=True, eq=False)
class Census(Shown):
    """What a network does to a data set, layer by layer in input space; `residual` is chain minus network, relative.

    `misaligned_move` compares the map with its aligned version: mean `|τ_W(x) − τ_R(x)|` over mean `|τ_W(x) − x|`.
    """

    names: tuple[str, ...]
    sizes: Counts
    layers: tuple[LayerCensus, ...]
    residual: float


def census(network: Mlp | Dag, data: Clusters) -> Census:
    """Count what every layer truncates.

    >>> data = Clusters([[2.0, 1.0], [-1.0, 3.0], [-1.0, -2.0]], [0, 0, 1])
    >>> [(layer.untruncated.tolist(), layer.partial.tolist(), layer.full.tolist())
    ...  for layer in census(Mlp([np.eye(2), np.eye(2)]), data).layers]
    [([1, 0], [1, 0], [0, 1])]
    """
    mlp = network if isinstance(network, Mlp) else Mlp.from_dag(network)
    if mlp.widths[0] != data.dimension:
        raise LawfulError(f"the network takes {mlp.widths[0]} numbers, but the data have {data.dimension} columns")
    chain = Chain.of(mlp)
    images = chain.images(data.points)
    output = mlp.evaluate(data.points)
    residual = float(np.abs(chain(data.points) - output).max() / max(np.abs(output).max(), np.finfo(float).tiny))
    layers = []
    for map_, before, after in zip(chain.maps, images, images[1:], strict=False):
        off = map_.preactivations(before) <= 0
        count = off.sum(axis=1)
        width = off.shape[1]
        move = float(np.linalg.norm(after - before, axis=1).mean())
        layers.append(
            LayerCensus(
                _by_class(count == 0, data),
                _by_class((count > 0) & (count < width), data),
                _by_class(count == width, data),
                np.array([off[data.labels == label].sum(axis=0) for label in range(data.count)]),
                len(np.unique(off, axis=0)),
                map_.condition,
                map_.misalignment,
                float(np.linalg.norm(map_.aligned(before) - after, axis=1).mean()) / move if move else 0.0,
                move,
                collapse(after, data.labels) if data.count > 1 else None,
            )
        )
    return Census(data.names, data.sizes, tuple(layers), residual)


def _by_class(which: NDArray[np.bool_], data: Clusters) -> Counts:
    return np.bincount(data.labels[which], minlength=data.count)
