"""Inputs at which two networks differ much: samples, then local search with a shrinking radius."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from lawful.network.intervals import between
from lawful.types import Floats

SAMPLES, BATCH = 20_000, 4_000
STARTS, TRIES, STEPS = 8, 16, 60


class Candidates:
    """The best inputs of a box seen so far, one for each column of a score; the last column is what is asked for."""

    def __init__(self, low: Floats, high: Floats, score: Callable[[Floats], Floats]) -> None:
        """`score` takes points (rows) and gives a row of numbers for each, the larger the better."""
        self.low, self.high, self.score = low, high, score
        centre = low / 2 + high / 2
        with np.errstate(all="ignore"):
            columns = score(centre[None]).shape[1]
        self.points = np.tile(centre, (columns, 1))
        self.values = np.full(columns, -np.inf)
        self.offer(centre[None])

    def offer(self, points: Floats) -> Floats:
        """Look at some points of the box; returns their scores."""
        if not len(points):  # boxes that no float halves
            return np.empty((0, len(self.values)))
        points = np.clip(points, self.low, self.high)
        with np.errstate(all="ignore"):
            scores = self.score(points)
        scores = np.where(np.isfinite(scores), scores, -np.inf)
        best = scores.argmax(axis=0)
        for place, at in enumerate(best):
            if scores[at, place] > self.values[place]:
                self.values[place], self.points[place] = scores[at, place], points[at]
        return scores

    def sample(
        self, rng: np.random.Generator, deadline: float, slope: Callable[[Floats, int], Floats] | None = None
    ) -> None:
        """Random points, some of them on faces of the box, then a climb from the best, along gradients if known."""
        best_places: list[tuple[Floats, Floats]] = []
        for _ in range(SAMPLES // BATCH):
            points = between(self.low, self.high, rng.random((BATCH, len(self.low))))
            snapped = rng.random(points.shape) < 0.3
            points = np.where(snapped, np.where(rng.random(points.shape) < 0.5, self.low, self.high), points)
            scores = self.offer(points)
            best = np.unique(np.argsort(-scores, axis=0)[:STARTS])
            best_places.append((points[best], scores[best]))
            if time.monotonic() > deadline:
                break
        points, scores = (np.concatenate(parts) for parts in zip(*best_places, strict=True))
        for place in np.argsort(-scores.max(axis=0))[:16]:
            if time.monotonic() > deadline:
                break
            starts = points[np.argsort(-scores[:, place])[:STARTS]]
            if slope is not None:
                self.ascend(starts, int(place), slope, deadline)
                starts = np.concatenate([self.points[place][None], starts[: STARTS // 2]])
            self.climb(starts, int(place), rng, deadline)

    def ascend(self, starts: Floats, place: int, slope: Callable[[Floats, int], Floats], deadline: float) -> None:
        """Follow the signs of gradients in steps that shorten; the best of all points on the way is kept."""
        points, width = starts, self.high - self.low
        self.offer(points)
        for step in range(STEPS):
            if time.monotonic() > deadline:
                return
            with np.errstate(all="ignore"):
                tries = points + 0.5 * (1 - step / STEPS) * width * np.sign(slope(points, place))
            points = np.clip(np.where(np.isfinite(tries), tries, points), self.low, self.high)
            self.offer(points)

    def climb(self, starts: Floats, place: int, rng: np.random.Generator, deadline: float, radius: float = 0.1) -> None:
        """Move each start to the best of some tries around it; where none is better, look nearer."""
        points, value = starts, np.full(len(starts), -np.inf)
        reach = np.full(len(starts), radius)
        width = self.high - self.low
        for _ in range(STEPS):
            if time.monotonic() > deadline:
                return
            moves = rng.uniform(-1.0, 1.0, (len(points), TRIES, len(self.low)))
            moves *= rng.random(moves.shape) < max(0.5, 1 / len(self.low))
            tries = np.clip(points[:, None] + reach[:, None, None] * width * moves, self.low, self.high)
            scores = self.offer(tries.reshape(-1, len(self.low)))[:, place].reshape(len(points), TRIES)
            best = scores.argmax(axis=1)
            rows = np.arange(len(points))
            better = scores[rows, best] > value
            points = np.where(better[:, None], tries[rows, best], points)
            value = np.where(better, scores[rows, best], value)
            reach = np.where(better, reach, reach * 0.7)
