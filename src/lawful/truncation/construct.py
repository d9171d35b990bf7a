"""A network of zero loss, built rather than trained: one layer collapses one cluster (P2 Sections 1 and 3)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from lawful.errors import LawfulError
from lawful.network import Mlp
from lawful.truncation.clusters import Clusters
from lawful.truncation.cumulative import Chain, TruncationMap
from lawful.truncation.separation import CommonPoint, Hyperplane, OrderUndecided, cone_map, separate
from lawful.types import Floats


@dataclass(frozen=True, eq=False)
class ZeroLoss:
    """Yes: layer k collapses cluster `order[k]` to `apexes[k]`; `loss` is the network's own, on the data."""

    network: Mlp
    order: tuple[int, ...]
    apexes: Floats
    planes: tuple[Hyperplane, ...]
    condition: float
    loss: float


@dataclass(frozen=True, eq=False)
class NotSeparable:
    """No: not one cluster can be parted from the rest, each with a point common to both hulls."""

    reasons: tuple[CommonPoint, ...]


def zero_loss_network(
    data: Clusters, labels: ArrayLike | None = None, *, tries: int = 6, seed: int = 0
) -> ZeroLoss | NotSeparable | OrderUndecided:
    """Collapse clusters one by one, each to a point just off its own hull, then send the points to the labels.

    A cluster counts as parted when a hyperplane has it on one side and all *other current* data on the other: clusters
    not yet collapsed, and the points that earlier ones became. So data that are only sequentially separable work too.
    Where a collapsed point stands in the way of a later cluster, further tries put it elsewhere in its gap.

    >>> data = Clusters([[0.0, 0.0], [0.1, 0.0], [1.0, 0.0], [1.0, 0.1], [0.0, 1.0]], [0, 0, 1, 1, 2])
    >>> built = zero_loss_network(data)
    >>> built.network, built.loss < 1e-20
    (Mlp(2-2-2-2-3), True)
    """
    wanted = np.eye(data.count) if labels is None else np.asarray(labels, dtype=np.float64)
    if wanted.ndim != 2 or len(wanted) != data.count or not np.isfinite(wanted).all():
        raise LawfulError(
            f"{data.count} clusters need a finite label vector each, not an array of shape {wanted.shape}"
        )
    if data.count > data.dimension + 1:
        raise LawfulError(
            f"{data.count} clusters in R^{data.dimension}: one affine map can send at most {data.dimension + 1} points "
            "to free labels; use fewer clusters or more coordinates"
        )
    rng = np.random.default_rng(seed)
    answer = _attempt(data, wanted, rng, 0.0)
    for attempt in range(1, tries):
        if not isinstance(answer, OrderUndecided):
            break
        answer = _attempt(data, wanted, rng, 0.5 * attempt)
    return answer


def _attempt(
    data: Clusters, wanted: Floats, rng: np.random.Generator, aside: float
) -> ZeroLoss | NotSeparable | OrderUndecided:
    """Collapse what can be parted, in order; apexes lie up to `aside` data sizes away from above the mean."""
    points, labels_now = data.points.copy(), data.labels
    left = list(range(data.count))
    maps: list[TruncationMap] = []
    order: list[int] = []
    planes: list[Hyperplane] = []
    while left:
        commons: list[CommonPoint] = []
        plane: Hyperplane | CommonPoint | OrderUndecided | None = None
        for chosen in left:
            inside = labels_now == chosen
            plane = separate(points[inside], points[~inside]) if data.count > 1 else _alone(points)
            if isinstance(plane, Hyperplane):
                break
            commons += [plane] if isinstance(plane, CommonPoint) else []
        if not isinstance(plane, Hyperplane):
            if len(commons) == data.count:
                return NotSeparable(tuple(commons))
            named = ", ".join(data.names[number] for number in left)
            return OrderUndecided(f"clusters {named} could not be parted after the other {len(order)} were collapsed")
        map_ = _map(plane, points[inside], points[~inside], aside * rng.normal(size=data.dimension))
        points[inside] = -map_.shift
        maps.append(map_)
        planes.append(plane)
        order.append(chosen)
        left.remove(chosen)
    return _finished(data, wanted, maps, order, planes)


def _alone(points: Floats) -> Hyperplane:
    normal = np.eye(points.shape[1])[0]
    top = float((points @ normal).max())
    return Hyperplane(normal, top, top + 1.0)


def _map(plane: Hyperplane, cluster: Floats, others: Floats, aside: Floats) -> TruncationMap:
    """The apex lies in the middle of the gap, above the cluster's mean or beside it."""
    mean = cluster.mean(axis=0) + aside * float(np.ptp(np.vstack([cluster, others]), axis=0).max())
    apex = mean + ((plane.low + plane.high) / 2 - plane.normal @ mean) * plane.normal
    return cone_map(plane, apex, cluster, others if len(others) else np.zeros((0, cluster.shape[1])))


def _finished(
    data: Clusters, wanted: Floats, maps: list[TruncationMap], order: list[int], planes: list[Hyperplane]
) -> ZeroLoss | OrderUndecided:
    apexes = np.array([-map_.shift for map_ in maps])
    system = np.c_[apexes, np.ones(len(apexes))]
    if np.linalg.matrix_rank(system) < len(apexes):
        return OrderUndecided("the collapsed points are affinely dependent, so no affine map sends them to free labels")
    solved = np.asarray(np.linalg.lstsq(system, wanted[order], rcond=None)[0], dtype=np.float64)
    network = Chain(tuple(maps), solved[:-1].T, solved[-1]).to_mlp()
    gaps = network.evaluate(data.points) - wanted[data.labels]
    loss = float(data.weights @ (gaps**2).sum(axis=1) / 2)
    return ZeroLoss(network, tuple(order), apexes, tuple(planes), max(map_.condition for map_ in maps), loss)
