"""Inputs that lead into a case: projected sign gradients from random points, corners and the centre."""

from __future__ import annotations

import time

import numpy as np

from lawful.bounds.layers import evaluate, pull_back, trace
from lawful.bounds.split.question import BoxQuestion, Replay
from lawful.network.intervals import between
from lawful.types import Floats

NEAR = 1e-9  # a margin of floats within this may be at most 0 exactly: worth a replay in rationals
MOST_REPLAYS = 20
GRIDS = 2.0**24, 1000.0, 2.0**4  # the finest first; files write thousandths
SAMPLES, SAMPLING_WORK = 20_000, 5e8  # points, and multiplications for them: 0.1 s
REACH, LEAST_REACH = 0.25, 0.002  # the first and the last step, as shares of the box
POLISHED, POLISHING_STEPS, POLISHING_REACH = 8, 12, 0.02  # points of open nodes: a few, near where they are


def attack(
    question: BoxQuestion, replay: Replay, only: list[int], *, starts: int, steps: int, seed: int, deadline: float
) -> Floats | None:
    """The first input found that is forbidden exactly; `only` are the cases that are still open.

    A quarter of the starts are corners; the others are the best of many random points, some of them on faces.
    """
    rng = np.random.default_rng(seed)
    low, high = question.low, question.high
    work = sum(weight.size for weight in question.layers.weights)
    samples = int(np.clip(SAMPLING_WORK / work, starts, SAMPLES)) if starts > 16 else starts
    for case in only:
        share = rng.random((samples, len(low)))
        face = rng.random(share.shape) < 0.3
        share = np.where(face & (rng.random((samples, 1)) < 0.5), np.round(share), share)
        share[: starts // 4] = share[: starts // 4] > 0.5
        share[starts // 4] = 0.5
        points = between(low, high, share)
        if samples > starts:
            order = np.argsort(question.cases.margins(question.layers.simple, points)[:, case])
            points = np.concatenate([points[: starts // 4], points[order[: starts - starts // 4]]])
        point = _descend(question, replay, case, points, steps, REACH, deadline)
        if point is not None:
            return point
    return None


def polish(question: BoxQuestion, replay: Replay, points: Floats, deadline: float) -> Floats | None:
    """The same from the most promising of some points, each towards the case that it is nearest to."""
    margins = question.cases.margins(question.layers.simple, points)
    nearest, case = margins.min(axis=1), margins.argmin(axis=1)
    best = np.argsort(nearest)[: min(POLISHED, len(points) // 2)]  # no dearer than the nodes that they come from
    for number in np.unique(case[best]):
        chosen = points[best[case[best] == number]]
        point = _descend(question, replay, int(number), chosen, POLISHING_STEPS, POLISHING_REACH, deadline)
        if point is not None:
            return point
    return None


def _snap(points: Floats, low: Floats, high: Floats) -> Floats:
    """The points on coarser and coarser grids: what is forbidden may be a single one, where conditions are equalities.

    Descents and halves of cut boxes come within 1e-16 of it, and never get there.
    """
    coarse = [np.round(points * grid) / grid for grid in GRIDS]
    return np.clip(np.concatenate(coarse), low, high)


def _descend(
    question: BoxQuestion, replay: Replay, case: int, points: Floats, steps: int, reach: float, deadline: float
) -> Floats | None:
    """Steps along signs of gradients with momentum, shorter and shorter; every point on the way is looked at."""
    layers, low, high, cases = question.layers.simple, question.low, question.high, question.cases
    used = cases.used[case]
    outputs, inputs, bounds = cases.outputs[case][used], cases.inputs[case][used], cases.bounds[case][used]
    momentum, replays = np.zeros_like(points), 0
    near = NEAR * (1 + np.abs(bounds).max())
    for step in range(steps):
        if time.monotonic() > deadline:
            return None
        values, rises = trace(layers, points)
        rows = values @ outputs.T + points @ inputs.T - bounds
        promising = points[np.flatnonzero(rows.max(axis=1) <= near)[:3]]
        for tried in (promising, _snap(promising, low, high)) if len(promising) else ():
            margins = (evaluate(layers, tried) @ outputs.T + tried @ inputs.T - bounds).max(axis=1, initial=-np.inf)
            for candidate in tried[margins <= near][: MOST_REPLAYS - replays]:
                replays += 1
                exact = replay(candidate)
                if exact is not None:
                    return exact
        # The worst condition leads; the others that fail help a little, else the search swings between two.
        weight = 0.1 * (rows > 0)
        weight[np.arange(len(points)), rows.argmax(axis=1)] += 1.0
        slope = pull_back(layers, rises, weight @ outputs) + weight @ inputs
        momentum = 0.7 * momentum + slope / (np.abs(slope).mean(axis=1, keepdims=True) + 1e-30)
        length = reach * (1 - step / steps) ** 1.5 + min(LEAST_REACH, reach / 10)
        points = np.clip(points - length * (high - low) * np.sign(momentum), low, high)
    return None
