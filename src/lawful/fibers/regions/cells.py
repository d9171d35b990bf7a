"""The regions of a ReLU network, each decided without trusting a rounding.

Idea: a region is a convex polytope, kept as its corners in homogeneous coordinates (a corner at infinity is a
direction); layer by layer each neuron is affine on it, and cuts it where corners lie on both sides.
Invariant: the regions cover the domain and have inner points. The sign of a corner is that of its float value only
beyond the error bound; otherwise the corner is solved for in rationals. So none is lost to rounding, none invented.
Cost: the corners of all regions times the neurons; corners grow with the dimension, and `pattern_tree` takes over.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import flint
import numpy as np
from numpy.typing import NDArray

from lawful.fibers.layers import Array, Stack, input_scales, quotient, rational
from lawful.fibers.regions.cell import UNIT, AffineMaps, AffineRows, Bits, Cell, OutOfTime, key_of, region_rows
from lawful.fibers.regions.domain import Domain
from lawful.fibers.regions.pattern_tree import patterns, walk
from lawful.types import Floats, Indices, Mask

Signs = NDArray[np.int8]
Side = tuple[int, int]  # hidden layer and neuron, or (-1, wall)
MOST_SIDES = 24  # kept before those that touch nothing are dropped
ExactRow = Callable[[Side], Array]


@dataclass(eq=False)
class Polytope:
    """Corners in homogeneous coordinates with error bounds, and which sides each is tight on."""

    corners: Floats
    error: Floats
    tight: Mask
    sides: tuple[Side, ...]
    rows: Floats  # of the sides, not negative inside
    exact: list[Array | None]
    bounded: bool

    @property
    def dimension(self) -> int:
        """Of the space."""
        return int(self.corners.shape[1]) - 1

    @property
    def centre(self) -> Floats:
        """A point inside: the mean of the vertices, moved along the directions."""
        if self.bounded:
            return np.asarray(self.corners[:, :-1].sum(axis=0) / len(self.corners))
        finite = self.corners[:, -1] > 0
        centre = self.corners[finite, :-1].mean(axis=0)
        away = self.corners[~finite, :-1]
        if not len(away):
            return np.asarray(centre)
        size = max(float(np.abs(self.corners[finite, :-1] - centre).max()), float(np.abs(centre).max()), 1e-300)
        return np.asarray(centre + size * (away / np.abs(away).max(axis=1, keepdims=True)).mean(axis=0))

    def values(self, rows: AffineRows) -> tuple[Floats, Floats]:
        """Values of functions (columns) at the corners (rows), and how far they may be from the true ones."""
        size = np.abs(rows.values)
        bound = np.abs(self.corners) @ (rows.error + (self.dimension + 3) * UNIT * size).T
        if self.error.any():
            bound = bound + self.error @ (size + rows.error).T
        return self.corners @ rows.values.T, bound * (1 + 16 * UNIT)

    def sign_of(self, corner: int, row: Array, exact_row: ExactRow) -> int:
        """The exact sign of a rational row at a corner, from the sides that it is tight on."""
        value = row @ self.exact_corner(corner, exact_row)
        return int(value > 0) - int(value < 0)

    def exact_corner(self, corner: int, exact_row: ExactRow) -> Array:
        """A corner in rationals, where the sides that it is tight on meet."""
        point = self.exact[corner]
        if point is None:
            tight = [exact_row(self.sides[k]) for k in np.flatnonzero(self.tight[corner])]
            point = self.exact[corner] = _meeting(tight, self.corners[corner])
        return point

    def cut(
        self, signs: Signs, values: Floats, bounds: Floats, row: Floats, side: Side, exact_row: ExactRow
    ) -> tuple[Polytope, Polytope]:
        """Both sides of a hyperplane, given signs and values at the corners: positive first."""
        first, second, tight = self._edges(signs)
        corners, error = self._crossings(first, second, values, bounds)
        exact: list[Array | None] = [None] * len(corners)
        known = np.isfinite(corners).all(axis=1) & np.isfinite(error).all(axis=1)
        for k in np.flatnonzero(~known):  # floats cannot tell where it is
            one, other = (self.exact_corner(int(end[k]), exact_row) for end in (first, second))
            exact[k] = corner = _between(one, other, exact_row(side))
            corners[k] = [quotient(int(item.p), int(item.q)) for item in corner]
            error[k] = 2 * UNIT * np.abs(corners[k])
        sides, rows = self.sides, self.rows
        parts = []
        for on_side, turn in ((signs >= 0, 1.0), (signs <= 0, -1.0)):
            chosen = on_side.nonzero()[0]
            old, count = len(chosen), len(chosen) + len(corners)
            incidence = np.zeros((count, len(sides) + 1), dtype=bool)
            incidence[:old, :-1], incidence[old:, :-1] = self.tight[chosen], tight
            incidence[:old, -1], incidence[old:, -1] = signs[chosen] == 0, True
            parts.append(
                Polytope(
                    np.concatenate([self.corners[chosen], corners]),
                    np.concatenate([self.error[chosen], error]),
                    incidence,
                    (*sides, side),
                    np.concatenate([rows, turn * row[None]]),
                    [self.exact[k] for k in chosen] + exact,
                    self.bounded,
                )
            )
        return parts[0].lean(), parts[1].lean()

    def lean(self) -> Polytope:
        """Without sides that no corner lies on, once there are many."""
        if len(self.sides) > MOST_SIDES:
            used = np.flatnonzero(self.tight.any(axis=0))
            self.tight, self.rows = self.tight[:, used], self.rows[used]
            self.sides = tuple([self.sides[k] for k in used])
        return self

    def _edges(self, signs: Signs) -> tuple[Indices, Indices, Mask]:
        """The ends of all edges from the positive to the negative side, and the sides that both are tight on."""
        above, below = np.flatnonzero(signs > 0), np.flatnonzero(signs < 0)
        tight = self.tight.astype(np.float32)
        first, second = np.nonzero(tight[above] @ tight[below].T >= self.dimension - 1)
        first, second = above[first], below[second]
        both = self.tight[first] & self.tight[second]
        if self.dimension > 1:  # an edge: no third corner is tight on all that its ends share
            edges = (both.astype(np.float32) @ (1 - tight).T == 0).sum(axis=1) == 2
            first, second, both = first[edges], second[edges], both[edges]
        return first, second, both

    def _crossings(self, first: Indices, second: Indices, values: Floats, bounds: Floats) -> tuple[Floats, Floats]:
        """`(a w − b u) / (a − b)` for values a > 0 at u and b < 0 at w, with what rounding and errors can add."""
        u, w, eu, ew = self.corners[first], self.corners[second], self.error[first], self.error[second]
        a, b, ea, eb = values[first], -values[second], bounds[first], bounds[second]
        span = a + b
        sure = np.maximum(span - ea - eb, 0.0)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            share = (a / span)[:, None]
            corners = (1 - share) * u + share * w
            slip = ((b * ea + a * eb) / (span * sure) + 4 * UNIT)[:, None]
            error = (1 - share) * eu + share * ew + slip * (np.abs(w - u) + eu + ew)
            error += 6 * UNIT * (np.abs(u) + np.abs(w))
        if self.bounded:
            corners[:, -1] = 1.0
            error[:, -1] = np.where(np.isfinite(slip[:, 0]), 0.0, np.inf)
            return corners, error
        return _normalise(corners, error, u[:, -1] + w[:, -1])


def _normalise(corners: Floats, error: Floats, finite: Floats) -> tuple[Floats, Floats]:
    """Last coordinates one again, or zero between two directions (`finite` counts the ends that are vertices)."""
    height = np.where(finite == 0, np.abs(corners).max(axis=1), corners[:, -1])[:, None]
    slack = np.where(finite[:, None] == 1, error[:, -1:], 0.0)
    height = np.where(finite[:, None] == 2, 1.0, height)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        error = (error + np.abs(corners / height) * slack) / np.maximum(height - slack, 0.0)
        corners = corners / height
        error = error * (1 + 8 * UNIT) + 2 * UNIT * np.abs(corners)
    sure = np.isfinite(error).all(axis=1)
    corners[:, -1], error[:, -1] = finite > 0, np.where(sure, 0.0, np.inf)
    return corners, error


def _between(first: Array, second: Array, row: Array) -> Array:
    """Where a rational row vanishes between two corners, positive at the first and negative at the second."""
    corner = (row @ first) * second - (row @ second) * first
    return np.asarray(corner / corner[-1] if corner[-1] != 0 else corner / max(abs(item) for item in corner))


def _meeting(rows: Sequence[Array], near: Floats) -> Array:
    """The one direction of homogeneous space in which all rows vanish, as rationals, oriented like the float."""
    matrix = flint.fmpq_mat([list(row) for row in rows])
    reduced, rank = matrix.rref()
    table = reduced.tolist()
    size = len(near)
    pivots = [next(k for k, item in enumerate(table[line]) if item != 0) for line in range(rank)]
    free = next(k for k in range(size) if k not in pivots)
    point = np.array([flint.fmpq(0)] * size, dtype=object)
    point[free] = flint.fmpq(1)
    for line, pivot in enumerate(pivots):
        point[pivot] = -table[line][free]
    if near[-1] > 0:
        return np.asarray(point / point[-1])
    place = int(np.argmax(np.abs(near)))
    turned = (point[place] > 0) != (near[place] > 0)
    return np.asarray(-point if turned else point)


def box(domain: Domain) -> tuple[Polytope, dict[Side, Array]]:
    """A bounded domain as a polytope, and its walls as rational rows."""
    count = len(domain.low)
    choices = (np.arange(2**count)[:, None] >> np.arange(count)) & 1
    points = np.where(choices == 1, domain.high, domain.low)
    corners = np.column_stack([points, np.ones(len(points))])
    tight = np.concatenate([choices == 0, choices == 1], axis=1)
    walls = {}
    for k in range(count):
        for place, (sign, end) in enumerate(((1.0, -domain.low[k]), (-1.0, domain.high[k]))):
            row = np.zeros(count + 1)
            row[k], row[-1] = sign, end
            walls[-1, k + place * count] = rational(row)
    exact: list[Array | None] = [rational(corner) for corner in corners]
    sides = tuple((-1, k) for k in range(2 * count))
    rows = np.zeros((len(sides), count + 1))  # walls are no rows of a region
    return Polytope(corners, np.zeros_like(corners), tight, sides, rows, exact, True), walls


def fan(apex: Floats) -> list[tuple[Polytope, dict[Side, Array]]]:
    """All of space as cones with one apex: each leaves out one of the directions `e_1, …, e_d, −(1, …, 1)`."""
    count = len(apex)
    rays = np.concatenate([np.eye(count), -np.ones((1, count))])
    simplices = []
    for left_out in reversed(range(count + 1)):
        chosen = np.delete(rays, left_out, axis=0)
        corners = np.zeros((count + 1, count + 1))
        corners[:count, :-1], corners[count] = chosen, np.append(apex, 1.0)
        inverse = rational(np.round(np.linalg.inv(chosen)).T)  # row k vanishes on all rays but k
        walls = {(-1, k): np.append(inverse[k], -(inverse[k] @ rational(apex))) for k in range(count)}
        walls[-1, count] = rational(np.append(np.zeros(count), 1.0))
        tight = np.concatenate([~np.eye(count, dtype=bool), np.ones((1, count), dtype=bool)])
        infinity = np.append(np.ones(count, dtype=bool), False)[:, None]
        sides = tuple((-1, k) for k in range(count + 1))
        exact: list[Array | None] = [rational(corner) for corner in corners]
        rows, tight = np.zeros_like(corners), np.column_stack([tight, infinity])
        simplices.append((Polytope(corners, np.zeros_like(corners), tight, sides, rows, exact, False), walls))
    return simplices


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
        tasks = []
        for active, part in ((False, parts[1]), (True, parts[0])):
            chosen = bits.copy()
            chosen[neuron] = active
            tasks.append(_Task(part, task.number, task.rows, chosen, left, task.pattern))
        return tasks

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
        row: Array = self.walls[side] if side[0] < 0 else self.maps.exact(side[0], task.pattern)[side[1]]
        return row


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
