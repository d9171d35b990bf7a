"""Half-spaces with a linear program that guesses, and rationals that decide what it guessed."""

from __future__ import annotations

from typing import Any

import flint
import highspy
import numpy as np

from lawful.fibers.layers import Array, rational
from lawful.fibers.regions.domain import Domain
from lawful.types import Floats

Point = tuple[Any, ...]


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
        self.rows += 1

    def pop(self) -> None:
        """Remove the last half-space."""
        self.rows -= 1
        self.solver.deleteRows(1, np.array([self.rows], dtype=np.int32))

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


def walls(domain: Domain) -> list[Array]:
    """The sides of a box as rational rows; none for all of space."""
    rows = []
    for k in range(len(domain.low)):
        for sign, end in ((1.0, -domain.low[k]), (-1.0, domain.high[k])):
            if np.isfinite(end):
                row = np.zeros(len(domain.low) + 1)
                row[k], row[-1] = sign, end
                rows.append(rational(row))
    return rows


def empties(rows: list[Array]) -> bool:
    """Whether half-spaces `row·(x, 1) > 0` have no common point: Farkas, in rationals.

    `y ≥ 0`, not zero, with `Σ y_i a_i = 0` and `Σ y_i c_i ≤ 0`; the rows must leave one such y up to scale.
    """
    if not rows:
        return False
    reduced, rank = flint.fmpq_mat([list(row[:-1]) for row in rows]).transpose().rref()
    if rank != len(rows) - 1:
        return False
    free = next((k for k in range(rank) if reduced[k, k] == 0), rank)  # all columns before the free one are pivots
    weights = [-reduced[k, free] for k in range(free)]
    if any(weight < 0 for weight in weights):
        return False
    total = rows[free][-1]
    for weight, row in zip(weights, rows, strict=False):
        total = total + weight * row[-1]
    return bool(total <= 0)


def value_at(row: Array, point: Point) -> Any:
    """`row·(x, 1)` in rationals."""
    return sum((weight * x for weight, x in zip(row[:-1], point, strict=True)), row[-1])
