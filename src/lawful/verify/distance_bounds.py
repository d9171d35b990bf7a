"""Bounds of the difference of two networks on a box, in integers, every rounding outwards.

Values have `point` binary places, slopes have `BITS`. Lower and upper affine forms in the input go forward through both
networks and their difference; for neurons of unknown sign a linear function is substituted backwards through the layers
below. φ is convex and rises by at least its slope and at most 1: that makes the lines true for any slopes chosen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor
from typing import NamedTuple

import numpy as np

from lawful.verify.distance_layers import FixedMatrix, Integers, Shared

BITS = 30
ONE = 1 << BITS
VERSIONS = ("low", "flat")  # slopes of lines below φ
Ends = list[Integers]  # lower and upper ends of y, z and d


class Line(NamedTuple):
    """Per neuron: slopes of lines below φ through 0 (`low`, `flat`), and of a line above it with its shift."""

    low: Integers
    flat: Integers
    high: Integers
    shift: Integers


class Plane(NamedTuple):
    """Per neuron a plane above or below `φ(z) − φ(y)`: coefficients of d and of y, and a shift."""

    d: Integers
    y: Integers
    shift: Integers


@dataclass(frozen=True, eq=False)
class Known:
    """What is known of a hidden layer."""

    f: Line
    g: Line
    below: Plane
    above: Plane
    sizes: tuple[int, int, int]  # sums over the neurons of the largest |y|, |z| and |d|; activations are no larger


class IntegerForm(NamedTuple):
    """A form below and one above each neuron, (neurons, 1 + inputs): the constant, then a coefficient per input."""

    low: Integers
    high: Integers


def gaps(layers: Sequence[Shared], box: Sequence[tuple[Fraction, Fraction]], point: int) -> list[int]:
    """An upper bound of `|g − f|` for each output, with `point` binary places."""
    inputs = len(box)
    start = np.zeros((inputs, 1 + inputs), dtype=object)
    for number, (low, high) in enumerate(box):
        start[number, 0] = floor((low + high) / 2 * (1 << point))
        start[number, 1 + number] = ceil((high - low) / 2 * (1 << point)) + 1
    h = k = IntegerForm(start, start)
    D = IntegerForm(start * 0, start * 0)
    known: list[Known] = []
    for number, layer in enumerate(layers):
        y = _affine([(layer.W, h)], layer.b, point)
        z = _affine([(layer.V, k)], layer.c, point)
        d = _affine([(layer.V, D), (layer.E, h)], layer.e, point)
        if number:
            d = IntegerForm(_pick([d.low, z.low - y.high], -1), _pick([d.high, z.high - y.low], 1))
        ends = _tightened([end for form in (y, z, d) for end in (_least(form.low), _greatest(form.high))])
        if number == len(layers) - 1:
            return _outputs(layers, known, start, point, ends)
        if number:
            ends = _refined(layers[: number + 1], known, start, point, ends)
        f, g = _lines(ends[0], ends[1], layer.slopes), _lines(ends[2], ends[3], layer.slopes)
        rise, fall = _lines(ends[4], ends[5], layer.slopes), _lines(-ends[5], -ends[4], layer.slopes)
        sizes = [int(np.maximum(abs(ends[at]), abs(ends[at + 1])).sum()) for at in (0, 2, 4)]
        known.append(Known(f, g, *_planes(ends, f, g, rise, fall), (sizes[0], sizes[1], sizes[2])))
        h, k, D = _activated(y, z, d, f, g, rise, fall)
    raise AssertionError("a network has at least one layer")


# Forms


def _affine(parts: list[tuple[FixedMatrix, IntegerForm]], bias: Integers, point: int) -> IntegerForm:
    """`Σ A v + bias`: twice the middle times A, plus and minus the width times |A|, less what rounding A changed."""
    middle, width, loss = _none(bias, parts), _none(bias, parts), 2
    for matrix, form in parts:
        middle = middle + matrix.times(form.low + form.high)
        if form.low is not form.high:
            width = width + matrix.times(form.high - form.low, size=True)
        if matrix.loose:
            loss += 2 * int(np.maximum(abs(form.low), abs(form.high)).sum())
    low, high = middle - width, middle + width
    low[:, 0] += 2 * bias - loss
    high[:, 0] += 2 * bias + loss
    return IntegerForm(_down(low, point + 1), _up(high, point + 1))


def _none(bias: Integers, parts: list[tuple[FixedMatrix, IntegerForm]]) -> Integers:
    return np.zeros((len(bias), parts[0][1].low.shape[1]), dtype=object)


def _down(form: Integers, places: int) -> Integers:
    """Fewer binary places; each coefficient loses less than one unit, and t may have either sign."""
    found = form >> places
    found[:, 0] -= form.shape[1]
    return found


def _up(form: Integers, places: int) -> Integers:
    return -_down(-form, places)


def _least(form: Integers) -> Integers:
    return np.asarray(form[:, 0] - abs(form[:, 1:]).sum(axis=1))


def _greatest(form: Integers) -> Integers:
    return np.asarray(form[:, 0] + abs(form[:, 1:]).sum(axis=1))


def _below(form: Integers, slope: Integers, shift: Integers | int = 0) -> Integers:
    """`slope · form − shift`, rounded down."""
    found = _down(form * slope[:, None], BITS)
    found[:, 0] -= shift
    return found


def _above(form: Integers, slope: Integers, shift: Integers | int = 0) -> Integers:
    """`slope · form + shift`, rounded up."""
    return -_below(-form, slope, shift)


def _pick(choices: list[Integers], sign: int) -> Integers:
    """Of forms that are all true, the one that is best in the middle of the box."""
    best = choices[0]
    for other in choices[1:]:
        better = np.array(sign * other[:, 0] < sign * best[:, 0], dtype=bool)
        best = np.where(better[:, None], other, best)
    return best


def _activated(
    y: IntegerForm, z: IntegerForm, d: IntegerForm, f: Line, g: Line, rise: Line, fall: Line
) -> tuple[IntegerForm, IntegerForm, IntegerForm]:
    h = IntegerForm(_below(y.low, f.low), _above(y.high, f.high, f.shift))
    k = IntegerForm(_below(z.low, g.low), _above(z.high, g.high, g.shift))
    above = [
        _above(d.high, rise.high, rise.shift),
        k.high - h.low,
        d.high + _above(-z.low, ONE - g.high, g.shift) + _above(y.high, ONE - f.low),
    ]
    below = [
        _below(d.low, fall.high, fall.shift),
        k.low - h.high,
        d.low + _below(y.low, ONE - f.high, f.shift) + _below(-z.high, ONE - g.low),
    ]
    return h, k, IntegerForm(_pick(below, -1), _pick(above, 1))


# Lines and planes


def _tightened(ends: Ends) -> Ends:
    """`d = z − y` cuts each of the three intervals."""
    y_low, y_high, z_low, z_high, d_low, d_high = ends
    d_low, d_high = np.maximum(d_low, z_low - y_high), np.minimum(d_high, z_high - y_low)
    y_low, y_high = np.maximum(y_low, z_low - d_high), np.minimum(y_high, z_high - d_low)
    z_low, z_high = np.maximum(z_low, y_low + d_low), np.minimum(z_high, y_high + d_high)
    return [y_low, y_high, z_low, z_high, d_low, d_high]


def _lines(low: Integers, high: Integers, slopes: Sequence[Fraction]) -> Line:
    found = [_line(int(left), int(right), slope) for left, right, slope in zip(low, high, slopes, strict=True)]
    return Line(*(np.array(column, dtype=object) for column in zip(*found, strict=True)))


def _line(low: int, high: int, slope: Fraction) -> tuple[int, int, int, int]:
    """Slopes at `BITS` places: below φ any between its slope and 1; above φ any, with the shift that both ends need."""
    leak = ceil(slope * ONE)
    if low >= 0 or leak == ONE:
        return ONE, ONE, ONE, 0
    bent = high > 0
    base = ONE if bent and high > -low else leak
    steep = leak + (ONE - leak) * high // (high - low) if bent else leak
    if not slope:
        return base, leak, steep, -(-max(-steep * low, (ONE - steep) * high, 0) >> BITS) if bent else 0
    needed = (end * (slope if end < 0 else 1) - Fraction(steep * end, ONE) for end in (low, high))
    return base, leak, steep, ceil(max(*needed, Fraction(0)))


def _planes(ends: Ends, f: Line, g: Line, rise: Line, fall: Line) -> tuple[Plane, Plane]:
    y, d = ends[0] + ends[1], ends[4] + ends[5]  # twice the middle
    none = rise.high * 0
    above = (Plane(g.high, g.high - f.low, g.shift), Plane(rise.high, none, rise.shift))
    below = (Plane(g.low, g.low - f.high, -f.shift), Plane(fall.high, none, -fall.shift))
    found = []
    for sign, (one, other) in ((-1, below), (1, above)):
        here, there = (sign * (each.d * d + each.y * y + 2 * ONE * each.shift) for each in (one, other))
        chosen = np.array(there < here, dtype=bool)
        found.append(Plane(*(np.where(chosen, theirs, ours) for theirs, ours in zip(other, one, strict=True))))
    return found[0], found[1]


# Backwards


class _Sum:
    """A lower bound in the making: a constant with `3 · point` places, from which every loss is taken."""

    def __init__(self, rows: int, point: int) -> None:
        self.constant = np.array([0] * rows, dtype=object)
        self.point = point

    def enter(self, rows: Integers, bias: Integers, parts: Sequence[tuple[Integers, FixedMatrix, int]]) -> None:
        """`rows · bias`, less what rounding the bias and the matrices may change; each part: rows, matrix, size."""
        self.constant = self.constant + rows @ bias - abs(rows).sum(axis=1)
        for left, matrix, size in parts:
            if matrix.loose:
                self.constant = self.constant - abs(left).sum(axis=1) * size

    def shift(self, rows: Integers, by: Integers) -> None:
        """`rows · by`."""
        self.constant = self.constant + (rows @ by) * (1 << self.point)

    def lose(self, size: int) -> None:
        """One unit of each coefficient, of things that are together no larger than this."""
        self.constant = self.constant - (size << self.point)

    def least(self, rows: Integers, start: Integers) -> Integers:
        """The lower bound over the box, for rows on the input with `2 · point` places."""
        radius = start[:, 1:].sum(axis=1)
        return np.asarray((self.constant + rows @ start[:, 0] - abs(rows) @ radius) >> 2 * self.point)


def _single(
    matrices: Sequence[FixedMatrix],
    biases: Sequence[Integers],
    lines: Sequence[Line],
    sizes: Sequence[int],
    rows: Integers,
    total: _Sum,
    version: str,
) -> Integers:
    """Rows on the last layer of one network become rows on the input, with twice the places."""
    for number in range(len(matrices) - 1, -1, -1):
        total.enter(rows, biases[number], [(rows, matrices[number], sizes[number])])
        wide = matrices[number].under(rows)
        if not number:
            return wide
        rows = wide >> total.point
        total.lose(sizes[number])
        line = lines[number - 1]
        negative = np.minimum(rows, 0)
        total.shift(negative, line.shift)
        rows = ((rows - negative) * getattr(line, version) + negative * line.high) >> BITS
        total.lose(sizes[number])
    raise AssertionError("a network has at least one layer")


def _paired(
    layers: Sequence[Shared], known: Sequence[Known], sizes: list[list[int]], rows: Integers, total: _Sum
) -> Integers:
    """Rows on `z − y` at the last layer become rows on the input, with twice the places."""
    on_d, on_y = rows, rows * 0
    for number in range(len(layers) - 1, -1, -1):
        layer = layers[number]
        f, _, difference = sizes[number]
        total.enter(on_d, layer.e, [(on_d, layer.V, difference), (on_d, layer.E, f)])
        total.enter(on_y, layer.b, [(on_y, layer.W, f)])
        on_h, on_D = layer.E.under(on_d) + layer.W.under(on_y), layer.V.under(on_d)
        if not number:
            return on_h
        on_h, on_D = on_h >> total.point, on_D >> total.point
        total.lose(2 * f + 2 * difference)
        here = known[number - 1]
        negative = np.minimum(on_h, 0)
        total.shift(negative, here.f.shift)
        on_y = (on_h - negative) * here.f.low + negative * here.f.high
        negative = np.minimum(on_D, 0)
        positive = on_D - negative
        total.shift(positive, here.below.shift)
        total.shift(negative, here.above.shift)
        on_y = (on_y + positive * here.below.y + negative * here.above.y) >> BITS
        on_d = (positive * here.below.d + negative * here.above.d) >> BITS
    raise AssertionError("a network has at least one layer")


def _sizes(known: Sequence[Known], start: Integers) -> list[list[int]]:
    """For each layer the sum of the sizes of what enters it: from f, from g, and their difference."""
    inputs = int(abs(start).sum())
    return [[inputs, inputs, 0], *(list(each.sizes) for each in known)]


def _refined(layers: Sequence[Shared], known: list[Known], start: Integers, point: int, ends: Ends) -> Ends:
    """Backward bounds for the neurons whose sign is not known."""
    y_low, y_high, z_low, z_high = ends[:4]
    bent = np.array(((y_low < 0) & (y_high > 0)) | ((z_low < 0) & (z_high > 0)), dtype=bool)
    chosen = np.flatnonzero(bent)
    if not len(chosen):
        return ends
    unit = np.zeros((2 * len(chosen), len(bent)), dtype=object)
    for number, neuron in enumerate(chosen):
        unit[number, neuron], unit[len(chosen) + number, neuron] = 1 << point, -(1 << point)
    sizes = _sizes(known, start)
    found = []
    for matrices, biases, lines, which in (
        ([each.W for each in layers], [each.b for each in layers], [each.f for each in known], 0),
        ([each.V for each in layers], [each.c for each in layers], [each.g for each in known], 1),
    ):
        best = None
        for version in VERSIONS:
            total = _Sum(len(unit), point)
            rows = _single(matrices, biases, lines, [each[which] for each in sizes], unit, total, version)
            here = total.least(rows, start)
            best = here if best is None else np.maximum(best, here)
        found.append(best)
    total = _Sum(len(unit), point)
    found.append(total.least(_paired(layers, known, sizes, unit, total), start))
    ends = [end.copy() for end in ends]
    for number, bounds in enumerate(found):
        assert bounds is not None  # noqa: S101
        low, high = ends[2 * number], ends[2 * number + 1]
        low[chosen] = np.maximum(low[chosen], bounds[: len(chosen)])
        high[chosen] = np.minimum(high[chosen], -bounds[len(chosen) :])
    return _tightened(ends)


def _outputs(layers: Sequence[Shared], known: list[Known], start: Integers, point: int, ends: Ends) -> list[int]:
    """The best of three bounds: forms, backwards through the difference, backwards through the two networks."""
    count = len(ends[4])
    unit = np.zeros((2 * count, count), dtype=object)
    for number in range(count):
        unit[number, number], unit[count + number, number] = 1 << point, -(1 << point)
    sizes = _sizes(known, start)
    total = _Sum(len(unit), point)
    joint = total.least(_paired(layers, known, sizes, unit, total), start)
    total = _Sum(len(unit), point)
    rows = _single(
        [each.W for each in layers], [each.b for each in layers], [each.f for each in known],
        [each[0] for each in sizes], -unit, total, "low",
    ) + _single(
        [each.V for each in layers], [each.c for each in layers], [each.g for each in known],
        [each[1] for each in sizes], unit, total, "low",
    )  # fmt: skip
    best = np.maximum(joint, total.least(rows, start))
    low, high = np.maximum(ends[4], best[:count]), np.minimum(ends[5], -best[count:])
    return [max(int(top), -int(bottom), 0) for bottom, top in zip(low, high, strict=True)]
