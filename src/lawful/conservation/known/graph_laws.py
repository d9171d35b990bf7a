"""The laws that a network's graph gives away: balanced neurons, pairs of linear neurons, sums, weights that rest."""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from lawful.conservation.known.law import Law, LawFamily, Monomial
from lawful.network import Dag, Role
from lawful.types import Floats, Indices

Edges = dict[int, int]  # the node at the other end, and the edge
ONE = Fraction(1)


def known_laws(
    dag: Dag,
    *,
    loss: str = "full",
    fixed: Floats | None = None,
    alike: Indices | None = None,
    at_rest: NDArray[np.bool_] | None = None,
    every_pair: bool = False,
) -> LawFamily:
    """Every law that holds by the structure of the graph alone (P1 Proposition 4.1, P4 Theorem 6).

    - each hidden neuron: `‖in‖² − ‖out‖²`, its bias being one more incoming weight;
    - two *linear* neurons with the same neighbours: `⟨in, in'⟩ − ⟨out, out'⟩`. All of them together are the matrix
      `U_iᵀU_i − U_{i+1}U_{i+1}ᵀ`; of r such neurons with N weights each, the pairs of the first min(N, r) with all
      others are independent and generate the rest (P1 Proposition 4.2), so no more are listed unless `every_pair`;
    - a linear neuron with one incoming weight p and one outgoing weight q, beside a direct edge s between the same two
      nodes: `(p + q) e^{−s}`, since s' = g, p' = qg and q' = pg for some g. It is no polynomial;
    - under cross-entropy, the sum of the weights from a node to all outputs (P1 Remark B.6);
    - every weight that never moves: those at a neuron whose gate is 0, and what hangs on such neurons alone.

    `fixed` holds the gate of every node that acts linearly, NaN for the others; by default neurons of slope 1. Neurons
    with the same number in `alike` always have the same gate: to each other they are linear. `at_rest` marks weights
    that are known to rest.

    >>> from lawful.network import Architecture
    >>> [law.kind for law in known_laws(Architecture.parse("2-2-1 linear").to_dag())]
    ['neuron', 'neuron', 'pair']
    """
    gates = np.where(dag.slopes == 1.0, 1.0, np.nan) if fixed is None else fixed
    resting = resting_edges(dag, gates, loss)
    if at_rest is not None:
        resting = resting | at_rest
    into, out_of = _neighbours(dag, resting)
    hidden = [int(node) for node in dag.hidden if into[node] or out_of[node]]
    laws = [_neuron(node, into[node], out_of[node]) for node in hidden]
    labels = [_label(node, gates, alike) for node in range(len(dag.names))]
    for group in _twins([node for node in hidden if labels[node] is not None], labels, into, out_of):
        independent = len(group) if every_pair else min(len(group), len(into[group[0]]) + len(out_of[group[0]]))
        for first in range(independent):
            laws += [_pair(group[first], other, into, out_of) for other in group[first + 1 :]]
    laws += [law for node in hidden if gates[node] == 1.0 and (law := _detour(node, into[node], out_of)) is not None]
    if loss == "cross-entropy":
        outputs = set(dag.outputs.tolist())
        laws += [_output_sum(node, out_of[node], dag) for node in range(len(dag.names)) if outputs <= set(out_of[node])]
    laws += [Law("weight", (int(dag.tails[e]), int(dag.heads[e])), {(int(e),): ONE}) for e in np.flatnonzero(resting)]
    return LawFamily(tuple(laws), dag.parameters)


def resting_edges(dag: Dag, gates: Floats, loss: str) -> NDArray[np.bool_]:
    """Mask of the weights whose gradient is always 0: the signal before them, or all that listens after them, is 0."""
    if loss == "cross-entropy" and len(dag.outputs) == 1:
        return np.ones(dag.parameters, dtype=bool)  # the softmax of one number is constant
    dead = (dag.roles == Role.HIDDEN) & (gates == 0.0)
    zero_signal, unread = dead.copy(), dead.copy()
    if dead.any():
        order = np.concatenate(dag.layers)
        hidden = dag.roles == Role.HIDDEN
        for node in order[hidden[order]]:
            zero_signal[node] |= bool(zero_signal[dag.tails[dag.heads == node]].all())
        for node in order[hidden[order]][::-1]:
            unread[node] |= bool(unread[dag.heads[dag.tails == node]].all())
    return np.asarray(zero_signal[dag.tails] | unread[dag.heads])


def _neighbours(dag: Dag, resting: NDArray[np.bool_]) -> tuple[list[Edges], list[Edges]]:
    into: list[Edges] = [{} for _ in dag.names]
    out_of: list[Edges] = [{} for _ in dag.names]
    for edge in np.flatnonzero(~resting).tolist():
        tail, head = int(dag.tails[edge]), int(dag.heads[edge])
        into[head][tail] = edge
        out_of[tail][head] = edge
    return into, out_of


def _label(node: int, gates: Floats, alike: Indices | None) -> tuple[str, float] | None:
    """What two neurons must share to act alike: a fixed gate, or a gate that is always the same."""
    if not np.isnan(gates[node]):
        return "fixed", float(gates[node])
    return None if alike is None or alike[node] < 0 else ("alike", float(alike[node]))


def _twins(
    nodes: list[int], labels: list[tuple[str, float] | None], into: list[Edges], out_of: list[Edges]
) -> list[list[int]]:
    """Groups of neurons that read the same nodes, write to the same nodes, and always have the same gate."""
    groups: dict[tuple[object, frozenset[int], frozenset[int]], list[int]] = defaultdict(list)
    for node in nodes:
        groups[labels[node], frozenset(into[node]), frozenset(out_of[node])].append(node)
    return list(groups.values())


def _neuron(node: int, into: Edges, out_of: Edges) -> Law:
    terms: dict[Monomial, Fraction] = {(edge, edge): ONE for edge in into.values()}
    return Law("neuron", (node,), terms | {(edge, edge): -ONE for edge in out_of.values()})


def _pair(first: int, second: int, into: list[Edges], out_of: list[Edges]) -> Law:
    terms: dict[Monomial, Fraction] = {_in_order(edge, into[second][at]): ONE for at, edge in into[first].items()}
    more = {_in_order(edge, out_of[second][at]): -ONE for at, edge in out_of[first].items()}
    return Law("pair", (first, second), terms | more)


def _detour(node: int, into: Edges, out_of: list[Edges]) -> Law | None:
    if len(into) != 1 or len(out_of[node]) != 1:
        return None
    ((source, first),), ((target, second),) = into.items(), out_of[node].items()
    direct = out_of[source].get(target)
    return None if direct is None else Law("detour", (node,), {(first,): ONE, (second,): ONE}, exponent=direct)


def _output_sum(node: int, out_of: Edges, dag: Dag) -> Law:
    return Law("sum", (node,), {(out_of[int(output)],): ONE for output in dag.outputs})


def _in_order(first: int, second: int) -> Monomial:
    return (first, second) if first <= second else (second, first)
