"""Past a corner that no choice of signs settles: the flow with its jumps rounded off, for a short while."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.integrate import solve_ivp

from lawful.papers.truncation.flow.boundary import TooMuchWork
from lawful.papers.truncation.flow.chart import Chart
from lawful.papers.truncation.flow.field import Field, Maps
from lawful.types import Floats

MOST = (
    50_000  # evaluations: a passage takes hundreds to some thousands, a Jacobian by differences as many as coordinates
)
WIDTH = 1e-7  # of the data's size: where a share is between 0 and 1


@dataclass(frozen=True, eq=False)
class RoundedPassage:
    """The flow from one time to another with shares `clip(1/2 + z/2δ, 0, 1)` instead of signs: δ is `width`.

    Solutions of Filippov's inclusion are limits of these for δ → 0; where several exist, this is one of them.
    """

    end: float
    width: float
    path: Callable[[float], Maps]
    shares: Callable[[Maps], Floats]
    evaluations: int


def smooth_passage(field: Field, start: Maps, low: float, high: float) -> RoundedPassage | None:
    """Follow the rounded flow by an implicit method, for steep shares; None if it fails or does not end.

    >>> from lawful.papers.truncation.flow.field import Separated
    >>> field = Separated(np.array([[-1.0, -1.0], [1.0, 0.5]]), np.array([2.0, 2.0]))
    >>> found = smooth_passage(field, Maps(np.zeros((1, 2)), np.eye(2)[None]), 0.0, 0.2)
    >>> bool(np.abs(found.path(0.2).shifts + 0.19).max() < 0.01)
    True
    """
    chart = Chart(start)
    width = WIDTH * max(float(np.abs(field.preactivations(start)).max()), 1.0)
    evaluations = 0

    def slope(_: float, values: Floats) -> Floats:
        nonlocal evaluations
        evaluations += 1
        if evaluations > MOST:
            raise TooMuchWork
        maps = chart.at(values)
        return chart.slope(values, field.velocity(maps, smooth_shares(field, maps, width)))

    options = {"rtol": 1e-8, "atol": 1e-3 * width, "dense_output": True, "max_step": high - low}
    try:
        solved = solve_ivp(slope, (low, high), chart.origin, "LSODA", **options)
    except TooMuchWork:
        return None
    if not solved.success or not np.isfinite(solved.y).all():
        return None
    dense = solved.sol
    return RoundedPassage(
        high,
        width,
        lambda time: chart.at(dense(time)),
        lambda maps: smooth_shares(field, maps, width),
        evaluations,
    )


def smooth_shares(field: Field, maps: Maps, width: float) -> Floats:
    """`clip(1/2 + z/2δ, 0, 1)`; the points that a map sees depend on the shares of the maps before it."""
    shares = np.asarray((field.preactivations(maps) > 0).astype(np.float64))
    for _ in range(len(shares)):
        shares = np.clip(0.5 + field.preactivations(maps, shares) / (2 * width), 0.0, 1.0)
    return shares
