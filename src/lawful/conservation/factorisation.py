"""The factorisation φ of a network, and gradient flow seen from z = φ(θ) alone (P1 Sections 2.2 and 3.4)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch.func import jacrev

from lawful.conservation.closure.float_rank import rank_with_gap
from lawful.conservation.law_count import LawCount
from lawful.errors import Unsupported
from lawful.network import Dag, Role
from lawful.types import Floats

MOST_PATHS = 20_000
MOST_COORDINATES = 500  # M has the square of this many entries


class Factorisation:
    """`φ(θ)`: a product of weights for each path, summed over the paths that differ in linear neurons only.

    Between two changes of its activation pattern, the network is a linear function of `φ(θ)`. A linear network has the
    entries of its matrix as coordinates, a two-layer ReLU network those of `u_j v_jᵀ` for each neuron j.

    >>> from lawful.network import Mlp
    >>> Factorisation(Mlp([[[2.0, 3.0]], [[5.0]]]).to_dag()).image([2.0, 3.0, 5.0])
    array([10., 15.])
    """

    def __init__(self, dag: Dag) -> None:
        self.dag = dag
        places: dict[tuple[int, ...], int] = {}
        edges: list[list[int]] = []
        homes: list[int] = []
        for path, key in _paths(dag):
            homes.append(places.setdefault(key, len(places)))
            edges.append(path)
            if len(edges) > MOST_PATHS or len(places) > MOST_COORDINATES:
                raise Unsupported(
                    f"φ has more than {MOST_COORDINATES:,} coordinates or {MOST_PATHS:,} paths: too many to list"
                )
        longest = max(map(len, edges))
        self.coordinates = len(places)
        self.places = places
        self._edges = torch.tensor([path + [dag.parameters] * (longest - len(path)) for path in edges])
        self._homes = torch.tensor(homes)

    def __call__(self, theta: torch.Tensor) -> torch.Tensor:
        """`φ(θ)`, differentiable."""
        padded = torch.cat([theta, torch.ones(1, dtype=theta.dtype)])
        products = padded[self._edges].prod(dim=1)
        return torch.zeros(self.coordinates, dtype=theta.dtype).index_add(0, self._homes, products)

    @property
    def names(self) -> tuple[str, ...]:
        """The nodes that set each coordinate apart: its input, kinked neurons and output."""
        return tuple("→".join(self.dag.names[node] for node in key) for key in self.places)

    def image(self, theta: ArrayLike) -> Floats:
        """`φ(θ)` as an array."""
        return np.asarray(self(_tensor(theta)).numpy())

    def metric(self, theta: ArrayLike) -> Floats:
        """`M = ∂φ(θ) ∂φ(θ)ᵀ`."""
        slopes = jacrev(self)(_tensor(theta)).numpy()
        return np.asarray(slopes @ slopes.T)


def _tensor(values: ArrayLike) -> torch.Tensor:
    return torch.as_tensor(np.array(values, dtype=np.float64))


def _paths(dag: Dag) -> Iterator[tuple[list[int], tuple[int, ...]]]:
    """Every path from an input or the constant to an output: its edges, and its ends and kinked neurons."""
    outgoing: list[list[int]] = [[] for _ in dag.names]
    for edge, tail in enumerate(dag.tails.tolist()):
        outgoing[tail].append(edge)
    stack: list[tuple[list[int], tuple[int, ...], int]] = []
    for node in np.flatnonzero(dag.in_degree == 0)[::-1].tolist():
        stack.append(([], (node,), node))
    while stack:
        path, key, node = stack.pop()
        if dag.roles[node] == Role.OUTPUT:
            yield path, key
            continue
        for edge in reversed(outgoing[node]):
            head = int(dag.heads[edge])
            seen = dag.roles[head] == Role.OUTPUT or dag.slopes[head] != 1.0
            stack.append(([*path, edge], (*key, head) if seen else key, head))


@dataclass(frozen=True, eq=False)
class NetworkReduction:
    """Whether z = φ(θ) obeys an equation of its own, `z' = −M(z, θ_init) ∇f(z)` (P1 Proposition 3.8), and its M.

    `dimension` and `with_brackets` are those of V and V + [V, V], exact modulo a prime; a reduction exists if they
    agree. `metric` is M at `z = φ(θ_init)`, None if there is no reduction or φ is too long (`reason` says which).
    `closed_form` is M from z and the balances alone, for networks with one hidden layer; `error` is its distance.
    """

    dimension: int
    with_brackets: int
    theta: Floats
    z: Floats | None = None
    names: tuple[str, ...] = ()
    metric: Floats | None = None
    rank: int | None = None
    closed_form: Floats | None = None
    reason: str = ""

    @property
    def involutive(self) -> bool:
        """Whether no bracket of two fields leaves their span (P1 condition (11))."""
        return self.dimension == self.with_brackets

    @property
    def eigenvalues(self) -> Floats:
        """Those of M that are not zero, largest first."""
        found = np.zeros(0) if self.metric is None else np.linalg.eigvalsh(self.metric)[::-1][: self.rank]
        return np.asarray(found, dtype=np.float64)

    @property
    def error(self) -> float | None:
        """The largest difference between the closed form and `∂φ ∂φᵀ`."""
        if self.closed_form is None or self.metric is None:
            return None
        return float(np.abs(self.closed_form - self.metric).max())


def reduce_network(count: LawCount, theta: ArrayLike) -> NetworkReduction:
    """The Riemannian reduction of a counted network, starting at θ.

    >>> from lawful.conservation import count_laws
    >>> found = reduce_network(count_laws("2-2-2 relu"), np.arange(1.0, 9.0))
    >>> found.involutive, found.dimension, found.rank, found.metric.shape
    (True, 6, 6, (8, 8))
    >>> reduce_network(count_laws("3-2-3 linear"), np.ones(12)).involutive
    False
    """
    dag = count.dag
    if dag is None or count.level != "phi" or count.loss != "full" or str(count.flow) != "gradient":
        raise Unsupported("a reduction is of a network's gradient flow, for any weights, any data and a full-span loss")
    start = np.array(theta, dtype=np.float64)
    first, second = count.dimensions[0], count.dimensions[min(1, len(count.dimensions) - 1)]
    if first != second:
        reason = f"the fields span {first} directions, with brackets {second}: z does not determine its own velocity"
        return NetworkReduction(first, second, start, reason=reason)
    try:
        phi = Factorisation(dag)
    except Unsupported as error:
        return NetworkReduction(first, second, start, reason=str(error))
    metric = phi.metric(start)
    closed = _closed_form(phi, dag.with_theta(start))
    rank = rank_with_gap(metric).rank
    return NetworkReduction(first, second, start, phi.image(start), phi.names, metric, rank, closed)


def neuron_metric(z: ArrayLike, delta: float) -> Floats:
    """M of `φ(u, v) = u vᵀ`, from Z = u vᵀ and `δ = (‖u‖² − ‖v‖²)/2` alone; P1 Example 3.9 is the case of one input.

    `M[G] = Z Zᵀ G/‖v‖² + G Zᵀ Z/‖u‖²` with `‖u‖² = √(δ² + ‖Z‖²) + δ` and `‖v‖² = √(δ² + ‖Z‖²) − δ`. The rows of the
    answer are the entries of Z, row by row.

    >>> neuron_metric([[6.0]], (4.0 - 9.0) / 2)   # u = 2, v = 3: u² + v²
    array([[13.]])
    """
    matrix = np.atleast_2d(np.asarray(z, dtype=np.float64))
    square = float((matrix**2).sum())
    larger = np.sqrt(delta**2 + square) + abs(delta)
    outer, inner = (larger, square / larger) if delta > 0 else (square / larger, larger)  # ‖u‖² and ‖v‖²
    left, right = matrix @ matrix.T / inner, matrix.T @ matrix / outer
    return np.asarray(np.kron(left, np.eye(len(right))) + np.kron(np.eye(len(left)), right))


def _closed_form(phi: Factorisation, dag: Dag) -> Floats | None:
    """M from z and the balances, neuron by neuron, if no path visits two hidden neurons and all of them are kinked."""
    if int(dag.levels.max()) > 2 or (dag.slopes[dag.hidden] == 1.0).any():
        return None
    found = np.zeros((phi.coordinates,) * 2)
    z = phi.image(dag.theta)
    for node in dag.hidden.tolist():
        into, out = np.flatnonzero(dag.heads == node), np.flatnonzero(dag.tails == node)
        delta = float((dag.theta[into] ** 2).sum() - (dag.theta[out] ** 2).sum()) / 2
        own = [phi.places[tail, node, head] for tail in dag.tails[into].tolist() for head in dag.heads[out].tolist()]
        if not z[own].any():
            return None  # z does not tell u and v apart from 0
        found[np.ix_(own, own)] = neuron_metric(z[own].reshape(len(into), len(out)), delta)
    direct = [place for key, place in phi.places.items() if len(key) == 2]
    found[direct, direct] = 1.0  # a weight that leads straight to an output moves by itself
    return found
