"""Which training points each layer of a network truncates, by class and coordinate (P2 Definition 2.1)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lawful.errors import LawfulError
from lawful.network import Dag, Mlp
from lawful.papers.truncation.clusters import Clusters
from lawful.papers.truncation.cumulative import TruncationMap
from lawful.result import Shown
from lawful.types import Floats

# How far classes have collapsed: the four numbers of neural collapse, each with its variant named.


@dataclass(frozen=True)
class NeuralCollapse:
    """Neural collapse of features; every number is 0 at perfect collapse except `nc4`, which is 1.

    `nc1_pinv` is `tr(Σ_W Σ_B⁺)/K`, `nc1_quotient` is `tr Σ_W / tr Σ_B`, `nc1_cdnv` the mean over pairs of classes of
    `(σ_i² + σ_j²)/(2|μ_i − μ_j|²)`: three different scales. `nc2_norms` is the variation of the centred means' norms,
    `nc2_angles` the mean of `|cos + 1/(K−1)|` over pairs. `nc3` is the distance between the normalised last weights and
    the normalised centred means, `nc4` the share of points whose output agrees with the nearest class mean.
    """

    nc1_pinv: float
    nc1_quotient: float
    nc1_cdnv: float
    nc2_norms: float
    nc2_angles: float
    nc3: float | None = None
    nc4: float | None = None


def collapse(
    features: ArrayLike, labels: ArrayLike, weight: ArrayLike | None = None, bias: ArrayLike | None = None
) -> NeuralCollapse:
    """Measure neural collapse; with the last layer's `weight` (a row per class) also NC3 and NC4.

    >>> corners = np.eye(3)
    >>> perfect = collapse(corners[[0, 0, 1, 1, 2, 2]], [0, 0, 1, 1, 2, 2], weight=corners)
    >>> perfect.nc1_pinv, perfect.nc1_cdnv, round(perfect.nc2_angles, 12), perfect.nc4
    (0.0, 0.0, 0.0, 1.0)
    """
    points, numbers = np.asarray(features, dtype=np.float64), np.asarray(labels)
    classes, numbers = np.unique(numbers, return_inverse=True)
    count = len(classes)
    if count < 2:
        raise LawfulError("neural collapse compares classes: give data with at least two")
    means = np.array([points[numbers == label].mean(axis=0) for label in range(count)])
    spread = points - means[numbers]
    within = spread.T @ spread / len(points)
    centred = means - means.mean(axis=0)
    between = centred.T @ centred / count
    variances = np.array([(spread[numbers == label] ** 2).sum(axis=1).mean() for label in range(count)])
    first, second = np.triu_indices(count, 1)
    gaps = ((means[first] - means[second]) ** 2).sum(axis=1)
    norms = np.linalg.norm(centred, axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        cosines = (centred[first] * centred[second]).sum(axis=1) / (norms[first] * norms[second])
        return NeuralCollapse(
            float(np.trace(within @ np.linalg.pinv(between, hermitian=True))) / count,
            float(np.trace(within) / np.trace(between)),
            float(((variances[first] + variances[second]) / (2 * gaps)).mean()),
            float(norms.std() / norms.mean()),
            float(np.abs(cosines + 1 / (count - 1)).mean()),
            None if weight is None else _duality(np.asarray(weight, dtype=np.float64), centred),
            None if weight is None else _agreement(points, means, np.asarray(weight, dtype=np.float64), bias),
        )


def _duality(weight: Floats, centred: Floats) -> float:
    rows = weight - weight.mean(axis=0)
    return float(np.linalg.norm(rows / np.linalg.norm(rows) - centred / np.linalg.norm(centred)))


def _agreement(points: Floats, means: Floats, weight: Floats, bias: ArrayLike | None) -> float:
    chosen = (points @ weight.T + (0.0 if bias is None else np.asarray(bias))).argmax(axis=1)
    distances = (means**2).sum(axis=1) - 2 * points @ means.T
    return float((chosen == distances.argmin(axis=1)).mean())


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
    for number, (layer_weight, layer_bias) in enumerate(zip(mlp.weights, mlp.biases, strict=True), 1):
        weight, bias = layer_weight @ weight, layer_weight @ bias + (0.0 if layer_bias is None else layer_bias)
        before = values @ layer_weight.T + (0.0 if layer_bias is None else layer_bias)
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
    missed, varied = (
        deviations - deviations.mean(axis=0) for deviations in (values - map_.preactivations(after), values)
    )
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
