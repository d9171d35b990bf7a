"""The regions of a ReLU network, one linear program per branch of a tree of activation patterns."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import highspy
import numpy as np
from numpy.typing import NDArray

from lawful.fibers.domain import Domain
from lawful.fibers.stack import Stack
from lawful.types import Floats

MARGIN = 1e-8  # a region in which no ball of this radius fits is taken for empty
SAME = 1e-11  # unit rows this close are one hyperplane
Bits = NDArray[np.bool_]


class OutOfTime(Exception):
    """The time limit ended a search; its caller turns it into *undecided*."""


@dataclass(frozen=True, eq=False)
class Cell:
    """A full-dimensional region: the points with `rows[k]·(x, 1) ≥ 0` for all k, one row per hidden neuron that cuts.

    `pattern[l]` says which neurons of hidden layer l are active; `matrix x + offset` is the network here;
    `point` lies inside, at distance at least `radius` from every side (1 if more).
    """

    pattern: tuple[Bits, ...]
    point: Floats
    radius: float
    rows: Floats
    neurons: tuple[tuple[int, int], ...]
    matrix: Floats
    offset: Floats

    @property
    def key(self) -> bytes:
        """The activation pattern as bytes."""
        return np.concatenate(self.pattern).tobytes() if self.pattern else b""


class Polyhedron:
    """A stack of half-spaces `row·(x, 1) ≥ 0` with a linear program that remembers its last basis.

    The program asks for the centre of the largest ball (radius at most 1) inside all of them.
    """

    def __init__(self, domain: Domain) -> None:
        self.dimension = len(domain.low)
        self.solver = highspy.Highs()
        self.solver.setOptionValue("output_flag", False)
        self.solver.setOptionValue("threads", 1)
        self.solver.setOptionValue("primal_feasibility_tolerance", 1e-9)
        self.solver.setOptionValue("dual_feasibility_tolerance", 1e-9)
        self.columns = np.arange(self.dimension + 1, dtype=np.int32)
        infinity = highspy.kHighsInf
        for _ in range(self.dimension):
            self.solver.addCol(0.0, -infinity, infinity, 0, [], [])
        self.solver.addCol(-1.0, -infinity, 1.0, 0, [], [])
        self.rows = 0
        self.units = np.zeros((64, self.dimension + 1))
        for k in range(self.dimension):  # a ball inside the box keeps its radius away from the walls
            for sign, end in ((1.0, -domain.low[k]), (-1.0, domain.high[k])):
                if np.isfinite(end):
                    row = np.zeros(self.dimension + 1)
                    row[k], row[-1] = sign, end
                    self.push(row)

    def push(self, row: Floats) -> None:
        """Add a half-space; `row[:-1]` has length one."""
        values = row.copy()
        values[-1] = -1.0
        self.solver.addRow(-row[-1], highspy.kHighsInf, len(values), self.columns, values)
        if self.rows == len(self.units):
            self.units = np.concatenate([self.units, np.zeros_like(self.units)])
        self.units[self.rows] = row
        self.rows += 1

    def pop(self) -> None:
        """Remove the last half-space."""
        self.rows -= 1
        self.solver.deleteRows(1, np.array([self.rows], dtype=np.int32))

    def bounded_by(self, row: Floats) -> bool:
        """Whether a half-space ends on the same hyperplane, so that the polyhedron lies on one side of it."""
        known = self.units[: self.rows]
        scale = SAME * (1.0 + abs(row[-1]))
        return bool((np.minimum(np.abs(known - row).max(axis=1), np.abs(known + row).max(axis=1)) <= scale).any())

    def support(self) -> list[int]:
        """The half-spaces that keep the last ball from growing: those with a positive multiplier."""
        return [int(k) for k in np.flatnonzero(np.array(self.solver.getSolution().row_dual) > 1e-9)]

    def widest(self) -> tuple[float, Floats]:
        """Radius (negative if there is no point) and centre of the largest ball."""
        self.solver.run()
        values = np.array(self.solver.getSolution().col_value)
        if self.solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            return -1.0, values[:-1]
        return float(values[-1]), values[:-1]


def cells(
    stack: Stack, domain: Domain | None = None, *, margin: float = MARGIN, deadline: float | None = None
) -> Iterator[Cell]:
    """All regions, lazily, in any dimension, over all of space or a box (P4 Section 3: the canonical complex).

    Layer by layer, neuron by neuron: a neuron splits a region if a ball fits on both sides. The side of the known
    interior point is free, the other costs one linear program, warm-started. Raises `OutOfTime` past the deadline.

    >>> from lawful.network import Mlp
    >>> lines = Mlp([[[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], [[1.0, 1.0, 1.0]]], [[0.0, 0.0, -1.0], [0.0]])
    >>> len(list(cells(Stack.of(lines))))
    7
    """
    stack = stack.floating()
    domain = Domain.space(stack.widths[0]) if domain is None else domain
    polyhedron = Polyhedron(domain)
    radius, point = polyhedron.widest()
    yield from walk_cells(stack, polyhedron, point, radius, margin, deadline)


def walk_cells(
    stack: Stack, polyhedron: Polyhedron, point: Floats, radius: float, margin: float, deadline: float | None
) -> Iterator[Cell]:
    """The regions inside a polyhedron with a known interior point; while one is looked at, its sides stay pushed."""
    inputs = np.concatenate([np.eye(stack.widths[0]), np.zeros((stack.widths[0], 1))], axis=1)
    yield from _Walk(stack, polyhedron, margin, deadline).layer(0, inputs, (), point, radius, [], [])


class _Walk:
    """The depth-first search; holds what all branches share."""

    def __init__(self, stack: Stack, polyhedron: Polyhedron, margin: float, deadline: float | None) -> None:
        self.stack, self.polyhedron, self.margin, self.deadline = stack, polyhedron, margin, deadline

    def layer(
        self,
        number: int,
        values: Floats,
        pattern: tuple[Bits, ...],
        point: Floats,
        radius: float,
        rows: list[Floats],
        names: list[tuple[int, int]],
    ) -> Iterator[Cell]:
        """Continue with a hidden layer whose inputs are the affine functions `values` on this region."""
        affine = self.stack.weights[number] @ values
        affine[:, -1] += self.stack.biases[number]
        if number == self.stack.hidden:
            sides = np.array(rows).reshape(len(rows), len(point) + 1)
            yield Cell(pattern, point, radius, sides, tuple(names), affine[:, :-1], affine[:, -1])
            return
        bits = np.zeros(len(affine), dtype=bool)
        yield from self.neuron(number, 0, affine, bits, pattern, point, radius, rows, names)

    def neuron(
        self,
        number: int,
        neuron: int,
        affine: Floats,
        bits: Bits,
        pattern: tuple[Bits, ...],
        point: Floats,
        radius: float,
        rows: list[Floats],
        names: list[tuple[int, int]],
    ) -> Iterator[Cell]:
        """Split by one neuron after the other."""
        if neuron == len(affine):
            gain = np.where(bits, 1.0, self.stack.slopes[number])
            yield from self.layer(number + 1, affine * gain[:, None], (*pattern, bits), point, radius, rows, names)
            return
        row = affine[neuron]
        length = float(np.sqrt(row[:-1] @ row[:-1]))
        constant = length <= 1e-12 * max(abs(row[-1]), 1e-300)
        if constant or self.polyhedron.bounded_by(row / length):
            row = np.append(np.zeros(len(point)), row[-1] if constant else row[:-1] @ point + row[-1])
            bits = bits.copy()
            bits[neuron] = row[-1] > 0
            yield from self.neuron(number, neuron + 1, affine, bits, pattern, point, radius, rows, names)
            return
        unit = row / length
        sides = {active: self.side(unit if active else -unit, point, radius) for active in (True, False)}
        live = [active for active in (True, False) if sides[active][0] > self.margin]
        for active in live or [bool(unit[:-1] @ point + unit[-1] > 0)]:
            chosen = bits.copy()
            chosen[neuron] = active
            if len(live) < 2:  # the neuron does not cut this region
                yield from self.neuron(number, neuron + 1, affine, chosen, pattern, point, radius, rows, names)
                continue
            side = unit if active else -unit
            self.polyhedron.push(side)
            inside, where = sides[active]
            grown, named = [*rows, side], [*names, (number, neuron)]
            yield from self.neuron(number, neuron + 1, affine, chosen, pattern, where, inside, grown, named)
            self.polyhedron.pop()

    def side(self, row: Floats, point: Floats, radius: float) -> tuple[float, Floats]:
        """The largest ball on one side of a neuron; free if the known interior point lies there."""
        here = float(row[:-1] @ point + row[-1])
        if here > 10 * self.margin:
            return min(radius, here), point
        self.polyhedron.push(row)
        found = self.ask()
        self.polyhedron.pop()
        return found

    def ask(self) -> tuple[float, Floats]:
        """One linear program, unless time is up."""
        if self.deadline is not None and time.perf_counter() > self.deadline:
            raise OutOfTime
        return self.polyhedron.widest()
