"""Gradient flow in θ as a Riemannian flow in z = φ(θ), when the fields of φ are involutive (P1 Section 3.4)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch.func import hessian, jacrev

from lawful.conservation.closure.float_rank import rank_with_gap
from lawful.conservation.closure.program_brackets import free_fields, is_polynomial
from lawful.conservation.law_count import LawCount
from lawful.conservation.programs.module_function import Probe, probe
from lawful.conservation.rank_proof import program_of
from lawful.errors import LawfulError, Unsupported
from lawful.exact import PRIME, rank
from lawful.network import Dag, Role
from lawful.sources.modules.functional_call import call_with
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
        span = involutivity(self.phi, self.start)
        if not span.involutive:
            raise Unsupported(
                f"the fields span {span.dimension} directions, with brackets {span.with_brackets}: "
                "no Riemannian flow in z alone describes them"
            )
        laws = jacrev(self.laws)(self._tensor(self.start)).numpy()
        independent = rank_with_gap(np.atleast_2d(laws)).rank
        if independent != len(self.start) - span.dimension:
            needed = len(self.start) - span.dimension
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
        values = np.zeros(0) if self.metric is None else np.linalg.eigvalsh(self.metric)[::-1][: self.rank]
        return np.asarray(values, dtype=np.float64)

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
    metric = np.zeros((phi.coordinates,) * 2)
    z = phi.image(dag.theta)
    for node in dag.hidden.tolist():
        into, out = np.flatnonzero(dag.heads == node), np.flatnonzero(dag.tails == node)
        delta = float((dag.theta[into] ** 2).sum() - (dag.theta[out] ** 2).sum()) / 2
        entries = [
            phi.places[tail, node, head] for tail in dag.tails[into].tolist() for head in dag.heads[out].tolist()
        ]
        if not z[entries].any():
            return None  # z does not tell u and v apart from 0
        metric[np.ix_(entries, entries)] = neuron_metric(z[entries].reshape(len(into), len(out)), delta)
    direct = [place for key, place in phi.places.items() if len(key) == 2]
    metric[direct, direct] = 1.0  # a weight that leads straight to an output moves by itself
    return metric


SPARE = 8


def reduce_module(
    module: torch.nn.Module, input_shape: tuple[int, ...] | None = None, *, mode: str = "train", seed: int = 0
) -> NetworkReduction:
    """The Riemannian reduction of a module at its own weights, the dimensions exact modulo a prime.

    >>> _ = torch.manual_seed(0)
    >>> shared = torch.nn.Sequential(torch.nn.Conv1d(1, 1, 2, bias=False), torch.nn.Conv1d(1, 1, 1, bias=False))
    >>> found = reduce_module(shared, (1, 3))
    >>> found.involutive, found.dimension, found.rank
    (True, 2, 2)
    """
    case = probe(module, input_shape, None, "full", mode)
    if case.random:
        raise Unsupported(f"--reduction is of one flow, and {', '.join(case.random)} draws another at every step")
    program = program_of(case)
    if not is_polynomial(program):
        raise Unsupported("--reduction is for modules whose φ is a polynomial: this one has other functions or divides")
    rng = np.random.default_rng(seed)
    point = rng.integers(PRIME, size=case.size)
    count = case.size + SPARE
    fields = free_fields(program, np.broadcast_to(point, (2 * count, case.size)), rng, 0, case.vocabulary or 0)
    first = fields.brackets(np.arange(count)[:, None])
    second = fields.brackets(np.stack([np.arange(count), count + np.arange(count)], axis=1))
    dimension, both = rank(first, PRIME), rank(np.concatenate([first, second]), PRIME)
    theta = torch.cat([value.detach().flatten() for value in _own(case)])
    start = theta.numpy()
    if dimension != both:
        reason = f"the fields span {dimension} directions, with brackets {both}: z does not determine its own velocity"
        return NetworkReduction(dimension, both, start, reason=reason)
    if any(step.kind == "choose" for step in program.steps):
        why = "φ of a module with choices (ReLU, max) is not listed"
        return NetworkReduction(dimension, both, start, reason=why)
    outputs = int(np.prod(case.output_shape, dtype=int))
    samples = ceil(dimension / outputs) + 1
    if samples * outputs > MOST_COORDINATES:
        why = f"z has more than {MOST_COORDINATES} coordinates"
        return NetworkReduction(dimension, both, start, reason=why)
    inputs = case.draw(seed, samples)[0][:, 0]

    def image(weights: torch.Tensor) -> torch.Tensor:
        values: torch.Tensor = call_with(case.module, case.unflatten(weights), (inputs,))
        return values.reshape(-1)

    slopes = jacrev(image)(theta).detach().numpy()
    metric = slopes @ slopes.T
    names = tuple(f"g(x{sample})[{output}]" for sample in range(samples) for output in range(outputs))
    z = image(theta).detach().numpy()
    return NetworkReduction(dimension, both, start, z, names, metric, rank_with_gap(metric).rank)


def _own(case: Probe) -> list[torch.Tensor]:
    own = dict(case.module.named_parameters())
    return [own[name] for name in case.names]
