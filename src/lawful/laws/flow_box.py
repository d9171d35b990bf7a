"""Laws without a closed form, as functions that can be evaluated: where a line of flow crosses a given level.

In a part that passes one number T on, every field is a multiple of ∇T, so training stays on one line of the field ∇T.
Following that line to the level T = c gives a point that never changes: its coordinates are the laws (flow box
theorem).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.integrate import solve_ivp

from lawful.errors import LawfulError
from lawful.laws.law_count import LawCount
from lawful.laws.one_field import Part
from lawful.network import Dag
from lawful.types import Floats

TOLERANCES = (1e-9, 1e-12)


@dataclass(frozen=True, eq=False)
class FlowBox:
    """The weights of a part, moved along ∇T until T is `level`: conserved numbers, one less than they are many.

    `error` is how far two integrations of different accuracy are apart: an estimate of the error, not a bound.
    """

    part: Part
    level: float
    weights: Floats
    error: float


def flow_box(count: LawCount, theta: ArrayLike, part: int = 0, *, level: float | None = None) -> FlowBox:
    """Where the line of training through θ crosses the level T = `level` of a part (by default the level of θ).

    >>> from lawful.laws import count_laws
    >>> count = count_laws("1-2-2-1 linear")  # 7 laws, of which balancedness gives 6
    >>> start = np.array([1.0, 2.0, 0.5, -1.0, 1.0, 0.5, 2.0, 1.0])
    >>> flow_box(count, start, level=3.0).weights.shape
    (8,)
    """
    passed, weights = passed_number(count, theta, part)
    start, goal = passed.value(weights), level
    goal = start if goal is None else float(goal)
    loose, tight = (passed.follow(weights, start, goal, tolerance) for tolerance in TOLERANCES)
    return FlowBox(passed.part, goal, tight, float(np.abs(tight - loose).max()))


def passed_number(count: LawCount, theta: ArrayLike, part: int = 0) -> tuple[PassedNumber, Floats]:
    """What a part of a counted network passes on, and the part's weights among θ."""
    if count.dag is None or not 0 <= part < len(count.parts):
        raise LawfulError(f"this count has {len(count.parts)} parts whose laws have no closed form, not a part {part}")
    chosen, weights = count.parts[part], np.asarray(theta, dtype=np.float64)
    if weights.shape != (count.parameters,) or not np.isfinite(weights).all():
        raise LawfulError(f"θ has {count.parameters} finite entries, not shape {weights.shape}")
    gates = np.ones(len(count.dag.names)) if count.region is None else np.nan_to_num(count.region.fixed, nan=1.0)
    return PassedNumber(count.dag, gates, chosen), weights[list(chosen.edges)]


@dataclass(frozen=True, eq=False)
class PassedNumber:
    """The number T that a part passes on, as a function of its weights (or of several, a column each)."""

    dag: Dag
    gates: Floats
    part: Part

    def value(self, weights: Floats) -> Any:
        """T."""
        return self._signals(weights)[self.part.sink]

    def gradient(self, weights: Floats) -> Floats:
        """∇T, entry by entry a signal times what becomes of it."""
        up: dict[int, Any] = self._signals(weights)
        down: dict[int, Any] = {self.part.sink: 1.0}
        ends = self._ends()
        for node in reversed(self._inner()):
            after = sum(w * down[head] for w, (tail, head) in zip(weights, ends, strict=True) if tail == node)
            down[node] = self.gates[node] * after
        return np.array([np.broadcast_to(up[tail] * down[head], weights.shape[1:]) for tail, head in ends])

    def follow(self, weights: Floats, start: float, goal: float, tolerance: float) -> Floats:
        """Along ∇T/‖∇T‖² the number T grows at speed 1."""

        def motion(_: float, at: Floats) -> Floats:
            slope = self.gradient(at)
            return slope / max(float(slope @ slope), np.finfo(float).tiny)

        found = solve_ivp(motion, (start, goal), weights, method="DOP853", rtol=tolerance, atol=tolerance)
        if not found.success or not np.isfinite(found.y[:, -1]).all():
            raise LawfulError(f"the line of flow does not reach the level {goal:g} from {start:g}: choose one nearby")
        return np.asarray(found.y[:, -1])

    def _signals(self, weights: Floats) -> dict[int, Any]:
        up: dict[int, Any] = dict(self.part.signals)
        ends = self._ends()
        for node in [*self._inner(), self.part.sink]:
            total = sum(w * up[tail] for w, (tail, head) in zip(weights, ends, strict=True) if head == node)
            up[node] = total * (self.gates[node] if node != self.part.sink else 1.0)
        return up

    def _ends(self) -> list[tuple[int, int]]:
        return [(int(self.dag.tails[edge]), int(self.dag.heads[edge])) for edge in self.part.edges]

    def _inner(self) -> list[int]:
        inside = set(self.part.inner)
        return [node for node in np.concatenate(self.dag.layers).tolist() if node in inside]
