"""How many laws training has near *every* weight vector, at least: gates that no weights can free.

With one input and no biases, inputs of one sign share their pattern. And a neuron that reads multiples of one and the
same ReLU neuron's output, and no bias, is on wherever that one is, or never: its weights decide, not the input. For
every way in which such gates can be set there are explicit laws, and the fewest of them hold near almost all weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations_with_replacement, product
from math import comb, prod

import numpy as np

from lawful.conservation.closure.lie_closure import POINT
from lawful.conservation.known.graph_laws import known_laws
from lawful.conservation.law_count import LawCount
from lawful.conservation.regions.on_data import seen_by_all
from lawful.exact import PRIME, residues
from lawful.network import Dag, Role
from lawful.network.dynamics import GradientFlow
from lawful.types import Floats

MOST_SETS = 1000
OPPOSITE = ((True, False), (False, True))
EQUAL = ((True, True), (False, False))
PAIRS = (*OPPOSITE, *EQUAL)


def least_laws(count: LawCount) -> int | None:
    """A number of independent laws that training has near all weights, if gates are bound; None if none is known to be.

    >>> from lawful.conservation import count_laws
    >>> [least_laws(count_laws(text)) for text in ("1-3-1 relu", "2-1-2-1 relu", "2-2-2-1 relu")]
    [4, 4, None]
    """
    dag = count.dag
    if dag is None or count.flow != GradientFlow() or count.loss != "full" or count.level != "phi":
        return None
    point = residues(0, (POINT,), [0], dag.parameters, PRIME)[0]
    counts = []
    if dag.constant is None and len(dag.inputs) == 1:
        for gates in sign_patterns(dag, all_layers=False) or ():
            view = seen_by_all(dag, gates[:, dag.hidden])
            laws = known_laws(dag, fixed=view.fixed, alike=view.alike, at_rest=view.resting)
            counts.append(laws.independent(point, PRIME))
    else:
        for fixed in _settled_gates(dag) or ():
            counts.append(known_laws(dag, fixed=fixed).independent(point, PRIME))
    return min(counts, default=None)


def sign_patterns(dag: Dag, most: int = MOST_SETS, *, all_layers: bool = True) -> list[Floats] | None:
    """The gates at x > 0 and at x < 0 (two rows) in every way that could occur, but for exchanged neurons.

    None where these are too many. Or, unless `all_layers` are asked for, later neurons get gates unlike any other: laws
    that hold then are identities in those gates, and hold whatever they are.
    """
    settled = _settled_neurons(dag)
    groups = [
        (nodes, OPPOSITE if first else EQUAL if settled[nodes].all() else PAIRS)
        for first, nodes in _exchangeable(dag, gate_mask(dag))
    ]
    while (sets := _choices([(nodes, len(options)) for nodes, options in groups], most)) is None:
        if all_layers or not groups:
            return None
        groups.pop()
    free = set(np.flatnonzero(gate_mask(dag)).tolist()).difference(*(nodes for nodes, _ in groups))
    patterns = []
    for chosen in sets:
        gates = np.ones((2, len(dag.names)))
        gates[:, sorted(free)] = 2.0 + np.arange(2 * len(free)).reshape(2, -1)
        for (nodes, options), picked in zip(groups, chosen, strict=True):
            for node, pick in zip(nodes, picked, strict=True):
                gates[:, node] = [1.0 if on else dag.slopes[node] for on in options[pick]]
        patterns.append(gates)
    return patterns


def gate_mask(dag: Dag) -> np.ndarray:
    """Which nodes have a gate."""
    return np.asarray((dag.roles == Role.HIDDEN) & (dag.slopes != 1.0))


def _settled_gates(dag: Dag) -> list[Floats] | None:
    """Every way to set gates that the weights alone decide (or some of them): 1 or the slope; NaN at the others."""
    settled = _settled_neurons(dag)
    if not settled.any():
        return None
    groups = [nodes for _, nodes in _exchangeable(dag, settled)]
    while (sets := _choices([(nodes, 2) for nodes in groups], MOST_SETS)) is None:
        groups.pop()  # these stay free
    settings = []
    for chosen in sets:
        fixed = np.where(dag.slopes == 1.0, 1.0, np.nan)
        for nodes, picked in zip(groups, chosen, strict=True):
            for node, pick in zip(nodes, picked, strict=True):
                fixed[node] = 1.0 if pick else dag.slopes[node]
        settings.append(fixed)
    return settings


def _settled_neurons(dag: Dag) -> np.ndarray:
    """Gated neurons that read nothing but multiples of one nonnegative signal."""
    source = np.full(len(dag.names), -1)  # the ReLU neuron of whose output a node is a multiple
    settled = np.zeros(len(dag.names), dtype=bool)
    for node in np.concatenate(dag.layers).tolist():
        if dag.roles[node] != Role.HIDDEN:
            continue
        read = np.unique(source[dag.tails[dag.heads == node]])
        if len(read) == 1 and read[0] >= 0:
            source[node] = read[0]
            settled[node] = dag.slopes[node] != 1.0
        elif dag.slopes[node] == 0.0:
            source[node] = node
    return settled


def _choices(groups: list[tuple[list[int], int]], most: int) -> Iterator[tuple[tuple[int, ...], ...]] | None:
    """Which option each neuron of each group takes, up to exchanging neurons of a group."""
    if prod(comb(options + len(nodes) - 1, len(nodes)) for nodes, options in groups) > most:
        return None
    return product(*(combinations_with_replacement(range(options), len(nodes)) for nodes, options in groups))


def _exchangeable(dag: Dag, chosen: np.ndarray) -> list[tuple[bool, list[int]]]:
    """Chosen neurons with the same neighbours and slope, and whether they read the input alone."""
    groups: dict[tuple[float, frozenset[int], frozenset[int]], list[int]] = {}
    for node in np.flatnonzero(chosen).tolist():
        into = frozenset(dag.tails[dag.heads == node].tolist())
        out_of = frozenset(dag.heads[dag.tails == node].tolist())
        groups.setdefault((float(dag.slopes[node]), into, out_of), []).append(node)
    return [(into == set(dag.inputs.tolist()), nodes) for (_, into, _), nodes in groups.items()]
