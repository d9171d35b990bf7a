"""The nuclear norm of the invariant set's Jacobian as a penalty for PyTorch, and the penalties it is compared with.

`‖J‖_*` has the gradient `ω_e θ_e`, with ω from the grounded Laplacian (`laplacian`). Held fixed, ω gives the quadratic
`½ Σ ω_e θ_e² + ½ ‖J₀‖_*`, which touches the norm where ω was computed and lies above it everywhere, because the square
root is concave. So one formula serves both ways: ω anew in every step is the exact norm and gradient; ω anew every k
steps is a majoriser, and far cheaper.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from lawful.errors import LawfulError, Unsupported
from lawful.invariant_set.singular.laplacian import dag_edge_weights, layered_edge_weights
from lawful.invariant_set.singular.proximal import Omegas, ProximalStep, nuclear_prox
from lawful.network import Dag, Mlp
from lawful.sources.modules.convert import from_module
from lawful.types import Floats

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
        found = layered_edge_weights(*self.arrays(values), floor=floor, tolerance=tolerance)
        pairs = zip(found.weights, found.biases, strict=True)
        values = tuple(part for pair in pairs for part in pair if part is not None)
        return Omegas(values, found.norm, found.error, found.floor)

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
        found = dag_edge_weights(self.to_dag(values), None, floor)
        own = self.source >= 0
        count = sum(p.numel() for p in self.parameters)
        flat = np.bincount(self.source[own], found.values[own], minlength=count).astype(np.float64)
        return Omegas(tuple(self.split(flat)), found.norm, found.error, floor)

    def row_squares(self) -> list[Tensor]:
        """The sum of squares of all weights that touch each hidden neuron; differentiable."""
        flat = torch.cat([p.reshape(-1) for p in self.parameters])
        own = torch.as_tensor(self.source >= 0)
        squares = torch.where(own, flat[torch.as_tensor(np.maximum(self.source, 0))], flat.new_tensor(self.dag.theta))
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
        found = self.edges.omegas(self.floor, self.tolerance)
        pairs = list(zip(found.values, self.edges.parameters, strict=True))
        self._omegas = [torch.as_tensor(omega, dtype=p.dtype, device=p.device) for omega, p in pairs]
        self._rest = found.norm - 0.5 * sum(float(np.vdot(omega, _array(p) ** 2)) for omega, p in pairs)
        return found

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
        found = nuclear_prox(self.edges, target, step, tolerance=tolerance, start=start)
        self._shares = [
            np.divide(value, part, out=np.ones_like(part), where=part != 0)
            for value, part in zip(found.values, target, strict=True)
        ]
        for parameter, value in zip(self.edges.parameters, found.values, strict=True):
            parameter.copy_(torch.as_tensor(value))
        return found


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
