"""The regions of a ReLU network, each decided without trusting a rounding."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from lawful.fibers.layers import Array, Stack
from lawful.fibers.regions.affine_maps import AffineMaps, AffineRows, Bits
from lawful.fibers.regions.cell import Cell, OutOfTime, key_of, region_rows
from lawful.fibers.regions.domain import Domain
from lawful.fibers.regions.pattern_tree import patterns, walk
from lawful.fibers.regions.polytopes import Polytope, Side, Signs, box, fan
from lawful.fibers.scales import input_scales
from lawful.types import Floats, Indices

MOST_BOX = 6  # inputs up to which a box is kept as its corners
MOST_SPACE = 3  # inputs up to which all of space is cut into cones
NOTHING = np.zeros(0, dtype=np.intp)
FAR = 1024.0  # their apex, in natural units: nearly everything happens inside the first cone


def cells(stack: Stack, domain: Domain | None = None, *, deadline: float | None = None) -> Iterator[Cell]:
    """All regions, lazily, in any dimension, over all of space or a box (P4 Section 3: the canonical complex).

    Layer by layer a region is cut by the neurons that bend and change sign on it. Few inputs: the region's corners
    tell, and no linear program is solved; many inputs: a tree of linear programs. Floats decide where their error
    bounds allow it, rationals everywhere else, so that a finished walk has found all regions at any scale. Raises
    `OutOfTime`.

    >>> from lawful.network import Mlp
    >>> lines = Mlp([[[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], [[1.0, 1.0, 1.0]]], [[0.0, 0.0, -1.0], [0.0]])
    >>> len(list(cells(Stack.of(lines))))
    7
    """
    domain = Domain.space(stack.widths[0]) if domain is None else domain
    maps = AffineMaps(stack)
    pieces = _pieces(stack, domain)
    if pieces is None:
        yield from walk(stack, domain, deadline)
        return
    seen: set[bytes] = set()
    for whole, walls in pieces:
        for task in _Cutter(maps, walls, deadline).leaves(whole):
            if not domain.bounded:  # a region may reach into several cones
                key = key_of(task.pattern)
                if key in seen:
                    continue
                seen.add(key)
            yield finish_cell(maps, task.cell, task.pattern, task.rows)


def count_cells(
    stack: Stack, domain: Domain, *, deadline: float | None = None, tick: Callable[[], None] = lambda: None
) -> tuple[int, bool]:
    """How many regions there are, and whether these are all: as `cells`, without what else is known of them.

    >>> from lawful.network import Mlp
    >>> count_cells(Stack.of(Mlp([[[1.0], [2.0]], [[1.0, 1.0]]], [[0.0, 1.0], [0.0]])), Domain.space(1))
    (3, True)
    """
    maps = AffineMaps(stack)
    pieces = _pieces(stack, domain)
    count = 0
    seen: set[bytes] = set()
    try:
        if pieces is None:
            for _ in patterns(stack, domain, deadline):
                count += 1
                tick()
            return count, True
        for whole, walls in pieces:
            for task in _Cutter(maps, walls, deadline).leaves(whole):
                if domain.bounded:
                    count += 1
                else:
                    seen.add(key_of(task.pattern))
                tick()
    except OutOfTime:
        return max(count, len(seen)), False
    return max(count, len(seen)), True


def _pieces(stack: Stack, domain: Domain) -> Iterable[tuple[Polytope, dict[Side, Array]]] | None:
    """Polytopes that cover the domain, if it has few inputs."""
    count = stack.widths[0]
    if domain.bounded and count <= MOST_BOX:
        return [box(domain)]
    if np.isinf(domain.low).all() and np.isinf(domain.high).all() and count <= MOST_SPACE:
        return fan(-FAR * input_scales(stack))
    return None


@dataclass(frozen=True, eq=False)
class _Task:
    """A cell, the layer that cuts it, which of its neurons were decided, and which may still cut."""

    cell: Polytope
    number: int
    rows: AffineRows
    bits: Bits
    open: Indices
    pattern: tuple[Bits, ...]


class _Cutter:
    """Depth first, with a list of what is left to do."""

    def __init__(self, maps: AffineMaps, walls: dict[Side, Array], deadline: float | None) -> None:
        self.maps, self.walls, self.deadline = maps, walls, deadline

    def leaves(self, whole: Polytope) -> Iterator[_Task]:
        """All regions inside a polytope."""
        tasks = [self.entering(whole, 0, self.maps.inputs(), ())]
        while tasks:
            task = tasks.pop()
            if self.deadline is not None and time.perf_counter() > self.deadline:
                raise OutOfTime
            if task.number == self.maps.stack.hidden:
                yield task
                continue
            tasks += self.step(task)

    def entering(self, cell: Polytope, number: int, below: AffineRows, pattern: tuple[Bits, ...]) -> _Task:
        """A layer that has decided nothing yet, given the sums of the one below."""
        if number == self.maps.stack.hidden:
            return _Task(cell, number, below, pattern[-1] if pattern else np.zeros(0, dtype=bool), NOTHING, pattern)
        rows = self.maps.layer(number, self.maps.activate(number - 1, below, pattern[-1]) if number else below)
        straight = self.maps.slopes[number] == 1.0  # such neurons have no sides
        return _Task(cell, number, rows, straight, np.flatnonzero(~straight), pattern)

    def step(self, task: _Task) -> list[_Task]:
        """Decide all neurons that do not cut; cut by the first that does, or go to the next layer."""
        values, bounds = task.cell.values(task.rows[task.open])
        signs = self.signs(task, values, bounds)
        above, below = (signs > 0).any(axis=0), (signs < 0).any(axis=0)
        bits = task.bits.copy()
        bits[task.open] = above
        cutting = np.flatnonzero(above & below)
        if not len(cutting):
            return [self.entering(task.cell, task.number + 1, task.rows, (*task.pattern, bits))]
        column = int(cutting[0])
        neuron = int(task.open[column])
        numbers = signs[:, column], values[:, column], bounds[:, column], task.rows.values[neuron]
        parts = task.cell.cut(*numbers, (task.number, neuron), lambda side: self.exact_row(task, side))
        left = task.open[cutting[1:]]
        found = []
        for active, part in ((False, parts[1]), (True, parts[0])):
            chosen = bits.copy()
            chosen[neuron] = active
            found.append(_Task(part, task.number, task.rows, chosen, left, task.pattern))
        return found

    def signs(self, task: _Task, values: Floats, bounds: Floats) -> Signs:
        """The exact sign of every open neuron at every corner."""
        unsure = ~(np.abs(values) > bounds)
        signs = np.where(unsure, 0, np.sign(values)).astype(np.int8)
        for corner, column in zip(*unsure.nonzero(), strict=True):
            row = self.exact_row(task, (task.number, int(task.open[column])))
            signs[corner, column] = task.cell.sign_of(int(corner), row, lambda side: self.exact_row(task, side))
        return signs

    def exact_row(self, task: _Task, side: Side) -> Array:
        """A wall, or a neuron's function on the region, in rationals."""
        found: Array = self.walls[side] if side[0] < 0 else self.maps.exact(side[0], task.pattern)[side[1]]
        return found


def finish_cell(maps: AffineMaps, cell: Polytope, pattern: tuple[Bits, ...], sums: AffineRows) -> Cell:
    """The cell in floats: its facets if it is bounded, else the rows of all neurons that are not constant."""
    point = cell.centre
    if cell.bounded:
        touching = cell.tight.sum(axis=0)
        facets = [k for k, side in enumerate(cell.sides) if side[0] >= 0 and touching[k] >= cell.dimension]
        names = tuple([cell.sides[k] for k in facets])
        rows = cell.rows[facets]
    else:
        every = region_rows(maps, pattern)
        slanted = [np.flatnonzero(rows[:, :-1].any(axis=1) & (maps.slopes[at] != 1.0)) for at, rows in enumerate(every)]
        names = tuple((layer, j) for layer, chosen in enumerate(slanted) for j in chosen.tolist())
        rows = np.concatenate([rows[chosen] for rows, chosen in zip(every, slanted, strict=True)])
    rows = rows / np.sqrt((rows[:, :-1] ** 2).sum(axis=1, keepdims=True))
    radius = float((rows[:, :-1] @ point + rows[:, -1]).min(initial=np.inf))
    last = maps.last(sums, pattern)
    matrix, offset = last[:, :-1], last[:, -1]
    if not cell.bounded:
        return Cell(pattern, point, radius, rows, names, matrix, offset)
    return Cell(pattern, point, radius, rows, names, matrix, offset, cell.corners[:, :-1], cell.tight[:, facets])
