"""Laws without a closed form, as functions that can be evaluated: where a line of flow crosses a given level.

In a part that passes one number T on, every field is a multiple of M∇T (M = 1 for plain gradient flow), so training
stays on one line of that field. Following the line to the level T = c gives a point that never changes: its coordinates
are the laws (flow box theorem). With weight decay at the rate λ this holds of e^{λt}θ, as T is homogeneous there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
from flint import arb, ctx
from numpy.typing import ArrayLike

from lawful.conservation.known.enclosed_line import Balls, FlowLine
from lawful.conservation.known.rank_one_subnetworks import Part
from lawful.conservation.law_count import LawCount
from lawful.conservation.wording import Wording
from lawful.errors import LawfulError
from lawful.network import Dag
from lawful.network.dynamics import GradientFlow, Metric
from lawful.result import Shown
from lawful.types import Floats

DIGITS, MOST_DIGITS = 15, 300
SPARE_BITS = 16
TRIES = 4  # each with twice as many bits
ZERO = arb(0)


@dataclass(frozen=True, eq=False)
class FlowBox:
    """The weights of a part, moved along M∇T until T is `level`: conserved numbers, one less than they are many.

    Each true number is proved to be within `error` of `weights`, and inside its ball of `balls` (FLINT's `arb`).
    """

    part: Part
    level: float
    weights: Floats
    error: float
    balls: tuple[arb, ...]


def flow_box(
    count: LawCount,
    theta: ArrayLike,
    part: int = 0,
    *,
    level: float | None = None,
    time: float = 0.0,
    digits: int = DIGITS,
) -> FlowBox:
    """Where the line of training through θ crosses the level T = `level` of a part (by default the level of θ).

    The balls have about `digits` digits. Weight decay asks for the `time` at which training is at θ.

    >>> from lawful.conservation import count_laws
    >>> count = count_laws("1-2-2-1 linear")  # 7 laws, of which balancedness gives 6
    >>> found = flow_box(count, [1.0, 2.0, 0.5, -1.0, 1.0, 0.5, 2.0, 1.0], level=3.0)
    >>> found.weights.shape, found.error < 1e-15
    ((8,), True)
    """
    passed, weights = signal_of_part(count, theta, part)
    if not 1 <= digits <= MOST_DIGITS:
        raise LawfulError(f"between 1 and {MOST_DIGITS} digits, not {digits}")
    if not np.isfinite(time) or (level is not None and not np.isfinite(level)):
        raise LawfulError("the time and the level of a law are finite numbers")
    decay = count.flow.decay if isinstance(count.flow, GradientFlow) else 0.0
    growth = arb(decay) * arb(time)
    goal = float(passed.number(_grow(weights, growth)).mid()) if level is None else float(level)
    bits = int(digits * 3.33) + SPARE_BITS
    for _ in range(TRIES):
        balls = passed.reach(weights, goal, bits, growth)
        if balls and max(ball.rad() for ball in balls) < arb(10) ** -digits * max(abs(ball).upper() for ball in balls):
            break
        bits *= 2
    if balls is None:
        raise LawfulError(f"the line of flow is not seen to reach the level {goal:g}: choose one nearby")
    middles = [float(ball.mid()) for ball in balls]
    error = max(float(abs(ball - middle).upper()) for ball, middle in zip(balls, middles, strict=True))
    return FlowBox(passed.part, goal, np.array(middles), float(np.nextafter(error, np.inf)), tuple(balls))


def _grow(weights: Floats, growth: arb) -> Balls:
    return [arb(float(weight)) * growth.exp() for weight in weights]


def signal_of_part(count: LawCount, theta: ArrayLike, part: int = 0) -> tuple[PassedNumber, Floats]:
    """What a part of a counted network passes on, and the part's weights among θ."""
    if count.dag is None or not 0 <= part < len(count.parts):
        raise LawfulError(f"this count has {len(count.parts)} parts whose laws have no closed form, not a part {part}")
    chosen, weights = count.parts[part], np.asarray(theta, dtype=np.float64)
    if weights.shape != (count.parameters,) or not np.isfinite(weights).all():
        raise LawfulError(f"θ has {count.parameters} finite entries, not shape {weights.shape}")
    gates = np.ones(len(count.dag.names)) if count.region is None else np.nan_to_num(count.region.fixed, nan=1.0)
    speeds = np.ones(count.parameters)
    if isinstance(count.flow, Metric) and count.flow.diagonal is not None:
        speeds = np.asarray(count.flow.diagonal, dtype=np.float64)
    return PassedNumber(count.dag, gates, chosen, speeds[list(chosen.edges)]), weights[list(chosen.edges)]


@dataclass(frozen=True, eq=False)
class PassedNumber:
    """The number T that a part passes on as a polynomial in its weights, which may be numbers, balls or power series.

    `speeds` is the diagonal of M.
    """

    dag: Dag
    gates: Floats
    part: Part
    speeds: Floats

    def number(self, weights: Sequence[Any]) -> Any:
        """T."""
        return self._signals(weights)[self.part.sink]

    def field(self, weights: Sequence[Any]) -> list[Any]:
        """M∇T, entry by entry a signal times what becomes of it."""
        up = self._signals(weights)
        down: dict[int, Any] = {self.part.sink: 1}
        for node, gate, _, out_of in reversed(self._plan[:-1]):
            after = sum(weights[place] * down[head] for place, head in out_of)
            down[node] = after if gate == 1 else after * gate
        slopes = [up[tail] * down[head] for tail, head in self._ends]
        return [
            slope if speed == 1.0 else slope * arb(float(speed))
            for slope, speed in zip(slopes, self.speeds, strict=True)
        ]

    def reach(self, weights: Floats, goal: float, bits: int, growth: arb = ZERO) -> Balls | None:
        """Balls around the weights times e^growth, moved until T is the goal; None if that is not seen to happen."""
        before = ctx.prec
        ctx.prec = bits
        try:
            start = _grow(weights, growth)
            way = arb(goal) - self.number(start)
        finally:
            ctx.prec = before
        if way == 0:
            return start
        if not (way > 0 or way < 0):
            return None
        side = 1 if way > 0 else -1
        line = FlowLine(lambda at: [side * slope for slope in self.field(at)], lambda at: side * self.number(at))
        return line.reach(start, side * arb(goal), bits)

    def _signals(self, weights: Sequence[Any]) -> dict[int, Any]:
        up: dict[int, Any] = {node: arb(value) for node, value in self.part.signals}
        for node, gate, into, _ in self._plan:
            total = sum(weights[place] * up[tail] for place, tail in into)
            up[node] = total if gate == 1 else total * gate
        return up

    @cached_property
    def _ends(self) -> list[tuple[int, int]]:
        return [(int(self.dag.tails[edge]), int(self.dag.heads[edge])) for edge in self.part.edges]

    @cached_property
    def _plan(self) -> list[tuple[int, arb, list[tuple[int, int]], list[tuple[int, int]]]]:
        """The nodes in order, the end last: their gates, and the places of the edges into and out of them."""
        inside = set(self.part.inner)
        plan = []
        for node in [*(node for node in np.concatenate(self.dag.layers).tolist() if node in inside), self.part.sink]:
            into = [(place, tail) for place, (tail, head) in enumerate(self._ends) if head == node]
            out_of = [(place, head) for place, (tail, head) in enumerate(self._ends) if tail == node]
            plan.append((node, arb(float(self.gates[node]) if node in inside else 1.0), into, out_of))
        return plan


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
        crossing = passed.reach(at, goal, BITS)
        if crossing is not None:
            values[row, column] = float(crossing[0].mid())
            errors[row, column] = np.nextafter(float(abs(crossing[0] - values[row, column]).upper()), np.inf)
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
    chains: list[list[GridEdge]] = []
    while left:
        at: GridEdge | None = next(iter(left))
        chain: list[GridEdge] = []
        while at is not None:
            chain.append(at)
            left.pop(at)
            at = next((other for other in joined[at] if other in left), None)
        if len(chain) > 1:
            chains.append(chain)
    return chains
