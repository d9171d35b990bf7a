"""The nuclear norm of the invariant set's Jacobian as a penalty for PyTorch, and the penalties it is compared with.

`‖J‖_*` has the gradient `ω_e θ_e`, with ω from the grounded Laplacian (`laplacian`). Held fixed, ω gives the quadratic
`½ Σ ω_e θ_e² + ½ ‖J₀‖_*`, which touches the norm where ω was computed and lies above it everywhere, because the square
root is concave. So one formula serves both ways: ω anew in every step is the exact norm and gradient; ω anew every k
steps is a majoriser, and far cheaper.

The proximal step `argmin_θ ½‖θ − t‖² + λ‖2B̃diag(θ)‖_*` lands exactly on singular points.

In a shallow network the norm is a group lasso, and the step shrinks each neuron's weights together, in closed form.
In a deep one neurons share weights. The problem is still strictly convex; reweighted least squares solves it, and any
iterate carries a proof of how far off it is: `Y = (L + ε)^{-1/2} B̃diag(θ)` has operator norm at most 1, so it is a
feasible point of the dual, `½‖t‖² − ½‖t − λωθ‖²` is a lower bound, and `‖θ − θ*‖ ≤ √(2 gap)` by strong convexity.
Weights that this cannot tell from zero, around neurons that they alone hold, are then set to zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from lawful.errors import LawfulError, Unsupported
from lawful.invariant_set.singular.laplacian import dag_edge_weights, layered_edge_weights
from lawful.invariant_set.singular.spectrum import singularity
from lawful.network import Dag, Mlp, Role
from lawful.sources.modules.convert import from_module
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
    return _reweight(edges, target, strength, tolerance, most, start)


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


def _reweight(
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
        refreshed = edges.omegas(floors.now, precision, _split(theta, target))
        omega = np.concatenate([part.ravel() for part in refreshed.values])
        left = goal - strength / (1 + refreshed.error) * omega * theta  # feasible: its operator norm is at most 1
        bound = energy - float(0.5 * left @ left)
        away = theta - goal
        gap = float(0.5 * away @ away) + strength * refreshed.norm_above(neurons) - bound
        if gap <= tolerance * energy:
            break
        lost = strength * refreshed.norm * refreshed.error
        precision = max(0.1 * precision, 1e-12) if lost > 0.25 * gap else precision
        floors.lower(gap)
        theta = goal / (1 + strength * omega)
    landed = _land(edges, theta, target, max(np.sqrt(2 * max(gap, 0.0)), 1e-9 * float(np.abs(goal).max(initial=0.0))))
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


def _land(edges: EdgeParameters, theta: Floats, target: Sequence[Floats], indistinct: float) -> Floats:
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


LAZY_FLOOR = 1e-2
KINKED = (nn.ReLU, nn.LeakyReLU)
UNITWISE = (*KINKED, nn.Identity, nn.Dropout)  # scale with each unit, place by place


class Layers:
    """The parameters of a plain chain of Linear layers; penalties work on its matrices directly."""

    def __init__(self, linears: Sequence[nn.Linear]) -> None:
        self.linears = tuple(linears)
        self.parameters: tuple[nn.Parameter, ...] = tuple(p for linear in linears for p in linear.parameters())

    def arrays(self, values: Sequence[Floats] | None = None) -> tuple[list[Floats], list[Floats | None]]:
        """Weight matrices and biases as float64 arrays, from the module or from values in the order of `parameters`."""
        left = iter([_array(p) for p in self.parameters] if values is None else values)
        weights: list[Floats] = []
        biases: list[Floats | None] = []
        for linear in self.linears:
            weights.append(next(left))
            biases.append(None if linear.bias is None else next(left))
        return weights, biases

    def omegas(self, floor: float, tolerance: float, values: Sequence[Floats] | None = None) -> Omegas:
        """`ω` of every parameter, in the order of `parameters`."""
        weights = layered_edge_weights(*self.arrays(values), floor=floor, tolerance=tolerance)
        pairs = zip(weights.weights, weights.biases, strict=True)
        values = tuple(part for pair in pairs for part in pair if part is not None)
        return Omegas(values, weights.norm, weights.error, weights.floor)

    def to_dag(self, values: Sequence[Floats] | None = None) -> Dag:
        """The graph; its edges are the entries of the parameters in their order (activations do not matter here)."""
        return Mlp(*self.arrays(values)).to_dag()

    @property
    def source(self) -> NDArray[np.intp]:
        """Number of the parameter entry on each edge: here edge and entry are the same."""
        return np.arange(sum(p.numel() for p in self.parameters))

    def row_squares(self) -> list[Tensor]:
        """For each hidden layer the sum of squares of all weights that touch each neuron; differentiable."""
        rows = []
        for below, above in pairwise(self.linears):
            total = below.weight.square().sum(1) + above.weight.square().sum(0)
            rows.append(total if below.bias is None else total + below.bias.square())
        return rows


class Mapped:
    """The parameters of any module that can be traced, and the edges of its graph that each of them weighs.

    A weight that a convolution uses at many places weighs many edges. Edges without a parameter (the 1 of a residual
    connection, an average) count with their fixed weight.
    """

    def __init__(self, module: nn.Module, input_shape: tuple[int, ...] | None) -> None:
        self.parameters: tuple[nn.Parameter, ...] = tuple(p for p in module.parameters() if p.requires_grad)
        if not self.parameters:
            raise LawfulError(f"{type(module).__name__} has no trainable parameters")
        self.dag = from_module(module, input_shape, drop_useless=True).to_dag()
        self.source = self._sources(module, input_shape)

    def _sources(self, module: nn.Module, input_shape: tuple[int, ...] | None) -> NDArray[np.intp]:
        """Number of the parameter on each edge, −1 for none: read off the graphs of two copies with marked weights."""
        count = sum(p.numel() for p in self.parameters)
        before = [p.detach().clone() for p in self.parameters]
        kinds = [p.dtype for p in self.parameters]
        marks: Floats = (np.random.default_rng(0).permutation(count) + 1).astype(np.float64)
        seen = []
        try:
            for mark in (marks, marks + 0.5 * count):
                for parameter, part in zip(self.parameters, self.split(mark), strict=True):
                    parameter.data = torch.as_tensor(part)
                seen.append(from_module(module, input_shape, drop_useless=True).to_dag())
        finally:
            for parameter, value, kind in zip(self.parameters, before, kinds, strict=True):
                parameter.data = value.to(kind)
        if any(len(dag.tails) != len(self.dag.tails) or (dag.tails != self.dag.tails).any() for dag in seen):
            raise Unsupported(f"the graph of {type(module).__name__} changes with its weights")
        first, second = seen[0].theta, seen[1].theta
        follows = np.abs(second - first - 0.5 * count) < 1e-3
        fixed = first == second
        if not (follows | fixed).all():
            name = type(module).__name__
            raise Unsupported(
                f"{name}: an edge weighs a product of parameters or a scaled one (fold batch norm into its layer first)"
            )
        by_mark = np.zeros(count + 1, dtype=np.intp)
        by_mark[marks.astype(np.intp)] = np.arange(count)
        return np.where(follows, by_mark[np.where(follows, np.rint(first), 0).astype(np.intp)], -1)

    def split(self, flat: Floats) -> list[Floats]:
        """One number per parameter entry, in the parameters' shapes."""
        ends = np.cumsum([p.numel() for p in self.parameters])[:-1]
        return [part.reshape(p.shape) for part, p in zip(np.split(flat, ends), self.parameters, strict=True)]

    def to_dag(self, values: Sequence[Floats] | None = None) -> Dag:
        """The graph with the weights of the module, or of values in the order of `parameters`."""
        parts = [_array(p) for p in self.parameters] if values is None else values
        flat = np.concatenate([part.ravel() for part in parts])
        return self.dag.with_theta(np.where(self.source >= 0, flat[np.maximum(self.source, 0)], self.dag.theta))

    def omegas(self, floor: float, tolerance: float, values: Sequence[Floats] | None = None) -> Omegas:
        """`ω` of every parameter: the sum over its edges."""
        weights = dag_edge_weights(self.to_dag(values), None, floor)
        trained = self.source >= 0
        count = sum(p.numel() for p in self.parameters)
        flat = np.bincount(self.source[trained], weights.values[trained], minlength=count).astype(np.float64)
        return Omegas(tuple(self.split(flat)), weights.norm, weights.error, floor)

    def row_squares(self) -> list[Tensor]:
        """The sum of squares of all weights that touch each hidden neuron; differentiable."""
        flat = torch.cat([p.reshape(-1) for p in self.parameters])
        trained = torch.as_tensor(self.source >= 0)
        squares = torch.where(
            trained, flat[torch.as_tensor(np.maximum(self.source, 0))], flat.new_tensor(self.dag.theta)
        )
        total = flat.new_zeros(len(self.dag.names))
        for ends in (self.dag.tails, self.dag.heads):
            total = total.index_add(0, torch.tensor(ends), squares.square())
        return [total[torch.tensor(self.dag.hidden)]]


def edges_of(module: nn.Module, input_shape: tuple[int, ...] | None = None) -> Layers | Mapped:
    """How a module's parameters lie on edges: directly for a chain of Linear layers, by tracing for anything else."""
    parts = list(_flat(module))
    linears = [part for part in parts if isinstance(part, nn.Linear)]
    plain = all(isinstance(part, (nn.Linear, nn.Flatten, *UNITWISE)) for part in parts) and len(linears) >= 2
    if plain:
        tied = len(set(linears)) < len(linears) or len({id(linear.weight) for linear in linears}) < len(linears)
        chained = all(below.out_features == above.in_features for below, above in pairwise(linears))
        ended = not any(isinstance(part, KINKED) for part in parts[parts.index(linears[-1]) :])
        trained = all(p.requires_grad for linear in linears for p in linear.parameters())
        if chained and ended and trained and not tied:
            return Layers(linears)
    return Mapped(module, input_shape)


def _flat(module: nn.Module) -> Iterator[nn.Module]:
    if isinstance(module, nn.Sequential):
        for child in module:
            yield from _flat(child)
    else:
        yield module


class NuclearPenalty(nn.Module):
    """`‖2B̃diag(θ)‖_*` of a module: add `strength * penalty()` to a loss, and neurons disconnect (P0 Section 3.3).

    `every=1` is the exact norm, with its subgradient of least norm at singular points. `every=k` computes the edge
    weights ω anew in every k-th call and uses the majoriser between, smoothed so that steps stay stable: with an
    explicit step size h keep `h · strength < floor / 4`.

    >>> model = nn.Sequential(nn.Linear(2, 1, bias=False), nn.ReLU(), nn.Linear(1, 1, bias=False)).double()
    >>> with torch.no_grad():
    ...     _ = model[0].weight.copy_(torch.tensor([[3.0, 0.0]])), model[2].weight.fill_(4.0)
    >>> NuclearPenalty(model)()
    tensor(10., dtype=torch.float64, grad_fn=<SubBackward0>)
    """

    def __init__(
        self,
        module: nn.Module,
        *,
        every: int = 1,
        floor: float | None = None,
        tolerance: float | None = None,
        input_shape: tuple[int, ...] | None = None,
    ) -> None:
        super().__init__()
        if every < 1:
            raise LawfulError(f"every counts calls from 1 on, not {every}")
        self.every = every
        self.floor = (LAZY_FLOOR if every > 1 else 0.0) if floor is None else floor
        self.tolerance = (1e-2 if every > 1 else 1e-8) if tolerance is None else tolerance
        self.calls = 0
        self.edges = edges_of(module, input_shape)
        self._omegas: list[Tensor] = []
        self._rest = 0.0
        self._shares: list[Floats] | None = None

    def refresh(self) -> Omegas:
        """Compute ω at the parameters as they are."""
        weights = self.edges.omegas(self.floor, self.tolerance)
        pairs = list(zip(weights.values, self.edges.parameters, strict=True))
        self._omegas = [torch.as_tensor(omega, dtype=p.dtype, device=p.device) for omega, p in pairs]
        self._rest = weights.norm - 0.5 * sum(float(np.vdot(omega, _array(p) ** 2)) for omega, p in pairs)
        return weights

    def forward(self) -> Tensor:
        """The norm, or its majoriser, at the parameters as they are."""
        self._call()
        total = None
        for omega, parameter in zip(self._omegas, self.edges.parameters, strict=True):
            slope = (omega * parameter.detach()).flatten()
            part = torch.dot(slope, parameter.flatten())
            total = part if total is None else total + part
        assert total is not None  # noqa: S101  (a module without parameters was refused)
        return total - (0.5 * total.detach() - self._rest)  # value ½ Σ ω θ² + rest, gradient ω θ

    @torch.no_grad()
    def add_gradient(self, strength: float) -> None:
        """Add `strength · ω θ` to the gradients after `backward()`: as adding to the loss, in one pass over memory."""
        self._call()
        for omega, parameter in zip(self._omegas, self.edges.parameters, strict=True):
            if parameter.grad is not None:
                parameter.grad.addcmul_(omega, parameter, value=strength)

    def _call(self) -> None:
        if self.calls % self.every == 0:
            self.refresh()
        self.calls += 1

    @torch.no_grad()
    def shrink(self, step: float) -> None:
        """`θ ← θ / (1 + step · ω)`: the proximal step of the majoriser, stable for any step size.

        Call it after an optimiser's step, with `step` its step size times the strength, instead of adding to the loss.
        """
        self._call()
        for omega, parameter in zip(self._omegas, self.edges.parameters, strict=True):
            parameter.div_(1.0 + step * omega)

    @torch.no_grad()
    def proximal_step(self, step: float, tolerance: float = 1e-12) -> ProximalStep:
        """Replace the parameters by the proximal point of `step · ‖J‖_*`: neurons land on zero and stay there.

        `tolerance` is a duality gap relative to half the square of all weights. Each step starts where the one before
        ended: shrunk by as much.
        """
        target = [_array(p) for p in self.edges.parameters]
        start = (
            None if self._shares is None else [part * share for part, share in zip(target, self._shares, strict=True)]
        )
        step_taken = nuclear_prox(self.edges, target, step, tolerance=tolerance, start=start)
        self._shares = [
            np.divide(value, part, out=np.ones_like(part), where=part != 0)
            for value, part in zip(step_taken.values, target, strict=True)
        ]
        for parameter, value in zip(self.edges.parameters, step_taken.values, strict=True):
            parameter.copy_(torch.as_tensor(value))
        return step_taken


def group_penalty(edges: Layers | Mapped) -> Tensor:
    """`2 Σ_v √(in_v + out_v)`, sums of squares: the nuclear norm of a shallow network, more than a deep one's."""
    total: Tensor | None = None
    for rows in edges.row_squares():
        live = rows > 0
        part = 2 * torch.where(live, rows, 1.0).sqrt()[live].sum()
        total = part if total is None else total + part
    if total is None:
        raise LawfulError("a network without hidden neurons has no group penalty")
    return total


def l1_penalty(edges: Layers | Mapped) -> Tensor:
    """`Σ |θ_e|`."""
    return torch.stack([p.abs().sum() for p in edges.parameters]).sum()


def l2_penalty(edges: Layers | Mapped) -> Tensor:
    """`Σ θ_e²`."""
    return torch.stack([p.square().sum() for p in edges.parameters]).sum()


def _array(tensor: Tensor) -> Floats:
    return tensor.detach().cpu().double().numpy()


__all__ = ["Layers", "Mapped", "NuclearPenalty", "edges_of", "group_penalty", "l1_penalty", "l2_penalty"]
