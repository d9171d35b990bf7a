"""A network of zero loss, built rather than trained: one layer collapses one cluster (P2 Sections 1 and 3)."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike

from lawful.errors import LawfulError
from lawful.network import Mlp
from lawful.truncation.clusters import Clusters
from lawful.truncation.cumulative import Chain, TruncationMap
from lawful.truncation.output_layer import with_output
from lawful.truncation.separation import CommonPoint, Hyperplane, OrderUndecided, cone_map, parting, separate
from lawful.types import Floats, Indices

ASIDES = (0.0, 0.5, -0.5, 2.0, -2.0, 8.0, -8.0)  # how far beside its cluster a collapsed point goes, in data sizes
WORST = 1e12  # condition number of a map that is still used
SMALL = 1e-12  # a loss above this share of the labels is not zero


@dataclass(frozen=True, eq=False)
class ZeroLoss:
    """Yes: layer k collapses cluster `order[k]` to `apexes[k]`; the losses are the network's own, on the data.

    `condition` is the worst of the maps, in coordinates of size 1. `loss_single` is the loss in single precision, data
    included. `widened`: a last hidden layer was added because one affine map cannot send so many points to free labels.
    """

    network: Mlp
    order: tuple[int, ...]
    apexes: Floats
    condition: float
    loss: float
    loss_single: float
    widened: bool


@dataclass(frozen=True, eq=False)
class NotSeparable:
    """No: each of these clusters shares a point with the hull of the others of them, so none can be collapsed first.

    Collapsing any other cluster does not move their points: whatever the order, the first of them is stuck.
    """

    clusters: tuple[int, ...]
    reasons: tuple[CommonPoint, ...]


def zero_loss_network(
    data: Clusters, labels: ArrayLike | None = None, *, tries: int = 60, seed: int = 0
) -> ZeroLoss | NotSeparable | OrderUndecided:
    """Collapse clusters one by one, each to a point just off its own hull, then send the points to the labels.

    A cluster counts as parted when a hyperplane has it on one side and all *other current* data on the other: clusters
    not yet collapsed, and the points that earlier ones became. So data that are only sequentially separable work too.
    The search is depth first over orders, widest gap first (at most `tries` maps). If collapsed points stand in the way
    of the rest, it starts again and puts them further to one side, all along one direction. One affine map sends up to
    Q + 1 points to free labels; for more clusters a last hidden layer of one neuron a step comes before it.

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
    level = _Level.of(data.points)
    return _Search(data, level, wanted, tries, seed).run()


@dataclass(frozen=True, eq=False)
class _Level:
    """Coordinates `u = (x − centre) 2^−exponents` of size 1, in which maps are built: no scale changes them."""

    centre: Floats
    exponents: Indices

    @classmethod
    def of(cls, points: Floats) -> _Level:
        low, high = points.min(axis=0), points.max(axis=0)
        centre = low / 2 + high / 2
        sizes = np.where(high > low, high - centre, np.maximum(np.abs(centre), 1.0))  # constants carry nothing
        return cls(centre, np.frexp(sizes)[1])

    def down(self, points: Floats) -> Floats:
        return np.asarray(np.ldexp(points - self.centre, -self.exponents))

    def up(self, points: Floats) -> Floats:
        return np.asarray(np.ldexp(points, self.exponents) + self.centre)

    def taken_in(self, network: Mlp) -> Mlp:
        """The network with the change of coordinates as part of its first layer."""
        first, bias = np.ldexp(network.weights[0], -self.exponents), network.biases[0]
        shifted = -first @ self.centre if bias is None else bias - first @ self.centre
        return Mlp([first, *network.weights[1:]], [shifted, *network.biases[1:]], network.slopes)


@dataclass(frozen=True, eq=False)
class _Layer:
    """One collapse: the cluster, the hyperplane that parts it, and the map."""

    cluster: int
    plane: Hyperplane
    map: TruncationMap


class _Search:
    """Depth first over which cluster to collapse next and where to put the point that it becomes."""

    def __init__(self, data: Clusters, level: _Level, wanted: Floats, tries: int, seed: int) -> None:
        self.data, self.level, self.wanted, self.tries, self.left = data, level, wanted, tries, tries
        direction = np.random.default_rng(seed).normal(size=data.dimension)
        self.direction = direction / np.linalg.norm(direction)
        self.reason = f"no order was found within {tries} maps"

    def run(self) -> ZeroLoss | NotSeparable | OrderUndecided:
        """The first order that works; *no* if some clusters block each other; else undecided."""
        blocked = self._blocked()
        if blocked is not None:
            return blocked
        for aside in ASIDES:
            self.left = self.tries
            found = self._descend(self.level.down(self.data.points), (), aside)
            if found is not None:
                return found
        return OrderUndecided(self.reason)

    def _blocked(self) -> NotSeparable | None:
        """Leave out, one by one, clusters that can be parted from the others still there: what is left is blocked."""
        left = list(range(self.data.count))
        while len(left) > 1:
            reasons = []
            for number in left:
                others = np.isin(self.data.labels, left) & (self.data.labels != number)
                answer = separate(self.data.points[self.data.labels == number], self.data.points[others])
                if not isinstance(answer, CommonPoint):
                    left.remove(number)
                    break
                reasons.append(answer)
            else:
                return NotSeparable(tuple(left), tuple(reasons))
        return None

    def _descend(self, points: Floats, layers: tuple[_Layer, ...], aside: float) -> ZeroLoss | None:
        if len(layers) == self.data.count:
            return self._finished(layers)
        done = {layer.cluster for layer in layers}
        left = [number for number in range(self.data.count) if number not in done]
        planes = {number: self._parted(points, number) for number in left}
        parted = {number: plane for number, plane in planes.items() if plane is not None}
        if not parted:
            named = ", ".join(self.data.names[number] for number in left)
            self.reason = f"clusters {named} could not be parted after the other {len(layers)} were collapsed"
        for number in sorted(parted, key=lambda each: parted[each].low - parted[each].high):
            if self.left <= 0:
                return None
            self.left -= 1
            layer = self._collapse(points, number, parted[number], aside)
            if layer.map.condition > WORST:
                self.reason = "the gaps are too thin for maps that floating point can invert"
                continue
            moved = np.where((self.data.labels == number)[:, None], -layer.map.shift, points)
            found = self._descend(moved, (*layers, layer), aside)
            if found is not None:
                return found
        return None

    def _parted(self, points: Floats, number: int) -> Hyperplane | None:
        inside = self.data.labels == number
        return parting(points[inside], points[~inside], exactly=False) if self.data.count > 1 else _alone(points)

    def _collapse(self, points: Floats, number: int, plane: Hyperplane, aside: float) -> _Layer:
        """The apex lies in the middle of the gap, above the cluster's mean or `aside` data sizes beside it."""
        cluster, others = points[self.data.labels == number], points[self.data.labels != number]
        size = float(np.ptp(points, axis=0).max())
        mean = cluster.mean(axis=0) + aside * size * self.direction
        apex = mean + ((plane.low + plane.high) / 2 - plane.normal @ mean) * plane.normal
        return _Layer(number, plane, cone_map(plane, apex, cluster, others))

    def _finished(self, layers: tuple[_Layer, ...]) -> ZeroLoss | None:
        apexes = np.array([-layer.map.shift for layer in layers])
        order = tuple(layer.cluster for layer in layers)
        maps = tuple(layer.map for layer in layers)
        labels = self.wanted[list(order)]
        widened = bool(np.linalg.matrix_rank(np.c_[apexes, np.ones(len(apexes))]) < len(apexes))
        first = [int(np.argmax(self.data.labels == cluster)) for cluster in order]
        examples = self.level.down(self.data.points[first])
        built = _with_steps(maps, apexes, labels) if widened else with_output(maps, examples, labels)
        network = self.level.taken_in(built)
        targets = self.wanted[self.data.labels]
        outputs = network.evaluate(self.data.points), _single(network, self.data.points)
        double, single = (_loss(each, targets, self.data.weights) for each in outputs)
        if not double <= SMALL * float((targets**2).sum() + 1):
            self.reason = f"the maps that were found are too badly conditioned: loss {double:.1e}"
            return None
        condition = max(map_.condition for map_ in maps)
        return ZeroLoss(network, order, self.level.up(apexes), condition, double, single, widened)


def _alone(points: Floats) -> Hyperplane:
    normal = np.eye(points.shape[1])[0]
    top = float((points @ normal).max())
    return Hyperplane(tuple(Fraction(int(value)) for value in normal), normal, top, top + 1.0)


def _with_steps(maps: tuple[TruncationMap, ...], apexes: Floats, labels: Floats) -> Mlp:
    """A last layer `σ(u·x − t_k)` over the points' order along u makes them affinely independent, however many."""
    along = max((np.eye(apexes.shape[1])[axis] for axis in range(apexes.shape[1])), key=lambda u: _closest(apexes @ u))
    rng = np.random.default_rng(0)
    tilted = [direction / np.linalg.norm(direction) for direction in rng.normal(size=(64, apexes.shape[1]))]
    along = max([along, *tilted], key=lambda u: _closest(apexes @ u))
    heights = apexes @ along
    knots = np.sort(heights)[:-1]
    weight, bias = np.tile(along, (len(knots), 1)), -knots
    steps = np.maximum(apexes @ weight.T + bias, 0.0)
    solved = np.linalg.solve(np.c_[steps, np.ones(len(steps))], labels)
    body = Chain(maps, weight, bias).to_mlp()
    return Mlp([*body.weights, solved[:-1].T], [*body.biases, solved[-1]], [*body.slopes, 0.0])


def _closest(heights: Floats) -> float:
    return float(np.diff(np.sort(heights)).min())


@np.errstate(over="ignore", invalid="ignore")
def _single(network: Mlp, points: Floats) -> Floats:
    """The network's outputs in single precision; not finite if the data do not fit in it."""
    values = points.astype(np.float32)
    for number, (weight, bias) in enumerate(zip(network.weights, network.biases, strict=True), 1):
        assert bias is not None  # noqa: S101 (for the type checker: chains have biases)
        values = values @ weight.astype(np.float32).T + bias.astype(np.float32)
        if number < len(network.weights):
            values = np.maximum(values, np.float32(0))
    return values.astype(np.float64)


def _loss(outputs: Floats, targets: Floats, weights: Floats) -> float:
    return float(weights @ ((outputs - targets) ** 2).sum(axis=1) / 2)
