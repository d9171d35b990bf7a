"""Regions in many dimensions: a tree of activation patterns, one linear program where no known point decides.

Idea: go through the neurons layer by layer. On the region of the pattern so far each neuron is affine; both of its
sides are continued that contain an open part of the region. Most questions are answered by the known inner point of
the region (it is on one side for sure), the rest by a linear program for the widest ball on the other side.

Invariant: a branch is dropped only when it is shown to be empty in rationals. Floats propose: a point counts as inside
only if its values exceed their error bounds (`value_of`), and where floats find none, the supporting half-spaces are
tested exactly (Farkas), then all of them (`common_point`). So no region is lost to rounding, and none is invented.

Cost: at most one linear program for each neuron and region, warm-started, since a branch changes one row of it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from lawful.exact.feasibility import InnerPoint, common_point
from lawful.fibers.layers import Array, Stack, floating, input_scales, rational
from lawful.fibers.regions.cell import UNIT, AffineMaps, AffineRows, Bits, Cell, OutOfTime
from lawful.fibers.regions.domain import Domain
from lawful.fibers.regions.half_spaces import Polyhedron, empties, walls
from lawful.types import Floats


def walk(stack: Stack, domain: Domain, deadline: float | None) -> Iterator[Cell]:
    """All regions; inputs are measured in their natural units meanwhile."""
    scales = input_scales(stack)
    units = rational(scales) if stack.exact else scales
    scaled = stack.with_layer(0, weight=stack.weights[0] * units)
    plain = bool((scales == scales[0]).all() and scales[0] == 1.0)
    inner = Domain(domain.low / scales, domain.high / scales)
    search = _Walk(scaled, inner, deadline)
    for pattern, where, half_spaces, below in search.start():
        last = search.maps.last(below, pattern)
        rows = np.array([half.unit for half in half_spaces]).reshape(len(half_spaces), len(scales) + 1)
        if not plain:
            rows[:, :-1] /= scales
            rows /= np.sqrt((rows[:, :-1] ** 2).sum(axis=1, keepdims=True))
        point = where * scales
        radius = float((rows[:, :-1] @ point + rows[:, -1]).min(initial=np.inf))
        names = tuple((half.layer, half.neuron) for half in half_spaces)
        yield Cell(pattern, point, radius, rows, names, last[:, :-1] / scales, last[:, -1])


def patterns(stack: Stack, domain: Domain, deadline: float | None) -> Iterator[tuple[Bits, ...]]:
    """The activation patterns of all regions, without what else is known of them."""
    scales = input_scales(stack)
    units = rational(scales) if stack.exact else scales
    scaled = stack.with_layer(0, weight=stack.weights[0] * units)
    inner = Domain(domain.low / scales, domain.high / scales)
    return (region[0] for region in _Walk(scaled, inner, deadline).start())


class _HalfSpace(NamedTuple):
    """One side of a neuron: `sign · row ≥ 0`, and the same at length one."""

    values: Floats
    error: Floats
    unit: Floats
    layer: int
    neuron: int
    sign: int


Found = tuple[tuple[Bits, ...], Floats, list[_HalfSpace], AffineRows]  # the last: sums of the last hidden layer


class _Walk:
    """The depth-first search; holds what all branches share.

    A known point is one of floats that was shown to lie strictly inside; it is None where only a rational one does.
    """

    def __init__(self, stack: Stack, domain: Domain, deadline: float | None) -> None:
        self.maps, self.domain, self.deadline = AffineMaps(stack), domain, deadline
        self.polyhedron = Polyhedron(domain)
        self.walls = walls(domain)
        self.pushed: list[_HalfSpace] = []
        self.values, self.errors = np.zeros((2, 64, stack.widths[0] + 1))
        self.known: dict[int, dict[bool, Bits]] = {}  # per layer: sides that the signs of its weights rule out

    def start(self) -> Iterator[Found]:
        """From the whole domain."""
        yield from self.layer(0, self.maps.inputs(), (), self.domain.centre())

    def layer(self, number: int, below: AffineRows, pattern: tuple[Bits, ...], point: Floats | None) -> Iterator[Found]:
        """Continue with a layer, given the sums of the one below as functions on the region."""
        if number == self.maps.stack.hidden:
            where = self.polyhedron.widest()[1] if point is None else point
            yield pattern, where, self.pushed, below
            return
        rows = self.maps.layer(number, self.maps.activate(number - 1, below, pattern[-1]) if number else below)
        errors = widen_errors(rows.values, rows.error)
        self.known[number] = self.ruled_out(number, pattern)
        yield from self.neuron(number, rows, errors, np.zeros(len(rows.values), dtype=bool), 0, pattern, point)

    def neuron(
        self,
        number: int,
        rows: AffineRows,
        errors: Floats,
        bits: Bits,
        at: int,
        pattern: tuple[Bits, ...],
        point: Floats | None,
    ) -> Iterator[Found]:
        """Decide one neuron after the other; split where both sides have a point."""
        if point is not None:
            values, bounds = value_of(rows.values, errors, point)
            sure = np.abs(values) > bounds
        while at < len(bits):
            if self.maps.slopes[number][at] == 1.0:  # it has no sides
                bits[at] = True
                at += 1
                continue
            sides: dict[bool, Floats | None] = {}
            if point is not None and sure[at]:
                sides[bool(values[at] > 0)] = point
            elif self.is_constant(rows, number, at, pattern):
                bits[at] = bool(self.maps.exact(number, pattern)[at][-1] > 0)
                at += 1
                continue
            halves = {}
            for active in (True, False):
                if active not in sides and not self.known[number][active][at]:
                    halves[active] = self.half_space(rows, number, at, active)
                    self.find(halves[active], pattern, sides)
            if len(sides) == 2:
                break
            bits[at] = next(iter(sides))
            at += 1
        if at == len(bits):
            yield from self.layer(number + 1, rows, (*pattern, bits), point)
            return
        for active in (True, False):
            chosen = bits.copy()
            chosen[at] = active
            half = halves[active] if active in halves else self.half_space(rows, number, at, active)
            self.push(half)
            self.polyhedron.push(half.unit)
            yield from self.neuron(number, rows, errors, chosen, at + 1, pattern, sides[active])
            self.polyhedron.pop()
            self.pushed.pop()

    def ruled_out(self, number: int, pattern: tuple[Bits, ...]) -> dict[bool, Bits]:
        """Neurons that cannot be active, and that cannot be inactive, whatever the layer below is on the region.

        What active neurons pass on is not negative, what others do is not positive: signs of weights decide. Neurons
        that do not bend pass on either.
        """
        stack = self.maps.stack
        if number == 0 or self.maps.source.exact:
            none = np.zeros(stack.widths[number + 1], dtype=bool)
            return {True: none, False: none}
        slopes = self.maps.slopes[number - 1]
        terms = stack.weights[number] * np.where(pattern[-1], 1.0, -slopes)
        terms[(stack.weights[number] != 0) & (slopes == 1.0)] = np.nan
        bias = stack.biases[number]
        return {
            True: (terms <= 0).all(axis=1) & (bias <= 0),
            False: (terms >= 0).all(axis=1) & (bias >= 0),
        }

    def push(self, half: _HalfSpace) -> None:
        """Remember a half-space, its numbers side by side with the others'."""
        place = len(self.pushed)
        if place == len(self.values):
            self.values, self.errors = (np.concatenate([part, part]) for part in (self.values, self.errors))
        self.values[place], self.errors[place] = half.values, widen_errors(half.values, half.error)
        self.pushed.append(half)

    def half_space(self, rows: AffineRows, number: int, at: int, active: bool) -> _HalfSpace:
        """One side of a neuron."""
        row, sign = rows.values[at], 1 if active else -1
        length = math.sqrt(row[:-1] @ row[:-1])
        return _HalfSpace(sign * row, rows.error[at], row * (sign / length) if length else row, number, at, sign)

    def is_constant(self, rows: AffineRows, number: int, at: int, pattern: tuple[Bits, ...]) -> bool:
        """Whether the function has no slope at all."""
        if (np.abs(rows.values[at, :-1]) > rows.error[at, :-1]).any():
            return False
        return all(item == 0 for item in self.maps.exact(number, pattern)[at][:-1])

    def find(self, half: _HalfSpace, pattern: tuple[Bits, ...], sides: dict[bool, Floats | None]) -> None:
        """Add a point of the region inside a half-space, unless there is none."""
        if self.deadline is not None and time.perf_counter() > self.deadline:
            raise OutOfTime
        self.push(half)
        support: list[int] = []
        if half.unit[:-1].any():
            self.polyhedron.push(half.unit)
            radius, where = self.polyhedron.widest()
            if radius > 0 and self.inside(where):
                sides[half.sign > 0] = where
            else:
                support = self.polyhedron.support()
            self.polyhedron.pop()
        if (half.sign > 0) not in sides and not empties([self.exact(place, pattern) for place in support]):
            every = (self.exact(place, pattern) for place in range(len(self.walls) + len(self.pushed)))
            meeting = common_point([list(row) for row in every])
            if isinstance(meeting, InnerPoint):
                point = floating(np.array(meeting.point, dtype=object))
                sides[half.sign > 0] = point if self.inside(point) else None
        self.pushed.pop()

    def exact(self, place: int, pattern: tuple[Bits, ...]) -> Array:
        """A wall or a half-space in rationals."""
        if place < len(self.walls):
            return self.walls[place]
        half = self.pushed[place - len(self.walls)]
        row: Array = self.maps.exact(half.layer, pattern)[half.neuron]
        return row if half.sign > 0 else -row

    def inside(self, point: Floats) -> bool:
        """Whether floats show that a point is strictly inside all half-spaces and the domain."""
        if not np.isfinite(point).all() or not ((point > self.domain.low) & (point < self.domain.high)).all():
            return False
        count = len(self.pushed)
        values, bounds = value_of(self.values[:count], self.errors[:count], point)
        return bool((values > bounds).all())


def widen_errors(values: Floats, error: Floats) -> Floats:
    """The errors of coefficients, and what rounding a sum of their products may add to them."""
    return np.asarray(error + (values.shape[-1] + 3) * UNIT * np.abs(values))


def value_of(rows: Floats, errors: Floats, point: Floats) -> tuple[Floats, Floats]:
    """Values at a point of floats, and how far they may be from the true ones; errors as `loosened` makes them."""
    bounds = errors[:, :-1] @ np.abs(point) + errors[:, -1]
    return rows[:, :-1] @ point + rows[:, -1], np.asarray(bounds * (1 + 16 * UNIT))
