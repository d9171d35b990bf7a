"""The differential equations that training can follow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from lawful.errors import LawfulError
from lawful.flow.losses import Floats
from lawful.network.metric import Metric


@dataclass(frozen=True)
class GradientFlow:
    """`θ̇ = −∇L(θ) − λθ`, with weight decay λ.

    >>> GradientFlow(decay=0.5).velocity(np.array([2.0]), np.array([1.0]))
    array([-2.])
    """

    decay: float = 0.0

    def velocity(self, theta: Floats, gradient: Floats) -> Floats:
        """`θ̇`."""
        return -gradient - self.decay * theta if self.decay else -gradient

    def response(self, theta: Floats, gradients: Floats) -> Floats:
        """How the velocity changes with the gradient, for several changes (rows)."""
        return -gradients


@dataclass(frozen=True)
class Riemannian:
    """`θ̇ = −G(θ)⁻¹ ∇L(θ)` for a metric G: a function that gives a positive definite matrix, or its diagonal.

    A constant `Metric` is given by its inverse `M = G⁻¹`, what multiplies the gradient.

    >>> Riemannian(lambda theta: 1 / theta).velocity(np.array([2.0]), np.array([3.0]))  # mirror descent's metric
    array([-6.])
    >>> Riemannian(Metric(np.array([2.0]))).velocity(np.array([2.0]), np.array([3.0]))
    array([-6.])
    """

    metric: Callable[[Floats], Floats] | Metric

    def velocity(self, theta: Floats, gradient: Floats) -> Floats:
        """`θ̇`."""
        if isinstance(self.metric, Metric):
            self.metric.check(len(theta))
            return -self.metric.applied(gradient)
        metric = np.asarray(self.metric(theta), dtype=np.float64)
        if metric.shape == theta.shape:
            return -gradient / metric
        if metric.shape != (len(theta), len(theta)):
            raise LawfulError(
                f"a metric on {len(theta)} parameters has shape ({len(theta)}, {len(theta)}) or ({len(theta)},), "
                f"not {metric.shape}"
            )
        return np.asarray(-np.linalg.solve(metric, gradient))

    def response(self, theta: Floats, gradients: Floats) -> Floats:
        """How the velocity changes with the gradient, for several changes (rows)."""
        return np.array([self.velocity(theta, gradient) for gradient in gradients])


@dataclass(frozen=True)
class HeavyBall:
    """`θ̈ + γ θ̇ + ∇L(θ) = 0`, starting at rest; the friction γ is a number or a function of time."""

    friction: float | Callable[[float], float] = 1.0

    def acceleration(self, time: float, velocity: Floats, gradient: Floats) -> Floats:
        """`θ̈`."""
        friction = self.friction(time) if callable(self.friction) else self.friction
        return -gradient - friction * velocity


Dynamics = GradientFlow | Riemannian | HeavyBall
