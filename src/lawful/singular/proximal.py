"""The proximal step of the nuclear norm, `argmin_θ ½‖θ − t‖² + λ‖2B̃diag(θ)‖_*`: it lands exactly on singular points.

In a shallow network the norm is a group lasso, and the step shrinks each neuron's weights together, in closed form.
In a deep one neurons share weights. The problem is still strictly convex; reweighted least squares solves it, and any
iterate carries a proof of how far off it is: `Y = (L + ε)^{-1/2} B̃diag(θ)` has operator norm at most 1, so it is a
feasible point of the dual, `½‖t‖² − ½‖t − λωθ‖²` is a lower bound, and `‖θ − θ*‖ ≤ √(2 gap)` by strong convexity.
Weights that this cannot tell from zero, around neurons that they alone hold, are then set to zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from lawful.errors import LawfulError, Unsupported
from lawful.network import Dag, Role
from lawful.singular.spectrum import singularity
from lawful.types import Floats


@dataclass(frozen=True)
class Omegas:
    """`ω` in the shapes of the parameters, and the norm where it was computed."""

    values: tuple[Floats, ...]
    norm: float
    error: float


class EdgeParameters(Protocol):
    """Parameters that lie on the edges of a graph: `source` names the parameter entry on each edge (−1: none)."""

    def omegas(self, floor: float, tolerance: float, values: Sequence[Floats] | None = None) -> Omegas:
        """`ω` and the norm at some values."""

    def to_dag(self, values: Sequence[Floats] | None = None) -> Dag:
        """The graph with some values as weights."""

    @property
    def source(self) -> NDArray[np.intp]:
        """Parameter entry of each edge."""


@dataclass(frozen=True)
class ProximalStep:
    """The new parameters, and the duality gap: the exact proximal point is within `distance` of them."""

    values: tuple[Floats, ...]
    gap: float
    iterations: int

    @property
    def distance(self) -> float:
        """`√(2 gap)`, in the Euclidean norm of all parameters together."""
        return float(np.sqrt(2 * max(self.gap, 0.0)))


def nuclear_prox(
    edges: EdgeParameters, target: Sequence[Floats], strength: float, *, tolerance: float = 1e-12, most: int = 400
) -> ProximalStep:
    """The proximal point of `strength · ‖J‖_*` at `target`; `tolerance` is a gap relative to `½‖target‖²`."""
    if not strength >= 0:
        raise LawfulError(f"a proximal step has a strength of at least 0, not {strength}")
    if (edges.source < 0).any():
        raise Unsupported("a proximal step needs every edge to carry a parameter: fixed residual edges stay nonzero")
    dag = edges.to_dag(target)
    if not (_hidden_ends(dag) == 2).any() and len(np.unique(edges.source)) == len(edges.source):
        return ProximalStep(_group_prox(dag, edges, target, strength), 0.0, 1)
    return _reweighted(edges, target, strength, tolerance, most)


def _hidden_ends(dag: Dag) -> NDArray[np.intp]:
    hidden = dag.roles == Role.HIDDEN
    return np.asarray(hidden[dag.tails].astype(np.intp) + hidden[dag.heads])


def _group_prox(dag: Dag, edges: EdgeParameters, target: Sequence[Floats], strength: float) -> tuple[Floats, ...]:
    """Each hidden neuron's weights times `max(0, 1 − 2λ/norm)`: no edge joins two hidden neurons."""
    neuron = np.where(dag.roles[dag.heads] == Role.HIDDEN, dag.heads, dag.tails)
    norms = np.sqrt(np.bincount(neuron, dag.theta**2, minlength=len(dag.names)))
    factors = np.maximum(0.0, 1.0 - 2 * strength / np.where(norms > 0, norms, 1.0))
    factors[dag.roles != Role.HIDDEN] = 1.0  # weights from input to output, and output biases, are free
    flat = np.concatenate([part.ravel() for part in target])
    flat[edges.source] *= factors[neuron]
    return _split(flat, target)


def _reweighted(
    edges: EdgeParameters, target: Sequence[Floats], strength: float, tolerance: float, most: int
) -> ProximalStep:
    goal = np.concatenate([part.ravel() for part in target])
    size = float(np.abs(goal).max(initial=0.0))

    def objective(theta: Floats) -> float:
        norm = edges.omegas(0.0, 1e-12, _split(theta, target)).norm
        return float(0.5 * (theta - goal) @ (theta - goal) + strength * norm)

    theta, best, floor, gap = goal, goal, size, np.inf
    for iteration in range(1, most + 1):
        floor = max(0.5 * floor, 1e-12 * size)
        found = edges.omegas(floor, 1e-10, _split(theta, target))
        omega = np.concatenate([part.ravel() for part in found.values])
        if iteration % 10 == 0 or iteration == most:
            left = goal - strength * omega * theta
            bound = float(0.5 * goal @ goal - 0.5 * left @ left)
            value = objective(theta)
            landed = _landed(edges, theta, target, max(np.sqrt(2 * max(value - bound, 0.0)), 1e-9 * size))
            at_landed = objective(landed)
            best, value = (landed, at_landed) if at_landed <= value else (theta, value)
            gap = value - bound
            if gap <= tolerance * 0.5 * float(goal @ goal):
                break
        theta = goal / (1 + strength * omega)
    return ProximalStep(_split(best, target), gap, iteration)


def _landed(edges: EdgeParameters, theta: Floats, target: Sequence[Floats], indistinct: float) -> Floats:
    """Zero the small weights at neurons that only small weights hold."""
    dag = edges.to_dag(_split(theta, target))
    gone = np.zeros(len(dag.names), dtype=bool)
    gone[[dag.index[name] for name in singularity(dag, indistinct).cut_off]] = True
    landed = theta.copy()
    landed[loose_entries(dag, edges.source, gone, indistinct, len(theta))] = 0.0
    return landed


def loose_entries(
    dag: Dag, source: NDArray[np.intp], gone: NDArray[np.bool_], small: float, count: int
) -> NDArray[np.bool_]:
    """Parameter entries up to `small` that lie only on edges at neurons that are `gone` (a mask over nodes)."""
    loose = (gone[dag.tails] | gone[dag.heads]) & (np.abs(dag.theta) <= small)
    entries = np.zeros(count, dtype=bool)
    entries[source[loose & (source >= 0)]] = True
    entries[source[~loose & (source >= 0)]] = False
    return entries


def _split(flat: Floats, like: Sequence[Floats]) -> tuple[Floats, ...]:
    ends = np.cumsum([part.size for part in like])[:-1]
    return tuple(part.reshape(other.shape) for part, other in zip(np.split(flat, ends), like, strict=True))
