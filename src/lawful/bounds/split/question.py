"""What is asked on one box, in doubles: no input of it leads into one of some cases."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

import numpy as np

from lawful.bounds.layers import Layer, evaluate, fold_mirrors
from lawful.bounds.split.layers import MergedLayers
from lawful.errors import LawfulError
from lawful.formats.queries.specification import ForbiddenHalfSpace, above
from lawful.types import Floats, Mask

Replay = Callable[[Floats], Floats | None]  # an input near the given one that is forbidden in exact arithmetic, if any


class ForbiddenCases(NamedTuple):
    """All cases padded to the longest: (cases, rows, outputs), (cases, rows, inputs), (cases, rows) twice."""

    outputs: Floats
    inputs: Floats
    bounds: Floats
    used: Mask

    def margins(self, layers: tuple[Layer, ...], points: Floats) -> Floats:
        """The largest `a · y + c · x - bound` of each case: at most 0 where it is reached. (points, cases)."""
        values = self.rows(points, evaluate(layers, points))
        return np.asarray(np.where(self.used, values, -np.inf).max(axis=2))

    def rows(self, points: Floats, outputs: Floats) -> Floats:
        """`a · y + c · x - bound`, of shape (points, cases, rows)."""
        flat = outputs @ self.outputs.reshape(-1, outputs.shape[1]).T
        if self.inputs.any():
            flat = flat + points @ self.inputs.reshape(-1, points.shape[1]).T
        return np.asarray(flat.reshape(len(points), *self.bounds.shape) - self.bounds)


@dataclass(frozen=True, eq=False)
class BoxQuestion:
    """A network as layers, a box of doubles, and what is forbidden on it."""

    given: tuple[Layer, ...]
    low: Floats
    high: Floats
    cases: ForbiddenCases

    @cached_property
    def layers(self) -> MergedLayers:
        """What is bounded and attacked, once for all searches: tllverifybench has a hundredth of its weights so."""
        return MergedLayers(fold_mirrors(self.given), self.low, self.high, self.cases.used.shape[1])


def cases_of(forbidden: Sequence[Sequence[ForbiddenHalfSpace]], inputs: int, outputs: int) -> ForbiddenCases:
    """The cases in doubles: coefficients exactly, bounds rounded up, so that excluding these excludes the others."""
    longest = max(map(len, forbidden))
    shape = len(forbidden), longest
    cases = ForbiddenCases(
        np.zeros((*shape, outputs)), np.zeros((*shape, inputs)), np.zeros(shape), np.zeros(shape, bool)
    )
    for at, case in enumerate(forbidden):
        for row, space in enumerate(map(ForbiddenHalfSpace.whole, case)):
            for numbers, into in ((space.outputs, cases.outputs), (space.inputs, cases.inputs)):
                if numbers:
                    into[at, row] = [_exactly(number) for number in numbers]
            cases.bounds[at, row], cases.used[at, row] = above(space.bound), True
    return cases


def _exactly(number: Fraction) -> float:
    if abs(number) >= 2**1000 or Fraction(float(number)) != number:
        raise LawfulError("a coefficient of the specification has too many digits for float64")
    return float(number)
