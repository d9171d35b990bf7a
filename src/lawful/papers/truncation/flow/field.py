"""The gradient flow of truncation maps: velocities in closed form, for one cluster and for composed maps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from lawful.types import Floats

# Coordinates of truncation maps in which rotations stay orthogonal: β, and θ with `R = cay(θ) R_0`.


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


BLOCK = 2048  # rows per block: at Q = 50 a block and its two companions stay in a core's second-level cache


class Maps(NamedTuple):
    """`L` aligned truncation maps `τ(x) = Rᵀσ(R(x + β)) − β`: shifts β (L, Q) and rotations R (L, Q, Q)."""

    shifts: Floats
    rotations: Floats


class Velocity(NamedTuple):
    """`∂_s β` (L, Q) and the antisymmetric generators `Ω` (L, Q, Q) of `∂_s R = ΩR`."""

    shifts: Floats
    generators: Floats


class Field(Protocol):
    """A gradient flow on maps whose velocity is smooth while no pre-activation changes its sign.

    `active` holds H, an entry per map, point and coordinate: 1 where `z > 0`, 0 where `z <= 0`. It is an argument so
    that an integrator can follow one smooth piece up to, and locate, the moment at which a sign changes.
    """

    def preactivations(self, maps: Maps, active: Floats | None = None) -> Floats:
        """`z = R(x + β)` for every map and point: (L, N, Q)."""

    def velocity(self, maps: Maps, active: Floats | None = None) -> Velocity:
        """Minus the gradient of the cost."""

    def rates(self, maps: Maps, velocity: Velocity, active: Floats) -> Floats:
        """`∂_s z` when the maps move with this velocity."""

    def cost(self, maps: Maps, active: Floats | None = None) -> float:
        """The Euclidean cost in input space, P2 (2.26)."""


def truncate(points: Floats, shift: Floats, rotation: Floats) -> Floats:
    """`τ(x) = Rᵀσ(R(x + β)) − β` (P2 (6.2)).

    >>> truncate(np.array([[2.0, -1.0], [-3.0, -4.0]]), np.zeros(2), np.eye(2))
    array([[2., 0.],
           [0., 0.]])
    """
    return np.maximum((points + shift) @ rotation.T, 0.0) @ rotation - shift


@dataclass(frozen=True, eq=False)
class Separated:
    """The flow of one cluster's map when every other map leaves that cluster alone (P2 Theorem 3.2, corrected).

    `∂_s β = −Rᵀ⟨1−H⟩R(β + ỹ)` and `Ω = ⟨[H, M]⟩` with `M = ½(zvᵀ + vzᵀ − zzᵀ)`, `v = R(β + ỹ)`: two matrix
    products, no backpropagation.
    """

    points: Floats
    target: Floats

    def preactivations(self, maps: Maps, active: Floats | None = None) -> Floats:
        """`z = R(x + β)`."""
        return np.asarray(self.points @ maps.rotations[0].T + maps.rotations[0] @ maps.shifts[0])[None]

    def velocity(self, maps: Maps, active: Floats | None = None) -> Velocity:
        """Theorem 3.2 with the term that (6.17) loses."""
        rotation, count = maps.rotations[0], len(self.points)
        moved = rotation @ maps.shifts[0]
        arrow = moved + rotation @ self.target
        active_points = np.zeros(len(moved))
        first = np.zeros(len(moved))
        second = np.zeros_like(rotation)
        for start in range(0, count, BLOCK):
            z = self.points[start : start + BLOCK] @ rotation.T
            z += moved
            on = np.greater(z, 0.0) if active is None else active[0, start : start + BLOCK]
            active_points += on.sum(axis=0)
            truncated = on * z
            first += truncated.sum(axis=0)
            np.subtract(on * arrow, truncated, out=truncated)
            second += truncated.T @ z
        half = (np.outer(first, arrow) + second) / (2 * count)  # ⟨h_i M_ij⟩
        shift = -((1.0 - active_points / count) * arrow) @ rotation
        return Velocity(shift[None], (half - half.T)[None])

    def rates(self, maps: Maps, velocity: Velocity, active: Floats) -> Floats:
        """`∂_s z = Ωz + R∂_s β`."""
        z = self.preactivations(maps)
        return np.asarray(z @ velocity.generators[0].T + maps.rotations[0] @ velocity.shifts[0])

    def cost(self, maps: Maps, active: Floats | None = None) -> float:
        """`½⟨|τ(x) − ỹ|²⟩`, this cluster's part of (3.6)."""
        z = self.preactivations(maps)[0]
        truncated = np.maximum(z, 0.0) if active is None else active[0] * z
        gap = truncated - maps.rotations[0] @ (maps.shifts[0] + self.target)
        return float(np.einsum("ij,ij->", gap, gap) / (2 * len(z)))


@dataclass(frozen=True, eq=False)
class Composed:
    """The flow of `τ^{(L)} ∘ … ∘ τ^{(1)}` on all clusters (P2 Theorem 5.1, corrected).

    `∂_s β_ℓ = +Σ⟨(P⁻_{ℓ,L})ᵀ(τ − ỹ)⟩` and `Ω_ℓ = −Σ⟨[H_ℓ, M_ℓ]⟩` with M of (5.7). The projections `P^±` are applied to
    `τ − ỹ` one factor at a time, from the last map to the first.
    """

    points: Floats
    targets: Floats
    weights: Floats

    def preactivations(self, maps: Maps, active: Floats | None = None) -> Floats:
        """`z_ℓ = R_ℓ(τ^{(ℓ−1,1)}(x) + β_ℓ)`."""
        return self._forward(maps, active)[0]

    def _forward(self, maps: Maps, active: Floats | None) -> tuple[Floats, Floats, Floats]:
        at = self.points
        layers, masks = [], []
        for number, (shift, rotation) in enumerate(zip(*maps, strict=True)):
            z = (at + shift) @ rotation.T
            on = (z > 0.0).astype(np.float64) if active is None else active[number]
            at = (on * z) @ rotation - shift
            layers.append(z)
            masks.append(on)
        return np.array(layers), np.array(masks), at

    def velocity(self, maps: Maps, active: Floats | None = None) -> Velocity:
        """Theorem 5.1 with the sign and the sum of (5.4) corrected."""
        layers, masks, end = self._forward(maps, active)
        shifts = np.empty_like(maps.shifts)
        generators = np.empty_like(maps.rotations)
        pull = self.weights[:, None] * (end - self.targets)  # (P⁺_{ℓ+1,L})ᵀ(τ − ỹ)
        for number in reversed(range(len(maps.shifts))):
            rotation, on, z = maps.rotations[number], masks[number], layers[number]
            turned = pull @ rotation.T
            truncated = on * turned
            shifts[number] = (turned - truncated).sum(axis=0) @ rotation
            half = (truncated.T @ z + (on * z).T @ turned) / 2  # ⟨h_i M_ij⟩
            generators[number] = half.T - half
            pull = truncated @ rotation
        return Velocity(shifts, generators)

    def rates(self, maps: Maps, velocity: Velocity, active: Floats) -> Floats:
        """`∂_s z_ℓ`, carried from map to map by the chain rule."""
        layers, masks, _ = self._forward(maps, active)
        rates = np.empty_like(layers)
        drift = np.zeros_like(self.points)
        for number, (z, on) in enumerate(zip(layers, masks, strict=True)):
            rotation, turn = maps.rotations[number], velocity.generators[number]
            rates[number] = (drift + velocity.shifts[number]) @ rotation.T + z @ turn.T
            drift = (on * rates[number] - (on * z) @ turn.T) @ rotation - velocity.shifts[number]
        return rates

    def cost(self, maps: Maps, active: Floats | None = None) -> float:
        """`½Σ_ℓ⟨|τ^{(L,1)}(x) − ỹ_ℓ|²⟩`."""
        gap = self._forward(maps, active)[2] - self.targets
        return float(self.weights @ np.einsum("ij,ij->i", gap, gap) / 2)
