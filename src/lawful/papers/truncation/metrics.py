"""How far classes have collapsed: the four numbers of neural collapse, each with its variant named."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from lawful.errors import LawfulError
from lawful.types import Floats


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
