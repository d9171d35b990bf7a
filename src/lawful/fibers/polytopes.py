"""Convex cells as their corners, cut by hyperplanes: floats with error bounds decide, rationals where they cannot.

A corner is a vertex `(x, 1)` or a direction `(x, 0)`; it is tight on the sides it lies on. Cutting keeps what lies on one
side and adds a corner on every edge that crosses, so that no linear program is solved (Berzins 2023 in the plane).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import flint
import numpy as np
from numpy.typing import NDArray

from lawful.fibers.affine_maps import UNIT, Rows
from lawful.fibers.domain import Domain
from lawful.fibers.stack import Array, rational
from lawful.types import Floats, Indices, Mask

Signs = NDArray[np.int8]
Side = tuple[int, int]  # hidden layer and neuron, or (-1, wall)
ExactRow = Callable[[Side], Array]


@dataclass(eq=False)
class Polytope:
    """Corners in homogeneous coordinates with error bounds, and which sides each is tight on."""

    corners: Floats
    error: Floats
    tight: Mask
    sides: tuple[Side, ...]
    exact: list[Array | None]

    @property
    def dimension(self) -> int:
        """Of the space."""
        return self.corners.shape[1] - 1

    @property
    def centre(self) -> Floats:
        """A point inside: the mean of the vertices, moved along the directions."""
        finite = self.corners[:, -1] > 0
        centre = self.corners[finite, :-1].mean(axis=0)
        away = self.corners[~finite, :-1]
        if not len(away):
            return np.asarray(centre)
        size = max(float(np.abs(self.corners[finite, :-1] - centre).max()), float(np.abs(centre).max()), 1e-300)
        return np.asarray(centre + size * (away / np.abs(away).max(axis=1, keepdims=True)).mean(axis=0))

    def signs(self, rows: Rows) -> tuple[Signs, Mask]:
        """Signs of functions (columns) at the corners (rows), and where they are sure."""
        values = self.corners @ rows.values.T
        sizes, size = np.abs(self.corners), np.abs(rows.values)
        bound = sizes @ (rows.error + (self.dimension + 3) * UNIT * size).T + self.error @ (size + rows.error).T
        return np.sign(values).astype(np.int8), np.abs(values) > bound * (1 + 16 * UNIT)

    def sign_of(self, corner: int, row: Array, exact_row: ExactRow) -> int:
        """The exact sign of a rational row at a corner, from the sides that it is tight on."""
        found = self.exact[corner]
        if found is None:
            tight = [exact_row(self.sides[k]) for k in np.flatnonzero(self.tight[corner])]
            found = self.exact[corner] = _meeting(tight, self.corners[corner])
        value = sum((a * b for a, b in zip(row, found, strict=True)), flint.fmpq(0))
        return int(value > 0) - int(value < 0)

    def part(self, signs: Signs, side: Side, new: _NewCorners, positive: bool) -> Polytope:
        """What lies on one side of a hyperplane."""
        kept = np.flatnonzero(signs >= 0 if positive else signs <= 0)
        tight = np.concatenate([self.tight[kept], new.tight])
        fresh = np.concatenate([signs[kept] == 0, np.ones(len(new.corners), dtype=bool)])
        used = tight.any(axis=0)
        return Polytope(
            np.concatenate([self.corners[kept], new.corners]),
            np.concatenate([self.error[kept], new.error]),
            np.column_stack([tight[:, used], fresh]),
            (*(name for name, some in zip(self.sides, used, strict=True) if some), side),
            [self.exact[k] for k in kept] + [None] * len(new.corners),
        )

    def cut(self, signs: Signs, row: Rows, side: Side) -> tuple[Polytope, Polytope]:
        """Both sides of a hyperplane with corners on both sides: positive first."""
        new = self._crossings(signs, row)
        return self.part(signs, side, new, True), self.part(signs, side, new, False)

    def _crossings(self, signs: Signs, row: Rows) -> _NewCorners:
        """The corners on the edges from the positive to the negative side."""
        above, below = np.flatnonzero(signs > 0), np.flatnonzero(signs < 0)
        tight = self.tight.astype(np.float32)
        common = tight[above] @ tight[below].T
        first, second = np.nonzero(common >= self.dimension - 1)
        both = self.tight[above[first]] & self.tight[below[second]]
        if self.dimension > 1:  # an edge: no third corner is tight on all that its ends share
            holders = (both.astype(np.float32) @ (1 - tight).T == 0).sum(axis=1)
            edges = holders == 2
            first, second, both = first[edges], second[edges], both[edges]
        return _new_corners(self, above[first], below[second], both, row)


@dataclass(frozen=True, eq=False)
class _NewCorners:
    corners: Floats
    error: Floats
    tight: Mask


def _new_corners(cell: Polytope, first: Indices, second: Indices, tight: Mask, row: Rows) -> _NewCorners:
    """`(a w − b u) / (a − b)` for values a > 0 at u and b < 0 at w, with what rounding and errors can add."""
    u, w, eu, ew = cell.corners[first], cell.corners[second], cell.error[first], cell.error[second]
    size = np.abs(row.values) + row.error
    a, b = u @ row.values, w @ row.values
    room = (cell.dimension + 3) * UNIT
    ea = np.abs(u) @ (row.error + room * np.abs(row.values)) + eu @ size
    eb = np.abs(w) @ (row.error + room * np.abs(row.values)) + ew @ size
    span = a - b
    share = (a / span)[:, None]
    sure = span - ea - eb
    slip = np.where(sure > 0, (np.abs(b) * ea + np.abs(a) * eb) / (span * np.where(sure > 0, sure, 1.0)), np.inf)
    slip = (slip + 4 * UNIT)[:, None]
    corners = (1 - share) * u + share * w
    error = (1 - share) * eu + share * ew + slip * (np.abs(w - u) + eu + ew) + 4 * UNIT * (np.abs(u) + np.abs(w))
    both_finite = (u[:, -1] > 0) & (w[:, -1] > 0)
    one_finite = (u[:, -1] > 0) ^ (w[:, -1] > 0)
    height = np.where(both_finite, 1.0, np.where(one_finite, corners[:, -1], np.abs(corners).max(axis=1)))[:, None]
    slack = np.where(one_finite[:, None], error[:, -1:], 0.0)
    low = height - slack
    error = np.where(low > 0, (error + np.abs(corners / height) * slack) / np.where(low > 0, low, 1.0), np.inf)
    corners = corners / height
    error = error * (1 + 8 * UNIT) + 2 * UNIT * np.abs(corners)
    corners[:, -1] = np.where(both_finite | one_finite, 1.0, 0.0)
    error[:, -1] = 0.0
    error = np.where(np.isfinite(error), error, np.inf)
    return _NewCorners(corners, error, tight)


def _meeting(rows: Sequence[Array], near: Floats) -> Array:
    """The one direction of homogeneous space in which all rows vanish, as rationals, oriented like the float."""
    matrix = flint.fmpq_mat([list(row) for row in rows])
    reduced, rank = matrix.rref()
    table = reduced.tolist()
    size = len(near)
    pivots = [next(k for k, item in enumerate(table[line]) if item != 0) for line in range(rank)]
    free = next(k for k in range(size) if k not in pivots)
    found = np.array([flint.fmpq(0)] * size, dtype=object)
    found[free] = flint.fmpq(1)
    for line, pivot in enumerate(pivots):
        found[pivot] = -table[line][free]
    if near[-1] > 0:
        return np.asarray(found / found[-1])
    place = int(np.argmax(np.abs(near)))
    turned = (found[place] > 0) != (near[place] > 0)
    return np.asarray(-found if turned else found)


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
    exact = [rational(corner) for corner in corners]
    return Polytope(
        corners, np.zeros_like(corners), tight, tuple((-1, k) for k in range(2 * count)), list(exact)
    ), walls


def fan(count: int) -> list[tuple[Polytope, dict[Side, Array]]]:
    """All of space as cones with apex 0: each leaves out one of `e_1, …, e_d, −(1, …, 1)`."""
    rays = np.concatenate([np.eye(count), -np.ones((1, count))])
    found = []
    for left_out in range(count + 1):
        chosen = np.delete(rays, left_out, axis=0)
        corners = np.zeros((count + 1, count + 1))
        corners[:count, :-1], corners[count, -1] = chosen, 1.0
        inverse = np.round(np.linalg.inv(chosen)).T  # row k vanishes on all rays but k
        walls = {(-1, k): rational(np.append(inverse[k], 0.0)) for k in range(count)}
        tight = np.concatenate([~np.eye(count, dtype=bool), np.ones((1, count), dtype=bool)])
        infinity = np.append(np.ones(count, dtype=bool), False)[:, None]
        walls[-1, count] = rational(np.append(np.zeros(count), 1.0))
        sides = tuple((-1, k) for k in range(count + 1))
        exact = [rational(corner) for corner in corners]
        cone = Polytope(corners, np.zeros_like(corners), np.column_stack([tight, infinity]), sides, list(exact))
        found.append((cone, walls))
    return found
