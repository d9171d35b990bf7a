"""Gradient flow in θ as a Riemannian flow in z = φ(θ), when the fields of φ are involutive (P1 Section 3.4)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch.func import hessian, jacrev

from lawful.conservation.closure.float_rank import rank_with_gap
from lawful.errors import LawfulError, Unsupported
from lawful.types import Floats

Map = Callable[[torch.Tensor], torch.Tensor]
STEPS = 50


@dataclass(frozen=True)
class Involutivity:
    """`dim V_φ(θ)` and `dim (V_φ + [V_φ, V_φ])(θ)`: involutive if they agree (P1 condition (11))."""

    dimension: int
    with_brackets: int
    gap: float

    @property
    def involutive(self) -> bool:
        """Whether no bracket of two fields leaves their span."""
        return self.dimension == self.with_brackets


def involutivity(phi: Map, theta: ArrayLike) -> Involutivity:
    """Compare the span of the gradients of φ at θ with the span of their brackets.

    >>> involutivity(lambda t: t[0] * t[1:], [1.0, 2.0, 3.0]).involutive
    True
    """
    point = torch.as_tensor(np.asarray(theta, dtype=np.float64))
    fields: torch.Tensor = jacrev(phi)(point)
    curvature: torch.Tensor = hessian(phi)(point)
    turned = torch.einsum("iab,jb->ija", curvature, fields)  # the derivative of field i along field j
    brackets = (turned - turned.transpose(0, 1)).reshape(-1, len(point))
    alone = rank_with_gap(fields.numpy())
    lengths = brackets.norm(dim=1, keepdim=True).clamp_min(1e-12)
    both = rank_with_gap(np.concatenate([alone.basis, (brackets / lengths).numpy()]))
    return Involutivity(alone.rank, both.rank, min(alone.gap, both.gap))


@dataclass(frozen=True, eq=False)
class Reduction:
    """`z' = −M(z, θ_init) ∇f(z)`: what gradient flow looks like from outside (P1 Proposition 3.8).

    `laws` are as many independent conserved functions as `D − rank ∂φ`; with their values at θ_init they determine θ
    from z near the trajectory, and `M = ∂φ ∂φᵀ` there.
    """

    phi: Map
    laws: Map
    start: Floats

    def __post_init__(self) -> None:
        found = involutivity(self.phi, self.start)
        if not found.involutive:
            raise Unsupported(
                f"the fields span {found.dimension} directions, with brackets {found.with_brackets}: "
                "no Riemannian flow in z alone describes them"
            )
        laws = jacrev(self.laws)(self._tensor(self.start)).numpy()
        independent = rank_with_gap(np.atleast_2d(laws)).rank
        if independent != len(self.start) - found.dimension:
            needed = len(self.start) - found.dimension
            raise LawfulError(f"a reduction needs {needed} independent laws, not {independent}")

    @staticmethod
    def _tensor(values: ArrayLike) -> torch.Tensor:
        return torch.as_tensor(np.asarray(values, dtype=np.float64))

    def image(self, theta: ArrayLike) -> Floats:
        """`φ(θ)`."""
        return np.asarray(self.phi(self._tensor(theta)).numpy())

    def lift(self, z: ArrayLike, near: ArrayLike) -> Floats:
        """The θ with `φ(θ) = z` and the laws' values of θ_init, by Newton's method from a nearby θ."""
        target = torch.cat([self._tensor(z), self.laws(self._tensor(self.start))])
        point = self._tensor(near)
        if not torch.isfinite(target).all():
            raise LawfulError("z is not finite")

        def both(theta: torch.Tensor) -> torch.Tensor:
            return torch.cat([self.phi(theta), self.laws(theta)])

        for _ in range(STEPS):
            rest = both(point) - target
            if float(rest.abs().max()) <= 1e-13 * max(1.0, float(target.abs().max())):
                break
            slopes: torch.Tensor = jacrev(both)(point)
            point = point - torch.linalg.lstsq(slopes, rest[:, None], driver="gelsd").solution[:, 0]
        else:
            raise LawfulError("z is not the image of a parameter near this one with the same laws")
        return np.asarray(point.numpy())

    def metric(self, z: ArrayLike, near: ArrayLike | None = None) -> Floats:
        """`M(z, θ_init)`, symmetric and positive semidefinite."""
        theta = self.lift(z, self.start if near is None else near)
        slopes = jacrev(self.phi)(self._tensor(theta)).numpy()
        return np.asarray(slopes @ slopes.T)


def product_metric(z: ArrayLike, delta: float) -> Floats:
    """`M = ‖z‖_δ I + zzᵀ/‖z‖_δ` for `φ(u, v) = uv`, with `‖z‖_δ = δ + √(δ² + ‖z‖²)`, `δ = (u² − ‖v‖²)/2` (P1 Ex. 3.9).

    >>> product_metric([6.0], (4.0 - 9.0) / 2).round(9)   # u = 2, v = 3: u² + v²
    array([[13.]])
    """
    vector = np.asarray(z, dtype=np.float64)
    size = delta + np.sqrt(delta**2 + vector @ vector)
    return np.asarray(size * np.eye(len(vector)) + np.outer(vector, vector) / size)


def polar_metric(z: ArrayLike, delta: float) -> Floats:
    """The metric of `φ(u, v) = (u‖v‖, v/‖v‖)` at `z = (r, h)`, with `δ = (u² − ‖v‖²)/2` (P1 Example F.2, corrected).

    `M = diag(2√(r² + δ²), P_h/(√(r² + δ²) − δ))`: the entries are `u² + ‖v‖²` and `1/‖v‖²`.

    >>> polar_metric([6.0, 1.0, 0.0], (4.0 - 9.0) / 2).diagonal().round(9)   # u = 2, ‖v‖ = 3
    array([13.        ,  0.        ,  0.11111111])
    """
    vector = np.asarray(z, dtype=np.float64)
    radius, direction = vector[0], vector[1:]
    root = np.sqrt(radius**2 + delta**2)
    found = np.zeros((len(vector),) * 2)
    found[0, 0] = 2 * root
    projector = np.eye(len(direction)) - np.outer(direction, direction) / (direction @ direction)
    found[1:, 1:] = projector / (root - delta)
    return found


def follow(
    metric: Callable[[Floats], Floats], slope: Callable[[Floats], Floats], start: ArrayLike, times: Sequence[float]
) -> Floats:
    """Integrate `z' = −M(z) ∇f(z)` and return z at the given times, one row each."""
    from scipy.integrate import solve_ivp

    first = np.asarray(start, dtype=np.float64)
    solution = solve_ivp(
        lambda _, z: -metric(z) @ slope(z), (0.0, times[-1]), first, "DOP853", times, rtol=1e-11, atol=1e-12
    )
    if not solution.success:
        raise LawfulError(f"the flow could not be integrated: {solution.message}")
    return np.asarray(solution.y.T)
