"""Level sets of a law without a closed form, in the plane of two weights: lines that training does not leave.

The law is one weight of the point where the line of training reaches a given level
(`lawful.conservation.known.flow_box`). It is
evaluated on a grid with proved bounds, and its level sets are drawn between grid points.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import ArrayLike

from lawful.conservation.known.flow_box import signal_of_part
from lawful.conservation.law_count import LawCount
from lawful.conservation.wording import Wording
from lawful.errors import LawfulError
from lawful.result import Shown
from lawful.types import Floats

GRID = 17
LINES = 9
REACH = 0.5  # of the larger of the two weights: how far the plane goes
BITS = 40
GridEdge = tuple[int, int, int]  # row, column, and whether it runs along the row or up
Line = tuple[float, Floats, Floats]  # a level, and the points of one connected piece of its set


@dataclass(frozen=True, eq=False)
class LevelSets(Shown):
    """A law on a grid of two weights, the others fixed: `values[i, j]` at `x[j]`, `y[i]`, and pieces of its level sets.

    `names` are the two weights and the one that the law is: its value where the number that the part passes on is
    `level`, NaN where no line is seen to lead there. Every value is proved to be within `error` of the true one.
    """

    names: tuple[str, str, str]
    level: float
    x: Floats
    y: Floats
    values: Floats
    lines: tuple[Line, ...]
    error: float


def level_sets(
    count: LawCount, theta: ArrayLike, part: int = 0, *, weights: tuple[int, int] = (0, 1), level: float | None = None
) -> LevelSets:
    """Level sets of the first law of a part, in the plane of two of its weights (by their places in the part).

    >>> from lawful.conservation import count_laws
    >>> found = level_sets(count_laws("1-2-2-1 linear"), [1.0, 2.0, 0.5, -1.0, 1.0, 0.5, 2.0, 1.0])
    >>> found.values.shape, len(found.lines) > 3, found.error < 1e-9
    ((17, 17), True, True)
    """
    passed, start = signal_of_part(count, theta, part)
    if len(set(weights)) < 2 or not all(0 <= place < len(start) for place in weights):
        raise LawfulError(f"a plane is spanned by two different weights of the {len(start)} of this part")
    first, second = weights
    reach = REACH * max(abs(start[first]), abs(start[second]), 1e-3)
    x, y = (start[place] + np.linspace(-reach, reach, GRID) for place in weights)
    now = float(passed.number(start.tolist()))
    slope = max(abs(float(value)) for value in passed.field(start.tolist()))
    goal = now + 0.25 * (abs(now) + slope * reach) if level is None else float(level)
    values, errors = np.full((2, GRID, GRID), np.nan)
    for (row, up), (column, across) in product(enumerate(y), enumerate(x)):
        at = start.copy()
        at[first], at[second] = across, up
        found = passed.reach(at, goal, BITS)
        if found is not None:
            values[row, column] = float(found[0].mid())
            errors[row, column] = np.nextafter(float(abs(found[0] - values[row, column]).upper()), np.inf)
    known = np.isfinite(values)
    if known.sum() < 4:
        raise LawfulError(f"lines of flow from these weights do not reach the level {goal:g}: choose one nearby")
    levels = np.quantile(values[known], np.linspace(0.05, 0.95, LINES))
    lines = [line for height in levels.tolist() for line in _contours(x, y, values, height)]
    wording = Wording(passed.dag)
    names = tuple(wording.weight(passed.part.edges[place]) for place in (first, second, 0))
    error = float(np.nanmax(errors))
    return LevelSets((names[0], names[1], names[2]), float(goal), x, y, values, tuple(lines), error)


def _contours(x: Floats, y: Floats, values: Floats, level: float) -> list[Line]:
    """The set where the grid's values cross a level, as chains of straight pieces (marching squares)."""
    crossing: dict[GridEdge, tuple[float, float]] = {}  # on the edge to the right of or above a point
    for i in range(len(y)):
        for j in range(len(x)):
            for along, (k, m) in enumerate(((i, j + 1), (i + 1, j))):
                if k < len(y) and m < len(x) and (values[i, j] > level) != (values[k, m] > level):
                    share = (level - values[i, j]) / (values[k, m] - values[i, j])
                    if np.isfinite(share):
                        crossing[i, j, along] = (x[j] + share * (x[m] - x[j]), y[i] + share * (y[k] - y[i]))
    joined: dict[GridEdge, list[GridEdge]] = {edge: [] for edge in crossing}
    for i in range(len(y) - 1):
        for j in range(len(x) - 1):
            edges = [edge for edge in ((i, j, 0), (i, j + 1, 1), (i + 1, j, 0), (i, j, 1)) if edge in crossing]
            for one, two in zip(edges[::2], edges[1::2], strict=False):
                joined[one].append(two)
                joined[two].append(one)
    return [(level, *np.array([crossing[edge] for edge in chain]).T) for chain in _chains(joined)]


def _chains(joined: dict[GridEdge, list[GridEdge]]) -> list[list[GridEdge]]:
    """Paths through a graph of degree at most two, each from one end to the other."""
    left = dict.fromkeys(sorted(joined, key=lambda edge: len(joined[edge])))
    found: list[list[GridEdge]] = []
    while left:
        at: GridEdge | None = next(iter(left))
        chain: list[GridEdge] = []
        while at is not None:
            chain.append(at)
            left.pop(at)
            at = next((other for other in joined[at] if other in left), None)
        if len(chain) > 1:
            found.append(chain)
    return found
