"""The differential equations that training can follow, and the losses: each noun once, for laws and for flows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from lawful.errors import LawfulError
from lawful.types import Floats, Indices


@dataclass(frozen=True)
class GradientFlow:
    """`θ̇ = −∇L(θ) − λθ`, with weight decay λ.

    >>> GradientFlow(decay=0.5).velocity(np.array([2.0]), np.array([1.0]))
    array([-2.])
    """

    decay: float = 0.0

    def __post_init__(self) -> None:
        if not (np.isfinite(self.decay) and self.decay >= 0):
            raise LawfulError(f"weight decay must be a finite number at least 0, not {self.decay}")

    def __str__(self) -> str:
        return f"gradient with weight decay {self.decay:g}" if self.decay else "gradient"

    def velocity(self, theta: Floats, gradient: Floats) -> Floats:
        """`θ̇`."""
        return -gradient - self.decay * theta if self.decay else -gradient

    def response(self, theta: Floats, gradients: Floats) -> Floats:
        """How the velocity changes with the gradient, for several changes (rows)."""
        return -gradients


@dataclass(frozen=True, eq=False)
class Metric:
    """`θ' = −M ∇E(θ)` for a constant positive M: a vector (its diagonal) or blocks as (weights, matrix) pairs.

    M is the inverse of the Riemannian metric: what multiplies the gradient. Weights that no block names have the
    entry 1.

    >>> Metric(np.array([1.0, 2.0])).apply(np.array([3.0, 3.0]))
    array([3., 6.])
    >>> Metric(blocks=(([0, 1], [[2.0, 1.0], [1.0, 2.0]]),)).apply(np.array([1.0, 0.0, 1.0]))
    array([2., 1., 1.])
    """

    diagonal: Floats | None = None
    blocks: tuple[tuple[Indices, Floats], ...] = ()

    def __post_init__(self) -> None:
        if any(np.asarray(where).dtype.kind not in "iu" for where, _ in self.blocks if len(where)):
            raise LawfulError("a block of the metric names its weights by whole numbers")
        blocks = tuple((np.asarray(where, dtype=np.intp), np.asarray(m, dtype=np.float64)) for where, m in self.blocks)
        object.__setattr__(self, "blocks", blocks)
        if self.diagonal is not None:
            values = np.asarray(self.diagonal, dtype=np.float64)
            object.__setattr__(self, "diagonal", values)
            if values.ndim != 1 or not np.isfinite(values).all() or not (values > 0).all():
                raise LawfulError("a diagonal metric is a vector of positive finite numbers, one per parameter")
        for where, matrix in self.blocks:
            square = matrix
            if where.ndim != 1 or square.shape != (len(where),) * 2 or not np.array_equal(square, square.T):
                raise LawfulError(f"a block of {len(where)} weights needs a symmetric matrix of that size")
            if not np.isfinite(square).all() or np.linalg.eigvalsh(square).min(initial=1.0) <= 0:
                raise LawfulError("a block of the metric is not positive definite")

    def __str__(self) -> str:
        return "diagonal metric" if self.diagonal is not None else "block metric"

    def check(self, parameters: int) -> None:
        """Raise unless the metric fits so many parameters."""
        if self.diagonal is not None and len(self.diagonal) != parameters:
            raise LawfulError(f"the metric has {len(self.diagonal)} entries for {parameters} parameters")
        named = np.concatenate([where for where, _ in self.blocks]) if self.blocks else np.zeros(0, dtype=np.intp)
        if len(np.unique(named)) < len(named) or (len(named) and not 0 <= named.min() <= named.max() < parameters):
            raise LawfulError("the blocks of a metric name parameters twice, or parameters that do not exist")

    def apply(self, vectors: Floats) -> Floats:
        """`M g` for a vector g, or for each row of a matrix."""
        if self.diagonal is not None:
            return np.asarray(vectors * self.diagonal)
        result = vectors.copy()
        for where, matrix in self.blocks:
            result[..., where] = vectors[..., where] @ matrix
        return result

    def velocity(self, theta: Floats, gradient: Floats) -> Floats:
        """`θ̇ = −M ∇L`."""
        self.check(len(theta))
        return -self.apply(gradient)

    def response(self, theta: Floats, gradients: Floats) -> Floats:
        """How the velocity changes with the gradient, for several changes (rows)."""
        return -self.apply(gradients)


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
            return self.metric.velocity(theta, gradient)
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
    """`θ̈ + γ θ̇ + ∇L(θ) = 0`, starting at rest; the friction γ is a number or a function of time.

    Its laws live in the phase space of (θ, θ̇), with time as one more state unless `autonomous`: then the count
    includes laws that name t, such as `e^{γt}(⟨u, v'⟩ − ⟨u', v⟩)`.
    """

    friction: float | Callable[[float], float] = 1.0
    autonomous: bool = False

    def __post_init__(self) -> None:
        if not callable(self.friction) and not (np.isfinite(self.friction) and self.friction >= 0):
            raise LawfulError(f"friction must be a finite number at least 0, not {self.friction}")

    def __str__(self) -> str:
        return "momentum (autonomous laws)" if self.autonomous else "momentum"

    @property
    def constant_friction(self) -> float:
        """γ, if it is a number: what has no closed form otherwise."""
        if callable(self.friction):
            raise LawfulError("this needs a friction that does not change with time")
        return float(self.friction)

    def acceleration(self, time: float, velocity: Floats, gradient: Floats) -> Floats:
        """`θ̈`."""
        friction = self.friction(time) if callable(self.friction) else self.friction
        return -gradient - friction * velocity


Dynamics = GradientFlow | Metric | Riemannian | HeavyBall


NAMES = {
    "mse": ("squared", "squared-error", "l2"),
    "bce": ("logistic", "binary-cross-entropy"),
    "ce": ("cross-entropy", "crossentropy", "softmax"),
    "full": ("any",),
}
SPANS = {"mse": "full", "bce": "full", "ce": "cross-entropy", "full": "full"}


def loss_name(text: str) -> str:
    """The short name: mse, bce (logistic), ce (softmax cross-entropy), or full: any loss whose gradients span.

    >>> loss_name("Cross_Entropy"), loss_name("logistic")
    ('ce', 'bce')
    """
    word = text.strip().lower().replace("_", "-")
    for name, aliases in NAMES.items():
        if word == name or word in aliases:
            return name
    raise LawfulError(f"unknown loss {text[:40]!r}: choose from mse, bce (logistic), ce (cross-entropy) or full (any)")


def output_gradients(text: str) -> str:
    """What the gradients of a loss in the outputs span: "full", or "cross-entropy" for the plane of sum zero.

    Squared error and the logistic loss span everything, so they have the laws of "full" (P1 Remark B.6).

    >>> output_gradients("mse"), output_gradients("ce")
    ('full', 'cross-entropy')
    """
    return SPANS[loss_name(text)]
