"""Parts of a network that pass one number on: all fields are multiples of one there (P1 Corollary 3.5, flow box)."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from lawful.conservation.regions.on_data import OnData
from lawful.exact import to_residues
from lawful.network import Dag, Role
from lawful.types import Floats, Residues

MOST_WORK = 2e6
SAMPLE = -1  # the source of a part that reads one and the same sample


@dataclass(frozen=True)
class Part:
    """The edges on paths from one node to another through linear neurons that nothing else reads or feeds.

    The network depends on these weights through `T = Σ over paths of products` alone, so every field is a multiple of
    ∇T in them, and by the flow box theorem all but one of their directions are bound: `len(edges) − 1` laws, not all
    of which need have a closed form. The source may also be a single sample: then `signals` are its coordinates, by
    node.
    """

    source: int
    sink: int
    inner: tuple[int, ...]
    edges: tuple[int, ...]
    signals: tuple[tuple[int, float], ...]


def one_field_parts(dag: Dag, gates: Floats, on_data: OnData | None = None) -> tuple[Part, ...]:
    """The parts of a network that pass one number on; `gates` is NaN where a neuron is not linear.

    >>> from lawful.network import Architecture
    >>> dag = Architecture.parse("1-2-2-1 linear").to_dag()
    >>> [(part.source, part.sink, len(part.edges)) for part in one_field_parts(dag, np.ones(6))]
    [(0, 5, 8)]
    """
    live = np.ones(dag.parameters, dtype=bool) if on_data is None else ~on_data.resting
    linear = (dag.roles == Role.HIDDEN) & ~np.isnan(gates) & (gates != 0.0)
    moving = np.unique(np.append(dag.tails[live], dag.heads[live]))  # nodes that a live edge touches
    alone = np.bincount(dag.levels[moving], minlength=int(dag.levels.max()) + 1)[dag.levels] == 1
    parts = _parts(dag, linear & ~alone, live, on_data) + _parts(dag, linear, live, on_data)
    if on_data is not None and len(dag.names) * dag.parameters <= MOST_WORK:
        sinks = np.unique(dag.heads[live])
        parts += [part for sink in sinks for part in _parts(dag, _behind(dag, sink, linear, live), live, on_data)]
    return tuple(dict.fromkeys(parts))


def _behind(dag: Dag, sink: int, linear: NDArray[np.bool_], live: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """The linear neurons that outputs read through one node alone."""
    inside = np.zeros(len(dag.names), dtype=bool)
    for node in np.concatenate(dag.layers)[::-1]:
        heads = dag.heads[live & (dag.tails == node)]
        inside[node] = linear[node] and len(heads) > 0 and (inside[heads] | (heads == sink)).all()
    return inside


def _parts(dag: Dag, inner: NDArray[np.bool_], live: NDArray[np.bool_], on_data: OnData | None) -> list[Part]:
    members: dict[tuple[frozenset[int], int], list[int]] = defaultdict(list)
    for nodes in _components(dag, inner, live):
        inside = np.isin(np.arange(len(dag.names)), nodes)
        sources = frozenset(dag.tails[live & inside[dag.heads] & ~inside[dag.tails]].tolist())
        sinks = set(dag.heads[live & inside[dag.tails] & ~inside[dag.heads]].tolist())
        if len(sinks) == 1:
            read = frozenset([SAMPLE]) if _outside(dag, sources) and len(sources) > 1 else sources
            members[read, sinks.pop()] += nodes
    parts = [_part(dag, sources, sink, nodes, live, on_data) for (sources, sink), nodes in members.items()]
    return [part for part in parts if part is not None]


def _components(dag: Dag, inner: NDArray[np.bool_], live: NDArray[np.bool_]) -> list[list[int]]:
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    between = live & inner[dag.tails] & inner[dag.heads]
    size = len(dag.names)
    graph = coo_array((np.ones(between.sum()), (dag.tails[between], dag.heads[between])), shape=(size, size))
    _, label = connected_components(graph, directed=False)
    return [np.flatnonzero(inner & (label == number)).tolist() for number in np.unique(label[inner])]


def _outside(dag: Dag, nodes: frozenset[int]) -> bool:
    return all(dag.roles[node] in (Role.INPUT, Role.CONSTANT) for node in nodes)


def _part(
    dag: Dag, sources: frozenset[int], sink: int, nodes: list[int], live: NDArray[np.bool_], on_data: OnData | None
) -> Part | None:
    inside = np.isin(np.arange(len(dag.names)), nodes)
    if sources != {SAMPLE} and len(sources) > 1:
        return None
    source = next(iter(sources))
    reads = np.isin(dag.tails, list(sources)) if source != SAMPLE else ~np.isin(dag.roles[dag.tails], (Role.HIDDEN,))
    belongs = live & ((inside[dag.heads] & (inside[dag.tails] | reads)) | (inside[dag.tails] & (dag.heads == sink)))
    belongs |= live & reads & (dag.heads == sink)  # beside the neurons
    edges = tuple(np.flatnonzero(belongs).tolist())
    if source != SAMPLE:
        return Part(source, sink, tuple(nodes), edges, ((source, 1.0),))
    outer = sorted({int(dag.tails[edge]) for edge in edges} - set(nodes))
    signals = (
        None if on_data is None else one_sample(on_data.read_by_outputs(sink), [on_data.column(dag, n) for n in outer])
    )
    if signals is None:
        return None
    return Part(SAMPLE, sink, tuple(nodes), edges, tuple(zip(outer, signals, strict=True)))


def one_sample(rows: Floats, columns: list[int]) -> list[float] | None:
    """The coordinates of the first row if all rows are multiples of it there, else None; decided in fractions."""
    if not len(rows):
        return None
    exact = [[Fraction(float(value)) for value in row] for row in np.unique(rows[:, columns], axis=0)]
    first = next((row for row in exact if any(row)), None)
    if first is None:
        return None
    pivot = next(place for place, value in enumerate(first) if value)
    same = all(row[place] * first[pivot] == row[pivot] * first[place] for row in exact for place in range(len(columns)))
    return [float(value) for value in first] if same else None


def bound_directions(dag: Dag, gates: Residues, part: Part, point: Residues, speed: Residues, prime: int) -> Residues:
    """A basis of the directions of a part's weights orthogonal to M∇T at a point, a row each, modulo a prime.

    `speed` is the diagonal of M, all 1 for plain gradient flow.
    """
    order = [node for node in np.concatenate(dag.layers).tolist() if node in set(part.inner)]
    up, down = [0] * len(dag.names), [0] * len(dag.names)
    signals = to_residues([value for _, value in part.signals], prime).tolist()
    for (node, _), value in zip(part.signals, signals, strict=True):
        up[node] = value
    down[part.sink] = 1
    for node in order:
        terms = (int(point[e]) * up[dag.tails[e]] for e in part.edges if dag.heads[e] == node)
        up[node] = sum(terms) * int(gates[node]) % prime
    for node in reversed(order):
        terms = (int(point[e]) * down[dag.heads[e]] for e in part.edges if dag.tails[e] == node)
        down[node] = sum(terms) * int(gates[node]) % prime
    slope = {e: int(speed[e]) * (up[dag.tails[e]] * down[dag.heads[e]] % prime) % prime for e in part.edges}
    pivot = next((e for e in part.edges if slope[e]), None)
    if pivot is None:
        return np.zeros((0, dag.parameters), dtype=np.int64)
    others = [e for e in part.edges if e != pivot]
    rows = np.zeros((len(others), dag.parameters), dtype=np.int64)
    for row, edge in enumerate(others):
        rows[row, edge], rows[row, pivot] = slope[pivot], -slope[edge] % prime
    return rows
