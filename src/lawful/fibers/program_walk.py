"""Regions in many dimensions: a tree of activation patterns, one linear program where no known point decides."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from lawful.exact.half_spaces import InnerPoint, common_point
from lawful.fibers.affine_maps import UNIT, AffineMaps, Bits, Rows
from lawful.fibers.cell import Cell, OutOfTime
from lawful.fibers.domain import Domain
from lawful.fibers.polyhedra import Polyhedron, empties, walls
from lawful.fibers.scales import input_scales
from lawful.fibers.stack import Array, Stack, floating, rational
from lawful.types import Floats


def walk(stack: Stack, domain: Domain, deadline: float | None) -> Iterator[Cell]:
    """All regions; inputs are measured in their natural units meanwhile."""
    scales = input_scales(stack)
    units = rational(scales) if stack.exact else scales
    scaled = stack.replaced(0, weight=stack.weights[0] * units)
    inner = Domain(domain.low / scales, domain.high / scales)
    for cell in _Walk(scaled, inner, deadline).start():
        rows = cell.rows.copy()
        rows[:, :-1] /= scales
        lengths = np.sqrt((rows[:, :-1] ** 2).sum(axis=1, keepdims=True))
        rows, point = rows / lengths, cell.point * scales
        radius = float((rows[:, :-1] @ point + rows[:, -1]).min(initial=np.inf))
        yield replace(cell, point=point, radius=radius, rows=rows, matrix=cell.matrix / scales)


class _Walk:
    """The depth-first search; holds what all branches share.

    `points` are float points, which must be shown to lie strictly inside; None where only a rational one does.
    """

    def __init__(self, stack: Stack, domain: Domain, deadline: float | None) -> None:
        self.maps, self.domain, self.deadline = AffineMaps(stack), domain, deadline
        self.polyhedron = Polyhedron(domain)
        self.walls = walls(domain)
        self.pushed: list[tuple[Rows, int, int, int]] = []  # row, layer, neuron, +1 or -1

    def start(self) -> Iterator[Cell]:
        """From the whole domain."""
        yield from self.layer(0, self.maps.inputs(), (), self.domain.centre())

    def layer(self, number: int, below: Rows, pattern: tuple[Bits, ...], point: Floats | None) -> Iterator[Cell]:
        """Continue with a layer whose inputs are these functions on the region."""
        rows = self.maps.layer(number, below)
        if number == self.maps.stack.hidden:
            yield self.cell(rows, pattern, point)
            return
        yield from self.neuron(number, rows, np.zeros(len(rows.values), dtype=bool), 0, pattern, point)

    def cell(self, last: Rows, pattern: tuple[Bits, ...], point: Floats | None) -> Cell:
        """The region of all that was pushed."""
        where = self.polyhedron.widest()[1] if point is None else point
        sides = [sign * row.values / np.linalg.norm(row.values[:-1]) for row, _, _, sign in self.pushed]
        rows = np.array(sides).reshape(len(sides), len(where) + 1)
        names = tuple((layer, neuron) for _, layer, neuron, _ in self.pushed)
        return Cell(pattern, where, 0.0, rows, names, last.values[:, :-1], last.values[:, -1])

    def neuron(
        self, number: int, rows: Rows, bits: Bits, at: int, pattern: tuple[Bits, ...], point: Floats | None
    ) -> Iterator[Cell]:
        """Decide one neuron after the other; split where both sides have a point."""
        while at < len(bits):
            row = rows[at]
            sides = {} if point is None else self.known(row, point)
            if not sides and self.is_constant(row, number, at, pattern):
                bits[at] = bool(self.maps.exact(number, pattern)[at][-1] > 0)
                at += 1
                continue
            for active in (True, False):
                if active not in sides:
                    self.find(row, number, at, active, pattern, sides)
            if len(sides) == 2:
                break
            bits[at] = next(iter(sides))
            at += 1
        if at == len(bits):
            yield from self.layer(number + 1, self.maps.activate(number, rows, bits), (*pattern, bits), point)
            return
        unit = row.values / np.linalg.norm(row.values[:-1])
        for active in (True, False):
            chosen = bits.copy()
            chosen[at] = active
            self.polyhedron.push(unit if active else -unit)
            self.pushed.append((row, number, at, 1 if active else -1))
            yield from self.neuron(number, rows, chosen, at + 1, pattern, sides[active])
            self.pushed.pop()
            self.polyhedron.pop()

    def known(self, row: Rows, point: Floats) -> dict[bool, Floats | None]:
        """The side on which a point inside lies, if floats can tell."""
        value, bound = _value(row, point)
        return {bool(value > 0): point} if abs(value) > bound else {}

    def is_constant(self, row: Rows, number: int, at: int, pattern: tuple[Bits, ...]) -> bool:
        """Whether the function has no slope at all."""
        if (np.abs(row.values[:-1]) > row.error[:-1]).any():
            return False
        return all(item == 0 for item in self.maps.exact(number, pattern)[at][:-1])

    def find(
        self, row: Rows, number: int, at: int, active: bool, pattern: tuple[Bits, ...],
        sides: dict[bool, Floats | None],
    ) -> None:  # fmt: skip
        """Add a point on one side of the neuron, unless there is none."""
        if self.deadline is not None and time.perf_counter() > self.deadline:
            raise OutOfTime
        sign = 1 if active else -1
        length = float(np.linalg.norm(row.values[:-1]))
        support: list[int] = []
        if length > 0:
            self.polyhedron.push(sign * row.values / length)
            radius, where = self.polyhedron.widest()
            support = self.polyhedron.support() if radius < 1 else []
            self.polyhedron.pop()
            if radius > 0 and self.inside(where, [*self.pushed, (row, number, at, sign)]):
                sides[active] = where
                return
        exact = [*self.walls, *(self.exact(item, pattern) for item in [*self.pushed, (row, number, at, sign)])]
        if empties(exact, support):
            return
        found = common_point([list(half) for half in exact])
        if isinstance(found, InnerPoint):
            point = floating(np.array(found.point, dtype=object))
            sides[active] = point if self.inside(point, [*self.pushed, (row, number, at, sign)]) else None

    def exact(self, item: tuple[Rows, int, int, int], pattern: tuple[Bits, ...]) -> Array:
        """A half-space in rationals."""
        _, number, neuron, sign = item
        found: Array = self.maps.exact(number, pattern)[neuron] * sign
        return found

    def inside(self, point: Floats, sides: list[tuple[Rows, int, int, int]]) -> bool:
        """Whether floats show that a point is strictly inside all half-spaces and the domain."""
        if not np.isfinite(point).all() or not ((point > self.domain.low) & (point < self.domain.high)).all():
            return False
        values = np.array([sign * row.values for row, _, _, sign in sides])
        error = np.array([row.error for row, _, _, _ in sides])
        value, bound = _value(Rows(values, error), point)
        return bool((value > bound).all())


def _value(rows: Rows, point: Floats) -> tuple[Floats, Floats]:
    """Values at a point of floats, and how far they may be from the true ones."""
    whole = np.append(point, 1.0)
    sizes = np.abs(whole)
    bound = (rows.error + (len(whole) + 3) * UNIT * np.abs(rows.values)) @ sizes
    return np.asarray(rows.values @ whole), np.asarray(bound * (1 + 16 * UNIT))
