"""The outputs as a function of one hidden neuron's value at a fixed input: where they are what they are now."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from flint import fmpq

from lawful.fibers.layers import Array, Stack

Rational = Any  # flint.fmpq, whose type the stubs do not tell
Affine = tuple[Rational, Rational]  # p + q t
ZERO = fmpq(0)


@dataclass(frozen=True)
class Interval:
    """`low ≤ t ≤ high`; None is endless."""

    low: Rational | None
    high: Rational | None

    @property
    def is_point(self) -> bool:
        """Whether it is one number."""
        return self.low is not None and self.high is not None and bool(self.low == self.high)

    def contains(self, value: Rational) -> bool:
        """Whether a number lies in it."""
        return (self.low is None or self.low <= value) and (self.high is None or value <= self.high)


def level_set(stack: Stack, layer: int, neuron: int, sums: Sequence[Rational]) -> list[Interval]:
    """All t such that the outputs stay the same when a neuron of hidden layer `layer` (from 0) gives t *less*.

    `sums` are those of the layer above at one input; `stack` is rational. With one number varying, every sum above is
    piecewise affine in it, so the set is a finite union of closed intervals, 0 in one of them.

    >>> from lawful.network import Mlp
    >>> net = Stack.of(Mlp([[[1.0]], [[1.0], [-1.0]], [[1.0, 1.0]]], [None, [0.0, 0.0], None]), exact=True)  # |relu(x)|
    >>> [(str(part.low), str(part.high)) for part in level_set(net, 0, 0, [fmpq(2), fmpq(-2)])]
    [('0', '0'), ('4', '4')]
    """
    column = stack.weights[layer + 1][:, neuron]
    pieces = [(Interval(None, None), [(total, -weight) for total, weight in zip(sums, column, strict=True)])]
    for above in range(layer + 1, stack.hidden):
        slope = fmpq(*float(stack.slopes[above]).as_integer_ratio())
        weight, bias = stack.weights[above + 1], stack.biases[above + 1]
        pieces = [part for piece, lines in pieces for part in _pass_layer(piece, lines, slope, weight, bias)]
    now = [p for p, _ in next(lines for piece, lines in pieces if piece.contains(ZERO))]
    return _join([part for piece, lines in pieces if (part := _where_equal(piece, lines, now)) is not None])


def _pass_layer(
    piece: Interval, lines: list[Affine], slope: Rational, weight: Array, bias: Array
) -> Iterator[tuple[Interval, list[Affine]]]:
    """The sums of the next layer on the parts of a piece where no neuron changes sides, from below upwards.

    From one part to the next only the neurons that change sides change what is passed on.
    """
    cuts: dict[Any, list[int]] = {}
    for number, (p, q) in enumerate(lines):
        if q != 0 and slope != 1 and _is_inside(piece, -p / q):
            cuts.setdefault(-p / q, []).append(number)
    ends = sorted(cuts)
    middle = _middle(piece.low, ends[0] if ends else piece.high)
    active = [bool(p + q * middle > 0) for p, q in lines]
    values = [(p, q) if on else (slope * p, slope * q) for (p, q), on in zip(lines, active, strict=True)]
    above = [
        (
            sum((w * p for w, (p, _) in zip(row, values, strict=True) if w and p), b),
            sum((w * q for w, (_, q) in zip(row, values, strict=True) if w and q), ZERO),
        )
        for row, b in zip(weight, bias, strict=True)
    ]
    low = piece.low
    for end in ends:
        yield Interval(low, end), above
        for number in cuts[end]:
            gain = slope - 1 if active[number] else 1 - slope
            p, q = gain * lines[number][0], gain * lines[number][1]
            above = [(a + row[number] * p, b + row[number] * q) for (a, b), row in zip(above, weight, strict=True)]
        low = end
    yield Interval(low, piece.high), above


def _is_inside(piece: Interval, cut: Rational) -> bool:
    return (piece.low is None or piece.low < cut) and (piece.high is None or cut < piece.high)


def _middle(low: Rational | None, high: Rational | None) -> Rational:
    if low is None:
        return ZERO if high is None else high - 1
    return low + 1 if high is None else (low + high) / 2


def _where_equal(piece: Interval, lines: list[Affine], wanted: list[Rational]) -> Interval | None:
    """Where on a piece all outputs are as wanted: all of it, one point, or nowhere."""
    place = None
    for (p, q), value in zip(lines, wanted, strict=True):
        if q == 0:
            if p != value:
                return None
            continue
        here = (value - p) / q
        if place is not None and place != here:
            return None
        place = here
    if place is None:
        return piece
    return Interval(place, place) if piece.contains(place) else None


def _join(parts: list[Interval]) -> list[Interval]:
    """Pieces come in order from below; those that touch are one."""
    intervals: list[Interval] = []
    for part in parts:
        if intervals and intervals[-1].high is not None and part.low is not None and intervals[-1].high == part.low:
            part = Interval(intervals.pop().low, part.high)
        intervals.append(part)
    return intervals
