"""Parts of a network that pass one number on: all fields are multiples of one there (P1 Corollary 3.5, flow box)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lawful.network import Dag, Role
from lawful.types import Floats, Residues


@dataclass(frozen=True)
class Part:
    """The edges on paths from one node to another through linear neurons that nothing else reads or feeds.

    The network depends on these weights through `T = Σ over paths of products` alone, so every field is a multiple of
    ∇T in them, and by the flow box theorem all but one of their directions are bound: `len(edges) − 1` laws, not all
    of which need have a closed form.
    """

    source: int
    sink: int
    edges: tuple[int, ...]


def one_field_parts(dag: Dag, gates: Floats) -> tuple[Part, ...]:
    """The parts of a network that pass one number on; `gates` is NaN where a neuron is not linear.

    >>> from lawful.network import Architecture
    >>> dag = Architecture.parse("1-2-2-1 linear").to_dag()
    >>> [(part.source, part.sink, len(part.edges)) for part in one_field_parts(dag, np.ones(6))]
    [(0, 5, 8)]
    """
    linear = (dag.roles == Role.HIDDEN) & ~np.isnan(gates) & (gates != 0.0)
    alone = np.bincount(dag.levels, minlength=int(dag.levels.max()) + 1)[dag.levels] == 1
    inner = linear & ~alone
    component = np.where(inner, np.arange(len(dag.names)), -1)
    between = np.flatnonzero(inner[dag.tails] & inner[dag.heads])
    changed = True
    while changed:  # the smallest number of a component spreads along its edges
        before = component.copy()
        for edge in between:
            tail, head = dag.tails[edge], dag.heads[edge]
            component[tail] = component[head] = min(component[tail], component[head])
        changed = bool((before != component).any())
    found = []
    for number in np.unique(component[inner]):
        members = component == number
        into = np.flatnonzero(members[dag.heads] & ~members[dag.tails])
        out_of = np.flatnonzero(members[dag.tails] & ~members[dag.heads])
        sources, sinks = set(dag.tails[into].tolist()), set(dag.heads[out_of].tolist())
        if len(sources) == len(sinks) == 1:
            source, sink = sources.pop(), sinks.pop()
            direct = np.flatnonzero((dag.tails == source) & (dag.heads == sink))
            own = np.flatnonzero(members[dag.tails] & members[dag.heads])
            edges = np.concatenate([into, own, out_of, direct])
            found.append(Part(source, sink, tuple(sorted(edges.tolist()))))
    return tuple(found)


def bound_directions(dag: Dag, gates: Residues, part: Part, point: Residues, prime: int) -> Residues:
    """A basis of the directions of a part's weights orthogonal to ∇T at a point, a row each, modulo a prime."""
    inside = set(part.edges)
    order = np.concatenate(dag.layers).tolist()
    up, down = [0] * len(dag.names), [0] * len(dag.names)
    up[part.source], down[part.sink] = 1, 1
    gate = [int(value) for value in gates]
    gate[part.source] = gate[part.sink] = 1
    for node in order:
        if node != part.source:
            terms = (int(point[e]) * up[dag.tails[e]] for e in np.flatnonzero(dag.heads == node) if int(e) in inside)
            up[node] = sum(terms) * gate[node] % prime
    for node in reversed(order):
        if node != part.sink:
            terms = (int(point[e]) * down[dag.heads[e]] for e in np.flatnonzero(dag.tails == node) if int(e) in inside)
            down[node] = sum(terms) * gate[node] % prime
    slope = {e: up[dag.tails[e]] * down[dag.heads[e]] % prime for e in part.edges}
    pivot = next((e for e in part.edges if slope[e]), None)
    if pivot is None:
        return np.zeros((0, dag.parameters), dtype=np.int64)
    others = [e for e in part.edges if e != pivot]
    rows = np.zeros((len(others), dag.parameters), dtype=np.int64)
    for row, edge in enumerate(others):
        rows[row, edge], rows[row, pivot] = slope[pivot], -slope[edge] % prime
    return rows
