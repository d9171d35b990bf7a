"""Which neurons of a layered network matter least on a box, and what the others can say in their place.

A removed neuron is replaced by the affine combination of the neurons left in its layer that comes nearest to it on
samples of the box. How far that moves any output on the *whole* box is then bounded by linear relaxations of the two
networks and their difference: samples only propose, bounds decide. Instead of one box there may be a small one around
each sample of the data, where relaxations lose little: a few of them propose, all of them decide.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from lawful.bounds.box_bounds import bound
from lawful.bounds.layers import layers_of
from lawful.bounds.pair import align
from lawful.errors import Unsupported
from lawful.network import Mlp
from lawful.network.intervals import between
from lawful.pruning.neurons.bounds import boxes_near
from lawful.types import Floats

SAMPLES = 2000
RIDGES = (0.01, 1.0, np.inf)  # from least squares to a constant: large combinations are bounded badly
NEAR_RIDGES = (1e-6, 1e-3, 0.01)  # small boxes forgive large combinations
EXCHANGES = 12
FEW, AT_ONCE = 48, 32  # boxes that propose, boxes that are bounded together
ALL = 10**9
Box = tuple[Floats, Floats]
Neuron = tuple[int, int]  # hidden layer, place in it


@dataclass(frozen=True, eq=False)
class Replacement:
    """A smaller network, the neurons that left, and the largest change of each output on the box."""

    network: Mlp
    removed: tuple[Neuron, ...]
    bounds: Floats
    ridge: float

    @property
    def bound(self) -> float:
        """The largest change of any output."""
        return float(self.bounds.max(initial=0.0))


class Clock:
    """A time limit, and whom to tell how far a search is."""

    def __init__(self, seconds: float = np.inf, tick: Callable[[str], None] = lambda words: None) -> None:
        self.until, self.tick = time.monotonic() + seconds, tick

    @property
    def over(self) -> bool:
        """Whether no further search should begin."""
        return time.monotonic() > self.until


class Search:
    """Smaller and smaller networks near one, on a box or `around` the data."""

    def __init__(
        self,
        mlp: Mlp,
        box: Box,
        *,
        data: Floats | None = None,
        around: float | None = None,
        seed: int = 0,
        clock: Clock | None = None,
    ) -> None:
        self.mlp, self.clock = mlp, clock or Clock()
        if around is None or data is None:
            batch = samples(box, seed)
            self.batch = batch if data is None else np.concatenate([batch[: SAMPLES // 2], data[:SAMPLES]])
            self.low, self.high = box[0][None], box[1][None]
        else:
            self.low, self.high = boxes_around(data, around, box)
            self.batch = np.concatenate([data[:SAMPLES], near_samples(data, around, box, seed)])
        with np.errstate(over="ignore", invalid="ignore"):
            self.values = mlp.activations(self.batch)[1:-1]
            if not all(np.isfinite(np.square(values).sum()) for values in self.values):
                raise Unsupported("on this box neurons grow beyond what doubles hold: give a smaller one")
        self.orders = {ridge: self._order(ridge) for ridge in (RIDGES if len(self.low) == 1 else NEAR_RIDGES)}
        self._layers = layers_of(mlp)

    @property
    def most(self) -> int:
        """How many neurons can leave: one stays in every layer."""
        return sum(values.shape[1] - 1 for values in self.values)

    def without(self, count: int) -> Replacement:
        """The best of the ways to remove so many neurons."""
        best = min(self._ways(count), key=lambda found: found.bound)
        return best if len(self.low) <= FEW else self._bound(best.removed, best.ridge, ALL)

    def within(self, allowed: Floats) -> Replacement | None:
        """As many neurons as possible, such that no output moves by more than is allowed on the box.

        The largest prefix of each order by bisection; then single neurons from what follows, as long as it is allowed;
        at last one that left returns, for two others. When the time is over, what was found so far.
        """
        best: Replacement | None = None
        for ridge, order in self.orders.items():
            if self.clock.over:
                break
            low, high = 0, 1
            largest: Replacement | None = None
            while high <= len(order) and not self.clock.over:
                tried = self._bound(order[:high], ridge)
                if not (tried.bounds <= allowed).all():
                    break
                largest, low, high = tried, high, 2 * high
            high = min(high, len(order) + 1)
            while high - low > 1 and not self.clock.over:
                middle = (low + high) // 2
                tried = self._bound(order[:middle], ridge)
                if (tried.bounds <= allowed).all():
                    largest, low = tried, middle
                else:
                    high = middle
            largest = self._extend(largest, order, ridge, allowed)
            if largest is not None and (best is None or len(largest.removed) > len(best.removed)):
                best = largest
        if best is not None:
            best = self._exchange(best, self.orders[best.ridge], allowed)
        return self._everywhere(best, allowed)

    def _everywhere(self, replacement: Replacement | None, allowed: Floats) -> Replacement | None:
        """What holds on all boxes: fewer neurons leave, until it does."""
        while replacement is not None and len(self.low) > FEW:
            replacement = self._bound(replacement.removed, replacement.ridge, ALL)
            if (replacement.bounds <= allowed).all():
                break
            left = replacement.removed[: int(0.9 * len(replacement.removed))]
            replacement = (
                Replacement(replacement.network, left, replacement.bounds, replacement.ridge) if left else None
            )
        return replacement

    def _extend(
        self, replacement: Replacement | None, order: Sequence[Neuron], ridge: float, allowed: Floats
    ) -> Replacement | None:
        gone = [] if replacement is None else list(replacement.removed)
        for neuron in [other for other in order if other not in set(gone)][:EXCHANGES]:
            if self.clock.over:
                break
            tried = self._try_removal([*gone, neuron], ridge, allowed)
            if tried is not None:
                replacement, gone = tried, [*gone, neuron]
        return replacement

    def _exchange(self, replacement: Replacement, order: Sequence[Neuron], allowed: Floats) -> Replacement:
        """One that left, the dearest first, returns where two others can leave in its place."""
        left = EXCHANGES
        for neuron in sorted(replacement.removed, key=order.index, reverse=True)[:EXCHANGES]:
            gone = [other for other in replacement.removed if other != neuron]
            others = [other for other in order if other not in set(replacement.removed)][:4]
            for pair in combinations(others, 2):
                if self.clock.over or not left:
                    return replacement
                left -= 1
                tried = self._try_removal([*gone, *pair], replacement.ridge, allowed)
                if tried is not None:
                    replacement = tried
                    break
        return replacement

    def _try_removal(self, gone: Sequence[Neuron], ridge: float, allowed: Floats) -> Replacement | None:
        """The network without these neurons, if it is near enough and every layer keeps one."""
        counts = Counter(layer for layer, _ in gone)
        if any(count >= self.values[layer].shape[1] for layer, count in counts.items()):
            return None
        tried = self._bound(gone, ridge)
        return tried if (tried.bounds <= allowed).all() else None

    def _ways(self, count: int) -> Iterator[Replacement]:
        for ridge, order in self.orders.items():
            yield self._bound(order[:count], ridge)

    def _bound(self, gone: Sequence[Neuron], ridge: float, boxes: int = FEW) -> Replacement:
        small = self._replace(gone, ridge)
        pair = align(self._layers, layers_of(small))
        sizes = np.zeros(len(small.weights[-1]))
        many = min(boxes, len(self.low))
        for start in range(0, many, AT_ONCE):
            self.clock.tick(f"{len(gone)} neurons, box {start + 1} of {many}")
            chosen = slice(start, min(start + AT_ONCE, boxes))
            difference = bound(pair, self.low[chosen], self.high[chosen])
            largest = np.maximum(np.abs(difference.low), np.abs(difference.high))
            sizes = np.maximum(sizes, np.where(np.isnan(largest), np.inf, largest).max(axis=0))
        return Replacement(small, tuple(gone), sizes, ridge)

    def _replace(self, gone: Sequence[Neuron], ridge: float) -> Mlp:
        weights = [weight.copy() for weight in self.mlp.weights]
        biases = [np.zeros(len(w)) if b is None else b.copy() for w, b in zip(weights, self.mlp.biases, strict=True)]
        for layer, values in enumerate(self.values):
            leaving = np.array(sorted(place for at, place in gone if at == layer), dtype=np.intp)
            if not len(leaving):
                continue
            left = np.setdiff1d(np.arange(values.shape[1]), leaving)
            shares, offsets = _fit(values[:, left], values[:, leaving], ridge)
            spoken = weights[layer + 1][:, leaving]
            biases[layer + 1] += spoken @ offsets
            weights[layer + 1] = weights[layer + 1][:, left] + spoken @ shares.T
            weights[layer], biases[layer] = weights[layer][left], biases[layer][left]
        return Mlp(weights, biases, self.mlp.slopes)

    def _order(self, ridge: float) -> list[Neuron]:
        """Neurons by what is lost without them: what the others cannot say, times what the outputs make of it.

        The least goes first and the rest are weighed anew: one update of an inverse for each.
        """
        felt = _felt(self.mlp, self.batch[:256])
        inverses, alive = [], []
        for values in self.values:
            spread = values - values.mean(axis=0)
            covariance = spread.T @ spread / len(values)
            mean = max(float(np.trace(covariance)) / len(covariance), 1e-300)
            if not np.isfinite(ridge):
                covariance = np.diag(np.diag(covariance))
            inverses.append(np.linalg.inv(covariance + mean * (1e-9 + min(ridge, 1.0)) * np.eye(len(covariance))))
            alive.append(np.ones(len(covariance), dtype=bool))
        order: list[Neuron] = []
        for _ in range(self.most):
            scores = [
                np.where(on & (on.sum() > 1), weight / np.sqrt(np.maximum(np.diag(inverse), 1e-300)), np.inf)
                for weight, inverse, on in zip(felt, inverses, alive, strict=True)
            ]
            layer = int(np.argmin([score.min() for score in scores]))
            place = int(np.argmin(scores[layer]))
            order.append((layer, place))
            alive[layer][place] = False
            column = inverses[layer][:, place].copy()
            inverses[layer] -= np.outer(column, column) / column[place]
        return order


def samples(box: Box, seed: int) -> Floats:
    """Points of a box, their coordinates at either end as often as between."""
    rng = np.random.default_rng(seed)
    where, inside = rng.random((SAMPLES, len(box[0]))), between(*box, rng.random((SAMPLES, len(box[0]))))
    return np.where(where < 0.25, box[0], np.where(where > 0.75, box[1], inside))


def boxes_around(data: Floats, radius: float, box: Box) -> Box:
    """A box around each sample, in an order without pattern, within the box of all."""
    order = np.random.default_rng(0).permutation(len(data))
    return boxes_near(data[order], radius, box)


def near_samples(data: Floats, radius: float, box: Box, seed: int) -> Floats:
    """Points near samples, within the box of all."""
    rng = np.random.default_rng(seed)
    chosen = data[rng.integers(len(data), size=SAMPLES)]
    return np.clip(chosen + rng.uniform(-radius, radius, chosen.shape), *box)


def _fit(left: Floats, gone: Floats, ridge: float) -> tuple[Floats, Floats]:
    """Shares and offsets with `gone ≈ left @ shares + offsets`; a constant in the middle for an infinite ridge."""
    if not np.isfinite(ridge):
        return np.zeros((left.shape[1], gone.shape[1])), (gone.min(axis=0) + gone.max(axis=0)) / 2
    mean, others = left.mean(axis=0), left - left.mean(axis=0)
    gram = others.T @ others / len(left)
    gram += (1e-9 + ridge) * max(float(np.trace(gram)) / len(gram), 1e-300) * np.eye(len(gram))
    shares = np.linalg.solve(gram, others.T @ (gone - gone.mean(axis=0)) / len(left))
    return shares, gone.mean(axis=0) - mean @ shares


def _felt(mlp: Mlp, batch: Floats) -> list[Floats]:
    """For every hidden neuron, the mean size of its derivative at the output that feels it most."""
    layers = mlp.activations(batch)
    slope = np.broadcast_to(mlp.weights[-1], (len(batch), *mlp.weights[-1].shape))
    effects = [np.abs(slope).mean(axis=0).max(axis=0)]
    for depth in range(len(mlp.weights) - 2, 0, -1):
        bends = np.where(layers[depth + 1] > 0, 1.0, mlp.slopes[depth])
        slope = (slope * bends[:, None, :]) @ mlp.weights[depth]
        effects.append(np.abs(slope).mean(axis=0).max(axis=0))
    return effects[::-1]
