"""Training data as the theory sees them: points in R^Q, one cluster per label, one target per cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lawful.errors import LawfulError
from lawful.formats.queries.data import doubles
from lawful.types import Floats, Indices

LARGEST = 1e75


@dataclass(frozen=True, eq=False, repr=False)
class Clusters:
    """Points `x_{ℓ,i} ∈ R^Q` (rows) with labels 0, 1, …; `names` says what each label was called.

    >>> Clusters([[0.0, 1.0], [1.0, 1.0], [3.0, 0.0]], ["b", "a", "b"])
    Clusters(Q=2, sizes=[1, 2])
    """

    points: Floats
    labels: Indices
    names: tuple[str, ...]

    def __init__(self, points: ArrayLike, labels: Sequence[object] | NDArray[np.generic]) -> None:
        """Copy, check and freeze; the distinct labels are sorted and numbered."""
        array = doubles(np.asarray(points), "x")
        if array.ndim != 2 or 0 in array.shape:
            raise LawfulError(f"data are a table with a row per point and a column per coordinate, not {array.shape}")
        if not np.isfinite(array).all():
            row, column = np.argwhere(~np.isfinite(array))[0]
            raise LawfulError(f"data must be finite: row {row}, column {column} is {array[row, column]}")
        if np.abs(array).max() > LARGEST:
            raise LawfulError(f"data beyond {LARGEST:g} have squares beyond all floats: divide them by a power of ten")
        if np.asarray(labels).shape != (len(array),):
            raise LawfulError(f"{len(array)} points need as many labels, not {np.size(np.asarray(labels))}")
        names, numbers = np.unique(np.asarray(labels), return_inverse=True)
        for array_ in (array, numbers):
            array_.setflags(write=False)
        for name, value in (("points", array), ("labels", numbers), ("names", tuple(str(name) for name in names))):
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        return f"Clusters(Q={self.dimension}, sizes={self.sizes.tolist()})"

    @property
    def dimension(self) -> int:
        """`Q`, the number of coordinates."""
        return int(self.points.shape[1])

    @property
    def count(self) -> int:
        """Number of clusters."""
        return len(self.names)

    @cached_property
    def sizes(self) -> Indices:
        """`N_ℓ`, the number of points of each cluster."""
        return np.bincount(self.labels, minlength=self.count)

    @cached_property
    def means(self) -> Floats:
        """The mean of each cluster, a row each."""
        sums = np.zeros((self.count, self.dimension))
        np.add.at(sums, self.labels, self.points)
        return sums / self.sizes[:, None]

    @cached_property
    def weights(self) -> Floats:
        """`1/N_ℓ` for every point: the cost averages within clusters and adds clusters up (P2 (2.26))."""
        return np.asarray(1.0 / self.sizes[self.labels])

    def cluster(self, number: int) -> Floats:
        """The points of one cluster."""
        return np.asarray(self.points[self.labels == number])

    def others(self, number: int) -> Floats:
        """The points of all other clusters."""
        return np.asarray(self.points[self.labels != number])

    def projected(self, dimension: int) -> Clusters:
        """The data along their `dimension` principal axes, centred (exact when the data lie in such a subspace)."""
        if not 1 <= dimension <= min(self.points.shape):
            raise LawfulError(f"cannot project {self.points.shape[0]} points of R^{self.dimension} to R^{dimension}")
        centred = self.points - self.points.mean(axis=0)
        axes = np.linalg.svd(centred, full_matrices=False)[2][:dimension]
        signs = np.sign(axes[np.arange(dimension), np.abs(axes).argmax(axis=1)])
        return Clusters(centred @ (signs[:, None] * axes).T, [self.names[label] for label in self.labels])

    def scaled(self) -> Clusters:
        """The data centred and divided by their root-mean-square size: flows on large numbers turn R very fast."""
        centred = self.points - self.points.mean(axis=0)
        size = float(np.sqrt((centred**2).sum(axis=1).mean())) or 1.0
        return Clusters(centred / size, [self.names[label] for label in self.labels])


def need_square(data: Clusters) -> None:
    """Raise unless there are as many clusters as coordinates, as the flows of P2 Sections 3 to 9 assume."""
    if data.count != data.dimension:
        few = "fewer" if data.count < data.dimension else "more"
        raise LawfulError(
            f"{data.count} clusters in R^{data.dimension}: {few} clusters than coordinates, but the theory has one "
            f"layer and one label per coordinate (M = L = Q); project the data to {data.count} coordinates"
        )


def synthetic(dimension: int, size: int, spread: float, seed: int = 0) -> Clusters:
    """`Q` Gaussian clusters of `N` points about the corners `e_1 … e_Q` of a simplex.

    >>> synthetic(3, 10, 0.1)
    Clusters(Q=3, sizes=[10, 10, 10])
    """
    if dimension < 2 or size < 1 or not (np.isfinite(spread) and spread >= 0):
        raise LawfulError(f"clusters need Q >= 2, N >= 1 and spread >= 0, not {dimension}, {size}, {spread}")
    if dimension * dimension * size > 50_000_000:
        raise LawfulError(f"{dimension} clusters of {size} points in R^{dimension} do not fit in memory")
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(dimension), size)
    width = len(str(dimension - 1))
    points = np.eye(dimension)[labels] + spread * rng.normal(size=(len(labels), dimension)) / np.sqrt(dimension)
    return Clusters(points, [f"{label:0{width}}" for label in labels])
