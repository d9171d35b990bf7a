"""The laws that a network's graph gives away: balanced neurons, pairs of linear neurons, sums, weights that rest."""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from lawful.laws.law import Law, LawFamily, Monomial
from lawful.network import Dag

Indices = NDArray[np.intp]
Edges = dict[int, int]  # the node at the other end, and the edge
ONE = Fraction(1)


def known_laws(
    dag: Dag, *, loss: str = "full", linear: NDArray[np.bool_] | None = None, dead: NDArray[np.bool_] | None = None
) -> LawFamily:
    """Every law that holds by the structure of the graph alone (P1 Proposition 4.1, P4 Theorem 6).

    - each hidden neuron: `‖in‖² − ‖out‖²`, its bias being one more incoming weight;
    - two *linear* neurons with the same neighbours: `⟨in, in'⟩ − ⟨out, out'⟩`. All of them together are the matrix
      `U_iᵀU_i − U_{i+1}U_{i+1}ᵀ`; of r such neurons with N weights each, the pairs of the first min(N, r) with all
      others are independent and generate the rest (P1 Proposition 4.2), so no more are listed;
    - under cross-entropy, the sum of the weights from a node to all outputs (P1 Remark B.6);
    - every weight at a neuron that is dead.

    `linear` and `dead` are masks over nodes; by default a neuron is linear if its slope is 1, and none is dead.

    >>> from lawful.network import Architecture
    >>> [law.kind for law in known_laws(Architecture.parse("2-2-1 linear").to_dag())]
    ['neuron', 'neuron', 'pair']
    """
    acts_linearly = dag.slopes == 1.0 if linear is None else linear
    at_rest = np.zeros(len(dag.names), dtype=bool) if dead is None else dead
    into, out_of = _neighbours(dag)
    hidden = [int(node) for node in dag.hidden if not at_rest[node]]
    laws = [_neuron(node, into[node], out_of[node]) for node in hidden]
    for group in _twins(dag, [node for node in hidden if acts_linearly[node]], into, out_of):
        independent = min(len(group), len(into[group[0]]) + len(out_of[group[0]]))
        for first in range(independent):
            laws += [_pair(group[first], other, into, out_of) for other in group[first + 1 :]]
    if loss == "cross-entropy":
        sources = [node for node in range(len(dag.names)) if set(dag.outputs.tolist()) <= set(out_of[node])]
        laws += [_output_sum(node, out_of[node], dag) for node in sources if not at_rest[node]]
    resting = np.flatnonzero(at_rest[dag.tails] | at_rest[dag.heads])
    laws += [Law("weight", (int(dag.tails[e]), int(dag.heads[e])), {(int(e),): ONE}) for e in resting]
    return LawFamily(tuple(laws), dag.parameters)


def _neighbours(dag: Dag) -> tuple[list[Edges], list[Edges]]:
    into: list[Edges] = [{} for _ in dag.names]
    out_of: list[Edges] = [{} for _ in dag.names]
    for edge, (tail, head) in enumerate(zip(dag.tails.tolist(), dag.heads.tolist(), strict=True)):
        into[head][tail] = edge
        out_of[tail][head] = edge
    return into, out_of


def _twins(dag: Dag, nodes: list[int], into: list[Edges], out_of: list[Edges]) -> list[list[int]]:
    """Groups of neurons that read the same nodes and write to the same nodes."""
    groups: dict[tuple[frozenset[int], frozenset[int]], list[int]] = defaultdict(list)
    for node in nodes:
        groups[frozenset(into[node]), frozenset(out_of[node])].append(node)
    return list(groups.values())


def _neuron(node: int, into: Edges, out_of: Edges) -> Law:
    terms: dict[Monomial, Fraction] = {(edge, edge): ONE for edge in into.values()}
    return Law("neuron", (node,), terms | {(edge, edge): -ONE for edge in out_of.values()})


def _pair(first: int, second: int, into: list[Edges], out_of: list[Edges]) -> Law:
    terms: dict[Monomial, Fraction] = {_sorted(edge, into[second][at]): ONE for at, edge in into[first].items()}
    more = {_sorted(edge, out_of[second][at]): -ONE for at, edge in out_of[first].items()}
    return Law("pair", (first, second), terms | more)


def _output_sum(node: int, out_of: Edges, dag: Dag) -> Law:
    return Law("sum", (node,), {(out_of[int(output)],): ONE for output in dag.outputs})


def _sorted(first: int, second: int) -> Monomial:
    return (first, second) if first <= second else (second, first)
