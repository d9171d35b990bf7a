"""Look for an input on which two networks differ, and replay it exactly before believing it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from lawful.fibers.layers import Array, Stack, floating, input_scales
from lawful.fibers.regions.domain import Domain
from lawful.types import Floats

SCALES = (1.0, 0.1, 10.0, 100.0, 1e3, 1e5)  # radii at which random inputs are tried
FAR = 1e6  # a line is followed this far, beyond every bend that random lines meet
DEVIATIONS = 4.0  # standard deviations that are excused
REPLAYS = 3  # inputs of one batch that are replayed


@dataclass(frozen=True)
class Counterexample:
    """An input and both exact outputs; `gap` is their largest difference.

    `allowed` is what rounding every weight by the tolerance would explain of it, to first order: 0 in exact arithmetic.
    Where no input of floats shows the difference, `exact` is the input, in fractions, and `point` only lies near it.
    """

    point: Floats
    outputs: tuple[tuple[Fraction, ...], tuple[Fraction, ...]]
    gap: Fraction
    allowed: Fraction
    exact: tuple[Fraction, ...] | None = None


@dataclass(frozen=True, eq=False)
class Pair:
    """Two networks with the same input and output sizes, and the question asked of them."""

    first: Stack
    second: Stack
    domain: Domain
    tolerance: float

    @cached_property
    def scales(self) -> Floats:
        """Powers of two, one per input: where the networks bend, whatever the units of their inputs."""
        return input_scales(self.first, self.second)

    @cached_property
    def space(self) -> Pair:
        """The same pair with inputs and neurons at their natural sizes, to search in; its inputs times `scales`."""
        domain = Domain(self.domain.low / self.scales, self.domain.high / self.scales)
        return Pair(self.first.balance(self.scales), self.second.balance(self.scales), domain, self.tolerance)

    def allowance(self, points: Floats) -> Floats:
        """How far rounding each weight by the tolerance, independently, may move an output, to first order."""
        sizes = [stack.sensitivity(points) for stack in (self.first, self.second)]
        return np.asarray(DEVIATIONS * self.tolerance * np.hypot(*sizes))

    def replay(self, point: Floats) -> Counterexample | None:
        """The exact outputs at a point, if one differs by more than the tolerance explains."""
        outputs = self.first.exact_outputs(point), self.second.exact_outputs(point)
        gaps = [abs(one - other) for one, other in zip(*outputs, strict=True)]
        if not any(gaps):
            return None
        excused = self.allowance(point[None, :])[0] if self.tolerance else np.zeros(len(gaps))
        for gap, size in zip(gaps, excused, strict=True):
            if gap > (allowed := Fraction(float(size)) if np.isfinite(size) else self.overflowing(outputs)):
                return Counterexample(point, outputs, max(gaps), allowed)
        return None

    def replay_exactly(self, point: Array) -> Counterexample:
        """The exact outputs at an input of rationals at which they differ: the nearest floats if they show it too."""
        near = floating(point)
        if np.isfinite(near).all() and self.domain.contains(near) and (witness := self.replay(near)):
            return witness
        outputs = self.first.exact_outputs(point), self.second.exact_outputs(point)
        gap = max(abs(one - other) for one, other in zip(*outputs, strict=True))
        exact = tuple(Fraction(int(item.p), int(item.q)) for item in point)
        return Counterexample(near, outputs, gap, Fraction(0), exact)

    def overflowing(self, outputs: tuple[tuple[Fraction, ...], ...]) -> Fraction:
        """What is excused where floats cannot tell: a generous share of the largest output."""
        return 1000 * Fraction(self.tolerance) * max(abs(value) for values in outputs for value in values)

    def check(self, points: Floats) -> Counterexample | None:
        """Replay the most promising of many points of the search space.

        In exact arithmetic one that looks equal may still differ.
        """
        points = points[np.isfinite(points).all(axis=1)]
        if not len(points):
            return None
        inside = np.clip(points, self.space.domain.low, self.space.domain.high)
        for place in self.promising(inside):
            if witness := self.replay(np.clip(inside[place] * self.scales, self.domain.low, self.domain.high)):
                return witness
        return None

    def promising(self, points: Floats) -> list[int]:
        """The points that should show a difference, best first; floats only choose."""
        ours, theirs = self.space.first.evaluate(points), self.space.second.evaluate(points)
        gaps, sizes = np.abs(ours - theirs), np.abs(ours) + np.abs(theirs)
        with np.errstate(invalid="ignore", divide="ignore"):
            shares = np.where(sizes > 0, gaps / sizes, 0.0)
        shares = np.where(np.isfinite(shares), shares, 1.0)  # overflow: only exact arithmetic can tell
        if self.tolerance == 0:
            return [int(np.argmax(shares.max(axis=1, initial=0.0)))]
        best = np.unique(np.argsort(-shares, axis=0, kind="stable")[:REPLAYS].ravel())[: 4 * REPLAYS]
        excused = self.space.allowance(points[best])
        with np.errstate(invalid="ignore", divide="ignore"):
            excess = np.where(gaps[best] > 0, gaps[best] / excused, 0.0)
        excess = np.where(np.isfinite(excess), excess, np.inf).max(axis=1, initial=0.0)
        order = np.argsort(-excess, kind="stable")[:REPLAYS]
        return [int(best[k]) for k in order if excess[k] > 0.5]


def quick_refutation(pair: Pair, seed: int = 0, count: int = 200) -> Counterexample | None:
    """Random inputs near and far."""
    rng = np.random.default_rng(seed)
    for scale in SCALES if not pair.domain.bounded else SCALES[:1]:
        if witness := pair.check(pair.space.domain.sample(count, rng, scale)):
            return witness
    return None


def thorough_refutation(pair: Pair, seconds: float, seed: int = 0, lines: int = 48) -> Counterexample | None:
    """Single inputs far out, points on the bent hyperplanes of both networks, then whole lines through them."""
    deadline = time.perf_counter() + seconds
    rng = np.random.default_rng(seed + 1)
    space = pair.space
    targets = []
    for points in _targets(space, rng):
        if witness := pair.check(points):
            return witness
        targets.append(points)
        if time.perf_counter() > deadline:
            return None
    starts = np.concatenate([*targets, space.domain.sample(8, rng)])
    starts = np.clip(starts[np.isfinite(starts).all(axis=1)], space.domain.low, space.domain.high)
    for _ in range(lines):
        if time.perf_counter() > deadline:
            return None
        start = starts[rng.integers(len(starts))]
        knots = line_knots(space, start, rng.normal(size=len(start)))
        if witness := pair.check(knots):
            return witness
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
    candidates = [times]
    for stack in (pair.first, pair.second):
        bends = times
        for layer in range(stack.hidden):
            values = stack.preactivations(start + bends[:, None] * direction)[layer]
            bends = np.union1d(bends, _crossings(bends, values))
        candidates.append(bends)
    knots = np.unique(np.concatenate(candidates))
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
    yield np.concatenate([pair.domain.sample(1, rng) + far * np.eye(len(pair.domain.low)) for far in (-1e3, 1e3)])
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
    target = 1e-2 * rng.exponential(size=len(neurons)) * _typical(floats, points, layer)
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


def _typical(stack: Stack, points: Floats, layer: int) -> float:
    """The usual size of a layer's preactivations."""
    size = float(np.sqrt((stack.preactivations(points)[layer] ** 2).mean()))
    return size if 0 < size < np.inf else 1.0
