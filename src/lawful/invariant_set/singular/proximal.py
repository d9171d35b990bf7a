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
from lawful.invariant_set.singular.spectrum import singularity
from lawful.network import Dag, Role
from lawful.types import Floats


@dataclass(frozen=True)
class Omegas:
    """`ω` in the shapes of the parameters, and the norm where it was computed, smoothed by `floor`."""

    values: tuple[Floats, ...]
    norm: float
    error: float
    floor: float

    def norm_above(self, neurons: int) -> float:
        """Not below the norm without smoothing, which takes at most `floor` from each singular value."""
        return self.norm * (1 + self.error) + neurons * self.floor


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
    edges: EdgeParameters,
    target: Sequence[Floats],
    strength: float,
    *,
    tolerance: float = 1e-12,
    most: int = 400,
    start: Sequence[Floats] | None = None,
) -> ProximalStep:
    """The proximal point of `strength · ‖J‖_*` at `target`; `tolerance` is a gap relative to `½‖target‖²`.

    `start` is a guess, such as the shrinking of an earlier step: a good one saves most iterations.
    """
    if not strength >= 0:
        raise LawfulError(f"a proximal step has a strength of at least 0, not {strength}")
    if (edges.source < 0).any():
        raise Unsupported("a proximal step needs every edge to carry a parameter: fixed residual edges stay nonzero")
    dag = edges.to_dag(target)
    if not (_hidden_ends(dag) == 2).any() and len(np.unique(edges.source)) == len(edges.source):
        return ProximalStep(_group_prox(dag, edges, target, strength), 0.0, 1)
    return _reweighted(edges, target, strength, tolerance, most, start)


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
    edges: EdgeParameters,
    target: Sequence[Floats],
    strength: float,
    tolerance: float,
    most: int,
    start: Sequence[Floats] | None,
) -> ProximalStep:
    goal = np.concatenate([part.ravel() for part in target])
    energy = float(0.5 * goal @ goal)
    neurons = len(edges.to_dag(target).hidden)
    size = float(np.sqrt(2 * energy))
    floors = _Floors(size, neurons, strength, tolerance * energy, warm=start is not None)
    theta = goal if start is None else np.concatenate([part.ravel() for part in start])
    precision, gap, iteration = 1e-3, np.inf, 0
    while iteration < most:
        iteration += 1
        found = edges.omegas(floors.now, precision, _split(theta, target))
        omega = np.concatenate([part.ravel() for part in found.values])
        left = goal - strength / (1 + found.error) * omega * theta  # feasible: its operator norm is at most 1
        bound = energy - float(0.5 * left @ left)
        away = theta - goal
        gap = float(0.5 * away @ away) + strength * found.norm_above(neurons) - bound
        if gap <= tolerance * energy:
            break
        lost = strength * found.norm * found.error
        precision = max(0.1 * precision, 1e-12) if lost > 0.25 * gap else precision
        floors.lower(gap)
        theta = goal / (1 + strength * omega)
    landed = _landed(edges, theta, target, max(np.sqrt(2 * max(gap, 0.0)), 1e-9 * float(np.abs(goal).max(initial=0.0))))
    if (landed != theta).any():
        away = landed - goal
        norm = edges.omegas(floors.least, precision, _split(landed, target)).norm_above(neurons)
        at_landed = float(0.5 * away @ away) + strength * norm
        if at_landed - bound <= max(2 * gap, tolerance * energy):
            theta, gap = landed, at_landed - bound
    return ProximalStep(_split(theta, target), gap, iteration)


class _Floors:
    """How much the norm is smoothed: halved as long as that is what keeps the gap open."""

    def __init__(self, size: float, neurons: int, strength: float, goal: float, warm: bool) -> None:
        self.weight = neurons * strength
        least = 0.1 * goal / self.weight if self.weight else size
        self.least = min(max(least, 1e-15 * size), size)
        self.now = max(self.least, 1e-3 * size / max(neurons, 1) ** 0.5) if warm else 0.1 * size

    def lower(self, gap: float) -> None:
        """Smooth less; at once where smoothing alone explains the gap."""
        mostly = self.weight * self.now > 0.5 * gap
        self.now = max((0.1 if mostly else 0.5) * self.now, self.least)


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
