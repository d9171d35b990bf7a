"""What a data set leaves alone: weights that no sample moves, and sums of weights that every sample keeps.

Between two patterns of activation a network is a sum over its active paths. On finitely many samples, each with its
pattern, whole edges may be on no active path, and the weights from the inputs into one neuron move only within the span
of the samples at which an output reads the neuron.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from math import lcm

import flint
import numpy as np
from numpy.typing import NDArray

from lawful.conservation.known.law import Law
from lawful.exact import rank, to_residues
from lawful.network import Dag, Role
from lawful.types import Floats

Mask = NDArray[np.bool_]
MOST_DIGITS = 4e6  # numbers, times their coordinates, in an exact null space


@dataclass(frozen=True, eq=False)
class OnData:
    """How a network looks to a data set, or to all inputs if their patterns are known.

    `fixed` is the gate of each node that has one gate wherever a gate matters (else NaN); nodes with the same number in
    `alike` have the same gates (−1: none). `resting` marks the edges that are on no active path of any sample, and
    `still` are the sums of weights from the inputs into one neuron that no sample moves.
    """

    fixed: Floats
    alike: NDArray[np.intp]
    resting: Mask
    reaches_output: Mask  # node by sample (or pattern): does its signal reach an output?
    still: tuple[Law, ...] = ()
    samples: Floats | None = None  # with a 1 for the constant

    def read_by_outputs(self, node: int) -> Floats:
        """The samples whose signal at a node reaches an output; none where all inputs are meant."""
        return np.zeros((0, 1)) if self.samples is None else self.samples[self.reaches_output[node]]

    @staticmethod
    def column(dag: Dag, node: int) -> int:
        """Where the samples hold the signal of an input or of the constant."""
        return len(dag.inputs) if node == dag.constant else int(np.flatnonzero(dag.inputs == node)[0])


def seen_by_all(dag: Dag, patterns: Floats) -> OnData:
    """What all inputs together leave alone, where no other gates than `patterns` occur, each on an open set."""
    points = np.ones((len(patterns), len(dag.inputs)))
    return _view(dag, patterns, np.arange(len(patterns)), points)


def seen_by(dag: Dag, patterns: Floats, groups: NDArray[np.intp], points: Floats, prime: int) -> OnData:
    """What the samples `points` leave alone; sample i shows the gates `patterns[groups[i]]`.

    >>> from lawful.network import Mlp
    >>> dag = Mlp([[[1.0, 0.5]], [[1.0]]]).to_dag()
    >>> view = seen_by(dag, np.array([[1.0]]), np.array([0]), np.array([[2.0, 3.0]]), 8388593)
    >>> view.still[0].terms  # the only sample is (2, 3): it moves the weights along itself
    {(0,): Fraction(-3, 1), (1,): Fraction(2, 1)}
    """
    view = _view(dag, patterns, groups, points)
    samples, reaches_output = np.append(points, np.ones((len(points), 1)), axis=1), view.reaches_output[:, groups]
    view = replace(view, samples=samples, reaches_output=reaches_output)
    return replace(view, still=tuple(law for node in _readers(dag) for law in _still(dag, node, view, prime)))


def seen_by_any(dag: Dag, points: Floats, fixed: Floats, prime: int) -> OnData:
    """What samples leave alone whichever neurons are on: sums of weights from the inputs that none of them moves."""
    samples = np.append(points, np.ones((len(points), 1)), axis=1)
    nobody = np.zeros((len(dag.names), len(points)), dtype=bool)
    apart = np.full(len(dag.names), -1)
    view = OnData(fixed, apart, np.zeros(dag.parameters, dtype=bool), ~nobody, samples=samples)
    return replace(view, still=tuple(law for node in _readers(dag) for law in _still(dag, node, view, prime)))


def _view(dag: Dag, patterns: Floats, groups: NDArray[np.intp], points: Floats) -> OnData:
    gates = np.ones((len(dag.names), len(patterns)))
    gates[dag.hidden] = patterns.T
    zero_signal, no_signal = _forward(dag, gates, points, groups)
    unread = _backward(dag, gates, np.zeros_like(zero_signal))
    resting = np.asarray((zero_signal[dag.tails] | unread[dag.heads]).all(axis=1))
    # A gate does not matter where no signal arrives, nor, whatever those gates are, where nobody reads it.
    free = no_signal | _no_reader(dag, _backward(dag, gates, no_signal))
    return OnData(_fixed_gates(dag, gates, free), _alike(dag, gates, free), resting, reaches_output=~unread)


def _forward(dag: Dag, gates: Floats, points: Floats, groups: NDArray[np.intp]) -> tuple[Mask, Mask]:
    """In each pattern: the nodes whose signal is 0 whatever the weights, and the hidden ones that receive none."""
    zero_signal = np.zeros(gates.shape, dtype=bool)
    for pattern in range(gates.shape[1]):
        zero_signal[dag.inputs, pattern] = ~points[groups == pattern].any(axis=0)
    no_signal = np.zeros_like(zero_signal)
    for node in np.concatenate(dag.layers):
        if dag.roles[node] == Role.HIDDEN:
            no_signal[node] = zero_signal[dag.tails[dag.heads == node]].all(axis=0)
            zero_signal[node] = no_signal[node] | (gates[node] == 0.0)
    return zero_signal, no_signal


def _backward(dag: Dag, gates: Floats, any_gate: Mask) -> Mask:
    """In each pattern: the nodes whose signal reaches no output; a gate of `any_gate` stops nothing."""
    unread = np.zeros(gates.shape, dtype=bool)
    for node in np.concatenate(dag.layers)[::-1]:
        if dag.roles[node] == Role.HIDDEN:
            readers = unread[dag.heads[dag.tails == node]].all(axis=0)
            unread[node] = readers | ((gates[node] == 0.0) & ~any_gate[node])
    return unread


def _no_reader(dag: Dag, unread: Mask) -> Mask:
    mask = np.zeros_like(unread)
    for node in dag.hidden:
        mask[node] = unread[dag.heads[dag.tails == node]].all(axis=0)
    return mask


def _fixed_gates(dag: Dag, gates: Floats, free: Mask) -> Floats:
    fixed = np.where(dag.slopes == 1.0, 1.0, np.nan)
    for node in dag.hidden:
        seen = np.unique(gates[node, ~free[node]])
        if len(seen) <= 1:
            fixed[node] = seen[0] if len(seen) else gates[node, 0]
    return fixed


def _alike(dag: Dag, gates: Floats, free: Mask) -> NDArray[np.intp]:
    alike = np.full(len(dag.names), -1)
    shown = np.where(free, np.nan, gates)
    numbers: dict[tuple[float, bytes], int] = {}
    for node in dag.hidden.tolist():
        key = (float(dag.slopes[node]), shown[node].tobytes())
        alike[node] = numbers.setdefault(key, len(numbers))
    return alike


def _readers(dag: Dag) -> list[int]:
    """The nodes that read inputs."""
    return [int(node) for node in np.unique(dag.heads[dag.roles[dag.tails] == Role.INPUT])]


def _still(dag: Dag, node: int, view: OnData, prime: int) -> list[Law]:
    """A basis of the sums `Σ a_u θ_uv` over inputs u of node v with ⟨a, x⟩ = 0 for each sample x that moves them."""
    sources = np.isin(dag.roles[dag.tails], (Role.INPUT, Role.CONSTANT))
    edges = np.flatnonzero((dag.heads == node) & sources & ~view.resting)
    rows = np.unique(view.read_by_outputs(node)[:, [view.column(dag, int(dag.tails[edge])) for edge in edges]], axis=0)
    if not len(edges) or rank(to_residues(rows, prime), prime) == len(edges):
        return []
    return [
        Law("still", (node,), {(int(edge),): factor for edge, factor in zip(edges, vector, strict=True) if factor})
        for vector in _null_space(rows)
    ]


def _null_space(rows: Floats) -> list[list[Fraction]]:
    """Integer vectors orthogonal to all rows: a basis over the rationals, or none where that would take too long."""
    if rows.shape[0] * rows.shape[1] ** 2 > MOST_DIGITS:
        return []
    exact = flint.fmpq_mat([[flint.fmpq(*float(value).as_integer_ratio()) for value in row] for row in rows])
    reduced, found_rank = exact.rref()
    pivots = [next(c for c in range(rows.shape[1]) if reduced[r, c] != 0) for r in range(found_rank)]
    basis = []
    for free in sorted(set(range(rows.shape[1])) - set(pivots)):
        vector = [Fraction(0)] * rows.shape[1]
        vector[free] = Fraction(1)
        for row, pivot in enumerate(pivots):
            vector[pivot] = -Fraction(int(reduced[row, free].p), int(reduced[row, free].q))
        scale = lcm(*(value.denominator for value in vector))
        basis.append([value * scale for value in vector])
    return basis
