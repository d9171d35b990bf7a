"""Look for an input on which two networks differ, and replay it exactly before believing it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from lawful.fibers.domain import Domain
from lawful.fibers.stack import Array, Stack
from lawful.types import Floats

SCALES = (1.0, 0.1, 10.0, 100.0, 1e3, 1e5)  # radii at which random inputs are tried
FAR = 1e6  # a line is followed this far, beyond every bend that random lines meet


@dataclass(frozen=True)
class Counterexample:
    """An input and both exact outputs; `gap` is their largest difference, `allowed` what the tolerance excuses."""

    point: Floats
    outputs: tuple[tuple[Fraction, ...], tuple[Fraction, ...]]
    gap: Fraction
    allowed: Fraction


@dataclass(frozen=True)
class Pair:
    """Two networks with the same input and output sizes, and the question asked of them."""

    first: Stack
    second: Stack
    domain: Domain
    tolerance: float

    def relative_gaps(self, points: Floats) -> Floats:
        """`|f − g|` over the size of the terms summed, the largest over the outputs, in floats."""
        gaps = np.abs(self.first.evaluate(points) - self.second.evaluate(points))
        scale = np.maximum(self.first.magnitude(points), self.second.magnitude(points))
        found = (gaps / np.where(scale > 0, scale, 1.0)).max(axis=1, initial=0.0)
        return np.where(np.isfinite(scale).all(axis=1), found, np.inf)  # overflow: only exact arithmetic can tell

    def replay(self, point: Floats) -> Counterexample | None:
        """The exact outputs at a point, if they differ by more than the tolerance excuses."""
        outputs = self.first.exact_outputs(point), self.second.exact_outputs(point)
        batch = point[None, :]
        scale = np.maximum(self.first.magnitude(batch), self.second.magnitude(batch))[0]
        sizes = [Fraction(size) for size in scale] if np.isfinite(scale).all() else self._exact_sizes(point)
        layers = max(len(self.first.weights), len(self.second.weights))
        for one, other, size in zip(*outputs, sizes, strict=True):
            allowed = Fraction(self.tolerance) * layers * size
            if abs(one - other) > allowed:
                gap = max(abs(a - b) for a, b in zip(*outputs, strict=True))
                return Counterexample(point, outputs, gap, allowed)
        return None

    def _exact_sizes(self, point: Floats) -> list[Fraction]:
        sides = [stack.absolute().exact_outputs(np.abs(point)) for stack in (self.first, self.second)]
        return [max(pair) for pair in zip(*sides, strict=True)]

    def check(self, points: Floats) -> Counterexample | None:
        """Replay the most promising of many points; in exact arithmetic one that looks equal may still differ."""
        points = points[np.isfinite(points).all(axis=1)]
        if not len(points):
            return None
        inside = np.clip(points, self.domain.low, self.domain.high)
        gaps = self.relative_gaps(inside)
        best = np.argsort(-gaps, kind="stable")[: 1 if self.tolerance == 0 else 3]
        for place in best[gaps[best] >= 0.1 * self.tolerance]:
            if found := self.replay(inside[place]):
                return found
        return None


def quick_refutation(pair: Pair, seed: int = 0, count: int = 200) -> Counterexample | None:
    """Random inputs near and far."""
    rng = np.random.default_rng(seed)
    for scale in SCALES if not pair.domain.bounded else SCALES[:1]:
        if found := pair.check(pair.domain.sample(count, rng, scale)):
            return found
    return None


def thorough_refutation(pair: Pair, seconds: float, seed: int = 0, lines: int = 48) -> Counterexample | None:
    """Points on the bent hyperplanes of both networks, then whole lines through them, end to end."""
    deadline = time.perf_counter() + seconds
    rng = np.random.default_rng(seed + 1)
    targets = []
    for points in _targets(pair, rng):
        if found := pair.check(points):
            return found
        targets.append(points)
        if time.perf_counter() > deadline:
            return None
    starts = np.concatenate([*targets, pair.domain.sample(8, rng)])
    starts = np.clip(starts[np.isfinite(starts).all(axis=1)], pair.domain.low, pair.domain.high)
    for _ in range(lines):
        if time.perf_counter() > deadline:
            return None
        start = starts[rng.integers(len(starts))]
        knots = line_knots(pair, start, rng.normal(size=len(start)))
        if found := pair.check(knots):
            return found
    return None


def line_knots(pair: Pair, start: Floats, direction: Floats) -> Floats:
    """Every point of a line where one of the networks bends, both ends, and the midpoints between.

    Both functions are affine between neighbours: if they agree on all these points, they agree on the line.
    """
    direction = direction / np.abs(direction).max()
    with np.errstate(divide="ignore", invalid="ignore"):
        ends = np.stack([(pair.domain.low - start) / direction, (pair.domain.high - start) / direction])
    low, high = float(np.nanmax(ends.min(axis=0))), float(np.nanmin(ends.max(axis=0)))
    grid = np.concatenate([-np.logspace(6, -2, 9), [0.0], np.logspace(-2, 6, 9)])
    times = np.unique(np.clip(grid, max(low, -FAR), min(high, FAR)))
    found = [times]
    for stack in (pair.first, pair.second):
        bends = times
        for layer in range(stack.hidden):
            values = stack.preactivations(start + bends[:, None] * direction)[layer]
            bends = np.union1d(bends, _crossings(bends, values))
        found.append(bends)
    knots = np.unique(np.concatenate(found))
    knots = np.concatenate([knots, (knots[1:] + knots[:-1]) / 2])
    return np.asarray(start + knots[:, None] * direction)


def _crossings(times: Floats, values: Floats) -> Floats:
    """Where functions that are affine between the times change sign."""
    before, after = values[:-1], values[1:]
    rows, columns = np.nonzero(before * after < 0)
    share = before[rows, columns] / (before[rows, columns] - after[rows, columns])
    return np.asarray(times[rows] + share * (times[rows + 1] - times[rows]))


def _targets(pair: Pair, rng: np.random.Generator) -> Iterator[Floats]:
    """Inputs near which something happens, taken from the weights themselves."""
    for stack in (pair.first, pair.second):
        if stack.hidden >= 2 and 0 < stack.widths[1] <= stack.widths[0] and stack.widths[2]:
            yield preimages(stack, rng)
        for layer in range(stack.hidden):
            if stack.widths[layer + 1]:
                yield on_bent_hyperplanes(stack, layer, pair.domain, rng)


def preimages(stack: Stack, rng: np.random.Generator, most: int = 256) -> Floats:
    """Inputs at which a second-layer neuron is just active, with few first-layer neurons on.

    A bottleneck's first layer reaches every nonnegative vector (P4 Lemma 32), so its pseudo-inverse finds even a
    region that fills a tiny share of space.
    """
    weight, bias, above, shift = _float_parts(stack)
    neurons = np.resize(rng.permutation(len(above)), min(most, 8 * len(above)))
    chosen = np.zeros((len(neurons), len(weight)), dtype=bool)
    for place, neuron in enumerate(neurons):
        helpful = np.flatnonzero(above[neuron] > 0)
        if len(helpful):
            chosen[place, rng.choice(helpful, size=rng.integers(1, min(3, len(helpful)) + 1), replace=False)] = True
    gain = (above[neurons] * chosen).sum(axis=1)
    need = np.maximum(-shift[neurons], 0) + rng.exponential(size=len(neurons))
    level = np.where(gain > 0, need / np.where(gain > 0, gain, 1.0), 1.0)
    values = np.where(chosen, level[:, None], -rng.exponential(size=chosen.shape))
    return np.asarray(np.linalg.lstsq(weight, (values - bias).T, rcond=None)[0].T)


def _float_parts(stack: Stack) -> tuple[Array, Array, Array, Array]:
    floats = stack.floating()
    return floats.weights[0], floats.biases[0], floats.weights[1], floats.biases[1]


def on_bent_hyperplanes(
    stack: Stack, layer: int, domain: Domain, rng: np.random.Generator, most: int = 256, rounds: int = 12
) -> Floats:
    """Inputs driven by Newton's method just past the zero set of each neuron of a layer."""
    floats = stack.floating()
    width = stack.widths[layer + 1]
    neurons = np.resize(rng.permutation(width), min(most, max(32, 2 * width)))
    points = domain.sample(len(neurons), rng)
    target = 1e-2 * rng.exponential(size=len(neurons))
    for _ in range(rounds):
        values = floats.preactivations(points)
        slope = floats.weights[layer][neurons]
        for below in reversed(range(layer)):
            mask = np.where(values[below] > 0, 1.0, floats.slopes[below])
            slope = (slope * mask) @ floats.weights[below]
        reached = values[layer][np.arange(len(neurons)), neurons]
        square = (slope**2).sum(axis=1)
        step = np.where(square > 0, (target - reached) / np.where(square > 0, square, 1.0), 0.0)
        restart = (square == 0)[:, None] * rng.normal(size=points.shape) * 3  # flat here: try elsewhere
        points = np.clip(points + step[:, None] * slope + restart, domain.low, domain.high)
    return np.asarray(points)
