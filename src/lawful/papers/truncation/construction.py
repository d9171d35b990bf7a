"""A network of zero loss, built rather than trained: one layer collapses one cluster (P2 Sections 1 and 3).

Idea: a hyperplane parts the next cluster from all that are left, and the truncation map with its cone there sends that
cluster to one point and moves nothing else; after the last one, every cluster is a point and a linear layer reads the
labels off. Where no order of hyperplanes exists, a wider first layer of caps makes one. Invariant: the maps are built
in coordinates of size 1 and rewritten as weights at the end, and the loss is measured on the network as float32 runs
it, in several orders of summation, so that "zero" is about what a user sees. Cost: one linear program for each cluster
and candidate order, and one evaluation of the data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linprog

from lawful.errors import LawfulError
from lawful.network import Mlp
from lawful.papers.truncation.clusters import Clusters
from lawful.papers.truncation.cumulative import Chain, TruncationMap
from lawful.papers.truncation.separation import (
    CommonPoint,
    Hyperplane,
    OrderUndecided,
    cone_map,
    parting,
    separate,
)
from lawful.types import Floats, Indices

# Data that no order of hyperplanes parts: a wider first layer, one neuron for each cap that is cut off, parts them.

DIRECTIONS = 300  # random ones that are tried for every cap
MOST_CAPS = 64  # caps before giving up
PROGRAMMED = 2000  # points up to which linear programs are solved


def caps(points: Floats, labels: Indices, seed: int = 0) -> tuple[Floats, Floats] | None:
    """Neurons `σ(w_k·x + t_k)`, positive on a cap of one cluster and zero on all others not cut off before; or None.

    A list of half-spaces decides the cluster of every point: the first that contains it says which. With factors that
    fall fast enough a sum over the list does the same, so the neurons' values are parted by hyperplanes.

    >>> found = caps(np.array([[0.0], [1.0], [2.0]]), np.array([0, 1, 0]))
    >>> len(found[1])
    2
    """
    rng = np.random.default_rng(seed)
    weights, biases = list[Floats](), list[float]()
    left = np.ones(len(points), dtype=bool)
    while len(np.unique(labels[left])) > 1:
        ways = rng.normal(size=(DIRECTIONS, points.shape[1]))
        proposals = [_cut(points[left], labels[left], way) for way in (*_steep(points[left], labels[left]), *ways)]
        weight, bias, inside = max(proposals, key=lambda each: int(each[2].sum()))
        if len(weights) == MOST_CAPS or not inside.any():
            return None
        weights.append(weight)
        biases.append(bias)
        left[np.flatnonzero(left)[inside]] = False
    return np.array(weights), np.array(biases)


def _cut(points: Floats, labels: Indices, way: Floats) -> tuple[Floats, float, NDArray[np.bool_]]:
    """The cap at the low end along `way`: as far as it is of one cluster, or up to a wider gap before that."""
    heights = points @ way
    order = np.argsort(heights)
    other = np.flatnonzero(labels[order] != labels[order[0]])[0]  # there is one
    steps = np.diff(heights[order[: other + 1]])
    wide = steps.max(initial=0.0)
    enough = np.flatnonzero(steps >= wide / 4)
    inside = np.zeros(len(points), dtype=bool)
    if not wide > 0:
        return way, 0.0, inside
    count = int(enough[-1]) + 1
    level = (heights[order[count - 1]] + heights[order[count]]) / 2
    size = float(level - heights[order[0]])
    # Between neighbouring floats lies nothing, not even their mean, and between subnormal ones no finite slope.
    if not size > np.abs(way).max() * np.finfo(float).tiny:
        return way, 0.0, inside
    inside[order[:count]] = True
    return -way / size, float(level / size), inside


def _steep(points: Floats, labels: Indices) -> list[Floats]:
    """For each cluster the way along which most of it lies below all others, by a linear program."""
    directions = []
    for label in np.unique(labels) if len(points) <= PROGRAMMED else ():
        members, rest = points[labels == label], points[labels != label]
        one, two = np.ones((len(members), 1)), np.ones((len(rest), 1))
        rows = np.vstack(
            [np.c_[members, one, -np.eye(len(members))], np.c_[-rest, -two, np.zeros((len(rest), len(members)))]]
        )
        costs = np.r_[np.zeros(points.shape[1] + 1), np.ones(len(members))]
        bounds = [(None, None)] * (points.shape[1] + 1) + [(0.0, None)] * len(members)
        solved = linprog(costs, A_ub=rows, b_ub=-np.ones(len(rows)), bounds=bounds)
        if solved.x is not None and np.abs(solved.x[: points.shape[1]]).max() > 0:
            directions.append(np.asarray(solved.x[: points.shape[1]]))
    return directions


# Coordinates of size 1, in which truncation maps are built, and how a network takes the change into its layers.


@dataclass(frozen=True, eq=False)
class Levelled:
    """`u = (x − centre) 2^−exponents`, of size 1: no unit of a column changes what is built there.

    With `floor` the network gets a layer of its own for it, `h = σ((x − floor) 2^−exponents)`. The floor is below all
    data and a number of single precision, so products are exact there, and differences are, too, in columns that are
    far from zero: a column of timestamps loses nothing that it did not lose when it was stored.
    """

    centre: Floats
    exponents: Indices
    floor: Floats | None = None

    @classmethod
    def of(cls, points: Floats, *, ahead: bool = False) -> Levelled:
        """The level of some points; `ahead` asks for the layer of its own."""
        low, high = points.min(axis=0), points.max(axis=0)
        centre = low / 2 + high / 2
        sizes = np.where(high > low, high - centre, np.maximum(np.abs(centre), 1.0))  # constants carry nothing
        return cls(centre, np.frexp(sizes)[1], _below(low) if ahead else None)

    def down(self, points: Floats) -> Floats:
        """Points in these coordinates."""
        return np.asarray(np.ldexp(points - self.centre, -self.exponents))

    def up(self, points: Floats) -> Floats:
        """Back from these coordinates."""
        return np.asarray(np.ldexp(points, self.exponents) + self.centre)

    def taken_in(self, network: Mlp) -> Mlp:
        """The network of `u` as one of `x`: the change of coordinates is part of its first layer, or one before it."""
        first, bias = network.weights[0], network.biases[0]
        assert bias is not None  # noqa: S101 (for the type checker: chains have biases)
        if self.floor is None:
            first = np.ldexp(first, -self.exponents)
            return Mlp([first, *network.weights[1:]], [bias - first @ self.centre, *network.biases[1:]], network.slopes)
        scale = np.ldexp(np.ones(len(self.floor)), -self.exponents)
        lifted = bias - first @ np.ldexp(self.centre - self.floor, -self.exponents)
        biases = [-np.ldexp(self.floor, -self.exponents), lifted, *network.biases[1:]]
        return Mlp([np.diag(scale), *network.weights], biases, [0.0, *network.slopes])


def _below(low: Floats) -> Floats:
    """The largest numbers of single precision that are not above these."""
    nearest = low.astype(np.float32)
    return np.where(nearest > low, np.nextafter(nearest, np.float32(-np.inf)), nearest).astype(np.float64)


# The last layer of a constructed network: labels for the collapsed clusters, whatever rounding does before it.

TRIALS = 32  # networks with rounded weights from which the rounding is learned
UNIT = 2.0**-24  # of single precision
FLOOR = 1e-3  # of the largest spread: what counts beside it


def with_output(maps: Sequence[TruncationMap], examples: Floats, labels: Floats) -> Mlp:
    """The maps as hidden layers, and an affine map from what becomes of a point of each cluster to the labels.

    Rounding moves these points in the directions in which some map is badly conditioned. Of all affine maps that send
    them to the labels we take the one with the least `Tr V C Vᵀ`, where C is the covariance of that motion when every
    weight is off by a unit of single precision: it hardly sees it.
    """
    width = examples.shape[1]
    chain = Chain(tuple(maps), np.eye(width), np.zeros(width)).to_mlp()
    hidden = _hidden(chain, examples, None)
    rng = np.random.default_rng(0)
    moved = np.concatenate([_hidden(chain, examples, rng) - hidden for _ in range(TRIALS)])
    values, basis = np.linalg.eigh(moved.T @ moved)
    sizes = np.sqrt(np.maximum(values, max(FLOOR**2 * values[-1], np.finfo(float).tiny)))
    centre, mean = hidden.mean(axis=0), labels.mean(axis=0)
    solved = np.linalg.pinv((hidden - centre) @ (basis / sizes), rcond=1e-14) @ (labels - mean)
    last = ((basis / sizes) @ solved).T
    return Mlp([*chain.weights[:-1], last], [*chain.biases[:-1], mean - last @ centre], chain.slopes)


def with_steps(maps: tuple[TruncationMap, ...], apexes: Floats, labels: Floats) -> Mlp:
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


def _hidden(network: Mlp, points: Floats, rng: np.random.Generator | None) -> Floats:
    """What the last hidden layer says about the points; with `rng`, in single precision and with weights a unit off."""
    kind = np.float64 if rng is None else np.float32
    values = points.astype(kind)
    for weight, bias in zip(network.weights[:-1], network.biases[:-1], strict=True):
        assert bias is not None  # noqa: S101 (for the type checker: chains have biases)
        off = weight if rng is None else weight * (1 + UNIT * rng.choice([-1.0, 1.0], size=weight.shape))
        values = np.maximum(values @ off.T.astype(kind) + bias.astype(kind), kind(0))
    return values.astype(np.float64)


def _closest(heights: Floats) -> float:
    return float(np.diff(np.sort(heights)).min())


# A network in single precision, whoever runs it: libraries add up in different orders, and round differently.

Singles = NDArray[np.float32]
Layer = Callable[[Singles, Singles, Singles], Singles]


def in_single_precision(network: Mlp, points: Floats) -> Iterator[Floats]:
    """The outputs, once for each order of summation; not finite if the data do not fit in single precision.

    >>> large = Mlp([np.array([[1.0, -1.0]])], [np.array([0.5])], [])
    >>> [float(outputs[0, 0]) for outputs in in_single_precision(large, np.array([[2.0**25, 2.0**25]]))]
    [0.5, 0.0, 0.5, 0.5]
    """
    for layer in (_product, _bias_first, _bias_last, _multiply_add):
        with np.errstate(over="ignore", invalid="ignore"):
            values = points.astype(np.float32)
            for number, (weight, bias) in enumerate(zip(network.weights, network.biases, strict=True), 1):
                assert bias is not None  # noqa: S101 (for the type checker: chains have biases)
                values = layer(values, weight.astype(np.float32), bias.astype(np.float32))
                if number < len(network.weights):
                    values = np.maximum(values, np.float32(0))
        yield values.astype(np.float64)


def _product(values: Singles, weight: Singles, bias: Singles) -> Singles:
    return np.asarray(values @ weight.T + bias)


def _bias_first(values: Singles, weight: Singles, bias: Singles) -> Singles:
    total = np.tile(bias, (len(values), 1))
    for column in range(values.shape[1]):
        total += values[:, column, None] * weight[:, column]
    return total


def _bias_last(values: Singles, weight: Singles, bias: Singles) -> Singles:
    total = np.zeros((len(values), len(bias)), dtype=np.float32)
    for column in reversed(range(values.shape[1])):
        total += values[:, column, None] * weight[:, column]
    return total + bias


def _multiply_add(values: Singles, weight: Singles, bias: Singles) -> Singles:
    """Sums of exact products, rounded at the end, as fused multiplications come close to."""
    return np.asarray(values.astype(np.float64) @ weight.T.astype(np.float64) + bias).astype(np.float32)


ASIDES = (0.0, 0.5, -0.5, 2.0, -2.0, 8.0, -8.0)  # how far beside its cluster a collapsed point goes, in data sizes
WORST = 1e12  # condition number of a map that is still used
SMALL = 1e-12  # a loss above this share of the labels is not zero
SINGLE = 1e-6  # a loss above this is not zero in single precision: another network is looked for


@dataclass(frozen=True, eq=False)
class ZeroLoss:
    """Yes: layer k collapses cluster `order[k]` to `apexes[k]`; the losses are the network's own, on the data.

    `condition` is the worst of the maps, in coordinates of size 1. `loss_single` is the loss in single precision, data
    included, in the worst of several orders of summation. `widened`: a last hidden layer was added because one affine
    map cannot send so many points to free labels. `bent`: the neurons of a first layer that comes before all these and
    bends the data so that they can be parted, or 0; then apexes are points of its space. `blurred`: rows of two
    clusters that are one point in single precision, if that is why the loss is not zero there.
    """

    network: Mlp
    order: tuple[int, ...]
    apexes: Floats
    condition: float
    loss: float
    loss_single: float
    widened: bool
    blurred: tuple[int, int] | None = None
    bent: int = 0


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
    if data.dimension == 1 and data.count > 2:
        return _on_a_line(data, wanted, tries, seed)
    return _steady(data, wanted, tries, seed)


def _steady(data: Clusters, wanted: Floats, tries: int, seed: int) -> ZeroLoss | NotSeparable | OrderUndecided:
    """Build from the data; if single precision spoils it, from the data and what that precision makes of them."""
    built = _Search(data, Levelled.of(data.points), wanted, tries, seed).run()
    if not isinstance(built, ZeroLoss) or built.loss_single <= SINGLE:
        return built
    blurred = _coincident_rows(data)
    if blurred is not None or not np.isfinite(built.loss_single):
        return replace(built, blurred=blurred)
    both = Clusters(np.vstack([data.points, data.points.astype(np.float32)]), np.tile(data.labels, 2))
    again = _Search(both, Levelled.of(both.points, ahead=True), wanted, tries, seed).run()
    return again if isinstance(again, ZeroLoss) and again.loss_single < built.loss_single else built


def _coincident_rows(data: Clusters) -> tuple[int, int] | None:
    """Two rows of different clusters that are one point in single precision, if there are."""
    seen: dict[tuple[float, ...], int] = {}
    with np.errstate(over="ignore"):
        rounded = data.points.astype(np.float32)
    for row, point in enumerate(rounded.tolist()):
        before = seen.setdefault(tuple(point), row)
        if data.labels[before] != data.labels[row]:
            return before, row
    return None


def _on_a_line(data: Clusters, wanted: Floats, tries: int, seed: int) -> ZeroLoss | NotSeparable | OrderUndecided:
    """Of three intervals on a line the middle one is never parted: a first layer bends the line in every gap.

    `x ↦ (σ(x − t_0), …, σ(x − t_{K−1}))` makes the intervals edges of a convex curve, and a hyperplane parts each edge
    from the others.
    """
    blocked = _Search(data, Levelled.of(data.points), wanted, tries, seed).blocked()
    if blocked is not None:
        return blocked
    level = Levelled.of(data.points, ahead=True)
    along = level.down(data.points)[:, 0]
    ends = sorted((along[data.labels == n].min(), along[data.labels == n].max()) for n in range(data.count))
    knots = np.array([ends[0][0]] + [(one[1] + two[0]) / 2 for one, two in pairwise(ends)])
    return _behind(np.ones((len(knots), 1)), -knots, level, data, wanted, tries, seed)


def network_with_caps(data: Clusters, *, tries: int = 60, seed: int = 0) -> ZeroLoss | None:
    """For clusters that cannot be parted even one by one: a first layer of one neuron a cap bends them apart.

    >>> moons = Clusters([[0.0, 0.0], [2.0, 0.0], [1.0, 1.0], [1.0, 0.0]], [0, 0, 0, 1])
    >>> network_with_caps(moons).network
    Mlp(2-2-2-2-2)
    """
    for ahead in (False, True):
        level = Levelled.of(data.points, ahead=ahead)
        layer = caps(level.down(data.points), data.labels, seed)
        built = None if layer is None else _behind(*layer, level, data, np.eye(data.count), tries, seed)
        if layer is None or (isinstance(built, ZeroLoss) and built.loss_single <= SINGLE):
            break
    return built if isinstance(built, ZeroLoss) else None


def _behind(
    weight: Floats, bias: Floats, level: Levelled, data: Clusters, wanted: Floats, tries: int, seed: int
) -> ZeroLoss | NotSeparable | OrderUndecided:
    """A network of zero loss behind a given first layer (of levelled coordinates)."""
    bent = Clusters(np.maximum(level.down(data.points) @ weight.T + bias, 0.0), data.labels)
    built = _steady(bent, wanted, tries, seed)
    if not isinstance(built, ZeroLoss):
        return built
    inner = built.network
    network = level.taken_in(Mlp([weight, *inner.weights], [bias, *inner.biases], [0.0, *inner.slopes]))
    losses = _losses(network, data, wanted)
    if not losses[0] <= SMALL * float((wanted[data.labels] ** 2).sum() + 1):
        return OrderUndecided(f"the gaps behind the first layer are too thin: loss {losses[0]:.1e}")
    return replace(
        built, network=network, loss=losses[0], loss_single=losses[1], bent=len(bias),
        blurred=_coincident_rows(data) if losses[1] > SINGLE else None,
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class _Layer:
    """One collapse: the cluster, the hyperplane that parts it, and the map."""

    cluster: int
    plane: Hyperplane
    map: TruncationMap


class _Search:
    """Depth first over which cluster to collapse next and where to put the point that it becomes."""

    def __init__(self, data: Clusters, level: Levelled, wanted: Floats, tries: int, seed: int) -> None:
        self.data, self.level, self.wanted, self.tries, self.left = data, level, wanted, tries, tries
        direction = np.random.default_rng(seed).normal(size=data.dimension)
        self.direction = direction / np.linalg.norm(direction)
        self.reason = f"no order was found within {tries} maps"

    def run(self) -> ZeroLoss | NotSeparable | OrderUndecided:
        """The first order that works; *no* if some clusters block each other; else undecided."""
        blocked = self.blocked()
        if blocked is not None:
            return blocked
        best: ZeroLoss | None = None
        for aside in ASIDES:
            self.left = self.tries if best is None else self.left  # what is better in single precision costs the rest
            built = self._descend(self.level.down(self.data.points), (), aside)
            if built is not None and (best is None or built.loss_single < best.loss_single):
                best = built
            if best is not None and best.loss_single <= SINGLE:
                break
        return best or OrderUndecided(self.reason)

    def blocked(self) -> NotSeparable | None:
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
            if not layers:
                self.reason = "the gaps are thinner than floats can tell"
        for number in sorted(parted, key=lambda cluster: parted[cluster].low - parted[cluster].high):
            if self.left <= 0:
                return None
            self.left -= 1
            layer = self._collapse(points, number, parted[number], aside)
            if layer.map.condition > WORST:
                self.reason = "the gaps are too thin for maps that floating point can invert"
                continue
            moved = np.where((self.data.labels == number)[:, None], -layer.map.shift, points)
            built = self._descend(moved, (*layers, layer), aside)
            if built is not None:
                return built
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
        built = with_steps(maps, apexes, labels) if widened else with_output(maps, examples, labels)
        network = self.level.taken_in(built)
        targets = self.wanted[self.data.labels]
        double, single = _losses(network, self.data, self.wanted)
        if not double <= SMALL * float((targets**2).sum() + 1):
            self.reason = f"the maps that were found are too badly conditioned: loss {double:.1e}"
            return None
        condition = max(map_.condition for map_ in maps)
        return ZeroLoss(network, order, self.level.up(apexes), condition, double, single, widened)


def _alone(points: Floats) -> Hyperplane:
    normal = np.eye(points.shape[1])[0]
    top = float((points @ normal).max())
    return Hyperplane(tuple(Fraction(int(value)) for value in normal), normal, top, top + 1.0)


def _losses(network: Mlp, data: Clusters, wanted: Floats) -> tuple[float, float]:
    """The loss in double precision, and the worst in single precision over the orders in which sums may be taken."""
    outputs = network.evaluate(data.points), *in_single_precision(network, data.points)
    double, *single = (
        float(data.weights @ ((output - wanted[data.labels]) ** 2).sum(axis=1) / 2) for output in outputs
    )
    return double, float(np.max(single))  # not a number if one is not
