"""Which training points each layer of a network truncates, by class and coordinate (P2 Definition 2.1)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lawful.errors import LawfulError
from lawful.network import Dag, Mlp
from lawful.papers.truncation.clusters import Clusters
from lawful.papers.truncation.cumulative import TruncationMap
from lawful.papers.truncation.metrics import NeuralCollapse, collapse
from lawful.result import Shown
from lawful.types import Floats

Counts = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class LayerCensus:
    """One layer: rows are classes. `coordinates` counts the truncated points per class and coordinate, `sectors` the
    sectors (sign patterns) that hold data.

    A point is untruncated if every `a_r > 0`, fully truncated if every `a_r <= 0`, partially otherwise. `lost` is the
    share of the layer's variation over the data that no point of input space has (0 unless layers widen or lose rank);
    alignment is defined for layers that do not widen.
    """

    untruncated: Counts
    partial: Counts
    full: Counts
    coordinates: Counts
    sectors: int
    condition: float
    misalignment: float | None
    misaligned_move: float | None
    moved: float
    lost: float
    collapse: NeuralCollapse | None


@dataclass(frozen=True, eq=False)
class Census(Shown):
    """What a network does to a data set, layer by layer in input space; `residual` is chain minus network, relative.

    `misaligned_move` compares the map with its aligned version: mean `|τ_W(x) − τ_R(x)|` over mean `|τ_W(x) − x|`.
    `images` are the points in input space before the first layer and after each.
    """

    names: tuple[str, ...]
    sizes: Counts
    layers: tuple[LayerCensus, ...]
    residual: float
    images: tuple[Floats, ...]
    maps: tuple[TruncationMap, ...]


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
    weight, bias = np.eye(data.dimension), np.zeros(data.dimension)
    image, values = data.points, data.points
    images, maps, layers = [image], [], []
    for number, (own, own_bias) in enumerate(zip(mlp.weights, mlp.biases, strict=True), 1):
        weight, bias = own @ weight, own @ bias + (0.0 if own_bias is None else own_bias)
        before = values @ own.T + (0.0 if own_bias is None else own_bias)
        if number == len(mlp.weights):
            break
        map_ = TruncationMap(weight, bias, mlp.slopes[number - 1])
        values = np.where(before > 0, before, map_.slope * before)
        after = image + (values - map_.preactivations(image)) @ map_.inverse.T  # the nearest point that says the same
        layers.append(_layer(map_, before, values, image, after, data))
        image = after
        images.append(image)
        maps.append(map_)
    residual = np.abs(image @ weight.T + bias - before).max() / max(np.abs(before).max(), np.finfo(float).tiny)
    return Census(data.names, data.sizes, tuple(layers), float(residual), tuple(images), tuple(maps))


def _layer(
    map_: TruncationMap, before: Floats, values: Floats, image: Floats, after: Floats, data: Clusters
) -> LayerCensus:
    off = before <= 0
    count, width = off.sum(axis=1), off.shape[1]
    move = float(np.linalg.norm(after - image, axis=1).mean())
    widens = width > data.dimension
    missed, varied = (each - each.mean(axis=0) for each in (values - map_.preactivations(after), values))
    return LayerCensus(
        _by_class(count == 0, data),
        _by_class((count > 0) & (count < width), data),
        _by_class(count == width, data),
        np.array([off[data.labels == label].sum(axis=0) for label in range(data.count)]),
        len(np.unique(off, axis=0)),
        map_.condition,
        None if widens else map_.misalignment,
        None if widens else float(np.linalg.norm(map_.aligned(image) - after, axis=1).mean()) / move if move else 0.0,
        move,
        min(1.0, float((missed**2).sum() / max((varied**2).sum(), np.finfo(float).tiny))),
        collapse(after, data.labels) if data.count > 1 else None,
    )


def _by_class(which: NDArray[np.bool_], data: Clusters) -> Counts:
    return np.bincount(data.labels[which], minlength=data.count)
