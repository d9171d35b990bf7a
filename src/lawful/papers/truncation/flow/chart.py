"""Coordinates of truncation maps in which rotations stay orthogonal: β, and θ with `R = cay(θ) R_0`."""

from __future__ import annotations

import numpy as np

from lawful.papers.truncation.flow.field import Maps, Velocity
from lawful.types import Floats


def cayley(generator: Floats) -> Floats:
    """`(1 − θ/2)⁻¹(1 + θ/2)`, orthogonal for antisymmetric θ; works on stacks.

    >>> np.round(cayley(np.array([[0.0, -2.0], [2.0, 0.0]])), 12)
    array([[ 0., -1.],
           [ 1.,  0.]])
    """
    one = np.eye(generator.shape[-1])
    return np.asarray(np.linalg.solve(one - generator / 2, one + generator / 2), dtype=np.float64)


def orthogonalise(rotations: Floats) -> Floats:
    """One Newton step towards the nearest orthogonal matrix: errors of size ε become ε²."""
    return 0.5 * rotations @ (3 * np.eye(rotations.shape[-1]) - np.swapaxes(rotations, -1, -2) @ rotations)


class Chart:
    """The chart around some maps: `R(s) = cay(θ(s))R_0` and `∂_s θ = (1 − θ/2)Ω(1 + θ/2)`."""

    def __init__(self, around: Maps) -> None:
        """`origin` are the coordinates of `around`."""
        self.around, self.count = around, around.shifts.size
        self.origin = np.concatenate([around.shifts.ravel(), np.zeros(around.rotations.size)])
        self.one = np.eye(around.rotations.shape[-1])

    def theta(self, values: Floats) -> Floats:
        """The part that turns."""
        return values[self.count :].reshape(self.around.rotations.shape)

    def at(self, values: Floats) -> Maps:
        """The maps with these coordinates."""
        shifts = values[: self.count].reshape(self.around.shifts.shape)
        return Maps(shifts, cayley(self.theta(values)) @ self.around.rotations)

    def slope(self, values: Floats, velocity: Velocity) -> Floats:
        """How the coordinates move."""
        theta = self.theta(values)
        turn = (self.one - theta / 2) @ velocity.generators @ (self.one + theta / 2)
        return np.concatenate([velocity.shifts.ravel(), turn.ravel()])
