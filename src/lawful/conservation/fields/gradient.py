"""The fields that training can follow: gradients of a network's output, sampled exactly modulo a prime.

At the level of the factorisation φ (P1 Section 2) a network's fields are the gradients of

    f(θ) = Σ over paths of  c_input · θ_e · c_neuron · θ_e' ⋯ c_output

with one random multiplier c per node: inputs and the constant get a random value, outputs a random weight w, ReLU and
leaky ReLU neurons a random gate, linear neurons the gate 1. Different paths have different monomials in the gates, so
random multipliers span everything that φ spans, and no path is ever enumerated.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from lawful.errors import LawfulError
from lawful.exact import Dual, residues
from lawful.network import Dag, Role
from lawful.types import Indices, Residues

LOSSES = ("full", "cross-entropy")
MIXED = 8  # activation patterns that one field sums
FIRST_PATTERN = 16  # label of the first of them
TOGETHER = 200_000  # numbers of the states of patterns that are evaluated at once


class Family(Protocol):
    """Vector fields that come in samples: `field` evaluates one field per column of the state."""

    @property
    def prime(self) -> int:
        """The prime of the arithmetic."""
        ...

    @property
    def seed(self) -> int:
        """The seed of all random numbers."""
        ...

    @property
    def size(self) -> int:
        """Dimension of the state space."""
        ...

    def draw(self, labels: tuple[int, ...], rows: Indices) -> Residues:
        """The random numbers of some fields, a column each; they depend only on the labels and the row number."""
        ...

    def field(self, state: Dual, sample: Residues) -> Dual:
        """The fields of a sample at a state with parts (size, columns)."""
        ...


@dataclass(frozen=True)
class _Step:
    """Edges sorted by one of their ends, so that a level's sums are runs of rows."""

    nodes: Indices
    edges: Indices
    others: Indices
    starts: Indices


@dataclass(frozen=True, eq=False)
class Gradients:
    """The gradient fields of a graph. A sample is one multiplier per node and column.

    `loss` "cross-entropy" keeps the output weights orthogonal to 1 (P1 Remark B.6).
    """

    dag: Dag
    prime: int
    seed: int = 0
    loss: str = "full"

    def __post_init__(self) -> None:
        if self.loss not in LOSSES:
            raise LawfulError(f"unknown loss {self.loss!r}: choose from {', '.join(LOSSES)}")

    @property
    def size(self) -> int:
        """Number of parameters."""
        return self.dag.parameters

    def draw(self, labels: tuple[int, ...], rows: Indices) -> Residues:
        """Multipliers of every node (nodes, columns)."""
        dag = self.dag
        sample = residues(self.seed, labels, rows, len(dag.names), self.prime).T.copy()
        sample[(dag.roles == Role.HIDDEN) & (dag.slopes == 1.0)] = 1
        if self.loss == "cross-entropy":
            others = sample[dag.outputs[:-1]].sum(axis=0)
            sample[dag.outputs[-1]] = -others % self.prime
        return sample

    def field(self, state: Dual, sample: Residues) -> Dual:
        """`∂f/∂θ_uv = h_u c_v δ_v` for every edge, h from the inputs upwards and δ from the outputs downwards."""
        dag, prime = self.dag, self.prime
        shape = (len(state.parts), len(dag.names), sample.shape[1])
        up, down = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
        sources = dag.in_degree == 0
        up[0, sources] = sample[sources]
        for step in self._upward:
            sums = self._sums(state, up, step)
            up[:, step.nodes] = sums * sample[step.nodes] % prime
        down[0, dag.outputs] = sample[dag.outputs]
        for step in self._downward:
            sums = self._sums(state, down, step)
            inner = dag.roles[step.nodes] == Role.HIDDEN
            down[:, step.nodes[inner]] = sums[:, inner] * sample[step.nodes[inner]] % prime
        return Dual(up[:, dag.tails], prime) * Dual(down[:, dag.heads], prime)

    def _sums(self, state: Dual, values: Residues, step: _Step) -> Residues:
        weights = Dual(state.parts[:, step.edges], self.prime)
        messages = weights.raw_product(Dual(values[:, step.others], self.prime))
        return np.asarray(np.add.reduceat(messages, step.starts, axis=1) % self.prime)

    @cached_property
    def _upward(self) -> tuple[_Step, ...]:
        return _steps(self.dag.heads, self.dag.tails, self.dag.levels)

    @cached_property
    def _downward(self) -> tuple[_Step, ...]:
        return _steps(self.dag.tails, self.dag.heads, -self.dag.levels)


@dataclass(frozen=True, eq=False)
class Derived:
    """Fields made from other fields of the same network, whose arithmetic and random numbers they share."""

    gradients: Family

    @property
    def prime(self) -> int:
        """The prime of the gradients."""
        return self.gradients.prime

    @property
    def seed(self) -> int:
        """The seed of the gradients."""
        return self.gradients.seed

    @property
    def size(self) -> int:
        """Number of parameters."""
        return self.gradients.size

    def draw(self, labels: tuple[int, ...], rows: Indices) -> Residues:
        """The random numbers of the gradients."""
        return self.gradients.draw(labels, rows)


@dataclass(frozen=True, eq=False)
class Pieces(Derived):
    """The gradient fields near given weights, where hidden neurons have only the gates of some activation patterns.

    A field sums `mixed` patterns (rows of `patterns`, a column per hidden neuron), each with inputs of its own: the
    patterns are finitely many, and only sums of them make generic fields. `spans`, if given, holds for each pattern the
    inputs (with a 1 for the constant) whose combinations are allowed. A sample is one multiplier per pattern, node and
    column.
    """

    gradients: Gradients
    patterns: Residues
    spans: tuple[Residues, ...] | None = None
    most: int = MIXED

    @property
    def mixed(self) -> int:
        """How many patterns one field sums: all of them if they are few."""
        return min(len(self.patterns), self.most)

    def draw(self, labels: tuple[int, ...], rows: Indices) -> Residues:
        """Multipliers of every node (patterns · nodes, columns)."""
        return np.concatenate(
            [self._draw_one((*labels, FIRST_PATTERN + place), place, rows) for place in range(self.mixed)]
        )

    def _draw_one(self, labels: tuple[int, ...], place: int, rows: Indices) -> Residues:
        sample = self.gradients.draw(labels, rows)
        which = np.full(len(rows), place)
        if len(self.patterns) > self.mixed:
            which = residues(self.seed, (*labels, 1), rows, 1, self.prime)[:, 0] % len(self.patterns)
        sample[self.gradients.dag.hidden] = self.patterns[which].T
        if self.spans is not None:
            self._stay_in_data(sample, which, self.spans)
        return sample

    def _stay_in_data(self, sample: Residues, which: Residues, spans: tuple[Residues, ...]) -> None:
        """Replace inputs and constant by random combinations of the data points that have the same pattern."""
        dag = self.gradients.dag
        nodes = dag.inputs if dag.constant is None else np.append(dag.inputs, dag.constant)
        for pattern in np.unique(which):
            columns = np.flatnonzero(which == pattern)
            span = spans[pattern]
            weights = residues(self.seed + 1, (int(pattern),), sample[nodes[0], columns], len(span), self.prime)
            total = np.zeros((len(columns), span.shape[1]), dtype=np.int64)
            for point, weight in zip(span, weights.T, strict=True):
                total = (total + weight[:, None] * point[None]) % self.prime
            sample[np.ix_(nodes, columns)] = total.T

    def field(self, state: Dual, sample: Residues) -> Dual:
        """The sum of the gradients of the patterns, several at a time where arrays are small."""
        columns = sample.shape[1]
        parts = np.split(sample, self.mixed)
        together = max(1, min(self.mixed, TOGETHER // state.parts.size))
        total = np.zeros((1, 1, 1), dtype=np.int64)
        for start in range(0, self.mixed, together):
            some = parts[start : start + together]
            wide = Dual(np.tile(state.parts, (1, 1, len(some))), self.prime)
            values = self.gradients.field(wide, np.concatenate(some, axis=1)).parts
            total = total + values.reshape(*values.shape[:2], len(some), columns).sum(axis=2)
        return Dual(total % self.prime, self.prime)


def _steps(ends: Indices, others: Indices, levels: Indices) -> tuple[_Step, ...]:
    order = np.lexsort((ends, levels[ends]))
    steps = []
    for level in np.unique(levels[ends]):
        edges = order[levels[ends[order]] == level]
        nodes, starts = np.unique(ends[edges], return_index=True)
        steps.append(_Step(nodes, edges, others[edges], starts))
    return tuple(steps)
