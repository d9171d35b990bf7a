"""A line of flow with proved bounds: Taylor steps in ball arithmetic.

The line follows `x' = F(x)`, a polynomial field along which a number T grows, until T is a given number. Every step has
a box that contains the line while the step lasts (Picard: `x + [0, h]F(box)` lies inside the box), and in that box the
last Taylor coefficient bounds what the earlier ones leave out. T grows all the way, so the line crosses each level
once: between a time at which T is proved to be too small and one at which it is proved to be too large.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from flint import arb, arb_series, ctx

Balls = list[arb]
Ring = Callable[[Sequence[Any]], Any]  # a polynomial that balls and power series can be put into
MOST_STEPS = 400
HALVINGS = 40
GROWTHS = 3  # attempts to find a box before the step is halved
ROUNDS = 12  # of Newton's method


@dataclass(frozen=True)
class FlowLine:
    """A polynomial field, and a number that grows along it."""

    field: Ring
    number: Ring

    def reach(self, start: Balls, goal: arb, bits: int) -> Balls | None:
        """Balls that contain the point at which the number is `goal`, if many steps lead there.

        >>> circle = FlowLine(lambda at: [at[0]], lambda at: at[0])  # x' = x from 1 to 2
        >>> found = circle.reach([arb(1)], arb(2), 64)
        >>> found[0].contains(2), float(found[0].rad()) < 1e-15
        (True, True)
        """
        before = ctx.prec, ctx.cap
        ctx.prec = bits
        try:
            return self._reach(start, goal, max(8, bits // 4))
        finally:
            ctx.prec, ctx.cap = before

    def _reach(self, at: Balls, goal: arb, order: int) -> Balls | None:
        for _ in range(MOST_STEPS):
            step = self._step(at, goal, order)
            if step is None:
                return None
            end = step.at(step.length)
            if self.number(end) > goal:
                return self._crossing(step, goal)
            at = end
        return None

    def _step(self, at: Balls, goal: arb, order: int) -> _Step | None:
        """A step whose end is proved to be on one side of the goal; None where the line stands still."""
        series = self._taylor(at, order)
        length = self._length(series, goal - self.number(at))
        if length is None:
            return None
        for _ in range(HALVINGS):
            box = self._box(at, length)
            if box is not None:
                last = [part[order] for part in self._taylor(box, order)]
                step = _Step([[*part[:order], rest] for part, rest in zip(series, last, strict=True)], length)
                reached = self.number(step.at(length))
                if reached > goal or reached < goal:
                    return step
            length = (length * arb(0.6)).mid()
        return None

    def _taylor(self, at: Balls, order: int) -> list[Balls]:
        """The coefficients of the solution that starts at a point, or of all that start in a box."""
        ctx.cap = 1
        series = [arb_series([ball]) for ball in at]
        for terms in range(1, order + 1):
            ctx.cap = terms
            slopes = self.field(series)
            ctx.cap = terms + 1
            series = [(arb_series([0]) + slope).integral() + ball for ball, slope in zip(at, slopes, strict=True)]
        return [_coefficients(part, order + 1) for part in series]

    def _length(self, series: list[Balls], way: arb) -> arb | None:
        """About as long as the Taylor series is good for, and not much longer than needed."""
        order = len(series[0]) - 1
        size, speed, last = (max(abs(part[k]).mid() for part in series) for k in (0, 1, order))
        rate = self._rate([arb_series(part[:2], prec=2) for part in series])[1]
        if not rate > 0:
            return None
        longest = (4 * abs(way) / rate).mid()
        if not last > 0:
            return longest
        size = max(size, (speed * longest).mid())
        good = (((size / last).log() - ctx.prec * arb(2).log()) / order).exp().mid()
        return min(good, longest)

    def _box(self, at: Balls, length: arb) -> Balls | None:
        """A box that solutions from `at` do not leave for so long a time."""
        time = arb(length / 2, length / 2)
        slopes = self.field(at)
        box = [ball + time * slope for ball, slope in zip(at, slopes, strict=True)]
        for _ in range(GROWTHS):
            spare = max(ball.rad() for ball in box)
            box = [arb(ball.mid(), 2 * ball.rad() + spare / 8) for ball in box]
            again = [ball + time * slope for ball, slope in zip(at, self.field(box), strict=True)]
            if all(outer.contains(inner) for outer, inner in zip(box, again, strict=True)):
                return again
            box = [outer.union(inner) for outer, inner in zip(box, again, strict=True)]
        return None

    def _crossing(self, step: _Step, goal: arb) -> Balls | None:
        """Where the number passes the goal during a step: Newton's method, then two times around it as proof."""
        low, high = arb(0), step.length
        time = (high / 2).mid()
        for _ in range(ROUNDS):
            number, rate = self._rate(step.at(arb_series([time, 1], prec=2)))
            missing = goal - number
            low, high = (time, high) if missing.mid() > 0 else (low, time)
            ahead = (time + missing / rate).mid() if rate > 0 else high
            settled = abs(ahead - time) < abs(time) * arb(2) ** (4 - ctx.prec)
            time = ahead if low <= ahead <= high else ((low + high) / 2).mid()
            if settled:
                break
        number, rate = self._rate(step.at(arb_series([time, 1], prec=2)))
        doubt = (abs(goal - number).upper() / rate + abs(time) * arb(2) ** -ctx.prec).upper()
        for _ in range(HALVINGS):
            early, late = (time - doubt).lower(), (time + doubt).upper()
            early, late = early if early > 0 else arb(0), late if late < step.length else step.length
            if self.number(step.at(early)) < goal and self.number(step.at(late)) > goal:
                return step.at(early.union(late))
            doubt = (2 * doubt).upper()
        return None

    def _rate(self, at: Sequence[arb_series]) -> tuple[arb, arb]:
        """The number on a curve whose first two coefficients are given, and about how fast it grows."""
        value, slope = _coefficients(self.number(at), 2)
        return value, slope.mid()


@dataclass(frozen=True)
class _Step:
    """Taylor coefficients, the last of which holds for the whole step."""

    series: list[Balls]
    length: arb

    def at(self, time: Any) -> list[Any]:
        """Where the line is at a time, at some time in a ball of times, or in a series; between 0 and `length`."""
        point = []
        for part in self.series:
            total = time * 0
            for coefficient in reversed(part):
                total = total * time + coefficient
            point.append(total)
        return point


def _coefficients(series: arb_series | arb | int, terms: int) -> Balls:
    """As many coefficients as asked for."""
    coefficients = series.coeffs() if isinstance(series, arb_series) else [arb(series)]
    return (coefficients + [arb(0)] * terms)[:terms]
