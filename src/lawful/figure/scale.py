"""Axes: from numbers to shares of a length, and the round numbers that are written beside them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Scale:
    """An axis from `low` to `high`, perhaps logarithmic."""

    low: float
    high: float
    log: bool

    def share(self, value: float) -> float:
        """How far along the axis a value is: 0 at its start, 1 at its end."""
        if self.log:
            return (math.log(value) - math.log(self.low)) / (math.log(self.high) - math.log(self.low))
        return (value - self.low) / (self.high - self.low)

    def holds(self, value: float) -> bool:
        """Whether the axis can show a value at all."""
        return value > 0 if self.log else True

    def widened(self, length: float) -> Scale:
        """The same middle, another length."""
        middle = (self.low + self.high) / 2
        return Scale(middle - length / 2, middle + length / 2, self.log)

    def ticks(self) -> list[tuple[float, str]]:
        """Round numbers on the axis, with their texts.

        >>> [text for _, text in Scale(0.0, 7.3, False).ticks()]
        ['0', '2', '4', '6']
        >>> [text for _, text in Scale(1e-3, 20.0, True).ticks()]
        ['0.001', '0.01', '0.1', '1', '10']
        >>> [text for _, text in Scale(0.25, 0.7, True).ticks()]
        ['0.3', '0.4', '0.5', '0.6', '0.7']
        """
        if self.log:
            first, last = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9)
            every = max(1, math.ceil((last - first + 1) / 6))
            powers = list(range(first, last + 1, every))
            values = [10.0**power for power in powers]
            if len(values) < 2:
                values = [head * 10.0**power for power in range(first - 1, last + 1) for head in (1, 2, 5)]
            shown = [value for value in values if self.low * 0.999 <= value <= self.high * 1.001]
            if len(shown) < 3 and self.high < 10 * self.low:
                return Scale(self.low, self.high, False).ticks()
            return [(value, number(value)) for value in shown]
        step = _round_step(self.high - self.low)
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [(step * place, number(step * place)) for place in range(first, last + 1)]


def scale_of(values: Iterable[float], log: bool) -> Scale:
    """An axis that shows all values with a little room."""
    shown = [value for value in values if math.isfinite(value) and (value > 0 or not log)]
    low, high = (min(shown), max(shown)) if shown else (1.0, 10.0) if log else (0.0, 1.0)
    if log:
        room = max((high / low) ** 0.04, 1.05)
        return Scale(max(low / room, 1e-300), min(high * room, 1e300), True)
    room = 0.04 * (high - low) or max(abs(high) * 0.05, 1e-12) or 1.0
    return Scale(low - room, high + room, False)


def number(value: float) -> str:
    """A number short enough for an axis.

    >>> number(0.30000000000000004), number(12000.0), number(-1e-9), number(0.0)
    ('0.3', '12000', '-1e-9', '0')
    """
    text = f"{value:.4g}" if abs(value) < 1e3 or abs(value) >= 1e6 else f"{value:.0f}"
    if "e" in text:
        head, _, power = text.partition("e")
        return f"{head}e{int(power)}"
    return text


def _round_step(length: float) -> float:
    raw = length / 4.5
    power = 10.0 ** math.floor(math.log10(raw))
    return min((1, 2, 5, 10), key=lambda head: abs(math.log(head * power / raw))) * power
