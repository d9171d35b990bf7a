"""Hulls so close that floats see them touch: what parts them there, or more points that they share."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import flint
import numpy as np
from scipy.optimize import linprog

from lawful.exact.feasibility import Integers
from lawful.types import Floats

CLEAR = 1e-7  # a margin that a linear program in floats does not make up


@dataclass(frozen=True, eq=False)
class Closeup:
    """A normal that may part the two, or the points (near ones first) that may share one; nothing is decided here."""

    normal: tuple[Fraction, ...] | None
    support: list[int]


def closeup(near: Integers, far: Integers, touching: list[int]) -> Closeup:
    """Look at a place where floats see the hulls touch, between the points `touching`.

    In rationals the affine hulls of the touching points of the two sides are apart by a vector d, orthogonal to both.
    A hyperplane that contains their directions, has `w·d > 0` and leaves all other points clear, parts the two by
    `w·d`, however small d is. If there is none, the linear program's multipliers name the other points that count.

    >>> near, far = np.array([[0, 0], [-9, 10**30]], dtype=object), np.array([[1, 0], [7, 10**30]], dtype=object)
    >>> max(near @ (found := closeup(near, far, [0, 2])).normal) < min(far @ found.normal)
    True
    """
    inner = [column for column in touching if column < len(near)]
    outer = [column - len(near) for column in touching if column >= len(near)]
    if not inner or not outer:
        return Closeup(None, touching)
    one, two = near[inner[0]], far[outer[0]]
    along = [near[row] - one for row in inner[1:]] + [far[row] - two for row in outer[1:]]
    units = np.array([_size(column) for column in np.vstack([near - one, far - two]).T], dtype=object)
    span = _Span([_over(row, units) for row in along])
    apart = span.rest(_over(two - one, units))
    largest = max(abs(value) for value in apart)
    if not largest:
        return Closeup(None, touching)
    gap = np.array([float(value / largest) for value in apart])
    rows = np.vstack([_floats(near - one, units), -_floats(far - two, units), -gap])
    free = np.ones(len(rows))
    free[touching] = 0.0
    equal = np.c_[_floats(np.array(along, dtype=object), units), np.zeros(len(along))] if along else None
    solved = linprog(
        np.r_[np.zeros(len(gap)), -1.0], A_ub=np.c_[rows, free], b_ub=np.zeros(len(rows)), A_eq=equal,
        b_eq=None if equal is None else np.zeros(len(along)), bounds=[(-1.0, 1.0)] * len(gap) + [(0.0, None)],
    )  # fmt: skip
    if solved.x is None:
        return Closeup(None, touching)
    if solved.x[-1] > CLEAR:
        way = span.rest([Fraction(value) for value in solved.x[:-1].tolist()])
        return Closeup(tuple(value / unit for value, unit in zip(way, units, strict=True)), touching)
    counting = np.flatnonzero(np.abs(solved.ineqlin.marginals[:-1]) > CLEAR).tolist()
    return Closeup(None, sorted({*touching, *counting}))


class _Span:
    """The space of some rational vectors, for taking it out of others."""

    def __init__(self, vectors: list[list[Fraction]]) -> None:
        self.basis: Any = None
        if vectors:
            reduced, rank = flint.fmpq_mat([[_rational(value) for value in row] for row in vectors]).rref()
            self.basis = flint.fmpq_mat([[reduced[row, c] for c in range(len(vectors[0]))] for row in range(rank)])

    def rest(self, vector: list[Fraction]) -> list[Fraction]:
        """What is left of a vector, orthogonal to the space."""
        if self.basis is None or not self.basis.nrows():
            return vector
        column = flint.fmpq_mat([[_rational(value)] for value in vector])
        shares = (self.basis * self.basis.transpose()).solve(self.basis * column)
        left = column - self.basis.transpose() * shares
        return [Fraction(int(left[row, 0].p), int(left[row, 0].q)) for row in range(left.nrows())]


def _rational(value: Fraction) -> Any:
    return flint.fmpq(value.numerator, value.denominator)


def _size(column: Integers) -> int:
    """A power of two near the largest entry."""
    return 1 << max(int(max(abs(value) for value in column)).bit_length(), 1)


def _over(row: Integers, units: Integers) -> list[Fraction]:
    return [Fraction(int(value), int(unit)) for value, unit in zip(row, units, strict=True)]


def _floats(rows: Integers, units: Integers) -> Floats:
    return np.array([[float(value) for value in _over(row, units)] for row in rows]).reshape(-1, len(units))
