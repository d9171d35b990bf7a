"""Inputs that lead into a case: projected sign gradients from random points, corners and the centre."""

from __future__ import annotations

import time

import numpy as np

from lawful.bounds.layers import evaluate, gradients
from lawful.bounds.split.question import BoxQuestion, Replay
from lawful.network.intervals import between
from lawful.types import Floats

NEAR = 1e-9  # a margin of floats within this may be at most 0 exactly: worth a replay in rationals
MOST_REPLAYS = 20


def attack(
    question: BoxQuestion, replay: Replay, only: list[int], *, starts: int, steps: int, seed: int, deadline: float
) -> Floats | None:
    """The first input found that is forbidden exactly; `only` are the cases that are still open."""
    rng = np.random.default_rng(seed)
    layers, low, high, cases = question
    replays = 0
    for case in only:
        used = cases.used[case]
        outputs, inputs, bounds = cases.outputs[case][used], cases.inputs[case][used], cases.bounds[case][used]
        share = rng.random((starts, len(low)))
        share[: starts // 4] = share[: starts // 4] > 0.5
        share[starts // 4] = 0.5
        points, momentum = between(low, high, share), np.zeros_like(share)
        for step in range(steps):
            if time.monotonic() > deadline:
                return None
            rows = evaluate(layers, points) @ outputs.T + points @ inputs.T - bounds
            worst = rows.max(axis=1)
            scale = NEAR * (1 + np.abs(bounds).max())
            for at in np.flatnonzero(worst <= scale)[:3]:
                replays += 1
                exact = replay(points[at]) if replays <= MOST_REPLAYS else None
                if exact is not None:
                    return exact
            # The worst condition leads; the others that fail help a little, else the search swings between two.
            weight = 0.1 * (rows > 0)
            weight[np.arange(starts), rows.argmax(axis=1)] += 1.0
            slope = gradients(layers, points, weight @ outputs) + weight @ inputs
            momentum = 0.7 * momentum + slope / (np.abs(slope).mean(axis=1, keepdims=True) + 1e-30)
            reach = 0.25 * (1 - step / steps) ** 1.5 + 0.002
            points = np.clip(points - reach * (high - low) * np.sign(momentum), low, high)
    return None
